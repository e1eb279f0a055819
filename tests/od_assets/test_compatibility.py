"""What no public function of Dagster gives is the same in each version that ``make compatibility`` tries."""

import ast
import datetime
import importlib.util
import re
from pathlib import Path

import dagster as dg
import pytest

import od_assets
from od_assets import compatibility
from od_assets.compatibility import find_recorded_checks

_PRIVATE = re.compile(r"\b(dagster\._\w|dagster\.components\.core|dagster_shared|dagster_webserver\.app)")
"""Modules of Dagster with names that its public ones do not have."""


def test_the_checks_with_records_are_those_of_the_asset_in_the_instance():
    asset, other = dg.AssetKey(["lake", "trips"]), dg.AssetKey(["lake", "trips", "old"])
    with dg.DagsterInstance.ephemeral() as instance:
        assert find_recorded_checks(instance, asset) == set()
        for key, name in ((asset, "complete"), (asset, "fresh"), (asset, "fresh"), (other, "another")):
            evaluation = dg.AssetCheckEvaluation(asset_key=key, check_name=name, passed=True)
            instance.report_runless_asset_event(evaluation)
        assert find_recorded_checks(instance, asset) == {
            dg.AssetCheckKey(asset, name) for name in ("complete", "fresh")
        }


def test_one_module_alone_imports_private_parts_of_dagster():
    package = Path(od_assets.__file__).parent
    users = {path.name for path in package.rglob("*.py") if _PRIVATE.search(path.read_text(encoding="utf-8"))}
    assert users == {"compatibility.py"}


def test_every_private_part_that_is_imported_where_it_is_used_is_there():
    tree = ast.parse(Path(compatibility.__file__).read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    parts = [(str(node.module), alias.name) for node in imported for alias in node.names]
    private = [(module, name) for module, name in parts if _PRIVATE.match(f"{module}.")]
    assert private
    assert [part for part in private if not hasattr(importlib.import_module(part[0]), part[1])] == []
    for module in (compatibility.DAEMON, compatibility.CHILD_PROCESS):
        assert importlib.util.find_spec(module) is not None


def test_a_cron_line_has_its_shortest_interval():
    assert compatibility.find_shortest_cron_interval("0 6 2 * *") == datetime.timedelta(days=28)
    for line in ("0 6 2 *", "no line"):
        with pytest.raises(ValueError, match="cron"):
            compatibility.find_shortest_cron_interval(line)
