"""What a team's Dagster project has of its own: an executor, an IO manager, a resource, an asset and a schedule."""

import pickle
from pathlib import Path

import dagster as dg
import pandas as pd

STORED = Path(__file__).parents[3] / "stored"


class Pickles(dg.ConfigurableIOManager):
    def handle_output(self, context, obj):
        STORED.mkdir(exist_ok=True)
        (STORED / "_".join(context.asset_key.path)).write_bytes(pickle.dumps(obj))

    def load_input(self, context):
        return pickle.loads((STORED / "_".join(context.asset_key.path)).read_bytes())  # noqa: S301


@dg.asset
def weather() -> int:
    return 3


MONTHS = dg.MonthlyPartitionsDefinition(start_date="2001-01", end_date="2001-03", fmt="%Y-%m")


@dg.asset(partitions_def=MONTHS)
def dashboard(trips_flows: pd.DataFrame) -> int:
    """Trips between zones, as they were published."""
    return int(trips_flows.query("origin_level == 'zone' and destination_level == 'zone'").trips.sum())


@dg.definitions
def host() -> dg.Definitions:
    return dg.Definitions(
        assets=[weather, dashboard],
        resources={"io_manager": Pickles(), "warehouse": dg.ResourceDefinition.hardcoded_resource("the team's own")},
        executor=dg.multiprocess_executor.configured(
            {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": ["team.definitions"]}}}
        ),
        schedules=[dg.ScheduleDefinition(name="weather_daily", target=weather, cron_schedule="0 5 * * *")],
    )
