"""Commands on published releases, which read no records and charge no budget."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
import yaml
from rich.text import Text

from od_assets.cli import ExitCode, project_folders
from od_assets.cli.printing import format_sentence, print_derived, print_explanation, print_frame, say
from od_assets.project import find_current_project
from od_assets.terminal import WRONG, console, escape_unprintable, print_json
from od_core.errors import OdError
from od_core.periods import Period

if TYPE_CHECKING:
    import pandas as pd

    from od_core import Release
    from od_core.geography.flow_tree import FlowTree
    from od_core.ledger.release_key import ReleaseKey
    from od_core.publication.certificate import Certificate


def verify(release: str | None = None, as_json: bool = False) -> None:
    """Recompute published releases from their measurements, and compare them with bundle, database and ledger."""
    from od_assets.resources.warehouse import verify_published_releases

    with console.status("Computing the releases again"):
        rows = verify_published_releases(release)
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            verdict = "verified" if row["verified"] else Text("NOT VERIFIED", style=WRONG)
            console.print(f"{row['release']}:", verdict)
            for part, fault in row["faults"].items():
                console.print(f"  {part}: {fault}", soft_wrap=True)
            if "next_step" in row:
                console.print(f"  next step: {row['next_step']}", soft_wrap=True)
        console.print(f"{sum(row['verified'] for row in rows)} of {len(rows)} releases verified.")
    if not all(row["verified"] for row in rows):
        raise typer.Exit(ExitCode.FAULT_FOUND)


def report(release: str | None = None, period: str | None = None) -> None:
    """Open the report of a published release in the browser, and print its path. Without a display, print only that."""
    folders = project_folders()
    page = find_newest_report(folders.releases, release, period, folders.database)
    typer.echo(escape_unprintable(str(page)))
    # Elsewhere, a browser that runs in the terminal might start.
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page.as_uri())


def find_newest_report(releases: Path, release: str | None, period: str | None, database: Path | None = None) -> Path:
    """Return the path of the report of the newest published release of a series and period.

    Args:
        releases: folder of all bundles.
        release: name of the series, as declared or with the prefix of the project; None for the release of any series
            that was measured last.
        period: period of the release; None for the newest one.
        database: release database, which also knows published releases whose bundles are missing.

    Raises:
        OdError: no such release is published, or its bundle or its report is missing.
    """
    from od_assets.series.section import read_key_prefix
    from od_core.publication.bundle_files import REPORT
    from od_core.publication.read_back import (
        make_damaged_bundle_error,
        make_missing_bundles_error,
        read_bundle_certificate,
        read_withdrawals,
        refuse_withdrawn,
    )
    from od_core.published.opening import find_bundle_folders, find_bundle_zips, find_missing_bundles

    names = (release, "_".join([*read_key_prefix(find_current_project()), str(release)]))

    def select_matching(keys: Iterable[ReleaseKey]) -> list[ReleaseKey]:
        return [key for key in keys if (release is None or key.release in names) and period in (None, key.period)]

    bundles = find_bundle_folders(releases)
    if release is not None:
        key = max(select_matching({*bundles, *find_bundle_zips(releases)}), default=None)
    else:
        measured_at = {
            key: str(read_bundle_certificate(bundles[key])["measured_at"]) for key in select_matching(bundles)
        }
        key = max(measured_at, key=lambda key: measured_at[key], default=None)
    if key is None:
        if release is not None and period is not None:
            refuse_withdrawn(releases, *select_matching(read_withdrawals(releases)))
        missing = select_matching(find_missing_bundles(releases, database))
        if missing:
            raise make_missing_bundles_error(missing)
        raise _make_absent_release_error(release, period)
    if key not in bundles:
        raise make_missing_bundles_error([key])
    page = bundles[key].resolve() / REPORT
    if not page.is_file():
        raise make_damaged_bundle_error(key, f"{REPORT} is missing")
    return page


def _make_absent_release_error(release: str | None, period: str | None) -> OdError:
    """Return the error that no such release is published here. Raises another OdError if no series has the name."""
    from od_assets.series.reading import read_declared_series

    when = "" if period is None else f" for {period}"
    if release is None:
        step = "od-release status lists the releases"
        return OdError("OD-RELEASE-ABSENT", f"no release{when} is published here", next_step=step)
    read_declared_series(release)
    step = f"od-release run {release}" + ("" if period is None else f" --period {period}")
    return OdError("OD-RELEASE-ABSENT", f"no release of {release}{when} is published here", next_step=step)


def compare(
    before: str,
    after: str,
    level: str | None = None,
    origin_level: str | None = None,
    destination_level: str | None = None,
    segment: str | None = None,
    top: int = 20,
    as_json: bool = False,
) -> None:
    """Print the largest changes of flows between two releases, and mark those larger than their uncertainty."""
    from od_core.flows.publishing.changes import changes, describe_cautions, use_numbers_per_day
    from od_core.geography.codes import WHOLE_SPACE
    from od_core.publication.certificate import read_subject
    from od_core.publication.columns import CONFIDENCE
    from od_core.publication.comparability import check_comparability, name_breakdown_categories

    old_key, old, old_certificate = _open_flows(before)
    new_key, new, new_certificate = _open_flows(after)
    if old_key == new_key:
        message = f"both releases are {old_key}, so there is nothing to compare"
        raise OdError("OD-COMPARE-SAME", message, next_step="name two releases with different periods or revisions")
    note = describe_cautions(read_subject(new_certificate), old_certificate, new_certificate).strip()
    nouns = read_subject(old_certificate).nouns
    origin = origin_level or level or old.plan.tree.origin.levels[0]
    level_of_destinations = level if nouns.has_pairs else WHOLE_SPACE
    destination = destination_level or level_of_destinations or old.plan.tree.destination.levels[0]
    comparability = check_comparability(old_certificate, new_certificate, [segment] if segment else [])
    changed = changes(old, new, origin, destination, segment, comparability.days)
    if segment and name_breakdown_categories(segment) in comparability.differing:
        differs = "in different ways, as their certificates state"
        message = f"the two releases derive the categories of {segment!r} {differs}"
        raise OdError("OD-SEGMENT-OTHER", message, next_step="compare the totals, or releases of one definition")
    numbers = {"pairs": len(changed), "significant": int(changed["significant"].sum())}
    if as_json:
        releases: dict[str, object] = {"before": str(old_key), "after": str(new_key)}
        releases |= {"days": comparability.days, "per_day": comparability.per_day}
        levels = {"origin_level": origin, "destination_level": destination, "confidence": str(CONFIDENCE)}
        caution = {"note": note} if note else {}
        largest = json.loads(changed.head(top).to_json(orient="records"))
        print_json({**releases, **levels, **numbers, **caution, "changes": largest})
        return
    per_day = ", per day" if comparability.per_day else ""
    title = f"{new_key} against {old_key}: {nouns.cells} {nouns.format_levels(origin, destination)}{per_day}"
    rows = _label_changes(use_numbers_per_day(changed).head(top), new.plan.tree, origin, destination)
    if not nouns.has_pairs:
        rows = rows.drop(columns="destination").rename(columns={"origin": "area"})
    print_frame(title, rows)
    console.print(format_sentence("compare.significant", note=note, **numbers), soft_wrap=True)


def _label_changes(changed: pd.DataFrame, tree: FlowTree, origin: str, destination: str) -> pd.DataFrame:
    """Return a table of changes to print: with labels of areas, and ``*`` where a change is significant.

    ``origin`` and ``destination`` are the names of the levels of its areas.
    """
    from od_core.flows.publishing.flow_tables import label_areas

    levels = tree.origin.find_level_number(origin), tree.destination.find_level_number(destination)
    rows = label_areas(tree, changed, levels)
    marks = rows["significant"].map({True: "*", False: ""})
    return rows.assign(significant=marks).rename(columns={"lower": "at least", "upper": "at most"})


def _open_flows(name: str) -> tuple[ReleaseKey, Release, Certificate]:
    """Return the key, release and certificate of a bundle, given the release's key or the path of the bundle.

    Raises OdError if there is no such bundle, or releases of its kind cannot be compared.
    """
    from od_core.publication.read_back import read_bundle_certificate
    from od_core.published.opening import find_bundle_kind, open_bundle, open_bundle_folder

    with open_bundle_folder(project_folders().find_bundle(name)) as folder:
        key, release = open_bundle(folder)
        certificate = read_bundle_certificate(folder)
        find_bundle_kind(certificate).refuse_comparison(key)
    return key, cast("Release", release), certificate


def sum_command(releases: list[str], periods: str | None = None, as_json: bool = False) -> None:
    """Publish the sum of published releases of flows, such as a year from its months, as a bundle with intervals.

    It is computed from the public bundles alone: no record is read, no noise is drawn and no budget is charged. The
    same releases give the same bundle; after a new revision of one of them, the sum has a new revision, too.
    """
    from od_core.ledger.release_key import ReleaseKey
    from od_core.published.derived import find_newest_in_period, find_newest_revisions, publish_sum

    folders = project_folders()
    bundles = folders.releases
    is_series = len(releases) == 1 and "/" not in releases[0]
    if periods is None and is_series:
        find_newest_revisions(bundles, releases[0])  # refuses a name of no series first
        message = f"{releases[0]} is the name of a series, and --periods does not say which of its releases to sum"
        step = f"od-release sum {releases[0]} --periods FIRST..LAST, or name releases"
        raise OdError("OD-SUM-NAMES", message, next_step=step)
    if periods is None:
        period, keys = None, [ReleaseKey.parse(name) for name in releases]
    elif is_series:
        period = periods.replace("..", "--")
        keys = find_newest_in_period(bundles, releases[0], Period(period))
    else:
        message = "--periods needs the name of one series"
        raise OdError("OD-SUM-NAMES", message, next_step="name a series with --periods, or name releases without it")
    folders.refuse_lost_or_withdrawn(*keys)
    with console.status("Summing the releases"):
        published = publish_sum(bundles, keys, period)
    print_derived(published, "summed", as_json=as_json)


def assist(release: str, period: str | None = None, earlier: int = 11, as_json: bool = False) -> None:
    """Publish estimates of a published release of flows that also learn from the releases before it, as a bundle.

    They have less error than the released flows on average, most of all for small flows. They are computed from the
    public bundles alone: no record is read, no noise is drawn and no budget is charged. The release stays as it is. For
    changes between periods, compare the releases, not these estimates.
    """
    from od_core.published.derived import find_release_key, publish_assisted

    folders = project_folders()
    key = find_release_key(folders.releases, release, period)
    folders.refuse_lost_or_withdrawn(key)
    with console.status("Estimating the flows"):
        published = publish_assisted(folders.releases, key, earlier)
    print_derived(published, "assisting", as_json=as_json)


def replicates(release: str, number: int = 100, to: Path | None = None, as_json: bool = False) -> None:
    """Write replicates of a published release: tables that spread around its estimate as this does around the truth.

    Run your own model on each of them, to see how certain its results are, as with replicate weights in survey
    statistics. They are made from the public bundle alone, and are the same on every call. No budget is charged.
    """
    from od_core.published.derived import find_release_key
    from od_core.published.replicate_files import write_replicates

    folders = project_folders()
    key = find_release_key(folders.releases, release)
    folders.refuse_lost_or_withdrawn(key)
    folder = to or folders.var / "replicates" / key.folder
    files = write_replicates(folders.releases, key, number, folder)
    if as_json:
        print_json({"release": str(key), "folder": str(folder), "files": files})
        return
    console.print(f"{number:,} replicate{'s' * (number != 1)} of {key}. Nothing was charged.")
    console.print(f"Folder: {folder} ({', '.join(files)})", soft_wrap=True)


def site(
    to: Path | None = None,
    title: str | None = None,
    url: str | None = None,
    publisher: str | None = None,
    licence: str | None = None,
    contact: str | None = None,
    as_json: bool = False,
) -> None:
    """Write a static web site of all published releases: pages, all files, a catalogue for programs and a feed.

    Copy its folder to any web server. The site is made from the public bundles alone. Run the command again after a
    release: files that are there already are left alone. What you leave out is as declared by OdSite, if it is. If the
    bundle of a published release is missing or damaged, the others are written all the same, and the exit code is 2.
    """
    from od_assets.series.reading import read_site_declaration
    from od_core.published.site import HOME, write_site

    values = {"title": title, "url": url, "publisher": publisher, "licence": licence, "contact": contact}
    declared = read_site_declaration()
    stated: dict[str, Any] = {name: text for name, text in values.items() if text is not None}
    described = replace(declared.to_site_description(), **stated)
    folders = project_folders()
    with console.status("Writing the site"):
        result = write_site(folders.releases, to or declared.place, described, folders.database)
    if as_json:
        facts = {"folder": str(result.folder), "series": result.series, "releases": result.releases}
        facts |= {"changed": result.changed, "left_out": list(map(str, result.left_out))}
        facts |= {"faults": {str(key): fault for key, fault in result.left_out.items()}}
        print_json(facts)
    else:
        say("site.written", releases=result.releases, series=result.series, files=len(result.changed))
        console.print(f"First page: {result.folder / HOME}", soft_wrap=True)
    result.refuse_left_out()


def withdraw(release: str, reason: str, as_json: bool = False) -> None:
    """Withdraw a published release, and the sums and assisted flows that are derived from it. This cannot be undone.

    Bundles and rows of the database are removed, and the site is written again. The ledger keeps the charge, and enters
    the reason, which the site and its feed state. A copy of each bundle stays in the confidential folder. The period
    can be released again as a new revision, which is charged anew. If the command was stopped, run it again.
    """
    from od_assets.resources.withdrawal import withdraw as withdraw_release
    from od_assets.series.reading import read_site_declaration
    from od_core.ledger.release_key import ReleaseKey
    from od_core.published.site import HOME, write_site

    folders = project_folders()
    declared = read_site_declaration()
    key = ReleaseKey.parse(release)
    folders.open_existing_ledger()
    with console.status("Withdrawing the release"), folders.ledger_chain.lock_for_release():
        withdrawals = withdraw_release(folders, key, reason)
        has_site = (declared.place / HOME).is_file()
        if has_site:
            write_site(folders.releases, declared.place, declared.to_site_description(), folders.database)
    if as_json:
        facts = [
            {"release": str(withdrawn), "withdrawn_at": withdrawal.at, "reason": withdrawal.why}
            for withdrawn, withdrawal in withdrawals.items()
        ]
        print_json({"withdrawn": facts, "site": str(declared.place) if has_site else None})
        return
    for withdrawn, withdrawal in withdrawals.items():
        console.print(f"Withdrawn: {withdrawn} ({withdrawal.why})", soft_wrap=True)
    console.print(format_sentence("withdraw.next", site=declared.place if has_site else None), soft_wrap=True)


def disclose(release: str, folder: Path | None = None, as_json: bool = False) -> None:
    """Write the documents that disclose a published release, from its certificate and data package alone.

    They are: an entry for the registry of differential privacy deployments, an evaluation by NIST SP 800-226, a notice
    for the people in the data, a record for a data protection impact assessment, and the provenance in PROV-JSON. What
    only the organisation knows is marked. The same release gives the same bytes.
    """
    from od_core.published.documents import DESCRIPTIONS, TO_COMPLETE, write_disclosure

    bundle = project_folders().find_bundle(release)
    target = find_current_project().var / "disclosure" if folder is None else folder
    result = write_disclosure(bundle, target, within=folder is None)
    if as_json:
        print_json(result.facts())
        return
    width = max(map(len, DESCRIPTIONS))
    for name, description in DESCRIPTIONS.items():
        console.print(f"{name:<{width}}  {description}", soft_wrap=True)
    console.print(f"{len(result.changed)} of {len(DESCRIPTIONS)} files were written; the others were there already.")
    console.print(f"Folder: {result.folder}", soft_wrap=True)
    console.print(f"Fields that say {TO_COMPLETE!r} are yours. Complete copies: the command replaces these files.")


def contract(release: str, as_json: bool = False) -> None:
    """Print the data contract of a published release for a data catalogue, in the Open Data Contract Standard."""
    from od_core.published.documents import data_contract

    facts = data_contract(project_folders().find_bundle(release))
    if as_json:
        print_json(facts)
    else:
        typer.echo(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=120), nl=False)


def explain(release: str, as_json: bool = False) -> None:
    """Explain a published release: what it protected and spent, what an attacker learns, and which decisions mattered.

    For an attacker who knows all other records, or any number of them, a table states how far a belief about one unit
    can move. For other units, neighbours, bounds, deltas and epsilons, another table states the epsilon with the same
    noise, and the noise with the same promise. Only public facts are used: the bundle and, if it is here, the ledger.
    """
    from od_core.published.explanation import explain_release

    folders = project_folders()
    explanation = explain_release(folders.find_bundle(release), folders.find_usable_ledger())
    if as_json:
        print_json(explanation.to_facts())
    else:
        print_explanation(explanation)
