"""Broken variants of the library, which tests must find."""

import pytest

from od_core.flows import measuring
from od_core.flows.estimation import intervals
from od_core.flows.estimation import levels as noisy_levels
from od_core.flows.estimation.levels import estimate
from od_core.ledger.measurements import NoisyVector
from od_core.privacy.neighbours import Neighbours, Standing


def forget_that_a_record_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the relation know counted records alone, as if each were replaced by another that is counted."""
    monkeypatch.setattr(Neighbours, "can_have_standing", lambda _, standing: standing is Standing.COUNTED)


def charge_the_root_of_segments_as_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the counts of the root by category have the sensitivity of its total; 1 where that is published exactly."""
    sensitivity = Neighbours.sensitivity_squared

    def of_totals(self: Neighbours, level: int, *, by_segment: bool = False) -> int:
        of_level = sensitivity(self, level, by_segment=by_segment and level > 0)
        return max(1, of_level) if by_segment else of_level

    monkeypatch.setattr(Neighbours, "sensitivity_squared", of_totals)


def forget_the_contrasts_in_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the variance of a category be that of its fit alone, without the factor 1 - 1/K, beside that of the total."""
    combined = intervals._combine_categories

    def with_all_of_it(total, own):  # type: ignore[no-untyped-def]
        estimates, variance = combined(total, own)
        return estimates, variance + own[0].variance / len(own)

    monkeypatch.setattr(intervals, "_combine_categories", with_all_of_it)


def select_nodes_by_one_category(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the nodes of the next level be those that have trips by the first category alone, as if all were alike."""

    def by_the_first(plan, measured, parents):  # type: ignore[no-untyped-def]
        totals = noisy_levels.combine_totals(plan, measured)
        if not totals:
            return parents
        [breakdown] = plan.segments.breakdowns
        first, *_ = noisy_levels.split_by_category(measured[-1], breakdown)
        noisy = NoisyVector.from_arrays([first * len(breakdown.categories)])
        return estimate(plan, totals[0].step, None if totals[0].parents is None else parents, noisy)

    monkeypatch.setattr(measuring, "estimate_next_parents", by_the_first)
