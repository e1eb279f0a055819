"""A published release of any kind is opened from its folder, its .zip file, or the database."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, GroupSizeRelease, Mechanism, OdError, Release, StabilityHistogram, open_release
from od_core.flows.publishing.kind import FLOWS
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.publication.read_back import read_bundle_certificate
from od_core.stops.publishing import STOPS
from od_core.stops.release import StopsRelease
from tests.od_core.group_sizes.test_publication import KEY as GROUPS_KEY
from tests.od_core.group_sizes.test_publication import bundle as group_bundle
from tests.od_core.group_sizes.test_publication import published as group_sizes
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication import examples
from tests.od_core.publication.examples import KEY, facts, files_of, release, released_trips, staged_bundle
from tests.od_core.stops.test_publication import published as stops


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of each kind, and a database with flows, group sizes and boxes."""
    root = tmp_path_factory.mktemp("shelf")
    with staged_bundle(release(), facts(release()), root / "flows"):
        FLOWS.store(root / "release.duckdb", release(), KEY, facts(release()))
    made, certificate = group_sizes(root)
    group_bundle(made, certificate, root / "group_sizes")
    (root / "stops").mkdir()
    published = stops(root / "stops")
    GROUP_SIZES.store(root / "release.duckdb", made, GROUPS_KEY, certificate)
    GROUP_SIZES.store(root / "groups.duckdb", made, GROUPS_KEY, certificate)
    boxes = open_release(published.bundle)
    STOPS.store(root / "release.duckdb", boxes, published.key, read_bundle_certificate(published.bundle))
    FLOWS.store(root / "release.duckdb", release(), KEY, facts(release()))
    shutil.move(published.bundle, root / "boxes")
    return root


def zipped(bundle: Path, target: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(target, "w") as packed:
        for name, file in files_of(bundle).items():
            packed.write(file, prefix + name)
    return target


@pytest.mark.representatives("r1/")
@pytest.mark.parametrize("prefix", ["", "r1/"])
def test_every_kind_comes_back_from_folder_and_zip(shelf, tmp_path, prefix):
    places = {"flows": Release, "group_sizes": GroupSizeRelease, "boxes": StopsRelease}
    for name, kind in places.items():
        folder, packed = open_release(shelf / name), open_release(zipped(shelf / name, tmp_path / "r1.zip", prefix))
        assert isinstance(folder, kind)
        assert isinstance(packed, kind)
        assert packed.plan.digest == folder.plan.digest
        assert packed.spent == folder.spent
    flows = open_release(zipped(shelf / "flows", tmp_path / "r1.zip", prefix), "commuters", "2001-06")
    pd.testing.assert_frame_equal(flows.flows, release().flows)
    pd.testing.assert_frame_equal(flows.measurements, release().measurements)
    sizes = open_release(zipped(shelf / "group_sizes", tmp_path / "r1.zip", prefix))
    pd.testing.assert_frame_equal(sizes.histogram, open_release(shelf / "group_sizes").histogram)
    boxes = open_release(zipped(shelf / "boxes", tmp_path / "r1.zip", prefix))
    assert np.array_equal(boxes.counts, open_release(shelf / "boxes").counts)


def test_a_release_in_the_database_of_another_kind_is_told_from_none(shelf):
    with pytest.raises(OdError, match="OD-RELEASE-KIND:") as refused:
        open_release(shelf / "release.duckdb", "departures")
    assert str(GROUPS_KEY) in refused.value.message
    assert "bundle" in refused.value.next_step
    with pytest.raises(OdError, match="OD-RELEASE-KIND:"):
        open_release(shelf / "groups.duckdb")
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT:") as refused:
        open_release(shelf / "release.duckdb", period="1999-01")
    assert str(KEY) in refused.value.message
    assert len(open_release(shelf / "release.duckdb").flows) == len(release().flows)


def no_zip(path: Path) -> None:
    path.write_bytes(b"no zip file")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def one_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"PAR1") + 20] ^= 1
    path.write_bytes(content)


