"""What all releases share: the warehouse, and the executor that runs them step by step in one process."""

import dagster as dg

from od_assets.resources.warehouse import Warehouse


@dg.definitions
def resources() -> dg.Definitions:
    """Resources and executor of the project."""
    return dg.Definitions(resources={"warehouse": Warehouse()}, executor=dg.in_process_executor)
