"""``od-release plan --target``: the smallest budget, its declaration, and the tables that are refused."""

import re
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from benchmarks.flights import us_flights
from od_assets.cli import target_plan as planning
from od_assets.cli.target_plan import replace_yaml_fields
from od_assets.resources.folders import Folders
from od_assets.series.reading import read_declared_series
from od_core import OdError
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.cli.commands import command, printed, refusal, stated
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, ZONES, Project
from tests.projects import declare_domain
from tests.published_flights import KEYS

STATES = "state x state: flows >= 1000 within 5 % in 90 %"
OUTFLOW = "division outflow: flows >= 1000 within 2 % in 95 %"


facts = partial(stated, "plan", "us_flights", "--runs", "0")
refused = partial(refusal, "plan", "us_flights", "--runs", "0")


@pytest.fixture
def var(published_flights, monkeypatch) -> Path:
    monkeypatch.setenv("OD_VAR", str(published_flights))
    return published_flights


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OD_VAR", str(tmp_path / "var"))
    return tmp_path


def test_the_newest_release_stands_for_the_true_flows(var):
    found = facts("--target", STATES)
    assert str(KEYS[-1]) in found["source"]
    assert [one["target"] for one in found["targets"]] == [STATES]
    assert found["targets"][0]["binds"]


@pytest.mark.representatives("file")
@pytest.mark.parametrize("table", ["synthetic", str(KEYS[0]), "file"])
def test_a_table_can_be_stated(var, table, tmp_path):
    """A file with the true flows is as good as the records it is made of, if its owner says that it is public."""
    if table == "file":
        known = us_flights(Path("data/us_flights"))
        pairs = known.tree.find_leaf_pairs(known.trips.rank)
        zones = pd.Series(known.geography.zones)
        frame = pd.DataFrame({"origin": zones[pairs.origin].values, "destination": zones[pairs.destination].values})
        frame.assign(trips=known.truth.levels[-1][1]).to_csv(tmp_path / "public.csv", index=False)
        table = str(tmp_path / "public.csv")
    found = facts("--target", STATES, "--table", table)
    expected = {"synthetic": "synthetic table", str(KEYS[0]): str(KEYS[0])}.get(table, "public.csv")
    assert expected in found["source"]


def test_the_declaration_has_the_budget_and_all_else_as_before(empty):
    path = empty / "defs.yaml"
    found = facts("--target", STATES, "--target", OUTFLOW, "--to", str(path))
    before, after = (
        yaml.safe_load(text) for text in (Path("od_assets/defs/us_flights/defs.yaml").read_text(), path.read_text())
    )
    assert after["attributes"]["privacy"] == found["privacy"]
    assert "# a flight of an airport that is not listed refuses the month" in path.read_text()
    before["attributes"]["privacy"] = after["attributes"]["privacy"]
    assert after == before
    shares = [float(share) for share in found["privacy"]["shares"]]
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    needed = max(one["rho"] for one in found["targets"])
    assert needed <= decimal_of(found["rho"]) <= 1.002 * needed
    assert len(found["privacy"]["epsilon"].replace(".", "").lstrip("0")) <= 4


SHARES = {"privacy": {"epsilon": "3", "shares": ["1/2", "1/2"]}}
BREAKDOWNS = {"privacy": {"epsilon": "3"}, "segment_share": "3/5"}


@pytest.mark.parametrize(
    ("fields", "text", "expected"),
    [
        (
            SHARES,
            "attributes:\n  a: 1\n  privacy: {epsilon: 1, delta: 2}  # note\n  b: 2\n",
            "attributes:\n  a: 1\n  privacy:\n    epsilon: '3'\n    shares: [1/2, 1/2]  # note\n  b: 2\n",
        ),
        (
            SHARES,
            "attributes:\n  privacy:\n    epsilon: 1\n    shares:\n    - 1\n    - 2\n\n  # about b\n  b: 2\n",
            "attributes:\n  privacy:\n    epsilon: '3'\n    shares: [1/2, 1/2]\n\n  # about b\n  b: 2\n",
        ),
        (SHARES, "attributes: {privacy: {epsilon: 1}, name: x}\n", None),
        (SHARES, "attributes:\n  name: x\n", None),
        (SHARES, "type: x\n", None),
        (
            BREAKDOWNS,
            "attributes:\n  # the budget\n  privacy: {epsilon: 1}\n  b: 2\n",
            "attributes:\n  # the budget\n  segment_share: 3/5\n  privacy:\n    epsilon: '3'\n  b: 2\n",
        ),
        (
            BREAKDOWNS,
            "attributes:\n  segment_share: 1/2  # half\n  privacy: {epsilon: 1}\n",
            "attributes:\n  segment_share: 3/5  # half\n  privacy:\n    epsilon: '3'\n",
        ),
    ],
)
def test_only_the_sections_of_the_budget_are_written_anew(fields, text, expected):
    assert replace_yaml_fields(text, fields) == expected


