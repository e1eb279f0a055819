"""The second verifier finds nothing in real releases, and each forgery of ledger and certificates, however consistent.

A forger here has everything: he edits entries and certificates as he likes, and then hashes the whole chain anew, lets
every certificate name its new entry, and the ledger the new certificate. What is found is found by arithmetic.
"""

import copy
import datetime
import hashlib
import importlib.util
import itertools
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import od_core.ledger.measurements
from od_core import (
    Budget,
    InfTDARefined,
    Ledger,
    OdError,
    PrivacyUnit,
    StabilityHistogram,
    Uncounted,
    release_flows,
    release_stops,
)
from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.table_sampler import TableNoise
from od_core.periods import iterate_periods
from od_core.privacy.accounting import format_rounded_up
from od_core.privacy.budget import Cap
from od_core.privacy.domain import CALENDAR, PrivacyDomain, list_periods_of_year
from od_core.publication.certificate import CheckResult, compute_certificate_digest
from od_core.publication.certify import build_certificate
from od_core.published.verification import verify_release
from od_core.stops.publishing import STOPS
from tests.od_core.group_sizes.test_release import released as released_groups
from tests.od_core.ledger.ledger_rows import (
    FLOWS,
    GEOGRAPHY,
    ONE_LEVEL,
    baselines_charged,
    domain,
    pure_plan,
    rows,
    small_plan,
)
from tests.od_core.published.test_verification import small as published_whole

pytestmark = pytest.mark.representatives("test_both_programs_cut_time_into_the_same_years", "test_it_*")

SCRIPT = Path(__file__).parents[3] / "docs" / "verify_spending.py"
_SPEC = importlib.util.spec_from_file_location("verify_spending", SCRIPT)
verify_spending = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(verify_spending)

TRIP, UNBOUNDED = PrivacyUnit("trip", "bounded"), PrivacyUnit("trip", "unbounded")
USER = PrivacyUnit("user", "unbounded", column="user", max_trips=4)
PEOPLE = PrivacyUnit("user", "unbounded", column="user", max_trips=4, max_trips_pair=1)
SEASON = PrivacyUnit("user_year", "unbounded", "user", 4, None, 6, "u[0-9]+", 2)
LOADED = PrivacyUnit("trip", "bounded", max_weight=7)
BY_EPSILON = Budget(epsilon=1, delta="1e-8", conversion="exact", shares="geography")

Row = dict[str, Any]
Edit = Callable[[list[Row], dict[str, Any]], None]


def publish(var: Path, kind: Any, release: Any, key: str, data_set: str) -> None:
    """Put the certificate of a release where its bundle would be."""
    ledger, name = Ledger(var / "ledger.sqlite"), ReleaseKey.parse(key)
    checks = [CheckResult(subject="flows", check="total_is_n", passed=True)]
    facts = build_certificate(kind, release, name, data_set, checks, record=ledger.record(name))
    write(var, key, facts)
    ledger.publish(name, compute_certificate_digest(facts), facts["exact"])


def write(var: Path, key: str, facts: dict[str, Any]) -> None:
    folder = var / "releases" / key
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "certificate.json").write_text(json.dumps(facts), encoding="utf-8")


def with_user(flows: Any) -> Any:
    each = flows.loc[flows.index.repeat(flows["trips"])].drop(columns="trips")
    return each.assign(user=[f"u{k % 90}" for k in range(len(each))])


