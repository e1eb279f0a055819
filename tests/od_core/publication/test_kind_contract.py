"""What a published release of any kind keeps to: bundle, certificate, database, reading back and verification."""

import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import frictionless
import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import Budget, Grid, Ledger, OdError, PrivacyUnit, ReleaseKey, release_stops, verify_release
from od_core.meaning.subject import Subject
from od_core.publication import certify
from od_core.publication import database as database_module
from od_core.publication.bundle import publish_folder, write_bundle
from od_core.publication.bundle_differences import reword_as_published
from od_core.publication.bundle_files import check_bundle
from od_core.publication.certificate import Certificate
from od_core.publication.certify import build_certificate, read_release_context
from od_core.publication.kind import Kind
from od_core.publication.read_back import REPAIR
from od_core.published import verification
from od_core.published.opening import KINDS
from tests.od_core.publication import published_kinds
from tests.od_core.publication.examples import ALL_FORMATS, RECORD, files_of
from tests.od_core.publication.published_kinds import EXAMPLES, POINTS, Made, faults, publish, publish_examples

Damage = Callable[[Made], Any]


@pytest.fixture(params=EXAMPLES)
def made(request, all_published: dict[str, Made]) -> Made:
    """A release of each kind in turn. Not to be changed."""
    return all_published[request.param]


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Made:
    """The same in a folder of its own, to be damaged."""
    root = tmp_path / "copy"
    shutil.copytree(made.root, root)
    return replace(made, place=published_kinds.locations(root, made.example.key))


def test_every_kind_is_held_to_this():
    assert {example.kind for example in EXAMPLES.values()} == {kind for kind in KINDS.values() if not kind.is_derived}


def read(table: pa.Table | pa.RecordBatchReader) -> pa.Table:
    return table if isinstance(table, pa.Table) else table.read_all()


def figures(made: Made, release: Any) -> dict[str, pa.Table]:
    """All that the database would hold of a release."""
    return {name: read(table) for name, table in made.kind.make_tables(release, made.facts).items()}


def assert_same(made: Made, found: Any, release: Any) -> None:
    assert found.plan.digest == release.plan.digest
    assert found.plan.facts() == release.plan.facts()
    assert (found.spent, found.noise) == (release.spent, release.noise)
    expected = figures(made, release)
    assert all(len(table) for table in expected.values())
    for name, table in figures(made, found).items():
        assert table.equals(expected.pop(name)), name
    assert not expected
    both = (made.kind.list_measurements(one) for one in (found, release))
    for (step, noisy), (own_step, own) in zip(*both, strict=True):
        assert step == own_step
        assert np.array_equal(noisy.read_values(), own.read_values())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_release_of_a_test_double_is_not_certified(made):
    """Its noise promises nothing."""
    double = made.example.make(noise=made.example.double)
    assert not double.has_guarantee
    with pytest.raises(OdError, match="OD-RELEASE-NO-GUARANTEE"):
        build_certificate(made.kind, double, made.place.key, made.example.series, [], record=RECORD)


# Reading back.


def test_a_bundle_is_read_back_as_what_was_measured(made):
    assert_same(made, made.kind.open(made.place.bundle), made.release)


def test_what_is_said_of_a_release_follows_from_its_bundle_alone(made):
    """So no true count can be in it, nor in the metadata that is made from it."""
    kind, opened = made.kind, made.kind.open(made.place.bundle)
    pd.testing.assert_frame_equal(kind.make_summary(opened), kind.make_summary(made.release))
    assert len(kind.make_summary(opened)) > 0
    both = (opened, made.release)
    facts, own = (kind.facts(one, Subject.from_plan(one.plan)) for one in both)
    assert facts == own
    assert kind.make_row(opened) == kind.make_row(made.release)
    assert kind.describe_guarantee(opened.plan, opened.spent, Subject.from_plan(opened.plan)) == made.facts["guarantee"]
    assert kind.list_notes(opened, made.facts) == kind.list_notes(made.release, made.facts)
    assert kind.render_pictures(opened, made.facts) == kind.render_pictures(made.release, made.facts)


def test_a_bundle_written_again_has_the_same_bytes(made, tmp_path):
    """All files and the zip file, by the hour of the ledger and not of the clock. ``verify`` does so from a bundle."""
    kind, place = made.kind, made.place
    context = read_release_context(kind, place.ledger, place.key, made.example.series, place.releases)
    report = kind.render_report(made.release, made.facts, context)
    with publish_folder(
        lambda folder: write_bundle(kind, made.release, made.facts, lambda _: report, folder, balance=context.balance),
        tmp_path / "r1",
    ):
        assert not (tmp_path / "r1").exists()
    assert content(tmp_path) == content(place.bundle.parent)


