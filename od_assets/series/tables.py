"""Declare a series that is measured and estimated as one table: of group sizes, or of trips with stops."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from od_assets.series.records import Records
from od_assets.series.section import Number, Section
from od_assets.series.series import OptionValue, TableSeries, TreeSeries
from od_core import (
    Geography,
    GroupSizePlan,
    OdError,
    StopsPlan,
    TopCodeEstimate,
    Trajectories,
    plan_group_sizes,
    plan_stops,
)
from od_core.group_sizes.groups import AreasByDay, Grouping, GroupSizes, ListedGroups, NumberedGroups, SeenGroups
from od_core.group_sizes.mechanisms import MECHANISMS as GROUP_SIZE_MECHANISMS
from od_core.group_sizes.mechanisms import GroupSizeMechanism
from od_core.group_sizes.plan import parse_brackets, parse_groups_share
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.meaning.features import list_given_options
from od_core.periods import Period
from od_core.privacy.accounting import parse_exact_fraction
from od_core.publication.columns import Column
from od_core.records.formats import ColumnName, RecordColumns
from od_core.records.zone_lists import ZoneList, read_zones
from od_core.stops.geometry import MapGrid
from od_core.stops.mechanisms import MECHANISMS as STOPS_MECHANISMS
from od_core.stops.mechanisms import StopsMechanism
from od_core.stops.publishing import STOPS
from od_core.stops.trajectories import PlaceColumns, PlaceList, place_records


class MemberColumns(Section):
    """Columns of the files of records; one of them names the group or area of a record."""

    area: str | None = None
    group: str | None = None
    size: str | None = None
    groups: str | None = None
    date: str | None = None


class Members(Records):
    """Location and format of the confidential records, each of which is a member of a group."""

    columns: MemberColumns = Field(default_factory=MemberColumns)


class GroupList(Section):
    """Location and columns of the public list of groups, or of the number of groups of each area."""

    file: str
    group: str = "group"
    area: str = "area"
    groups: str | None = None


class EstimatedTopCode(Section):
    """A top code that is estimated from the records, for a part of the budget; it requires a named mechanism."""

    share: Number = "1/20"
    most: int


class GroupSizeSeries(TreeSeries[GroupSizePlan, Geography], TableSeries[GroupSizePlan, Geography]):
    """A series of group-size tables, as a project declares it."""

    trips: Members
    groups: GroupList | None = None
    stated_mechanism: str | None = Field(None, alias="mechanism")
    mechanism_options: dict[str, OptionValue | list[str]] = Field({})
    stated_top_code: int | EstimatedTopCode | None = Field(None, alias="top_code")
    stated_brackets: list[int] | None = Field(None, alias="brackets")
    stated_groups_share: Number | None = Field(None, alias="groups_share")

    kind = GROUP_SIZES
    checked_table: ClassVar[str] = "histograms"
    table = "group sizes"
    _checked_properties: ClassVar[tuple[str, ...]] = ("grouping", "mechanism", "top_code", "brackets", "groups_share")

    @cached_property
    def mechanism(self) -> GroupSizeMechanism | None:
        """Mechanism of the releases; None if a rule on public numbers chooses it."""
        if self.stated_mechanism is None:
            return None
        return GROUP_SIZE_MECHANISMS.make(self.stated_mechanism, **self.mechanism_options)

    @property
    def features(self) -> frozenset[str]:
        """Names of the declared options; of group sizes, also those of the mechanism and of the sizes.

        Raises OdError if one of these options is not valid.
        """
        queries = () if self.mechanism is None else self.mechanism.list_level_queries(len(self.geography.levels))
        return super().features | list_given_options(
            named_mechanism=self.mechanism,
            mechanism_options=self.mechanism_options,
            estimated_top_code=isinstance(self.top_code, TopCodeEstimate),
            top_code=self.top_code is not None,
            brackets=self.brackets,
            groups_share=self.groups_share,
            group_list=self.groups is not None,
            sorted_sizes="sizes" in queries,
        )

    @property
    def top_code(self) -> int | TopCodeEstimate | None:
        """Largest size that is distinguished, or the settings of its estimate; None if brackets are declared instead.

        Raises OdError if neither is declared, or the share of the estimate is not a number.
        """
        section = self.stated_top_code
        if section is None and self.stated_brackets is None:
            message = "neither a top code nor brackets of sizes are declared"
            raise OdError("OD-GROUPS-TOP-CODE", message, next_step="declare top_code, or brackets")
        if section is None or isinstance(section, int):
            return section
        return TopCodeEstimate(parse_exact_fraction("the share of the top code", section.share), section.most)

    @property
    def brackets(self) -> tuple[int, ...] | None:
        """Least sizes of brackets; None if there is a top code. Raises OdError if they are invalid."""
        return None if self.stated_brackets is None else parse_brackets(self.stated_brackets)

    @property
    def groups_share(self) -> Fraction | None:
        """Share of epsilon that measures the numbers of groups; None if they are public. Raises OdError if invalid."""
        return None if self.stated_groups_share is None else parse_groups_share(self.stated_groups_share)

    @cached_property
    def columns(self) -> RecordColumns:
        """Columns of the codes, as both origin and destination, and of dates. Raises OdError if they do not fit.

        If the groups are in no list, their column is read as that of users is: its values are any texts, and
        confidential.
        """
        declared = self.trips.columns
        date = declared.date or self.record_format.columns.date
        if self.groups_share is not None and self.groups is None:
            return self._columns_of_measured_groups(date)
        if self.groups is not None and self.groups.groups is not None:
            return self._columns_of_counts
        if declared.size is not None or declared.groups is not None:
            raise _make_columns_error(
                "records with the columns size and groups need a list of groups with its own column groups"
            )
        if self.groups is None:
            return self._columns_of_days(date)
        if declared.group is None or declared.area is not None:
            raise _make_columns_error(
                "with a list of groups, the records need the column group, and cannot have the column area"
            )
        return RecordColumns(declared.group, declared.group, date=date)

    def _columns_of_measured_groups(self, date: ColumnName | None) -> RecordColumns:
        """Return the columns of records whose groups are in no list. Raises OdError if a column is missing."""
        declared = self.trips.columns
        if declared.area is None or declared.group is None or declared.size or declared.groups:
            needed = "the records need the columns area and group, and cannot have size and groups"
            raise _make_columns_error(f"to measure the numbers of groups, {needed}")
        return RecordColumns(declared.area, declared.area, date=date, user=declared.group)

    def _columns_of_days(self, date: ColumnName | None) -> RecordColumns:
        """Return the columns of records whose groups are the days of areas. Raises OdError if a column is missing."""
        declared, form = self.trips.columns, self.record_format
        # In a format without fixed columns, there is no default for the column of areas.
        area = declared.area or (None if form.container == "named" else form.columns.origin)
        if area is None or date is None or declared.group is not None:
            needed = "the records need the columns area and date"
            raise _make_columns_error(f"without a list of groups, the groups are the days of areas, and {needed}")
        return RecordColumns(area, area, date=date)

    @property
    def _columns_of_counts(self) -> RecordColumns:
        """Columns of records that are numbers of groups by area and size. Raises OdError if a column is missing."""
        area, size, groups = self.trips.columns.area, self.trips.columns.size, self.trips.columns.groups
        if area is None or size is None or groups is None or self.trips.columns.group is not None:
            raise _make_columns_error(
                "with numbers of groups, the records need the columns area, size and groups, but not group"
            )
        return RecordColumns(area, area, date=self.trips.columns.date, trips=groups, size=size)

    @cached_property
    def grouping(self) -> Grouping:
        """Definition of the groups: of a public list, numbered in each area, the days of areas, or in no list."""
        if self.groups is None:
            return AreasByDay() if self.groups_share is None else SeenGroups()
        if self.groups.groups is not None:
            return NumberedGroups(self.project.root / self.groups.file, self.groups.area, self.groups.groups)
        return ListedGroups(self.project.root / self.groups.file, self.groups.group, self.groups.area)

    def describe_geography(self, geography: Geography, describe: Callable[[Geography], Geography]) -> Geography:
        """Return the geography with the descriptions that a function adds to its areas."""
        return describe(geography)

    def _read_geography_lists(self, lists: Sequence[ZoneList], folder: Path) -> Geography:
        return lists[0].read_geography(folder)

    def list_allowed_codes(self, geography: Geography) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes of areas or groups, which are allowed both as origins and as destinations."""
        codes, _ = self.grouping.list_codes(geography)
        return codes, codes

    def count(self, records: Path, geography: Geography, period: str, *_of_users: Any) -> GroupSizes:
        """Confidential: count the members of every group. Raises OdError as :meth:`Series.count` does."""
        return self.grouping.count_records(records, geography, period, self.fault_threshold)

    @property
    def has_unknown_zone(self) -> bool:
        """True if the geography has an ``unknown`` zone, and records have codes of areas rather than of groups."""
        return super().has_unknown_zone and isinstance(self.grouping, AreasByDay | SeenGroups)

    def plan_without_cap(self, geography: Geography, period: str) -> GroupSizePlan:
        """Return the plan, which periods with as many days share. Raises OdError if it is refused."""
        days = Period(period).days
        return plan_group_sizes(
            geography,
            self.grouping.count_groups_per_area(geography, days) if self.groups_share is None else None,
            unit=self.unit,
            budget=self.privacy.budget,
            mechanism=self.mechanism,
            top_code=self.top_code,
            brackets=self.brackets,
            acceptance=self.acceptance,
            groups_share=self.groups_share,
        )


