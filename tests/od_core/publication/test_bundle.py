"""The bundle: what is in it, that it appears whole or not at all, and that it is never replaced."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil

import duckdb
import openmatrix
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import OdError, open_release
from od_core.publication.bundle import differing_files
from od_core.publication.database import store_release
from tests.od_core.publication.examples import (
    HOMES,
    KEY,
    KINDS,
    WORKS,
    facts,
    geography,
    release,
    sealed_again,
    staged_bundle,
)

NAMES = ("all", "region", "county", "zone")
FILES = {
    *("flows.parquet", "flows.csv", "flows.sdmx.csv", "flows.sdmx.json", "noisy_measurements.parquet"),
    *("areas.parquet", "areas.csv", "certificate.json", "certificate.html", "certificate.schema.json"),
    *("codebook.md", "datapackage.json", "README.txt", "report.html", "SHA256SUMS"),
    *(f"flows_{origin}_{destination}.omx" for origin in NAMES for destination in NAMES),
}


def bundled(made, target):
    """The bundle of a release; it is not there before its body has ended."""
    with staged_bundle(made, facts(made), target):
        assert not target.exists()
    return target


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_hold_the_release(tmp_path, kind):
    """CSV files as text, Parquet files with types and without traces of the tools that made them."""
    made = release(kind)
    bundle = bundled(made, tmp_path / "r1")
    assert {path.name for path in bundle.iterdir()} == FILES
    rows = list(csv.reader(io.StringIO((bundle / "flows.csv").read_bytes().decode("utf-8"), newline="")))
    flows = [
        made.flows_at(*pair, interval=True).assign(origin_level=pair[0], destination_level=pair[1])
        for pair in itertools.product(NAMES, NAMES)
    ]
    assert rows[0] == ["origin_level", "destination_level", "origin", "destination", "trips", "lower", "upper"]
    listed = pd.concat(flows, ignore_index=True)[rows[0]]
    assert rows[1:] == listed.astype(str).to_numpy().tolist()
    for name, frame in (("flows", listed), ("noisy_measurements", made.measurements)):
        table = pq.read_table(bundle / f"{name}.parquet")
        assert not table.schema.metadata
        pd.testing.assert_frame_equal(table.to_pandas(), frame, check_dtype=True)

    areas = pd.read_csv(bundle / "areas.csv", dtype=str, keep_default_na=False)
    zone_lists = [HOMES] + ([WORKS] if "destinations" in KINDS[kind] else [])
    assert len(areas) == sum(1 + sum(zones[level].nunique() for level in zones) for zones in zone_lists)
    parquet = pq.read_table(bundle / "areas.parquet").to_pandas()
    assert parquet.fillna("").astype(str).to_numpy().tolist() == areas.to_numpy().tolist()
    digests = (made.plan.tree.origin.digest, made.plan.tree.destination.digest)
    for digest, zones in zip(dict.fromkeys(digests), zone_lists, strict=True):
        mine = areas[areas["geography"] == digest]
        for level, (upper, name) in enumerate(zip(["", "region", "county"], zones, strict=True), start=1):
            listed = mine[mine["level_name"] == name]
            parents = zones[upper] if upper else ["all"] * len(zones)
            assert set(zip(listed["area"], listed["parent"], strict=True)) == set(
                zip(zones[name], parents, strict=True)
            )
            assert set(listed["level"]) == {str(level)}
            assert listed["position"].tolist() == [str(k) for k in range(len(listed))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_measurements_give_the_same_bytes(tmp_path, kind):
    """Made anew, and made from what was read back from the bundle or the database."""
    made = release(kind)
    first = bundled(made, tmp_path / "one" / "r1")
    store_release(tmp_path / "release.duckdb", made, KEY, facts(made))
    again = {
        "two": made,
        "from the bundle": open_release(first),
        "from the database": open_release(tmp_path / "release.duckdb"),
    }
    for name, other in again.items():
        assert content(bundled(other, tmp_path / name / "r1")) == content(first), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return bundled(release(), tmp_path_factory.mktemp("whole") / "r1")


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of a whole bundle and its zip file, to be damaged."""
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "r1"


SOME = ("flows.csv", "flows.parquet", "flows_zone_all.omx", "flows.sdmx.json", "certificate.json", "datapackage.json")


