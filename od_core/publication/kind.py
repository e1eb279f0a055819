"""Define the base classes of the kinds of releases: flows, group sizes and trips with stops.

A kind states how its measured releases are certified, written, stored, read back and verified.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

import pandas as pd
from markupsafe import Markup

from od_core.errors import OdError
from od_core.geography.geography import Geography
from od_core.ledger.balance import Balance
from od_core.ledger.measurements import Measured, Measurements, NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.staged_files import Counted, StagedTable
from od_core.meaning.subject import Subject
from od_core.noise.backends import NoiseSource
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Plan, PlannedRelease, Step
from od_core.publication import database
from od_core.publication.certificate import Certificate
from od_core.publication.database import Rows
from od_core.publication.tables import BundleFile

P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Counted)
R = TypeVar("R", bound=PlannedRelease)
T = TypeVar("T")

Examination = Callable[[], Iterator[str]]
"""Function that checks a part of a published release and yields one line for each fault."""


@dataclass(frozen=True, eq=False)
class ReleaseContext(Generic[R]):
    """Data in a report that the release itself does not contain.

    They are derived from the ledger's entries up to the last measurement of the release, which its certificate names.
    Later entries are ignored, so the report is the same whenever it is made.

    Attributes:
        balance: balance of the charged elementary period with the least remaining part of its cap, after the release
            was charged.
        previous: key and release of the series' last published period before this one, in its newest revision; None
            if there is none.
        previous_certificate: certificate of that release; empty if there is none.
    """

    balance: Balance
    previous: tuple[ReleaseKey, R] | None
    previous_certificate: Certificate = field(default_factory=lambda: cast("Certificate", {}))


class BundleKind(ABC, Generic[T]):
    """Base class of what is published as a bundle: a kind of release, or derived flows.

    Attributes:
        contents: content of the bundle in the words of summaries, such as ``flows``.
        format: format that the certificate states.
        is_derived: whether the bundle follows from those of releases, so that nothing was measured for it.
        what: what derived flows are, in words that end before the number of releases; empty for a kind of release.
    """

    contents: ClassVar[str]
    format: ClassVar[str]
    is_derived: ClassVar[bool] = False
    what: ClassVar[str] = ""

    @abstractmethod
    def list_files(self, release: T, certificate: Certificate) -> Sequence[BundleFile]:
        """Return the bundle files with the tables of a release, in all formats, without their folders."""

    def list_notes(self, _release: T, _certificate: Certificate) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read; by default, none."""
        return ()

    @abstractmethod
    def open(self, bundle: Path, /) -> T:
        """Return the release in a bundle's folder. Raises OdError if the files do not fit the certificate."""

    def refuse_comparison(self, key: ReleaseKey) -> None:
        """Raise OdError if two releases of this kind cannot be compared; ``key``, one of them, is in the message.

        By default, they cannot. Kinds that can be compared override this and do nothing.
        """
        message = f"{key} is neither a release of flows nor of counts; only those can be compared"
        raise OdError("OD-COMPARE-KIND", message, next_step="name two releases of flows, or of counts by one hierarchy")


class Kind(BundleKind[R]):
    """Base class of a kind of release, with the functions after the measurement that differ between kinds.

    Attributes:
        schema: template of the SQL that creates the tables of the kind in the release database if they are missing.
        facts_table: the table with one row per release of this kind.
    """

    schema: ClassVar[str]
    facts_table: ClassVar[str]

    @abstractmethod
    def describe_guarantee(self, plan: Any, spent: Spent, subject: Subject) -> dict[str, str]:
        """Return the sentences on the guarantee of a plan, by the names that a certificate gives them.

        ``spent`` is what the release spent, with lost draws, and ``subject`` what it is about. Numbers are rounded up.
        """

    @abstractmethod
    def facts(self, release: R, subject: Subject) -> dict[str, object]:
        """Return the fields of a certificate that only this kind has, such as contents, levels and invariants."""

    @abstractmethod
    def make_summary(self, release: R) -> pd.DataFrame:
        """Return a short table of a release: its levels and their noise."""

    @abstractmethod
    def render_report(self, release: R, certificate: Certificate, context: ReleaseContext[R]) -> str:
        """Return the HTML text of the page that presents a release to its readers.

        ``context`` has what the page shows beside the release: the remaining budget and the release before it.
        """

    @abstractmethod
    def render_pictures(self, release: R, certificate: Certificate) -> Mapping[str, Markup]:
        """Return the pictures of a release that Dagster shows, as SVG by title."""

    @abstractmethod
    def list_metadata(self, release: R) -> dict[str, object]:
        """Return what Dagster shows of the contents of a release, by name: numbers, texts and tables."""

    def list_published_metadata(
        self, _release: R, _certificate: Certificate, _context: ReleaseContext[R]
    ) -> dict[str, object]:
        """Return what Dagster shows, by name, only once a release is published; by default, nothing.

        The facts are shown beside those of :meth:`list_metadata`, and replace those of the same name.
        """
        return {}

    @abstractmethod
    def list_measurements(self, release: R) -> Sequence[tuple[Step, NoisyVector]]:
        """Return each step of a release with its noisy values, in the order of the plan."""

    def recompute_release(self, release: R, _certificate: Certificate) -> tuple[R, Mapping[str, Examination]]:
        """Return the release that the files of a bundle must show, and the examinations of the published one, by name.

        ``release`` is the result of :meth:`open`. By default, it is returned unchanged, because :meth:`open` computes
        it from the measurements, and the examination is that of the invariants. Override this if :meth:`open` reads
        published numbers: return a release computed again from its measurements, and an examination that compares
        both.
        """
        return release, {"invariants": lambda: self.check_invariants(release)}

    @abstractmethod
    def check_invariants(self, release: R) -> Iterator[str]:
        """Yield one line for each guaranteed property that the published numbers do not have."""

    store = database.store_release
    find_differences = database.find_differences

    @abstractmethod
    def make_row(self, release: R) -> dict[str, object]:
        """Return the values that only this kind has in its table with one row per release, by column."""

    def list_geographies(self, _release: R) -> Sequence[Geography]:
        """Return the geographies whose areas the database stores for a release; by default, none.

        Override this if the tables of a release name areas.
        """
        return ()

    @abstractmethod
    def make_tables(self, release: R, certificate: Certificate) -> Mapping[str, Rows]:
        """Return the rows of published numbers, by table of the database, without the column ``release``.

        If the database has the release already, its rows must be equal to these.
        """

    def derive_tables(self, release: R, certificate: Certificate) -> Mapping[str, Rows]:
        """Return the rows of further tables that are computed from public data, by table; by default, none.

        The rows are without the column ``release``. If the database has the release already, they are not compared.
        """
        return {}


class TableKind(Kind[R], Generic[P, C, R]):
    """A kind whose releases are measured in one call, staged in files, and estimated as one table."""

    staging: type[StagedTable[P, C, R]]

    @abstractmethod
    def measure(self, plan: P, counted: C, noise: NoiseSource, measurements: Measurements) -> Measured:
        """Measure each step once, or read it back, and return each step with its noisy values, which are public."""

    @abstractmethod
    def estimate(self, plan: P, measured: Sequence[tuple[Any, NoisyVector]], *, spent: Spent, noise: str | None) -> R:
        """Return the release, estimated from the noisy values of all steps; it depends on public values alone."""