def without_a_certificate(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("tables/flows.csv", "origin,destination,trips\r\n")


@pytest.mark.parametrize("damage", [no_zip, cut_short, one_byte, without_a_certificate])
def test_a_broken_zip_is_refused_by_its_name(shelf, tmp_path, damage):
    path = zipped(shelf / "flows", tmp_path / "r7.zip")
    damage(path)
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT:") as refused:
        open_release(path)
    assert "r7.zip" in refused.value.message


def test_a_zip_writes_nowhere_but_where_it_is_unpacked(shelf, tmp_path, monkeypatch):
    """Names in it that climb out of the folder stay inside; and nothing is left behind."""
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "unpacked"))
    path = zipped(shelf / "flows", tmp_path / "r1.zip")
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr("../../outside.txt", "x")
        packed.writestr(f"{tmp_path}/absolute.txt", "x")
    assert len(open_release(path).flows) == len(release().flows)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r1.zip", "unpacked"]
    assert not list((tmp_path / "unpacked").iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"release": 3}', '{"format": "x"}'])
def test_a_certificate_that_cannot_be_read_is_no_bundle(tmp_path, text):
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "certificate.json").write_text(text, encoding="utf-8")
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT:"):
        open_release(tmp_path / "r1")


def test_a_certificate_of_a_later_version_is_refused_with_its_format(shelf, tmp_path):
    shutil.copytree(shelf / "flows", tmp_path / "r1")
    path = tmp_path / "r1" / "certificate.json"
    stated = facts(release())["format"]
    path.write_text(path.read_text(encoding="utf-8").replace(stated, "od-release certificate 99"), encoding="utf-8")
    with pytest.raises(OdError, match=r"OD-CERTIFICATE-FORMAT.*certificate 99"):
        open_release(tmp_path / "r1")


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_a_bundle_with_files_of_a_later_version_is_refused(shelf, tmp_path, packed):
    bundle = Path(shutil.copytree(shelf / "flows", tmp_path / "r1"))
    certificate = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
    certificate["bundle_format"] += 1
    (bundle / "certificate.json").write_text(json.dumps(certificate), encoding="utf-8")
    with pytest.raises(OdError, match=r"OD-BUNDLE-NEWER: commuters/2001-06/r1 has a bundle of a later format"):
        open_release(zipped(bundle, tmp_path / "r1.zip") if packed else bundle)


def without_noisy_counts(bundle: Path) -> None:
    path = bundle / "tables/noisy_measurements.parquet"
    pd.read_parquet(path).drop(columns="noisy").to_parquet(path)


def with_other_plan(bundle: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = bundle / "certificate.json"
    certificate = json.loads(path.read_text(encoding="utf-8"))
    change(certificate["plan"])
    path.write_text(json.dumps(certificate), encoding="utf-8")


def without_the_unit(bundle: Path) -> None:
    with_other_plan(bundle, lambda plan: plan.pop("unit"))


def of_a_later_mechanism(bundle: Path) -> None:
    with_other_plan(bundle, lambda plan: plan.update(mechanism="inftda_99"))


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (without_noisy_counts, "OD-RELEASE-ABSENT", "noisy"),
        (without_the_unit, "OD-RELEASE-ABSENT", "unit"),
        (of_a_later_mechanism, "OD-MECHANISM-UNKNOWN", "inftda_99"),
    ],
)
def test_a_bundle_that_lacks_a_fact_is_refused_with_its_name(shelf, tmp_path, change, code, named):
    shutil.copytree(shelf / "flows", tmp_path / "r1")
    change(tmp_path / "r1")
    with pytest.raises(OdError, match=named) as refused:
        open_release(tmp_path / "r1")
    assert refused.value.code == code


@pytest.mark.parametrize(
    "mechanism", ["stability_histogram", StabilityHistogram("bun_nissim_stemmer"), "vanilla_gauss"], ids=str
)
def test_releases_that_measured_pairs_of_zones_alone_are_opened(mechanism: str | Mechanism, tmp_path: Path) -> None:
    budget = Budget(epsilon=1, delta="1e-8")
    made = released_trips(ledger_rows.FLOWS, ledger_rows.ONE_LEVEL, budget=budget, mechanism=mechanism)
    examples.publish_bundle(made, facts(made), tmp_path / "r1")
    opened = open_release(tmp_path / "r1")
    assert opened.flows.equals(made.flows)
    assert opened.measurements.equals(made.measurements)
    assert opened.plan.mechanism == made.plan.mechanism
    if mechanism == "vanilla_gauss":
        levels = made.levels[-1]
        assert opened.flows_at(*levels, interval=True).equals(made.flows_at(*levels, interval=True))