def _make_columns_error(message: str) -> OdError:
    """Return the error for declared columns that do not fit each other."""
    return OdError("OD-CONFIG", message, next_step="correct the columns of the declaration")


class PlacesOfTrips(Section):
    """Columns of the files of records: the codes of a trip's places, or the coordinates of its points."""

    places: list[str] | None = None
    points: list[list[str]] | None = None
    origin: str | list[str] | None = None
    stops: list[str | list[str]] = Field([])
    destination: str | list[str] | None = None
    date: str | None = None

    @property
    def in_order(self) -> tuple[list[str] | None, list[list[str]] | None]:
        """Columns of the codes, and of the points, of a trip from origin to destination; None for what is not stated.

        Raises OdError if origin, stops and destination are not all codes or all points.
        """
        if self.origin is None and self.destination is None and not self.stops:
            return self.places, self.points
        stated = [self.origin, *self.stops, self.destination]
        codes = [place for place in stated if isinstance(place, str)]
        points = [place for place in stated if isinstance(place, list)]
        has_lists = self.places is not None or self.points is not None
        if has_lists or len(stated) not in (len(codes), len(points)):
            kinds = "are all columns of codes, or all pairs of longitude and latitude"
            raise _make_columns_error(f"origin, stops and destination {kinds}, without places and points")
        return codes or None, points or None


