"""Choose the engine that processes the parts of a release: the threads of this machine, or Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from pydantic import Field

from od_assets.series.section import Section
from od_core.errors import OdError
from od_core.ledger.confidential import ConfidentialFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Spark(Section):
    """A Spark cluster that counts the records where they are stored and processes the parts."""

    address: str | None = None
    submit: list[str] = Field(default_factory=list)
    settings: dict[str, str] = Field(default_factory=dict)
    store: str | None = None

    def checked(self) -> Self:
        """Return the section, whose values are valid. Raises OdError unless it has an address or spark-submit."""
        if (self.address is None) == (not self.submit):
            raise OdError(
                "OD-ENGINE",
                "Spark needs either an address or spark-submit",
                next_step="declare one of address and submit",
            )
        return self

    def session(self, confidential: ConfidentialFolder) -> SparkSession:
        """Return the Spark session of this run, which the first call opens; see ``od_core.spark.session``."""
        from od_core.spark.session import open_session

        if repr(self) not in _SESSIONS:
            place = confidential.subfolder("spark")
            session = _CLOSING.enter_context(open_session(self.address or "", place, self.settings))
            use_session(self, session)
        return _SESSIONS[repr(self)]


_SESSIONS: dict[str, SparkSession] = {}
_CLOSING = ExitStack()


def use_session(engine: Spark, session: SparkSession) -> None:
    """Make the steps of this process use an existing Spark session for an engine."""
    _SESSIONS[repr(engine)] = session


@contextmanager
def closed_sessions() -> Iterator[None]:
    """Close all Spark sessions of this process when this context ends."""
    try:
        yield
    finally:
        _SESSIONS.clear()
        _CLOSING.close()
