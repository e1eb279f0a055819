"""A ledger in PostgreSQL: what its server refuses, what is found although a superuser did it, and what ends well."""

import datetime
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from od_core import Ledger, OdError
from od_core.files import durable as lock_module
from od_core.ledger import chain, postgres_chain
from od_core.ledger.confidential import LOCK_NAME, lock_folder
from od_core.ledger.ledger import make_chain
from od_core.ledger.postgres_chain import make_schema_sql
from tests.od_core.ledger import ledger_rows
from tests.od_core.ledger.ledger_rows import domain, edit, finish, ledger_at, published, rows, small_plan
from tests.od_core.ledger.test_ledger_integrity import EDITS
from tests.postgres import OWNER, USER, WRITER, server_of, session

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path, postgres) -> Path:
    """The path of a new ledger in a database of its own."""
    postgres.new_ledger(tmp_path)
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def history(place, key) -> Path:
    ledger = ledger_at(place)
    ledger.declare(domain(1))
    assert not place.exists()
    return published(ledger, key)


def refused(code: str, use) -> OdError:
    with pytest.raises(OdError, match=f"{code}:") as error:
        use()
    return error.value


CHANGES = (
    "UPDATE entries SET rho = '0' WHERE kind = 'RESERVED'",
    "DELETE FROM entries WHERE kind = 'DRAWING'",
    "TRUNCATE entries",
    "DROP TABLE entries",
    "ALTER TABLE entries DISABLE TRIGGER ALL",
    "DROP TRIGGER entries_are_final ON entries",
    "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$",
)


@pytest.mark.parametrize("statement", CHANGES)
def test_the_role_of_the_releases_can_change_nothing(history, statement):
    before = rows(history)
    with session(history, WRITER) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())
    assert rows(history) == before


@pytest.mark.parametrize("role", [OWNER, USER])
@pytest.mark.parametrize("statement", CHANGES[:3])
def test_the_trigger_refuses_even_the_owner_and_the_superuser(history, statement, role):
    before = rows(history)
    with session(history, role) as connection:
        if role == USER:
            connection.execute("SET session_replication_role = replica")  # as a restored dump or a replica does
        with pytest.raises(psycopg.errors.RaiseException, match="never changed or removed"):
            connection.execute(statement.encode())
    assert rows(history) == before


POSTGRES_EDITS = {name: edit for name, edit in EDITS.items() if "REPLACE INTO" not in edit} | {
    "two rows exchanged": "UPDATE entries AS e SET content = o.content FROM entries AS o"
    " WHERE (e.number, o.number) IN ((5, 6), (6, 5))"
}


@pytest.mark.parametrize("name", POSTGRES_EDITS)
def test_a_row_that_a_superuser_edits_breaks_the_chain(history, name):
    edit(history, POSTGRES_EDITS[name])
    refused("OD-LEDGER-BROKEN", lambda: ledger_at(history))
    refused("OD-LEDGER-BROKEN", lambda: Ledger(history, server_of(history), whole=False).verify())


def test_a_ledger_without_its_guards_is_not_charged(history, postgres, key):
    """Whoever may change entries, or finds the trigger disabled, is told so before anything is charged."""
    address = server_of(history)
    for role in (OWNER, USER):
        refused("OD-LEDGER-UNGUARDED", lambda role=role: Ledger(history, address.replace(WRITER, role)))
    undone = (
        ("ALTER TABLE entries DISABLE TRIGGER entries_are_final", "ENABLE ALWAYS TRIGGER entries_are_final"),
        ("ALTER TABLE entries ENABLE TRIGGER entries_are_final", "ENABLE ALWAYS TRIGGER entries_are_final"),
    )
    open_ledger = ledger_at(history)
    for harm, repair in undone:
        with session(history) as connection:
            connection.execute(harm.encode())
        refused("OD-LEDGER-UNGUARDED", lambda: ledger_at(history))
        refused("OD-LEDGER-UNGUARDED", lambda: open_ledger.balances())
        with session(history) as connection:
            connection.execute(f"ALTER TABLE entries {repair}".encode())
    for grant in ("UPDATE", "DELETE", "TRUNCATE", "TRIGGER"):
        with session(history) as connection:
            connection.execute(f"GRANT {grant} ON entries TO {WRITER}".encode())
        refused("OD-LEDGER-UNGUARDED", lambda: ledger_at(history))
        with session(history) as connection:
            connection.execute(f"REVOKE {grant} ON entries FROM {WRITER}".encode())
    assert ledger_at(history).is_published(key)


