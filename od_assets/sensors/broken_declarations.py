"""Show in the UI which declarations are broken and left out: a sensor fails with their faults."""

from collections.abc import Iterable, Mapping

import dagster as dg

from od_assets.metadata import make_code_references
from od_core.errors import OdError

BROKEN = "broken_declarations"
"""Name of the sensor of a code location from which broken declarations are left out."""

BROKEN_ROWS = "broken_rows_of_"
"""Beginning of the name of the sensor of a declaration of many series from which broken rows are left out."""


def make_faults_sensor(name: str, faults: Mapping[str, OdError]) -> dg.SensorDefinition:
    """Return a sensor that fails at each evaluation with the given faults, by name of the declaration or the series."""

    @dg.sensor(
        name=name,
        description=f"Fails while declarations are broken. Left out, with their schedules: {', '.join(faults)}.",
        minimum_interval_seconds=600,
        default_status=dg.DefaultSensorStatus.RUNNING,
        metadata=make_code_references(__file__),
    )
    def raise_faults(_context: dg.SensorEvaluationContext) -> None:
        raise merge_faults(faults.values())

    return raise_faults


def merge_faults(faults: Iterable[OdError]) -> OdError:
    """Return the first of some errors with the messages of all of them; equal messages appear once."""
    first, *further = faults
    return first.with_changes(message="; ".join(dict.fromkeys(fault.message for fault in (first, *further))))
