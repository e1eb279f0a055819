"""The identity of a release's input: the same trips, or no further draw (spec 6, "Replay")."""

from __future__ import annotations

import json

from od_core.archive.confidential import ConfidentialFolder
from od_core.archive.files import write_durably
from od_core.archive.planned import Counted
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError


def hold_to_input(confidential: ConfidentialFolder, key: ReleaseKey, trips: Counted, *, drawn: bool) -> None:
    """Remember the input of a release, or refuse one that is not what was drawn from.

    Args:
        confidential: where the keyed fingerprint is kept.
        key: the release.
        trips: the counted input.
        drawn: whether a level of the release was drawn already; until then its input may change.

    Raises:
        OdError: the input changed; the key or the fingerprint is lost while levels are drawn.
    """
    path = confidential.subfolder(key.folder) / "identity.json"
    now = {"input": confidential.fingerprint(trips.column_pieces()), "key": confidential.key_name()}
    if not drawn:
        write_durably(path, lambda file: file.write_text(json.dumps(now), encoding="utf-8"))
        return
    try:
        then = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _refused(
            "OD-IDENTITY-MISSING",
            f"the fingerprint of the input of {key} is missing, though levels are drawn",
            "restore the confidential folder",
        ) from None
    if then.get("key") != now["key"]:
        raise _refused("OD-KEY-LOST", f"the key that {key} was begun with is lost", "restore confidential/hmac.key")
    if then.get("input") != now["input"]:
        raise _refused(
            "OD-REPLAY-INPUT-CHANGED",
            f"the records of {key} are not those that it was begun with",
            f"restore the records, or release them as revision {key.revision + 1}, which is charged again",
        )


def _refused(code: str, message: str, next_step: str) -> OdError:
    return OdError(code, message, next_step=next_step, spent="what was set aside before stays charged")
