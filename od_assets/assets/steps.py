"""Run a step of a release in this process, or in one that ``spark-submit`` starts, and tell how far it is.

Each step writes its results to files, so it can run in either process. One that ``spark-submit`` starts reports its
outcome through Dagster Pipes. The outcome has only public text, because Dagster stores all messages of Pipes. The
output of the process is written to a file in the confidential folder.
"""

import pickle
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import dagster as dg
from dagster_pipes import open_dagster_pipes

from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.flows import use_spark_session
from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import write_durably
from od_core.flows.parts import (
    ATTEMPTS,
    Band,
    Threads,
    Work,
    Workers,
    measure_band,
    read_refined_pieces,
    read_segment_pieces,
    refine_bands,
)
from od_core.ledger.confidential import ConfidentialFolder
from od_core.noise.backends import resolve_noise_source
from od_core.records.counting import count_records

Step = Callable[[FlowWork, str], None]


def count(work: FlowWork, folder: str) -> None:
    """Confidential: count the records of a period, and write the counts to ``folder`` in the release's store."""
    series, plan, confidential = work.series, work.plan, work.warehouse.confidential
    options = series.make_count_options(confidential, work.counters)
    if series.engine is None:
        count_records(work.staged.records, plan.tree, work.store, folder, period=work.key.period, **options)
        return
    from od_core.spark.counting import count_in_spark

    count_in_spark(
        series.engine.find_or_open_spark_session(confidential),
        series.locate_records_source(work.key.period),
        series.columns,
        work.key.period,
        plan.tree,
        work.store,
        folder,
        record_format=series.record_format,
        time_zone=series.periods.time_zone,
        **options,
    )


def measure(work: FlowWork, band_number: str) -> None:
    """Measure a band of levels part by part, and copy its measurements into the confidential folder.

    ``band_number`` is the number of the band as text, from 1. The estimate of the band above it must be staged. Band 1
    begins a new attempt, whose parts the lower bands share. Raises OdError if the counts are of another plan.
    """
    plan, staged, band = work.plan, work.staged, int(band_number)
    staged.refuse_other_plan(plan)
    counts = work.counts
    measurements = work.begin(counts, work.store)
    if band == 1:
        noise = resolve_noise_source(work.series.noise)
        staged.save_attempt(Work.begin_attempt(plan, work.store, counts.folder, noise).facts())
    frontier = staged.read_estimate(plan.step_bands[band - 1][-1].level)
    measure_band(plan, band, frontier, read_attempt(work), _make_workers(work), measurements)
    measurements.copy_parts_to_folder([step.number for step in plan.step_bands[band]])


def refine(work: FlowWork, _argument: str) -> None:
    """Refine all levels of a release with bands, stage the refined estimates, and remove the files of the parts."""
    plan, staged, parts = work.plan, work.staged, read_attempt(work)
    steps = plan.step_bands
    frontiers = [staged.read_estimate(band_steps[-1].level) for band_steps in steps[:-1]]
    bands = [Band.from_frontier(plan, number, frontier) for number, frontier in enumerate(frontiers, start=1)]
    root = staged.read_published_root(plan)
    measured = work.read_measurements(steps[0])
    for nodes in refine_bands(plan, root, measured, frontiers[0], bands, parts, _make_workers(work)):
        staged.save_estimate(nodes.level, [nodes], refined=True)
    for band in bands:
        for level in dict.fromkeys(step.level for step in steps[band.number]):
            staged.save_estimate(level, read_refined_pieces(band, parts, level), refined=True)
    for breakdown in plan.breakdowns:
        pieces = ((leaves, segments[breakdown.name]) for leaves, segments in read_segment_pieces(bands[-1], parts))
        staged.save_segments(breakdown, pieces)
    parts.store.remove(ATTEMPTS)


def read_attempt(work: FlowWork) -> Work:
    """Return the current attempt to measure the parts of a release. Raises OdError if there is none."""
    return Work(work.store, noise=resolve_noise_source(work.series.noise), **work.staged.read_attempt())


def _make_workers(work: FlowWork) -> Workers:
    """Return what processes the parts: threads of this machine or, if the series declares Spark, its cluster."""
    if work.series.engine is None:
        return Threads()
    from od_core.spark.session import SparkWorkers

    return SparkWorkers(work.series.engine.find_or_open_spark_session(work.warehouse.confidential))


STEPS: dict[str, Step] = {"count": count, "measure": measure, "refine": refine}
"""Steps that can run in another process, by name. Each takes the work on a release and one argument as text."""


