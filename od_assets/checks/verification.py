"""Verify what is published: the check of each series, and one job and schedule of the project, which verify all."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from od_assets.failures import convert_errors_without_values
from od_assets.metadata import make_metadata
from od_assets.project import Project
from od_assets.resources.dead_runs import PARTITION_TAG, RELEASE_TAG
from od_assets.resources.warehouse import Warehouse, find_published_releases, verify_published_release
from od_assets.series.reading import list_series
from od_assets.series.section import read_key_prefix, read_sibling_yaml
from od_assets.series.series import G, P, Series
from od_core import ReleaseKey
from od_core.errors import OdError
from od_core.flows.publishing.derived_kind import ASSISTED
from od_core.publication.bundle_files import check_bundle
from od_core.publication.certificate import compute_certificate_digest
from od_core.publication.read_back import read_bundle_certificate

_CHECK = "stays_as_published"
_REQUIREMENT: str = read_sibling_yaml(__file__, "requirements.yaml")["bundle"][_CHECK]

_FAULTY, _NEVER, _AT = "0", "1", "2 "
"""How a release was verified last, in the order in which releases are verified: with a fault, never, or at a time."""

_UNREACHED = "not as published at its last verification, and not reached in this one"


def make_publication_check(series: Series[P, G]) -> dg.AssetChecksDefinition:
    """Return the check of all bundles of a series.

    In a release, the check takes a moment and reads the published files alone, since to recompute all releases of the
    series takes as long as they took together. Where it fails, the assets below the bundle wait.
    """

    @dg.asset_check(
        asset=dg.AssetKey([*series.path, "bundle"]),
        name=_CHECK,
        description=_REQUIREMENT,
        blocking=True,
    )
    def stays_as_published(context: dg.AssetCheckExecutionContext, od_warehouse: Warehouse) -> dg.AssetCheckResult:
        partition = context.run.tags.get(PARTITION_TAG)
        with convert_errors_without_values(od_warehouse.confidential):
            if partition is None:
                keys = [key for row in series.rows for key in _list_published(od_warehouse, row.name)]
                faults = _verify_in_turn(context.instance, od_warehouse, keys)
            else:
                _, key = series.find_release(partition)
                faults = {key: ", ".join(_iterate_bundle_changes(od_warehouse, key))}
        return dg.AssetCheckResult(severity=dg.AssetCheckSeverity.ERROR, **_make_result(faults, len(faults)))

    return stays_as_published


def _iterate_bundle_changes(warehouse: Warehouse, key: ReleaseKey) -> Iterator[str]:
    """Yield one line for each file of a bundle that its certificate does not state, and for one of another release."""
    folder = warehouse.locate_bundle(key)
    yield from check_bundle(folder)
    published = warehouse.ledger.read_publication(key).get("certificate")
    if compute_certificate_digest(read_bundle_certificate(folder)) != published:
        yield "its certificate differs from the one that was published"


def make_verification(
    project: Project, name: str, cron: str | None, minutes: int, clock: Callable[[], float] = time.monotonic
) -> dg.Definitions:
    """Return the job that verifies the published releases of a project, and its schedule.

    It is one run with one step, because the releases of all series share its time and are verified in one order.

    Args:
        name: name of the job and of the schedule, and the tag of its runs.
        cron: when it is scheduled; None for never.
        minutes: time after which no further release is begun.
        clock: seconds since some time.
    """

    @dg.op(name=f"{name}__releases")  # as steps of assets are named; a job and an op must have different names
    def verify(context: dg.OpExecutionContext, od_warehouse: Warehouse) -> None:
        until = clock() + 60 * minutes
        prefix = read_key_prefix(project)
        graph_of = {"_".join([*prefix, source.name]): source.graph for source in list_series(project)}
        with convert_errors_without_values(od_warehouse.confidential):
            keys = _list_published(od_warehouse)
            faults = _verify_in_turn(context.instance, od_warehouse, keys, lambda: clock() >= until)
            for graph, of_graph in _group_by_graph(keys, graph_of).items():
                found = {key: faults[key] for key in of_graph if key in faults}
                if found:
                    asset, result = dg.AssetKey([*prefix, graph, "bundle"]), _make_result(found, len(of_graph))
                    context.log_event(dg.AssetCheckEvaluation(asset, _CHECK, **result))  # type: ignore[arg-type]  # it takes them
            of_all = _make_result(faults, len(keys))  # also of sums, and of series that are not declared
            metadata, description = of_all["metadata"], of_all["description"]
            reached = f"{metadata['releases']} of {len(keys)} published releases were verified"
            if metadata["remaining"]:
                reached += f"; the next verification goes on with the other {metadata['remaining']}"
            context.log.info(f"{reached}.")
            if description is not None:
                step = "see what od-release verify says, and run the release again, which repairs its bundle"
                raise OdError("OD-RELEASE-UNVERIFIED", f"not as published: {description}; {reached}", next_step=step)
        context.add_output_metadata(metadata)

    @dg.job(
        name=name,
        description="Verify published releases against measurements, bundle, database and ledger, while there is time.",
        tags={RELEASE_TAG: name},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        verify()

    said = f"Verifies releases for {minutes} minutes; the next run goes on with the others."
    schedules = [] if cron is None else [dg.ScheduleDefinition(name, cron_schedule=cron, job=job, description=said)]
    return dg.Definitions(jobs=[job], schedules=schedules)


def _list_published(warehouse: Warehouse, series: str | None = None) -> list[ReleaseKey]:
    """Return the published releases of a series with its assisted flows, or of the project; oldest first."""
    try:
        return find_published_releases(warehouse, series)
    except OdError as error:
        if error.code not in ("OD-RELEASE-ABSENT", "OD-LEDGER-ABSENT"):
            raise
        return []


def _verify_in_turn(
    instance: dg.DagsterInstance,
    warehouse: Warehouse,
    keys: Sequence[ReleaseKey],
    is_over: Callable[[], bool] = lambda: False,
) -> dict[ReleaseKey, str]:
    """Verify releases until the time is over, one at least, and return the faults of each; empty if it has none.

    Those with a fault at their last verification come first: without them, their series would seem to be as published.
    Then come those that were never verified, the newest first, and then those whose last verification is oldest. The
    Dagster instance stores how each was verified last. A verification is not interrupted when the time is over.
    """
    cursors = instance.daemon_cursor_storage
    names = {key: f"od/verified/{key}" for key in keys}
    last = {key: cursors.get_cursor_values({name}).get(name, _NEVER) for key, name in names.items()}
    faults: dict[ReleaseKey, str] = {}
    newest_first = keys[::-1]
    for key in sorted(newest_first, key=lambda key: last[key]):
        if not faults or not is_over():
            row = verify_published_release(warehouse.locate_release(key))
            faults[key] = ", ".join(row["faults"].values())
            verified = _FAULTY if faults[key] else f"{_AT}{datetime.now(UTC).isoformat()}"
            cursors.set_cursor_values({names[key]: verified})
        elif last[key] == _FAULTY:
            faults[key] = _UNREACHED
    return faults


def _group_by_graph(keys: Iterable[ReleaseKey], graph_of: Mapping[str, str]) -> dict[str, list[ReleaseKey]]:
    """Return the releases of declared series by the name of their assets, given that name by series.

    Assisted flows are with the series that they were made of.
    """
    of_graph: dict[str, list[ReleaseKey]] = {}
    for key in keys:
        series = key.release if key.release in graph_of else key.release.removesuffix(f"_{ASSISTED.name}")
        if series in graph_of:
            of_graph.setdefault(graph_of[series], []).append(key)
    return of_graph


def _make_result(faults: Mapping[ReleaseKey, str], number: int) -> dict[str, Any]:
    """Return what a check says of a number of releases, from the faults of those that were verified or are known."""
    faulty = [f"{key}: {fault}" for key, fault in faults.items() if fault]
    verified = sum(fault != _UNREACHED for fault in faults.values())
    metadata = make_metadata(violations=len(faulty), releases=verified, remaining=number - verified)
    return {"passed": not faulty, "description": "; ".join(faulty) or None, "metadata": metadata}
