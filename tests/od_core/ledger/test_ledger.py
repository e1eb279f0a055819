"""Declaring, reserving, drawing, publishing: what is allowed, what it costs, what is refused with nothing written."""

import json
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Bands, Cap, Charge, Geography, Ledger, OdError, PrivacyUnit, ReleaseKey
from tests.od_core.ledger.ledger_rows import (
    ZONES,
    Claims,
    assert_chain,
    charged,
    domain,
    finish,
    ledger_at,
    reservations,
    rows,
    small_plan,
    states,
    try_release,
    try_to_declare,
)
from tests.postgres import server_of

DIGEST = "0" * 64

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.representatives(
        "*sqlite*", "test_any_order_of_calls_keeps_the_account", "test_a_head_that_is_missing_or_damaged_is_named"
    ),
]


def test_a_domain_is_declared_once(ledger):
    """The same again writes nothing; another unit or relation is refused; a new cap is a row with a new reason."""
    ledger.declare(domain(1))
    assert [row["kind"] for row in rows(ledger.path)] == ["DOMAIN", "CAP"]
    for unit in (PrivacyUnit("trip", "unbounded"), PrivacyUnit("user", "bounded", "person", 3)):
        with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT:"):
            ledger.declare(domain(1, unit=unit))
    with pytest.raises(OdError, match="OD-LEDGER-CAP-REASON:") as refused:
        ledger.declare(domain(2))
    assert "from rho 1 to rho 2" in str(refused.value)
    assert len(rows(ledger.path)) == 2

    ledger.declare(domain("7/3", "census year"))
    ledger.declare(domain("7/3", "census year"))
    caps = [json.loads(row["content"]) for row in rows(ledger.path) if row["kind"] == "CAP"]
    assert [(cap["rho"], cap["reason"]) for cap in caps] == [("1", "decided by the board"), ("7/3", "census year")]
    assert ledger.balance("commuters", "2001-06").cap == Fraction(7, 3)
    with pytest.raises(OdError, match="OD-LEDGER-CAP-REASON"):
        ledger.declare(domain(1))  # the first one's reason: two declarations may not take turns
    assert_chain(ledger.path)


def test_data_sets_are_declared_apart(ledger):
    """Another data set that is declared in between, with another unit, changes nothing."""
    ledger.declare(domain(1))
    ledger.declare(replace(domain(2, unit=PrivacyUnit("trip", "unbounded")), name="schools"))
    ledger.declare(domain(1))
    assert [row["domain"] for row in rows(ledger.path)] == ["commuters", "commuters", "schools", "schools"]


def test_a_trial_has_the_error_of_the_call_and_enters_nothing(ledger, tmp_path, key):
    """A new cap with its reason counts in a trial, and only there."""
    half, more = small_plan(Fraction(1, 2)), small_plan(Fraction(3, 4))
    ledger.reserve(key, "commuters", half)
    before, head = rows(ledger.path), (tmp_path / "confidential" / "ledger.head").read_bytes()
    later = ReleaseKey("commuters", "2001-06", 2)
    calls = {
        "OD-LEDGER-CAP": (
            lambda: try_release(ledger, later, domain(1), more),
            lambda: ledger.reserve(later, "commuters", more),
        ),
        "OD-REPLAY-PLAN-CHANGED": (
            lambda: try_release(ledger, key, domain(1), more),
            lambda: ledger.reserve(key, "commuters", more),
        ),
        "OD-LEDGER-CAP-REASON": (
            lambda: try_release(ledger, later, domain(2), half),
            lambda: try_to_declare(ledger, domain(2)),
            lambda: ledger.declare(domain(2)),
        ),
        "OD-DOMAIN-CONFLICT": (
            lambda: try_to_declare(ledger, domain(1, unit=PrivacyUnit("trip", "unbounded"))),
            lambda: ledger.declare(domain(1, unit=PrivacyUnit("trip", "unbounded"))),
        ),
    }
    for code, attempts in calls.items():
        said = set()
        for attempt in attempts:
            with pytest.raises(OdError, match=f"{code}:") as refused:
                attempt()
            said.add(str(refused.value))
        assert len(said) == 1
    try_release(ledger, later, domain(2, "census year"), more)
    try_release(ledger, key, domain(1), half)
    try_to_declare(ledger, domain(2, "census year"))
    assert rows(ledger.path) == before
    assert (tmp_path / "confidential" / "ledger.head").read_bytes() == head


