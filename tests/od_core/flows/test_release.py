"""The façade: tables, level names, measurements, noise that breaks its contract, and what is refused before data."""

import re
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Acceptance, Budget, Geography, OdError, PrivacyUnit, plan_release, release_counts, release_flows
from od_core.flows.bands import Bands
from tests.od_core.doubles import ListedNoise, SeededNoise, no_noise, released
from tests.od_core.ledger.ledger_rows import declared
from tests.od_core.strategies import TREES, frame_of, geography_of, level_names, noises, worlds

ZONES = [("a", "aa"), ("a", "ab"), ("b", "ba")]
GEOGRAPHY = geography_of(ZONES)
FLOWS = frame_of({(ZONES[0], ZONES[2]): 40, (ZONES[1], ZONES[1]): 7, (ZONES[2], ZONES[0]): 1})
USUAL = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=1, delta=1e-8)}


@given(
    world=worlds(), order=st.sampled_from(TREES), neighbours=st.sampled_from(("bounded", "unbounded")), values=noises()
)
def test_tables_of_a_release(world, order, neighbours, values):
    """Columns, types, order and level names; every pair of levels against a group-by of the leaf flows."""
    release = released(world, order, neighbours, values)
    depth = len(world.origins[0])
    o_names, d_names = (["all", *level_names(zones)] for zones in (world.origins, world.destinations))
    steps = [(k // 2, (k + 1) // 2) for k in range(0, 2 * depth + 1, 2 if order == "both" else 1)]
    pairs = [pair if order == "destination" else pair[::-1] for pair in steps]
    assert release.levels == [(o_names[o], d_names[d]) for o, d in pairs]

    flows = release.flows
    assert list(flows.columns) == ["origin", "destination", "trips"]
    assert [str(kind) for kind in flows.dtypes] == ["str", "str", "int64"]
    assert (flows["trips"] >= 1).all()
    assert isinstance(flows.index, pd.RangeIndex)
    o_path, d_path = ({zone[-1]: zone for zone in zones} for zones in (world.origins, world.destinations))
    leaves = {(o_path[o], d_path[d]): n for o, d, n in flows.itertuples(index=False, name=None)}
    assert len(leaves) == len(flows)
    assert list(leaves) == sorted(leaves)
    for o_level, o_name in enumerate(o_names):
        for d_level, d_name in enumerate(d_names):
            expected: dict = {}
            for (o, d), n in leaves.items():
                pair = ("all", *o[:o_level]), ("all", *d[:d_level])
                expected[pair] = expected.get(pair, 0) + n
            table = release.flows_at(o_name, d_name)
            assert [str(kind) for kind in table.dtypes] == ["str", "str", "int64"]
            rows = [(o[-1], d[-1], n) for (o, d), n in sorted(expected.items())]
            assert list(table.itertuples(index=False, name=None)) == rows


def test_what_was_not_measured_has_no_table():
    release = release_flows(FLOWS, GEOGRAPHY, **USUAL, noise=SeededNoise(1), fault_threshold=0)
    for level in (0, 5, -1):
        with pytest.raises(OdError, match=f"OD-LEVEL-UNMEASURED.*level {level} "):
            release.measurements_at(level)
    for wrong in (("level_3", "level_1"), ("all", "leve_1")):
        with pytest.raises(OdError, match=r"OD-LEVEL-UNKNOWN.*did you mean 'level_"):
            release.flows_at(*wrong)


@pytest.mark.parametrize(
    "options", [{}, {"mechanism": "inftda", "tree": "origin"}, {"area_totals": "1/5", "fault_threshold": 0}], ids=str
)
def test_a_plan_is_released_as_its_geography_with_its_options(options):
    threshold = Acceptance(options["fault_threshold"]) if options.get("fault_threshold") == 0 else Acceptance()
    others = {name: value for name, value in options.items() if name != "fault_threshold"}
    plan = plan_release(GEOGRAPHY, acceptance=threshold, **USUAL, **others)
    given_plan, given_options = (
        release_flows(FLOWS, subject, noise=SeededNoise(3), **rest)
        for subject, rest in ((plan, {}), (GEOGRAPHY, USUAL | options))
    )
    assert given_plan.plan.digest == given_options.plan.digest == plan.digest
    assert given_plan.flows.equals(given_options.flows)


@pytest.mark.parametrize(
    ("changes", "beside", "said"),
    [
        ({}, {"budget": Budget(epsilon=9, delta=1e-8)}, "none is given beside it: budget"),
        ({}, {"fault_threshold": "1/2"}, "none is given beside it: fault_threshold"),
        ({"bands": Bands((2,))}, {}, "the plan has bands"),
        ({"acceptance": Acceptance(refuses_empty=True)}, {}, "refuses inputs without records"),
    ],
    ids=str,
)
def test_a_plan_that_is_not_what_would_be_released_is_refused(changes, beside, said):
    plan = plan_release(GEOGRAPHY, **USUAL, **changes)
    with pytest.raises(OdError, match=f"OD-PLAN-GIVEN: .*{said}") as refused:
        release_flows(FLOWS, plan, **beside)
    assert refused.value.spent == "nothing was spent"


def test_a_plan_of_counts_is_released_by_its_own_door():
    plan = plan_release(GEOGRAPHY, destination_geography=Geography.whole(), **USUAL)
    people = pd.DataFrame({"area": ["aa", "ba"], "count": [40, 3]})
    counts = release_counts(people, GEOGRAPHY, noise=SeededNoise(3), **USUAL)
    assert counts.plan.digest == plan.digest
    assert release_flows(people, plan, noise=SeededNoise(3)).flows.equals(counts.flows)


def test_a_notebook_shows_the_printed_summary_as_a_table_without_markup_of_the_data():
    zones = Geography.from_frame(pd.DataFrame({"<b>area</b> & more": ["1", "2"]}), ["<b>area</b> & more"])
    flows = pd.DataFrame({"origin": ["1"], "destination": ["2"], "trips": [1_234]})
    release = release_flows(flows, zones, **USUAL, noise=no_noise())
    shown = release._repr_html_()
    rows = ElementTree.fromstring(f"<p>{shown}</p>").findall("table")[0].findall("tbody/tr")  # noqa: S314  # our own text
    texts = [": ".join(cell.text for cell in row) for row in rows]
    assert texts[:-1] == str(release).splitlines()
    assert texts[-1].startswith("Cost: rho ")
    assert "1,234 trips" in shown
    assert not re.search(r"<b>|src|href|http|script", shown)


def test_only_noise_of_the_library_carries_a_guarantee():
    assert release_flows(FLOWS, GEOGRAPHY, **USUAL, fault_threshold=0).has_guarantee
    double = release_flows(FLOWS, GEOGRAPHY, **USUAL, noise=SeededNoise(1), fault_threshold=0)
    assert not double.has_guarantee
    assert double.noise is None


class Returns:
    """Noise double that returns what it is told for a piece of the given size."""

    def __init__(self, answer):
        self.answer = answer

    def draw(self, variance, level, first, size):
        return self.answer(size)


def one_huge(value):
    return lambda size: np.array([value] + [0] * (size - 1), dtype=np.int64)


@pytest.mark.representatives
@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
@pytest.mark.parametrize(
    "answer",
    [
        lambda size: np.zeros(size, dtype=np.float64),
        lambda size: np.zeros(size, dtype=np.int32),
        lambda size: np.zeros(size, dtype=np.uint64),
        lambda size: np.zeros(size, dtype=object),
        lambda size: [0] * size,
        lambda size: np.zeros(size + 1, dtype=np.int64),
        lambda size: np.zeros(max(0, size - 1), dtype=np.int64),
        lambda size: np.zeros((size, 1), dtype=np.int64),
        lambda size: np.int64(0),
        lambda size: None,
        one_huge(np.iinfo(np.int64).max),
        one_huge(np.iinfo(np.int64).min),
        one_huge(1 << 61),
        one_huge(-(1 << 61)),
    ],
)
def test_noise_that_breaks_its_contract_is_refused_and_the_charge_stands(answer, neighbours):
    """Saturated values are among them: they would be added to a count in silence."""
    unit = PrivacyUnit("trip", neighbours)
    with pytest.raises(OdError, match="OD-NOISE-CONTRACT") as error:
        release_flows(FLOWS, GEOGRAPHY, **USUAL | {"unit": unit}, noise=Returns(answer), fault_threshold=0)
    assert error.value.spent == "the level stays charged"


def test_an_error_after_the_first_draw_does_not_say_that_nothing_was_spent():
    """Noise within its contract whose sums do not fit 64 bits: refused in the projection, after the draw."""
    nearly = ListedNoise([(1 << 61) - 1])
    wide = geography_of([(f"z{k}",) for k in range(4)])
    with pytest.raises(OdError, match="OVERFLOW") as error:
        release_flows(frame_of({(("z0",), ("z1",)): 5}), wide, **USUAL, noise=nearly, fault_threshold=0)
    assert error.value.spent != "nothing was spent"


def test_noise_too_wide_for_a_table_is_refused_before_anything_is_charged(tmp_path):
    """A small budget needs wider noise than a table is made for; OpenDP draws it."""
    ledger, budget = declared(tmp_path, "commuters", USUAL["unit"]), Budget(rho=Fraction(1, 10**9), delta="1e-8")
    asked = {"unit": USUAL["unit"], "budget": budget, "ledger": ledger, "release_id": "commuters/2001-06/r1"}
    with pytest.raises(OdError, match=r"OD-NOISE-TOO-WIDE.*nothing was spent.*opendp"):
        release_flows(FLOWS, GEOGRAPHY, **asked, noise="table", fault_threshold=0)
    assert ledger.balance("commuters", "2001-06").spent == 0
    assert release_flows(FLOWS, GEOGRAPHY, **asked, noise="opendp", fault_threshold=0).spent.rho == Fraction(1, 10**9)


@pytest.mark.parametrize("read_only", [False, True])
def test_counts_are_never_added_to_what_a_noise_source_keeps(read_only):
    """A source may hand out parts of an array of its own; the truth must not come to stand there."""

    class Kept:
        def __init__(self) -> None:
            self.values = {size: np.zeros(size, dtype=np.int64) for size in range(100)}
            for values in self.values.values():
                values.setflags(write=not read_only)

        def draw(self, variance, level, first, size):
            return self.values[size]

    source = Kept()
    release = release_flows(FLOWS, GEOGRAPHY, **USUAL, noise=source, fault_threshold=0)
    assert not any(values.any() for values in source.values.values())
    assert release.flows["trips"].tolist() == sorted(FLOWS["trips"])[::-1]
