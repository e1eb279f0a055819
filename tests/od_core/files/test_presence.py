"""Files that cannot be opened are said to be what they are."""

import re
import tempfile
from functools import partial
from pathlib import Path

import pytest

from od_core.errors import OdError
from od_core.files.durable import find_file_fault, may_file_appear
from od_core.geography.geography import read_boundaries
from od_core.records.callers_table import read_table
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
            assert find_file_fault(folder / "whole.csv") is None
            assert find_file_fault(folder) == f"{folder.name} is a folder, not a file"
            assert not any(map(may_file_appear, (folder, folder / "whole.csv", folder / "closed" / "within.csv")))
            for file in ("gone.csv", "dangling.csv"):
                assert find_file_fault(folder / file) == f"there is no file {file}"
                assert may_file_appear(folder / file)
            for path in (folder / "locked.csv", folder / "closed" / "within.csv"):
                assert find_file_fault(path) == f"{path.name} cannot be read: the user of this process lacks permission"
                with pytest.raises(OdError, match="cannot be read"):
                    read_zones(path)
        (folder / "closed").chmod(0o700)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("s3://key:hunter22@lake/trips.parquet", "an address such as s3:// or file:// is no path"),
        ("s3://key:hunter22@", "an address such as s3:// or file:// is no path"),
        ("file:///lake/trips.parquet", "an address such as s3:// or file:// is no path"),
        ("~/trips.parquet", "~ does not stand for the home folder"),
        ("~operator/trips.parquet", "~ does not stand for the home folder"),
        ("lake/*.parquet", "wildcards such as * are not replaced"),
        ("lake/month=*/trips.parquet", "wildcards such as * are not replaced"),
        ("lake/trips-[12].csv", "wildcards such as * are not replaced"),
    ],
)
def test_a_path_that_is_none_is_refused_with_its_cause_by_every_reader(path: str, why: str) -> None:
    in_memory = partial(read_table, needed=["origin"], named="the records", code="OD-TRIPS-COLUMN")
    for read in (in_memory, lambda path: read_zones(Path(path)), lambda path: read_boundaries(Path(path), "code")):
        with pytest.raises(OdError, match=re.escape(why)) as refused:
            read(path)
        assert refused.value.code == "OD-FILE-MISSING"
        assert "hunter22" not in str(refused.value)
    assert not may_file_appear(Path(path))


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    for name in ("s3:", "~", "[1]*?.csv"):
        (tmp_path / name).touch()
        assert find_file_fault(tmp_path / name) is None
