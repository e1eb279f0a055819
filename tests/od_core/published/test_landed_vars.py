"""What an earlier landed state of this software has written, in ``tests/vars``: an update keeps, repairs and guards it.

Its next month, by Dagster, is in ``tests/jobs/test_update.py``.
"""

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from od_core import Budget, Cap, Ledger, OdError, PrivacyDomain, PrivacyUnit, ReleaseKey, plan_release
from od_core.files.durable import compute_file_digest
from od_core.ledger import ledger as ledger_module
from od_core.publication.bundle_files import CHECKSUMS, format_checksums, list_bundle_contents, locate_zip, write_zip
from od_core.publication.certify import compute_package_digest, list_software_versions
from od_core.publication.read_back import read_certified_entries
from od_core.published.derived import publish_sum
from od_core.published.opening import find_bundle_folders
from od_core.published.verification import INCOMPLETE, repair_release, verify_release
from tests.od_core.ledger.ledger_rows import ONE_LEVEL
from tests.od_core.publication.examples import sealed_again
from tests.od_core.publication.published_kinds import locations

VARS = sorted((Path(__file__).parents[2] / "vars").glob("*.tar.xz"))
FIRST, SECOND = ReleaseKey("trips", "2001-01"), ReleaseKey("trips", "2001-02")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The var of an archive, with the zip files that it leaves out. Not to be changed."""

    @cache
    def unpack(archive: Path) -> Path:
        root = tmp_path_factory.mktemp("landed")
        with tarfile.open(archive) as packed:
            packed.extractall(root, filter="data")
        for key, folder in find_bundle_folders(root / "project/var/releases").items():
            write_zip(folder, str(key), locate_zip(folder))
        return root / "project/var"

    return unpack


@pytest.fixture(params=VARS, ids=lambda archive: archive.name.partition(".")[0])
def var(request: pytest.FixtureRequest, unpacked: Callable[[Path], Path], tmp_path: Path) -> Path:
    """A copy of the var of each archive."""
    shutil.copytree(unpacked(request.param), tmp_path, dirs_exist_ok=True)
    return tmp_path


def keys(var: Path) -> list[ReleaseKey]:
    return [*find_bundle_folders(var / "releases")]


def faults(var: Path, key: ReleaseKey) -> dict[str, str]:
    """The faults of a release by part, but for files that lack rows, which the first states published."""
    found = {finding.part: finding.fault for finding in verify_release(locations(var, key)) if finding.fault}
    others = [line for line in found.pop("bundle", "").split("; ") if line and not line.startswith(INCOMPLETE)]
    return found | ({"bundle": "; ".join(others)} if others else {})


def entries(var: Path) -> int:
    return Ledger(var / "ledger.sqlite").verify()


@pytest.mark.representatives("eda80c0c")
def test_every_release_of_an_earlier_state_is_verified(var: Path) -> None:
    assert {key: faults(var, key) for key in keys(var)} == {key: {} for key in keys(var)}
    assert len(keys(var)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("var", "lost"), [*zip(VARS, ["tables", "zip file"] * len(VARS), strict=False)], indirect=["var"]
)
def test_a_published_release_is_repaired_from_its_own_certificate(var: Path, lost: str) -> None:
    """No declaration is there. Nothing is charged; what was sound or is made again has the certificate of before."""
    before = entries(var)
    certificates = {key: var / "releases" / key.folder / "certificate.json" for key in keys(var)}
    stated = {key: json.loads(path.read_text(encoding="utf-8")) for key, path in certificates.items()}
    for key in keys(var):
        folder = var / "releases" / key.folder
        (folder / "report.html").write_text("damaged", encoding="utf-8")
        (folder / "README.txt").unlink()
        if lost == "zip file":
            locate_zip(folder).unlink()
        if lost == "tables" and "sources" not in stated[key]:
            for path in (*folder.rglob("*.parquet"), folder / "certificate.json"):
                path.write_bytes(b"damaged")
        assert "files" in faults(var, key)
        if "sources" in stated[key]:
            publish_sum(var / "releases", [FIRST, SECOND])
        else:
            assert repair_release(locations(var, key)) is not None
        assert faults(var, key) == {}
        again = json.loads(certificates[key].read_text(encoding="utf-8"))
        assert again | {"software": None} == stated[key] | {"software": None}
    assert entries(var) == before


def test_what_is_lost_in_folder_and_zip_file_is_not_repaired_from_them(var: Path) -> None:
    folder = var / "releases" / FIRST.folder
    (folder / "certificate.json").unlink()
    locate_zip(folder).unlink()
    before = {name: path.read_bytes() for name, path in list_bundle_contents(folder).items()}
    assert repair_release(locations(var, FIRST)) is None
    assert {name: path.read_bytes() for name, path in list_bundle_contents(folder).items()} == before


@pytest.mark.representatives("2026-11-28")
def test_words_of_another_state_are_held_to_the_checksums_and_these_to_the_zip_file(var: Path) -> None:
    """Who changes the words changes three files, or is seen; who runs the release does not spread the changed one."""
    folder = var / "releases" / FIRST.folder
    report = (folder / "report.html").read_text(encoding="utf-8")
    (folder / "report.html").write_text(report.replace("trips", "trlps"), encoding="utf-8")
    assert "report.html does not match its checksum" in faults(var, FIRST)["files"]
    files = {name: path for name, path in list_bundle_contents(folder).items() if name != CHECKSUMS}
    digests = {name: compute_file_digest(path) for name, path in files.items()}
    (folder / CHECKSUMS).write_text(format_checksums(digests), encoding="utf-8")
    assert "r1/report.html differs from the file in the folder" in faults(var, FIRST)["files"]
    with suppress(OdError):  # OD-BUNDLE-CHANGED, unless files lack rows, so that all of them are made again
        repair_release(locations(var, FIRST))
    assert "trlps" not in (folder / "report.html").read_text(encoding="utf-8") or "files" in faults(var, FIRST)


@pytest.mark.slow
def test_numbers_of_another_state_are_compared_whatever_the_checksums_say(var: Path) -> None:
    folder = var / "releases" / FIRST.folder
    (file,) = folder.rglob("flows_zone_zone.csv")
    rows = file.read_bytes().split(b"\r\n")
    file.write_bytes(b"\r\n".join([rows[0], *rows[2:], rows[1]]))
    sealed_again(folder)
    assert "flows_zone_zone.csv differs from the file that" in faults(var, FIRST)["bundle"]


@pytest.mark.parametrize("fact", ["bundle_format", "format"])
def test_bundles_of_a_later_format_are_refused(var: Path, fact: str) -> None:
    """Of each kind, and of a sum; before anything is reserved, where a run asks for the entries that bundles name."""
    for key in keys(var):
        path = var / "releases" / key.folder / "certificate.json"
        text = path.read_text(encoding="utf-8")
        stated = json.loads(text)
        later = {"bundle_format": 1000, "format": stated["format"].replace(" 1", " 2")}[fact]
        path.write_text(json.dumps(stated | {fact: later}), encoding="utf-8")
        with pytest.raises(OdError, match=f"OD-BUNDLE-NEWER: {key} ") as refused:
            read_certified_entries(var / "releases")
        assert refused.value.spent == "nothing was spent"
        path.write_text(text, encoding="utf-8")
    read_certified_entries(var / "releases")


def test_a_ledger_with_a_reservation_for_a_later_format_is_charged_no_more(
    var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later version has drawn nothing yet, and published nothing."""
    unit = PrivacyUnit("trip", "bounded")
    plan = plan_release(ONE_LEVEL, unit=unit, budget=Budget(rho="1/100", delta="1e-8"))
    ledger = Ledger(var / "ledger.sqlite")
    ledger.declare(PrivacyDomain("other", unit, Cap(rho=1), "a test"))
    with monkeypatch.context() as later:
        later.setattr(ledger_module, "BUNDLE_FORMAT", 1000)
        ledger.reserve(ReleaseKey("other", "2001-01"), "other", plan)
    before = entries(var)
    for key in (ReleaseKey("other", "2001-01"), ReleaseKey("other", "2001-02")):
        with pytest.raises(OdError, match="OD-LEDGER-NEWER"):
            ledger.reserve(key, "other", plan)
    assert entries(var) == before


def test_the_state_of_a_package_is_that_of_its_sources(tmp_path: Path) -> None:
    """Names, places and bytes count; what Python compiles does not. Certificates state that of this package."""

    def states() -> Iterator[str]:
        package = tmp_path / "one"
        (package / "templates").mkdir(parents=True)
        (package / "a.py").write_text("1", encoding="utf-8")
        (package / "templates" / "b.html").write_text("2", encoding="utf-8")
        yield compute_package_digest(package)
        (package / "templates" / "b.html").write_text("3", encoding="utf-8")
        yield compute_package_digest(package)
        (package / "templates" / "b.html").rename(package / "b.html")
        yield compute_package_digest(package)
        (package / "a.py").write_text("13", encoding="utf-8")
        (package / "b.html").write_text("", encoding="utf-8")
        yield compute_package_digest(package)

    found = [*states()]
    assert len({*found}) == len(found)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "__pycache__").mkdir()
    (tmp_path / "two" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    assert compute_package_digest(tmp_path / "two") == found[-1]
    version, _, state = list_software_versions()["od-release"].partition("+")
    assert version
    assert len(state) == 12
