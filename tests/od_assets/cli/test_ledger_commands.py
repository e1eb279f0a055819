"""``od-release ledger`` and ``verify`` on a published release, in this process."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from od_core import PrivacyUnit
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.published.publishing import Published
from tests.od_assets.cli.commands import command, printed, refusal, stated
from tests.od_core.ledger.ledger_rows import rows, small_plan
from tests.od_core.publication.published_kinds import EXAMPLES, locations, publish_examples
from tests.postgres import POINTER


@pytest.fixture
def var(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OD_VAR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    publish_examples(root, {"flows": EXAMPLES["flows"]})
    return root


@pytest.fixture
def published(whole, var) -> Published:
    """A copy of a release of flows between two levels, with its ledger."""
    shutil.copytree(whole, var, dirs_exist_ok=True)
    return locations(var, EXAMPLES["flows"].key)


def test_the_ledger_as_json_and_as_a_table(published):
    (row,) = stated("ledger")
    assert (row["domain"], row["period"], row["releases"], row["lost_draws"]) == ("commuters", "2001-06", 1, 0)
    amounts = {name: Fraction(row[name]["rho_exact"]) for name in ("cap", "spent", "left")}
    assert amounts == {"cap": 9, "spent": 2, "left": 7}
    assert {name: row[name]["rho"] for name in amounts} == {"cap": 9.0, "spent": 2.0, "left": 7.0}
    table = printed("ledger")
    assert all(word in table for word in ("commuters", "2001-06", "measure", "lost draws"))


def test_a_year_of_users_is_shown_with_its_months(var):
    """The year has spent less than its months together, which are stated below it."""
    unit = PrivacyUnit("user_year", "unbounded", "person", 2, max_trips_year=3, id_pattern="[a-z]+")
    ledger = Ledger(var / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=Fraction(1)), "a test"))
    for month in ("2001-06", "2001-07"):
        ledger.reserve(ReleaseKey("commuters", month), "commuters", small_plan(Fraction(1, 8), unit=unit))
    (row,) = stated("ledger")
    assert (row["period"], row["spent"]["rho_exact"], row["left"]["rho_exact"]) == ("2001", "5/32", "27/32")
    assert row["periods"] == {month: {"rho": 0.125, "rho_exact": "1/8"} for month in ("2001-06", "2001-07")}
    lines = [line.replace("│", " ").split() for line in printed("ledger").splitlines() if "commuters" in line]
    assert [line[1] for line in lines] == ["2001", "2001-06", "2001-07"]
    assert lines[1][2:] == ["rho", "-", "0.125", "-", "-", "-"]


def test_ledger_verify_counts_the_entries_or_says_what_is_wrong(published):
    assert stated("ledger", "verify") == {"whole": True, "entries": 2 + 3 * 2 + 1}
    content = bytearray(published.ledger.path.read_bytes())
    place = content.index(b"RESERVED")
    content[place : place + 8] = b"RESERVEE"
    published.ledger.path.write_bytes(content)
    assert refusal("ledger", "verify").code == "OD-LEDGER-BROKEN"


def test_the_ledger_is_copied_to_a_new_file_alone(published, tmp_path):
    """Another file is not called a damaged ledger, and is left as it is."""
    other = tmp_path / "notes.txt"
    other.write_text("no ledger", encoding="utf-8")
    for place in (other, published.ledger.path):
        refused = refusal("ledger", "copy", str(place))
        assert (refused.code, refused.next_step) == ("OD-LEDGER-STATE", "name a new file")


@pytest.mark.slow
def test_the_ledger_moves_to_postgresql_and_is_copied_from_there(
    var, published, tmp_path_factory, postgres, monkeypatch
):
    """What the commands say of it is the same; the file that is left is refused once the new ledger was charged."""
    before, elsewhere = stated("ledger"), tmp_path_factory.mktemp("elsewhere")
    address = postgres.new_ledger(elsewhere)
    assert "9 entries were copied" in printed("ledger", "copy", address)
    with monkeypatch.context() as patch:
        patch.setenv("OD_LEDGER", address)
        assert stated("ledger") == before
        assert stated("ledger", "verify") == {"whole": True, "entries": 9}
        assert "1 of 1 releases verified" in printed("verify")
        with Ledger(var / "ledger.sqlite", address)._open_transaction() as entries:
            entries.append("CAP", "commuters", content={"rho": "10", "reason": "census year"})
        assert "10 entries were copied" in printed("ledger", "copy", str(elsewhere / "backup.sqlite"))
        assert "GRANT SELECT, INSERT" in printed("ledger", "schema", "--writer", "releases")
    assert refusal("ledger", "verify").code == "OD-LEDGER-ROLLED-BACK"
    (elsewhere / POINTER).unlink()  # so that the rows of the file are read
    assert len(rows(elsewhere / "backup.sqlite")) == 9 + 1


def test_nothing_released_is_said_and_nothing_made(var):
    for arguments in (["ledger"], ["ledger", "verify"], ["verify"]):
        assert refusal(*arguments).code == "OD-LEDGER-ABSENT"
    assert not list(var.iterdir())


def test_what_is_public_but_unknown_to_the_ledger_is_found(var, published):
    shutil.copytree(published.bundle, var / "releases" / "commuters" / "2001-07" / "r1")
    with duckdb.connect(str(published.database)) as connection:
        connection.execute("INSERT INTO flows VALUES ('commuters/2001-08/r1', 'aa', 'ba', 3)")
    rows = {row["release"]: row for row in json.loads(command("verify", "--json").stdout)}
    expected = {"2001-06": True, "2001-07": False, "2001-08": False}
    assert {name.split("/")[1]: row["verified"] for name, row in rows.items()} == expected
