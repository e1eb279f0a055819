"""Store the entries of a ledger in a PostgreSQL database, so that processes on several hosts can charge releases to it.

The role of the releases may read and add entries, and nothing else. The owner of the table, who is not used for
releases, creates it once with :func:`schema`. All transactions take one advisory lock of the database, so they follow
each other. That the number of an entry is the primary key would stop two of them even without the lock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from od_core.errors import STAYS_CHARGED, OdError
from od_core.extras import require
from od_core.ledger.chain import WAIT_SECONDS, Chain
from od_core.ledger.entries import COLUMNS, INDEXES, Entries, broken
from od_core.ledger.lock import LOCK_SECONDS

if TYPE_CHECKING:
    from psycopg import Connection, Error

SCHEMES = ("postgresql://", "postgres://")
"""Beginnings of the address of a PostgreSQL database."""

_SCHEMA = """\
-- Create the ledger of od-release. Run this once, as a role that the releases do not use. It becomes the owner.
BEGIN;
CREATE SCHEMA od_ledger;
CREATE TABLE od_ledger.entries (
    number BIGINT PRIMARY KEY,
{columns}
);
CREATE FUNCTION od_ledger.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'ledger entries are never changed or removed'; END $$;
CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON od_ledger.entries
FOR EACH STATEMENT EXECUTE FUNCTION od_ledger.refuse();
ALTER TABLE od_ledger.entries ENABLE ALWAYS TRIGGER entries_are_final;
{indexes}GRANT USAGE ON SCHEMA od_ledger TO "{writer}";
GRANT SELECT, INSERT ON od_ledger.entries TO "{writer}";
COMMIT;
"""

_REFUSALS = {
    "resolve host": "the name of its host is not known",
    "Connection refused": "nothing listens at its host and port",
    "No such file or directory": "there is no such host or socket",
    "authentication failed": "it refuses the role or its password",
    "no password supplied": "it asks for a password",
    "pg_hba.conf": "it admits no such role, database or host",
    "timeout expired": "it does not answer",
    "closed the connection": "it closed the connection",
}
"""Parts of texts of libpq and of the server, in English, and our words for them."""

_ROLE = re.compile(r"[a-z_][a-z0-9_$-]{0,62}")

_GUARDS = """
SELECT pg_has_role(relowner, 'USAGE') OR has_table_privilege(oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER') AS may_change,
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgname = 'entries_are_final' AND tgenabled = 'A')
    AS refuses
FROM pg_class WHERE oid = to_regclass('od_ledger.entries')
"""
"""Query that returns whether the role may change entries and whether the trigger is enabled; no row without a table."""

_TRANSACTIONS, _RELEASES = 0x6F645F6C65646765, 0x6F645F72656C6561
"""Keys of the advisory locks: for transactions and for releases. They belong to the database, as the table does."""

_BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL search_path = od_ledger;
SET LOCAL lock_timeout = '{WAIT_SECONDS}s';
SET LOCAL idle_in_transaction_session_timeout = '{WAIT_SECONDS}s';
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
SELECT pg_advisory_xact_lock({_TRANSACTIONS});
"""
"""Statements that begin a transaction.

A stricter isolation level would read the entries as they were before the wait for the lock. A host that disappears in a
transaction loses it after a while, and a role that does not wait for the disk by default waits here.
"""

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = od_ledger;"


def schema(writer: str) -> str:
    """Return the SQL statements that create the table of a ledger, its trigger and the grants of the writing role.

    Args:
        writer: role of the releases, which must exist.

    Raises:
        OdError: the name is not that of a role in lowercase letters, digits, ``_``, ``-`` and ``$``.
    """
    if not _ROLE.fullmatch(writer):
        raise OdError(
            "OD-CONFIG",
            f"{writer!r} is not the name of a role that can own nothing and write the ledger",
            next_step="use a role whose name has lowercase letters, digits and underscores",
        )
    indexes = INDEXES.replace("ON entries", "ON od_ledger.entries")
    return _SCHEMA.format(columns=COLUMNS, indexes=indexes, writer=writer)


