"""Use what Dagster 1.13 has and Dagster 1.12 lacks. Remove this module when 1.12 is no longer supported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
from packaging.version import Version

_IS_1_12 = Version(dg.__version__) < Version("1.13")


def owned_by(owners: Sequence[str]) -> dict[str, Any]:
    """Return the argument ``owners`` of a job, schedule or sensor, which have none in Dagster 1.12."""
    return {} if _IS_1_12 else {"owners": list(owners)}


def group_name(name: str, part: str) -> str:
    """Return the name of a group of assets of a series: ``us_flights/inputs``, or ``us_flights_inputs`` in 1.12."""
    return f"{name}_{part}" if _IS_1_12 else f"{name}/{part}"
