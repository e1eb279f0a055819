"""Compute the sensitivity of flow counts: by how much they change with the records of one privacy unit."""

from __future__ import annotations

from od_core.privacy.unit import PrivacyUnit


def sensitivity_squared(unit: PrivacyUnit) -> int:
    """Return the squared L2 sensitivity of the counts of one level below the root.

    All m trips of a unit, where m is the contribution bound, may be in one cell of a level. Adding the unit then
    changes that cell by m, and replacing the unit changes two cells by m each. So the result is m^2 or 2 m^2. The same
    holds for a record that counts up to m trips.
    """
    return unit.differing_units * unit.contribution_bound**2


def sensitivity_of_leaves(unit: PrivacyUnit) -> int:
    """Return the L1 sensitivity of all leaf counts: the contribution bound, or twice that for bounded neighbours."""
    return unit.differing_units * unit.contribution_bound
