"""Make the assets that releases of all kinds have: the public areas, the records, and the bundle."""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from od_assets.assets.steps import limit_message_rate
from od_assets.checks.release_checks import run_all_checks
from od_assets.compatibility import get_asset_function, name_asset_group
from od_assets.failures import convert_errors_to_failures, convert_errors_without_values
from od_assets.metadata import (
    CONFIDENTIAL_TAG,
    Sources,
    make_column_dependencies,
    make_content_metadata,
    make_records_schema,
    make_release_metadata,
    make_report_metadata,
    make_result,
    make_schema_metadata,
    make_source_metadata,
    make_table_metadata,
    map_record_sources,
    map_to_same_columns,
)
from od_assets.resources.arrivals import hold_to_marker, make_changed_file_error
from od_assets.resources.published_tables import TABLES_KEY
from od_assets.resources.release_work import ReleaseWork, choose_work_class
from od_assets.resources.upstream import (
    find_newest_materialization,
    find_trips_asset,
    list_period_files,
    make_automation_condition,
    refuse_unchecked,
)
from od_assets.resources.warehouse import Warehouse
from od_assets.series.partitions import SERIES
from od_assets.series.section import read_sibling_yaml
from od_assets.series.series import MAIN_TABLES, G, P, Series
from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.duckdb_session import escape_path_wildcards, locate_spill_folder, open_scratch_database
from od_core.files.durable import PUBLIC_FILE_MODE, compute_file_digest, make_folder, write_durably
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.staged_files import SNAPSHOT
from od_core.periods import Period
from od_core.privacy.accounting import format_rounded_down, format_rounded_up
from od_core.publication.bundle_files import CERTIFICATE, locate_table, read_checksums
from od_core.publication.certificate import Certificate, CheckResult, list_failed_checks
from od_core.publication.certify import build_certificate, read_release_context
from od_core.publication.columns import PERIOD, Column
from od_core.published.publishing import Published, publish_release
from od_core.published.verification import repair_release
from od_core.records.load import load_records, refuse_absent_file, refuse_repeated_tables


def load_period(
    series: Series[P, G], period: str, target: Path, geography: G | None, files: Sequence[tuple[Path, str | None]]
) -> dict[str, str]:
    """Copy the records of a period to a Parquet file, ``target``, in the confidential folder.

    Return the settings of reading that are known only now: the name of each snapshot of a stored table that was read,
    under the key :data:`SNAPSHOT`; empty if there are no snapshots.

    Args:
        geography: geography in which points lie, and whose ``unknown`` zones replace codes of no place; None if reading
            needs none.
        files: files of records, each with its table; see :func:`od_assets.resources.upstream.list_period_files`. For a
            stored table, the tables that assets upstream name, or None for the declared one.

    Raises:
        OdError: a marker or the records are missing or wrong.
    """
    origins = destinations = None
    if geography is not None and series.replaces_codes:
        origins, destinations = series.split_sides(geography)
    parts = [target]
    if len(files) > 1:
        parts = [target.with_name(f"{number}.{target.name}") for number in range(len(files))]
    snapshots = set()
    try:
        if series.stored_table is None:
            for source, _ in files:
                refuse_absent_file(source)  # before its marker, as doctor does
                hold_to_marker(source, series.locate_marker_file(period))
            refuse_repeated_tables(files, series.record_format)
        for (source, table), part in zip(files, parts, strict=True):
            form, stored = series.record_format, series.stored_table
            if stored is None:
                form = form.with_options(table=table)
            elif table is not None:
                stored = stored.with_table(table)
            snapshot = load_records(
                stored or source,
                series.columns,
                period,
                part,
                record_format=form,
                geography=origins,
                destination_geography=destinations,
                time_zone=series.periods.time_zone,
            )
            snapshots.add(snapshot)
        if len(files) > 1:
            _join_parquet_files(parts, target)
    finally:
        for part in {*parts} - {target}:
            part.unlink(missing_ok=True)
    names = sorted(filter(None, snapshots))
    return {SNAPSHOT: ", ".join(names)} if names else {}


def _join_parquet_files(parts: Sequence[Path], target: Path) -> None:
    """Write the rows of all parts to one Parquet file. Columns that a part lacks are null in its rows."""
    with open_scratch_database(target.parent, *parts) as database:
        joined = locate_spill_folder(target.parent) / target.name
        rows = database.read_parquet([*map(escape_path_wildcards, parts)], union_by_name=True)
        rows.write_parquet(str(joined))
        write_durably(target, joined.replace)


_ASSET_FACTS: dict[str, dict[str, Any]] = read_sibling_yaml(__file__, "assets.yaml")
"""Description (``is``), group and kinds of each asset, by its name."""

