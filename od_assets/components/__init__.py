"""Components: releases declared in YAML."""

from od_assets.components.od_release import OdRelease

__all__ = ["OdRelease"]
