"""The certificate: its numbers are those of the plan and of the ledger, and no promise is rounded down."""

import json
import re
from decimal import Decimal
from fractions import Fraction
from importlib.resources import files

import pytest

from od_core import Budget, Cap, Ledger, PrivacyDomain, PrivacyUnit, Spent, open_release, release_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.noise.opendp import OpenDPNoise
from od_core.privacy.neighbours import NO_FAULTS, Acceptance, Neighbours
from od_core.publication.certificate import (
    Certificate,
    CheckResult,
    StatedLedgerEntry,
    StatedMechanism,
    StatedSource,
    StatedSpent,
)
from od_core.publication.certify import describe_guarantee
from tests.od_core.oracles.conversions import digits_tight
from tests.od_core.oracles.privacy_loss import delta_by_halves
from tests.od_core.publication.examples import (
    HOMES,
    KEY,
    KINDS,
    TWO_LEVELS,
    WORKS,
    facts,
    flows,
    geography,
    of_unit,
    release,
    released_trips,
    staged_bundle,
)

NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)"


def promise(certificate):
    """Epsilon and delta as the certificate's sentence states them."""
    found = re.search(rf"\({NUMBER}, {NUMBER}\)-differentially private", certificate["guarantee"]["protected"])
    return Fraction(found[1]), Fraction(found[2])


def test_the_fields_are_those_of_the_schema():
    """What the code may read, and mypy checks, is what is published for programs of others."""
    schema = json.loads(files("od_core.publication").joinpath("certificate.schema.json").read_text(encoding="utf-8"))
    by_kind = [part["then"]["properties"] for part in schema["allOf"]]
    fields = {name: described for part in (schema["properties"], *by_kind) for name, described in part.items()}
    assert set(Certificate.__annotations__) == set(fields)
    assert set(StatedMechanism.__annotations__) == set(fields["mechanism"]["properties"])
    assert set(StatedLedgerEntry.__annotations__) == set(fields["ledger"]["properties"])
    assert set(CheckResult.__annotations__) == set(fields["checks"]["items"]["properties"])
    assert set(StatedSource.__annotations__) == set(by_kind[0]["sources"]["items"]["properties"])
    spent = set(by_kind[0]["spent"]["properties"]) | set(schema["$defs"]["spent"]["properties"])
    assert set(StatedSpent.__annotations__) == spent


@pytest.mark.representatives("unbounded origin tree", "unknown zones", "no trips")
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_plan(kind):
    """Recomputed from the settings in exact fractions: charges, variances, sensitivities, cells, invariants."""
    made, chosen = release(kind), KINDS[kind]
    certificate = json.loads(json.dumps(facts(made), allow_nan=False))
    bounded = chosen.get("neighbours", "bounded") == "bounded"
    levels, spent = certificate["levels"], certificate["spent"]
    assert [level["level"] for level in levels] == list(range(1 if bounded else 0, 7))
    assert (certificate["unit"], certificate["neighbours"]) == ("trip", "bounded" if bounded else "unbounded")
    assert certificate["contribution_bound"] == 1
    assert certificate["invariants"] == (["the total number of valid trips, n"] if bounded else [])

    rho = sum(Fraction(level["rho_exact"]) for level in levels)
    budget = chosen.get("budget", Budget(rho=2, delta="1e-8"))
    if budget.rho is not None:
        assert rho == budget.rho
    charged = sum(map(Fraction, spent["rho_by_level_exact"]))
    assert rho == Fraction(spent["rho_exact"]) == Fraction(spent["rho_planned_exact"]) == charged
    assert Fraction(spent["rho"]) >= rho
    assert spent["rho"] == pytest.approx(float(rho), rel=1e-12)
    sizes = {"destination": HOMES, "origin": HOMES} | ({"destination": WORKS} if "destinations" in chosen else {})
    counts = {side: [1, *(zones[name].nunique() for name in zones)] for side, zones in sizes.items()}
    names = ["all", "region", "county", "zone"]
    for level in levels:
        depth = level["level"]
        upper, lower = (depth + 1) // 2, depth // 2
        origin, destination = (upper, lower) if chosen.get("tree") == "origin" else (lower, upper)
        assert (level["origin_level"], level["destination_level"]) == (names[origin], names[destination])
        assert level["public_cells"] == counts["origin"][origin] * counts["destination"][destination]
        assert 0 <= level["measured_cells"] <= level["public_cells"]
        assert level["measured_cells"] == len(made.measurements_at(depth))
        assert level["sensitivity_squared"] == (2 if bounded else 1)
        variance = Fraction(level["variance_exact"])
        assert Fraction(level["rho_exact"]) == Fraction(level["sensitivity_squared"]) / (2 * variance)
        assert Fraction(level["variance"]) >= variance
        assert Fraction(level["rho"]) >= Fraction(level["rho_exact"])