@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_all_levels_are_set_aside_exactly_and_once(tmp_path, key, neighbours):
    """A row a level says what will be run and what it costs, in fractions that sum to the plan."""
    ledger, unit = ledger_at(tmp_path / "ledger.sqlite"), PrivacyUnit("trip", neighbours)
    ledger.declare(domain(1, unit=unit))
    plan = small_plan(unit=unit)
    ledger.reserve(key, "commuters", plan)
    once = rows(ledger.path)
    ledger.reserve(key, "commuters", small_plan(unit=unit))
    assert rows(ledger.path) == once

    found = reservations(ledger.path, release="commuters/2001-06/r1", domain="commuters", period="2001-06", draw=1)
    levels = [0, 1, 2, 3, 4] if neighbours == "unbounded" else [1, 2, 3, 4]
    assert [row["level"] for row in found] == levels
    parts = Fraction(len(levels) * (len(levels) + 1), 2)
    for place, row in enumerate(found, start=1):
        content = json.loads(row["content"])
        assert content["mechanism"] == "inftda_refined"
        assert isinstance(content["sensitivity_squared"], int)
        assert Fraction(row["rho"]) == Fraction(3, 7) * place / parts
        assert Fraction(content["sensitivity_squared"]) / (2 * Fraction(content["variance"])) == Fraction(row["rho"])
    assert charged(ledger.path) == Fraction(3, 7) == ledger.balance("commuters", "2001-06").spent
    assert ledger.balance("commuters", "2001-07").spent == 0


def cheaper(step: Any, **noise: Any) -> Claims:
    """The step at half its charge, or with other noise."""
    changed = {"noise_facts": step.noise_facts | noise} if noise else {"charge": Charge(rho=step.rho / 2)}
    return Claims(step, **changed)


PLAN = small_plan()
FIRST, *OTHERS = PLAN.steps


def with_first(step: Claims) -> Claims:
    """The plan with another first step."""
    return Claims(PLAN, steps=[step, *OTHERS], charged_steps=(step, *OTHERS))


