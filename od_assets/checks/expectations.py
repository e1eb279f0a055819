"""Great Expectations suites for the raw records and the published table; results are true or false, never values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd


def records_meet_expectations(
    records: pd.DataFrame, zones: Sequence[str], fault_threshold: Fraction, docs: Path
) -> dict[str, bool]:
    """Schema of the records, and their content no stricter than the share of faults that is allowed.

    Args:
        records: confidential; columns date, origin, destination, in_period, and trips where they are flows.
        zones: codes of the listed zones.
        fault_threshold: share of faulty trips that is allowed. Rows of flows weigh differently from trips, so
            of flows the schema alone is expected; the count of trips judges the rest.
        docs: folder of the Data Docs, inside the confidential one: the pages hold a digest of the records.

    Returns:
        Each expectation's name, and whether it was met.
    """
    gxe = _expectations()
    columns = ["date", "origin", "destination", "in_period"] + (["trips"] if "trips" in records.columns else [])
    expected = [gxe.ExpectTableColumnCountToEqual(value=len(columns))]
    expected += [gxe.ExpectColumnToExist(column=column) for column in columns]
    if "trips" not in columns:
        mostly = float(1 - fault_threshold)
        for column in ("origin", "destination"):
            expected.append(gxe.ExpectColumnValuesToNotBeNull(column=column, mostly=mostly))
            expected.append(gxe.ExpectColumnValuesToBeInSet(column=column, value_set=list(zones), mostly=mostly))
        expected.append(gxe.ExpectColumnValuesToBeInSet(column="in_period", value_set=[True], mostly=mostly))
    return _run("raw_records", records, expected, docs)


def flows_meet_expectations(
    flows: pd.DataFrame, origins: Sequence[str], destinations: Sequence[str], docs: Path
) -> dict[str, bool]:
    """What a reader of the published leaf table may rely on; each expectation's name, and whether it was met."""
    gxe = _expectations()
    expected = [
        gxe.ExpectTableColumnCountToEqual(value=3),
        *(gxe.ExpectColumnToExist(column=column) for column in ("origin", "destination", "trips")),
        gxe.ExpectColumnValuesToBeInSet(column="origin", value_set=list(origins)),
        gxe.ExpectColumnValuesToBeInSet(column="destination", value_set=list(destinations)),
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["origin", "destination"]),
        gxe.ExpectColumnValuesToNotBeNull(column="trips"),
        gxe.ExpectColumnValuesToBeOfType(column="trips", type_="int64"),
        gxe.ExpectColumnValuesToBeBetween(column="trips", min_value=1),
    ]
    return _run("published_flows", flows, expected, docs)


def _expectations() -> Any:
    """Great Expectations takes four seconds to import, and calls home unless told not to."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations.expectations as gxe

    return gxe


def _run(name: str, frame: pd.DataFrame, expected: list[Any], docs: Path) -> dict[str, bool]:
    import great_expectations as gx
    from great_expectations.checkpoint.actions import UpdateDataDocsAction
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.delete_data_docs_site("local_site")  # one of its own making, in a temporary folder
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    asset = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    suite = context.suites.add(gx.ExpectationSuite(name, expectations=expected))
    validation = context.validation_definitions.add(
        gx.ValidationDefinition(name=name, data=asset.add_batch_definition_whole_dataframe("all"), suite=suite)
    )
    context.add_data_docs_site(
        name,
        {
            "class_name": "SiteBuilder",
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs / name)},
        },
    )
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name=name,
            validation_definitions=[validation],
            actions=[UpdateDataDocsAction(name="docs", site_names=[name])],
            result_format={"result_format": "BOOLEAN_ONLY"},
        )
    )
    outcome = checkpoint.run(batch_parameters={"dataframe": frame})
    results = next(iter(outcome.run_results.values())).results
    met: dict[str, bool] = {}
    for result in results:
        config = result.expectation_config
        title = name if config is None else f"{config.type}: {config.kwargs.get('column', name)}"
        met[title] = met.get(title, True) and bool(result.success)
    return met
