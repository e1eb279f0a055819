"""Find the public table that stands for the true flows in a forecast or in targets. Files of records are refused."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from od_assets.declared.section import with_environment
from od_assets.declared.yaml_file import yaml_documents
from od_assets.project import current_project, releases_folder
from od_assets.series.declared_names import RELEASES, declarations_of
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError
from od_core.evaluation.forecast import synthetic_table
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.read_back import certificate_of
from od_core.published.opening import published_bundles

SYNTHETIC = "synthetic"
"""Name with which the synthetic table is asked for."""


def public_table(settings: SeriesSettings[Any, Any], plan: ReleasePlan) -> tuple[ReleaseKey | None, KnownFlows]:
    """Return the newest published flows of the data set over the areas of the plan, or else a synthetic table.

    Releases of the series itself are preferred to those of other series. Releases without trips are skipped, because
    they do not show the errors of flows.

    Returns:
        The key of the release (None for a synthetic table) and the table.
    """
    found = []
    for key, folder, certificate in _published(plan):
        if certificate["data_set"] == settings.domain.name and certificate["contents"]["trips"] > 0:
            found.append((key.release == settings.name, key.period, key.revision, key, folder))
    if not found:
        return None, synthetic_table(plan.tree.origin, plan.tree.destination)
    key, folder = max(found)[-2:]
    return key, _opened(key, folder, plan)


def stated_table(settings: SeriesSettings[Any, Any], plan: ReleasePlan, stated: str | None) -> tuple[str, KnownFlows]:
    """Return a sentence on a public table, and the table.

    Args:
        settings: settings of the series.
        plan: plan of one period.
        stated: ``synthetic``, a published release such as ``us_flights/2001-06/r1``, or the path of a file of public
            flows with the columns origin, destination and trips. None takes the table of :func:`public_table`.

    Raises:
        OdError: The file is one of declared records or is in the confidential folder; it cannot be read; or the
            release is of other areas.
    """
    if stated is None:
        key, table = public_table(settings, plan)
        return source_of(settings, key, table), table
    if stated == SYNTHETIC:
        table = synthetic_table(plan.tree.origin, plan.tree.destination)
        return source_of(settings, None, table), table
    for key, folder, _ in _published(plan):
        if str(key) == stated:
            table = _opened(key, folder, plan)
            return source_of(settings, key, table), table
    path = Path(stated)
    refuse_records(path)
    if not path.is_file():
        raise OdError(
            "OD-TABLE-PUBLIC",
            f"{stated} is neither a file nor a published release of flows over the areas of {settings.name}",
            next_step="give the path of a table of public flows, a published release, or synthetic",
        )
    try:
        table = KnownFlows.from_frame(path.name, "public", path, plan.tree.origin, plan.tree.destination)
    except OdError as error:
        if error.code != "OD-TRIPS-ROWS":
            raise
        raise error.changed(next_step="call the number of trips trips, or leave only origin and destination") from None
    return f"The flows in {path.name}, which you stated to be public, serve as the true flows.", table


def refuse_records(path: Path) -> None:
    """Raise OdError if a path is a file of records of any declared release, or is in the confidential folder."""
    project = current_project()
    real = path.resolve()
    folder = (project.var / "confidential").resolve()
    if folder in real.parents or _is_another_name(real, folder.rglob("*")):
        raise _confidential(path, "it is in the confidential folder")
    for declaration in declarations_of(*RELEASES):
        for pattern in _files_of(declaration):
            whole = os.path.realpath(project.root / Path(pattern))
            if re.fullmatch(_regular_expression(whole), str(real)) or _is_another_name(real, _matching(whole)):
                raise _confidential(path, f"{declaration.parent.name} declares it as records")


def source_of(settings: SeriesSettings[Any, Any], key: ReleaseKey | None, table: KnownFlows) -> str:
    """Return sentences on a table that stands for the true flows, and its consequences for errors.

    Args:
        settings: settings of the series.
        key: key of the published release that the table is; None for a synthetic table.
        table: the table.
    """
    spends = "No budget was spent, and no confidential data was read."
    if key is not None:
        return (
            f"The published flows of {key} serve as the true flows. They contain noise, so the number of cells of each"
            " size is that of a noisy table, and the errors over all cells of the finest levels are somewhat too large."
            f" {spends}"
        )
    is_one = table.truth.tree.origin.digest == table.truth.tree.destination.digest
    made_from = "by a gravity model on the list" if is_one else "with random sizes of zones on the lists"
    return (
        f"Data set {settings.domain.name!r} has no published release of these areas, so a synthetic table serves as the"
        f" true flows: {table.trips.total:,} trips on {len(table.trips.rank):,} pairs of zones, generated"
        f" {made_from} of areas alone. The errors of cells with trips are similar for any table. The errors of cells"
        f" without trips, the number of cells of each size and the errors over all cells depend on that table. {spends}"
    )


def _published(plan: ReleasePlan) -> Iterator[tuple[ReleaseKey, Path, dict[str, Any]]]:
    """Yield the key, folder and certificate of each published release of flows over the areas of a plan."""
    areas = {"origin": plan.tree.origin.digest, "destination": plan.tree.destination.digest}
    for key, folder in published_bundles(releases_folder(current_project().var)).items():
        try:
            certificate = certificate_of(folder)
        except OdError:
            continue  # verification reports faults of bundles
        if certificate.get("format") == FLOWS.format and certificate["geographies"] == areas:
            yield key, folder, certificate


def _opened(key: ReleaseKey, folder: Path, plan: ReleasePlan) -> KnownFlows:
    flows = FLOWS.open(folder).flows
    return KnownFlows.from_frame(str(key), "public", flows[flows["trips"] > 0], plan.tree.origin, plan.tree.destination)


def _files_of(declaration: Path) -> Iterator[str]:
    """Yield the paths of the files of records in a declaration, also if the declaration has faults."""
    try:
        documents = yaml_documents(declaration, declaration.parent.name)
    except OdError:
        return  # od-release doctor states the fault
    pending = list(documents)
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            if isinstance(value.get("files"), str):
                try:
                    yield with_environment(value["files"])
                except ValueError:
                    continue  # without its variable, no file is named


def _regular_expression(pattern: str) -> str:
    """Return a regular expression of the resolved paths that a path of records stands for."""
    return re.sub(r"\\\{.*?\\\}", "[^/]*", re.escape(pattern)).replace(r"\*", "[^/]*")


def _matching(pattern: str) -> Iterator[Path]:
    """Yield the files that a path of records stands for."""
    parts = re.split(r"\{.*?\}|\*", pattern)
    return map(Path, glob.iglob("*".join(map(glob.escape, parts))))  # noqa: PTH207  # the pattern is an absolute path


def _is_another_name(path: Path, files: Iterable[Path]) -> bool:
    """Return whether a file with several names, which are hard links, is one of some files."""
    if not path.is_file() or path.stat().st_nlink == 1:
        return False
    return any(file.is_file() and file.samefile(path) for file in files)


def _confidential(path: Path, why: str) -> OdError:
    return OdError(
        "OD-TABLE-CONFIDENTIAL",
        f"{path.name} is confidential: {why}, and a budget that follows from records would reveal them",
        next_step="give a table that is public, such as a published release, or synthetic",
    )
