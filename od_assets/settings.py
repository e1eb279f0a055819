"""One declared release series, in the terms of od_core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pandas as pd

from od_assets.project import project_root
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.archive.files import file_digest
from od_core.archive.planned import Planned
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.flow_tree import TreeOrder
from od_core.geography import COORDINATES
from od_core.mechanisms import Mechanism
from od_core.plan import measured_levels
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.noise import noise_named, refuse_too_wide
from od_core.publication.flows import FLOWS
from od_core.publication.kind import Kind
from od_core.readers.record_columns import RecordColumns
from od_core.readers.record_format import RecordFormat
from od_core.readers.zones import read_zones


class PublicList(Protocol):
    """A public list of areas or places, checked."""

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        ...

    @property
    def area_counts(self) -> dict[str, int]:
        """How many areas or places there are, by level."""
        ...

    def to_frame(self) -> pd.DataFrame:
        """The list as it is kept, to be read again."""
        ...


P = TypeVar("P", bound=Planned)
G = TypeVar("G", bound=PublicList)


@dataclass(frozen=True)
class SeriesSettings(ABC, Generic[P, G]):
    """What the YAML of a release series says, of whatever kind, checked and in the terms of od_core.

    Attributes:
        name: of the release series; prefix of its assets, checks, job and schedule.
        records: path of a period's file, with ``{period}`` in it, relative to the project.
        columns: columns of that file; the user id among them for the user units alone.
        record_format: how the records stand in it.
        zones: path of the public list of zones or places, relative to the project.
        budget, noise, revision, domain, fault_threshold: see od_core.
    """

    name: str
    records: str
    columns: RecordColumns
    record_format: RecordFormat
    zones: str
    budget: Budget
    noise: str
    revision: int
    domain: PrivacyDomain
    fault_threshold: Fraction

    kind: ClassVar[Kind[Any]]
    """What is done with its releases once they are measured."""

    @property
    def unit(self) -> PrivacyUnit:
        """The unit of privacy: that of the data set."""
        return self.domain.unit

    def key(self, period: str) -> ReleaseKey:
        """The release of one period."""
        return ReleaseKey(self.name, period, self.revision)

    @property
    def takes_nowhere(self) -> bool:
        """Whether the geography has an area for records of no place."""
        return False

    def records_path(self, period: str) -> Path:
        """The file with the records of one period."""
        return project_root() / self.records.format(period=period)

    def read_geography(self) -> G:
        """The public geography from its list. Raises OdError naming the fault."""
        return self.geography_from(project_root() / self.zones)

    @abstractmethod
    def geography_from(self, path: Path) -> G:
        """The geography from a list at any place. Raises OdError naming the fault."""

    def listed(self, geography: G) -> pd.DataFrame:
        """The list that a geography is read from again."""
        return geography.to_frame()

    def plan(self, geography: G, period: str) -> P:
        """The plan of a period over that geography, from public facts alone.

        Raises:
            OdError: as plans say; a release above the cap of its data set; noise too wide for the backend.
        """
        plan = self._plan(geography, period)
        allowed, asked = self.domain.cap.allowed_rho(), plan.charge.as_rho
        if asked > allowed:
            raise OdError(
                "OD-LEDGER-CAP",
                f"one release of {self.name} asks for rho {float(asked):.6g}, above the cap {float(allowed):.6g} of"
                f" data set {self.domain.name!r}",
                next_step="ask for less, or raise the cap with a stated reason",
            )
        refuse_too_wide(noise_named(self.noise), (step.widest for step in plan.steps))
        return plan

    @abstractmethod
    def _plan(self, geography: G, period: str) -> P: ...


@dataclass(frozen=True)
class TreeSettings(SeriesSettings[P, Geography]):
    """What the YAML of a series over an area tree says.

    Attributes:
        levels: level columns of the zone list, coarse to fine.
        unknown_zone: listed zone that takes records from unlisted places, or None.
        coordinates: columns of latitude and longitude of the zone list, for the report's map; or None.
    """

    levels: tuple[str, ...]
    unknown_zone: str | None
    coordinates: tuple[str, str] | None

    @property
    def takes_nowhere(self) -> bool:
        """As :meth:`SeriesSettings.takes_nowhere`."""
        return self.unknown_zone is not None

    def geography_from(self, path: Path) -> Geography:
        """As :meth:`SeriesSettings.geography_from`."""
        digest = file_digest(path) if path.is_file() else None
        return _geography(path, digest, self.levels, self.unknown_zone, self.coordinates)

    def listed(self, geography: Geography) -> pd.DataFrame:
        """As :meth:`SeriesSettings.listed`."""
        return geography.to_frame().rename(columns=dict(zip(COORDINATES, self.coordinates or COORDINATES, strict=True)))


@dataclass(frozen=True)
class ReleaseSettings(TreeSettings[ReleasePlan]):
    """What the YAML of a release of flows says.

    Attributes:
        mechanism, tree: see od_core.
        intervals: whether every published cell has its interval.
    """

    mechanism: Mechanism
    tree: TreeOrder
    intervals: bool

    kind = FLOWS

    @property
    def measured_levels(self) -> list[int]:
        """Levels of the flow tree that are measured, top first."""
        return measured_levels(self.unit, self.mechanism, self.depth)

    @property
    def depth(self) -> int:
        """Number of levels of the flow tree below its root."""
        return 2 * len(self.levels)

    def _plan(self, geography: Geography, period: str) -> ReleasePlan:  # all have one plan
        return plan_release(geography, unit=self.unit, budget=self.budget, mechanism=self.mechanism, tree=self.tree)


@lru_cache(maxsize=8)
def _geography(
    path: Path,
    digest: str | None,  # noqa: ARG001  # tells one content of the file from another
    levels: tuple[str, ...],
    unknown: str | None,
    coordinates: tuple[str, str] | None,
) -> Geography:
    """The geography in a file with this digest: every step of a run asks for it, and a large one takes its time."""
    zones = read_zones(path)
    try:
        return Geography.from_frame(zones, levels, unknown=unknown, coordinates=coordinates)
    except OdError as error:
        raise error.in_file(path.name) from None