@pytest.mark.slow
def test_the_share_of_the_breakdowns_follows_from_the_targets(empty):
    """Targets by category need a larger share of the breakdowns than targets of totals."""

    def share(*targets):
        options = [option for target in targets for option in ("--target", target)]
        arguments = ["plan", "us_flights_by_day", "--runs", "0", "--table", "synthetic"]
        found = stated(*arguments, *options, "--to", str(empty / "defs.yaml"))
        written = yaml.safe_load((empty / "defs.yaml").read_text())["attributes"]
        assert (written["privacy"], written["segment_share"]) == (found["privacy"], found["segment_share"])
        return Fraction(found["segment_share"])

    breakdown = next(
        iter(yaml.safe_load(Path("od_assets/defs/us_flights_by_day/defs.yaml").read_text())["attributes"]["segments"])
    )
    totals = share("state x state: flows >= 1000 within 5 % in 90 %")
    by_category = share(f"region x region by {breakdown}: flows >= 100 within 5 % in 90 %")
    assert totals < by_category


def test_the_declared_epsilon_allows_the_rho_where_conversions_stop_early(empty):
    """At 1 % of 10 trips, the noise is so narrow that the exact conversion stops at half of the rho."""
    found = facts("--target", "airport x airport: flows >= 10 within 1 % in 90 %", "--table", "synthetic")
    assert decimal_of(found["rho"]) >= found["targets"][0]["rho"]


def test_a_declaration_that_cannot_be_written_is_told_after_the_plan(empty):
    said = command("plan", "us_flights", "--runs", "0", "--target", STATES, "--to", str(empty / "none" / "defs.yaml"))
    assert str(said.exception).startswith("OD-INIT-WRITE: ")
    assert STATES in " ".join(said.stdout.split())


def test_targets_beyond_the_cap_are_relaxed(empty):
    """The tolerances of the nearest targets are wider by the square root of what the budget exceeds the cap by."""
    text = "airport x airport: flows >= 10 within 1 % in 90 %"
    found = facts("--target", text, "--table", "synthetic")
    assert not found["fits"]
    assert "privacy" not in found
    [nearest] = found["nearest_targets"]
    within = facts("--target", nearest, "--table", "synthetic")
    assert within["fits"]
    rho, cap = (decimal_of(within[name]) for name in ("rho", "cap_rho"))
    assert rho <= cap
    tolerance = re.search(r"within ([\d.]+) %", nearest)
    assert tolerance is not None
    narrower = nearest.replace(tolerance[0], f"within {0.98 * float(tolerance[1]):.4g} %")
    assert not facts("--target", narrower, "--table", "synthetic")["fits"]
    path = empty / "defs.yaml"
    error = command("plan", "us_flights", "--runs", "0", "--table", "synthetic", "--target", text, "--to", str(path))
    said = "OD-LEDGER-CAP: one release of us_flights with these targets needs rho"
    assert str(error.exception).startswith(said)
    assert not path.exists()


PURE: dict[str, Any] = ATTRIBUTES | {
    "privacy": {"epsilon": "1/10"},
    "mechanism_options": {"noise_distribution": "laplace"},
    "tree": "both",
}
REGIONS = "region x region: flows >= 300 within 2 % in 90 %"


