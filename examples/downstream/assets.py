"""Assets of a team below the published flows of my_city: a quarter from its months, and a table that is kept.

Copy it into the definitions of a project, or of another code location that sees the folder of the bundles.
"""

import os
import re
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd

from od_assets.resources.published_tables import PublishedTables

RELEASES = Path(os.environ.get("RELEASES", "var/releases"))
WAREHOUSE = Path(os.environ.get("WAREHOUSE", "warehouse.duckdb"))

MONTHS = dg.MonthlyPartitionsDefinition(start_date="2026-01", fmt="%Y-%m")
QUARTERS = dg.TimeWindowPartitionsDefinition(cron_schedule="0 0 1 */3 *", start="2026-01", fmt="%Y-%m")

my_city_flows = dg.AssetSpec("my_city_flows", partitions_def=MONTHS).with_io_manager_key("od_tables")


@dg.asset(partitions_def=QUARTERS)
def busiest_of_quarter(context: dg.AssetExecutionContext, my_city_flows: pd.DataFrame) -> pd.DataFrame:
    """Sum the months of a quarter. For intervals of the sum, publish it with od-release sum, and load that."""
    months = set(context.asset_partition_keys_for_input("my_city_flows"))
    absent = months - {*my_city_flows["period"]}
    if absent:  # months without a release are left out of the argument
        raise dg.Failure(f"not published: {', '.join(sorted(absent))}", allow_retries=False)
    zones = my_city_flows.query("origin_level == 'zone' and destination_level == 'zone'")
    return zones.groupby(["origin", "destination"], as_index=False)["trips"].sum().nlargest(10, "trips")


@dg.asset(deps=[dg.AssetDep("my_city_flows", partition_mapping=dg.AllPartitionMapping())])
def flows_in_warehouse() -> dg.MaterializeResult[None]:
    """Keep a table of the newest revision of each period: insert what is new or corrected, delete what is withdrawn."""
    files: dict[str, tuple[int, str]] = {}
    for file in RELEASES.glob("my_city/*/r*/tables/flows.parquet"):  # a withdrawn release has none
        period, revision = file.parts[-4], re.fullmatch(r"r(\d+)", file.parts[-3])
        if revision is not None:
            files[period] = max(files.get(period, (0, "")), (int(revision[1]), str(file)))
    with duckdb.connect(str(WAREHOUSE)) as database:
        database.begin()  # readers see all of the change, or nothing
        if files:
            columns = "SELECT '' AS period, 0 AS revision, * FROM read_parquet(?) LIMIT 0"
            database.execute(f"CREATE TABLE IF NOT EXISTS flows AS {columns}", [next(iter(files.values()))[1]])
        there = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'flows'"
        kept: dict[str, int] = {}
        if database.execute(there).fetchall() != [(0,)]:
            kept = dict(database.execute("SELECT DISTINCT period, revision FROM flows").fetchall())
        changed = [period for period in {*kept, *files} if kept.get(period) != files.get(period, (None,))[0]]
        for period in changed:
            database.execute("DELETE FROM flows WHERE period = ?", [period])
            if period in files:
                insert = "INSERT INTO flows BY NAME SELECT ? AS period, ? AS revision, * FROM read_parquet(?)"
                database.execute(insert, [period, *files[period]])
        database.commit()
    return dg.MaterializeResult(metadata={"changed_periods": sorted(changed)})


every_hour = dg.ScheduleDefinition("every_hour", target="flows_in_warehouse", cron_schedule="0 * * * *")

defs = dg.Definitions(
    assets=[my_city_flows, busiest_of_quarter, flows_in_warehouse],
    schedules=[every_hour],  # no asset is materialized when a release is withdrawn
    resources={"od_tables": PublishedTables(folder=str(RELEASES))},
)
