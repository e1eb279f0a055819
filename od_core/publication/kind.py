"""Define a kind of release: how it is certified, written, stored, read back and compared with what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, TypeVar

import pandas as pd

from od_core.ledger.measurements import NoisyVector
from od_core.ledger.protocols import Planned, PlannedStep
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Spent
from od_core.publication.columns import Table
from od_core.publication.markup import Markup

if TYPE_CHECKING:
    from od_core.publication.context import Circumstances


@dataclass(frozen=True)
class BundleFile:
    """A file of a bundle.

    Attributes:
        name: name of the file.
        description: description in one line.
        write: writes the whole content to an open file; every call writes the same bytes.
        table: the table that the file holds, or None if it holds none.
    """

    name: str
    description: str
    write: Callable[[BinaryIO], object]
    table: Table | None = None


Look = Callable[[], Iterator[str]]
"""Check of a part of a published release; yields one line for each fault."""


class Certified(Protocol):
    """The properties of a release of any kind that certificates and verification use."""

    @property
    def plan(self) -> Planned:
        """The plan."""
        ...

    @property
    def spent(self) -> Spent:
        """The spent budget."""
        ...

    @property
    def noise(self) -> str | None:
        """Name of the noise backend."""
        ...


R = TypeVar("R", bound=Certified)


@dataclass(frozen=True)
class Kind(Generic[R]):
    """The functions in which releases of flows, group sizes and trips with stops differ once they are measured.

    Attributes:
        contents: what a release holds, as named in summaries.
        format: format that the certificate states.
        guarantee: returns the guarantee of a plan with a given privacy loss, in sentences.
        summary: returns a short table of a release: its levels and their noise.
        facts: returns the facts of a certificate that only this kind has, such as contents, levels and invariants.
        files: returns the files that a bundle has of its tables.
        notes: returns paragraphs that a user of these files must know, apart from the meaning of their columns.
        report: returns the page that presents a release to its readers, as HTML, from the release, its certificate and
            its context.
        pictures: returns the pictures of the report that can be used alone, as SVG, by title.
        store: adds a release to the release database; adding the same release again changes nothing.
        open: reads a bundle.
        measured: returns the steps of a release and their noisy values.
        made_anew: recomputes a release that was read back from its measurements and its certificate; returns it with
            the checks that only this kind has.
        stored: yields how the database differs from the bundle.
    """

    contents: str
    format: str
    guarantee: Callable[[Any, Spent], dict[str, str]]
    summary: Callable[[R], pd.DataFrame]
    facts: Callable[[R], dict[str, Any]]
    files: Callable[[R, dict[str, Any]], Sequence[BundleFile]]
    notes: Callable[[R, dict[str, Any]], Sequence[str]]
    report: Callable[[R, dict[str, Any], Circumstances[R]], str]
    pictures: Callable[[R, dict[str, Any]], Mapping[str, Markup]]
    store: Callable[[Path, R, ReleaseKey, dict[str, Any]], None]
    open: Callable[[Path], R]
    measured: Callable[[R], Iterable[tuple[PlannedStep, NoisyVector]]]
    made_anew: Callable[[R, dict[str, Any]], tuple[R, Mapping[str, Look]]]
    stored: Callable[[Path, R, ReleaseKey, dict[str, Any]], Iterator[str]]