_LINEAGE_KEY = "dagster/column_lineage"
"""Key of the metadata in which Dagster has the sources of an asset's columns."""

_SERIES = Column(SERIES, "string", "Series", "Series of the row, as in the partition.")


def make_asset_options(
    series: Series[P, G], asset: str, metadata: dict[str, object], *, key: list[str] | None = None, **words: object
) -> Mapping[str, Any]:
    """Return the arguments of ``dg.asset`` for an asset, except for its dependencies.

    They come from ``assets.yaml`` and from the series.

    Args:
        asset: name of the asset in ``assets.yaml``.
        metadata: its columns and their sources.
        key: its key; None for the path of the series followed by ``asset``.
        words: values of the fields in braces of its description.
    """
    facts = _ASSET_FACTS[asset]
    if not series.records_are_here:
        facts = facts | facts.get("on_spark", {})
    tags = {
        "od/mechanism": "by_rule" if series.mechanism is None else series.mechanism.name,
        "od/neighbours": series.unit.neighbours,
        "od/unit": series.unit.kind,
    }
    is_confidential = facts["is"].startswith("Confidential")
    has_partitions = asset != "geography" or series.shares_assets
    return {
        "key": key or [*series.path, asset],
        "metadata": metadata,
        "owners": series.owners,
        "code_version": "1",
        "tags": tags | ({CONFIDENTIAL_TAG: "true"} if is_confidential else {}),
        "group_name": name_asset_group(*series.path, facts["group"]),
        "partitions_def": series.make_partitions_definition() if has_partitions else None,
        "automation_condition": make_automation_condition(series, asset),
        "kinds": {*facts["kinds"]} - (set() if series.noise == "opendp" else {"opendp"}),
        "description": facts["is"].format(**words),
    }


def merge_measurement_assets(assets: list[dg.AssetsDefinition]) -> list[dg.AssetsDefinition]:
    """Return the assets of a series, in which one asset replaces all from the counts to the table before the bundle.

    The merged asset has the key of that table, and runs the steps of the replaced assets in turn. In the lineage of
    columns, the sources of a replaced asset's column replace that column.

    Args:
        assets: geography, records, the assets to merge in the order of their steps, the bundle, and those after it.
    """
    bundle = next(index for index, asset in enumerate(assets) if min(asset.keys).path[-1] == "bundle")
    inputs, steps, publications = assets[:2], assets[2:bundle], assets[bundle:]
    trace_columns = _make_column_tracer(steps)
    return [*inputs, *(asset.map_asset_specs(trace_columns) for asset in (_merge_assets(steps), *publications))]


def _merge_assets(steps: list[dg.AssetsDefinition]) -> dg.AssetsDefinition:
    """Return one asset that runs the steps of several assets in turn, and has the key of the last one."""
    table = steps[-1].get_asset_spec(steps[-1].key)
    dependencies = {key for asset in steps for key in asset.dependency_keys}
    merged_keys = {key for asset in steps for key in asset.keys}
    description = f"{table.description} {_ASSET_FACTS['measured']['is']}"
    spec = table.replace_attributes(deps=sorted(dependencies - merged_keys), description=description)

    @dg.multi_asset(name=steps[-1].op.name, specs=[spec])
    def run_steps(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        for step in steps:
            returned = get_asset_function(step)(context, od_warehouse)
            # A generator is exhausted, so that its step runs to the end.
            results = [returned] if isinstance(returned, dg.MaterializeResult) else [*returned]
        return results[-1]

    return run_steps


def _make_column_tracer(steps: list[dg.AssetsDefinition]) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    """Return a function that replaces, in an asset's lineage, columns of merged steps by their own sources.

    The function takes and returns the specification of an asset. Columns of the last step are not replaced, because the
    merged asset has them.
    """
    specs = [spec for asset in steps for spec in asset.specs if spec.key != steps[-1].key]
    lineages = {spec.key: spec.metadata.get(_LINEAGE_KEY) for spec in specs}

    @cache
    def find_origins(column: dg.TableColumnDep) -> tuple[dg.TableColumnDep, ...]:
        if column.asset_key not in lineages:  # not of a step that is replaced
            return (column,)
        lineage = lineages[column.asset_key]
        return collect_origins(() if lineage is None else lineage.deps_by_column.get(column.column_name, ()))

    def collect_origins(columns: Iterable[dg.TableColumnDep]) -> tuple[dg.TableColumnDep, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(map(find_origins, columns))))

    def trace_columns(spec: dg.AssetSpec) -> dg.AssetSpec:
        sources = spec.metadata[_LINEAGE_KEY].deps_by_column.items()
        lineage = dg.TableColumnLineage({name: [*collect_origins(columns)] for name, columns in sources})
        return spec.merge_attributes(metadata={_LINEAGE_KEY: lineage})

    return trace_columns