class StopTrips(Records):
    """Location and format of the confidential records, with one trip per row."""

    columns: PlacesOfTrips = Field(default_factory=PlacesOfTrips)


class PlaceMap(Section):
    """Location of the public list of places, and the map that contains them; without a list, the map of points."""

    file: str | None = None
    code: str = "zone"
    longitude: str = "longitude"
    latitude: str = "latitude"
    side: int = 256
    edges: list[float] | None = None


class StopsSeries(TableSeries[StopsPlan, PlaceList]):
    """A series of trips with their stops, as a project declares it."""

    trips: StopTrips
    map: PlaceMap
    stated_mechanism: str = Field("privtree", alias="mechanism")
    mechanism_options: dict[str, OptionValue] = Field({})

    kind = STOPS
    checked_list: ClassVar[str] = "places"
    checked_table: ClassVar[str] = "boxes"
    table = "boxes"
    _checked_properties: ClassVar[tuple[str, ...]] = ("mechanism", "edges")

    @cached_property
    def mechanism(self) -> StopsMechanism:
        """Mechanism of the releases. Raises OdError if it is unknown, or lacks a declared option."""
        return STOPS_MECHANISMS.make(self.stated_mechanism, **self.mechanism_options)

    @cached_property
    def columns(self) -> RecordColumns:
        """Columns of the files of records. Raises OdError if they do not fit the map, or a trip has no place.

        Of points, the longitude and the latitude are columns of their own, which alternate; ``axes`` divides their
        ranges into cells.
        """
        declared = self.trips.columns
        columns = self.record_format.rename_columns(date=declared.date)
        names, points = declared.in_order
        axes: tuple[tuple[float, float, int], ...] = ()  # least value, largest value, number of cells
        if points is not None:
            are_pairs = all(len(point) == 2 for point in points)
            if names is not None or self.map.file is not None or self.edges is None or not are_pairs:
                pairs = "pairs of columns, the longitude before the latitude, without places"
                on_map = "they are placed on a map with edges and no file, and not in zones"
                raise _make_columns_error(f"points are {pairs}; {on_map}")
            west, east, south, north = self.edges
            names = list(chain.from_iterable(points))
            axes = ((west, east, self.map.side), (south, north, self.map.side))
        elif self.map.file is None:
            raise _make_columns_error("without points, the map needs the file of the list of places")
        if names is None:
            return columns
        if not names:
            raise _make_columns_error("a trip needs at least one place")
        return replace(columns, origin=names[0], destination=names[-1], stops=tuple(names[1:-1]), axes=axes)

    @property
    def features(self) -> frozenset[str]:
        """Names of the declared options, to which the map always belongs."""
        return super().features | {"map"}

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of a trip's places, in order: the columns of their codes, or numbered stops for points."""
        codes, points = self.trips.columns.in_order
        if points is None:
            return tuple(codes or ("origin", "destination"))
        if len(points) <= 1:
            return ("place",)
        return ("origin", *(f"stop_{number}" for number in range(1, len(points) - 1)), "destination")

    @property
    def places(self) -> PlaceColumns:
        """Columns of the list of places."""
        return PlaceColumns(self.map.code, self.map.longitude, self.map.latitude)

    @property
    def edges(self) -> tuple[float, float, float, float] | None:
        """West, east, south and north of the map in degrees; None for the smallest map around the places.

        Raises OdError if they are not four.
        """
        if self.map.edges is None:
            return None
        if len(self.map.edges) != 4:
            raise OdError("OD-CONFIG", "a map needs four edges", next_step="name west, east, south and north")
        west, east, south, north = self.map.edges
        return west, east, south, north

    def count(self, records: Path, geography: PlaceList, _period: str, *_of_users: Any) -> Trajectories:
        """Confidential: place every trip on the map. Raises OdError as :meth:`Series.count` does."""
        return place_records(records, geography, self.fault_threshold)

    def list_allowed_codes(self, geography: PlaceList) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes of the places, which are allowed both as origins and as destinations."""
        return geography.codes, geography.codes

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """The list of places, by name of the file in which the geography asset stores it; also that of cells."""
        return {f"{self.name}.csv": ZoneList(self.map.file or f"{self.name}.csv", (self.map.code,))}

    @property
    def zone_list_paths(self) -> list[str]:
        """Path of the list of places; none if the declaration has the cells of points itself."""
        return [] if self.map.file is None else super().zone_list_paths

    def _read_geography_lists(self, lists: Sequence[ZoneList], folder: Path) -> PlaceList:
        if self.map.file is None and self.edges is not None:
            return PlaceList.from_map_cells(MapGrid(*self.edges, self.map.side, self.stages), self.places)
        path = folder / lists[0].file
        table = read_zones(path)
        try:
            return PlaceList.from_frame(table, self.places, side=self.map.side, stages=self.stages, edges=self.edges)
        except OdError as error:
            raise error.with_file(path.name) from None

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """Columns of the stored list of places: the code, longitude and latitude."""
        code = Column(self.places.code, "string", "Place", "Code of the place.")
        degrees = (Column(name, "number", name, "Degrees.") for name in (self.places.longitude, self.places.latitude))
        return (code, *degrees)

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the grid: two per place of a trip."""
        return 2 * len(self.stages)

    def plan_without_cap(self, geography: PlaceList, _period: str) -> StopsPlan:
        """Return the plan of all periods, also if it exceeds the cap. Raises OdError if the plan is refused."""
        return plan_stops(
            geography.map,
            unit=self.unit,
            budget=self.privacy.budget,
            mechanism=self.mechanism,
            acceptance=self.acceptance,
        )