@pytest.fixture(scope="module")
def var(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One ledger of three data sets: all kinds of charges, lost draws, several series in one data set."""
    var = tmp_path_factory.mktemp("var")
    with pytest.MonkeyPatch.context() as context, baselines_charged():
        begin = od_core.ledger.measurements.begin_release
        context.setattr(
            od_core.ledger.measurements,
            "begin_release",  # a release of one call charges the data set of its series' name
            lambda folder, ledger, key, series, *rest, **given: begin(
                folder, ledger, key, DATA_SETS.get(series, COMMUTERS), *rest, **given
            ),
        )
        release_all(var)
    return var


COMMUTERS, DATA_SETS = "commuters", {"rides": "riders", "ride_pairs": "riders", "people": "riders"}
DATA_SETS |= {"trains": "trains", "walks": "walkers", "pure": "riders"}


def release_all(var: Path) -> None:
    ledger = Ledger(var / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", TRIP, Cap(epsilon=Fraction(7), delta=Fraction(1, 10**6)), "a test"))
    ledger.declare(PrivacyDomain("riders", USER, Cap(epsilon=Fraction(7), delta=Fraction(1, 10**5)), "a test"))
    ledger.declare(PrivacyDomain("walkers", UNBOUNDED, Cap(rho=Fraction(3)), "a test", elementary_period="week"))

    def flows(
        key: str, domain: str, unit: PrivacyUnit, budget: Budget = BY_EPSILON, trips: Any = FLOWS, **changes: Any
    ) -> None:
        of_unit = dict.fromkeys((USER, PEOPLE, SEASON), with_user)
        of_unit[LOADED] = lambda table: table.rename(columns={"trips": "weight"})
        table = of_unit.get(unit, lambda table: table)(trips)
        given = {"unit": unit, "budget": budget, "noise": "table", "ledger": ledger, "release_id": key} | changes
        geography = given.pop("geography", ONE_LEVEL)
        publish(var, FLOW_KIND, release_flows(table, geography, **given), key, domain)

    flows("flows/2001-05/r1", "commuters", TRIP)
    flows("exact/2001-05/r1", "commuters", TRIP, fault_threshold=Fraction(0))
    modes = {"segments": {"mode": ["car", "bus"], "leg": ["1", "2", "3"]}}
    table = FLOWS.assign(mode=["car", "bus", "bus", "car"], leg=["1", "3", "1", "2"])
    flows("modes/2001-05/r1", "commuters", TRIP, Budget(rho="1/30", delta="1e-8"), table, **modes)
    budget = Budget(rho="1/30", delta="1e-8")
    flows("areas/2001-05/r1", "commuters", TRIP, budget, geography=GEOGRAPHY, area_totals="1/5")
    flows("flows/2001-Q2/r1", "commuters", TRIP, Budget(rho="1/30", delta="1e-8"), mechanism="inftda")
    budget = Budget(epsilon="1/2", delta="1e-9")
    flows("pairs/2001-05/r1", "commuters", TRIP, budget, mechanism="stability_histogram")
    flows("wide_pairs/2001-05/r1", "commuters", TRIP, budget, mechanism=StabilityHistogram("bun_nissim_stemmer"))
    flows("rides/2001-06/r1", "riders", USER, Budget(epsilon=1, delta="1e-6"))
    flows("rides/2001-08/r1", "riders", USER, BY_EPSILON)
    few = {"geography": GEOGRAPHY, "tree": "both", "area_totals": "1/5"}
    flows(
        "pure/2001-09/r1", "riders", USER, Budget("1/4"), mechanism=InfTDARefined(noise_distribution="laplace"), **few
    )
    by_mode = FLOWS.assign(mode=["car", "bus", "bus", "car"])
    pure_modes = {"mechanism": InfTDARefined(noise_distribution="laplace"), "segments": {"mode": ["car", "bus"]}}
    flows("pure_modes/2001-09/r1", "commuters", TRIP, Budget("1/4"), by_mode, **few, **pure_modes)
    flows("ride_pairs/2001-07/r1", "riders", USER, budget, mechanism="stability_histogram")
    modes = {"segments": {"mode": ["car", "bus"]}, "geography": GEOGRAPHY, "area_totals": "1/5"}
    flows("people/2001-06/r1", "riders", PEOPLE, Budget(epsilon=1, delta="1e-6"), by_mode, **modes)
    ledger.declare(PrivacyDomain("trains", SEASON, Cap(rho=Fraction(3)), "a test"))
    for month, rho, uncounted in (("05", "1/5", None), ("06", "1/7", Uncounted("1/4", 9)), ("07", "1/9", None)):
        flows(f"trains/2001-{month}/r1", "trains", SEASON, Budget(rho=rho, delta="1e-8"), uncounted=uncounted)
    flows("loads/2001-05/r1", "commuters", LOADED, Budget(epsilon="1/2", delta="1e-8"), geography=GEOGRAPHY)
    flows("loads/2001-06/r1", "commuters", LOADED, BY_EPSILON, geography=GEOGRAPHY)
    flows("walks/2001-W23/r1", "walkers", UNBOUNDED)
    flows("walks/2001-W23--2001-W25/r1", "walkers", UNBOUNDED)

    draw, begun = TableNoise.draw, []

    def killed(self: TableNoise, variance: Fraction, level: int, first: int, size: int) -> Any:
        begun.append(level)
        if begun.count(2) == 1 and level == 2:
            raise OdError("OD-TEST", "killed while it drew", next_step="run it again")
        return draw(self, variance, level, first, size)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(TableNoise, "draw", killed)
        with pytest.raises(OdError, match="killed"):
            flows("flows/2001-06/r1", "commuters", TRIP)
        flows("flows/2001-06/r1", "commuters", TRIP)

    charged = {"unit": TRIP, "ledger": ledger}
    for key, mechanism in {"groups/2001-06/r1": "cumulative", "mixed/2001-07/r1": "mixed"}.items():
        publish(var, GROUP_SIZES, released_groups(release_id=key, mechanism=mechanism, **charged), key, "commuters")
    points = np.random.default_rng(4).integers(0, 8, (400, 4))
    for mechanism in ("privtree", "eug", "daf_homogeneity"):
        key = f"{mechanism}/2001-04/r1"
        asked = {"mechanism": mechanism, "release_id": key, "budget": Budget("1/2"), "noise": "table"}
        stops = release_stops(points, (8, 8, 8, 8), **asked, **charged)
        publish(var, STOPS, stops, key, "commuters")


def found(var: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The faults that the verifier prints; it ends with 1 where there are any."""
    code = verify_spending.main(var / "ledger.sqlite", var / "releases")
    lines = capsys.readouterr().out.splitlines()
    faults = [line.removeprefix("FAULT: ") for line in lines if line.startswith("FAULT: ")]
    assert (code, lines[-1]) == (int(bool(faults)), f"{len(faults)} faults")
    return faults


def forged(var: Path, to: Path, edit: Edit) -> Path:
    """A copy of ledger and certificates, edited, and made whole again in all that is linked."""
    entries = [{**row, "content": json.loads(row["content"])} for row in rows(var / "ledger.sqlite")]
    files = (var / "releases").rglob("certificate.json")
    certificates = {str(file.parent.relative_to(var / "releases")): json.loads(file.read_text()) for file in files}
    edit(entries, certificates)
    previous, measured = "", {}
    for number, row in enumerate(entries, start=1):
        if row["kind"] == "PUBLISHED" and row["release"] in certificates:
            facts = certificates[row["release"]]
            facts["ledger"] = measured[row["release"]]
            row["content"]["certificate"] = compute_certificate_digest(facts)
        row |= {"number": number, "previous": previous, "content": json.dumps(row["content"], sort_keys=True)}
        told = {name: value for name, value in row.items() if name != "hash"}
        previous = row["hash"] = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        if row["kind"] == "MEASURED":
            measured[row["release"]] = {"entry": number, "hash": previous}
    for key, facts in certificates.items():
        write(to, key, facts)
    with closing(sqlite3.connect(to / "ledger.sqlite")) as connection:
        connection.execute(f"CREATE TABLE entries ({', '.join(entries[0])})")
        values = [tuple(row.values()) for row in entries]
        connection.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(entries[0]))})", values)
        connection.commit()
    return to


