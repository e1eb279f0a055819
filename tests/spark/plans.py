"""What a session was made to run: every plan and every job, from Spark's own books."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

HANDED_OUT = [
    ("LocalTableScan", ("part", "descriptor")),
    ("Exchange", ()),
    ("MapInArrow", ("part", "descriptor", "part", "outcome")),
]
"""The nodes that may stand in a plan of noise, from the source on, and the columns that each names: no others."""

_OF_NO_DATA = ("AdaptiveSparkPlan", "ResultQueryStage", "ShuffleQueryStage", "WholeStageCodegen", "InputAdapter")
"""How Spark wraps what it runs; these hold no columns of their own."""


@dataclass
class Ran:
    """What was run within :func:`plans_of`.

    Attributes:
        plans: of every query, name and named columns of its nodes, from the source on.
        jobs_of_no_query: jobs that belong to none: of an RDD, or of a checkpoint.
        kept: relations that are cached, RDDs that are persisted.
    """

    plans: list[list[tuple[str, tuple[str, ...]]]] = field(default_factory=list)
    jobs_of_no_query: int = 0
    kept: int = 0

    @property
    def handed_out_only(self) -> bool:
        """Whether descriptors and outcomes are all that data frames held."""
        return all(plan == HANDED_OUT for plan in self.plans) and not self.jobs_of_no_query and not self.kept


@contextmanager
def plans_of() -> Iterator[Ran]:
    """Whatever the application of this process runs meanwhile: classic, or as the server of a Connect session here."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    ran = Ran()
    queries, jobs = _queries(context), _jobs(context)
    yield ran
    of_queries: set[int] = set()
    for number, query in _queries(context).items():
        if number not in queries:
            ran.plans.append(_nodes(context, number))
            of_queries |= {int(job) for job in _items(query.jobs().keys().toSeq())}
    ran.jobs_of_no_query = len(_jobs(context) - jobs - of_queries)
    ran.kept = context._jsc.getPersistentRDDs().size()


def _queries(context: Any) -> dict[int, Any]:
    """Every query that was executed, by its number. Spark keeps the last thousand."""
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return {query.executionId(): query for query in _items(_books(context).executionsList())}


def _jobs(context: Any) -> set[int]:
    return {job.jobId() for job in _items(context._jsc.sc().statusStore().jobsList(None))}


def _nodes(context: Any, query: int) -> list[tuple[str, tuple[str, ...]]]:
    """In the order in which the data pass, as every plan here is a single line of nodes."""
    nodes = {node.id(): node for node in _items(_books(context).planGraph(query).allNodes())}
    named = [(nodes[number].name(), _columns(nodes[number].desc())) for number in sorted(nodes, reverse=True)]
    return [node for node in named if not node[0].startswith(_OF_NO_DATA)]


def _columns(described: str) -> tuple[str, ...]:
    """The columns in brackets; how rows are exchanged is no column."""
    if described.startswith("Exchange"):
        return ()
    return tuple(name for name in re.findall(r"(\w+)#\d+L?(?=[,)\]])", described))


def _books(context: Any) -> Any:
    session = context._jvm.org.apache.spark.sql.classic.SparkSession
    return session.getDefaultSession().get().sharedState().statusStore()


def _items(sequence: Any) -> list[Any]:
    """Of a sequence of Scala."""
    return [sequence.apply(place) for place in range(sequence.size())]
