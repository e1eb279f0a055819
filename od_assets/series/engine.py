"""Choose the engine that processes the parts of a release: the threads of this machine, or Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from od_core.flows.parts.work import Threads, Workers
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.object_store import LocalStore, Store, store_at
from od_core.ledger.release_key import ReleaseKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SparkEngine:
    """The Spark engine, which counts the records where they are stored and distributes the parts to executors.

    Attributes:
        address: address of a Spark Connect server (``sc://host:port``), or a master; not used with ``submit``.
        settings: names and values of the session's settings.
        store: folder that every executor can access, or an fsspec address; None for the confidential folder.
        submit: ``spark-submit`` and its options, if each step is submitted as a process; otherwise empty.
    """

    address: str
    settings: tuple[tuple[str, str], ...] = ()
    store: str | None = None
    submit: tuple[str, ...] = ()

    def session(self, confidential: ConfidentialFolder) -> SparkSession:
        """Return the Spark session of this run, which the first call opens.

        Raises:
            OdError: as in :func:`od_core.spark.session.open_session`.
        """
        from od_core.spark.session import open_session

        if self not in _SESSIONS:
            place = confidential.subfolder("spark")
            _SESSIONS[self] = _CLOSING.enter_context(open_session(self.address, place, dict(self.settings)))
        return _SESSIONS[self]


_SESSIONS: dict[SparkEngine, SparkSession] = {}
_CLOSING = ExitStack()


def use_session(engine: SparkEngine, session: SparkSession) -> None:
    """Make the steps of this process use an existing Spark session for an engine."""
    _SESSIONS[engine] = session


@contextmanager
def closed_sessions() -> Iterator[None]:
    """Close all Spark sessions of this process when this context ends."""
    try:
        yield
    finally:
        _SESSIONS.clear()
        _CLOSING.close()


def workers_of(engine: SparkEngine | None, confidential: ConfidentialFolder) -> Workers:
    """Return the workers of an engine; None is threads. Raises OdError as :meth:`SparkEngine.session` does."""
    if engine is None:
        return Threads()
    from od_core.spark.session import SparkWorkers

    return SparkWorkers(engine.session(confidential))


def store_of(engine: SparkEngine | None, confidential: ConfidentialFolder, key: ReleaseKey) -> Store:
    """Return the store of the counts and parts of a release. Raises OdError for unsuitable storage."""
    if engine is None or engine.store is None:
        return LocalStore(confidential.subfolder(key.folder))
    return store_at(f"{engine.store}/{key.folder}")
