"""The command line, ``od-release``: plan, run and inspect releases. Every command ends with an :class:`ExitCode`."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from od_assets.resources.folders import Folders


class ExitCode(IntEnum):
    """How a command ended.

    ====  ===========================================================================================================
    code  meaning
    ====  ===========================================================================================================
    0     The command did what it was asked. ``ui`` was told to end.
    1     ``doctor`` or ``verify`` found a fault, a step of ``run`` or ``compare-mechanisms`` failed, the daemon of
          ``ui`` ended, or the person who was asked a question stopped. Python also ends a defect of the program so.
    2     An error with a code, such as ``OD-PERIOD``, refused the command, or a part of ``status`` or ``site``. Typer
          also ends a command with wrong options so.
    130   SIGINT interrupted the command.
    143   SIGTERM interrupted the command.
    ====  ===========================================================================================================
    """

    DONE = 0
    FAULT_FOUND = 1
    REFUSED = 2
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM

    @classmethod
    def from_signal(cls, number: int) -> ExitCode:
        """Return the code of a command that a signal interrupted, as a shell reports it."""
        return cls(128 + number)


def project_folders() -> Folders:
    """Return the folders, the ledger and the database of the project, imported late: ``--version`` needs no ledger."""
    from od_assets.resources.folders import Folders

    return Folders()