FLIGHT, QUARTER, LOST = "flows/2001-05/r1", "flows/2001-Q2/r1", "flows/2001-06/r1"
AREAS = "areas/2001-05/r1"


def charges(entries: list[Row], release: str) -> list[Row]:
    return [row for row in entries if row["kind"] == "RESERVED" and row["release"] == release]


def other_charge(release: str, factor: Fraction, **law: Any) -> Edit:
    """All charges of a release times a factor, and other facts of the noise; said alike wherever they are said."""

    def edit(entries: list[Row], certificates: dict[str, Any]) -> None:
        facts, total = certificates[release], Fraction(0)
        for row in charges(entries, release):
            (step,) = (step for step in row["content"]["plan"]["steps"] if step["level"] == row["level"])
            for amount in ("rho", "epsilon"):
                row[amount] = str(Fraction(row[amount]) * factor)
            changed = {name: str(value(Fraction(step[name]))) for name, value in law.items()}
            changed |= {name: int(value) for name, value in changed.items() if name.startswith("sens")}
            row["content"] |= changed
            total += Fraction(row["rho"]) + Fraction(row["epsilon"]) ** 2 / 2
        for row in charges(entries, release):
            for step, other in zip(row["content"]["plan"]["steps"], charges(entries, release), strict=True):
                step |= {name: other["content"].get(name, other.get(name)) for name in step}
            facts["plan"] = row["content"]["plan"]
        amounts = [str(Fraction(row["rho"]) + Fraction(row["epsilon"]) ** 2 / 2) for row in charges(entries, release)]
        facts["spent"] |= {"rho_exact": str(total), "rho_planned_exact": str(total), "rho_by_level_exact": amounts}

    return edit