def test_a_database_without_a_ledger_is_named(tmp_path, postgres):
    error = refused("OD-LEDGER-ABSENT", lambda: Ledger(tmp_path / "ledger.sqlite", postgres.address("empty")))
    assert "od-release ledger schema" in error.next_step
    refused("OD-CONFIG", lambda: Ledger(tmp_path / "ledger.sqlite", "mysql://root:secret@host/ledger"))


@pytest.mark.parametrize("role", ['a"; DROP TABLE entries; --', "", "A", "a b"])
def test_a_role_is_a_plain_name(role):
    refused("OD-CONFIG", lambda: make_schema_sql(role))


def test_a_server_that_is_gone_is_named_and_without_the_password(history, key):
    address = server_of(history).replace(f"//{WRITER}@", f"//{WRITER}:hunter2@").replace("host=", "host=/nowhere")
    error = refused("OD-LEDGER-UNAVAILABLE", lambda: Ledger(history, address))
    assert "hunter2" not in str(error)
    assert "\n" not in str(error)


def test_a_session_that_the_server_ends_leaves_no_entry(history, key):
    """In a transaction, between two, and in the connection that a run keeps open."""
    ledger, before = ledger_at(history), rows(history)

    def ends_all() -> None:
        with session(history) as connection:
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")

    def cut_off() -> None:
        with ledger._open_transaction() as entries:
            entries.append("CAP", "commuters", content={"rho": "9"})
            ends_all()

    refused("OD-LEDGER-UNAVAILABLE", cut_off)
    assert rows(history) == before
    with ledger.keep_open():
        assert ledger.is_published(key)
        refused("OD-LEDGER-UNAVAILABLE", cut_off)
        assert ledger.is_published(key)  # by a new connection
    with ledger.keep_open():
        ends_all()
        refused("OD-LEDGER-UNAVAILABLE", lambda: ledger.is_published(key))
        assert ledger.is_published(key)
    assert rows(history) == before


def test_threads_that_share_a_ledger_do_not_end_each_others_transactions(history, key):
    ledger = ledger_at(history)
    with ledger.keep_open(), ThreadPoolExecutor(1) as other:
        with ledger._open_transaction() as entries:
            entries.append("CAP", "commuters", content={"rho": "9", "reason": "another"})
            assert other.submit(ledger.is_published, key).result()
        assert ledger.verify() == len(rows(history))
        with ledger.trial():
            ledger.declare(replace(domain(2), cap_reason="a third"))
            assert ledger.balances()[0].cap == 2
            assert other.submit(ledger.balances).result()[0].cap == 9
    assert ledger_at(history).verify() == len(rows(history))


def test_a_locked_ledger_is_waited_for_and_then_refused(history, key, monkeypatch):
    short = postgres_chain._BEGIN.replace("lock_timeout = '60.0s'", "lock_timeout = '0.3s'")
    assert short != postgres_chain._BEGIN
    before, ledger = rows(history), ledger_at(history)
    with make_chain(history, server_of(history)).open_transaction():
        monkeypatch.setattr(postgres_chain.PostgresChain, "_begin", short)
        refused("OD-LEDGER-UNAVAILABLE", lambda: ledger.declare(domain(2)))
        assert ledger.is_published(key)
        with ledger.trial():  # does not wait
            ledger.declare(replace(domain(2), cap_reason="a trial"))
            assert ledger.balances()[0].cap == 2
        reader = Ledger(history, server_of(history), whole=False)
        assert reader.verify() == len(before)  # who only reads, waits for nobody
    assert ledger.is_published(key)
    assert rows(history) == before


def test_two_transactions_follow_each_other_whatever_the_role_has_for_defaults(history, key):
    """Under a stricter isolation level, the second would not see what the first one added."""
    with session(history) as connection:
        database = history_database(connection)
        for setting in ("default_transaction_isolation = 'serializable'", "synchronous_commit = off"):
            connection.execute(f"ALTER ROLE {WRITER} IN DATABASE {database} SET {setting}".encode())
        read_only = f"ALTER ROLE {WRITER} IN DATABASE {database} SET default_transaction_read_only = on"
        connection.execute(read_only.encode())
    first, second, seen, waits = ledger_at(history), ledger_at(history), [], threading.Event()

    def add_after_the_first() -> None:
        waits.set()
        with second._open_transaction() as entries:
            seen.append(entries.find_newest("CAP")["content"]["rho"])
            settings = entries._connection.execute("SHOW synchronous_commit")
            seen.extend(setting["synchronous_commit"] for setting in settings)

    with first._open_transaction() as entries:
        other = threading.Thread(target=add_after_the_first)
        other.start()
        waits.wait(10)
        wait_until_one_waits_for_a_lock(history)
        entries.append("CAP", "commuters", content={"rho": "5", "reason": "seen by the next one"})
    other.join(30)
    assert seen == ["5", "on"]
    ledger_rows.assert_chain(history)


