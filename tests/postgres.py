"""A PostgreSQL server of the tests' own, on a socket, and ledgers in it."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.rows import dict_row

from od_core.ledger.postgres_chain import make_schema_sql

OWNER, WRITER, USER = "owner", "releases", "postgres"
"""Role that owns ledgers, role that releases use, and the system's user (and superuser) that runs the server."""

POINTER = "ledger.server"
"""Name of the file in the folder of a test that has the address of its ledger; there is none for a SQLite file."""


def server_of(path: Path) -> str | None:
    """Address of the ledger of the folder that a path is in; None if its entries are in the SQLite file."""
    pointer = path.parent / POINTER
    return pointer.read_text(encoding="utf-8") if pointer.exists() else None


@contextmanager
def session(path: Path, role: str = USER) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A session of the superuser, or of another role, in the database of a ledger."""
    address = (server_of(path) or "").replace(f"//{WRITER}@", f"//{role}@")
    options = "-c search_path=od_ledger"
    with closing(psycopg.connect(address, autocommit=True, row_factory=dict_row, options=options)) as connection:
        yield connection


def without_guards(path: Path, *statements: str) -> int:
    """What a superuser can do: change entries whose trigger is disabled for the moment; the rows of the last one."""
    with session(path) as connection, connection.transaction():
        connection.execute("ALTER TABLE entries DISABLE TRIGGER entries_are_final")
        changed = [connection.execute(statement.encode()).rowcount for statement in statements][-1]
        connection.execute("ALTER TABLE entries ENABLE ALWAYS TRIGGER entries_are_final")
        return changed


def restore(path: Path, entries: list[dict[str, Any]]) -> None:
    """Put the entries of a backup in the place of all that there is."""
    without_guards(path, "TRUNCATE entries")
    with session(path) as connection:
        for entry in entries:
            places = ", ".join(["%s"] * len(entry))
            connection.execute(f"INSERT INTO entries ({', '.join(entry)}) VALUES ({places})", tuple(entry.values()))


ROOM = 8_000_000_000
"""Bytes in memory, as the Makefile asks for them. Each test copies a database, which has 8 MB."""


def programs() -> Path | None:
    """Folder of the programs of the newest PostgreSQL of this machine."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


class Server:
    """A server with its files in a folder; it does not wait for the disk, since no test cuts the power."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs, self._numbers = folder, programs, itertools.count(1)
        self._user = USER if os.getuid() == 0 else None  # PostgreSQL does not run as root
        if self._user:
            shutil.chown(folder, USER, pwd.getpwnam(USER).pw_gid)
        self._run("initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-sync", "-D", folder / "data")
        self.start()
        for role in (OWNER, WRITER):
            self._execute(f"CREATE ROLE {role} LOGIN")
        self._execute("CREATE DATABASE empty OWNER owner")
        self._execute("CREATE DATABASE ledger OWNER owner")
        with psycopg.connect(self.address("ledger", OWNER), autocommit=True) as connection:
            connection.execute(make_schema_sql(WRITER).encode())

    def address(self, database: str, role: str = WRITER) -> str:
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def new_ledger(self, folder: Path, like: Path | None = None) -> str:
        """Create an empty ledger, or a copy of that of another folder; name it in the folder, return its address."""
        name = f"ledger_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {'ledger' if like is None else self._database(like)}")
        (folder / POINTER).write_text(self.address(name), encoding="utf-8")
        return self.address(name)

    def drop_ledger(self, folder: Path) -> None:
        """Remove the ledger of a folder, and end sessions that killed processes left."""
        self._execute(f"DROP DATABASE {self._database(folder)} WITH (FORCE)")

    def _database(self, folder: Path) -> str:
        return urlsplit((folder / POINTER).read_text(encoding="utf-8")).path.removeprefix("/")

    def start(self) -> None:
        settings = f"-k {self.folder} -c listen_addresses= -c fsync=off -c full_page_writes=off -c max_connections=50"
        self._run("pg_ctl", "-w", "-D", self.folder / "data", "-l", self.folder / "log", "-o", settings, "start")

    def stop(self, mode: str = "immediate") -> None:
        """End the server as a crash does, or in another mode of ``pg_ctl``."""
        self._run("pg_ctl", "-w", "-D", self.folder / "data", "-m", mode, "stop")

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._programs / program, *map(str, arguments)],
            user=self._user,
            cwd=self.folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,  # the server keeps what it gets
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.address("postgres", USER), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def started(programs: Path) -> Iterator[Server]:
    """A server with its files where its own user can reach them: in memory if there is room, which takes a third."""
    memory = Path("/dev/shm")  # noqa: S108  # a file system, below which a folder of its own is made
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > ROOM
    folder = Path(tempfile.mkdtemp(prefix="od-postgres-", dir=memory if has_room else "/tmp"))  # noqa: S108  # as above
    try:
        server = Server(folder, programs)
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server for the tests of one worker."""
    found = programs()
    if found is None:
        pytest.skip("needs PostgreSQL (Debian: postgresql)")
    with started(found) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path) -> str:
    """The database of ledgers in the folder of the test: a SQLite file, or a database of a server."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres").new_ledger(tmp_path)
    return str(request.param)
