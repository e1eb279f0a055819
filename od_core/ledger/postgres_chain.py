"""Keep the entries of a ledger in PostgreSQL, so that processes on several hosts can charge releases to one ledger.

The role of the releases may read and add entries, and nothing else. The owner of the table, who is not used for
releases, creates it once with :func:`make_schema_sql`. All transactions take one advisory lock of the database, so they
follow each other. That the number of an entry is the primary key would stop two of them even without the lock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from od_core.errors import OdError
from od_core.extras import require
from od_core.ledger.chain import (
    WAIT_SECONDS,
    Chain,
    Entries,
    make_damage_error,
    make_unavailable_error,
    read_statements,
)
from od_core.ledger.confidential import LOCK_SECONDS

if TYPE_CHECKING:
    from psycopg import Connection, Error

SCHEMES = ("postgresql://", "postgres://")
"""Beginnings of the address of a PostgreSQL database."""

_CAUSE_BY_TEXT = {
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

_TRANSACTIONS, _RELEASES = 0x6F645F6C65646765, 0x6F645F72656C6561
"""Keys of the advisory locks: for transactions and for releases. PostgreSQL keeps such locks per database."""

_GUARDS = read_statements("postgres_guards")
_BEGIN = read_statements("postgres_begin").format(seconds=WAIT_SECONDS, lock=_TRANSACTIONS)
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = od_ledger;"


def make_schema_sql(writer: str) -> str:
    """Return the SQL statements that create the table of a ledger, its trigger and the grants of the writing role.

    ``writer`` is the role of the releases, which must exist. Raises OdError if the name is not that of a role in
    lowercase letters, digits, ``_``, ``-`` and ``$``.
    """
    if not _ROLE.fullmatch(writer):
        message = f"{writer!r} is not the name of a role that can own nothing and write the ledger"
        step = "use a role whose name has lowercase letters, digits and underscores"
        raise OdError("OD-CONFIG", message, next_step=step)
    return read_statements("postgres_schema").format(writer=writer)


class PostgresChain(Chain):
    """The entries of a ledger in the table ``od_ledger.entries`` of a PostgreSQL database.

    Raises OdError if psycopg is not installed, or the address cannot be read, or not in one way only.

    Args:
        server: address of the database, as libpq reads it: ``postgresql://role@host/database``.
        folder: see :class:`~od_core.ledger.chain.Chain`.
    """

    _begin, _begin_to_read = _BEGIN, _SNAPSHOT

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(folder)
        require("postgres")
        from psycopg import Error

        self._error = Error
        _refuse_unclear_address(server)
        self._server = server

    def exists(self) -> bool:
        """Return True: the owner creates the table before the first release."""
        return True

    def _make_entries(self, connection: Connection[dict[str, object]]) -> Entries:
        return Entries(connection, placeholder="%s")

    def _read_circumstances(self) -> object:
        """Return the number of this thread, and whether the shared connection is closed.

        Two threads must not share a connection, because their statements would be in one transaction.
        """
        return get_ident(), self._shared is not None and self._shared.closed

    @contextmanager
    def lock_for_release(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Lock the folder, and the ledger for all hosts, as :meth:`Chain.lock_for_release` does.

        The server releases the lock if the connection is lost. Then another release can begin although this one goes
        on. Each draw still has its own charge: the ledger refuses the result of a draw after which another has begun.
        Raises OdError if another release still has the lock after ``seconds``.
        """
        from psycopg.errors import LockNotAvailable

        deadline = time.monotonic() + seconds
        with super().lock_for_release(seconds), self._convert_database_errors(), closing(self._connect()) as connection:
            # The server learns within a minute that a host disappeared.
            connection.execute("SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10")
            seconds_left = max(deadline - time.monotonic(), 0.001)  # of 0, the server would wait for ever
            connection.execute(f"SET tcp_keepalives_count = 3; SET lock_timeout = '{seconds_left:.3f}s'")
            try:
                connection.execute(f"SELECT pg_advisory_lock({_RELEASES})")
            except LockNotAvailable:
                raise OdError(
                    "OD-RELEASE-LOCKED",
                    f"another release has been running for more than {seconds:.0f} seconds, here or on another host",
                    next_step="wait until it ends, then run this one again",
                ) from None
            yield

    def _connect(self) -> Connection[dict[str, object]]:
        """Open a new connection. Raises OdError if the database has no ledger, or a guard of it is missing."""
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

    def _make_database_error(self, error: Error) -> OdError:
        """Return the OdError for a PostgreSQL error. Its text is not repeated, because it may quote the address."""
        state, reported = error.sqlstate or "", str(error)
        if state.startswith("XX"):  # damaged data (PostgreSQL, appendix A)
            return make_damage_error()
        unknown = f"PostgreSQL reports {type(error).__name__} {state}".rstrip()
        cause = next((cause for text, cause in _CAUSE_BY_TEXT.items() if text in reported), unknown)
        step = "check the server and the address in OD_LEDGER, then run the release again; psql with the same address"
        return make_unavailable_error(f"the ledger's server cannot be used: {cause}", f"{step} says more")


def _refuse_unclear_address(server: str) -> None:
    """Raise OdError if libpq cannot read an address, or could take a part of the password for a host, port or option.

    An address is clear if it has no ``@``, or only one ``@`` and no ``/`` in the role and password before it.

    References:
        PostgreSQL, section 34.1.1.2: a reserved sign in a part of the address is written with a percent sign.
    """
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    _, _, after_scheme = server.partition("://")
    role, at_sign, after_role = after_scheme.partition("@")
    with suppress(Error):
        conninfo_to_dict(server)
        if not at_sign or ("/" not in role and "@" not in after_role):
            return
    raise OdError(
        "OD-LEDGER-ADDRESS",
        "the address of the ledger cannot be read; it is not repeated here, because it may hold a password",
        next_step="write it as postgresql://role@host/database, with the password in a file of libpq, or with %25, %2F"
        " and %40 for the signs % / and @ in it, and likewise for others",
    )


def _check_guards(guards: Mapping[str, object] | None) -> None:
    """Raise OdError if the table of a ledger does not exist or is not guarded against changes.

    ``guards`` is the row of the query ``_GUARDS``, which says whether the role may change entries, and whether the
    trigger refuses changes; None if there is no table.
    """
    if guards is None:
        step = "as the owner of the database, run the statements of: od-release ledger schema --writer ROLE"
        raise OdError("OD-LEDGER-ABSENT", "the database has no ledger, or the role may not see it", next_step=step)
    if guards["may_change"] or not guards["refuses"]:
        fault = "the role may change its entries" if guards["may_change"] else "its trigger is missing or disabled"
        message = f"the ledger in PostgreSQL does not refuse changes: {fault}"
        step = "release with a role that owns nothing and has the grants of: od-release ledger schema"
        raise OdError("OD-LEDGER-UNGUARDED", message, next_step=step)