@pytest.mark.parametrize("file", [*SOME, "codebook.md", "SHA256SUMS"])
@pytest.mark.parametrize("how", ["a byte", "missing", "cut"])
def test_a_public_bundle_that_changed_is_refused_and_kept(copied, tmp_path, file, how):
    """It is neither repaired nor replaced, and the body does not run."""
    bundle = copied
    path = bundle / file
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        place = whole.index(b"2001-06") if file == "certificate.json" else len(whole) // 2
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    changed = content(bundle)
    with pytest.raises(OdError) as refused, staged_bundle(release(), facts(release()), bundle):
        pytest.fail("the body ran")
    assert refused.value.code == "OD-BUNDLE-CHANGED"
    assert refused.value.message.endswith(f"different: {file}")
    assert content(bundle) == changed
    assert {path.name for path in tmp_path.iterdir()} == {"r1", "r1.zip"}


WRITER = b"parquet-cpp-arrow version "


@pytest.mark.parametrize("file", ["flows.parquet", "noisy_measurements.parquet"])
def test_a_changed_byte_anywhere_in_a_table_is_found(whole, copied, file):
    """Data, headers and footer, also where the checksums are those of the changed file."""
    path = copied / file
    bytes_of = path.read_bytes()
    writer = range(bytes_of.rindex(WRITER) - 3, bytes_of.rindex(WRITER) + len(WRITER) + 8)  # with the length before it
    for place in set(range(3, len(bytes_of), 53)) - set(writer):
        path.write_bytes(bytes_of[:place] + bytes([bytes_of[place] ^ 4]) + bytes_of[place + 1 :])
        sealed_again(copied)
        assert differing_files(whole, copied) == [file]


def test_a_table_of_another_writer_is_the_same_table(tmp_path):
    """Its bytes may differ where its rows do not: only then, and it is left as it is."""
    path = bundled(release(), tmp_path / "r1") / "flows.parquet"
    whole, other = path.read_bytes(), release().flows.assign(trips=lambda flows: flows["trips"] + 1)
    path.write_bytes(whole.replace(WRITER + b"2", WRITER + b"1"))
    sealed_again(tmp_path / "r1")
    older = path.read_bytes()
    assert older != whole
    with staged_bundle(release(), facts(release()), tmp_path / "r1"):
        pass
    assert path.read_bytes() == older
    pq.write_table(pa.Table.from_pandas(other, preserve_index=False).replace_schema_metadata(None), path)
    path.write_bytes(path.read_bytes().replace(WRITER + b"2", WRITER + b"1"))
    sealed_again(tmp_path / "r1")
    with pytest.raises(OdError, match="OD-BUNDLE-CHANGED"), staged_bundle(release(), facts(release()), tmp_path / "r1"):
        pytest.fail("the body ran")


