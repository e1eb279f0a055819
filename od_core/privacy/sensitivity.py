"""Derive the sensitivity of flow counts from the privacy unit: how much the records of one unit change them."""

from __future__ import annotations

from od_core.privacy.unit import PrivacyUnit


def sensitivity_squared(unit: PrivacyUnit) -> int:
    """Return the squared L2 sensitivity of the counts of one level below the root.

    All m trips of a unit may be in one cell of a level. So adding the unit changes that cell by m, and replacing it
    changes two cells by m each. The same holds for a record that counts up to m trips.
    """
    m = unit.contribution_bound
    return 2 * m * m if unit.neighbours == "bounded" else m * m


def sensitivity_of_leaves(unit: PrivacyUnit) -> int:
    """Return the L1 sensitivity of the counts of the leaf pairs: the number of trips by which neighbours differ."""
    return (2 if unit.neighbours == "bounded" else 1) * unit.contribution_bound
