"""Components to declare in YAML: releases, comparisons, a web site, and the warehouse that all releases share."""

from od_assets.components.od_comparison import OdComparison
from od_assets.components.od_group_sizes import OdGroupSizes
from od_assets.components.od_release import OdRelease
from od_assets.components.od_site import OdSite
from od_assets.components.od_stops import OdStops
from od_assets.components.od_warehouse import OdWarehouse

__all__ = ["OdComparison", "OdGroupSizes", "OdRelease", "OdSite", "OdStops", "OdWarehouse"]