def declared_pure(project: Project, cap: dict[str, str]) -> Path:
    """Write a series with Laplace noise into a project, and the cap of its data set."""
    ZONES.to_csv(project.root / "zones.csv", index=False)
    declare_domain(project.defs, DOMAIN | {"cap": cap | {"reason": "first declaration"}})
    return project.declare(PURE)


def test_with_laplace_noise_the_least_epsilon_is_found(project, tmp_path):
    """All amounts are epsilons, also of a cap without delta; the declaration states no delta."""
    declaration = declared_pure(project, {"epsilon": "30"})
    path = tmp_path / "new.yaml"
    targets = ("--target", REGIONS, "--target", "zone x zone: flows >= 100 within 25 % in 80 %")
    found = stated("plan", "trips", "--runs", "0", *targets, "--to", str(path))
    assert found["fits"]
    assert found["cap_epsilon"] == "30"
    needed = max(one["epsilon"] for one in found["targets"])
    assert needed <= decimal_of(found["epsilon"]) <= 1.002 * needed
    assert {*found["privacy"]} == {"epsilon", "shares"}
    assert sum(map(Fraction, found["privacy"]["shares"])) == 1
    before, after = (yaml.safe_load(text.read_text())["attributes"] for text in (declaration, path))
    assert after == before | {"privacy": found["privacy"]}
    declaration.write_text(path.read_text())
    assert stated("plan", "trips")["epsilon"] == found["epsilon"]
    said = " ".join(printed("plan", "trips", "--runs", "0", *targets).split())
    assert "is charged epsilon" in said
    assert "at delta" not in said
    assert "a little more epsilon" in said
    assert "share of epsilon" in said


@pytest.mark.parametrize("cap", [{"epsilon": "1/4"}, {"epsilon": "1/4", "delta": "1e-6"}, {"rho": "1/50"}])
def test_targets_with_laplace_noise_beyond_the_cap_are_relaxed(project, tmp_path, cap):
    """A cap in rho allows them as the rho of their steps, and one in epsilon by what is the smaller part of it."""
    declared_pure(project, cap)
    found = stated("plan", "trips", "--runs", "0", "--target", REGIONS)
    assert not found["fits"]
    [measure] = {"cap_rho", "cap_epsilon"} & {*found}
    assert measure == ("cap_rho" if "rho" in cap else "cap_epsilon")
    [nearest] = found["nearest_targets"]
    within = stated("plan", "trips", "--runs", "0", "--target", nearest)
    assert within["fits"]
    assert decimal_of(within[measure.removeprefix("cap_")]) <= decimal_of(within[measure])
    tolerance = re.search(r"within ([\d.]+) %", nearest)
    assert tolerance is not None
    narrower = nearest.replace(tolerance[0], f"within {0.9 * float(tolerance[1]):.4g} %")
    assert not stated("plan", "trips", "--runs", "0", "--target", narrower)["fits"]
    error = refusal_after_plan("plan", "trips", "--runs", "0", "--target", REGIONS, "--to", str(tmp_path / "new.yaml"))
    assert f"needs {measure.removeprefix('cap_')} " in error


def refusal_after_plan(*arguments: str) -> str:
    said = command(*arguments)
    assert str(said.exception).startswith("OD-LEDGER-CAP: ")
    return str(said.exception)


def decimal_of(text: str) -> float:
    return float(Fraction(text))


@pytest.mark.slow
def test_the_declared_periods_that_the_remaining_cap_pays_for_are_counted(empty):
    """Under unit trip, each month has a cap of its own. A month whose cap is nearly used up cannot be released."""
    settings = read_declared_series("us_flights").require_valid()
    months = [period.text for period in settings.periods.list_declared_periods()]
    found = facts("--target", STATES, "--table", "synthetic")
    assert (found["periods"], found["periods_paid"]) == (len(months), len(months))
    assert not (empty / "var").exists()
    geography, ledger = settings.read_geography(), Folders().ledger
    ledger.declare(settings.domain)
    plan = settings.plan(geography, months[0])
    per_month = settings.domain.cap.allowed_rho() // plan.charge.as_rho
    for revision in range(1, int(per_month) + 1):
        for month in months[1:3]:
            ledger.reserve(ReleaseKey("us_flights", month, revision), settings.domain.name, plan)
    left = ledger.balance(settings.domain.name, months[1]).left
    entries = ledger.verify()
    found = facts("--target", STATES, "--target", OUTFLOW, "--table", "synthetic")
    charge = decimal_of(found["rho"])
    assert charge > left
    expected = len(months) - 2
    assert (found["periods"], found["periods_paid"]) == (len(months), expected)
    assert ledger.verify() == entries  # nothing is charged


