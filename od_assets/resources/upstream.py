"""Wait for assets of the team that are upstream of a series, and find the files that they wrote."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import dagster as dg

from od_assets.compatibility import AssetCheckExecutionRecord, CheckStatus, find_recorded_checks
from od_assets.resources.arrivals import list_record_files
from od_assets.series.partitions import CRON
from od_assets.series.series import G, P, Series
from od_core.errors import OdError, suggest_known_names
from od_core.periods import Length, Period

if TYPE_CHECKING:
    from od_assets.compatibility import AssetGraph

_LENGTHS_BY_CRON: dict[str, tuple[Length, ...]] = {
    "0 * * * *": ("day", "week", "month", "quarter", "year"),
    CRON["day"]: ("day", "week", "month", "quarter", "year"),
    CRON["month"]: ("month", "quarter", "year"),
    CRON["quarter"]: ("quarter", "year"),
    **{CRON[length]: (length,) for length in ("week", "year")},
}
"""Lengths of the periods that consist of whole partitions, by the cron line at which these begin."""

_NOT_RUN = "has not run since"


def find_trips_asset(series: Series[P, G]) -> dg.AssetKey | None:
    """Return the key of the team's asset that writes the records of a series; None if it declares none."""
    return None if series.trips.asset is None else dg.AssetKey.from_user_string(series.trips.asset)


def make_automation_condition(series: Series[P, G], asset: str) -> dg.AutomationCondition | None:
    """Return the condition under which Dagster requests an asset of a series by itself; None if it never does.

    It never does for a series whose records are in declared files, not in an asset, nor for ``assisted``, the flows
    that are assisted by earlier releases. The geography is requested if it is missing. All other assets are requested
    together, for each unpublished period whose upstream partitions are all materialized and have passed their blocking
    checks, once for each update of these. A new geography is no such update, because a release is charged.

    Args:
        asset: name of the asset, as in ``assets.yaml``.
    """
    condition = dg.AutomationCondition
    if series.trips.asset is None or asset == "assisted":
        return None
    upstream = dg.AssetSelection.assets(*map(dg.AssetKey.from_user_string, series.upstream))
    have_passed = condition.all_deps_blocking_checks_passed().allow(upstream)  # our own checks run with the release
    can_run = ~condition.any_deps_missing() & ~condition.in_progress() & have_passed
    if asset == "geography":
        return condition.missing() & can_run & ~condition.newly_requested() & ~condition.execution_failed()
    geography = dg.AssetSelection.assets([*series.path, "geography"])
    has_arrived = condition.newly_missing() | condition.any_deps_updated().ignore(geography)
    is_unpublished = condition.asset_matches([*series.path, "bundle"], condition.missing())
    is_new = has_arrived.since_last_handled() & is_unpublished
    wanted = is_new & ~condition.any_deps_in_progress() & can_run
    return wanted.with_label("unpublished, and the records are there")


def refuse_wrong_upstream(series: Series[P, G], graph: "AssetGraph") -> None:
    """Raise OdError if an upstream asset of a series is not in the graph, or its partitions do not fit the periods.

    Only the partitions of the asset of the records must fit.
    """
    known = {node.key.to_user_string(): node for node in graph.asset_nodes if not node.assets_def.is_auto_created_stub}
    for asset in series.upstream:
        if asset not in known:
            message = f"this code location has no asset {asset!r} ({suggest_known_names(asset, tuple(known))})"
            step = "correct the key; declare an asset of another code location as dg.AssetSpec, with its partitions"
            raise _make_upstream_error(series, message, step)
        if asset == series.trips.asset:
            fault = _find_partitions_fault(series, known[asset].partitions_def)
            if fault is not None:
                why, step = fault
                raise _make_upstream_error(series, f"the partitions of {asset} do not fit: {why}", step)


def _find_partitions_fault(series: Series[P, G], partitions: dg.PartitionsDefinition | None) -> tuple[str, str] | None:
    """Return why the periods of a series do not consist of whole upstream partitions, and the next step to correct it.

    Return None if they do. ``partitions`` are those of the upstream asset; None if it has none.
    """
    every, own_partitions = series.periods.every, series.periods.make_partitions_definition()
    if partitions is None:
        if series.columns.date is None and isinstance(own_partitions, dg.TimeWindowPartitionsDefinition):
            return "there are none, and the records have no dates", "name the date column, or partition the asset"
        return None
    which = f"name an asset with a partition for each {every} or for shorter parts of it, or without partitions"
    if not isinstance(own_partitions, dg.TimeWindowPartitionsDefinition):
        return f"a series of a {every} release reads only an asset without partitions", "name such an asset"
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return "they are not of time", which
    if every not in _LENGTHS_BY_CRON.get(partitions.cron_schedule, ()):
        return f"a {every} does not consist of whole partitions that begin at {partitions.cron_schedule!r}", which
    if partitions.timezone != own_partitions.timezone:
        zones = f"their days begin in {partitions.timezone}, and those of the series in {own_partitions.timezone}"
        return zones, "give both the same time zone; that of the series is in the file of its domain"
    ends_early = partitions.end and (own_partitions.end is None or partitions.end < own_partitions.end)
    if partitions.start > own_partitions.start or ends_early:
        return "they do not cover all periods of the series", "change the first or the last period of either"
    return None


