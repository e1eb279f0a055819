"""Run tags that say which release, period and revision a run is of."""

import dagster as dg

from od_assets.series.partitions import period_of

RELEASE_TAG = "od/release"
PERIOD_TAG = "od/period"
REVISION_TAG = "od/revision"
EVERY_TAG = "od/every"
_PARTITION_TAG = "dagster/partition"


def release_tags(name: str, revision: int, every: str) -> dict[str, str]:
    """What every run of a release job carries from its definition."""
    return {RELEASE_TAG: name, REVISION_TAG: str(revision), EVERY_TAG: every}


def mark_release(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Write into a run's tags which period it is of, and of chosen assets, which have no job of ours, which series."""
    marks = {}
    series = chosen_series(run)
    if RELEASE_TAG not in run.tags and len(series) == 1:
        marks[RELEASE_TAG] = series.pop()
    if _PARTITION_TAG in run.tags:
        partition, every = run.tags[_PARTITION_TAG], run.tags.get(EVERY_TAG)
        marks[PERIOD_TAG] = partition if every is None else period_of(partition, every).text
    if marks:
        instance.add_run_tags(run.run_id, marks)


def chosen_series(run: dg.DagsterRun) -> set[str]:
    """Return the series, or prefixes of others' keys, that a run of chosen assets has; none for a whole job."""
    return {key.path[0] for key in run.asset_selection or ()}
