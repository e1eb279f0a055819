"""The component of what all releases of a project share: folders, ledger, database, notices and the sweep of runs."""

import dagster as dg
from pydantic import Field

from od_assets.code_references import source_of
from od_assets.components.declared_component import Declared
from od_assets.project import Project
from od_assets.resources.dead_runs import sweep_dead_runs
from od_assets.resources.notice_channels import Notices
from od_assets.resources.warehouse import Warehouse
from od_assets.sensors.lineage import lineage_events, lineage_is_configured
from od_assets.sensors.notices import release_failed, release_published
from od_core.ledger.lock import LOCK_SECONDS


@dg.sensor(
    name="dead_runs",
    description="Reports runs of releases without a process as failed, because they would block a queue of one run.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=source_of(__file__),
)
def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Report runs of releases whose process is gone as failed."""
    swept = sweep_dead_runs(context.instance)
    return dg.SkipReason(f"Dead runs reported as failed: {', '.join(swept) or 'none'}.")


class OdWarehouse(Declared):
    """The folders, the ledger and the database that all releases of a project share. Declare it once per project."""

    notices: bool = Field(
        True,
        description="Whether notices of releases go to the log; if false, the project defines the resource od_notices.",
    )

    lock_seconds: float = Field(
        LOCK_SECONDS, description="Longest time that a step waits for a step of another release or of the same run."
    )

    keep_records_days: int | None = Field(
        None,
        ge=1,
        description="Days after publication for which the copy of a release's records is kept; every later run removes"
        " it. By default, until od-release purge.",
    )

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["differential-privacy", "ledger"])

    def build_defs(self, context: dg.ComponentLoadContext | None) -> dg.Definitions:
        """Build the resources ``od_warehouse`` and ``od_notices``, and the sensors for runs, releases and lineage."""
        warehouse = Warehouse.of(Project.of(context), self.lock_seconds, self.keep_records_days)
        resources: dict[str, object] = {"od_warehouse": warehouse}
        if self.notices:
            resources["od_notices"] = Notices()
        sensors = [dead_runs, release_failed, release_published]
        if lineage_is_configured():
            sensors.append(lineage_events)
        return dg.Definitions(resources=resources, sensors=sensors)
