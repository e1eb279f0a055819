"""The measurement of one level of one part: claimed before it is drawn, and kept once (spec 8, section 3).

A claim is a file that is created exclusively, and durable before the first random bit. A part may be claimed once in
each round that the ledger has granted its level. What is used is what is read back: of two that drew, since one was
taken for dead, the loser lets go of its vector.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from od_core.errors import OdError
from od_core.ledger.measurements import Draw
from od_core.ledger.noisy_vector import NoisyVector, write_noisy
from od_core.ledger.object_store import Store, part_file
from od_core.ledger.protocols import PlannedStep

_CLAIMS = "claims/"


@dataclass(frozen=True)
class PartMeasurements:
    """Measurements of one part.

    Attributes:
        store: where they are kept.
        part: its number in the band.
        rounds: how many rounds the ledger has granted each level; none where all of it was measured.
    """

    store: Store
    part: int
    rounds: Mapping[int, int]

    def once(self, step: PlannedStep, draw: Draw) -> NoisyVector:
        """As :meth:`od_core.ledger.measurements.Measurements.once`.

        Raises:
            OdError: the level of the part was claimed in every round that is granted, and never kept; or it was
                measured, and is missing.
        """
        name = part_file(step.level, self.part)
        if not self.store.has(name):
            if self.rounds[step.level] == 0:
                raise OdError(
                    "OD-MEASUREMENT-ABSENT",
                    f"level {step.level} of part {self.part} was measured, and is missing",
                    next_step="restore the measurements of parts from a backup",
                    spent="what was set aside before stays charged",
                )
            self._claim(step.level)
            sink = pa.BufferOutputStream()
            write_noisy(sink, draw())
            self.store.create_if_absent(name, sink.getvalue())
        return NoisyVector(partial(self.store.read, name))

    def _claim(self, level: int) -> None:
        mine = str(os.getpid()).encode()
        for number in range(1, self.rounds[level] + 1):
            if self.store.create_if_absent(f"{_CLAIMS}{level}.{self.part:05d}.{number}", mine):
                return
        raise OdError(
            "OD-LOST-DRAW",
            f"level {level} of part {self.part} was being drawn when its process ended, or still is",
            next_step="run the release again: it asks the ledger for another round",
            spent="the level's charge stands",
        )


def claimed_rounds(store: Store, level: int) -> dict[int, int]:
    """The parts of a level that were ever claimed, and the last round of each."""
    rounds: dict[int, int] = {}
    for name in store.list(f"{_CLAIMS}{level}."):
        _, part, number = name.removeprefix(_CLAIMS).split(".")
        rounds[int(part)] = max(rounds.get(int(part), 0), int(number))
    return rounds