def run_step(context: dg.AssetExecutionContext, work: FlowWork, step: str, argument: str = "") -> None:
    """Run a step of :data:`STEPS` in this process, or in one of ``spark-submit`` if the series declares it.

    Raises:
        OdError: the step or the process fails.
    """
    engine = work.series.engine
    if engine is None or not engine.submit:
        STEPS[step](work, argument)
    else:
        if step == "measure":
            work.warehouse.drawing.add(work.key)
        _submit_step(context, work, step, argument, engine.submit)


def _submit_step(
    context: dg.AssetExecutionContext, work: FlowWork, step: str, argument: str, spark_submit: Sequence[str]
) -> None:
    """Run a step in a process of ``spark-submit``, which reads the task from a file and writes its output to a log.

    Raises OdError as the step does, or if the process ends without an outcome; the log then stays.
    """
    from pyspark import cloudpickle  # pickles read-only mappings too

    folder = work.warehouse.confidential.make_subfolder("spark")
    name = secrets.token_hex(6)
    task, log = folder / f"{name}.task", folder / f"{name}.log"
    content = cloudpickle.dumps((work.series, work.key, step, argument))  # type: ignore[no-untyped-call]
    write_durably(task, lambda file: file.write_bytes(content))
    write_durably(log, lambda file: file.write_bytes(b""))
    command = shlex.join([*spark_submit, str(Path(__file__)), str(task)])
    messages: list[dict[str, str]] = []
    try:
        done = dg.PipesSubprocessClient().run(
            context=context, command=["sh", "-c", f"exec {command} >>{shlex.quote(str(log))} 2>&1"]
        )
        messages = [dict(message) for message in done.get_custom_messages()]
    except Exception as error:  # noqa: BLE001  # any exception of Pipes; the log says more
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {error}\n")
    finally:
        task.unlink(missing_ok=True)
    if not messages:
        message = "spark-submit ended without an outcome of the step"
        next_step = f"read {log.absolute()}, then run the release again"
        raise OdError("OD-SPARK-SUBMIT", message, next_step=next_step, spent=STAYS_CHARGED)
    log.unlink(missing_ok=True)
    if "code" in messages[-1]:
        raise OdError(**messages[-1])


def main() -> None:
    """Run the step in the ``spark-submit`` process, and report its outcome in one message.

    The first argument of the process is the path of the task that :func:`_submit_step` wrote.
    """
    from pyspark.sql import SparkSession

    from od_core.spark.session import check_session

    task = Path(sys.argv[1])
    confidential = ConfidentialFolder(task.parent.parent)
    with open_dagster_pipes() as pipes:
        outcome = {"done": ""}
        try:
            with confidential.keep_errors_confidential():
                series, key, step, argument = pickle.loads(task.read_bytes())  # noqa: S301  # written by the run, mode 0600
                session = SparkSession.builder.getOrCreate()
                session.sparkContext.setLogLevel("OFF")
                check_session(session)
                use_spark_session(series.engine, session)
                STEPS[step](FlowWork(Warehouse.from_project(series.project), series, key), argument)
                session.stop()
        except OdError as error:
            outcome = {"code": error.code, "message": error.message, "next_step": error.next_step, "spent": error.spent}
        pipes.report_custom_message(outcome)


_MIN_SECONDS_BETWEEN_MESSAGES = 2
"""Least number of seconds between two messages. Dagster takes 1/30 s per message, as long as writing a small file."""

_PROGRESS = re.compile(r"(\d+) of (\d+): (.*)")
"""Pattern of a message on progress: the number, the total and the name."""


def parse_progress_message(entry: dg.EventLogEntry) -> tuple[int, int, str] | None:
    """Return the number, the total and the name in a message such as ``3 of 40: flows.csv``, or None."""
    match = _PROGRESS.match(entry.user_message)
    return None if match is None else (int(match[1]), int(match[2]), match[3])


def limit_message_rate(say: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """Return a function of a number, a total and a name that passes such messages as ``3 of 40: flows.csv`` to ``say``.

    It passes at most one message in two seconds, the first one two seconds from now, and drops the others.
    """
    last_time = time.monotonic()

    def tell(number: int, parts: int, name: str) -> None:
        nonlocal last_time
        now = time.monotonic()
        if now - last_time >= _MIN_SECONDS_BETWEEN_MESSAGES:
            last_time = now
            say(f"{number} of {parts}: {name}")

    return tell


if __name__ == "__main__":
    main()