def make_source_assets(series: Series[P, G]) -> list[dg.AssetsDefinition]:
    """Return the two assets ``geography`` and ``raw_trips`` of a series, in this order."""
    geography = _make_geography_asset(series)
    return [geography, _make_records_asset(series, geography.key)]


def _make_geography_asset(series: Series[Any, Any]) -> dg.AssetsDefinition:
    """Return the asset of the public lists of areas or places, which waits for assets of the team that write them."""
    paths = chain.from_iterable(row.zone_list_paths for row in series.rows)
    columns = make_table_metadata(*series.listed_columns) | make_source_metadata(paths)
    lists = [dg.AssetKey.from_user_string(asset) for asset in series.upstream if asset != series.trips.asset]

    @dg.asset(**make_asset_options(series, "geography", columns), deps=lists)
    def geography(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with convert_errors_without_values(od_warehouse.confidential):
            for key in lists:
                refuse_unchecked(context, series, key, [find_newest_materialization(context.instance, key)])
            row, _ = series.find_release(context.partition_key) if series.shares_assets else (series, None)
            content = row.read_geography()
            _write_lists(row, content, od_warehouse.geographies)
        return make_result(content.digest, areas=content.area_counts)

    return geography


def _write_lists(series: Series[P, G], geography: G, folder: Path) -> None:
    """Write the lists of zones or places of a series, with all columns that it declares, to a folder."""
    make_folder(folder)
    # Of one list, both sides are the same geography, and the second is not written.
    for (file, zones), side in zip(series.zone_lists.items(), series.split_sides(geography), strict=False):
        table = side.to_frame()
        stored = zones.with_geography_file(file)
        declared = (*stored.names.values(), *stored.aliases.values(), *(stored.coordinates or ()))
        table = table.assign(**{column: "" for column in declared if column not in table})  # blank in every row
        write = partial(table.to_csv, index=False, encoding="utf-8")
        write_durably(folder / file, write, mode=PUBLIC_FILE_MODE)


def _make_records_asset(series: Series[P, G], geography: dg.AssetKey) -> dg.AssetsDefinition:
    """Return the asset that copies the records. With Spark, which reads them where they are, it copies nothing."""
    trips = find_trips_asset(series)
    are_here = series.records_are_here
    declared = make_source_metadata(row.locate_records_source("{period}") for row in series.rows)
    copied = _map_copied_columns(series, geography, trips)
    records = declared | make_schema_metadata(make_records_schema(series.columns), copied)
    dependencies = []
    if series.replaces_codes or not are_here:
        dependencies.append(geography)
    if trips is not None:
        dependencies.append(trips)

    @dg.asset(**make_asset_options(series, "raw_trips", records), deps=dependencies, output_required=False)
    def raw_trips(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> Iterator[dg.MaterializeResult]:
        with ReleaseWork.enter_step(context, od_warehouse, series) as work:
            if work.repair_if_settings_changed():
                context.log.info(f"{work.key} was published with other settings than those declared now, and stays.")
                return  # without a result, so that the steps below are skipped
            geography_of_codes = work.geography if series.replaces_codes and are_here else None
            files = list_period_files(context, work.series, Period(work.key.period)) if are_here else []
            # Stores the settings, or refuses other ones.
            with work.stage_records([file for file, _ in files]) as (records, settings):
                if are_here:
                    settings |= load_period(work.series, work.key.period, records, geography_of_codes, files)
                    if list_period_files(context, work.series, Period(work.key.period)) != files:
                        raise make_changed_file_error(work.series.locate_records_file(work.key.period))
        yield make_result(str(work.key))

    return raw_trips


def _map_copied_columns(series: Series[P, G], geography: dg.AssetKey, trips: dg.AssetKey | None) -> Sources | None:
    """Return the upstream columns of each column of the copied records; None if none is known.

    ``trips`` is the asset of the team that writes the records, if there is one.
    """
    zones = make_column_dependencies(geography, series.placing_columns)
    replaced_codes = series.columns.codes if series.replaces_codes else ()
    if trips is None:
        return dict.fromkeys(replaced_codes, zones) or None
    sources = {}
    for name, source in map_record_sources(series.columns).items():
        upstream_columns = [source] if isinstance(source, str) else [*getattr(source, "names", ())]
        sources[name] = make_column_dependencies(trips, upstream_columns)
    return sources | {code: [*sources[code], *zones] for code in replaced_codes}


def _make_table_asset(series: Series[P, G], bundle: dg.AssetKey, columns: Sequence[Column]) -> dg.AssetsDefinition:
    """Return the asset of the main table of a published bundle, which assets downstream load by its key."""
    name, stored = MAIN_TABLES[series.kind.contents]
    parts = (PERIOD, _SERIES) if series.shares_assets else (PERIOD,)
    described = make_table_metadata(*parts, *columns, sources=map_to_same_columns(bundle, columns))
    described["dagster/table_name"] = f"release.main.{stored}"
    key = [*series.prefix, f"{series.stated_name}_{name}"]
    definition = make_asset_options(series, "published_table", described, key=key, file=f"{name}.parquet")

    @dg.asset(**definition, deps=[bundle], io_manager_key=TABLES_KEY)
    def published_table(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with convert_errors_to_failures():
            _, release = series.find_release(context.partition_key)
            folder = od_warehouse.find_bundle(str(release))
            path = locate_table(folder, f"{name}.parquet")
            version = read_checksums(folder)[path.relative_to(folder).as_posix()]
            rows = pq.ParquetFile(path).metadata.num_rows
        return make_result(version, dagster__uri=path.as_uri(), dagster__row_count=rows, release=str(release))

    return published_table


def make_publication_assets(
    series: Series[Any, Any], table: dg.AssetKey, columns: Sequence[Column], sources: Sources
) -> list[dg.AssetsDefinition]:
    """Return the assets that publish a release of any kind: its bundle, and the main table of the bundle.

    The bundle is made from the asset ``table``; its main table has the columns, with ``sources`` upstream.
    """
    kind = series.kind

    @dg.asset(**make_asset_options(series, "bundle", make_table_metadata(*columns, sources=sources)), deps=[table])
    def bundle(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with choose_work_class(series).enter_step(context, od_warehouse, series) as work:
            key, data_set = work.key, work.series.domain.name
            checks = run_all_checks(work.series, od_warehouse, key.period)
            _refuse_failed_checks(checks, key)
            release = work.release
            locations = od_warehouse.locate_release(key)
            work.hold_to_reading()
            release_context = read_release_context(kind, locations.ledger, key, data_set, locations.releases)
            certificate = repair_release(locations)
            if certificate is None:  # it is not published, or its certificate and tables are lost
                reading = work.series.reading | work.staged.read_snapshot()
                draft = _draft_certificate(work.series, release, locations, checks, reading)
                tell = limit_message_rate(context.log.info)
                certificate = publish_release(locations, kind, release, draft, release_context, tell=tell)
            balance = locations.ledger.balance(data_set, key.period)
        spent = format_rounded_up(balance.charged[str(key)])
        cap = format_rounded_up(balance.cap)
        left = format_rounded_down(balance.left)
        context.log.info(
            f"Published {key} in {locations.bundle}. It spent {balance.measure} {spent}."
            f" Of the cap, {balance.measure} {cap}, {left} remains."
        )
        metadata = make_report_metadata(kind, release, certificate, locations.bundle)
        metadata |= make_release_metadata(kind, release, balance)
        metadata |= make_content_metadata(kind.list_published_metadata(release, certificate, release_context))
        return make_result(compute_file_digest(locations.bundle / CERTIFICATE), **metadata)

    return [_apply_freshness_policy(series, bundle), _make_table_asset(series, bundle.key, columns)]


def _refuse_failed_checks(checks: list[CheckResult], key: ReleaseKey) -> None:
    """Raise OdError if any check of a release fails. The message names the failed checks."""
    failed = list_failed_checks(checks)
    if failed:
        message = f"{len(failed)} of {len(checks)} checks fail, so {key} is not published: {', '.join(failed)}"
        step = "run the whole release again; it reads its measurements back and draws nothing twice"
        raise OdError("OD-PUBLICATION-REFUSED", message, next_step=step, spent=STAYS_CHARGED)


def _draft_certificate(
    series: Series[P, G], release: Any, locations: Published, checks: list[CheckResult], reading: dict[str, Any]
) -> Certificate:
    """Return the certificate of a release that is not published yet, with what its series declares.

    ``reading`` has the settings with which the records were read.
    """
    return build_certificate(
        series.kind,
        release,
        locations.key,
        series.domain.name,
        checks,
        record=locations.ledger.record(locations.key),
        records=reading,
        about=series.about_facts,
        formats=series.formats,
        intervals=series.states_intervals,
    )


def _apply_freshness_policy(series: Series[P, G], bundle: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Return the asset of the bundle with the deadlines that its series declares, if it declares any."""
    if series.freshness is None:
        return bundle
    within = datetime.timedelta(days=series.freshness.within_days)
    policy = dg.FreshnessPolicy.cron(series.freshness.deadline, within, series.periods.dagster_time_zone)
    return bundle.map_asset_specs(lambda spec: dg.apply_freshness_policy(spec, policy))
