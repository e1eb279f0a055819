"""A kind of release: how one is certified, written, stored, read back, and held against what was published."""

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


# A file of a bundle: its name, what it is, and how it is written.


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle.

    Attributes:
        name: of the file.
        description: what it is, in a line.
        write: writes its content to an open file, from the beginning to the end; the same bytes at every call.
        table: the table that it holds; None where it is no table.
    """

    name: str
    description: str
    write: Callable[[BinaryIO], object]
    table: Table | None = None


Look = Callable[[], Iterator[str]]
"""Looks at a part of a published release; yields what is wrong with it, a line each."""


class Certified(Protocol):
    """What certificates and verification ask of a release of any kind."""

    @property
    def plan(self) -> Planned:
        """What was planned."""
        ...

    @property
    def spent(self) -> Spent:
        """What was spent."""
        ...

    @property
    def noise(self) -> str | None:
        """Name of the noise backend."""
        ...


R = TypeVar("R", bound=Certified)


@dataclass(frozen=True)
class Kind(Generic[R]):
    """What differs between releases of flows and of other tables once they are measured.

    Attributes:
        contents: what its releases hold, as summaries name it.
        format: what its certificates say of themselves.
        guarantee: what a plan that has spent so much protects, in sentences.
        summary: a release in a few lines: its levels, and their noise.
        facts: what certificates of this kind alone say: contents, levels, invariants and the like.
        files: what a bundle has of it: the files of its tables.
        notes: what a user of these files must know beside the meaning of their columns; paragraphs.
        report: the page that shows a release to its readers, as HTML: of the release, its certificate, and what stood
            around it when it was measured.
        pictures: those of the report that stand alone, as SVG, by title.
        store: into the release database; the same release again changes nothing.
        open: a bundle read back.
        measured: the steps of a release and their noisy values.
        made_anew: from the measurements of a release that was read back and its certificate: the release that they
            give, and what to look at that this kind alone has.
        stored: what the database says otherwise than the bundle.
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
