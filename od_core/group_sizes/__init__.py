"""Release group-size tables, which state for every area and every size j how many groups have j members."""

from od_core.group_sizes.groups import GroupSizes
from od_core.group_sizes.metrics import evaluate_group_sizes
from od_core.group_sizes.plan import TopCodeEstimate, plan_group_sizes
from od_core.group_sizes.release import GroupSizeRelease, release_group_sizes

__all__ = [
    "GroupSizeRelease",
    "GroupSizes",
    "TopCodeEstimate",
    "evaluate_group_sizes",
    "plan_group_sizes",
    "release_group_sizes",
]
