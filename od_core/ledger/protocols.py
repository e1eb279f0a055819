"""Define what the ledger requires of a release of any kind: a plan with charges, and an input to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.privacy.budget import Spent
from od_core.privacy.cap import Charge
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.unit import PrivacyUnit


class PlannedStep(Protocol):
    """A vector query of a plan, drawn once and charged once."""

    @property
    def level(self) -> int:
        """Number of the step in the release."""
        ...

    @property
    def charge(self) -> Charge:
        """Cost of one draw."""
        ...

    @property
    def widest(self) -> Fraction:
        """Upper bound of the noise variance, by which a backend refuses noise that it cannot draw."""
        ...

    @property
    def law(self) -> dict[str, int | str]:
        """Distribution of the noise, as public facts ready for JSON; fractions are exact text."""
        ...


class Planned(Protocol):
    """A plan, made from public facts before any data is read."""

    @property
    def unit(self) -> PrivacyUnit:
        """The privacy unit."""
        ...

    @property
    def acceptance(self) -> Acceptance:
        """Rules that say which records are counted, and which inputs are refused."""
        ...

    @property
    def steps(self) -> Sequence[PlannedStep]:
        """All steps that are drawn."""
        ...

    @property
    def charge(self) -> Charge:
        """Cost of the whole release, with each step drawn once."""
        ...

    @property
    def spent(self) -> Spent:
        """Privacy loss of a release in which each step is drawn once."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the facts."""
        ...

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per step: what is measured, with how much noise, at which charge."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the whole plan as public facts ready for JSON, with ``mechanism`` and ``mechanism_options``."""
        ...

    def spent_on(self, levels: tuple[Fraction, ...]) -> Spent:
        """Return what was spent, given the rho charged to each step over all its draws, lost draws included."""
        ...


class Counted(Protocol):
    """A counted input. It is confidential."""

    @property
    def total(self) -> int:
        """Number of records, or trips, that are counted."""
        ...

    def column_pieces(self) -> Iterator[Sequence[NDArray[np.int64]]]:
        """Yield the content in pieces. Equal inputs have equal columns, wherever the pieces are cut."""
        ...
