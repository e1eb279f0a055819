"""Components to declare in YAML: releases, comparisons, a web site, and the warehouse that all releases share."""

from od_assets.components.project import OdComparison, OdSite, OdWarehouse
from od_assets.components.series import OdCounts, OdGroupSizes, OdRelease, OdReleases, OdStops

__all__ = ["OdComparison", "OdCounts", "OdGroupSizes", "OdRelease", "OdReleases", "OdSite", "OdStops", "OdWarehouse"]
