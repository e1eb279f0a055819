"""Define the base classes of the kinds of releases: flows, group sizes and trips with stops.

A kind states how its measured releases are certified, written, stored, read back and verified.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pandas as pd
import pyarrow as pa

from od_core.geography.geography import Geography
from od_core.ledger.identity import Counted
from od_core.ledger.measurements import Measurements, NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.staged_files import StagedTable
from od_core.noise.sources import NoiseSource
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Plan, PlannedRelease, Step
from od_core.publication import database
from od_core.publication.database import Contents
from od_core.publication.markup import Markup
from od_core.publication.tables import BundleFile

P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Counted)
R = TypeVar("R", bound=PlannedRelease)

Examination = Callable[[], Iterator[str]]
"""Function that examines a part of a published release and yields one line for each fault."""


@dataclass(frozen=True, eq=False)
class ReleaseContext(Generic[R]):
    """Facts in a report that the release itself does not contain.

    They are derived from the ledger's entries up to the last measurement of the release, which its certificate names.
    Later entries are ignored, so the report is the same whenever it is made.

    Attributes:
        period: the charged elementary period with the least rho remaining.
        cap: rho that the cap allows in that period.
        left: rho that remained in that period after the release was charged.
        others: number of other releases that were charged to that period by then.
        previous: key and release of the series' last published period before this one, in its newest revision; None
            if there is none.
    """

    period: str
    cap: Fraction
    left: Fraction
    others: int
    previous: tuple[ReleaseKey, R] | None


class Kind(ABC, Generic[R]):
    """Base class of a kind of release, with the functions that differ between kinds after the measurement.

    Attributes:
        contents: what a release contains, in the words of summaries, such as ``flows``.
        format: format that the certificate states.
        schema: SQL that creates the tables of the kind in the release database if they are missing.
        facts_table: the table with one row per release of this kind.
    """

    contents: ClassVar[str]
    format: ClassVar[str]
    schema: ClassVar[str]
    facts_table: ClassVar[str]

    # What the certificate and the summaries state.

    @abstractmethod
    def guarantee(self, plan: Any, spent: Spent) -> dict[str, str]:
        """Return the sentences of a plan's guarantee for the spent budget, by name, with numbers rounded up."""

    @abstractmethod
    def facts(self, release: R) -> dict[str, Any]:
        """Return the facts of a certificate that only this kind has, such as contents, levels and invariants."""

    @abstractmethod
    def summary(self, release: R) -> pd.DataFrame:
        """Return a short table of a release: its levels and their noise."""

    # What the bundle holds.

    @abstractmethod
    def files(self, release: R, certificate: dict[str, Any]) -> Sequence[BundleFile]:
        """Return the bundle files with the tables of a release."""

    def notes(self, _release: R, _certificate: dict[str, Any]) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        return ()

    @abstractmethod
    def report(self, release: R, certificate: dict[str, Any], context: ReleaseContext[R]) -> str:
        """Return the HTML text of the page that presents a release to its readers."""

    @abstractmethod
    def pictures(self, release: R, certificate: dict[str, Any]) -> Mapping[str, Markup]:
        """Return the pictures of the report that can be shown alone, as SVG by title."""

    # What verification examines.

    @abstractmethod
    def open(self, bundle: Path) -> R:
        """Return the release in a bundle's folder. Raises OdError if the files do not fit the certificate."""

    @abstractmethod
    def measured(self, release: R) -> Sequence[tuple[Step, NoisyVector]]:
        """Return each step of a release with its noisy values."""

    def recomputed(self, release: R, _certificate: dict[str, Any]) -> tuple[R, Mapping[str, Examination]]:
        """Return a release recomputed from its measurements, and the examinations that only this kind has, by name.

        By default, the release is returned unchanged: :meth:`open` has recomputed it and refuses one that differs.
        """
        return release, {"invariants": lambda: self.invariants(release)}

    @abstractmethod
    def invariants(self, release: R) -> Iterator[str]:
        """Yield one line for each guaranteed property that the published numbers do not have."""

    # What the release database holds.

    @abstractmethod
    def row(self, release: R) -> dict[str, Any]:
        """Return the values of the columns that only the facts table of this kind has, by column."""

    @abstractmethod
    def geographies(self, release: R) -> Sequence[Geography]:
        """Return the geographies whose areas the tables name."""

    @abstractmethod
    def tables(self, release: R, certificate: dict[str, Any]) -> Mapping[str, pa.Table | pa.RecordBatchReader]:
        """Return the rows of published figures, by table of the database, without the column ``release``."""

    def derived(self, _release: R) -> Mapping[str, pa.Table]:
        """Return the rows of further tables, by table; they are computed from public facts."""
        return {}

    def store(self, path: Path, release: R, key: ReleaseKey, certificate: dict[str, Any]) -> None:
        """Add a checked release to the release database. Adding the same release again changes nothing.

        Raises:
            OdError: as in :func:`od_core.publication.database.store`.
        """
        database.store(path, key, self._contents(release, key, certificate))

    def differing(self, path: Path, release: R, key: ReleaseKey, certificate: dict[str, Any]) -> Iterator[str]:
        """Yield one line for each difference between the release database and the bundle of a release."""
        return database.differing(path, key, self._contents(release, key, certificate))

    def _contents(self, release: R, key: ReleaseKey, certificate: dict[str, Any]) -> Contents:
        return Contents(
            schema=self.schema,
            facts_table=self.facts_table,
            facts=database.release_facts(release, key, certificate) | self.row(release),
            geographies=self.geographies(release),
            tables=self.tables(release, certificate),
            derived=self.derived(release),
            checks=certificate["checks"],
        )


class TableKind(Kind[R], Generic[P, C, R]):
    """A kind whose releases are measured by one call and estimated as one table.

    Attributes:
        staging: class of the files that store a release between its steps.
    """

    staging: type[StagedTable[P, C, R]]

    @abstractmethod
    def measure(
        self, plan: P, counted: C, noise: NoiseSource, measurements: Measurements
    ) -> Sequence[tuple[Step, NoisyVector]]:
        """Return each step with its noisy values. A step is measured at most once, and read back after that.

        The counted input is confidential; the result is public.
        """

    @abstractmethod
    def estimate(self, plan: P, measured: Sequence[tuple[Any, NoisyVector]], *, spent: Spent, noise: str | None) -> R:
        """Return the release, estimated from the noisy values of all steps; it depends on public values alone."""
