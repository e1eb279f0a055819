"""Declare a series of flows, and its breakdowns."""

from dataclasses import replace
from typing import Any

from pydantic import Field

from od_assets.declared.section import Number, Section
from od_assets.declared.series import DeclaredSeries, Records, Zones
from od_assets.project import Project, current_project
from od_assets.series.engine import SparkEngine
from od_assets.series.settings import ReleaseSettings
from od_core import Budget, PrivacyUnit
from od_core.errors import OdError, nearest_known
from od_core.flows.bands import PART_TRIPS, Bands
from od_core.flows.mechanisms import MECHANISMS, Mechanism
from od_core.flows.queries import Segments
from od_core.privacy.plan import Uncounted
from od_core.records.segments import Derivation, SegmentSource, breakdowns, check_sources


class SegmentSection(Section):
    """A breakdown: public categories, such as modes of transport, by which every trip is also counted."""

    column: str | None = Field(None, description="Column of the category; that of the breakdown's name if left out.")
    derive: str = Field(
        "text",
        description="What is taken from the column: text, hour (of a time), day_type or day_of_week (of a date or"
        " time), or number (see breaks).",
    )
    lookup: dict[str, str] = Field({}, description="Category of each text; other texts are missing categories.")
    breaks: list[int | float] = Field(
        [], description="Ascending limits between bands of a number; each belongs to the band above it."
    )
    bands: list[str] = Field([], description="Names of the bands of a number, one more than there are breaks.")
    categories: list[str] | None = Field(
        None,
        description="The categories, in the order in which they are published; may be left out for hours, days, bands"
        " and lookups.",
    )
    unknown: str | None = Field(
        None, description="Category of records whose category is missing or not listed; without it, they are faulty."
    )

    def source(self, name: str) -> SegmentSource:
        """Return where the categories are read from. Raises OdError if the options do not fit."""
        derive: Derivation = self.derive  # type: ignore[assignment]  # checked by the source
        return SegmentSource(
            name,
            name if self.column is None else self.column,
            derive,
            tuple(self.lookup.items()),
            tuple(self.breaks),
            tuple(self.bands),
        )

    def listed(self, name: str) -> tuple[str, ...]:
        """Return the declared categories, or those that the source gives and the one of unlisted records."""
        if self.categories is not None:
            return tuple(self.categories)
        given = self.source(name).given or ()
        return given if self.unknown is None or self.unknown in given else (*given, self.unknown)


class Columns(Section):
    """Columns of the files of records. The reader defines the defaults (origin and destination for reader table)."""

    origin: str | None = None
    destination: str | None = None
    date: str | None = Field(
        None, description="Column of the date or local time of a trip; leave out if each file is one period."
    )
    trips: str | None = Field(
        None, description="Column of the number of trips, for flows; leave out for one row per trip."
    )
    weight: str | None = Field(None, description="Column of the weight of a record, if max_weight is declared.")


class Trips(Records):
    """Location and format of the confidential records."""

    columns: Columns = Columns()  # type: ignore[call-arg]  # every column has a default


class Privacy(Section):
    """Budget of one release: (epsilon, delta), or rho with the delta at which epsilon is stated."""

    epsilon: Number | None = None
    rho: Number | None = None
    delta: Number
    conversion: str | None = Field(
        None, description="exact, tight or bun_steinke; the default of the mechanism if left out."
    )
    shares: str | list[Number] | dict[str, list[str] | dict[str, Number]] | None = Field(
        None,
        description="uniform, geography, [geometric, ratio], one share per level, or {minimise: [state x state]}.",
    )


class BandsSection(Section):
    """Cuts of the flow tree. Levels below the first cut are processed part by part, which takes little memory."""

    cuts: list[int] = Field(..., description="Levels after which the tree is cut, from the top, such as [4].")
    part_trips: int = Field(PART_TRIPS, description="Approximate number of released trips in one part.")


class Spark(Section):
    """A Spark cluster that counts the records where they are stored and processes the parts."""

    address: str | None = Field(
        None, description="Address of Spark Connect, such as sc://host:15002, or of a master, such as local[4]."
    )
    submit: list[str] = Field(
        default_factory=list,
        description="Instead of an address: spark-submit and its options, which run each step as a process.",
    )
    settings: dict[str, str] = Field(default_factory=dict, description="Settings of the Spark session.")
    store: str | None = Field(
        None,
        description="Confidential store: a folder that every executor reaches, or an address such as s3://bucket/folder.",
    )


class UncountedSection(Section):
    """The measurement of the number of trips that the bounds of unit user_year leave out."""

    share: Number = Field(..., description="Share of the budget of the release, such as 0.01.")
    max_trips: int = Field(..., description="Largest number of trips of a user that are considered in a release.")


