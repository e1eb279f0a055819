"""The command line, ``od-release``: plan, run and inspect releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from od_assets.resources.folders import Folders


def project_folders() -> Folders:
    """Return the folders, the ledger and the database of the project, imported late: ``--version`` needs no ledger."""
    from od_assets.resources.folders import Folders

    return Folders()