def in_spent(release: str, **claims: Any) -> Edit:
    """A certificate that claims something else."""

    def edit(_entries: list[Row], certificates: dict[str, Any]) -> None:
        spent = certificates[release]["spent"]
        spent |= {name: value(spent[name]) if callable(value) else value for name, value in claims.items()}

    return edit


def in_certificate(release: str, **facts: Any) -> Edit:
    return lambda _entries, certificates: certificates[release].update(facts)


def without(release: str, **columns: Any) -> Edit:
    """Some entries of a release are left out."""

    def edit(entries: list[Row], _certificates: dict[str, Any]) -> None:
        wanted = {"release": release, **columns}
        entries[:] = [row for row in entries if any(row[name] != value for name, value in wanted.items())]

    return edit


def in_content(kind: str, domain: str, **facts: Any) -> Edit:
    """Other content of all entries of a kind of a data set."""

    def edit(entries: list[Row], _certificates: dict[str, Any]) -> None:
        for row in entries:
            if (row["kind"], row["domain"]) == (kind, domain):
                row["content"] |= facts

    return edit


def periods_cut(entries: list[Row], _certificates: dict[str, Any]) -> None:
    for row in charges(entries, QUARTER):
        row["content"]["periods"] = row["content"]["periods"][:2]


def a_draw_made_twice(entries: list[Row], _certificates: dict[str, Any]) -> None:
    place = next(k for k, row in enumerate(entries) if (row["kind"], row["release"]) == ("DRAWING", FLIGHT))
    entries.insert(place, copy.deepcopy(entries[place]))


