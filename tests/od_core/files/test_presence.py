"""Files that cannot be opened are said to be what they are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from od_core.errors import OdError
from od_core.files.durable import absence
from od_core.records.zone_lists import read_zones
from tests.privileges import without_rights_of_root


def test_what_is_no_file_is_said() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "whole.csv").write_text("origin\n")
        (folder / "locked.csv").write_text("origin\n")
        (folder / "closed").mkdir()
        (folder / "closed" / "within.csv").write_text("origin\n")
        (folder / "dangling.csv").symlink_to(folder / "gone.csv")
        (folder / "locked.csv").chmod(0)
        (folder / "closed").chmod(0)
        with without_rights_of_root():
            assert absence(folder / "whole.csv") is None
            assert absence(folder) == f"{folder.name} is a folder, not a file"
            for file in ("gone.csv", "dangling.csv"):
                assert absence(folder / file) == f"there is no file {file}"
            for path in (folder / "locked.csv", folder / "closed" / "within.csv"):
                assert absence(path) == f"{path.name} cannot be read: the user of this process lacks permission"
                with pytest.raises(OdError, match="cannot be read"):
                    read_zones(path)
        (folder / "closed").chmod(0o700)
