"""Choose the executor of this project: all steps of a run share one process, which reads the counts once."""

import dagster as dg


@dg.definitions
def executor() -> dg.Definitions:
    """Return the executor of the project."""
    return dg.Definitions(executor=dg.in_process_executor)
