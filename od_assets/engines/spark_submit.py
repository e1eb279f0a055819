"""Run a step of a release in a ``spark-submit`` process, which reports its outcome through Dagster Pipes.

The output of the process is written to a file in the confidential folder. The outcome has only public text, because
Dagster stores all messages of Pipes.
"""

from __future__ import annotations

import pickle
import secrets
import shlex
import sys
from pathlib import Path

import dagster as dg
from dagster_pipes import open_dagster_pipes

from od_assets.engines.steps import STEPS
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.engine import use_session
from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import write_durably
from od_core.ledger.confidential import ConfidentialFolder


def submit(context: dg.AssetExecutionContext, work: FlowWork, step: str, argument: str) -> None:
    """Run a step of :data:`STEPS` in a ``spark-submit`` process. Raises OdError if the step or the process fails."""
    from pyspark import cloudpickle  # pickles read-only mappings too

    settings = work.settings
    if settings.engine is None:
        raise OdError("OD-ENGINE", "a step was submitted without a Spark section", next_step="report this defect")
    folder = work.warehouse.confidential.subfolder("spark")
    name = secrets.token_hex(6)
    task, log = folder / f"{name}.task", folder / f"{name}.log"
    write_durably(task, lambda file: file.write_bytes(cloudpickle.dumps((settings, work.key, step, argument))))  # type: ignore[no-untyped-call]
    write_durably(log, lambda file: file.write_bytes(b""))
    command = shlex.join([*settings.engine.submit, str(Path(__file__)), str(task)])
    said: list[dict[str, str]] = []
    try:
        done = dg.PipesSubprocessClient().run(
            context=context, command=["sh", "-c", f"exec {command} >>{shlex.quote(str(log))} 2>&1"]
        )
        said = [dict(message) for message in done.get_custom_messages()]
    except Exception as error:  # noqa: BLE001  # any exception of Pipes; the log says more
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {error}\n")
    finally:
        task.unlink(missing_ok=True)
    if not said:
        raise OdError(
            "OD-SPARK-SUBMIT",
            "spark-submit ended without an outcome of the step",
            next_step=f"read {log.absolute()}, then run the release again",
            spent=STAYS_CHARGED,
        )
    log.unlink(missing_ok=True)
    if "code" in said[-1]:
        facts = said[-1]
        raise OdError(facts["code"], facts["message"], next_step=facts["next_step"], spent=facts["spent"])


def main() -> None:
    """Run the step in the ``spark-submit`` process, and report its outcome in one message."""
    from pyspark.sql import SparkSession

    from od_core.spark.session import check_session

    task = Path(sys.argv[1])
    confidential = ConfidentialFolder(task.parent.parent)
    with open_dagster_pipes() as pipes:
        outcome = {"done": ""}
        try:
            with confidential.errors_stay_inside(spent=STAYS_CHARGED):
                settings, key, step, argument = pickle.loads(task.read_bytes())  # noqa: S301  # written by the run, mode 0600
                session = SparkSession.builder.getOrCreate()
                session.sparkContext.setLogLevel("OFF")
                check_session(session)
                use_session(settings.engine, session)
                STEPS[step](FlowWork(Warehouse.of(settings.project), settings, key), argument)
                session.stop()
        except OdError as error:
            outcome = {"code": error.code, "message": error.message, "next_step": error.next_step, "spent": error.spent}
        pipes.report_custom_message(outcome)


if __name__ == "__main__":
    main()
