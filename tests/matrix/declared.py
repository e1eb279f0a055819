"""What the options of a row mean: its areas, unit and budget, its records and those of a neighbour, and its release."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import shapely

import od_core
from od_core.flows.mechanisms import MECHANISMS as OF_FLOWS
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.step import Segments
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.features import refuse_unsupported
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, NO_FAULTS
from od_core.publication.kind import Kind
from od_core.records.segments import make_breakdowns
from od_core.stops.publishing import STOPS
from tests.matrix.options import Row

SERIES, OTHER_SERIES = "commuters", "commuters_otherwise"
PERIODS = {"month": ("2001-05", "2001-06"), "week": ("2001-W22", "2001-W23"), "day": ("2001-06-05", "2001-06-06")}
"""The period before, and the published one. The months have 31 and 30 days."""

UNITS: dict[str, dict[str, Any]] = {
    "trip": {},
    "weights": {"max_weight": 3},
    "user": {"column": "user", "max_trips": 4},
    "user pair": {"kind": "user", "column": "user", "max_trips": 4, "max_trips_pair": 1},
    "user_period": {"column": "user", "max_trips": 4},
    "user_year pair": {"column": "user", "max_trips": 4, "max_trips_pair": 2},
    "user_year uncounted": {"column": "user", "max_trips": 4},
}
ABOUT = {
    "none": {},
    "journeys": {"counted": "journeys", "title": "Ways to work"},
    "flights": {
        "counted": "flights",
        "title": "Flights of airlines",
        "description": "Each flight is counted once.",
        "source": "Reports of airlines",
        "coverage": "Airlines with at least 20 aircraft report.",
    },
}
SEGMENTS: dict[str, dict[str, Any]] = {
    "none": {},
    "one": {"segments": {"mode": ("car", "bus", "walk")}},
    "two, one with unknown": {
        "segments": {"mode": ("car", "bus", "walk"), "hour": ("07", "08", "not stated")},
        "segment_unknown": {"hour": "not stated"},
    },
}
FORMATS: dict[str, tuple[str, ...] | None] = {
    "usual": None,
    "all": ("csv", "gis", "omx", "sdmx", "spreadsheet"),
    "none": (),
    "omx sdmx": ("omx", "sdmx"),
}
GROUPS, RECORDS = 60, {"few": 600, "many": 5_000}
MOST_UNCOUNTED = 8
"""Records of a user of which a number of uncounted ones is measured."""

REGIONS = {
    ("same", "few"): {"north": 2, "south": 3},
    ("other", "few"): {"east": 2, "west": 2},
    ("same", "many"): {"north": 16, "south": 12, "isles": 8},
    ("other", "many"): {"east": 16, "west": 20},
}
"""Number of the zones in each region: of the areas of origins, ``same``, and of other destinations."""


def unit_of(row: Row) -> od_core.PrivacyUnit:
    """Return the privacy unit of a row."""
    given = dict(UNITS[row["unit"]])
    kind = given.pop("kind", None) or {"weights": "trip"}.get(row["unit"], row["unit"].split(" ")[0])
    if kind == "user_year":
        given |= {"max_trips_year": 6, "id_pattern": "u[0-9]+"}
    return od_core.PrivacyUnit(kind, row["neighbours"], **given)  # type: ignore[arg-type]


def zones_of(which: str, zones: str) -> dict[str, str]:
    """Return the region of each zone, such as ``n1``."""
    regions = REGIONS[which, zones].items()
    return {f"{region[0]}{number}": region for region, most in regions for number in range(1, most + 1)}


def is_possible(home: int, work: int, last: tuple[int, int]) -> bool:
    """Whether two zones, by their numbers, are a pair that can have trips where some cannot; the last ones are."""
    return (home + 2 * work) % 3 != 1 or (home, work) == last


def possible_of(row: Row) -> dict[str, Any]:
    """Return the pairs of zones of a row that can have trips, as an argument of a plan; none if all can."""
    if row["pairs"] == "all":
        return {}
    homes, works = ([*zones_of(which, row["zones"])] for which in ("same", row["destinations"]))
    last = len(homes) - 1, len(works) - 1
    pairs = [(homes[i], works[j]) for i, j in np.ndindex(len(homes), len(works)) if is_possible(i, j, last)]
    return {"possible": pd.DataFrame(pairs, columns=["origin", "destination"], dtype="str")}


def with_possible_pairs(row: Row, frame: pd.DataFrame) -> pd.DataFrame:
    """Return records with other destinations where their pair of zones cannot have trips."""
    if row["pairs"] == "all":
        return frame
    pairs = possible_of(row)["possible"]
    first = pairs.groupby("origin")["destination"].first()
    is_listed = pd.MultiIndex.from_frame(frame[["origin", "destination"]]).isin(pd.MultiIndex.from_frame(pairs))
    return frame.assign(destination=frame["destination"].where(is_listed, frame["origin"].map(first)))


@lru_cache
def geography(which: str, detail: str, number: str) -> od_core.Geography:
    """Return the areas of origins, ``same``, or of other destinations, ``other``, with names, places or boundaries."""
    areas = zones_of(which, number)
    zones = pd.DataFrame({"region": areas.values(), "zone": areas.keys()}, dtype="str")
    zones["region_name"] = zones["region"].str.title() + " of Aland"
    zones["zone_name"] = "Town " + zones["zone"].str.upper()
    zones["latitude"] = 50.5 + np.arange(len(zones)) % 3
    zones["longitude"] = 10.5 + np.arange(len(zones)) // 3
    places = zip(zones["longitude"], zones["latitude"], strict=True)
    zones["shape"] = [shapely.box(x - 0.5, y - 0.5, x + 0.5, y + 0.5).wkb.hex() for x, y in places]
    options: dict[str, Any] = {}
    if detail != "codes":
        options["names"] = {"region": "region_name", "zone": "zone_name"}
    if detail in ("coordinates", "boundaries"):
        options["coordinates"] = ("latitude", "longitude")
    if detail == "boundaries":
        options["boundaries"] = "shape"
    return od_core.Geography.from_frame(zones, ["region", "zone"], **options)


def _mechanism_of(row: Row) -> Any:
    name, _, rest = row["mechanism"].partition(" ")
    options = {"auto": {"estimate": "auto"}, "shrunk": {"estimate": "shrunk", "leaves": "empirical_bayes"}}
    options["laplace"] = {"noise_distribution": "laplace"}
    options["auto laplace"] = options["auto"] | options["laplace"]
    if row["kind"] == "group sizes":
        return None if name == "by" else name
    return OF_FLOWS.make(name, **options[rest]) if rest else name


def _grid_of(row: Row) -> Any:
    return (
        od_core.MapGrid(-10, 30, 40, 60, 8, ("origin", "destination")) if row["geography"] == "coordinates" else (8, 8)
    )


def budget_of(row: Row) -> od_core.Budget:
    """Return the budget of a row: epsilon 2, with a delta for flows and counts with Gaussian noise."""
    is_pure = row["kind"] not in ("flows", "counts") or row["mechanism"].endswith("laplace")
    return od_core.Budget(epsilon=2, delta=0 if is_pure else "1e-8")


def plan_of(row: Row) -> od_core.Plan:
    """Return the plan of a row that is published. Raises OdError if its options do not fit each other."""
    plan = _plan_of(row)
    intervals = {"intervals"} if row["intervals"] == "yes" else set[str]()
    refuse_unsupported(plan.table, plan.features | {"ledger"} | {*(FORMATS[row["formats"]] or ())} | intervals)
    return plan


def _plan_of(row: Row) -> od_core.Plan:
    given: dict[str, Any] = {"unit": unit_of(row), "budget": budget_of(row), "mechanism": _mechanism_of(row)}
    if row["kind"] == "boxes":
        return od_core.plan_stops(_grid_of(row), **given)
    homes = geography("same", row["geography"], row["zones"])
    if row["kind"] == "group sizes":
        groups = np.bincount(np.arange(GROUPS) % len(homes.zones))
        numbers: dict[str, Any] = _groups_share(row) or {"groups": groups}
        return od_core.plan_group_sizes(homes, top_code=_top_code(row), **numbers, **given)
    options = SEGMENTS[row["segments"]]
    segments = Segments.of(make_breakdowns(options.get("segments"), options.get("segment_unknown")), None)
    works = (
        od_core.Geography.whole()
        if row["kind"] == "counts"
        else geography(row["destinations"], row["geography"], row["zones"])
    )
    is_strict = row["total"] == "no record left out"
    acceptance = replace(NO_FAULTS if is_strict else DEFAULT_ACCEPTANCE, has_categories=False)
    return od_core.plan_release(
        homes,
        destination_geography=works,
        tree=row["tree"],  # type: ignore[arg-type]
        segments=segments,
        acceptance=acceptance,
        **given,
        **_measured(row),
        **possible_of(row),
    )


def _measured(row: Row) -> dict[str, Any]:
    uncounted = {"uncounted": od_core.Uncounted("1/10", MOST_UNCOUNTED)} if row["unit"] == "user_year uncounted" else {}
    return uncounted | ({"area_totals": "1/10"} if row["area_totals"] == "yes" else {})


def _top_code(row: Row) -> Any:
    return od_core.TopCodeEstimate(Fraction(1, 10), 40) if "top code" in row["mechanism"] else 9


def _groups_share(row: Row) -> dict[str, Any]:
    return {"groups_share": "1/4"} if row["groups"] == "measured" else {}


def domain_of(row: Row, name: str = SERIES) -> od_core.PrivacyDomain:
    """Return the data set of a row, with a cap for a few releases."""
    has_rho, unit = row["mechanism"] != "stability_histogram", unit_of(row)
    cap = od_core.Cap(rho=Fraction(30)) if has_rho else od_core.Cap(epsilon=Fraction(30), delta=Fraction(1, 10**6))
    bound = unit.max_trips if unit.kind == "user_year" else None if unit.kind == "trip" else 1
    shared = replace(unit, max_trips=bound, max_weight=None, max_trips_pair=unit.max_trips_pair if bound == 4 else None)
    return od_core.PrivacyDomain(name, shared, cap, "the board decided it", elementary_period=row["period"])  # type: ignore[arg-type]


def refusal(row: Row) -> od_core.OdError | None:
    """Return the error with which the options of a row are refused, before there is a ledger or a record."""
    try:
        domain_of(row), plan_of(row)
    except od_core.OdError as error:
        return error
    return None


def keys_of(row: Row) -> list[ReleaseKey]:
    """Return the releases of a row, the earlier one first."""
    periods = PERIODS[row["period"]]
    return [ReleaseKey(SERIES, period) for period in (periods if row["series"] == "two" else periods[1:])]


def kind_of(row: Row) -> Kind[Any]:
    """Return the kind of release of a row."""
    return {"group sizes": GROUP_SIZES, "boxes": STOPS}.get(row["kind"], FLOWS)


def _shares(zones: int) -> Any:
    """Return the share of the records in each zone: a few have most of them."""
    weights = 0.7 ** np.arange(zones) if zones < 6 else 1 / np.arange(1, zones + 1)
    return weights / weights.sum()


@dataclass(frozen=True)
class Records:
    """The confidential input of a period: a seed, and whether one unit differs from it.

    Attributes:
        seed: another period has other records.
        is_neighbour: True if one unit is replaced (bounded neighbours) or removed (unbounded ones).
    """

    seed: int = 0
    is_neighbour: bool = False

    def of(self, row: Row) -> Any:
        """Return the records of a row as its release takes them."""
        chance, number = np.random.default_rng([7, self.seed]), RECORDS[row["zones"]] - 60 * self.seed
        if row["kind"] == "boxes":
            points = chance.integers(0, 8, (number, 4 if row["geography"] == "coordinates" else 2)) // chance.integers(
                1, 4, (number, 1)
            )
            return self._changed(row, points, np.arange(number) == 0, 7)
        if row["kind"] == "group sizes":
            homes = [*zones_of("same", row["zones"])]
            areas = [homes[k % len(homes)] for k in range(GROUPS)]
            sizes = pd.DataFrame({"group": [f"g{k}" for k in range(GROUPS)], "area": areas})
            sizes["size"] = chance.choice([0, 1, 2, 3, 12], 60, p=[0.3, 0.3, 0.2, 0.1, 0.1])
            if self.is_neighbour:  # a member of the first group with members leaves, or moves
                has_members = np.flatnonzero(sizes["size"])
                sizes.loc[has_members[0], "size"] -= 1
                sizes.loc[has_members[-1], "size"] += row["neighbours"] == "bounded"
            return sizes
        homes, works = (zones_of(which, row["zones"]) for which in ("same", row["destinations"]))
        frame = pd.DataFrame({"origin": chance.choice([*homes], number, p=_shares(len(homes)))}, dtype="str")
        frame["destination"] = chance.choice([*works], number, p=_shares(len(works)))
        frame = with_possible_pairs(row, frame)
        frame["mode"] = chance.choice(["car", "bus", "walk"], number)
        frame["hour"] = chance.choice(["07", "08", "night"], number)
        user = [f"u{k}" for k in chance.integers(0, 150, number)]
        if row["unit"] == "weights":
            frame["weight"] = chance.integers(1, 4, number)
        elif row["unit"] != "trip":
            frame["user"] = user
        is_first = np.array(user) == user[0] if "user" in frame else np.arange(number) == 0
        changed = self._changed(
            row, frame, is_first, {"origin": [*homes][-1], "destination": [*works][-1], "user": "u999"}
        )
        if row["segments"] == "none":
            changed = changed.drop(columns=["mode", "hour"])
        elif row["segments"] == "one":
            changed = changed.drop(columns=["hour"])
        if row["kind"] == "counts":
            changed = changed.rename(columns={"origin": "area"}).drop(columns="destination")
        return changed

    def _changed(self, row: Row, records: Any, is_first: Any, other: Any) -> Any:
        """Return the records with those of the first unit as they are, replaced, or removed."""
        if not self.is_neighbour:
            return records
        if row["neighbours"] == "unbounded":
            return records[~is_first]
        if not isinstance(records, pd.DataFrame):
            return np.where(is_first[:, None], other, records)
        for name, value in other.items():
            if name in records:
                records.loc[is_first, name] = value
        return records


def draw(row: Row, key: ReleaseKey, ledger: od_core.Ledger, records: Records, previous: Any = None, **more: Any) -> Any:
    """Return the release of a row and a period, charged to the ledger, or read back if it is there already.

    Its call has ``more`` arguments, or others, than those of the row.
    """
    given: dict[str, Any] = {"unit": unit_of(row), "budget": budget_of(row), "mechanism": _mechanism_of(row)}
    given |= {"ledger": ledger, "release_id": str(key), "noise": "table"}
    table = records.of(row)
    if row["kind"] == "boxes":
        return od_core.release_stops(table, _grid_of(row), **given | more)
    homes = geography("same", row["geography"], row["zones"])
    if row["kind"] == "group sizes":
        return od_core.release_group_sizes(
            table, homes, **{"top_code": _top_code(row)} | _groups_share(row) | given | more
        )
    given |= (
        SEGMENTS[row["segments"]] | _measured(row) | possible_of(row) | {"one_row_a_trip": row["unit"] != "weights"}
    )
    if row["total"] == "no record left out":
        given["fault_threshold"] = 0
    if previous is not None:
        given["previous"] = previous
    given |= more
    if row["kind"] == "counts":
        return od_core.release_counts(
            table, homes, **{name: value for name, value in given.items() if name != "area_totals"}
        )
    works = geography(row["destinations"], row["geography"], row["zones"])
    return od_core.release_flows(table, homes, destination_geography=works, tree=row["tree"], **given)  # type: ignore[arg-type]
