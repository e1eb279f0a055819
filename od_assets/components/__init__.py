"""Components to declare in YAML: releases, comparisons, a web site, and the warehouse that all releases share."""

from od_assets.components.project import OdComparison, OdSite, OdWarehouse
from od_assets.components.series import OdGroupSizes, OdRelease, OdStops

__all__ = ["OdComparison", "OdGroupSizes", "OdRelease", "OdSite", "OdStops", "OdWarehouse"]