def test_words_are_those_of_the_software_that_the_certificate_names(copied):
    """Where it is the same, they are the same to the byte, whatever the checksums say."""
    (copied / "codebook.md").write_text("In other words.\n", encoding="utf-8")
    sealed_again(copied)
    with pytest.raises(OdError) as refused, staged_bundle(release(), facts(release()), copied):
        pytest.fail("the body ran")
    assert refused.value.message.endswith("different: codebook.md")
    stated = json.loads((copied / "certificate.json").read_text(encoding="utf-8"))
    stated["software"]["pandas"] = "3.0"
    (copied / "certificate.json").write_text(json.dumps(stated, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sealed_again(copied)
    with staged_bundle(release(), facts(release()), copied):
        pass
    assert (copied / "codebook.md").read_text(encoding="utf-8") == "In other words.\n"


def test_matrices_that_another_version_wrote_are_held_to_their_numbers(copied):
    """Other bytes of the same numbers are the same; another number is another bundle, sealed again or not."""
    name = "flows_zone_zone.omx"
    with openmatrix.open_file(str(copied / name), "a") as file:
        file.root._v_attrs["WRITTEN_BY"] = "another version"
    sealed_again(copied)
    with pytest.raises(OdError, match=name), staged_bundle(release(), facts(release()), copied):
        pytest.fail("the body ran")
    stated = json.loads((copied / "certificate.json").read_text(encoding="utf-8"))
    stated["software"]["tables"] = "3.0"
    (copied / "certificate.json").write_text(json.dumps(stated, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sealed_again(copied)
    with staged_bundle(release(), facts(release()), copied):
        pass
    with openmatrix.open_file(str(copied / name), "a") as file:
        file["trips"][0, 0] += 1
    sealed_again(copied)
    with pytest.raises(OdError, match=name), staged_bundle(release(), facts(release()), copied):
        pytest.fail("the body ran")


def test_a_zip_file_that_was_lost_is_made_again(copied):
    """From the public folder, as it stands."""
    place = copied.with_name("r1.zip")
    whole = place.read_bytes()
    place.unlink()
    with staged_bundle(release(), facts(release()), copied):
        pass
    assert place.read_bytes() == whole
    place.write_bytes(whole[:-1])
    with pytest.raises(OdError, match=r"different: r1\.zip"), staged_bundle(release(), facts(release()), copied):
        pytest.fail("the body ran")


def test_a_file_that_does_not_belong_to_a_bundle_is_found(tmp_path):
    (bundled(release(), tmp_path / "r1") / "more.csv").write_text("origin,destination\n")
    with pytest.raises(OdError) as refused, staged_bundle(release(), facts(release()), tmp_path / "r1"):
        pytest.fail("the body ran")
    assert refused.value.message.endswith("different: more.csv")


def test_an_unchanged_bundle_stays_as_it_is(tmp_path):
    """Bytes, times and the software that first made it; the body runs again."""
    bundle = bundled(release(), tmp_path / "r1")
    older = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
    older["software"]["numpy"] = "1.0"
    (bundle / "certificate.json").write_text(json.dumps(older, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sealed_again(bundle)
    before, times = content(bundle), {path.name: path.stat().st_mtime_ns for path in bundle.iterdir()}
    ran = []
    with staged_bundle(release(), facts(release()), bundle):
        ran.append(True)
    assert ran
    assert content(bundle) == before
    assert {path.name: path.stat().st_mtime_ns for path in bundle.iterdir()} == times


def test_other_measurements_are_another_bundle(tmp_path):
    """The same flows released a second time have other noise, and so other files."""
    bundle = bundled(release(), tmp_path / "r1")
    other = release("bounded", seed=5)
    with pytest.raises(OdError) as refused, staged_bundle(other, facts(other), bundle):
        pytest.fail("the body ran")
    for name in ("flows.csv", "flows.parquet", "flows.sdmx.csv", "flows_zone_zone.omx", "noisy_measurements.parquet"):
        assert name in refused.value.message


@pytest.mark.parametrize(
    "failure", [RuntimeError("a full disk"), KeyboardInterrupt(), OdError("X", "y", next_step="z")]
)
def test_a_body_that_fails_leaves_nothing_to_see(tmp_path, failure):
    for _ in range(2):
        with pytest.raises(type(failure)), staged_bundle(release(), facts(release()), tmp_path / "2001-06" / "r1"):
            raise failure
        assert list((tmp_path / "2001-06").iterdir()) == []


def test_a_store_that_fails_leaves_no_bundle_and_no_row(tmp_path):
    """The database refuses a table half way: its transaction is undone, and the folder is not renamed."""
    database, made = tmp_path / "release.duckdb", release()
    with duckdb.connect(str(database)) as connection:
        connection.execute('CREATE TABLE checks (release VARCHAR, subject VARCHAR, "check" VARCHAR, passed INTEGER[])')
    with pytest.raises(duckdb.Error), staged_bundle(made, facts(made), tmp_path / "r1"):
        store_release(database, made, KEY, facts(made))
    assert [path.name for path in tmp_path.iterdir()] == ["release.duckdb"]
    with duckdb.connect(str(database), read_only=True) as connection:
        for table in ("releases", "areas", "flows", "measurements"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


def test_what_an_interrupted_run_left_is_cleared_away(tmp_path):
    """A half-made bundle beside the place is not mixed into the new one."""
    (tmp_path / ".r1.staged").mkdir()
    (tmp_path / ".r1.staged" / "left_over.parquet").write_bytes(b"half")
    assert {path.name for path in bundled(release(), tmp_path / "r1").iterdir()} == FILES
    assert {path.name for path in tmp_path.iterdir()} == {"r1", "r1.zip"}


def test_nothing_in_a_bundle_runs_in_a_spreadsheet(tmp_path):
    """Codes that begin with a sign of a formula are refused with the geography, so no file can hold one."""
    bundle = bundled(release(), tmp_path / "r1")
    for name in ("flows.csv", "areas.csv"):
        rows = csv.reader(io.StringIO((bundle / name).read_bytes().decode("utf-8"), newline=""))
        assert [cell for row in rows for cell in row if cell[:1] in set("=+-@\t\r")] == []
    with pytest.raises(OdError, match="OD-GEOGRAPHY-FORMULA"):
        geography(HOMES.assign(region=['=HYPERLINK("x")'] + ["b"] * 6))
