"""Replicates that are written: the same files on every call, and nothing else is touched."""

import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openmatrix
import pyarrow.parquet as pq
import pytest
import tables

from od_core import Budget, InfTDARefined, OdError, Release, open_release
from od_core.files.durable import compute_file_digest
from od_core.flows.estimation import replicates as estimation
from od_core.published import replicate_files
from od_core.published.replicate_files import write_replicates
from tests.od_core.ledger.ledger_rows import GEOGRAPHY
from tests.od_core.published.test_sums import KEYS, release

FILES = ["README.md", "replicates.omx", "replicates.parquet"]


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two published releases; in the second one, areas are not divided."""
    root = tmp_path_factory.mktemp("replicates")
    release(root, KEYS[0], geography=GEOGRAPHY, budget=Budget(rho=2, delta="1e-8"))
    dropping = InfTDARefined(keep_all_cap=0)
    release(root, KEYS[1], geography=GEOGRAPHY, budget=Budget(rho="0.01", delta="1e-8"), mechanism=dropping)
    return root / "releases"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: compute_file_digest(path) for path in folder.iterdir()}


def opened(releases: Path, number: int = 0) -> Release:
    found = open_release(releases / KEYS[number].folder)
    assert isinstance(found, Release)
    return found


@pytest.mark.slow
def test_two_readers_find_the_replicates_of_the_library_in_both_files(releases: Path, tmp_path: Path) -> None:
    write_replicates(releases, KEYS[0], 3, tmp_path)
    source = opened(releases)
    expected = list(source.replicates(3))
    by_arrow = pq.read_table(tmp_path / "replicates.parquet").to_pandas()
    by_duckdb = duckdb.sql(f"SELECT * FROM '{tmp_path / 'replicates.parquet'}'").df()
    columns = ["origin", "destination", "estimate", "replicate_1", "replicate_2", "replicate_3"]
    assert list(by_arrow) == list(by_duckdb) == columns
    for found in (by_arrow, by_duckdb):
        for side in ("origin", "destination"):
            assert found[side].astype(str).tolist() == expected[0][side].tolist()
        assert found["estimate"].tolist() == source.replicated.estimate.tolist()
        for r, table in enumerate(expected, start=1):
            assert found[f"replicate_{r}"].tolist() == table["trips"].tolist()
    origin, destination = source.replicated.ends
    with openmatrix.open_file(tmp_path / "replicates.omx") as file:
        assert file.list_matrices() == sorted(columns[2:])
        assert list(file.mapping("origin")) == [code.encode() for code in source.tree.origin.zones]
        by_openmatrix = {name: file[name][:] for name in columns[2:]}
    with tables.open_file(tmp_path / "replicates.omx") as file:
        for name in columns[2:]:
            matrix = file.get_node("/data", name)[:]
            assert matrix.dtype == np.float64
            assert np.array_equal(matrix, by_openmatrix[name])
            assert matrix[origin, destination].tolist() == by_arrow[name].tolist()


def test_a_second_call_writes_the_same_files_and_touches_no_others(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    assert write_replicates(releases, KEYS[0], 2, folder) == sorted(path.name for path in folder.iterdir()) == FILES
    before = digests(folder)
    (folder / "replicates.parquet").write_bytes(b"")
    (folder / "thesis.txt").write_text("mine", "utf-8")
    monkeypatch.setenv("OD_THREADS", "1")
    monkeypatch.setattr(estimation, "_BLOCK", 1)
    write_replicates(releases, KEYS[0], 2, folder)
    assert (folder / "thesis.txt").read_text("utf-8") == "mine"
    (folder / "thesis.txt").unlink()
    assert digests(folder) == before
    monkeypatch.setattr(replicate_files, "MAX_CELLS", 1)  # too large for matrices
    assert write_replicates(releases, KEYS[0], 2, folder) == ["README.md", "replicates.parquet"]
    del before["replicates.omx"]
    assert digests(folder) == before


def test_a_run_that_is_killed_leaves_the_files_of_the_run_before(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_replicates(releases, KEYS[0], 2, tmp_path)
    before = digests(tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replicate_files, "write_batches", killed)
        with pytest.raises(KeyboardInterrupt):
            write_replicates(releases, KEYS[0], 3, tmp_path)
    assert digests(tmp_path) == before
    (tmp_path / ".replicates-killed").mkdir()
    write_replicates(releases, KEYS[0], 3, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert (tmp_path / "README.md").read_text("utf-8").startswith("# Replicates of commuters/2001-01/r1: 3")


@pytest.mark.parametrize(("free", "most"), [(0, 0), (2_500, 1)])
def test_what_the_disk_has_no_room_for_is_refused_before_anything_is_written(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, most: int
) -> None:
    usage = shutil.disk_usage(tmp_path)

    def full(path: Path) -> Any:
        assert path == tmp_path
        return usage._replace(free=free)

    monkeypatch.setattr(replicate_files.shutil, "disk_usage", full)
    folder = tmp_path / "not" / "there"
    with pytest.raises(OdError, match=r"OD-REPLICATES-NUMBER: 10,000 .* up to [\d.]+ GB") as refused:
        write_replicates(releases, KEYS[0], 10_000, folder)
    allowed = int(re.findall("[0-9]+", refused.value.next_step.replace(",", ""))[0])
    assert 0 <= allowed <= most
    assert not (tmp_path / "not").exists()
    if allowed:
        write_replicates(releases, KEYS[0], min(allowed, 2), tmp_path)
        with pytest.raises(OdError, match="OD-REPLICATES-NUMBER"):
            write_replicates(releases, KEYS[0], allowed + 1, tmp_path / "more")


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_other_numbers_are_refused(releases: Path, tmp_path: Path, number: int) -> None:
    with pytest.raises(OdError, match="OD-REPLICATES-NUMBER"):
        write_replicates(releases, KEYS[0], number, tmp_path / "none")
    assert not (tmp_path / "none").exists()
