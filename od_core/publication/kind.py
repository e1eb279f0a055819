"""Define a kind of release: how it is certified, written, stored, read back and compared with what was published."""

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
"""Examination of a part of a published release; yields one line for each fault."""


@dataclass(frozen=True, eq=False)
class ReleaseContext(Generic[R]):
    """The facts that a report states beside the release itself.

    All of them follow from the ledger's entries up to the one that the release's certificate names, its last
    measurement. So the report is the same whenever it is made.

    Attributes:
        period: the charged elementary period with the least rho remaining.
        cap: rho that the cap allows in that period.
        left: rho that remains of it after the release was charged.
        others: number of other releases charged to it by then.
        previous: newest release of the series' last published period before this one, or None.
    """

    period: str
    cap: Fraction
    left: Fraction
    others: int
    previous: tuple[ReleaseKey, R] | None


class Kind(ABC, Generic[R]):
    """The functions in which releases of flows, group sizes and trips with stops differ once they are measured.

    Attributes:
        contents: what a release holds, as named in summaries.
        format: format that the certificate states.
        schema: SQL that creates its tables in the release database if they are missing.
        facts_table: the table with one row per release of this kind.
    """

    contents: ClassVar[str]
    format: ClassVar[str]
    schema: ClassVar[str]
    facts_table: ClassVar[str]

    # What the certificate and the summaries state.

    @abstractmethod
    def guarantee(self, plan: Any, spent: Spent) -> dict[str, str]:
        """Return the guarantee of a plan with a given privacy loss, in sentences whose numbers are rounded up."""

    @abstractmethod
    def facts(self, release: R) -> dict[str, Any]:
        """Return the facts of a certificate that only this kind has, such as contents, levels and invariants."""

    @abstractmethod
    def summary(self, release: R) -> pd.DataFrame:
        """Return a short table of a release: its levels and their noise."""

    # What the bundle holds.

    @abstractmethod
    def files(self, release: R, certificate: dict[str, Any]) -> Sequence[BundleFile]:
        """Return the files that a bundle has of its tables."""

    def notes(self, _release: R, _certificate: dict[str, Any]) -> Sequence[str]:
        """Return paragraphs that a user of these files must know, apart from the meaning of their columns."""
        return ()

    @abstractmethod
    def report(self, release: R, certificate: dict[str, Any], context: ReleaseContext[R]) -> str:
        """Return the page that presents a release to its readers, as HTML."""

    @abstractmethod
    def pictures(self, release: R, certificate: dict[str, Any]) -> Mapping[str, Markup]:
        """Return the pictures of the report that can be used alone, as SVG, by title."""

    # What verification examines.

    @abstractmethod
    def open(self, bundle: Path) -> R:
        """Read a bundle's folder. Raises OdError if its files do not fit its certificate."""

    @abstractmethod
    def measured(self, release: R) -> Sequence[tuple[Step, NoisyVector]]:
        """Return the steps of a release and their noisy values."""

    def recomputed(self, release: R, _certificate: dict[str, Any]) -> tuple[R, Mapping[str, Examination]]:
        """Return a release as its measurements give it, with the examinations that only this kind has.

        By default, :meth:`open` has recomputed the release already, and refuses one that differs.
        """
        return release, {"invariants": lambda: self.invariants(release)}

    @abstractmethod
    def invariants(self, release: R) -> Iterator[str]:
        """Yield a fault for each promise about the published numbers that does not hold."""

    # What the release database holds.

    @abstractmethod
    def row(self, release: R) -> dict[str, Any]:
        """Return the columns that only this kind has in its table of releases."""

    @abstractmethod
    def geographies(self, release: R) -> Sequence[Geography]:
        """Return the geographies whose areas the tables name."""

    @abstractmethod
    def tables(self, release: R, certificate: dict[str, Any]) -> Mapping[str, pa.Table | pa.RecordBatchReader]:
        """Return the published figures by table of the database, without the column ``release``."""

    def derived(self, _release: R) -> Mapping[str, pa.Table]:
        """Return further tables, which follow from public facts."""
        return {}

    def store(self, path: Path, release: R, key: ReleaseKey, certificate: dict[str, Any]) -> None:
        """Add a checked release to the release database. Adding the same release again changes nothing.

        Raises:
            OdError: as :func:`od_core.publication.database.store`.
        """
        database.store(path, key, self._contents(release, key, certificate))

    def differing(self, path: Path, release: R, key: ReleaseKey, certificate: dict[str, Any]) -> Iterator[str]:
        """Yield how the release database differs from the bundle of a release."""
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
    """A kind whose releases are measured in one go, and estimated as one table.

    Attributes:
        staging: class of the files that a release keeps between its steps.
    """

    staging: type[StagedTable[P, C, R]]

    @abstractmethod
    def measure(
        self, plan: P, counted: C, noise: NoiseSource, measurements: Measurements
    ) -> Sequence[tuple[Step, NoisyVector]]:
        """Measure every step, each at most once. The counted input is confidential, the result is public."""

    @abstractmethod
    def estimate(self, plan: P, measured: Sequence[tuple[Any, NoisyVector]], *, spent: Spent, noise: str | None) -> R:
        """Return the release of a plan whose steps are all measured, a function of public values alone."""