def list_period_files(
    context: dg.AssetExecutionContext, series: Series[P, G], period: Period
) -> list[tuple[Path, str | None]]:
    """Return the files with the records of a period, each with the table in it, or None for the declared table.

    They are the files that the newest materialization of each upstream partition states; if none states a file, or no
    asset is upstream, they are the declared ones. For a stored table, they are its name with each stated table.

    Raises OdError if the asset does not fit, has not materialized the whole period, has not passed its blocking checks
    (:func:`refuse_unchecked`), states files for some partitions only, or states none while there is no declared file.
    """
    key = find_trips_asset(series)
    declared = series.locate_records_file(period.text)
    if key is None:
        return [(file, None) for file in list_record_files(declared)]
    refuse_wrong_upstream(series, context.job_def.asset_layer.asset_graph)
    made: list[dg.EventLogRecord | None] = []
    files_and_tables: list[tuple[Path | None, str | None]] = []
    for partition in _find_partitions(context, key):
        materialization = _find_finished_materialization(context.instance, series, period, key, partition)
        made.append(materialization)
        files_and_tables.append(_read_file_and_table(materialization, series))
    refuse_unchecked(context, series, key, made)
    if series.stored_table is not None:
        return [(declared, table) for table in dict.fromkeys(table for _, table in files_and_tables)]
    unstated = [file for file, _ in files_and_tables if file is None]
    if unstated and len(unstated) < len(files_and_tables):
        step = "materialize the others again, with the metadata path"
        message = f"only some partitions of {key.to_user_string()} state the file that they wrote"
        raise _make_upstream_error(series, message, step)
    if unstated and not declared.exists():
        message = f"{key.to_user_string()} states no file of this machine, and there is no {declared.name}"
        step = "state the file in its metadata as path: its IO manager is not asked for records"
        raise _make_upstream_error(series, message, step)
    files = dict.fromkeys(files_and_tables)  # several partitions may state the same file
    return [*dict.fromkeys((part, table) for file, table in files for part in list_record_files(file or declared))]


def _find_partitions(context: dg.AssetExecutionContext, key: dg.AssetKey) -> list[str | None]:
    """Return the partitions of an upstream asset that a step reads; one None if the asset has no partitions."""
    if context.job_def.asset_layer.asset_graph.get(key).partitions_def is None:
        return [None]
    [name] = [name for name, upstream in context.assets_def.keys_by_input_name.items() if upstream == key]
    return [*context.asset_partition_keys_for_input(name)]


def _find_finished_materialization(
    instance: dg.DagsterInstance, series: Series[P, G], period: Period, key: dg.AssetKey, partition: str | None
) -> dg.EventLogRecord | None:
    """Return the record of the newest materialization of an asset, or of one partition of it, that a period reads.

    Return None if Dagster knows of no materialization of the asset. Raises OdError if a newer one is planned or failed,
    only other partitions were materialized, or an asset without partitions was materialized before the period ended.
    """
    newest = find_newest_materialization(instance, key, partition)
    planned = instance.get_latest_planned_materialization_info(key, partition)
    written = None if newest is None else datetime.fromtimestamp(newest.timestamp, UTC)
    which = _describe_partition(key, partition)
    if planned is not None and (newest is None or newest.storage_id < planned.storage_id):
        message = f"the newest run that was to materialize {which} failed, or has not done it yet"
    elif newest is None and instance.get_latest_materialization_event(key) is not None:
        message = f"{which} was never materialized"
    elif written is not None and partition is None and series.periods.convert_to_day(written) < period.end:
        message = f"{which} was last materialized before {period} ended"
    else:
        return newest
    raise _make_upstream_error(series, message, "materialize it, then run the release")


def _describe_partition(key: dg.AssetKey, partition: str | None) -> str:
    """Return the name of an asset for messages, after the name of its partition if one is given."""
    return key.to_user_string() if partition is None else f"partition {partition} of {key.to_user_string()}"


def find_newest_materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None = None
) -> dg.EventLogRecord | None:
    """Return the record of the newest materialization of an asset, or of one partition of it; None if there is none."""
    asked = dg.AssetRecordsFilter(key, asset_partitions=None if partition is None else [partition])
    return next(iter(instance.fetch_materializations(asked, limit=1).records), None)


