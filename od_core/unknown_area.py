"""An area that is nowhere: it takes the records that cannot be placed in the public geography."""

from __future__ import annotations

import pandas as pd

from od_core.coordinates import COORDINATES
from od_core.errors import OdError
from od_core.geography import Geography


def with_unknown_area(geography: Geography, code: str) -> Geography:
    """The geography with one more area of that code at every level, the zone that takes records from unlisted places.

    Args:
        geography: without a zone for unknown places.
        code: of the area at every level.

    Raises:
        OdError: the geography has an area of that code, or a zone for unknown places; a code that is none.
    """
    if geography.unknown is not None:
        raise _fault(f"there is a zone for unknown places already, {geography.unknown!r}")
    for level, codes in zip(geography.level_names, geography.codes, strict=True):
        if code in codes:
            raise _fault(f"level {level!r} has an area {code!r} already, which cannot be added for unknown places")
    elsewhere = pd.DataFrame([dict.fromkeys(geography.levels, code)])
    return Geography.from_frame(
        pd.concat([geography.to_frame(), elsewhere], ignore_index=True),
        geography.levels,
        unknown=code,
        coordinates=None if geography.coordinates is None else COORDINATES,
        version=geography.version,
    )


def _fault(message: str) -> OdError:
    return OdError("OD-GEOGRAPHY-UNKNOWN-ZONE", message, next_step="choose another code, or name a listed zone")
