"""A planted zone and a planted count are found nowhere outside the confidential folder, whatever happens."""

from __future__ import annotations

import gzip
import pickle
import stat
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow.parquet as pq
import pytest

import od_assets.assets.inputs
from od_core.archive.release_key import ReleaseKey

from .conftest import Project, failure_text, records

CANARY = "CANARY77Q"
COUNT = 987_654_321_987
FORMS = {
    "zone": CANARY.encode(),
    "zone in UTF-16": CANARY.encode("utf-16-le"),
    "count as text": str(COUNT).encode(),
    "count as an integer": COUNT.to_bytes(8, "little"),
    "count pickled": pickle.dumps(COUNT)[3:-1],
}


@pytest.fixture
def kept_project(make_project: Callable[[], Project], tmp_path: Path) -> Project:
    """A project whose Dagster instance writes to the disk, as a real one does."""
    project = make_project()
    (tmp_path / "dagster").mkdir()
    project.instance = dg.DagsterInstance.local_temp(
        str(tmp_path / "dagster"), overrides={"telemetry": {"enabled": False}}
    )
    return project


def leaks(root: Path) -> list[str]:
    """Files outside the confidential folder, and outside the inputs, that hold a planted value in any form."""
    found = []
    for path in root.rglob("*"):
        confidential = root / "var" / "confidential"
        if not path.is_file() or path.is_relative_to(confidential) or path.parent == root:
            continue
        content = path.read_bytes()
        texts = [content]
        if content[:2] == b"\x1f\x8b":
            texts.append(gzip.decompress(content))
        if path.suffix == ".parquet":
            texts.append(pq.read_table(path).to_pandas().to_csv().encode())
        for text in texts:
            found += [f"{path.name}: {form}" for form, value in FORMS.items() if value in text]
    return found


def test_the_search_finds_what_is_planted(tmp_path: Path) -> None:
    folder = tmp_path / "var"
    folder.mkdir()
    pd.DataFrame({"zone": [CANARY] * 500}).to_parquet(folder / "planted.parquet", compression="zstd")
    (folder / "planted.bin").write_bytes(b"x" + COUNT.to_bytes(8, "little"))
    (folder / "planted.gz").write_bytes(gzip.compress(str(COUNT).encode()))
    assert {leak.split(":")[0] for leak in leaks(tmp_path)} == {"planted.parquet", "planted.bin", "planted.gz"}


def test_a_published_month_holds_nothing_planted(kept_project: Project) -> None:
    planted = records()
    planted.loc[:1, "origin"] = CANARY  # within the allowed share of faults
    kept_project.write_records(planted)
    assert kept_project.run().success
    assert leaks(kept_project.root) == []


def plant_too_many(project: Project) -> None:
    project.write_records(records().assign(origin=CANARY))


def plant_a_count(project: Project) -> None:
    project.write_records(records().assign(trips=f"{COUNT}.5"))


def plant_in_a_broken_file(project: Project) -> None:
    lines = ["date,origin,destination", f'2001-01-01,"{CANARY},Z00', f"{COUNT},\xff"]
    (project.root / "2001-01.csv").write_bytes("\n".join(lines).encode("latin-1"))


@pytest.mark.parametrize("plant", [plant_too_many, plant_a_count, plant_in_a_broken_file])
def test_a_refused_month_holds_nothing_planted(kept_project: Project, plant: Callable[[Project], None]) -> None:
    plant(kept_project)
    component = kept_project.component()
    if plant is plant_a_count:
        component = kept_project.component(trips__columns={"date": "date", "trips": "trips"})
    result = kept_project.run(component)
    assert not result.success
    assert leaks(kept_project.root) == []
    assert CANARY not in failure_text(result)


def test_an_unforeseen_error_holds_nothing_planted(kept_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise KeyError(CANARY)
        except KeyError as error:
            raise ValueError(f"could not convert {CANARY} {COUNT}") from error

    monkeypatch.setattr(od_assets.assets.inputs, "count_records", fail)
    result = kept_project.run()
    assert "OD-CONFIDENTIAL-ERROR" in failure_text(result)
    assert leaks(kept_project.root) == []
    details = list((kept_project.var / "confidential" / "errors").iterdir())
    assert [CANARY in detail.read_text(encoding="utf-8") for detail in details] == [True]


def test_the_confidential_folder_is_for_its_owner_alone(kept_project: Project) -> None:
    assert kept_project.run().success
    confidential = kept_project.var / "confidential"
    assert (confidential / str(ReleaseKey("trips", "2001-01")) / "raw_trips.parquet").exists()
    for path in (confidential, *confidential.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
