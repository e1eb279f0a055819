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

_FAULTY, _NEVER_VERIFIED, _SOUND_AT = "0", "1", "2 "
"""Stored states of releases, which sort in the order of their next verification; a time in ISO format follows the last.

A release had a fault at its last verification, was never verified, or was as published at that time.
"""

_NOT_REACHED = "not as published at its last verification, and not reached in this one"


def make_publication_check(series: Series[P, G]) -> dg.AssetChecksDefinition:
    """Return the blocking check that the bundles of a series are as published.

    In the run of a release, it compares the files of that bundle alone with their checksums, which takes a moment. In a
    run without a partition, it recomputes all releases of the series, which takes as long as they took together.
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
    """Yield a line for each fault of a bundle: files that differ from its certificate, or another certificate.

    The ledger has the digest of the certificate that was published. Files are compared by their checksums.
    """
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
        deadline = clock() + 60 * minutes
        prefix = read_key_prefix(project)
        graphs_by_series = {"_".join([*prefix, source.name]): source.graph for source in list_series(project)}
        with convert_errors_without_values(od_warehouse.confidential):
            keys = _list_published(od_warehouse)
            faults = _verify_in_turn(context.instance, od_warehouse, keys, lambda: clock() >= deadline)
            for graph, graph_keys in _group_by_graph(keys, graphs_by_series).items():
                graph_faults = {key: faults[key] for key in graph_keys if key in faults}
                if graph_faults:
                    asset = dg.AssetKey([*prefix, graph, "bundle"])
                    result = _make_result(graph_faults, len(graph_keys))
                    context.log_event(dg.AssetCheckEvaluation(asset, _CHECK, **result))  # type: ignore[arg-type]  # it takes them
            overall = _make_result(faults, len(keys))  # also of sums, and of series that are not declared
            metadata, description = overall["metadata"], overall["description"]
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

    schedules = []
    if cron is not None:
        text = f"Verifies releases for {minutes} minutes; the next run goes on with the others."
        schedules.append(dg.ScheduleDefinition(name, cron_schedule=cron, job=job, description=text))
    return dg.Definitions(jobs=[job], schedules=schedules)


def _list_published(warehouse: Warehouse, series: str | None = None) -> list[ReleaseKey]:
    """Return the published releases of a series with its assisted flows, or of the project; oldest first.

    The list is empty if there are none, or no ledger yet.
    """
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
    """Verify releases until the time is over, but at least one, and return the faults of each verified release.

    The text of its faults is empty if a release has none. Releases that are not reached have no item, except those with
    a fault at their last verification, which :data:`_NOT_REACHED` states.

    Releases with a fault at their last verification come first, so that their series do not seem to be as published.
    Then come those that were never verified, the newest first, and then those whose last verification is oldest. The
    Dagster instance stores the outcomes. A verification is not interrupted when the time is over.
    """
    cursors = instance.daemon_cursor_storage
    names = {key: f"od/verified/{key}" for key in keys}
    states = {key: cursors.get_cursor_values({name}).get(name, _NEVER_VERIFIED) for key, name in names.items()}
    faults: dict[ReleaseKey, str] = {}
    newest_first = keys[::-1]
    for key in sorted(newest_first, key=lambda key: states[key]):
        if not faults or not is_over():
            row = verify_published_release(warehouse.locate_release(key))
            faults[key] = ", ".join(row["faults"].values())
            state = _FAULTY if faults[key] else f"{_SOUND_AT}{datetime.now(UTC).isoformat()}"
            cursors.set_cursor_values({names[key]: state})
        elif states[key] == _FAULTY:
            faults[key] = _NOT_REACHED
    return faults


def _group_by_graph(keys: Iterable[ReleaseKey], graphs_by_series: Mapping[str, str]) -> dict[str, list[ReleaseKey]]:
    """Return the releases of declared series by the graph of their assets, which is given by name of the series.

    Assisted flows are in the graph of the series from which they were made. Other releases are left out.
    """
    keys_by_graph: dict[str, list[ReleaseKey]] = {}
    for key in keys:
        is_series = key.release in graphs_by_series
        series = key.release if is_series else key.release.removesuffix(f"_{ASSISTED.name}")
        if series in graphs_by_series:
            keys_by_graph.setdefault(graphs_by_series[series], []).append(key)
    return keys_by_graph


def _make_result(faults: Mapping[ReleaseKey, str], number: int) -> dict[str, Any]:
    """Return ``passed``, ``description`` and ``metadata`` of the outcome of a check of a number of releases.

    ``faults`` are as :func:`_verify_in_turn` returns them; the description is None if there are none.
    """
    faulty = [f"{key}: {fault}" for key, fault in faults.items() if fault]
    verified = sum(fault != _NOT_REACHED for fault in faults.values())
    metadata = make_metadata(violations=len(faulty), releases=verified, remaining=number - verified)
    return {"passed": not faulty, "description": "; ".join(faulty) or None, "metadata": metadata}
