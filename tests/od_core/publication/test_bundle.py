"""The bundle: what is in it, that it appears whole or not at all, and that it is never replaced."""

import functools
import hashlib
import json
import shutil
import tempfile
import zipfile
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
import frictionless
import openmatrix
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tables

from od_core import OdError, open_release
from od_core.files.durable import Written
from od_core.flows.publishing.kind import FLOWS
from od_core.publication import bundle as bundle_module
from od_core.publication import bundle_files
from od_core.publication.bundle import publish_folder, restore_folder
from od_core.publication.bundle_differences import list_differing_files, reword_as_published
from od_core.publication.bundle_files import check_bundle
from od_core.publication.certificate import compute_certificate_digest
from tests.od_core.files.disks import room_for, umask
from tests.od_core.publication.examples import (
    KEY,
    drawn,
    facts,
    files_of,
    publish_bundle,
    restated,
    sealed_again,
    staged_bundle,
)

NAMES = ("all", "region", "county", "zone")
SOME_KINDS = ("bounded", "unbounded origin tree", "unknown zones", "no trips")
"""Both sorts of neighbours and trees, other destinations, unknown zones and no trips each occur."""


def release(kind="two levels", seed=4):
    return drawn(kind, seed)


AT_THE_TOP = {"certificate.json", "certificate.html", "certificate.schema.json", "codebook.md", "datapackage.json"}
AT_THE_TOP |= {"README.txt", "report.html", "atlas.html", "SHA256SUMS"}
SDMX = {f"sdmx/flows.sdmx.{end}" for end in ("csv", "json", "xml")}
PAIRS = {f"flows_{origin}_{destination}" for origin in NAMES for destination in NAMES}
FILES = AT_THE_TOP | SDMX | {"tables/flows.parquet", "tables/noisy_measurements.parquet", "spreadsheet/flows.xlsx"}
FILES |= {"tables/areas.parquet", "tables/areas.csv"}
FILES |= {f"tables/{pair}.csv" for pair in PAIRS} | {f"omx/{pair}.omx" for pair in PAIRS}
OF_TWO_LEVELS = {name for name in FILES if "county" not in name}
INDICATORS = {"tables/indicators.csv", "tables/indicators.parquet"}
"""Where origins and destinations have the same areas."""


def bundled(made, target):
    """The bundle of a release; it is not there before its body has ended."""
    with staged_bundle(made, facts(made), target):
        assert not target.exists()
    return target


@functools.cache
def written_files(seed):
    """The bytes of every file of the bundle of a release, written once."""
    with tempfile.TemporaryDirectory() as folder:
        return content(bundled(release(seed=seed), Path(folder) / "r1"))


def staged_again(target, published=None, seed=4):
    """The bundle of a release, prepared beside its place from bytes that were written before."""

    def write(folder):
        for name, there in written_files(seed).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(there)

    return publish_folder(write, target, published)


def content(place):
    """The bytes of every file of a folder, or of one file."""
    return {name: path.read_bytes() for name, path in (files_of(place) if place.is_dir() else {"": place}).items()}


@pytest.fixture(scope="module")
def bundle_of(tmp_path_factory):
    """The bundle of each kind of release, written once. Not to be changed."""
    return functools.cache(lambda kind: bundled(release(kind), tmp_path_factory.mktemp("bundle") / "r1"))


@pytest.mark.exhaustive
@pytest.mark.representatives("unbounded origin tree")
@pytest.mark.parametrize("kind", SOME_KINDS)
def test_the_same_measurements_give_the_same_bytes(bundle_of, tmp_path, monkeypatch, kind):
    """Made by other numbers of threads, from what was read back from the bundle or the database."""
    made = release(kind)
    first = bundle_of(kind)
    FLOWS.store(tmp_path / "release.duckdb", made, KEY, facts(made))
    again = {"the bundle": open_release(first), "the database": open_release(tmp_path / "release.duckdb")}
    for threads, (name, other) in enumerate(again.items(), start=1):
        monkeypatch.setenv("OD_THREADS", str(threads))
        assert content(bundled(other, tmp_path / name / "r1")) == content(first), name