def history_database(connection) -> str:
    return connection.execute("SELECT current_database() AS name").fetchone()["name"]


def wait_until_one_waits_for_a_lock(path) -> None:
    waiting = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    with session(path) as connection:
        while connection.execute(waiting).fetchone()["n"] == 0:
            pass  # pytest-timeout ends it


def test_one_release_at_a_time_on_all_hosts(history, tmp_path):
    """Hosts have folders of their own, in which the file locks do not see each other."""
    address, elsewhere = server_of(history), tmp_path / "elsewhere"
    here, there = make_chain(history, address), make_chain(elsewhere / "ledger.sqlite", address)
    refused = pytest.raises(OdError, match="OD-RELEASE-LOCKED")
    with here.lock_for_release(), refused, there.lock_for_release(seconds=0.2):
        pytest.fail("two were let in")
    with there.lock_for_release(seconds=0):
        assert (elsewhere / LOCK_NAME).exists()


def test_both_locks_are_waited_for_until_one_deadline(history, tmp_path, monkeypatch):
    """Another run holds the folder for 9.9 of 10 seconds of a clock that only sleeping moves, and another host goes on.

    So a tenth of a second is left for the lock on the server.
    """
    address, elsewhere = server_of(history), tmp_path / "elsewhere"
    other = ExitStack()
    other.enter_context(lock_folder(elsewhere))
    passed, said, execute = [], [], psycopg.Connection.execute

    def sleep(_):
        passed.append(9.9)
        other.close()

    def recorded(self, query, *values, **options):
        said.append(str(query))
        return execute(self, query, *values, **options)

    clock = SimpleNamespace(monotonic=lambda: sum(passed), sleep=sleep)
    for module in (postgres_chain, lock_module):
        monkeypatch.setattr(module, "time", clock)
    with make_chain(history, address).lock_for_release():
        monkeypatch.setattr(psycopg.Connection, "execute", recorded)
        waiting = make_chain(elsewhere / "ledger.sqlite", address).lock_for_release(seconds=10)
        with pytest.raises(OdError, match="more than 10 seconds"), waiting:
            pytest.fail("two were let in")
    assert [re.search("lock_timeout = '(.*)'", query)[1] for query in said if "lock_timeout" in query] == ["0.100s"]


def test_a_clock_that_is_behind_that_of_another_host_changes_no_order(history, key, monkeypatch):
    """Entries follow each other by their numbers; the time is only stated."""

    real = datetime.datetime.now

    class Behind(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return real(tz) - datetime.timedelta(days=2)

    before = rows(history)
    with monkeypatch.context() as patch:
        patch.setattr(chain.datetime, "datetime", Behind)
        ledger_at(history).declare(domain(2, "census year"))
    assert rows(history)[-1]["at"] < before[-1]["at"]
    ledger = ledger_at(history)
    assert ledger.balance("commuters", key.period).cap == 2
    assert ledger.verify() == len(before) + 1


def test_a_ledger_is_moved_to_postgresql_and_back(tmp_path, postgres, key):
    """The entries stay byte for byte, so that certificates name them still; the second verifier reads the copy."""
    first = Ledger(tmp_path / "ledger.sqlite")
    first.declare(domain(1))
    first.reserve(key, "commuters", small_plan())
    first.start_draw(key, 1)
    before, address = rows(first.path), postgres.new_ledger(tmp_path)
    file, server = make_chain(first.path), make_chain(first.path, address)
    refused("OD-LEDGER-ROLLED-BACK", lambda: Ledger(first.path, address))
    assert file.copy_to(server) == len(before)
    assert rows(first.path) == before
    refused("OD-LEDGER-STATE", lambda: file.copy_to(server))

    moved = ledger_at(first.path)
    finish(moved, key, 1, "1" * 64)
    refused("OD-LEDGER-ROLLED-BACK", lambda: first.verify())  # whoever still has the file
    copy = tmp_path / "backup" / "ledger.sqlite"
    copy.parent.mkdir()
    server.copy_to(make_chain(copy))
    assert rows(copy) == rows(first.path)
    (tmp_path / "releases").mkdir()
    second = [sys.executable, str(ROOT / "docs" / "verify_spending.py"), str(copy), str(tmp_path / "releases")]
    done = subprocess.run(second, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(json.dumps(rows(copy))) == rows(copy)
