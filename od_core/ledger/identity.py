"""The identity of a release's input: the same trips, or no further draw (spec 6, "Replay")."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.files.durable import sync, write_durably
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.protocols import Counted
from od_core.ledger.release_key import ReleaseKey


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


# How the records of a release were read, held to what is declared now: its certificate states what is declared.


_FILE = "read_as.json"


def keep_reading(folder: Path, facts: Mapping[str, Any]) -> None:
    """Remember how records were read: which rows of a file, in which time zone.

    Args:
        folder: of the release, in the confidential folder.
        facts: JSON-ready public facts, by name.
    """
    write_durably(folder / _FILE, lambda file: file.write_text(json.dumps(dict(facts)), encoding="utf-8"))


def forget_reading(folder: Path) -> None:
    """Before records are read anew: a crash in between leaves records of no declaration, which are refused."""
    if (folder / _FILE).exists():
        (folder / _FILE).unlink()
        sync(folder)


def hold_to_reading(folder: Path, key: ReleaseKey, facts: Mapping[str, Any], *, drawn: bool) -> None:
    """Refuse to go on where the records were read otherwise than it is declared now.

    Facts that were not remembered are not compared: a release may be begun by a version that states fewer.

    Args:
        folder, facts: as :func:`keep_reading`.
        key: the release.
        drawn: whether a level of it was drawn already.

    Raises:
        OdError: a fact is another one; nothing is remembered, and nothing drawn.
    """
    path = folder / _FILE
    if not path.exists() and drawn:
        return
    then = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    now = json.loads(json.dumps(dict(facts)))
    changed = None if then is None else sorted(name for name in then if name in now and then[name] != now[name])
    if changed == []:
        return
    said = "" if changed is None else f"; changed: {', '.join(changed)}"
    if drawn:
        raise OdError(
            "OD-REPLAY-READING-CHANGED",
            f"the records of {key} were read with other settings{said}",
            next_step=f"restore the settings, or release it as revision {key.revision + 1}, which is charged again",
            spent="what was set aside before stays charged",
        )
    raise OdError(
        "OD-STAGED-OTHER-READING",
        f"the records of {key} were read with other settings{said}",
        next_step="run the whole release: it reads them anew",
    )