# Files.


def test_every_file_and_column_is_described(made):
    """In the codebook and the data package, which another program finds true; the certificate by its schema."""
    folder = made.place.bundle
    files = {*files_of(folder)}
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    described = {resource["path"]: resource for resource in package["resources"]}
    assert described.keys() == files - {"datapackage.json", "SHA256SUMS"}
    report = frictionless.validate(str(folder / "datapackage.json"))
    assert report.valid, report.flatten(["name", "type", "message"])[:5]
    schema = json.loads((folder / "certificate.schema.json").read_text(encoding="utf-8"))
    stated = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(stated)
    assert stated == json.loads(json.dumps(made.facts))
    codebook = (folder / "codebook.md").read_text(encoding="utf-8")
    for name in files - {"codebook.md", "README.txt", "datapackage.json", "SHA256SUMS"}:
        assert f"| `{name}` |" in codebook, name
    tables = list(folder.rglob("*.parquet"))
    assert {path.name for path in tables} >= {f"{made.example.figures[0]}.parquet", f"{made.example.measured}.parquet"}
    for path in tables:
        table = pq.read_table(path)
        assert all(f"| `{column}` |" in codebook for column in table.column_names), path.name
        assert [field["name"] for field in described[f"tables/{path.name}"]["schema"]["fields"]] == table.column_names
        assert not table.schema.metadata
        if path.with_suffix(".csv").exists():
            text = pd.read_csv(path.with_suffix(".csv"), dtype=str, keep_default_na=False)
            frame = table.to_pandas().astype(object)
            assert text.to_numpy().tolist() == frame.where(frame.notna(), "").astype(str).to_numpy().tolist()


def test_a_file_that_is_cut_or_missing_is_named(copied):
    """Every file of the bundle, one after the other."""
    bundle = copied.place.bundle
    assert list(check_bundle(bundle)) == []
    for name, path in files_of(bundle).items():
        whole = path.read_bytes()
        for damage in (lambda path: path.write_bytes(path.read_bytes()[:-3]), Path.unlink):
            damage(path)
            faults = [fault for fault in check_bundle(bundle) if not fault.startswith("r1.zip")]
            named = [fault for fault in faults if fault.startswith(f"{name} ")]
            assert named or (name == "SHA256SUMS" and faults), name
            path.write_bytes(whole)


# What does not fit together is not read.