def a_lost_draw_hidden(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The second draw of level 2 is said to have been the first."""
    place = next(k for k, row in enumerate(entries) if (row["kind"], row["draw"]) == ("RESERVED", 2))
    del entries[place]
    for row in entries:
        if row["release"] == LOST and row["level"] == 2:
            row["draw"] = 1
    spent = certificates[LOST]["spent"]
    once = [row["rho"] for row in charges(entries, LOST)]
    spent |= {"lost_draws": 0, "rho_exact": spent["rho_planned_exact"], "rho_by_level_exact": once}


def users_of_one_trip(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The plan protects one trip of a user, and the certificate promises four."""
    other_charge("rides/2001-06/r1", Fraction(1, 16))(entries, certificates)
    for row in charges(entries, "rides/2001-06/r1"):
        row["content"]["plan"]["contribution_bound"] = 1
    certificates["rides/2001-06/r1"]["plan"] = row["content"]["plan"]


def a_cap_of_the_leaves_at_every_level(entries: list[Row], certificates: dict[str, Any]) -> None:
    for row in charges(entries, "people/2001-06/r1"):
        row["content"]["node_sizes"] = [[1, 4]]
        for step in row["content"]["plan"]["steps"]:
            step["node_sizes"] = [[1, 4]]
    certificates["people/2001-06/r1"]["plan"] = row["content"]["plan"]


def a_bundle_less(_entries: list[Row], certificates: dict[str, Any]) -> None:
    del certificates[FLIGHT]


def a_bundle_more(_entries: list[Row], certificates: dict[str, Any]) -> None:
    more = copy.deepcopy(certificates[FLIGHT])
    certificates["flows/2001-07/r1"] = more | {"release": "flows/2001-07/r1"}


def an_exact_number(release: str) -> Edit:
    """Said by the certificate and the ledger alike."""

    def edit(entries: list[Row], certificates: dict[str, Any]) -> None:
        certificates[release]["exact"] = {"trips": 348}
        (row,) = (row for row in entries if (row["kind"], row["release"]) == ("PUBLISHED", release))
        row["content"]["exact"] = {"trips": 348}

    return edit


def a_threshold_too_low(entries: list[Row], certificates: dict[str, Any]) -> None:
    other_charge("pairs/2001-05/r1", Fraction(1), threshold=lambda threshold: threshold - 1)(entries, certificates)
    (row,) = charges(entries, "pairs/2001-05/r1")
    row["content"]["threshold"] = row["content"]["plan"]["steps"][0]["threshold"] = int(row["content"]["threshold"])


def less(value: float) -> float:
    """Lower by a thousandth."""
    return value * 0.999


MISCHARGED: dict[str, Edit] = {
    "every charge halved": other_charge(FLIGHT, Fraction(1, 2)),
    "sensitivity 1 for 2": other_charge(FLIGHT, Fraction(1, 2), sensitivity_squared=lambda _: 1),
    "noise that costs more": other_charge(FLIGHT, Fraction(1), variance=lambda v: v * 99 / 100),
    "a user's m forgotten in the charge": other_charge("rides/2001-06/r1", Fraction(1, 4)),
    "the cap of the leaves at every level": a_cap_of_the_leaves_at_every_level,
    "narrower noise on groups": other_charge("groups/2001-06/r1", Fraction(1), scale=lambda s: s / 2),
    "sensitivity of groups": other_charge("groups/2001-06/r1", Fraction(1, 2), sensitivity=lambda s: s / 2),
    "narrower noise on splits": other_charge("privtree/2001-04/r1", Fraction(1), scale_of_splits=lambda s: s / 2),
    "narrower noise on boxes": other_charge("eug/2001-04/r1", Fraction(1), scale_of_boxes=lambda s: s / 2),
    "narrower noise on a total": other_charge(
        "daf_homogeneity/2001-04/r1", Fraction(1), scale_of_total=lambda s: s / 200
    ),
    "epsilon of stops halved": other_charge("eug/2001-04/r1", Fraction(1, 2)),
    "a threshold too low": a_threshold_too_low,
}
"""Charges that are not what their noise costs."""

FORGERIES: dict[str, tuple[Edit, str]] = {
    **{name: (edit, "was charged rho") for name, edit in MISCHARGED.items()},
    "a user's trips counted as one": (users_of_one_trip, "another plan"),
    "a level left out": (without(FLIGHT, level=2), "never charged"),
    "area totals left out": (without(AREAS, level=7), "never charged"),
    "area totals at no charge": (
        in_spent(AREAS, rho_by_level_exact=lambda each: [*each[:-2], "0", "0"], rho_exact="2/75", rho=2 / 75),
        "rho_exact",
    ),
    "a plan that the ledger does not have": (
        lambda _entries, certificates: certificates[FLIGHT]["plan"].update(mechanism="inftda"),
        "another plan",
    ),
    "a draw made twice": (a_draw_made_twice, "no charge of its own"),
    "a charge left out": (without(FLIGHT, level=2, kind="RESERVED"), "no charge of its own"),
    "a measurement left out": (without(FLIGHT, level=2, kind="MEASURED"), "before it was measured"),
    "a lost draw hidden": (a_lost_draw_hidden, "no charge of its own"),
    "periods cut": (periods_cut, "other periods than its own"),
    "a cap in epsilon lowered": (in_content("CAP", "commuters", epsilon="2"), "the cap of commuters"),
    "a cap's delta lowered": (in_content("CAP", "commuters", delta="1/1000000000"), "the cap of commuters"),
    "a cap in rho lowered": (in_content("CAP", "walkers", rho="1/60"), "the cap of walkers"),
    "users of one period": (in_content("DOMAIN", "riders", unit="user_period"), "another unit"),
    "other neighbours": (in_content("DOMAIN", "walkers", neighbours="bounded"), "another unit"),
    "a certificate's unit": (in_certificate(FLIGHT, unit="user"), "another plan"),
    "a certificate's data set": (in_certificate(FLIGHT, data_set="walkers"), "another plan"),
    "rho lowered": (in_spent(FLIGHT, rho_exact="1/100"), "rho_exact"),
    "rho rounded down": (in_spent(FLIGHT, rho=less), "its rho"),
    "rho of a level lowered": (in_spent(FLIGHT, rho_by_level_exact=["1/1000"] * 2), "rho_by_level_exact"),
    "planned rho lowered": (in_spent(LOST, rho_planned_exact="1/1000"), "rho_planned_exact"),
    "lost draws denied": (in_spent(LOST, lost_draws=0), "lost_draws"),
    "delta lowered": (in_spent(FLIGHT, delta=less), "its delta"),
    "delta of pairs lowered": (in_spent("pairs/2001-05/r1", delta=less), "its delta"),
    "epsilon lowered": (in_spent("rides/2001-06/r1", epsilon=less), "its epsilon"),
    "epsilon of pairs lowered": (in_spent("pairs/2001-05/r1", epsilon=less), "its epsilon"),
    "epsilon of groups lowered": (in_spent("groups/2001-06/r1", epsilon=less), "its epsilon"),
    "tight epsilon lowered": (in_spent(FLIGHT, epsilon_tight=less), "its epsilon_tight"),
    "epsilon of Bun and Steinke lowered": (in_spent(FLIGHT, epsilon_bun_steinke=less), "its epsilon_bun_steinke"),
    "exact epsilon lowered": (in_spent(FLIGHT, epsilon_exact=less, epsilon=less), "its epsilon_exact"),
    "exact epsilon where a user moves by four": (
        in_spent("rides/2001-06/r1", epsilon_exact=0.5, epsilon=0.5),
        "its epsilon_exact",
    ),
    "exact epsilon of users lowered": (in_spent("rides/2001-08/r1", epsilon_exact=less, epsilon=less), "epsilon_exact"),
    "exact epsilon of weights lowered": (in_spent("loads/2001-06/r1", epsilon_exact=less, epsilon=less), "its epsilon"),
    "exact epsilon under a pair cap": (
        in_spent("people/2001-06/r1", epsilon_exact=0.9999, epsilon=0.9999),
        "its epsilon_exact",
    ),
    "an exact number changed": (in_certificate("exact/2001-05/r1", exact={"trips": 347}), "published exactly"),
    "an exact number where users are protected": (an_exact_number("rides/2001-06/r1"), "a record may change"),
    "an exact number where a record may leave": (an_exact_number(FLIGHT), "a record may change"),
    "a bundle less": (a_bundle_less, "has no certificate"),
    "a bundle more": (a_bundle_more, "no such certificate"),
    "a ledger without the end": (lambda entries, _: entries.__delitem__(slice(-3, None)), "no such certificate"),
}


@pytest.mark.parametrize(
    ("elementary", "year"),
    [
        ("month", None),
        ("quarter", None),
        ("day", None),
        ("month", "2001-09--2002-08"),
        ("quarter", "2001-Q2--2002-Q1"),
        ("week", "2001-W36--2002-W35"),
        ("day", "2003-03-01--2004-02-28"),
        ("day", "2001-09--2002-08"),
        ("month", "2001"),
        ("year", "2001--2004"),
    ],
)
def test_both_programs_cut_time_into_the_same_years(elementary, year):
    """From three years before the year until three years after, by two arithmetics."""
    unit = PrivacyUnit("user_year", "bounded", "id", 2, max_trips_year=3, id_pattern="[0-9]+")
    domain = PrivacyDomain("trips", unit, Cap(rho=Fraction(1)), "a test", elementary, year=year).facts()
    names: dict[str, str] = {}
    most = 2600 if elementary == "day" else 400
    periods = [*itertools.islice(iterate_periods(datetime.date(1998, 1, 7), elementary), most)]
    for period in periods[:: 7 if elementary == "day" else 1]:
        parts = list_periods_of_year(period, elementary, year or CALENDAR)
        own = verify_spending.year_of(period.text, domain)
        assert names.setdefault(own, parts[0].text) == parts[0].text
    assert len({*names.values()}) == len(names) > 3


def test_real_releases_of_all_kinds_have_no_fault(var, capsys, tmp_path):
    assert found(var, capsys) == []
    assert found(forged(var, tmp_path, lambda entries, certificates: None), capsys) == []


def test_what_is_spent_is_rounded_up_as_by_the_first_verifier(var, capsys):
    verify_spending.main(var / "ledger.sqlite", var / "releases")
    words = r"^(\w+) (\S+): spent rho (\S+), .*?(?:epsilon (\S+) is spent)?$"
    told = re.findall(words, capsys.readouterr().out, re.MULTILINE)
    ledger = Ledger(var / "ledger.sqlite")
    assert len(told) > 6
    for name, part, rho, epsilon in told:
        balance = ledger.balance(name, part if len(part) > 4 else "2001-06")
        amount = {"rho": rho, "epsilon": epsilon}[balance.measure]
        assert Fraction(amount) == Fraction(format_rounded_up(balance.spent))
    assert {balance.measure for balance in ledger.balances()} == {"rho", "epsilon"}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_by_arithmetic_alone(var, tmp_path, capsys, name):
    edit, words = FORGERIES[name]
    faults = found(forged(var, tmp_path, edit), capsys)
    assert any(words in fault for fault in faults), faults
    assert not any("chain" in fault for fault in faults)


def test_an_edit_that_is_not_hashed_anew_breaks_the_chain(var, tmp_path, capsys):
    shutil.copytree(var, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        connection.executescript("DROP TRIGGER entries_are_final; UPDATE entries SET at = '2001' WHERE number = 9;")
    assert found(tmp_path, capsys) == ["entry 9: the chain of hashes is broken"]


def test_a_chain_that_is_hashed_anew_is_another_than_certificates_name(var, tmp_path, capsys):
    """The one edit that no arithmetic sees: another time of an entry; certificates outside of the forger's reach."""

    def earlier(entries: list[Row], _certificates: dict[str, Any]) -> None:
        entries[0]["at"] = "2001-01-01T00:00:00+00:00"

    forged(var, tmp_path, earlier)
    shutil.copytree(var / "releases", tmp_path / "releases", dirs_exist_ok=True)
    assert any("written anew" in fault for fault in found(tmp_path, capsys))


def test_it_runs_as_one_file_on_python_alone_and_agrees_with_the_first_verifier(tmp_path, capsys):
    """Isolated: without site-packages, the project's folder, or a writable ledger."""
    release = published_whole(tmp_path)
    command = [sys.executable, "-I", "-S", str(SCRIPT), str(tmp_path / "ledger.sqlite"), str(tmp_path / "releases")]
    write(tmp_path, "commuters/2001-06/.r1.staged", {})  # of a run that was killed while it published
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "9 entries of the ledger and 1 certificates" in run.stdout
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [finding.fault for finding in verify_release(release) if finding.fault] == []

    facts = json.loads((release.bundle / "certificate.json").read_text())
    facts["spent"]["rho_exact"] = "1"
    write(tmp_path, "commuters/2001-06/r1", facts)
    assert any("rho_exact is 1, and not 2" in fault for fault in found(tmp_path, capsys))
    assert {"bundle", "ledger"} <= {finding.part for finding in verify_release(release) if finding.fault}


def test_a_draw_of_parts_that_goes_on_with_other_noise_is_one_draw(tmp_path, capsys):
    ledger, key = Ledger(tmp_path / "ledger.sqlite"), ReleaseKey("commuters", "2001-06")
    ledger.declare(domain(1))
    ledger.reserve(key, "commuters", small_plan())
    ledger.start_draw(key, 1, "opendp", "a store")
    ledger.continue_draw(key, 1, "table", "a store")
    assert found(tmp_path, capsys) == []


def test_pure_releases_are_within_a_cap_in_epsilon_by_the_sum_of_their_epsilons(tmp_path, capsys):
    """Although their rho is not. A lower cap is exceeded, and so is the same one after a charge in rho."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", TRIP, Cap(epsilon=1, delta="1e-6"), "a test"))
    for revision in (1, 2):
        ledger.reserve(ReleaseKey("commuters", "2001-06", revision), "commuters", pure_plan("1/2"))
    ledger.reserve(ReleaseKey("commuters", "2001-07"), "commuters", small_plan(Fraction(1, 100), delta="1e-6"))
    assert found(tmp_path, capsys) == []
    said = "the cap of commuters in 2001-06 is exceeded"
    for name in ("lowered", "mixed"):
        (tmp_path / name).mkdir()
    lowered = forged(tmp_path, tmp_path / "lowered", in_content("CAP", "commuters", epsilon="99/100"))
    assert sum(said in fault for fault in found(lowered, capsys)) == 1

    def moved(entries: list[Row], _certificates: dict[str, Any]) -> None:
        for entry in entries:
            if entry["release"] == "commuters/2001-07/r1":
                entry["release"], entry["period"] = "commuters/2001-06/r3", "2001-06"
                entry["content"] |= {"periods": ["2001-06"]}

    assert sum(said in fault for fault in found(forged(tmp_path, tmp_path / "mixed", moved), capsys)) > 1


def test_a_ledger_that_is_elsewhere_is_named(tmp_path):
    assert "od-release ledger copy FILE" in verify_spending.main(tmp_path / "ledger.sqlite", tmp_path)


def test_a_year_of_users_with_a_pair_cap_costs_what_the_ledger_says(var, tmp_path, capsys):
    """To the last fraction, uncounted trips included: a cap of just that is kept, and any lower one is exceeded."""
    spent = Ledger(var / "ledger.sqlite").balance("trains", "2001-06").spent
    for name, rho, faults in (("kept", spent, 0), ("exceeded", spent - Fraction(1, 10**30), 1)):
        lowered = forged(var, tmp_path / name, in_content("CAP", "trains", rho=str(rho)))
        said = [fault for fault in found(lowered, capsys) if "the cap of trains in 2001 is exceeded" in fault]
        assert len(said) == faults


def test_it_is_short_and_imports_nothing_of_ours():
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 340
    modules = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert modules <= sys.stdlib_module_names
