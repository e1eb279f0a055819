"""Draws that are written: the same files on every call, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from od_core.files.durable import file_digest
from od_core.privacy.budget import Budget
from od_core.published import draws
from od_core.published.draws import write_release_draws
from tests.od_core.published.test_sums import KEYS, release


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one published release."""
    root = tmp_path_factory.mktemp("draws")
    release(root, KEYS[0], budget=Budget(rho=2, delta="1e-8"))
    return root / "releases"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: file_digest(path) for path in folder.iterdir()}


def test_a_second_call_writes_the_same_files_and_touches_no_others(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    written = write_release_draws(releases, KEYS[0], 2, folder)
    assert written == sorted(path.name for path in folder.iterdir())
    before = digests(folder)
    (folder / "draws.parquet").write_bytes(b"")
    (folder / "thesis.txt").write_text("mine", "utf-8")
    write_release_draws(releases, KEYS[0], 2, folder)
    assert (folder / "thesis.txt").read_text("utf-8") == "mine"
    (folder / "thesis.txt").unlink()
    assert digests(folder) == before
    monkeypatch.setattr(draws, "MOST_CELLS", 1)  # too large for matrices
    assert write_release_draws(releases, KEYS[0], 2, folder) == ["README.md", "draws.parquet"]
    del before["draws.omx"]
    assert digests(folder) == before


def test_a_run_that_is_killed_leaves_the_files_of_the_run_before(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_release_draws(releases, KEYS[0], 2, tmp_path)
    before = digests(tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(draws, "write_batches", killed)
        with pytest.raises(KeyboardInterrupt):
            write_release_draws(releases, KEYS[0], 3, tmp_path)
    assert digests(tmp_path) == before
    (tmp_path / ".draws-killed").mkdir()
    write_release_draws(releases, KEYS[0], 3, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "draws.omx", "draws.parquet"]
    assert (tmp_path / "README.md").read_text("utf-8").startswith("# 3 draws")