def refuse_unchecked(
    context: dg.AssetExecutionContext,
    series: Series[P, G],
    key: dg.AssetKey,
    newest: list[dg.EventLogRecord | None],
) -> None:
    """Raise OdError unless the newest materializations of a team's asset have passed the asset's blocking checks.

    As in Dagster, a failure of severity WARN blocks nothing. A check that another code location defines is known only
    by its records in the instance, so a materialization without such a record counts as passed.

    Args:
        key: key of the asset.
        newest: record of the newest materialization of each partition that is read; None where there is none.
    """
    storage, graph = context.instance.event_log_storage, context.job_def.asset_layer.asset_graph
    graph = getattr(graph, "source_asset_graph", graph)  # that of a job lacks the checks that the job does not run
    node = graph.get(key)
    blocking_here = {check for check in node.check_keys if graph.get(check).blocking}
    elsewhere: set[dg.AssetCheckKey] = set()
    if not node.is_materializable:
        elsewhere = find_recorded_checks(context.instance, key) - {*node.check_keys}
    for check in sorted(blocking_here | elsewhere):
        history = storage.get_asset_check_execution_history(check, limit=2**31 - 1)  # all of it
        evaluations = [record.evaluation for record in history if record.status != CheckStatus.PLANNED]
        may_block = not evaluations or evaluations[0].blocking is not False  # as the newest evaluation says
        for made in newest:
            fault = _find_check_fault(history, made)
            is_missed = check in blocking_here or (may_block and fault != _NOT_RUN)
            if fault is not None and is_missed:
                which = _describe_partition(key, None if made is None else made.partition_key)
                step = "correct the data and materialize them again with this check, then run the release"
                raise _make_upstream_error(series, f"the blocking check {check.name!r} of {which} {fault}", step)


def _find_check_fault(history: Sequence[Any], made: dg.EventLogRecord | None) -> str | None:
    """Return why a materialization has not passed a check; None if it has.

    The newest result of the materialization's own run, or on this materialization, counts; without one, the newest
    later result, because a check without partitions may have run after a later partition. If the newest later run of
    the check has not finished, that counts.

    Args:
        history: all records of the check, newest first.
        made: record of the materialization; None if it is not known, so that all of ``history`` is later.
    """
    own_results: Sequence[Any] = []
    later = history
    if made is not None:
        same_partition = [record for record in history if record.partition in (None, made.partition_key)]
        later = [record for record in same_partition if record.event.timestamp > made.timestamp]
        own_results = [
            record
            for record in same_partition
            if (made.run_id != "" and record.run_id == made.run_id) or _find_target_id(record) == made.storage_id
        ]
    unfinished = [record for record in later[:1] if record.status == CheckStatus.PLANNED]
    result = next(iter([*unfinished, *own_results, *later]), None)
    if result is None:
        return _NOT_RUN
    if result.status == CheckStatus.PLANNED:
        return "has not finished"
    is_error = result.status == CheckStatus.FAILED and result.evaluation.severity == dg.AssetCheckSeverity.ERROR
    return "failed" if is_error else None


def _find_target_id(record: AssetCheckExecutionRecord) -> int | None:
    """Return the storage id of the materialization that a check evaluated; None if its record names none."""
    return getattr(getattr(record.evaluation, "target_materialization_data", None), "storage_id", None)


_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):(?=/|[^/]*$)(//(?!localhost/|/)[^/])?", re.IGNORECASE)
"""Beginning of an address. A drive of Windows has one letter, and the name of a folder may have a colon."""

_LOCATION_NAME = re.compile("path|ur[il]|location", re.IGNORECASE)
"""Part of the names of metadata that state a location."""

_OTHER_MACHINE = re.compile("(?!https?:|file:)[a-z][a-z0-9+.-]+://", re.IGNORECASE)
"""Beginning of an address of records on another machine. An address of the web may be that of a page for readers."""


def _read_file_and_table(made: Any, series: Series[P, G]) -> tuple[Path | None, str | None]:
    """Return the file on this machine, and the table, that a materialization states; None for each that it does not.

    The file is the first of ``dagster/uri``, ``path`` and ``uri`` in the metadata that is not empty; None if the series
    declares a stored table. The table is ``dagster/table_name`` or else ``dagster/relation_identifier``; None if the
    series declares no table.

    Raises OdError if the first address is of another machine or, where there is none of these three, another location
    in the metadata is.
    """
    metadata = {} if made is None else made.asset_materialization.metadata
    texts = {name: str(getattr(value, "value", "")) for name, value in metadata.items()}
    stated_table = texts.get("dagster/table_name") or texts.get("dagster/relation_identifier")
    table = None
    if stated_table is not None and (series.trips.table or series.stored_table):
        table = ".".join(stated_table.split(".")[-2:]).removeprefix("main.")  # it may begin with that of the database
    if series.stored_table is not None:
        return None, table
    elsewhere = (name for name in texts if _LOCATION_NAME.search(name) and _OTHER_MACHINE.match(texts[name].strip()))
    for name in ("dagster/uri", "path", "uri", *sorted(elsewhere)):
        text = texts.get(name, "").strip()
        scheme = _SCHEME.match(text)
        if scheme and (scheme[1].lower() != "file" or scheme[2]):
            message = f"{series.trips.asset} states as {name} an address of {scheme[1]}://, not a file of this machine"
            step = "let the asset write the records to a file, too, and state its path"
            raise _make_upstream_error(series, message, step)
        if text:
            return series.project.root / (unquote(urlsplit(text).path) if scheme else text), table
    return None, table


def _make_upstream_error(series: Series[P, G], message: str, step: str) -> OdError:
    """Return the error for an upstream asset that is wrong, or that a release must wait for."""
    return OdError("OD-UPSTREAM", f"{series.name}: {message}", next_step=step)