LIES = {
    "a step that costs less than its noise": with_first(cheaper(FIRST)),
    "noise that costs more": with_first(cheaper(FIRST, variance=str(FIRST.variance / 2))),
    "the sensitivity of another unit": Claims(PLAN, unit=PrivacyUnit("trip", max_weight=3)),
    "a whole that is less than its steps": Claims(PLAN, charge=Charge(rho=PLAN.spent.rho / 2)),
    "no noise": with_first(Claims(FIRST, noise_facts={})),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_charge_that_is_not_what_its_noise_costs_is_refused(ledger, key, lie):
    """The ledger recomputes every charge from sensitivity and variance, and the whole from its steps."""
    before = rows(ledger.path)
    with pytest.raises(OdError, match="OD-CHARGE:"):
        ledger.reserve(key, "commuters", LIES[lie])
    assert rows(ledger.path) == before


def test_a_row_that_was_charged_too_little_is_found(ledger, key):
    """Whatever wrote it, with the hash that it should have."""
    ledger.reserve(key, "commuters", PLAN)
    whole = ledger.verify()
    content = json.loads(reservations(ledger.path)[0]["content"])
    with ledger._open_transaction() as entries:
        entries.append("RESERVED", "commuters", key, level=1, draw=2, charge=Charge(rho=FIRST.rho / 2), content=content)
    with pytest.raises(OdError, match="OD-CHARGE"):
        ledger.verify()
    with pytest.raises(OdError, match="OD-CHARGE"):
        Ledger(ledger.path, server_of(ledger.path), whole=False).verify()
    with pytest.raises(OdError, match="OD-CHARGE"):
        ledger.compute_spent_budget(key, PLAN)
    assert len(rows(ledger.path)) == whole + 1


OTHER_PLANS = {
    "rho": ({"rho": Fraction(2, 7)}, "rho, steps"),
    "delta": ({"delta": "1e-9"}, "delta"),
    "shares": ({"shares": "uniform"}, "shares, steps"),
    "tree": ({"tree": "origin"}, "tree"),
    "relation": ({"unit": PrivacyUnit("trip", "unbounded")}, "neighbours, shares, steps"),
    "zones": (
        {"geography": Geography.from_frame(ZONES[:4], ["region", "zone"])},
        "destination_geography, origin_geography",
    ),
}


@pytest.mark.parametrize("name", OTHER_PLANS)
def test_another_plan_of_the_same_release_is_refused(ledger, key, name):
    """The refusal names exactly what changed, and writes nothing."""
    changes, named = OTHER_PLANS[name]
    ledger.reserve(key, "commuters", small_plan())
    before = rows(ledger.path)
    with pytest.raises(OdError, match="OD-REPLAY-PLAN-CHANGED:") as refused:
        ledger.reserve(key, "commuters", small_plan(**changes))
    assert refused.value.message.endswith(f"changed: {named}")
    assert rows(ledger.path) == before


def test_a_plan_without_what_was_reserved_is_refused(ledger, key):
    """Bands are stated only where there are some, and change no step: their absence is all that differs."""
    ledger.reserve(key, "commuters", small_plan(bands=Bands((2,))))
    assert ledger.list_changed_settings(key, "commuters", small_plan()) == ["bands"]
    with pytest.raises(OdError, match=r"OD-REPLAY-PLAN-CHANGED: .*; changed: bands \["):
        ledger.reserve(key, "commuters", small_plan())


ZONES_OF_2020 = Geography.from_frame(ZONES[:4], ["region", "zone"])


def test_the_periods_of_a_revision_are_of_the_same_areas(ledger, key):
    """A changed list is refused before anything is set aside, with the revision that may have it."""
    later, latest = ReleaseKey("commuters", "2001-07"), ReleaseKey("commuters", "2001-08")
    old, new = small_plan(Fraction(1, 9)), small_plan(Fraction(1, 9), geography=ZONES_OF_2020)
    ledger.reserve(key, "commuters", old)
    ledger.reserve(ReleaseKey("others", "2001-06"), "commuters", new)  # another series is another matter
    before = rows(ledger.path)
    with_unknown = Geography.from_frame(ZONES, ["region", "zone"], unknown="aa")
    changes = ({"destination_geography": ZONES_OF_2020}, {"geography": with_unknown})
    for plan in (new, *(small_plan(Fraction(1, 9), **change) for change in changes)):
        for call in (ledger.reserve, ledger.hold_to_plan):
            with pytest.raises(OdError, match="OD-GEOGRAPHY-CHANGED:") as refused:
                call(later, "commuters", plan)
            message = refused.value.message
            assert message.startswith("commuters/2001-07/r1 has different areas from commuters/2001-06/r1")
            assert f"2001-06 has geography {old.tree.origin.digest[:16]}" in message
            assert plan.tree.destination.digest[:16] in message
            assert refused.value.next_step.endswith("revision: 2")
            assert refused.value.spent == "nothing was spent"
    assert rows(ledger.path) == before

    ledger.reserve(ReleaseKey("commuters", "2001-07", 2), "commuters", new)
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-CHANGED.*revision: 2"):
        ledger.reserve(latest, "commuters", new)
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-CHANGED.*areas from commuters/2001-07/r2.*revision: 3"):
        ledger.reserve(ReleaseKey("commuters", "2001-08", 2), "commuters", old)
    third = small_plan(Fraction(1, 9), geography=Geography.from_frame(ZONES[:3], ["region", "zone"]))
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-CHANGED.*revision: 3"):  # the second has yet another list
        ledger.reserve(latest, "commuters", third)
    ledger.reserve(latest, "commuters", small_plan(Fraction(1, 9), tree="origin"))  # the same areas
    versioned = Geography.from_frame(ZONES, ["region", "zone"], version="2001")
    ledger.reserve(ReleaseKey("commuters", "2001-09"), "commuters", small_plan(Fraction(1, 9), geography=versioned))
    ledger.hold_to_plan(key, "commuters", old)


def test_a_release_is_charged_to_the_data_set_that_it_names(ledger, key):
    """Its series stays there, or its next revision would begin with another cap; an undeclared one is refused."""
    ledger.reserve(key, "commuters", small_plan())
    ledger.declare(type(domain(1))("students", domain(1).unit, Cap(rho=Fraction(1)), "a second data set"))
    before = rows(ledger.path)
    for other in (key, ReleaseKey(key.release, key.period, 2), ReleaseKey(key.release, "2001-07")):
        with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT: releases of commuters are charged to"):
            ledger.reserve(other, "students", small_plan())
    with pytest.raises(OdError, match="OD-DOMAIN-UNDECLARED:") as refused:
        ledger.reserve(ReleaseKey("newcomers", "2001-07"), "nobody", small_plan())
    assert "Ledger.declare" in refused.value.next_step
    with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT:"):
        ledger.reserve(ReleaseKey("commuters", "2001-07"), "nobody", small_plan())
    with pytest.raises(OdError, match="OD-DOMAIN-UNDECLARED:"):
        ledger.balance("nobody", "2001-06")
    assert rows(ledger.path) == before


def test_the_cap_holds_to_the_last_digit(tmp_path, key):
    """What fits exactly is allowed, a hair more is refused in numbers; other periods and revisions are seen."""
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(domain("0.6"))
    ledger.reserve(key, "commuters", small_plan(Fraction("0.5")))
    before = rows(ledger.path)
    second = ReleaseKey("commuters", "2001-06", 2)
    for asked, text in ((Fraction("0.25"), "0.25"), (Fraction("0.1") + Fraction(1, 10**18), "0.100001")):
        with pytest.raises(OdError, match="OD-LEDGER-CAP:") as refused:
            ledger.reserve(second, "commuters", small_plan(asked))
        assert f"needs rho {text} in 2001-06" in refused.value.message
        assert "data set 'commuters' has a cap of 0.6, of which 0.5 is spent and 0.1 remains" in refused.value.message
        assert refused.value.spent == "nothing was spent"
        assert rows(ledger.path) == before
        assert ledger.find_level_state(second, 1) is None

    ledger.reserve(second, "commuters", small_plan(Fraction("0.1")))
    assert ledger.balance("commuters", "2001-06").left == 0
    ledger.reserve(ReleaseKey("other_table", "2001-07"), "commuters", small_plan(Fraction("0.6")))
    with pytest.raises(OdError, match="OD-LEDGER-CAP"):
        ledger.reserve(ReleaseKey("commuters", "2001-07"), "commuters", small_plan(Fraction(1, 10**18)))
    assert charged(ledger.path, period="2001-06") == charged(ledger.path, period="2001-07") == Fraction("0.6")


def test_a_level_goes_from_reserved_to_published_and_no_other_way(ledger, key):
    """Every step out of turn is refused as such and writes nothing."""

    def refused(call, *arguments):
        before = rows(ledger.path)
        with pytest.raises(OdError, match="OD-LEDGER-STATE:"):
            call(*arguments)
        assert rows(ledger.path) == before

    refused(ledger.start_draw, key, 1)
    refused(ledger.publish, key, DIGEST)
    ledger.reserve(key, "commuters", small_plan())
    refused(finish, ledger, key, 1, DIGEST)
    refused(ledger.start_draw, key, 5)
    for level in (1, 2, 3, 4):
        refused(ledger.publish, key, DIGEST)
        refused(ledger.read_measured_digest, key, level)
        assert ledger.start_draw(key, level) == 1
        assert states(ledger.path, str(key))[level] == "DRAWING" == ledger.find_level_state(key, level).kind
        refused(ledger.publish, key, DIGEST)
        finish(ledger, key, level, f"{level}" * 64)
        assert states(ledger.path, str(key))[level] == "MEASURED" == ledger.find_level_state(key, level).kind
        refused(finish, ledger, key, level, DIGEST)
        refused(ledger.start_draw, key, level)
    digests = [ledger.read_measured_digest(key, level) for level in (1, 2, 3, 4)]
    assert digests == [f"{level}" * 64 for level in (1, 2, 3, 4)]
    assert not ledger.is_published(key)
    ledger.publish(key, DIGEST)
    published = rows(ledger.path)
    ledger.publish(key, DIGEST)
    assert rows(ledger.path) == published
    assert ledger.is_published(key)
    assert not ledger.is_published(ReleaseKey("commuters", "2001-06", 2))
    refused(ledger.start_draw, key, 1)
    assert charged(ledger.path) == Fraction(3, 7)
    assert ledger.record(key).measured_at == [row["at"] for row in published if row["kind"] == "MEASURED"][-1]


def test_a_lost_draw_is_charged_once_more_until_the_cap_is_used_up(tmp_path, key):
    """The charge is that of the lost level alone; at the cap nothing is written and the level stays as it was."""
    ledger, plan = ledger_at(tmp_path / "ledger.sqlite"), small_plan(Fraction(1, 10), shares="uniform")
    ledger.declare(domain("0.15"))
    ledger.reserve(key, "commuters", plan)
    assert [ledger.start_draw(key, 2) for _ in range(3)] == [1, 2, 3]
    spent = ledger.compute_spent_budget(key, plan).levels
    assert spent == (Fraction(1, 40), Fraction(3, 40), Fraction(1, 40), Fraction(1, 40))
    assert ledger.balance("commuters", key.period).lost_draws == 2
    assert ledger.count_draws(key, 2) == 3
    assert ledger.list_lost_draws(key) == [(2, Charge(rho=Fraction(1, 40)))] * 2
    before = rows(ledger.path)
    for attempt in (lambda: ledger.start_draw(key, 2), lambda: try_release(ledger, key, domain("0.15"), plan, [2])):
        with pytest.raises(OdError, match="OD-LEDGER-CAP:") as refused:
            attempt()
        assert "needs rho 0.025" in refused.value.message
        assert "0.15 is spent and 0 remains" in refused.value.message
    assert rows(ledger.path) == before
    try_release(ledger, key, domain("0.2", "one more draw after the power cut"), plan, [2])
    assert rows(ledger.path) == before

    ledger.declare(domain("0.2", "one more draw after the power cut"))
    assert ledger.start_draw(key, 2) == 4
    finish(ledger, key, 2, DIGEST)
    assert ledger.find_level_state(key, 2).draw == 4
    assert charged(ledger.path) == Fraction("0.175") == ledger.balance("commuters", "2001-06").spent


KEYS = [ReleaseKey("commuters", "2001-06"), ReleaseKey("commuters", "2001-06", 2), ReleaseKey("yearly", "2001-07")]
CALLS = ["reserve", "start", "start", "finish", "publish"]
STEPS = st.tuples(st.sampled_from(CALLS), st.sampled_from(KEYS), st.integers(1, 2))


@given(steps=st.lists(STEPS, max_size=25), cap=st.integers(3, 9))
def test_any_order_of_calls_keeps_the_account(request, engine, steps, cap):
    """Against a model of two dictionaries: the same refusals, the same sums, a whole chain, a cap never passed."""
    geography = Geography.from_frame(ZONES[["zone"]], ["zone"])
    plan = small_plan(3, geography=geography, shares=[Fraction(1, 3), Fraction(2, 3)])
    kinds: dict[tuple[ReleaseKey, int], str] = {}
    draws: dict[tuple[ReleaseKey, int], int] = {}

    def spent(period: str) -> int:
        return sum(level * n for (key, level), n in draws.items() if key.period == period)

    with tempfile.TemporaryDirectory() as folder:
        if engine == "postgresql":
            request.getfixturevalue("postgres").new_ledger(Path(folder))
        ledger = ledger_at(Path(folder) / "ledger.sqlite")
        ledger.declare(domain(cap))
        for step, key, level in steps:
            cost, state = 0, kinds.get((key, level))
            if step == "reserve":
                cost, allowed = (0 if state else 3), True
            elif step == "start":
                cost, allowed = (level if state == "DRAWING" else 0), state in ("RESERVED", "DRAWING")
            elif step == "finish":
                allowed = state == "DRAWING"
            else:
                allowed = all(kinds.get((key, each)) == "MEASURED" for each in (1, 2))
            allowed = allowed and spent(key.period) + cost <= cap
            calls = {
                "reserve": lambda key=key: ledger.reserve(key, "commuters", plan),
                "start": lambda key=key, level=level: ledger.start_draw(key, level),
                "finish": lambda key=key, level=level: finish(ledger, key, level, DIGEST),
                "publish": lambda key=key: ledger.publish(key, DIGEST),
            }
            if not allowed:
                with pytest.raises(OdError):
                    calls[step]()
                continue
            calls[step]()
            if step == "reserve" and state is None:
                kinds |= {(key, 1): "RESERVED", (key, 2): "RESERVED"}
                draws |= {(key, 1): 1, (key, 2): 1}
            elif step == "start":
                kinds[key, level] = "DRAWING"
                draws[key, level] += state == "DRAWING"
            elif step == "finish":
                kinds[key, level] = "MEASURED"
        assert_chain(ledger.path)
        for key in KEYS:
            assert states(ledger.path, str(key)) == {level: kind for (k, level), kind in kinds.items() if k == key}
            by_level = tuple(Fraction(draws.get((key, level), 0) * level) for level in (1, 2))
            assert ledger.compute_spent_budget(key, plan).levels == by_level
            assert charged(ledger.path, release=str(key)) == sum(by_level)
        for period in ("2001-06", "2001-07"):
            balance = ledger.balance("commuters", period)
            assert balance.spent == charged(ledger.path, period=period) == spent(period)
            assert balance.left == cap - spent(period) >= 0


@pytest.mark.parametrize("head", [None, b"", b"\xff\xfe", b"9" * 40, b"000000000006 " + b"0" * 64 + b"\n"])
def test_a_head_that_is_missing_or_damaged_is_named(ledger, key, head):
    """An older ledger cannot be slipped in by taking away what it would be held to."""
    ledger.reserve(key, "commuters", small_plan())
    path = ledger.path.parent / "confidential" / "ledger.head"
    path.unlink() if head is None else path.write_bytes(head)
    with pytest.raises(OdError, match=f"OD-LEDGER-HEAD: .*ledger.head.* is {'missing' if head is None else 'damaged'}"):
        ledger.start_draw(key, 1)
