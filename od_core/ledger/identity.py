"""Check that the counted input of a release in progress has not changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import write_durably
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.release_key import ReleaseKey

_IDENTITY = "identity.json"
"""File of the fingerprint, in the confidential folder of a release."""


class Counted(Protocol):
    """The counted input of a release. It is confidential."""

    @property
    def total(self) -> int:
        """Confidential: number of trips that are counted."""
        ...

    def column_pieces(self) -> Iterator[Sequence[NDArray[np.int64]]]:
        """Yield the counted input in consecutive blocks of rows, each with one array per column.

        Equal inputs give equal columns when the blocks are joined, but they may be cut into different blocks.
        """
        ...


def hold_to_input(
    confidential: ConfidentialFolder, key: ReleaseKey, trips: Counted, *, drawn: bool, counters: str | None = None
) -> None:
    """Store a fingerprint (keyed hash) of a release's input, or check the input against the stored fingerprint.

    Until the first draw begins, the input may change, and its fingerprint is stored. After that, the input is checked.

    Args:
        confidential: folder in which the fingerprint is stored.
        key, trips: the release and its counted input.
        drawn: True if a draw of the release has begun.
        counters: fingerprint of the counters of users that belong to the input, for unit ``user_year``.

    Raises:
        OdError: a draw has begun, and the input has changed, or the fingerprint or the key that made it is lost.
    """
    now = identity_of(confidential, trips, counters)
    then = stored_identity(confidential, key)
    if not drawn:
        if then == now:
            return
        path = confidential.subfolder(key.folder) / _IDENTITY
        write_durably(path, lambda file: file.write_text(json.dumps(now), encoding="utf-8"))
        return
    if not then:
        raise _refused(
            "OD-IDENTITY-MISSING",
            f"the fingerprint of the input of {key} is missing, but levels are drawn already",
            "restore the confidential folder",
        )
    if then.get("key") != now["key"]:
        raise _refused("OD-KEY-LOST", f"the key with which {key} began is lost", "restore confidential/hmac.key")
    if then != now:
        raise _refused(
            "OD-REPLAY-INPUT-CHANGED",
            f"the records of {key} differ from those with which it began",
            f"restore the records, or release them as revision {key.revision + 1}, which is charged again",
        )


def stored_identity(confidential: ConfidentialFolder, key: ReleaseKey) -> dict[str, str]:
    """Return the stored fingerprint of a release's input and the name of its key; empty if there is none."""
    try:
        stored = json.loads((confidential.path / key.folder / _IDENTITY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def identity_of(confidential: ConfidentialFolder, trips: Counted, counters: str | None) -> dict[str, str]:
    """Return the fingerprint of a release's counted input, the name of its key, and the fingerprint of the counters."""
    own = {"input": confidential.fingerprint(trips.column_pieces()), "key": confidential.key_name()}
    return own if counters is None else own | {"counters": counters}


def _refused(code: str, message: str, next_step: str) -> OdError:
    return OdError(code, message, next_step=next_step, spent=STAYS_CHARGED)