@pytest.mark.parametrize("pattern", ["data/us_flights/2001-03.parquet", "./data/../data/us_flights/2001-01.parquet"])
def test_records_are_refused_by_name_and_through_a_link(empty, pattern):
    error = refused("--target", STATES, "--table", pattern)
    assert error.code == "OD-TABLE-CONFIDENTIAL"
    assert "us_" in str(error)
    assert Path(pattern).name in str(error)
    (empty / "public.parquet").symlink_to(Path(pattern).resolve())
    assert refused("--target", STATES, "--table", str(empty / "public.parquet")).code == "OD-TABLE-CONFIDENTIAL"


def test_another_name_of_a_file_of_records_is_refused(project):
    """A hard link has another path, but is the same file. A copy cannot be recognized."""
    project.declare({"name": "flows", "trips": {"files": "{period}.csv"}})
    kept = project.var / "confidential" / "flows" / "counts.csv"
    kept.parent.mkdir(parents=True)
    elsewhere = project.root / "public"
    elsewhere.mkdir()
    for path in (project.root / "2001-01.csv", kept):
        path.write_text("origin,destination,trips\n")
        link, copy, other = (elsewhere / f"{name}-{path.name}" for name in ("link", "copy", "other"))
        link.hardlink_to(path)
        with pytest.raises(OdError, match="OD-TABLE-CONFIDENTIAL"):
            planning.refuse_records(link)
        copy.write_bytes(path.read_bytes())
        other.hardlink_to(copy)
        planning.refuse_records(copy)


def test_files_of_a_folder_of_records_are_refused(project):
    """A folder is read with its subfolders, through links. Each file is refused by its own name and by another one."""
    project.declare({"name": "flows", "trips": {"files": "months/{period}"}})
    elsewhere, below = project.root / "elsewhere", project.root / "months" / "2001-01" / "part"
    for folder in (elsewhere, below):
        folder.mkdir(parents=True)
    part, linked, other = below / "0.csv", elsewhere / "linked.csv", elsewhere / "other.csv"
    for path in (part, linked):
        path.write_text("origin,destination,trips\n")
    (below / "1.csv").symlink_to(linked)
    other.hardlink_to(part)
    for path in (part, below / "1.csv", linked, other):
        with pytest.raises(OdError, match="OD-TABLE-CONFIDENTIAL"):
            planning.refuse_records(path)


def test_confidential_files_are_refused(empty):
    path = empty / "var" / "confidential" / "us_flights" / "counts.csv"
    path.parent.mkdir(parents=True)
    path.write_text("origin,destination,trips\n")
    error = refused("--target", STATES, "--table", str(path))
    assert error.code == "OD-TABLE-CONFIDENTIAL"
    assert "confidential folder" in str(error)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--target", "state x planet: flows >= 10 within 5 % in 90 %"), "OD-QUANTITY-UNKNOWN"),
        (("--target", "flows within 5 %"), "OD-TARGET"),
        (("--target", "state x state: flows >= 999999999 within 5 % in 90 %"), "OD-TARGET-EMPTY"),
        (("--target", "all x all: flows >= 10 within 5 % in 90 %"), "OD-TARGET"),
        (("--target", STATES, "--target", STATES.replace("1000", "1,000")), "OD-TARGET"),
        (("--table", "synthetic"), "OD-TARGET"),
        (("--to", "defs.yaml"), "OD-TARGET"),
        (("--target", STATES, "--page", "page.html"), "OD-TARGET"),
        (("--target", STATES, "--table", "nowhere.csv"), "OD-TABLE-PUBLIC"),
        (("--target", STATES, "--runs", "-1"), "OD-FORECAST-RUNS"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(empty, arguments, code):
    assert refused(*arguments).code == code