class DeclaredFlows(DeclaredSeries):
    """The declaration of a series of origin-destination tables."""

    trips: Trips
    geography: Zones
    destination_geography: Zones | None = Field(None, description="Geography of the destinations, if it differs.")
    max_trips: int | None = Field(
        None, description="Largest number of trips that are counted per user, for the user units."
    )
    max_weight: int | None = Field(
        None, description="Largest number of trips that a record with a weight counts, for unit trip."
    )
    privacy: Privacy
    mechanism: str = "inftda_refined"
    mechanism_options: dict[str, str | int | float] = Field({})
    tree: str = "destination"
    intervals: bool = Field(True, description="Whether every published cell has a 90 % interval.")
    assisted: bool = Field(
        False, description="Whether model-assisted flows, which learn from earlier periods, are published, too."
    )
    bands: BandsSection | None = Field(
        None, description="Levels at which the flow tree is cut; it is not cut if left out."
    )
    segments: dict[str, SegmentSection] = Field({}, description="Breakdowns by name; at most 3.")
    segment_share: Number | None = Field(
        None, description="Share of the budget of all breakdowns together; by default, totals and each have the same."
    )
    uncounted: UncountedSection | None = Field(
        None, description="For unit user_year, how the number of trips that are not counted is measured and published."
    )
    engine: str = Field(
        "threads", description="Engine that counts the records and works on parts: threads (of this machine) or spark."
    )
    spark: Spark | None = Field(None, description="Spark cluster, for engine spark.")

    def settings(self, project: Project | None = None) -> ReleaseSettings:
        """Return the declaration as settings; see :meth:`DeclaredSeries.settings`."""
        project = project or current_project()
        form = self.trips.record_format()
        columns = form.columns_with(**self.trips.columns.model_dump())
        if self.trips.one_row_a_trip and not columns.counts_rows:
            raise OdError(
                "OD-TRIPS-ROWS",
                f"one_row_a_trip: true is declared, but {columns.row}",
                next_step="remove the wrong declaration",
            )
        domain = self.checked_domain(
            project,
            self.trips.files,
            has_dates=columns.date is not None,
            max_trips=self.max_trips,
            max_weight=self.max_weight,
        )
        if (columns.weight is None) != (self.max_weight is None):
            raise OdError(
                "OD-TRIPS-WEIGHTS",
                "records with weights need both columns: weight and max_weight, the largest number of trips that a"
                " record counts",
                next_step="add the missing one, or remove the other",
            )
        privacy, others = self.privacy, self.destination_geography
        sources = tuple(section.source(name) for name, section in self.segments.items())
        segments = Segments.of(breakdowns(self._listed, self._unknown), self.segment_share)
        check_sources(sources, () if segments is None else segments.breakdowns)
        mechanism, bands = self._mechanism(), self._bands
        if segments is not None:
            segments.check(mechanism)
        return ReleaseSettings(
            columns=replace(columns, user=domain.unit.column, segments=sources),
            record_format=form,
            zones=self.geography.zone_list(),
            destination_zones=None if others is None else others.zone_list(),
            budget=Budget(
                privacy.epsilon,
                privacy.delta,
                rho=privacy.rho,
                conversion=privacy.conversion,
                shares=privacy.shares,
            ),
            mechanism=mechanism,
            intervals=self.intervals,
            assisted=self.assisted,
            bands=bands,
            engine=self._engine(),
            segments=segments,
            uncounted=self._uncounted(domain.unit),
            tree=self.tree,  # type: ignore[arg-type]  # checked by the plan
            **self.shared_settings(project, domain, self.trips),
        )

    @property
    def _listed(self) -> dict[str, tuple[str, ...]]:
        """Categories of each breakdown."""
        return {name: section.listed(name) for name, section in self.segments.items()}

    @property
    def _unknown(self) -> dict[str, str]:
        """Category of unlisted records, of each breakdown that has one."""
        return {name: section.unknown for name, section in self.segments.items() if section.unknown is not None}

    @property
    def _bands(self) -> Bands | None:
        return None if self.bands is None else Bands(tuple(self.bands.cuts), self.bands.part_trips)

    def _uncounted(self, unit: PrivacyUnit) -> Uncounted | None:
        if self.uncounted is None:
            return None
        uncounted = Uncounted(self.uncounted.share, self.uncounted.max_trips)
        uncounted.check(unit)
        return uncounted

    def _engine(self) -> SparkEngine | None:
        if self.engine not in ("threads", "spark"):
            raise OdError(
                "OD-ENGINE",
                f"there is no engine {self.engine!r} ({nearest_known(self.engine, ('threads', 'spark'))})",
                next_step="choose threads or spark",
            )
        if (self.engine == "spark") != (self.spark is not None):
            raise OdError(
                "OD-ENGINE",
                "engine: spark needs the section spark:, and that section needs engine: spark",
                next_step="give both, or neither",
            )
        if self.spark is None:
            return None
        if self.bands is None:
            raise OdError(
                "OD-ENGINE", "Spark works on parts, but no bands are declared", next_step="declare bands: {cuts: [4]}"
            )
        if self.arrivals is not None:
            raise OdError(
                "OD-ENGINE",
                "arrivals are detected only on this machine, but Spark reads the records elsewhere",
                next_step="declare a schedule instead",
            )
        if (self.spark.address is None) == (not self.spark.submit):
            raise OdError(
                "OD-ENGINE",
                "Spark needs either an address or spark-submit",
                next_step="declare one of address and submit",
            )
        settings, submit = tuple(self.spark.settings.items()), tuple(self.spark.submit)
        return SparkEngine(self.spark.address or "", settings, self.spark.store, submit)

    def _mechanism(self) -> Mechanism:
        if MECHANISMS.make(self.mechanism).measures != "every_level":
            raise OdError(
                "OD-MECHANISM-UNPUBLISHED",
                f"mechanism {self.mechanism!r} measures only the leaves, so its table is not consistent with"
                " any level above; it serves for comparison and cannot be published by a declared release",
                next_step="choose a mechanism that measures every level, or call release_flows with a ledger",
            )
        options: dict[str, Any] = self.mechanism_options
        try:
            return MECHANISMS[self.mechanism](**options)
        except TypeError:
            known = nearest_known(", ".join(options), tuple(MECHANISMS.make(self.mechanism).options))
            raise OdError(
                "OD-MECHANISM-OPTIONS",
                f"mechanism {self.mechanism!r} does not have the declared options ({known})",
                next_step="correct the mechanism's options",
            ) from None
