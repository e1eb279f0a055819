"""Find the zones in whose public boundaries points lie.

A point on a border of several zones belongs to the one with the lowest code, so that every engine places it alike. The
boundaries are those of the geography, repaired where a polygon crosses itself. Both ends of the date line are one line:
a point at longitude 180 also lies at -180.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

import lazy_loader
import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.geography import Boundaries, Geography, make_valid_shapes
from od_core.geography.grids import CellLocator

shapely: Any = lazy_loader.load("shapely")  # slow to import, and of an extra

OUTSIDE = "(outside)"
"""Code of a point that lies in no zone, which is no zone's code and thus that of an unlisted zone."""

MAX_OVERLAP = 0.001
"""Largest part of a zone that another zone may overlap: borders that were drawn twice differ by so little."""

_DATE_LINE = 180.0
_MIN_GAP_AREA = 1e-12
"""Largest number of square degrees, a hundredth of a square metre, of a gap between equal borders that were rounded."""
_NEARBY_DEGREES = 1e-9
"""Distance in degrees, a tenth of a millimetre, of what lies beside each other."""


@dataclass(frozen=True)
class Gaps:
    """The gaps that zones enclose: a lake or an area that is not listed, or a sliver where a border was drawn twice.

    Attributes:
        number: number of gaps.
        slivers: number of gaps whose area is at most :data:`MAX_OVERLAP` of that of each zone beside them.
        share: their square degrees as a share of those of the zones.
        beside_largest: codes of the zones beside the largest gap.
    """

    number: int
    slivers: int
    share: float
    beside_largest: tuple[str, ...]


class PointLocator:
    """The boundaries of zones, prepared to find the zone of each of many points.

    Args:
        codes: codes of the zones.
        boundaries: their boundaries as WKB, in the same order; None for a zone in which no point lies.

    Attributes:
        codes_without_boundary: codes of the zones in which no point lies.

    Raises:
        OdError: no zone has a boundary, a zone has the code :data:`OUTSIDE`, or two zones overlap by more than
            :data:`MAX_OVERLAP` of the smaller one; the extra ``boundaries`` is not installed.
    """

    def __init__(self, codes: tuple[str, ...], boundaries: Boundaries) -> None:
        in_order = sorted((code, shape) for code, shape in zip(codes, boundaries, strict=True) if shape is not None)
        if not in_order:
            raise _make_location_error("no zone has a boundary, so no point lies in one")
        if OUTSIDE in codes:
            raise _make_location_error(f"a zone has the code {OUTSIDE!r}, which stands for points outside of all zones")
        self.codes_without_boundary = sorted({*codes} - {code for code, _ in in_order})
        self._codes = np.array([*(code for code, _ in in_order), OUTSIDE], dtype=object)
        self._shapes = make_valid_shapes([shape for _, shape in in_order])
        self._tree = shapely.STRtree(self._shapes)
        self._refuse_overlaps()
        shapely.prepare(self._shapes)
        self._lock = Lock()  # the first use of a shape makes its index, which two threads may not do at once

        self._given = (codes, boundaries)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what the locator was made of, for another process, which prepares the boundaries again."""
        return PointLocator, self._given

    @classmethod
    def from_geography(cls, geography: Geography) -> PointLocator:
        """Return the locator of a geography's zones. Raises OdError as the constructor does."""
        zones = geography.zones
        return cls(zones, geography.boundaries or (None,) * len(zones))

    def find_codes(self, longitude: NDArray[np.float64], latitude: NDArray[np.float64]) -> NDArray[np.object_]:
        """Return the code of the zone of each point; :data:`OUTSIDE` in no zone, None if a coordinate is missing.

        Args:
            longitude, latitude: degrees, shape (points,). NaN is missing. What is no degree, such as infinity or a
                latitude of 91, lies in no zone.
        """
        zone = self._find_lowest_zone(longitude, latitude)
        at_date_line = np.flatnonzero(np.abs(longitude) == _DATE_LINE)
        if len(at_date_line):
            beyond = self._find_lowest_zone(-longitude[at_date_line], latitude[at_date_line])
            zone[at_date_line] = np.minimum(zone[at_date_line], beyond)
        found = self._codes[zone]
        found[np.isnan(longitude) | np.isnan(latitude)] = None
        return found

    def find_gaps(self) -> Gaps:
        """Return how many gaps the zones enclose, and how large they are. A point in a gap lies in no zone."""
        whole = shapely.union_all(self._shapes)
        without_holes = shapely.union_all(shapely.polygons(shapely.get_exterior_ring(shapely.get_parts(whole))))
        gaps = shapely.get_parts(shapely.difference(without_holes, whole))
        area = shapely.area(gaps)
        gaps, area = gaps[area > _MIN_GAP_AREA], area[area > _MIN_GAP_AREA]
        if not len(gaps):
            return Gaps(0, 0, 0.0, ())
        gap, zone = self._tree.query(gaps, predicate="dwithin", distance=_NEARBY_DEGREES)  # each pair side by side
        least_zone = np.full(len(gaps), np.inf)  # area of the smallest zone beside each gap
        np.minimum.at(least_zone, gap, shapely.area(self._shapes[zone]))
        return Gaps(
            len(gaps),
            int(np.count_nonzero(area <= MAX_OVERLAP * least_zone)),
            float(area.sum() / shapely.area(whole)),
            tuple(sorted(self._codes[zone[gap == np.argmax(area)]])),
        )

    def _find_lowest_zone(self, longitude: NDArray[np.float64], latitude: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the position of the first zone, in the order of codes, that contains each point; shape (points,).

        It is the number of all zones with boundaries for a point in no zone.
        """
        zone = np.full(len(longitude), len(self._shapes))
        placed = np.flatnonzero(np.isfinite(longitude) & np.isfinite(latitude))
        with self._lock:
            point, candidate = self._tree.query(shapely.points(longitude[placed], latitude[placed]))
            # In this order, each shape is read once, which is three times as fast.
            by_candidate = np.argsort(candidate, kind="stable")
            point, candidate = placed[point[by_candidate]], candidate[by_candidate]
            is_in = shapely.intersects_xy(self._shapes[candidate], longitude[point], latitude[point])
        np.minimum.at(zone, point[is_in], candidate[is_in])
        return zone

    def _refuse_overlaps(self) -> None:
        """Raise OdError if two zones overlap by more than :data:`MAX_OVERLAP` of the smaller one."""
        one, other = self._tree.query(self._shapes, predicate="intersects")
        one, other = one[one < other], other[one < other]  # each pair of zones once
        area = shapely.area(self._shapes)
        shared = shapely.area(shapely.intersection(self._shapes[one], self._shapes[other]))
        is_overlap = shared > MAX_OVERLAP * np.minimum(area[one], area[other])
        if is_overlap.any():
            first = int(np.argmax(is_overlap))
            codes = f"{self._codes[one[first]]!r} and {self._codes[other[first]]!r}"
            raise _make_location_error(f"zones {codes} overlap, so a point may lie in both")


def make_locator(geography: Geography) -> PointLocator | CellLocator:
    """Return the locator of a geography's zones: by its grid, if they are cells of one, or else by their boundaries."""
    if geography.grid is not None:
        return CellLocator(geography.grid, geography.zones, OUTSIDE)
    return PointLocator.from_geography(geography)


def _make_location_error(message: str) -> OdError:
    """Return the OdError for boundaries in which points cannot be found."""
    return OdError("OD-GEOGRAPHY-BOUNDARIES", message, next_step="correct the file of boundaries")
