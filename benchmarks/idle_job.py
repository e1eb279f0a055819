"""Run a job with the assets and checks of a release, whose steps do nothing. Import Dagster alone.

:mod:`benchmarks.cases` runs it, with the file that :func:`write_graph` wrote and a period as arguments. The Dagster
instance is that of ``DAGSTER_HOME``.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg


def main() -> None:
    """Build the job, and run it for one partition in this process."""
    warnings.simplefilter("ignore")
    graph, partition = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2]
    partitions = dg.StaticPartitionsDefinition([partition])
    assets = [_asset(asset, partitions) for asset in graph["assets"]]
    checks = [_check(check, partitions) for check in graph["checks"]]
    selection = dg.AssetSelection.all()
    definitions = dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=[dg.define_asset_job("idle", selection, partitions_def=partitions)],
        executor=dg.in_process_executor,
    )
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.get() as instance:
        done = definitions.resolve_job_def("idle").execute_in_process(
            partition_key=partition, instance=instance, run_config=silent
        )
    sys.exit(not done.success)


def write_graph() -> None:
    """Write what :func:`graph_of` returns of a series to a file."""
    Path(sys.argv[1]).write_text(json.dumps(graph_of(sys.argv[2])), encoding="utf-8")


def graph_of(series: str) -> dict[str, Any]:
    """Return the assets and checks of the release job of a series in JSON-ready form."""
    from od_assets.definitions import defs

    with warnings.catch_warnings(action="ignore"):
        definitions: Any = defs()
        job = definitions.resolve_job_def(f"{series}_release")
    layer = job.asset_layer
    assets = [
        {
            "key": list(key.path),
            "deps": [list(parent.path) for parent in layer.asset_graph.get(key).parent_keys],
            "partitioned": layer.asset_graph.get(key).partitions_def is not None,
        }
        for key in sorted(layer.executable_asset_keys, key=str)
    ]
    nodes = {node.name for node in job.nodes}
    checks = [
        {
            "asset": list(next(iter(definition.check_keys)).asset_key.path),
            "names": sorted(key.name for key in definition.check_keys),
            "partitioned": next(iter(definition.check_specs)).partitions_def is not None,
        }
        for definition in definitions.asset_checks or []
        if definition.node_def.name in nodes
    ]
    return {"assets": assets, "checks": checks}


def _asset(asset: dict[str, Any], partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset["key"],
        deps=[dg.AssetKey(key) for key in asset["deps"]],
        partitions_def=partitions if asset["partitioned"] else None,
    )
    def idle() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion("1"))

    return idle


def _check(check: dict[str, Any], partitions: dg.PartitionsDefinition) -> dg.AssetChecksDefinition:
    key = dg.AssetKey(check["asset"])
    own = partitions if check["partitioned"] else None
    specs = [dg.AssetCheckSpec(name, asset=key, blocking=True, partitions_def=own) for name in check["names"]]

    @dg.multi_asset_check(name="__".join([*check["asset"], "checks"]), specs=specs)
    def idle() -> Iterator[dg.AssetCheckResult]:
        for name in check["names"]:
            yield dg.AssetCheckResult(check_name=name, asset_key=key, passed=True)

    return idle
