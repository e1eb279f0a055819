"""Declare a series of group-size tables: its records, groups, budget and mechanism. Imports no Dagster."""

from pydantic import Field

from od_assets.declared.section import Number, Section
from od_assets.declared.series import DeclaredSeries, PureEpsilon, Records, Zones
from od_assets.project import Project, current_project
from od_assets.series.group_size_settings import GroupSizeSettings
from od_core import Budget
from od_core.errors import OdError
from od_core.group_sizes.groups import AreasByDay, Grouping, ListedGroups
from od_core.group_sizes.mechanisms import MECHANISMS
from od_core.group_sizes.plan import TopCodeEstimate
from od_core.privacy.budget import exact_fraction
from od_core.records.formats import ColumnName, RecordColumns, RecordFormat


class MemberColumns(Section):
    """Columns of the files of records; one of them names the group or area of a record."""

    area: str | None = Field(
        None, description="Column of leaf areas whose days are the groups; the reader's origin if left out."
    )
    group: str | None = Field(None, description="Column of the codes of groups of the public list.")
    date: str | None = Field(
        None, description="Column of the date or local time of a record; leave out if each file is one period."
    )


class Members(Records):
    """Location and format of the confidential records, each of which is a member of a group."""

    columns: MemberColumns = MemberColumns()  # type: ignore[call-arg]  # every column has a default


class GroupList(Section):
    """Location and columns of the public list of groups."""

    file: str = Field(
        ..., description="CSV or Parquet file with one row per group, including groups without members; codes are text."
    )
    group: str = Field("group", description="Column of group codes.")
    area: str = Field("area", description="Column of leaf areas.")


class EstimatedTopCode(Section):
    """A top code that is estimated from the records, for a part of the budget; it requires a named mechanism."""

    share: Number = Field("1/20", description="Share of epsilon for the estimate.")
    most: int = Field(..., description="Public bound; larger groups count as groups of this many members.")


class DeclaredGroupSizes(DeclaredSeries):
    """The declaration of a series of group-size tables."""

    trips: Members
    geography: Zones
    groups: GroupList | None = Field(
        None, description="Public list of groups; leave out if the groups are the days of areas."
    )
    privacy: PureEpsilon
    mechanism: str | None = Field(None, description="Mechanism; if left out, a rule on public numbers chooses it.")
    mechanism_options: dict[str, bool | str | int | float] = Field({})
    top_code: int | EstimatedTopCode = Field(
        ...,
        description=(
            "Largest size that is distinguished: a public number that does not come from the records, or how to"
            " estimate it."
        ),
    )

    def settings(self, project: Project | None = None) -> GroupSizeSettings:
        """Return the declaration as settings; see :meth:`DeclaredSeries.settings`."""
        project = project or current_project()
        form = self.trips.one_trip_a_row()
        columns, grouping = self._columns(form), self._grouping(project)
        domain = self.checked_domain(project, self.trips.files, has_dates=columns.date is not None, trips_alone=True)
        if self.mechanism is None and self.mechanism_options:  # otherwise they would be ignored
            raise OdError(
                "OD-MECHANISM-OPTIONS",
                "mechanism_options are declared without a mechanism",
                next_step="name the mechanism",
            )
        return GroupSizeSettings(
            columns=columns,
            record_format=form,
            zones=self.geography.zone_list(),
            budget=Budget(self.privacy.epsilon),
            grouping=grouping,
            mechanism=None if self.mechanism is None else MECHANISMS.make(self.mechanism, **self.mechanism_options),
            top_code=self._top_code(),
            **self.shared_settings(project, domain, self.trips),
        )

    def _top_code(self) -> int | TopCodeEstimate:
        given = self.top_code
        if isinstance(given, int):
            return given
        return TopCodeEstimate(exact_fraction("the share of the top code", given.share), given.most)

    def _columns(self, form: RecordFormat) -> RecordColumns:
        """Return the columns of codes (as origin and destination) and dates. Raises OdError if a column is missing."""
        given = self.trips.columns
        date = given.date or form.columns.date
        code: ColumnName | None = given.group
        if self.groups is None:
            # In a format without fixed columns, there is no default for the column of areas.
            code = given.area or (None if form.container == "named" else form.columns.origin)
            if code is None or date is None or given.group is not None:
                raise _fault(
                    "without a list of groups, the groups are the days of areas, and the records need the columns"
                    " area and date"
                )
        elif code is None or given.area is not None:
            raise _fault("with a list of groups, the records need the column group, and cannot have the column area")
        return RecordColumns(code, code, date=date)

    def _grouping(self, project: Project) -> Grouping:
        if self.groups is None:
            return AreasByDay()
        return ListedGroups(project.root / self.groups.file, self.groups.group, self.groups.area)


def _fault(message: str) -> OdError:
    return OdError("OD-CONFIG", message, next_step="correct the columns of the declaration")
