"""What the tests of the library share: repeatable generated examples, and the real data of the project."""

from __future__ import annotations

import fcntl
import functools
import gc
import itertools
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from _pytest.doctest import DoctestModule  # pytest offers it nowhere else, and its version is pinned
from hypothesis import HealthCheck, settings

from od_assets.project import PLACES
from od_core import Geography, errors
from tests.checkouts_own import refuse_what_was_touched
from tests.postgres import engine, postgres  # noqa: F401  # fixtures
from tests.slow_folders import group, is_unwanted, markers, turn, without_representatives

QUICK = settings(
    derandomize=True,
    deadline=None,
    max_examples=10,
    # Examples of a test may share its fixtures: each says in its test what it needs to itself.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""The same few examples at every run, of ``make test``; ``make test-all`` draws many that no run had before."""

settings.register_profile("quick", QUICK)
settings.register_profile("thorough", QUICK, derandomize=False, max_examples=300, print_blob=True)
settings.load_profile("quick")

gc.disable()  # until all tests are imported: what is imported stays, so that nothing of it is collected

if TYPE_CHECKING:
    import duckdb

    from tests.od_core.publication.published_kinds import Made
    from tests.stored_tables import Stores

NUMBERS = itertools.count()

FLIGHTS = Path(__file__).parents[1] / "data" / "us_flights"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keep out of the collection what ``-m`` deselects as a whole folder.

    Importing the slow tests, only to deselect them, takes every worker 20 seconds. What is named on the command line
    is collected nevertheless.
    """
    return is_unwanted(collection_path, config.option.markexpr) or None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no examples in the docstrings of tests, which have none: only in those of the library."""
    return [one for one in (yield) if not isinstance(one, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to go on where ``--dist loadgroup`` would scatter the tests of a group, which would take far longer."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError("pytest-xdist does not keep groups of tests together with this version of pytest")
    keep_imports()


def keep_imports() -> None:
    """Keep what was imported out of all later garbage collections, which would take a tenth of the time of all tests.

    What tests make is collected as before, only in larger lots. Garbage of the imports is kept as well: to search for
    it takes longer than it is worth.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_unconfigure() -> None:
    """Let it be collected at the end, or libraries report what they take for leaks."""
    gc.unfreeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test the markers of its folder, before ``-m`` asks for them."""
    for name in sorted(markers(item.path)):
        item.add_marker(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say what else is slow, before ``-m`` asks; give slow tests their groups, and begin with those that take long."""
    for item in without_representatives(items, are_all=not any("::" in given for given in config.args)):
        item.add_marker("slow")
    for item in items:
        if item.get_closest_marker("slow") and (together := group(item.path)):
            item.add_marker(pytest.mark.xdist_group(together))
    items.sort(key=lambda item: turn(item.path))


@pytest.fixture
def left_as_found() -> Iterator[None]:
    """A test leaves the working directory, and the variables that name a project, to the next one as they were.

    Two patches of one variable that are not undone in turn would leave it behind.
    """

    def places():
        return os.getcwd(), [os.environ.get(name) for name in (*PLACES, "DAGSTER_HOME")]  # noqa: PTH109  # it is faster

    before = places()
    yield
    assert places() == before


@pytest.fixture(autouse=True)
def own_folders(request, left_as_found, tmp_path_factory, monkeypatch) -> Iterator[None]:
    """No test sees what this checkout has released: unless it says otherwise, all is written to a folder of its own.

    Where a test asks for no folder, none is made, which would take longer than most of these tests.
    """
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path")
    else:
        folder = tmp_path_factory.getbasetemp() / f"own{next(NUMBERS)}"
    monkeypatch.setenv("OD_VAR", str(folder / "var"))
    monkeypatch.setenv("DAGSTER_HOME", str(folder / "var" / "dagster"))
    monkeypatch.setattr(errors, "_SHOWN_BY_HIDDEN", {})
    yield
    refuse_what_was_touched()


@pytest.fixture(scope="session", autouse=True)
def equal_bundles_read_once() -> Iterator[None]:
    """Let files of the same bytes be read once in their format, and bundles of them be compared with their tables once.

    That is most of what it takes to write a small bundle, and to verify one is to write it again. Bundles are compared
    in one database, which has no limits: those of a database of its own are tested in tests/od_core/files.
    """
    from od_core.publication import bundle_differences, bundle_files, file_formats

    is_readable, faulty_files = file_formats.is_readable, file_formats.check_file_rows
    readable, faults = dict[tuple[str, bytes], bool](), dict[tuple[object, ...], list[tuple[str, str]]]()

    def is_readable_once(path):
        if not path.is_file():
            return is_readable(path)
        asked = (path.suffix, digest(path))
        if asked not in readable:
            readable[asked] = is_readable(path)
        return readable[asked]

    def faulty_files_once(folder, files):
        there = ((str(path.relative_to(folder)), digest(path)) for path in sorted(folder.rglob("*")) if path.is_file())
        asked = (*there, *(file.name for file in files))
        if asked not in faults:
            faults[asked] = [*faulty_files(folder, files)]
        yield from faults[asked]

    with pytest.MonkeyPatch.context() as patch:
        for module in (bundle_differences, bundle_files, file_formats):
            patch.setattr(module, "is_readable", is_readable_once)
        patch.setattr(file_formats, "check_file_rows", faulty_files_once)
        patch.setattr(file_formats, "open_folder_database", in_shared_database)
        yield
    if shared_database.cache_info().currsize:
        shared_database(os.getpid()).close()
        shared_database.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def version_read_once() -> Iterator[None]:
    """Let the installed version of OpenDP be read once, not at every choice of its noise, which takes milliseconds."""
    from od_core.noise import opendp

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opendp, "version", functools.cache(opendp.version))
        yield


@contextmanager
def in_shared_database(_: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to a database of all tests of this process, and leave no table in it."""
    with closing(shared_database(os.getpid()).cursor()) as connection:
        try:
            yield connection
        finally:
            tables = "SELECT 'TABLE', table_name FROM duckdb_tables() UNION ALL "
            views = "SELECT 'VIEW', view_name FROM duckdb_views() WHERE NOT internal"
            made = connection.execute(tables + views).fetchall()
            connection.execute("; ".join(f'DROP {kind} "{name}"' for kind, name in made) or "SELECT 1").fetchall()


@functools.cache
def shared_database(_process: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    from od_core.files.duckdb_session import THREADS

    return duckdb.connect(config={"threads": THREADS})


def digest(path: Path) -> bytes:
    return sha256(path.read_bytes()).digest()


@pytest.fixture(scope="module")
def in_one_database() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """While a context lasts, files are read and counted in one database, each time by a connection of its own.

    To open a database takes a third of what such a test takes. Its limits, which this one has not, are tested in
    tests/od_core/files and tests/od_core/records/test_count_records.py.
    """
    import duckdb

    from od_core.files.duckdb_session import THREADS, locate_spill_folder

    with duckdb.connect(config={"threads": THREADS}) as database:

        @contextmanager
        def scratch(folder: Path, *_: Path) -> Iterator[duckdb.DuckDBPyConnection]:
            locate_spill_folder(folder).mkdir(mode=0o700, exist_ok=True)
            try:
                with closing(database.cursor()) as connection:
                    yield connection
            finally:
                database.execute("DETACH DATABASE IF EXISTS source")  # all connections see what one has attached
                shutil.rmtree(locate_spill_folder(folder))

        @contextmanager
        def patched() -> Iterator[None]:
            with pytest.MonkeyPatch.context() as patch:
                _set_scratch_database(patch, scratch)
                yield

        yield patched


def _set_scratch_database(patch: pytest.MonkeyPatch, opened: object) -> None:
    from od_core.ledger import user_counters
    from od_core.records import counting, open_file

    for module in (counting, open_file, user_counters):
        patch.setattr(module, "open_scratch_database", opened)


@pytest.fixture(scope="module")
def one_scratch_database(in_one_database) -> Iterator[None]:
    """The same for all tests of a file, but for those with ``own_scratch_databases``."""
    with in_one_database():
        yield


@pytest.fixture
def own_scratch_databases(monkeypatch):
    """Each database is opened anew, with its limits, in a test of a file whose others share one."""
    from od_core.files.duckdb_session import open_scratch_database

    _set_scratch_database(monkeypatch, open_scratch_database)


@pytest.fixture(scope="session")
def airports() -> pd.DataFrame:
    """The public airport list: region, division, state, airport."""
    return pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)


@pytest.fixture(scope="session")
def airport_geography(airports) -> Geography:
    return Geography.from_frame(airports, levels=["region", "division", "state", "airport"])


@pytest.fixture(scope="session")
def flights() -> dict[str, pd.DataFrame]:
    """Six months of flights, one row a flight: date, origin, destination."""
    return {path.stem: pd.read_parquet(path) for path in sorted(FLIGHTS.glob("*.parquet"))}


@pytest.fixture(scope="session")
def published_flights(pytestconfig, tmp_path_factory, flights, airport_geography) -> Path:
    """A folder like ``var`` with two months of flights, published: bundles and database. Not to be changed.

    The first worker that needs it makes it, which takes seconds; each has a copy.
    """
    from tests.published_flights import publish_flights

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if hasattr(pytestconfig, "workerinput") else base) / "published_flights"  # of one run
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it ends with the worker
        if not shared.exists():
            made = tmp_path_factory.mktemp("made")
            publish_flights(made, flights, airport_geography)
            made.rename(shared)
    return Path(shutil.copytree(shared, tmp_path_factory.mktemp("copy") / "published_flights"))


@pytest.fixture(scope="session")
def published_few(tmp_path_factory) -> Path:
    """The same of few trips between five zones, for tests that say nothing of levels. Not to be changed."""
    from tests.od_core.ledger.ledger_rows import ONE_LEVEL
    from tests.published_flights import FEW, KEYS, publish_flights

    folder = tmp_path_factory.mktemp("published_few")
    publish_flights(folder, {key.period: FEW for key in KEYS}, ONE_LEVEL)
    return folder


@pytest.fixture(scope="session")
def published_by_category(tmp_path_factory) -> Made:
    """A small release of flows with two breakdowns, charged and published. Not to be changed."""
    from tests.od_core.publication.published_kinds import BY_CATEGORY, publish_examples

    return publish_examples(tmp_path_factory.mktemp("published_by_category"), {"flows": BY_CATEGORY})["flows"]


@pytest.fixture(scope="session")
def all_published(tmp_path_factory) -> dict[str, Made]:
    """One release of every kind in one ledger and one database. Not to be changed."""
    from tests.od_core.publication.published_kinds import publish_examples

    return publish_examples(tmp_path_factory.mktemp("published_kinds"))


@pytest.fixture
def stores(tmp_path, request) -> Stores:
    """Stores whose files are in the folder of the test, and a server that starts where it is first asked for."""
    from tests.stored_tables import Stores  # its libraries are slow to import

    folder = tmp_path / "stores"
    folder.mkdir()
    return Stores(folder, lambda: request.getfixturevalue("postgres"))
