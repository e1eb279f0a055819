"""However the m trips of a unit are divided among the cells of each level, one cell that moves by m tells more."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.privacy.privacy_loss import compute_exact_delta
from tests.od_core.oracles.privacy_loss import delta_of_divisions, delta_of_outcomes

Division = tuple[int, ...]

ROUNDING = 1e-13
"""Relative to 1, far above the errors of sums of probabilities."""


def divisions(trips: int, most: int | None = None) -> Iterator[Division]:
    """Every way to divide some trips among cells, the largest part first; (0,) for no trip."""
    if trips == 0:
        yield ()
    for part in range(min(trips, most or trips), 0, -1):
        yield from ((part, *rest) for rest in divisions(trips - part, part))


def coarser(division: Division) -> set[Division]:
    """Every division of the level above: the trips of some cells come together in one."""
    found = {division}
    for one in range(len(division)):
        for other in range(one):
            rest = [part for place, part in enumerate(division) if place not in (one, other)]
            found |= coarser(tuple(sorted((*rest, division[one] + division[other]), reverse=True)))
    return found


def test_the_divisions_are_all():
    assert len(list(divisions(5))) == 7
    assert coarser((2, 1, 1)) == {(2, 1, 1), (3, 1), (2, 2), (4,)}


def test_the_oracle_is_the_definition_outcome_by_outcome():
    levels = [(Fraction("0.7"), (2, -1)), (Fraction("1.3"), (1,))]
    expected = delta_of_outcomes([levels[0][0]] * 2 + [levels[1][0]], (2, -1, 1), Fraction(1, 2))
    assert delta_of_divisions(levels, 0.5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variances", [("0.15", "0.3"), ("0.4", "1.1"), ("1", "1"), ("2.3", "0.7"), ("5", "9")])
@pytest.mark.parametrize("m", [2, 3, 4])
def test_at_two_nested_levels_one_cell_tells_most(m, variances):
    """An added unit with up to m trips: every division of the second level, and every one of the first above it."""
    first, second = map(Fraction, variances)
    spread = m * float(1 / first + 1 / second) ** 0.5
    for epsilon in np.linspace(0, spread**2 / 2 + 4 * spread, 8).tolist():
        together = delta_of_divisions([(first, (m,)), (second, (m,))], epsilon)
        for counted in range(m + 1):
            for below in divisions(counted):
                for above in coarser(below):
                    assert delta_of_divisions([(first, above), (second, below)], epsilon) <= together + ROUNDING


@pytest.mark.parametrize("variance", ["0.15", "0.4", "1", "2.3"])
@pytest.mark.parametrize("m", [2, 3])
def test_a_replaced_unit_tells_most_with_one_cell_each(m, variance):
    of_level = Fraction(variance)
    removed = [tuple(-part for part in one) for trips in range(m + 1) for one in divisions(trips)]
    added = [one for trips in range(m + 1) for one in divisions(trips)]
    spread = m * float(2 / of_level) ** 0.5
    for epsilon in np.linspace(0, spread**2 / 2 + 4 * spread, 12).tolist():
        together = delta_of_divisions([(of_level, (-m, m))], epsilon)
        for one in removed:
            for other in added:
                assert delta_of_divisions([(of_level, (*one, *other))], epsilon) <= together + ROUNDING


@given(
    data=st.data(),
    m=st.integers(2, 12),
    sizes=st.tuples(*[st.fractions("1/10", "4", max_denominator=20)] * 2),
    deviations=st.floats(-1, 5),
)
def test_the_bound_of_m_covers_every_division(data, m, sizes, deviations):
    """The accounting against the law of a random division at two levels; sizes are variances over m^2."""
    variances = [m**2 * size for size in sizes]
    below = data.draw(st.sampled_from(list(divisions(m))))
    above = data.draw(st.sampled_from(sorted(coarser(below)))) if len(below) < 6 else (m,)
    spread = sum(float(1 / size) for size in sizes) ** 0.5
    epsilon = Fraction(max(0.0, spread**2 / 2 + deviations * spread))
    bound = compute_exact_delta(variances, epsilon, m)
    assert delta_of_divisions(list(zip(variances, (above, below), strict=True)), float(epsilon)) <= bound + ROUNDING
