"""What works on the parts of a release: the threads of this machine, or Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from od_core.archive.confidential import ConfidentialFolder
from od_core.archive.release_key import ReleaseKey
from od_core.archive.store import LocalStore, Store, store_at
from od_core.parts.workers import Threads, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SparkEngine:
    """Spark: it counts the records where they are, and hands out the parts.

    Attributes:
        address: of a Spark Connect server (``sc://host:port``), or a master.
        settings: of the session.
        store: folder that every executor reaches, or an address of fsspec; the confidential folder if None.
    """

    address: str
    settings: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None

    @contextmanager
    def session(self, confidential: ConfidentialFolder) -> Iterator[SparkSession]:
        """A session that is checked. Raises OdError as :func:`od_core.parts.spark_session.open_session`."""
        from od_core.parts.spark_session import open_session

        with open_session(self.address, confidential.subfolder("spark"), self.settings) as session:
            yield session


@contextmanager
def workers_of(engine: SparkEngine | None, confidential: ConfidentialFolder) -> Iterator[Workers]:
    """Who works on parts; None is the threads of this process."""
    if engine is None:
        yield Threads()
        return
    from od_core.parts.spark_workers import SparkWorkers

    with engine.session(confidential) as session:
        yield SparkWorkers(session)


def store_of(engine: SparkEngine | None, confidential: ConfidentialFolder, key: ReleaseKey) -> Store:
    """Where the counts and parts of a release are kept. Raises OdError for storage that will not do."""
    if engine is None or engine.store is None:
        return LocalStore(confidential.subfolder(key.folder))
    return store_at(f"{engine.store}/{key.folder}")
