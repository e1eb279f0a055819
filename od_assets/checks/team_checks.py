"""Evaluate the checks that a team declares for its releases, from public values, between estimate and publication.

Each compares the table that will be published with that of the newest earlier period: in SQL, whose rows are
violations, or in a function of the project. Both tables follow from noisy values alone, so a check costs no budget, and
what it holds back tells nothing about the records that the release does not tell.
"""

import importlib
import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import pandas as pd

from od_assets.resources.release_work import FlowWork, TableWork
from od_assets.series.series import TeamCheck
from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.duckdb_session import connect_to_memory_database
from od_core.ledger.release_key import select_earlier_releases
from od_core.publication.read_back import read_bundle_certificate

_LOG = logging.getLogger(__name__)

TABLES = {"flows": "flows", "histograms": "histogram", "boxes": "boxes"}
"""Attribute of a release with the table that is checked, and its name in SQL, by the name of the asset of the table."""

PREVIOUS = "previous"
"""Name of the same table of the newest earlier period; without rows if there is none."""


def count_team_violations(work: FlowWork | TableWork[Any, Any]) -> dict[str, int]:
    """Return the number of violations of each declared check, by its name.

    For a published release, it is 0 if the check passed as its certificate has it, and 1 if not: the check is not
    evaluated again, because the earlier release with which it compares may have been withdrawn or published since.
    Raises OdError if a check that blocks cannot be evaluated.
    """
    checks = work.series.checks
    if not checks:
        return {}
    if work.published is not None:
        certificate = read_bundle_certificate(work.warehouse.locate_bundle(work.key))
        passed = {result["check"]: result["passed"] for result in certificate["checks"] if "severity" in result}
        return {check.name: int(not passed.get(check.name, True)) for check in checks}
    read_tables = cache(partial(_read_tables, work))

    def count(check: TeamCheck) -> int:
        return _count_violations(check, read_tables())

    digest = work.digest_measurements(work.plan.charged_steps)  # the table follows from the measurements
    count_once = work.warehouse.count_once
    return {check.name: count_once((str(work.key), check.name, digest), partial(count, check)) for check in checks}


def _read_tables(work: FlowWork | TableWork[Any, Any]) -> dict[str, pd.DataFrame]:
    """Return the table that will be published, and that of the newest earlier period, by their names in SQL.

    Without an earlier release, the second table has the same columns and no rows.
    """
    ledger, kind = work.warehouse.ledger, work.series.kind
    name = TABLES[work.series.checked_table]
    table = getattr(work.release, name)
    earlier = select_earlier_releases(work.key, ledger.list_published_releases(series=work.key.release))
    bundles = map(work.warehouse.locate_bundle, earlier)
    previous = next((getattr(kind.open(bundle), name) for bundle in bundles), table.iloc[:0])
    return {name: table, PREVIOUS: previous}


def _count_violations(check: TeamCheck, tables: Mapping[str, pd.DataFrame]) -> int:
    """Return the number of violations of a check; 1 if a check that only warns cannot be evaluated.

    Raises OdError if one that blocks cannot be evaluated. The text of an exception is not repeated.
    """
    try:
        if check.sql is not None:
            return count_rows(check.sql, tables)
        count_in_function = _import_function(str(check.function))
        violations = count_in_function({name: table.copy() for name, table in tables.items()})
        if isinstance(violations, bool) or int(violations) != violations or violations < 0:
            raise TypeError("no number of violations")
        return int(violations)
    except Exception as error:  # noqa: BLE001  # any exception of the team's code
        message = f"check {check.name!r} cannot be evaluated ({type(error).__name__})"
        if check.severity == "warn":
            _LOG.warning("%s: %s", message, check.requires)
            return 1
        step = "correct the check, and run the release again, which draws nothing twice"
        raise OdError("OD-CHECK-FAILED", message, next_step=step, spent=STAYS_CHARGED) from None


def count_rows(sql: str, tables: Mapping[str, pd.DataFrame]) -> int:
    """Return the number of rows that a query returns. It can read the given tables, by their names, and nothing else.

    Raises a DuckDB error if the query is not valid.
    """
    with connect_to_memory_database() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        [(rows,)] = connection.execute(f"SELECT count(*) FROM ({sql})").fetchall()  # noqa: S608  # a query of the team
        return int(rows)


def _import_function(name: str) -> Callable[[dict[str, pd.DataFrame]], Any]:
    """Import and return the function that a name such as ``my_project.checks:corridor_is_large`` stands for.

    Raises ImportError or AttributeError if there is none.
    """
    module, _, function = name.partition(":")
    imported: Callable[[dict[str, pd.DataFrame]], Any] = getattr(importlib.import_module(module), function)
    return imported
