"""What works on the parts of a release: the threads of this machine, or Spark."""

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
    """Spark: it counts the records where they are, and hands out the parts.

    Attributes:
        address: of a Spark Connect server (``sc://host:port``), or a master; of no use where steps are submitted.
        settings: of the session, name and value.
        store: folder that every executor reaches, or an address of fsspec; the confidential folder if None.
        submit: ``spark-submit`` and its options, where each step is to be a process of it.
    """

    address: str
    settings: tuple[tuple[str, str], ...] = ()
    store: str | None = None
    submit: tuple[str, ...] = ()

    def session(self, confidential: ConfidentialFolder) -> SparkSession:
        """The session of this run, opened by the first of its steps that asks; :func:`closed_sessions` ends it.

        Raises:
            OdError: as :func:`od_core.spark.session.open_session`.
        """
        from od_core.spark.session import open_session

        if self not in _SESSIONS:
            place = confidential.subfolder("spark")
            _SESSIONS[self] = _CLOSING.enter_context(open_session(self.address, place, dict(self.settings)))
        return _SESSIONS[self]


_SESSIONS: dict[SparkEngine, SparkSession] = {}
_CLOSING = ExitStack()


def use_session(engine: SparkEngine, session: SparkSession) -> None:
    """Let the steps of this process take a session that stands already."""
    _SESSIONS[engine] = session


@contextmanager
def closed_sessions() -> Iterator[None]:
    """When this ends, so do the sessions that were opened while it lasted."""
    try:
        yield
    finally:
        _SESSIONS.clear()
        _CLOSING.close()


def workers_of(engine: SparkEngine | None, confidential: ConfidentialFolder) -> Workers:
    """Who works on parts; None is the threads of this process. Raises OdError as :meth:`SparkEngine.session`."""
    if engine is None:
        return Threads()
    from od_core.spark.workers import SparkWorkers

    return SparkWorkers(engine.session(confidential))


def store_of(engine: SparkEngine | None, confidential: ConfidentialFolder, key: ReleaseKey) -> Store:
    """Where the counts and parts of a release are kept. Raises OdError for storage that will not do."""
    if engine is None or engine.store is None:
        return LocalStore(confidential.subfolder(key.folder))
    return store_at(f"{engine.store}/{key.folder}")