DELTA = Fraction(1, 3 * 10**8)
RHOS = [Fraction(1, 100), Fraction(1, 7), Fraction("0.5"), Fraction(1), Fraction(2), Fraction(22, 7)]


@pytest.mark.parametrize("rho", RHOS)
def test_no_promise_is_rounded_down(rho):
    """Whoever relies on the printed epsilon and delta relies on what was proved; the forty trips' too."""
    budget = Budget(rho=rho, delta=DELTA)
    made = released_trips(flows(HOMES, HOMES), geography(levels=TWO_LEVELS), budget=budget, noise="table")
    certificate = facts(made)
    tight = digits_tight(rho, DELTA)
    epsilon, delta = promise(certificate)
    variances = [(step.variance, 2) for step in made.plan.steps]
    if max(variance for variance, _ in variances) < 100:  # by pairs of outcomes; wider noise has too many
        assert delta_by_halves(variances, float(epsilon)) <= DELTA * (1 + 1e-9)
        assert delta_by_halves(variances, float(epsilon) * 0.998) > DELTA
    assert epsilon < tight
    assert DELTA <= delta <= DELTA * Fraction(1001, 1000)
    assert DELTA <= Fraction(certificate["spent"]["delta"]) <= DELTA * Fraction(1001, 1000)
    assert certificate["spent"]["epsilon"] == certificate["spent"]["epsilon_exact"] <= epsilon
    assert tight <= Fraction(certificate["spent"]["epsilon_tight"]) <= tight * (1 + Fraction(1, 10**12))
    assert Fraction(certificate["spent"]["epsilon_bun_steinke"]) >= tight
    many = re.search(rf"one with 40 trips in the period: epsilon {NUMBER}", certificate["guarantee"]["not_protected"])
    exact_many = digits_tight(1600 * rho, DELTA)
    assert exact_many <= Fraction(many[1]) <= exact_many * Fraction(1001, 1000)


def stated(sentence: str, before: str) -> Fraction:
    """The number that follows these words."""
    found = re.search(re.escape(before) + " " + NUMBER, sentence)
    assert found, sentence
    return Fraction(found[1])


YEAR = "in each of 12 such periods, all released like this one: epsilon"


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("kind", ["trip", "user_period"])
def test_a_year_is_said_in_numbers(kind, rho):
    """Twelve times this release's rho at the same delta; never rounded down."""
    unit = PrivacyUnit(kind, column=None if kind == "trip" else "person", max_trips=None if kind == "trip" else 3)
    said = describe_guarantee(of_unit(unit), Spent((rho / 3, rho * 2 / 3), DELTA), Acceptance())
    exact = digits_tight(12 * rho, DELTA)
    assert exact <= stated(said["not_protected"], YEAR) <= exact * Fraction(1001, 1000)


OF_USER = "whether all trips of one user, of which at most 3 in each release are counted, were"
OF_PERIOD = OF_USER.replace("user,", "user in one elementary period,")
CHANGES = {
    ("trip", "bounded"): "whether one trip record was replaced by any other record of the same period",
    ("trip", "unbounded"): "whether one trip record was added or removed",
    ("user", "bounded"): f"{OF_USER} replaced by any trips of another user",
    ("user", "unbounded"): f"{OF_USER} added or removed",
    ("user_period", "bounded"): f"{OF_PERIOD} replaced by any trips of another user in the same period",
    ("user_period", "unbounded"): f"{OF_PERIOD} added or removed",
}


