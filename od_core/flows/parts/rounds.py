"""Ask the ledger for rounds in which the levels of a band may be drawn, and record measured levels in it.

Parts of a level are disjoint, so one round over any of them is one vector query of the level's sensitivity. A level
costs its rho once for each round, however many of its parts were lost (``docs/explanation/parts.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.parts.passes import claimed_rounds
from od_core.ledger.chain import MEASURED, RESERVED
from od_core.ledger.ledger import Ledger
from od_core.ledger.object_store import Store, kept_digest, part_file, part_files
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.plan import Step

_MARK = "claims/begun"
"""File that marks the store in which the release was begun."""


def granted_rounds(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, noise: str | None
) -> dict[int, int]:
    """Return the number of rounds in which each level of a band may be drawn: those that it was charged for.

    All levels that were never drawn start their first round before any task is handed out. If a part was claimed in
    every round so far and is not stored, its level is charged for another round. A measured level gets no further
    round.

    Args:
        ledger: The ledger that holds the reservation of the release.
        key: The release.
        steps: Steps of the band.
        store: Where claims and measurements of parts are kept.
        noise: Name of the noise backend.

    Raises:
        OdError: If the cap does not allow another round; if parts are claimed or stored that the ledger does not know;
            if the store is not the one in which the release was begun, or does not create files exclusively.
    """
    rounds = {}
    states = {step.level: ledger.level_state(key, step.level) for step in steps}
    _mark_or_find(store, key, begun=any(state is not None and state.kind != RESERVED for state in states.values()))
    for level, state in states.items():
        claimed, kept = claimed_rounds(store, level), {*part_files(store, level)}
        if (state is None or state.kind == RESERVED) and (claimed or kept):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"level {level} of {key} has measurements of parts that the ledger does not record",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )
        if state is None or state.kind == RESERVED:
            rounds[level] = ledger.start_draw(key, level, noise)
            continue
        if state.kind == MEASURED:
            rounds[level] = 0
            continue
        is_lost = (part_file(level, part) not in kept for part, last in claimed.items() if last >= state.draw)
        rounds[level] = ledger.start_draw(key, level, noise) if any(is_lost) else state.draw
    return rounds


def _mark_or_find(store: Store, key: ReleaseKey, *, begun: bool) -> None:
    """Mark the store before anything is drawn into it, or check the mark, since claims in another store bind nobody."""
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


def record_measured(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, rounds: Mapping[int, int]
) -> None:
    """Record that every part of a band's levels is stored, or check that the stored parts are those recorded before.

    Raises:
        OdError: If a level was measured before, and its files have changed.
    """
    for step in steps:
        state, digest = ledger.level_state(key, step.level), kept_digest(store, step.level)
        if state is None or state.kind != MEASURED:
            ledger.finish_draw(key, step.level, rounds[step.level], digest)
        elif state.digest != digest:
            raise OdError(
                "OD-MEASUREMENT-CHANGED",
                f"the measurement of level {step.level} of {key} has changed",
                next_step="restore the measurements of the parts from a backup",
                spent=STAYS_CHARGED,
            )
