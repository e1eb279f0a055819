"""Whether there is a file to be read."""

from __future__ import annotations

from pathlib import Path


def absence(path: Path) -> str | None:
    """Why a file cannot be opened, in words; None where it can."""
    try:
        if path.is_dir():
            return f"{path.name} is a folder, not a file"
        if not path.is_file():
            return f"there is no file {path.name}"
        path.open("rb").close()
    except PermissionError:
        return f"{path.name} may not be read by the user of this process"
    return None
