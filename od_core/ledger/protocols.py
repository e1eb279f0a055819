"""What the archive asks of any release, whatever it is of: a plan that can be charged, and an input to be held to."""

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
    """One vector query of a plan: drawn once, charged once."""

    @property
    def level(self) -> int:
        """Its number in the release."""
        ...

    @property
    def charge(self) -> Charge:
        """What one draw costs."""
        ...

    @property
    def widest(self) -> Fraction:
        """What the noise's variance is at most; a backend refuses noise that it cannot draw by this."""
        ...

    @property
    def law(self) -> dict[str, int | str]:
        """What is drawn, as JSON-ready public facts; fractions as exact text."""
        ...


class Planned(Protocol):
    """A plan, made from public facts before any data is read."""

    @property
    def unit(self) -> PrivacyUnit:
        """What is protected."""
        ...

    @property
    def acceptance(self) -> Acceptance:
        """Which records are counted, and which inputs are refused."""
        ...

    @property
    def steps(self) -> Sequence[PlannedStep]:
        """Everything that is drawn."""
        ...

    @property
    def charge(self) -> Charge:
        """What the whole release costs, each step drawn once."""
        ...

    @property
    def spent(self) -> Spent:
        """What a release spends of which each step is drawn once."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the facts."""
        ...

    def to_frame(self) -> pd.DataFrame:
        """One row a step: what is measured, with how much noise, at which charge."""
        ...

    def facts(self) -> dict[str, Any]:
        """The whole plan as JSON-ready public facts, its ``mechanism`` and ``mechanism_options`` among them."""
        ...

    def spent_on(self, levels: tuple[Fraction, ...]) -> Spent:
        """What was spent where the steps were charged so much rho in all, lost draws included."""
        ...


class Counted(Protocol):
    """Confidential: a counted input."""

    @property
    def total(self) -> int:
        """Number of the records, or trips, that are counted."""
        ...

    def column_pieces(self) -> Iterator[Sequence[NDArray[np.int64]]]:
        """What it consists of: equal inputs have equal columns, however these are cut into consecutive pieces."""
        ...
