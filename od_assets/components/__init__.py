"""Components: releases and comparisons declared in YAML."""

from od_assets.components.od_comparison import OdComparison
from od_assets.components.od_group_sizes import OdGroupSizes
from od_assets.components.od_release import OdRelease
from od_assets.components.od_stops import OdStops

__all__ = ["OdComparison", "OdGroupSizes", "OdRelease", "OdStops"]