@pytest.mark.parametrize(("kind", "neighbours"), CHANGES)
def test_the_sentences_are_those_of_the_unit(kind, neighbours):
    """What is protected, what is cut, who is not covered; what adds up for a user over all releases."""
    of_users = kind != "trip"
    unit = PrivacyUnit(kind, neighbours, "person" if of_users else None, 3 if of_users else None)
    relation = Neighbours(unit, NO_FAULTS)
    subject = of_unit(unit, may_leave=relation.record_may_leave)
    total = relation.have_equal_totals
    said = describe_guarantee(subject, Spent((Fraction(1),), DELTA), NO_FAULTS, states_total=total)
    assert CHANGES[kind, neighbours] in said["protected"]
    assert ("several user ids" in said["not_protected"]) == of_users
    assert ("one with 40 trips" in said["not_protected"]) == (not of_users)
    assert ("the losses of all periods of the data set add up" in said["not_protected"]) == (kind == "user")
    assert ("12 such periods" in said["not_protected"]) == (kind != "user")
    assert ("published exactly" in said["not_protected"]) == ((kind, neighbours) == ("trip", "bounded"))
    assert ("contribution" in said) == of_users
    if of_users:
        assert "At most 3 trips of each user are counted in a release." in said["contribution"]
        assert "secret key" in said["contribution"]
        assert "without a user id is faulty" in said["contribution"]


SH = {"mechanism": "stability_histogram", "fault_threshold": 0}


def test_a_stability_histogram_promises_a_group_what_it_can():
    """Forty trips: (40 epsilon, 40 e^(39 epsilon) delta), which is no promise once delta reaches 1; and no exact n."""
    unit, records = PrivacyUnit("trip"), flows(HOMES, HOMES)
    made = [release_flows(records, geography(), unit=unit, budget=Budget(one, "1e-8"), **SH) for one in (1, "0.1")]
    weak, strong = (facts(release)["guarantee"] for release in made)
    assert "one with 40 trips in the period: no promise" in weak["not_protected"]
    assert "all released like this one: epsilon 12 with delta 1.2e-7" in weak["not_protected"]
    delta = Fraction(Decimal(40) * Decimal("3.9").exp() * Decimal("1e-8"))
    stated_ = re.search(rf"40 trips in the period: epsilon 4 with delta {NUMBER}", strong["not_protected"])
    assert delta <= Fraction(stated_[1]) <= delta * Fraction(1001, 1000)
    assert "exactly" not in weak["not_protected"] + weak["public"]


def test_lost_draws_stand_in_every_number(tmp_path, monkeypatch):
    """Spent = plan + lost draws; the sentences promise what was spent, not what was planned."""
    ledger, unit, draw = Ledger(tmp_path / "ledger.sqlite"), PrivacyUnit("trip"), OpenDPNoise.draw
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=Fraction(3)), "room for lost draws"))

    def released():
        budget = Budget(rho=Fraction("1.5"), delta="1e-8", shares="uniform")
        given = {"unit": unit, "budget": budget, "ledger": ledger, "release_id": str(KEY)}
        return release_flows(flows(HOMES, HOMES), geography(levels=TWO_LEVELS), **given, fault_threshold=0)

    def fails(self, variance, level, first, size):
        raise MemoryError

    monkeypatch.setattr(OpenDPNoise, "draw", fails)
    for _ in range(3):
        with pytest.raises(MemoryError):
            released()
    monkeypatch.setattr(OpenDPNoise, "draw", draw)
    made = released()
    certificate = facts(made, record=ledger.record(KEY))
    spent = certificate["spent"]
    assert spent["lost_draws"] == 3
    assert [Fraction(rho) for rho in spent["rho_by_level_exact"]] == [Fraction(3, 2)] + [Fraction(3, 8)] * 3
    assert Fraction(spent["rho_exact"]) == Fraction("2.625") == ledger.balance("commuters", "2001-06").spent
    assert Fraction(spent["rho_planned_exact"]) == Fraction("1.5")
    assert Fraction(spent["epsilon"]) >= digits_tight(Fraction("2.625"), Fraction("1e-8"))
    assert promise(certificate)[0] >= digits_tight(Fraction("2.625"), Fraction("1e-8")) * Fraction(999, 1000)
    with staged_bundle(made, certificate, tmp_path / "r1"):
        FLOWS.store(tmp_path / "release.duckdb", made, KEY, certificate)
    for place in ("r1", "release.duckdb"):
        assert open_release(tmp_path / place).spent == made.spent != made.plan.spent
    many = re.search(rf"one with 40 trips in the period: epsilon {NUMBER}", certificate["guarantee"]["not_protected"])
    assert Fraction(many[1]) >= digits_tight(1600 * Fraction("2.625"), Fraction("1e-8")) * Fraction(999, 1000)
