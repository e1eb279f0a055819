"""Measure each part of a release once, in rounds that the ledger grants.

A round is one draw of any parts of a step, each at most once. Parts are disjoint, so a round is one vector query with
the sensitivity of the step. A step is charged its rho once per round, however many of its parts were lost
(``docs/explanation/parts.md``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.chain import MEASURED, RESERVED
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Draw, NoisyVector, write_noisy
from od_core.ledger.object_store import Store, kept_digest, part_file, part_files
from od_core.ledger.release_key import ReleaseKey
from od_core.parallel import finished_first
from od_core.privacy.plan import Step

_CLAIMS = "claims/"


@dataclass(frozen=True)
class PartMeasurements:
    """The measurements of the steps of one part. Each step is claimed before it is drawn, and stored once.

    A claim is a file that is created exclusively and is durable before the first random bit is drawn. A part can be
    claimed once per round that the step was charged for. Only values that were read back from the store are used: of
    two processes that draw the same part, because one of them was presumed dead, only the first one stores its values.

    Attributes:
        store: Store of the claims and the measurements.
        part: Number of the part in its band.
        rounds: By number of the step, the rounds that it was charged for; 0 if all parts of it are measured.
    """

    store: Store
    part: int
    rounds: Mapping[int, int]

    def once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the stored noisy values of a step. If there are none, claim the part, and draw and store them first.

        Raises:
            OdError: If the part was already claimed in every round but is not stored, or if the level is recorded as
                measured but the file of the part is missing.
        """
        name = part_file(step.number, self.part)
        if not self.store.has(name):
            if self.rounds[step.number] == 0:
                raise OdError(
                    "OD-MEASUREMENT-ABSENT",
                    f"step {step.number}, level {step.level}, of part {self.part} was measured, but its measurement is"
                    " missing",
                    next_step="restore the measurements of the parts from a backup",
                    spent=STAYS_CHARGED,
                )
            with finished_first():
                self._claim(step)
                sink = pa.BufferOutputStream()
                write_noisy(sink, draw())
                self.store.create_if_absent(name, sink.getvalue())
        return NoisyVector(partial(self.store.read, name))

    def _claim(self, step: Step) -> None:
        mine = str(os.getpid()).encode()
        for number in range(1, self.rounds[step.number] + 1):
            if self.store.create_if_absent(f"{_CLAIMS}{step.number}.{self.part:05d}.{number}", mine):
                return
        raise OdError(
            "OD-LOST-DRAW",
            f"step {step.number}, level {step.level}, of part {self.part} was being drawn when its process ended, or"
            " is still being drawn",
            next_step="run the release again, which requests another round from the ledger",
            spent="the level stays charged",
        )


def claimed_rounds(store: Store, step: int) -> dict[int, int]:
    """Return the last round in which each claimed part of a step was claimed, by number of the part."""
    rounds: dict[int, int] = {}
    for name in store.list(f"{_CLAIMS}{step}."):
        _, part, number = name.removeprefix(_CLAIMS).split(".")
        rounds[int(part)] = max(rounds.get(int(part), 0), int(number))
    return rounds


_MARK = "claims/begun"
"""File that marks a store as the one in which the release was begun."""


def granted_rounds(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, noise: str | None
) -> dict[int, int]:
    """Return how many rounds each step of a band is charged for, by number of the step; 0 for a measured step.

    Call this function before any task of the band starts. For each step that was never drawn, it starts the first
    round, which the reservation has charged. For each step with a part that was claimed in the newest round but is not
    stored, it starts and charges another round. A measured step gets no further round.

    Raises:
        OdError: If the cap does not allow another round; if the ledger does not record the draw of a claimed or stored
            part; if the release was begun in another store; or if the store does not create files exclusively.
    """
    rounds = {}
    states = {step.number: ledger.level_state(key, step.number) for step in steps}
    _mark_or_find(store, key, begun=any(state is not None and state.kind != RESERVED for state in states.values()))
    for step in steps:
        number, state = step.number, states[step.number]
        claimed, kept = claimed_rounds(store, number), {*part_files(store, number)}
        if (state is None or state.kind == RESERVED) and (claimed or kept):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"level {step.level} of {key} has measurements of parts that the ledger does not record",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )
        if state is None or state.kind == RESERVED:
            rounds[number] = ledger.start_draw(key, number, noise)
            continue
        if state.kind == MEASURED:
            rounds[number] = 0
            continue
        missing = {part_file(number, part) for part, last in claimed.items() if last >= state.draw} - kept
        is_lost = (not store.has(name) for name in missing)  # a store may list a file later than it has it
        rounds[number] = ledger.start_draw(key, number, noise) if any(is_lost) else state.draw
    return rounds


def _mark_or_find(store: Store, key: ReleaseKey, *, begun: bool) -> None:
    """Mark the store of a release that has not begun, or check the mark if the release has ``begun``.

    The claims in one store do not prevent a draw into another store, so a release must use a single store.
    """
    if begun and not store.has(_MARK):
        raise OdError(
            "OD-STORE-OTHER",
            f"the store of parts is not the store in which {key} began, or it was emptied",
            next_step="restore the store, or declare the store in which the release began",
            spent=STAYS_CHARGED,
        )
    store.create_if_absent(_MARK, b"begun")
    if store.create_if_absent(_MARK, b"again"):
        raise OdError(
            "OD-STORE-UNSAFE",
            "the store of parts replaces an existing file, so two draws could both be kept",
            next_step="use a folder, or a newer driver for this storage",
        )


def _refuse_late_list(store: Store, step: int, parts: int) -> None:
    """Raise OdError if the store has a part of a step that it does not list yet, which the digest would not cover."""
    unlisted = {part_file(step, part) for part in range(parts)} - {*part_files(store, step)}
    late = [name for name in sorted(unlisted) if store.has(name)]
    if late:
        raise OdError(
            "OD-STORE-LISTING",
            f"the store of parts does not list all files that it has: {late[0]} is one of {len(late)}",
            next_step="run the release again after a while; nothing is drawn again",
            spent=STAYS_CHARGED,
        )


def record_measured(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, rounds: Mapping[int, int], parts: int
) -> None:
    """Record in the ledger that each step of a band is measured, with a digest of its stored parts, or check this one.

    ``rounds`` is the result of :func:`granted_rounds`, and ``parts`` is the number of parts of the band.

    Raises:
        OdError: If the stored parts of a measured step differ from those recorded, or if the store does not list all
            files that it has.
    """
    for step in steps:
        _refuse_late_list(store, step.number, parts)
        state, digest = ledger.level_state(key, step.number), kept_digest(store, step.number)
        if state is None or state.kind != MEASURED:
            ledger.finish_draw(key, step.number, rounds[step.number], digest)
        elif state.digest != digest:
            raise OdError(
                "OD-MEASUREMENT-CHANGED",
                f"the measurement of level {step.level} of {key} has changed",
                next_step="restore the measurements of the parts from a backup",
                spent=STAYS_CHARGED,
            )