def in_json(path: Path, *names: str | int, value: Any) -> None:
    stated = json.loads(path.read_text(encoding="utf-8"))
    place = stated
    for name in names[:-1]:
        place = place[name]
    place[names[-1]] = value
    path.write_text(json.dumps(stated, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def leaves(facts: Any, *above: str | int) -> Iterator[tuple[str | int, ...]]:
    """The path to every value of some facts."""
    inside = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else None
    if inside is None:
        yield above
    else:
        for name, value in inside:
            yield from leaves(value, *above, name)


def other(value: Any) -> Any:
    """Another value of the same type, and mostly as good a one."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    return "3/7" if value.replace("/", "").isdigit() else f"{value}x"


def refusal(made: Made) -> str | None:
    """The code with which a bundle is refused."""
    try:
        made.kind.open(made.place.bundle)
    except OdError as error:
        return error.code
    return None


REFUSED = {"OD-BUNDLE-CHANGED", "OD-RELEASE-ABSENT"}


def test_noisy_values_that_do_not_fit_are_refused(copied):
    path = copied.place.bundle / "tables" / f"{copied.example.measured}.parquet"
    whole, noisy = path.read_bytes(), pd.read_parquet(path)
    for less in (noisy.iloc[1:], noisy.iloc[:-1]):
        less.to_parquet(path, index=False)
        assert refusal(copied) in REFUSED, len(less)
    for damaged in (whole[: len(whole) // 2], b"", b"no table"):
        path.write_bytes(damaged)
        assert refusal(copied) in REFUSED, damaged[:10]
    path.unlink()
    assert refusal(copied) == "OD-RELEASE-ABSENT"
    path.write_bytes(whole)
    assert refusal(copied) is None


def with_another(path: Path, *above: str) -> Iterator[tuple[str | int, ...]]:
    """Change each value of some facts in a JSON file, one after the other."""
    whole = path.read_bytes()
    facts = json.loads(whole)
    for name in above:
        facts = facts[name]
    for place in leaves(facts):
        value = facts
        for name in place:
            value = value[name]
        in_json(path, *above, *place, value=other(value))
        yield place
        path.write_bytes(whole)


def test_a_bundle_of_other_figures_or_without_them_is_refused(copied):
    path = figures_file(copied, "parquet")
    last_row(path, copied.example.figures[1])
    assert refusal(copied) == "OD-BUNDLE-CHANGED"
    cut(path)
    assert refusal(copied) == "OD-RELEASE-ABSENT"
    path.unlink()
    assert refusal(copied) == "OD-RELEASE-ABSENT"


@pytest.mark.representatives("boxes")
def test_a_certificate_of_another_plan_is_found(copied, monkeypatch):
    """Every fact of the plan: it is refused, or the ledger knows another plan, which alone is asked."""
    monkeypatch.setattr(verification, "check_bundle", lambda folder: iter(()))
    monkeypatch.setattr(verification, "_compare_measured_bundle", lambda *of: iter(()))
    monkeypatch.setattr(type(copied.kind), "find_differences", lambda *of: iter(()))
    path = copied.place.bundle / "certificate.json"
    found = {place: {*faults(copied.place)} for place in with_another(path, "plan")}
    assert len(found) >= 10
    assert [place for place, parts in found.items() if not parts & {"bundle", "ledger"}] == []


# The database.


def everything(database: Path) -> dict[str, list[Any]]:
    """All rows of all tables and views, and what is said of them."""
    with duckdb.connect(str(database), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY table_name").fetchall()
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names}
        columns = "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        rows["comments"] = connection.execute(columns).fetchall()
    return {name: sorted(found, key=repr) for name, found in rows.items()}


def stored_again(made: Made, facts: dict[str, Any] | None = None, release: Any = None) -> None:
    release = made.release if release is None else release
    made.kind.store(made.place.database, release, made.place.key, made.facts if facts is None else facts)


@pytest.mark.representatives("boxes")
def test_a_release_stored_again_changes_nothing(copied, all_published):
    """Any number of times, as it was measured or read back; others, also of its kind, stay as they are."""
    place = copied.place
    second, revision = copied.example.make(), ReleaseKey(place.key.release, place.key.period, 2)
    copied.kind.store(place.database, second, revision, copied.facts)
    before = everything(place.database)
    for made in all_published.values():
        names = {str(made.place.key), *([str(revision)] if made.kind is copied.kind else [])}
        assert {row[0] for row in before[made.kind.facts_table]} == names
        assert {row[0] for table in figures(made, made.release) for row in before[table]} == names
    for release in (copied.release, copied.kind.open(place.bundle)):
        stored_again(copied, release=release)
        assert everything(place.database) == before
    copied.kind.store(place.database, second, revision, copied.facts)
    assert everything(place.database) == before


@pytest.mark.representatives("flows-unbounded", "boxes-bounded")
@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_other_figures_under_the_same_name_are_refused(copied, neighbours):
    """As after a lost ledger; nothing is changed."""
    before, drawn_again = everything(copied.place.database), copied.example.make(neighbours)
    with pytest.raises(OdError, match="OD-RELEASE-CHANGED:") as refused:
        stored_again(copied, release=drawn_again)
    assert str(copied.place.key) in refused.value.message
    assert everything(copied.place.database) == before


@pytest.mark.representatives("boxes")
def test_rows_of_a_certificate_that_was_not_published_are_replaced(copied):
    """A run died after it had stored them; then the title was changed, and the intervals were switched off."""
    facts = copied.facts | {"about": {"title": "Another"}, "interval": None}
    stored_again(copied, facts)
    key, database = copied.place.key, copied.place.database
    assert list(copied.kind.find_differences(database, copied.release, key, facts)) == []
    copied.kind.store(database.with_name("new.duckdb"), copied.release, key, facts)
    of_key = {name: [row for row in rows if str(key) in row] for name, rows in everything(database).items()}
    new = everything(database.with_name("new.duckdb"))
    expected = {name: rows for name, rows in new.items() if rows and str(key) in rows[0]}
    assert {name: of_key[name] for name in new if of_key[name]} == expected


def differences(made: Made) -> list[str]:
    return list(made.kind.find_differences(made.place.database, made.release, made.place.key, made.facts))


def one_other(column: str, kind: str) -> str:
    """SQL for another value of a column."""
    if kind.endswith("[]"):
        return f'list_append("{column}", 7)'
    return {"VARCHAR": f"\"{column}\" || 'x'", "BOOLEAN": f'NOT "{column}"'}.get(kind, f'"{column}" + 1')


@pytest.mark.representatives("flows")
def test_any_change_of_the_database_is_found_and_its_table_named(copied, monkeypatch):
    """A value of every column, a row less and a row twice: of the facts, figures, checks and areas."""
    made, database = copied, copied.place.database
    assert differences(made) == []
    tables = figures(made, made.release)  # the same at every call
    monkeypatch.setattr(type(made.kind), "make_tables", lambda *of: tables)
    with duckdb.connect(str(database)) as connection:
        monkeypatch.setattr(database_module, "open_database", lambda *of, **options: nullcontext(connection))
        each_change_is_found(made, connection)


def each_change_is_found(made: Made, connection: duckdb.DuckDBPyConnection) -> None:
    expected = {
        made.kind.facts_table: "its facts of the release differ from the certificate",
        "checks": "its checks differ",
        **{table: f"its {table} differ" for table in figures(made, made.release)},
    }
    assert differences(made) == []
    for table, sentence in expected.items():
        one = f"rowid = (SELECT min(rowid) FROM {table} WHERE release = '{made.place.key}')"
        columns = connection.execute(f"DESCRIBE {table}").fetchall()
        changes = [f'UPDATE {table} SET "{name}" = {one_other(name, kind)} WHERE {one}' for name, kind, *_ in columns]
        changes += [f'UPDATE {table} SET "{columns[-1][0]}" = NULL WHERE {one}']
        changes += [f"DELETE FROM {table} WHERE {one}"]
        if table != made.kind.facts_table:  # which has a key
            changes += [f"INSERT INTO {table} SELECT * FROM {table} WHERE {one}"]
        for change in changes:
            with undone(connection, change):
                assert differences(made) == [sentence], change
    for geography in made.kind.list_geographies(made.release):
        one = f"rowid = (SELECT max(rowid) FROM areas WHERE geography = '{geography.digest}')"
        sides = len(made.kind.list_geographies(made.release))
        for change in (f"UPDATE areas SET parent = 'x' WHERE {one}", f"DELETE FROM areas WHERE {one}"):
            with undone(connection, change):
                assert differences(made) == ["its areas differ"] * sides, change
    assert differences(made) == []


@contextmanager
def undone(connection: duckdb.DuckDBPyConnection, change: str) -> Iterator[None]:
    """Change the database, and undo it afterwards."""
    connection.execute("BEGIN TRANSACTION")
    (changed,) = connection.execute(change).fetchone()
    assert changed > 0, change
    yield
    connection.execute("ROLLBACK")


def in_database(database: Path, statement: str) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute(statement)


# Verification.


def test_a_whole_release_verifies_without_key_or_records(copied):
    """Years later, where the key is lost and the true counts are gone."""
    for path in (copied.root / "confidential" / "hmac.key", copied.place.measurements / "identity.json"):
        path.unlink()
    findings = verify_release(copied.place)
    parts = {finding.part for finding in findings}
    assert parts >= {"files", "invariants", "bundle", "measurements", "ledger", "database"}
    assert [finding for finding in findings if finding.fault or finding.next_step] == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def last_row(path: Path, column: str) -> None:
    """One more in the last row: of the noisy values, a leaf cell."""
    frame = pd.read_parquet(path)
    frame.loc[len(frame) - 1, column] += 1
    frame.to_parquet(path, index=False)


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def last_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().rsplit(b"\r\n", 2)[0])


def other_codec(path: Path) -> None:
    """The same table, written with another codec by the same software."""
    pq.write_table(pq.read_table(path), path, compression="none")


def stated(*names: str | int, value: Any) -> Damage:
    return lambda made: in_json(made.place.bundle / "certificate.json", *names, value=value)


def charges(value: str) -> Damage:
    def damage(made: Made) -> None:
        exact = [value] * len(made.facts["spent"]["rho_by_level_exact"])
        stated("spent", "rho_by_level_exact", value=exact)(made)

    return damage


def executed(statement: str) -> Damage:
    """With the names of the kind's tables and columns, of this release alone."""

    def damage(made: Made) -> None:
        table, column = made.example.stored
        names = {"facts": made.kind.facts_table, "figures": table, "column": f'"{column}"'}
        in_database(made.place.database, f"{statement.format(**names)} WHERE release = '{made.place.key}'")

    return damage


def figures_file(made: Made, ending: str) -> Path:
    """The file of the figures; the first of several, such as those of the pairs of levels."""
    name, folder = made.example.figures[0], made.place.bundle / "tables"
    return min([*folder.glob(f"{name}_*.{ending}"), folder / f"{name}.{ending}"], key=is_absent)


def is_absent(path: Path) -> tuple[bool, Path]:
    return not path.exists(), path


def kept(made: Made) -> Path:
    """The last of the measurement files on the confidential side."""
    return max(made.place.measurements.glob("noisy_measurement_*.parquet"))


def a_folder_for_a_file(made: Made) -> None:
    path = figures_file(made, "csv")
    path.unlink()
    path.mkdir()


FAILED = [{"subject": "f", "check": "c", "passed": False}]
MADE_ANEW, CERTIFIED = {"files", "bundle"}, {"files", "bundle", "ledger", "database"}
"""Parts that find other files than the measurements give, and other facts than were certified."""

DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    "a figure changed": (lambda made: last_row(figures_file(made, "parquet"), made.example.figures[1]), MADE_ANEW),
    "a table cut": (lambda made: cut(figures_file(made, "parquet")), MADE_ANEW),
    "a table of other bytes": (lambda made: other_codec(figures_file(made, "parquet")), MADE_ANEW),
    "a line of CSV gone": (lambda made: last_line(figures_file(made, "csv")), MADE_ANEW),
    "a folder for a file": (a_folder_for_a_file, MADE_ANEW),
    "a file too many": (lambda made: (made.place.bundle / "notes.txt").write_text("x"), MADE_ANEW),
    "a file missing": (lambda made: figures_file(made, "csv").unlink(), MADE_ANEW),
    "the bundle missing": (lambda made: shutil.rmtree(made.place.bundle), MADE_ANEW),
    "the zip file cut": (lambda made: cut(made.place.bundle.with_name("r1.zip")), {"files"}),
    "the zip file gone": (lambda made: made.place.bundle.with_name("r1.zip").unlink(), {"files"}),
    "rho written smaller": (stated("spent", "rho", value=0.001), CERTIFIED),
    "a charge written smaller": (charges("1/100"), CERTIFIED),
    "rho by zero": (charges("1/0"), MADE_ANEW),
    "another promise": (stated("guarantee", "protected", value="Nothing is learnt."), CERTIFIED),
    "another backend": (stated("noise", value="another"), CERTIFIED),
    "another entry": (stated("ledger", value={"entry": 3, "hash": "0" * 64}), CERTIFIED),
    "no checks": (stated("checks", value=[]), CERTIFIED),
    "a failed check": (stated("checks", value=FAILED), CERTIFIED),
    "another threshold": (stated("fault_threshold", value="1/2"), CERTIFIED),
    "no threshold": (stated("fault_threshold", value=None), CERTIFIED),
    "no plan": (stated("plan", value=None), MADE_ANEW),
    "no certificate": (lambda made: (made.place.bundle / "certificate.json").write_text("[]"), MADE_ANEW),
    "a kept measurement changed": (lambda made: flip_a_byte(kept(made)), {"measurements"}),
    "a kept measurement gone": (lambda made: kept(made).unlink(), {"measurements"}),
    "figures of the database changed": (executed("UPDATE {figures} SET {column} = {column} + 1"), {"database"}),
    "NULL in the database": (executed("UPDATE {figures} SET {column} = NULL"), {"database"}),
    "a smaller epsilon in the database": (executed("UPDATE {facts} SET epsilon = 0.001"), {"database"}),
    "another certificate in the database": (
        executed("UPDATE {facts} SET certificate = replace(certificate, 'differentially', 'completely')"),
        {"database"},
    ),
    "checks gone from the database": (executed("DELETE FROM checks"), {"database"}),
    "not in the database": (executed("DELETE FROM {facts}"), {"database"}),
    "the database gone": (lambda made: made.place.database.unlink(), {"database"}),
}


@pytest.fixture
def written_once(made, monkeypatch):
    """Verification copies the files of a bundle that is written already: of equal release, certificate and report."""

    def write_or_copy(
        kind: Kind[Any], release: Any, facts: Certificate, render_report: Callable[..., str], folder: Path, **more: Any
    ) -> None:
        there, report = made.place.bundle, render_report(facts)
        if json.dumps(facts) == json.dumps(made.facts) and report.encode() == (there / "report.html").read_bytes():
            try:
                assert_same(made, release, made.release)
            except AssertionError:
                pass
            else:
                shutil.copytree(there, folder, dirs_exist_ok=True)
                return
        write_bundle(kind, release, facts, lambda _: report, folder, **more)

    monkeypatch.setattr(verification, "write_bundle", write_or_copy)


OF_EACH_KIND = {"a figure changed", "a table cut", "a charge written smaller", "rho by zero", "no threshold", "no plan"}
OF_EACH_KIND |= {"figures of the database changed", "a smaller epsilon in the database"}
"""Damage that the code of a kind meets first; other damage is met by the code that all kinds share."""

KINDS_OF = zip(DAMAGE, itertools.cycle(EXAMPLES), strict=False)
CASES = [(kind, name) for name, only in KINDS_OF for kind in (EXAMPLES if name in OF_EACH_KIND else [only])]


@pytest.mark.representatives
@pytest.mark.parametrize(("made", "name"), CASES, indirect=["made"])
def test_any_damage_is_found_and_its_part_named(copied, written_once, name):
    damage, parts = DAMAGE[name]
    damage(copied)
    found = faults(copied.place)
    assert set(found) == parts
    assert all("\n" not in fault for fault in found.values())


def test_a_published_release_is_repaired_without_a_change_of_the_ledger(copied, monkeypatch):
    """A transaction would verify the whole chain, and who repairs may have no right to write."""
    expected = figures_file(copied, "csv").read_bytes()
    figures_file(copied, "csv").unlink()
    monkeypatch.delattr(Ledger, "_open_transaction")
    assert verification.repair_release(copied.place) is not None
    assert figures_file(copied, "csv").read_bytes() == expected
    assert faults(copied.place) == {}


def test_an_edited_ledger_is_found(copied):
    with closing(sqlite3.connect(copied.place.ledger.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER entries_are_final")
        connection.execute("UPDATE entries SET rho = '1/1000' WHERE kind = 'RESERVED'")
    assert "damaged or was edited" in faults(copied.place)["ledger"]


@pytest.mark.representatives("flows")
def test_a_changed_noisy_value_is_found(copied):
    last_row(copied.place.bundle / "tables" / f"{copied.example.measured}.parquet", "noisy")
    assert copied.example.parts <= set(faults(copied.place))


@pytest.mark.representatives("group sizes")
def test_what_is_damaged_is_made_again_by_the_next_run(copied, made):
    """The next step that verification names; the files are those of before, and draw nothing."""
    cut(figures_file(copied, "parquet"))
    figures_file(copied, "csv").unlink()
    finding = verify_release(copied.place)[0]
    assert (finding.part, finding.next_step) == ("files", REPAIR)
    assert finding.fault is not None
    publish(copied.kind, copied.release, copied.place.key, copied.example.series, copied.root)
    assert {(finding.fault, finding.next_step) for finding in verify_release(copied.place)} == {(None, None)}
    assert content(copied.place.releases) == content(made.place.releases)


WITHOUT_INTERVALS = {
    "group sizes": ("group_size_intervals", {"cumulative", "members_by_area"}),
    "boxes": ("stops_boxes", set()),
}
"""Kinds whose first bundles had no intervals: the table with their intervals now, and its files."""


@pytest.mark.representatives("boxes")
@pytest.mark.parametrize("name", WITHOUT_INTERVALS)
def test_a_bundle_that_was_published_without_intervals_stays_as_it_is(tmp_path, monkeypatch, name):
    """Its certificate does not state a confidence of intervals. It is opened, verified and made again."""
    example, (table, files) = EXAMPLES[name], WITHOUT_INTERVALS[name]
    stated = type(example.kind).facts
    with monkeypatch.context() as earlier:
        earlier.setattr(
            type(example.kind), "facts", lambda *given: {k: v for k, v in stated(*given).items() if k != "interval"}
        )
        old = publish_examples(tmp_path, {name: example})[name]
    assert "interval" not in old.facts
    before = {name: path.read_bytes() for name, path in files_of(old.place.bundle).items()}
    assert not {Path(name).name.split(".")[0] for name in before} & files
    assert b"count_lower" not in before.get("tables/boxes.csv", b"")
    assert "90 %" not in before["report.html"].decode()
    with duckdb.connect(str(old.place.database), read_only=True) as connection:
        present = "count_lower IS NOT NULL" if name == "boxes" else "true"
        assert connection.execute(f"SELECT count(*) FROM {table} WHERE {present}").fetchone() == (0,)
    assert faults(old.place) == {}
    release = example.kind.open(old.place.bundle)
    published = old.place.ledger.read_publication(example.key).get("certificate")
    facts = reword_as_published(certified(old, release), old.place.bundle, published)
    (old.place.bundle / "certificate.json").unlink()
    report = example.kind.render_report(release, facts, context_for(old))
    with publish_folder(
        lambda folder: write_bundle(
            example.kind, release, facts, lambda _: report, folder, balance=context_for(old).balance
        ),
        old.place.bundle,
        published,
    ):
        example.kind.store(old.place.database, release, example.key, facts)
    assert {name: path.read_bytes() for name, path in files_of(old.place.bundle).items()} == before


def test_group_sizes_that_were_published_with_wilsons_intervals_stay_as_they_are(tmp_path, monkeypatch):
    """Bundles before format 7, whose noisy sizes have other intervals, are opened and verified, with the database."""
    example = EXAMPLES["group sizes"]
    example = replace(example, make=partial(example.make, mechanism="sizes"))
    with monkeypatch.context() as earlier:
        earlier.setattr(certify, "BUNDLE_FORMAT", 6)
        old = publish_examples(tmp_path, {"group sizes": example})["group sizes"]
    assert faults(old.place) == {}
    release = example.kind.open(old.place.bundle)
    listed = pd.read_parquet(old.place.bundle / "tables" / "cumulative.parquet")
    pd.testing.assert_frame_equal(listed, replace(release, exact=False).at_most())
    assert not listed.equals(release.at_most())
    earlier_pages, now = example.kind.render_report(release, old.facts, context_for(old)), certified(old, release)
    assert (old.place.bundle / "report.html").read_text("utf-8") == earlier_pages
    assert earlier_pages != example.kind.render_report(release, old.facts | {"bundle_format": 7}, context_for(old))
    assert example.kind.render_pictures(release, old.facts) != example.kind.render_pictures(release, now)


@pytest.mark.representatives("8")
@pytest.mark.parametrize("bundle_format", [8, 9])
def test_boxes_have_the_intervals_of_their_format(tmp_path, monkeypatch, bundle_format):
    """Those before format 9 keep the usual lower ends; flows of format 8 are in ``test_landed_vars.py``."""
    points = np.repeat(POINTS[:12, :2], 30, axis=0)  # of nearly all boxes without trips, noise makes some positive
    given = {"unit": PrivacyUnit("trip"), "budget": Budget("1/2"), "mechanism": "identity"}
    example = replace(EXAMPLES["boxes"], make=partial(release_stops, points, Grid((24, 24)), **given))
    with monkeypatch.context() as earlier:
        earlier.setattr(certify, "BUNDLE_FORMAT", bundle_format)
        made = publish_examples(tmp_path, {"boxes": example})["boxes"]
    assert faults(made.place) == {}
    release = example.kind.open(made.place.bundle)
    assert release.selected == (bundle_format >= 9)
    own, other = release.boxes["count_lower"], replace(release, selected=not release.selected).boxes["count_lower"]
    listed = pd.read_parquet(made.place.bundle / "tables" / "boxes.parquet")["count_lower"]
    assert listed.tolist() == own.tolist() != other.tolist()
    facts = [made.facts | {"bundle_format": number} for number in (bundle_format, 17 - bundle_format)]
    page, otherwise = (example.kind.render_report(release, stated, context_for(made)) for stated in facts)
    assert (made.place.bundle / "report.html").read_text("utf-8") == page != otherwise
    assert example.kind.list_notes(release, facts[0]) != example.kind.list_notes(release, facts[1])


def certified(made: Made, release: Any) -> dict[str, Any]:
    """The certificate that the software would write today."""
    checks, record = made.facts["checks"], made.place.ledger.record(made.example.key)
    given = (made.kind, release, made.example.key, made.example.series, checks)
    return build_certificate(*given, record=record, formats=ALL_FORMATS)


def context_for(made: Made) -> Any:
    place = made.place
    return read_release_context(made.kind, place.ledger, made.example.key, made.example.series, place.releases)
