"""Store the number and hash of the newest entry of a ledger in a file of its own, the *head*.

The head is in the confidential folder. If the ledger is lost or replaced by an older copy, it lacks the entry that the
head names.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import CONFIDENTIAL_FOLDER_MODE, make_folder, rights, write_durably
from od_core.ledger.entries import NONE, RESERVED, Entries

_HEAD = re.compile(rb"[0-9]{12} [0-9a-f]{64}")


class Head:
    """The head file of a ledger."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, entries: Entries) -> tuple[int, str]:
        """Check that the entries contain the entry that the head names, and return its number and hash.

        There may be no head if nothing was charged. Then :data:`od_core.ledger.entries.NONE` is returned.

        Raises:
            OdError: they lack that entry, or the head is damaged or missing, or cannot be read.
        """
        try:
            head = self._path.read_bytes()
        except FileNotFoundError:
            head = None
        except PermissionError:
            raise OdError(
                "OD-LEDGER-UNAVAILABLE",
                f"confidential/{self._path.name}, which names the newest entry of the ledger, cannot be read:"
                f" {rights(self._path)}",
                next_step="run it as the owner, or on a copy of the whole folder that this user may read",
                spent=STAYS_CHARGED,
            ) from None
        if head is None and entries.newest(RESERVED) is None:
            return NONE  # nothing was charged yet, so nothing can be lost
        if head is None or not _HEAD.fullmatch(head):
            raise OdError(
                "OD-LEDGER-HEAD",
                f"confidential/{self._path.name}, which names the newest entry of the ledger, is"
                f" {'missing' if head is None else 'damaged'}",
                next_step="restore it from the newest backup of the confidential folder",
                spent=STAYS_CHARGED,
            )
        return entries.hold_to(head.decode())

    def renew(self, newest: str) -> None:
        """Write the number and hash of the newest entry to the head, unless another process has written newer ones.

        The head is overwritten in place. It is one short line in one sector of the disk, so a crash leaves either the
        old or the new head. The old head names an earlier entry of the chain. With it, the loss of the newest entries
        may go unnoticed, but no intact ledger is refused.
        """
        if not self._path.exists():
            make_folder(self._path.parent, CONFIDENTIAL_FOLDER_MODE)
            write_durably(self._path, lambda file: file.write_text(newest, encoding="utf-8"))
            return
        with self._path.open("rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.read().decode() < newest:
                written, head = 0, newest.encode()
                while written < len(head):  # one call may write only a part
                    written += os.pwrite(file.fileno(), head[written:], written)
                os.fdatasync(file.fileno())