class PostgresChain(Chain):
    """The entries of a ledger in the table ``od_ledger.entries`` of a PostgreSQL database.

    Args:
        server: address of the database, as libpq reads it: ``postgresql://role@host/database``.
        folder: see :class:`~od_core.ledger.chain.Chain`.

    Raises:
        OdError: psycopg is not installed, or the address is not one that libpq can read in one way only.
    """

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(folder)
        require("postgres")
        _refuse_unclear(server)
        self._server = server
        self._kept: Connection[dict[str, Any]] | None = None

    def exists(self) -> bool:
        """Return True: the owner creates the table before the first release."""
        return True

    @contextmanager
    def _begun(self) -> Iterator[Entries]:
        with _usable(), self._connected() as connection, _transaction(connection, _BEGIN) as entries:
            yield entries

    @contextmanager
    def _snapshot(self) -> Iterator[Entries]:
        with _usable(), self._connected() as connection, _transaction(connection, _SNAPSHOT) as entries:
            yield entries

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep one connection open as :meth:`Chain.kept_open` does, until the server closes it."""
        with suppress(OdError), _usable():  # the first transaction reports any fault of the server
            self._kept = self._connect()
        try:
            yield
        finally:
            if self._kept is not None:
                self._kept.close()
            self._kept = None

    @contextmanager
    def exclusive(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Lock the folder, and the ledger for all hosts, as :meth:`Chain.exclusive` does.

        The server releases the lock when its connection ends. Then another release can begin although this one goes on.
        Each draw has its own charge all the same: the ledger refuses the result of a draw that was overtaken.
        """
        from psycopg.errors import LockNotAvailable

        end = time.monotonic() + seconds
        with super().exclusive(seconds), _usable(), closing(self._connect()) as connection:
            # The server learns within a minute that a host disappeared.
            connection.execute("SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10")
            connection.execute(
                f"SET tcp_keepalives_count = 3; SET lock_timeout = '{max(end - time.monotonic(), 0.001):.3f}s'"
            )
            try:
                connection.execute(f"SELECT pg_advisory_lock({_RELEASES})")
            except LockNotAvailable:
                raise OdError(
                    "OD-RELEASE-LOCKED",
                    f"another release has been running for more than {seconds:.0f} seconds, here or on another host",
                    next_step="wait until it ends, then run this one again",
                ) from None
            yield

    @contextmanager
    def _connected(self) -> Iterator[Connection[dict[str, Any]]]:
        """Yield the connection of :meth:`kept_open` if it is open, and a new one otherwise."""
        if self._kept is not None and not self._kept.closed:
            yield self._kept
            return
        with closing(self._connect()) as connection:
            yield connection

    def _connect(self) -> Connection[dict[str, Any]]:
        """Connect to the server, as a role that can add entries and cannot change them.

        Raises:
            OdError: there is no table, its trigger is missing, or the role may change entries.
        """
        import psycopg
        from psycopg.rows import dict_row

        connection = psycopg.connect(
            self._server,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=10,
            client_encoding="UTF8",
            application_name="od-release",
        )
        try:
            _check_guards(connection.execute(_GUARDS).fetchone())
        except BaseException:
            connection.close()
            raise
        return connection


class _Statements:
    """A connection as :class:`od_core.ledger.entries.Connection`, with question marks for placeholders."""

    def __init__(self, connection: Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[object] = ()) -> Iterable[Mapping[str, Any]]:
        """Execute one statement, and return the selected rows by column name."""
        found = self._connection.execute(statement.replace("?", "%s").encode(), values)
        return found.fetchall() if found.description else ()


@contextmanager
def _transaction(connection: Connection[dict[str, Any]], begin: str) -> Iterator[Entries]:
    connection.execute(begin.encode())
    try:
        yield Entries(_Statements(connection))
    except BaseException:
        if not connection.closed:  # a server that is gone has rolled back
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def _usable() -> Iterator[None]:
    """Raise OdError for an error of psycopg that leaves the context."""
    from psycopg import Error

    try:
        yield
    except Error as error:
        raise _unusable(error) from None


def _refuse_unclear(server: str) -> None:
    """Raise OdError if libpq cannot read an address, or would take a part of the password for a host, port or option.

    No part of the address is repeated, because its parts cannot be told apart.

    References:
        PostgreSQL, section 34.1.1.2: a reserved sign in a part of the address is written with a percent sign.
    """
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    role, at, rest = server.partition("://")[2].partition("@")
    with suppress(Error):
        conninfo_to_dict(server)
        if not at or ("/" not in role and "@" not in rest):
            return
    raise OdError(
        "OD-LEDGER-ADDRESS",
        "the address of the ledger cannot be read; it is not repeated here, because it may hold a password",
        next_step="write it as postgresql://role@host/database, with the password in a file of libpq, or with %25, %2F"
        " and %40 for the signs % / and @ in it, and likewise for others",
    )


def _unusable(error: Error) -> OdError:
    """Return the OdError for a PostgreSQL error, which means that the ledger cannot be used now or is damaged.

    The text of the error is not repeated, because it may quote the address.

    References:
        PostgreSQL, appendix A: class XX of SQLSTATE means that the server found damaged data.
    """
    state, said = error.sqlstate or "", str(error)
    if state.startswith("XX"):
        return broken()
    cause = f"PostgreSQL reports {type(error).__name__} {state}".rstrip()
    cause = next((words for text, words in _REFUSALS.items() if text in said), cause)
    return OdError(
        "OD-LEDGER-UNAVAILABLE",
        f"the ledger's server cannot be used: {cause}",
        next_step="check the server and the address in OD_LEDGER, then run the release again; psql with the same"
        " address says more",
        spent=STAYS_CHARGED,
    )


def _check_guards(found: Mapping[str, Any] | None) -> None:
    """Check the result of the query of guards. Raises OdError if there is no table or a guard is missing."""
    if found is None:
        raise OdError(
            "OD-LEDGER-ABSENT",
            "the database has no ledger, or the role may not see it",
            next_step="as the owner of the database, run the statements of: od-release ledger schema --writer ROLE",
        )
    if found["may_change"] or not found["refuses"]:
        fault = "the role may change its entries" if found["may_change"] else "its trigger is missing or disabled"
        raise OdError(
            "OD-LEDGER-UNGUARDED",
            f"the ledger in PostgreSQL does not refuse changes: {fault}",
            next_step="release with a role that owns nothing and has the grants of: od-release ledger schema",
        )
