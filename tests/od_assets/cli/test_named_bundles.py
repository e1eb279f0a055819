"""What commands say of published releases whose bundles are damaged or missing, in this process."""

import shutil

import pytest

from od_core.publication.read_back import REPAIR
from tests.od_assets.cli.commands import stated
from tests.od_assets.cli.conftest import NEW, OLD

READING = {command: [command, NEW] for command in ("explain", "contract", "disclose", "replicates", "assist")}
READING |= {command: [command, OLD, NEW] for command in ("compare", "sum")}
READING |= {"report": ["report", "us_flights", "--period", "2001-06"], "report of the last": ["report", "us_flights"]}
READING |= {"sum of periods": ["sum", "us_flights", "--periods", "2001-05..2001-06"]}
"""Commands that read the bundle of the last release."""


@pytest.mark.parametrize("what", READING)
def test_a_missing_bundle_is_to_be_restored_or_made_again(what, var, refused):
    """The zip file beside it tells that it was published. A series has no other last release for that."""
    shutil.rmtree(var / "releases" / NEW)
    said = refused(*READING[what])
    assert said.startswith(f"OD-BUNDLE-ABSENT: the bundle of {NEW} is missing, although published [")
    assert f"next: {REPAIR}]" in said


@pytest.mark.parametrize("what", ["explain", "report"])
def test_without_its_zip_file_the_database_tells(what, published_few, var, refused):
    shutil.rmtree(var / "releases" / NEW)
    (var / "releases" / f"{NEW}.zip").unlink()
    shutil.copy(published_few / "release.duckdb", var)
    assert refused(*READING[what]).startswith(f"OD-BUNDLE-ABSENT: the bundle of {NEW} is missing")
    (var / "release.duckdb").unlink()
    assert not refused(*READING[what]).startswith("OD-BUNDLE-ABSENT")


@pytest.mark.parametrize("file", ["tables/noisy_measurements.parquet", "certificate.json"])
@pytest.mark.parametrize("what", ["explain", "compare", "replicates", "sum", "assist"])
def test_every_command_has_the_same_next_step_for_a_damaged_bundle(what, file, var, refused):
    (var / "releases" / NEW / file).write_bytes(b"PAR1")
    said = refused(*READING[what])
    assert NEW in said
    assert f"next: {REPAIR}]" in said


def test_a_report_that_is_gone_is_to_be_made_again(var, refused):
    (var / "releases" / NEW / "report.html").unlink()
    said = refused("report", "us_flights")
    assert said.startswith(f"OD-BUNDLE-DAMAGED: the bundle of {NEW} is damaged: report.html is missing")
    assert REPAIR in said


def test_a_lost_newer_revision_is_not_replaced_by_an_older_one(var, refused):
    shutil.copy(var / "releases" / f"{NEW}.zip", var / "releases" / NEW.replace("/r1", "/r2.zip"))
    assert "the bundle of us_flights/2001-06/r2 is missing" in refused("replicates", "us_flights")
    assert stated("replicates", NEW, "-n", "1")["release"] == NEW
