"""Every month, budget and tree of the real flights, with the library's own noise: the invariants hold."""

from __future__ import annotations

from tests.od_core.invariants import assert_invariants


def test_all_releases_keep_the_invariants_at_every_pair_of_levels(releases_with, flights, airports):
    """Nothing here is left to chance: the invariants hold for any noise, so the releases of the fastest suffice."""
    real_releases = releases_with("table")
    assert len({(r.month, r.epsilon, r.order) for r in real_releases}) == len(real_releases) == 36
    for r in real_releases:
        assert r.release.has_guarantee
        assert_invariants(r.release, len(flights[r.month]), airports)
        assert r.release.spent.rho == r.release.plan.spent.rho
