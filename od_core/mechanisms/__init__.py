"""The named mechanisms, one file each."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known
from od_core.mechanisms.inftda import InfTDA
from od_core.mechanisms.inftda_refined import InfTDARefined

__all__ = ["MECHANISMS", "InfTDA", "InfTDARefined", "Mechanism", "mechanism_named"]


@runtime_checkable
class Mechanism(Protocol):
    """A top-down mechanism: its name, its options, its defaults, and how one level is projected."""

    @property
    def name(self) -> str:
        """Its name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options as public text, for plan and certificate."""
        ...

    @property
    def default_conversion(self) -> str:
        """Conversion used where the budget names none."""
        ...

    @property
    def default_shares(self) -> str:
        """Shares over the levels where the budget names none."""
        ...

    @property
    def keep_all_cap(self) -> int:
        """Up to so many public leaf pairs no node is dropped before all levels are measured; 0 drops nodes of 0."""
        ...

    @property
    def leaf_dial(self) -> Fraction | None:
        """Of a mechanism that refines: the dial u of empirical Bayes leaves; None where leaves are projected too."""
        ...

    @property
    def refines(self) -> bool:
        """Whether all levels speak about each cell in the end (least squares), or only those above it."""
        ...

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Integers of at least 0: the children ``offsets[p]:offsets[p + 1]`` sum to ``totals[p]``."""
        ...


MECHANISMS: dict[str, type[InfTDA]] = {"inftda": InfTDA, "inftda_refined": InfTDARefined}


def mechanism_named(mechanism: str | Mechanism) -> Mechanism:
    """The mechanism of that name with its default options, or the given one. Raises OdError otherwise."""
    if isinstance(mechanism, Mechanism):
        return mechanism
    if mechanism not in MECHANISMS:
        raise OdError(
            "OD-MECHANISM-UNKNOWN",
            f"there is no mechanism {mechanism!r} ({nearest_known(str(mechanism), tuple(MECHANISMS))})",
            next_step="choose a known mechanism",
        )
    return MECHANISMS[mechanism]()