@pytest.fixture(scope="module")
def whole(bundle_of):
    """A whole bundle and its zip file. Not to be changed."""
    return bundle_of("two levels")


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of a whole bundle and its zip file, to be damaged."""
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "r1"


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("tables/flows.parquet", "cut"),
        ("tables/flows_zone_zone.csv", "a byte"),
        ("certificate.json", "a byte"),
        ("SHA256SUMS", "missing"),
    ],
)
def test_a_damaged_bundle_is_replaced_by_what_its_measurements_give(whole, copied, tmp_path, file, how):
    """The same bytes again, where the ledger has the certificate; and nothing else is left."""
    path = copied / file
    there = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(there[: len(there) // 2])
    else:
        place = there.index(b"2001-06") if file == "certificate.json" else len(there) // 2
        path.write_bytes(there[:place] + bytes([there[place] ^ 1]) + there[place + 1 :])
    copied.with_name("r1.zip").write_bytes(b"of the damaged bundle")
    with staged_again(copied, compute_certificate_digest(facts(release()))):
        assert content(copied) != content(whole)
    assert content(copied) == content(whole)
    assert {path.name for path in tmp_path.iterdir()} == {"r1", "r1.zip"}
    assert list(check_bundle(copied)) == []


def refused(bundle, published=None, seed=4):
    """The bundle is left as it is, and so are the files beside it; the body does not run. Returns what is different."""
    before = content(bundle), content(bundle.parent / "r1.zip")
    with pytest.raises(OdError, match="OD-BUNDLE-CHANGED") as error, staged_again(bundle, published, seed):
        pytest.fail("the body ran")
    assert (content(bundle), content(bundle.parent / "r1.zip")) == before
    assert {path.name for path in bundle.parent.iterdir()} == {"r1", "r1.zip"}
    return error.value.message.partition("; different: ")[2].split(", ")


@pytest.mark.parametrize(
    "file",
    [
        "tables/flows_zone_zone.csv",
        "tables/flows_region_zone.csv",
        "tables/flows.parquet",
        "certificate.json",
        "codebook.md",
    ],
)
def test_a_sound_file_that_differs_is_never_replaced(copied, file):
    """Its checksum holds and it can be read, so it is another one; not even beside a file that is damaged."""
    place = (copied / file).read_bytes().rindex(b"1" if file == "tables/flows_zone_zone.csv" else b"a")
    there = (copied / file).read_bytes()
    if file == "tables/flows.parquet":
        table = pq.read_table(copied / file)
        pq.write_table(table.slice(1), copied / file)
    elif file == "tables/flows_region_zone.csv":  # the same rows in another order
        head, *rows, end = there.split(b"\r\n")
        (copied / file).write_bytes(b"\r\n".join([head, *rows[::-1], end]))
    else:
        (copied / file).write_bytes(there[:place] + b"9" + there[place + 1 :])
    sealed_again(copied)
    (copied / "tables/areas.csv").unlink()
    published = compute_certificate_digest(facts(release()))
    assert file in refused(copied, published=published)


def test_a_damaged_bundle_of_other_measurements_is_kept(copied):
    """What would be put in its place was never published: neither the ledger nor the bundle has its certificate."""
    (copied / "tables/flows_all_all.csv").unlink()
    assert "tables/flows_all_all.csv" in refused(copied, seed=5)
    (copied / "certificate.json").unlink()
    assert "certificate.json" in refused(copied)
    assert "certificate.json" in refused(copied, published="0" * 64)


def test_a_file_that_was_damaged_before_its_checksum_was_made_is_replaced(whole, copied):
    """As HDF5 left them where the disk refused a part: checksums, descriptor and zip file are of the damaged file."""
    name = "omx/flows_zone_zone.omx"
    damaged = (copied / name).read_bytes()[:-2000]
    (copied / name).write_bytes(damaged)
    package = json.loads((copied / "datapackage.json").read_text(encoding="utf-8"))
    (stated,) = [resource for resource in package["resources"] if resource["path"] == name]
    stated.update(bytes=len(damaged), hash=f"sha256:{hashlib.sha256(damaged).hexdigest()}")
    (copied / "datapackage.json").write_text(json.dumps(package, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sealed_again(copied)
    assert list(check_bundle(copied)) == [f"{name} cannot be read, although it matches its checksum"]
    publish_bundle(release(), facts(release()), copied)
    assert content(copied) == content(whole)
    assert list(check_bundle(copied)) == []


def test_a_workbook_is_compared_by_its_parts(whole, copied):
    """Another version of the compressor gives other bytes of the same workbook."""
    path = copied / "spreadsheet/flows.xlsx"
    with zipfile.ZipFile(path) as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    last = "xl/worksheets/sheet10.xml"
    changed = parts | {last: parts[last].replace(b"</v>", b"0</v>", 1)}
    for content, different in ((parts, []), (changed, ["spreadsheet/flows.xlsx"])):
        with zipfile.ZipFile(path, "w") as archive:
            for name, part in content.items():
                archive.writestr(name, part, zipfile.ZIP_STORED)
        sealed_again(copied)
        assert path.read_bytes() != (whole / "spreadsheet/flows.xlsx").read_bytes()
        assert [name for name in list_differing_files(whole, copied) if name != "datapackage.json"] == different


def test_a_bundle_of_format_1_keeps_its_files(tmp_path):
    """Its certificate states no format; it has all pairs of levels in one CSV file, which is made again as it was."""
    now = facts(release())
    old = {name: fact for name, fact in now.items() if name not in ("bundle_format", "formats")}
    bundle, published = tmp_path / "r1", compute_certificate_digest(old)
    publish_bundle(release(), old, bundle)
    parts = {path.name for path in (*bundle.glob("flows_*.csv"), *bundle.glob("*.xlsx"))}
    listed = pd.read_csv(bundle / "flows.csv", dtype=dict.fromkeys(("origin", "destination"), str), na_filter=False)
    assert parts == set()
    pd.testing.assert_frame_equal(listed, pd.read_parquet(bundle / "flows.parquet"), check_dtype=False)
    before = content(bundle)
    (bundle / "flows.csv").unlink()
    publish_bundle(release(), reword_as_published(now, bundle, published), bundle, published=published)
    assert content(bundle) == before


@pytest.mark.representatives("2-*")
@pytest.mark.parametrize(
    ("stated", "absent"), [(2, {*INDICATORS, "atlas.html"}), (3, {"atlas.html"}), (4, set()), (5, set())]
)
def test_a_bundle_of_an_earlier_format_has_its_own_files(tmp_path, stated, absent):
    publish_bundle(release(), facts(release()) | {"bundle_format": stated}, tmp_path / "r1")
    assert open_release(tmp_path / "r1").flows.equals(release().flows)
    expected = (OF_TWO_LEVELS | INDICATORS) - absent - ({"sdmx/flows.sdmx.xml"} if stated < 5 else set())
    assert {*files_of(tmp_path / "r1")} == {Path(name).name for name in expected}
    assert ("atlas" in (tmp_path / "r1" / "report.html").read_text(encoding="utf-8")) == ("atlas.html" not in absent)


def test_a_bundle_keeps_the_format_that_its_certificate_states(whole):
    """Where later software, whose bundles have another format, verifies or repairs it; no other certificate counts."""
    now = facts(release())
    later = now | {"bundle_format": 3}
    assert reword_as_published(later, whole, compute_certificate_digest(now)) == now
    assert reword_as_published(later, whole, "0" * 64) == reword_as_published(later, whole, None) == later


HALF_WRITTEN = ("tables/flows.parquet", "tables/noisy_measurements.parquet", "tables/areas.csv", "report.html")
HALF_WRITTEN += ("tables/flows_zone_zone.csv", "omx/flows_zone_zone.omx", "spreadsheet/flows.xlsx", "codebook.md")
HALF_WRITTEN += ("sdmx/flows.sdmx.csv", "sdmx/flows.sdmx.json", "certificate.json", "SHA256SUMS", ".r1.zip.staged")
"""A file of every writer."""


def test_a_disk_that_refuses_a_part_of_any_file_publishes_nothing(whole, tmp_path, monkeypatch):
    """Half of the file's bytes are written; the writer may keep the error to itself. All others are as they were."""
    write, write_zip = bundle_module._write, bundle_module.write_zip
    refusing = [""]

    def written(path: Path, *rest: Any) -> Any:
        name = path.relative_to(tmp_path / refusing[0] / ".r1.staged").as_posix()
        there = (whole / name).read_bytes()
        if name != refusing[0]:
            path.write_bytes(there)
            return Written(hashlib.sha256(there).hexdigest(), len(there))
        with room_for(len(there) // 2):
            return write(path, *rest)

    def zipped(folder: Path, release: str, path: Path) -> None:
        half = whole.with_name("r1.zip").stat().st_size // 2
        with room_for(half) if path.name == refusing[0] else nullcontext():
            write_zip(folder, release, path)

    monkeypatch.setattr(bundle_module, "_write", written)
    monkeypatch.setattr(bundle_module, "write_zip", zipped)
    published = []
    for refusing[0] in HALF_WRITTEN:
        place = tmp_path / refusing[0] / "r1"
        with suppress(OSError), staged_bundle(release(), facts(release()), place):
            pass
        published += [(refusing[0], path.name) for path in place.parent.iterdir()]
    assert published == []


def test_a_file_that_cannot_be_read_again_is_not_published(tmp_path, monkeypatch):
    """All bytes that a library handed over were written; they are no file of their format."""
    image = tables.File.get_file_image
    monkeypatch.setattr(tables.File, "get_file_image", lambda file: image(file)[:-2000])
    staged = staged_bundle(release(), facts(release()), tmp_path / "r1")
    with pytest.raises(OdError, match=r"OD-FILE-DAMAGED: flows_zone_zone\.omx"), staged:
        pytest.fail("the body ran")
    assert list(tmp_path.iterdir()) == []


def test_a_zip_file_that_differs_from_its_folder_is_not_published(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_files, "check_zip", lambda *_: iter(["r1.zip: flows.parquet differs"]))
    staged = staged_bundle(release(), facts(release()), tmp_path / "r1")
    with pytest.raises(OdError, match=r"OD-FILE-DAMAGED: the zip file .* flows\.parquet differs"), staged:
        pass
    assert not (tmp_path / "r1").exists()


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_only_their_owner_may_write_what_is_public(tmp_path, mask):
    """And all may read it, whatever the umask."""
    with umask(mask), staged_bundle(release(), facts(release()), tmp_path / "releases" / "2001-06" / "r1"):
        FLOWS.store(tmp_path / "public" / "release.duckdb", release(), KEY, facts(release()))
    modes = {path.relative_to(tmp_path): (path.is_dir(), path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}
    assert len(modes) > 20
    assert modes.pop(Path("public/.release.duckdb.lock")) == (False, 0o600)  # whoever may open it could keep it
    assert {path: mode for path, mode in modes.items() if mode not in ((True, 0o755), (False, 0o644))} == {}


WRITER = b"parquet-cpp-arrow version "


def of_another_writer(content: bytes) -> bytes:
    """Return a Parquet file as another version of Arrow might write it."""
    digit = pa.__version__[0]
    return content.replace(WRITER + digit.encode(), WRITER + str((int(digit) + 1) % 10).encode())


def test_a_table_of_another_writer_is_the_same_table(copied):
    """Its bytes may differ where its rows do not: only then, and it is left as it is."""
    path = copied / "tables/flows.parquet"
    whole, other = path.read_bytes(), release().flows.assign(trips=lambda flows: flows["trips"] + 1)
    path.write_bytes(of_another_writer(whole))
    sealed_again(copied)
    older = path.read_bytes()
    assert older != whole
    with staged_again(copied):
        pass
    assert path.read_bytes() == older
    pq.write_table(pa.Table.from_pandas(other, preserve_index=False).replace_schema_metadata(None), path)
    path.write_bytes(of_another_writer(path.read_bytes()))
    sealed_again(copied)
    assert "tables/flows.parquet" in refused(copied)


def test_words_are_those_of_the_software_that_the_certificate_names(copied):
    """Where it is the same, they are the same to the byte, whatever the checksums say."""
    (copied / "codebook.md").write_text("In other words.\n", encoding="utf-8")
    sealed_again(copied)
    assert refused(copied) == ["codebook.md"]
    restated(copied, lambda facts: facts["software"].update(pandas="3.0"))
    with staged_again(copied):
        pass
    assert (copied / "codebook.md").read_text(encoding="utf-8") == "In other words.\n"


def test_matrices_that_another_version_wrote_are_held_to_their_numbers(copied):
    """Other bytes of the same numbers are the same; another number is another bundle, sealed again or not."""
    name = "omx/flows_zone_zone.omx"

    @contextmanager
    def changed():
        with openmatrix.open_file(str(copied / name), "a") as file:
            yield file
        sealed_again(copied)

    with changed() as file:
        file.root._v_attrs["WRITTEN_BY"] = "another version"
    assert name in refused(copied)
    restated(copied, lambda facts: facts["software"].update(tables="3.0"))
    with staged_again(copied):
        pass
    with changed() as file:
        file["trips"][0, 0] += 1
    assert name in refused(copied)
    with changed() as file:
        file["trips"][0, 0] -= 1
        file["other"] = file["trips"][:]
    assert name in refused(copied)


def test_a_zip_file_that_was_lost_is_made_again(copied):
    """From the public folder, as it stands."""
    place = copied.with_name("r1.zip")
    whole = place.read_bytes()
    place.unlink()
    with staged_again(copied):
        pass
    assert place.read_bytes() == whole
    place.write_bytes(whole[:-1])
    with staged_again(copied):
        pass
    assert place.read_bytes() == whole


def test_no_other_bundle_takes_the_place_of_a_lost_one(copied):
    """Its folder comes back from the zip file, if that has the published certificate."""
    stated = json.loads((copied / "certificate.json").read_text("utf-8"))
    whole, published = content(copied), compute_certificate_digest(stated)
    zipped = copied.with_name("r1.zip").read_bytes()
    shutil.rmtree(copied)
    for _ in ("zip file kept", "zip file lost"):
        with pytest.raises(OdError, match=r"OD-BUNDLE-CHANGED: .* lost") as error, staged_again(copied, "0" * 64):
            pytest.fail("the body ran")
        assert error.value.next_step.startswith("restore it from a copy, or run its release again with the declaration")
        restore_folder(copied, str(KEY), "0" * 64)
        assert {path.name for path in copied.parent.iterdir()} <= {"r1.zip"}
        copied.with_name("r1.zip").unlink(missing_ok=True)
    copied.with_name("r1.zip").write_bytes(zipped)
    with umask(0o077):
        restore_folder(copied, str(KEY), published)
    assert content(copied) == whole
    assert {path.stat().st_mode & 0o777 for path in (copied, *copied.rglob("*"))} == {0o755, 0o644}
    assert copied.with_name("r1.zip").read_bytes() == zipped


def test_a_zip_file_of_another_bundle_is_kept(copied):
    """It is sound, and so not damaged: nobody knows which of the two is right."""
    there = (copied / "codebook.md").read_bytes()
    (copied / "codebook.md").write_bytes(b"In other words.")
    sealed_again(copied)
    zipped = copied.with_name("r1.zip").read_bytes()
    (copied / "codebook.md").write_bytes(there)
    sealed_again(copied)
    copied.with_name("r1.zip").write_bytes(zipped)
    assert refused(copied) == ["r1.zip"]


@pytest.mark.parametrize(
    ("formats", "folders"),
    [((), {"tables"}), (("csv", "spreadsheet"), {"tables", "spreadsheet"}), (("omx",), {"tables", "omx"})],
)
def test_a_series_chooses_the_formats_of_its_bundles(tmp_path, formats, folders):
    """Parquet tables are always there; the bundle opens, and other programs find its description true."""
    bundle = bundled_with(formats, tmp_path / "r1")
    files = files_of(bundle)
    assert {name.partition("/")[0] for name in files if "/" in name} == folders
    assert len({name.partition("/")[0] for name in files}) <= 14  # entries at the top
    assert any(name.endswith(".csv") for name in files) == ("csv" in formats)
    assert open_release(bundle).flows.equals(release().flows)
    report = frictionless.validate(str(bundle / "datapackage.json"))
    assert report.valid, report.flatten(["name", "type", "message"])[:5]


def bundled_with(formats, target):
    publish_bundle(release(), facts(release(), formats=formats), target)
    return target


def test_a_published_bundle_keeps_its_formats(tmp_path):
    """Whatever the series chooses now: no file is written beside it, and none is missed."""
    bundle = bundled_with(("csv",), tmp_path / "r1")
    before, published = content(bundle), compute_certificate_digest(facts(release(), formats=("csv",)))
    now = reword_as_published(facts(release(), formats=("omx", "sdmx")), bundle, published)
    publish_bundle(release(), now, bundle, published=published)
    assert content(bundle) == before


def test_a_file_that_does_not_belong_to_a_bundle_is_found(copied):
    """It is nobody's to remove, not even beside a damaged file."""
    (copied / "more.csv").write_text("origin,destination\n")
    assert refused(copied) == ["more.csv"]
    (copied / "tables/flows_all_all.csv").unlink()
    assert refused(copied) == ["more.csv", "tables/flows_all_all.csv"]


def test_an_unchanged_bundle_stays_as_it_is(copied):
    """Bytes, times and the software that first made it; the body runs again."""
    restated(copied, lambda facts: facts["software"].update(numpy="1.0"))
    before, times = content(copied), {name: path.stat().st_mtime_ns for name, path in files_of(copied).items()}
    ran = []
    with staged_again(copied):
        ran.append(True)
    assert ran
    assert content(copied) == before
    assert {name: path.stat().st_mtime_ns for name, path in files_of(copied).items()} == times


def test_a_store_that_fails_leaves_no_bundle_and_no_row(tmp_path):
    """The database refuses a table half way: nothing of the release is in it, and the folder is not renamed."""
    database, made = tmp_path / "release.duckdb", release()
    with duckdb.connect(str(database)) as connection:
        connection.execute('CREATE TABLE checks (release VARCHAR, subject VARCHAR, "check" VARCHAR, passed INTEGER[])')
    with pytest.raises(duckdb.Error), staged_bundle(made, facts(made), tmp_path / "r1"):
        FLOWS.store(database, made, KEY, facts(made))
    assert {path.name for path in tmp_path.iterdir()} == {"release.duckdb", ".release.duckdb.lock"}
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("checks",)]


def test_what_an_interrupted_run_left_is_cleared_away(tmp_path):
    """A half-made bundle beside the place is not mixed into the new one."""
    (tmp_path / ".r1.staged").mkdir()
    (tmp_path / ".r1.staged" / "left_over.parquet").write_bytes(b"half")
    assert {*files_of(bundled(release(), tmp_path / "r1"))} == OF_TWO_LEVELS | INDICATORS
    assert {path.name for path in tmp_path.iterdir()} == {"r1", "r1.zip"}
