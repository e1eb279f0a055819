"""Release the flows with this project, by its default mechanism or with an option, and with intervals."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from given import given, is_check

from od_core import Budget, Cap, Geography, InfTDARefined, Ledger, OdError, PrivacyDomain, PrivacyUnit, release_flows

LAPLACE = {"mechanism": InfTDARefined(noise_distribution="laplace"), "tree": "both"}
LAPLACE_AUTO = InfTDARefined(noise_distribution="laplace", estimate="auto")
OPTIONS = {
    "totals": {"area_totals": "1/10"},
    "auto": {"mechanism": InfTDARefined(estimate="auto")},
    "laplace": LAPLACE,
    "laplace_totals": LAPLACE | {"area_totals": "18/100"},
    "laplace_auto": LAPLACE | {"area_totals": "18/100", "mechanism": LAPLACE_AUTO},
}


def main():
    """Release the flows of all levels."""
    folder, output, settings = given()
    levels, choice = settings["levels"], settings["noise"]
    # user code begins
    geography = Geography.from_frame(pd.read_csv(folder / "zones.csv", dtype=str, keep_default_na=False), levels)
    release = release_flows(
        folder / "trips.parquet",
        geography,
        columns={"origin": f"origin_{levels[-1]}", "destination": f"destination_{levels[-1]}"},
        one_row_a_trip=True,
        unit=PrivacyUnit("trip", neighbours="bounded" if choice == "bounded" else "unbounded"),
        budget=Budget(settings["epsilon"], 0 if "laplace" in choice else settings["delta"]),
        **OPTIONS.get(choice, {}),
        fault_threshold=0,
    )
    for level in levels:
        release.flows_at(level, level, interval=True).to_parquet(output / f"{level}.parquet")
    # user code ends


UNIT = PrivacyUnit("trip", neighbours="bounded")


def released(ledger_file, epsilon):
    """Release twenty zones of trips, charged to a ledger; return the trips of all pairs, and what was spent in all."""
    zones = pd.DataFrame({"zone": [f"Z{number:02}" for number in range(20)]})
    flows = zones.rename(columns={"zone": "origin"}).merge(zones.rename(columns={"zone": "destination"}), "cross")
    ledger = Ledger(ledger_file)
    ledger.declare(PrivacyDomain("trips", UNIT, Cap(rho="1/10"), "an example"))
    release = release_flows(
        flows.assign(trips=50),
        Geography.from_frame(zones, ["zone"]),
        unit=UNIT,
        budget=Budget(epsilon, "1e-6"),
        fault_threshold=0,
        ledger=ledger,
        release_id=f"trips/2001-01/r{epsilon}",
    )
    return release.flows["trips"].tolist(), [balance.spent for balance in ledger.balances()]


def in_a_new_process(*arguments):
    """Release in a process of its own, as after a restart."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(released, *arguments).result()


def check():
    """Release as the documentation does: the total is kept, a restart draws and spends nothing again, the cap holds."""
    with TemporaryDirectory() as name:
        ledger_file = Path(name) / "ledger.sqlite"
        first = in_a_new_process(ledger_file, 1)
        if sum(first[0]) != 20000:
            raise SystemExit("the total is not kept")
        if in_a_new_process(ledger_file, 1) != first:
            raise SystemExit("a restart draws other noise, or spends again")
        try:
            in_a_new_process(ledger_file, 5)
        except OdError as error:
            if error.code != "OD-LEDGER-CAP":
                raise
        else:
            raise SystemExit("a restart forgot what was spent")


if __name__ == "__main__":
    check() if is_check() else main()
