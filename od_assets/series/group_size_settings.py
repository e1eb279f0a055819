"""Define the settings of a series of group-size tables, in the terms of od_core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from od_assets.series.settings import TableSettings, TreeSettings
from od_core import Geography
from od_core.group_sizes.groups import AreasByDay, Grouping, GroupSizes
from od_core.group_sizes.mechanisms import GroupSizeMechanism
from od_core.group_sizes.plan import GroupSizePlan, TopCodeEstimate, plan_group_sizes
from od_core.group_sizes.publishing import GROUP_SIZES


@dataclass(frozen=True)
class GroupSizeSettings(TreeSettings[GroupSizePlan, Geography], TableSettings[GroupSizePlan, Geography]):
    """The checked settings of a series of group-size tables.

    Attributes:
        grouping: definition of the groups.
        mechanism: mechanism of od_core; None if a rule on public numbers chooses it.
        top_code: largest size that is distinguished, or the settings of its estimate.
    """

    grouping: Grouping
    mechanism: GroupSizeMechanism | None
    top_code: int | TopCodeEstimate

    kind = GROUP_SIZES

    def read_geography(self) -> Geography:
        """Read the geography from the declared list; see :meth:`SeriesSettings.read_geography`."""
        return self.zones.geography(self.project.root)

    def kept_lists(self, geography: Geography) -> dict[str, pd.DataFrame]:
        """Return the list to store; see :meth:`SeriesSettings.kept_lists`."""
        return {file: geography.to_frame() for file in self.zone_lists}

    def kept_geography(self, folder: Path) -> Geography:
        """Read the geography from the stored list; see :meth:`SeriesSettings.kept_geography`."""
        (zones,) = self.kept_zone_lists
        return zones.geography(folder)

    def listed_codes(self, geography: Geography) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes of areas or groups, as origins and as destinations; see the base class."""
        codes = self.grouping.codes(geography)
        return codes, codes

    def count(self, records: Path, geography: Geography, period: str) -> GroupSizes:
        """Count the members of every group; see :meth:`TableSettings.count`."""
        return self.grouping.count(records, geography, period, self.fault_threshold)

    def sides(self, geography: Geography) -> tuple[Geography, Geography]:
        """Return the geography as both origins and destinations; see :meth:`SeriesSettings.sides`."""
        return geography, geography

    @property
    def takes_nowhere(self) -> bool:
        """See :attr:`SeriesSettings.takes_nowhere`. False for listed groups, whose records have codes of groups."""
        return super().takes_nowhere and isinstance(self.grouping, AreasByDay)

    def _plan(self, geography: Geography, days: int) -> GroupSizePlan:
        return plan_group_sizes(
            geography,
            self.grouping.per_area(geography, days),
            unit=self.unit,
            budget=self.budget,
            mechanism=self.mechanism,
            top_code=self.top_code,
            acceptance=self.acceptance,
        )
