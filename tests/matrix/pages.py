"""Every page that a row shows: files, site, documents, explanation, decision, plan and comparison."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas as pd
import yaml

from od_assets.cli import printing, published
from od_assets.terminal import console
from od_core import OdError, explain_release
from od_core.evaluation.decision import iterate_options, render_decision_page, select_example_flows
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows import planning_page as planning
from od_core.flows.plan import ReleasePlan
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.subject import Subject
from od_core.periods import Period
from od_core.published.documents import data_contract, disclosure_documents
from tests.matrix import prose
from tests.matrix.declared import ABOUT, SERIES, domain_of, kind_of, plan_of, zones_of
from tests.matrix.made import Made, fixed_noise


@dataclass(frozen=True)
class Page:
    """A text that a reader sees.

    Attributes:
        of: bundle that it is about, such as ``release``; ``site`` or ``plan``.
        name: name of the file, or of the command that prints it.
        blocks: its paragraphs, cells and headings.
    """

    of: str
    name: str
    blocks: tuple[str, ...]

    @property
    def file(self) -> str:
        """The name of the page with what it is about."""
        return f"{self.of}/{self.name}"

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n".join(self.blocks)


def pages_of(made: Made) -> list[Page]:
    """Return all pages of a row. A command that refuses its row has the refusal as its page."""
    with fixed_noise():
        return [*_pages(made)]


def _pages(made: Made) -> Iterator[Page]:
    for name, bundle in made.bundles.items():
        if name in ("earlier", "other"):  # their words are those of the release
            continue
        for file, path in bundle.files().items():
            if blocks := prose.of_file(path):
                yield Page(name, file, tuple(blocks))
        for file, blocks in _documents(bundle.folder):
            yield Page(name, file, tuple(blocks))
        yield _printed(
            name, "explain", lambda at=bundle.folder: printing.print_explanation(explain_release(at, made.ledger))
        )
    for path in sorted(made.site.rglob("*")):
        inner = path.relative_to(made.site)
        if path.is_file() and (len(inner.parts) < 4 and path.suffix != ".zip") and (blocks := prose.of_file(path)):
            yield Page("site", str(inner), tuple(blocks))
    yield from _of_plan(made)
    if "earlier" in made.bundles:
        folders = SimpleNamespace(find_bundle=lambda name: made.root / "releases" / ReleaseKey.parse(name).folder)
        keys = [str(made.bundles[name].key) for name in ("earlier", "release")]
        with patch.object(published, "project_folders", lambda: folders):
            yield _printed("release", "compare", lambda: published.compare(*keys))


def _documents(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for name, text in disclosure_documents(folder)[1].items():
        if name.endswith((".json", ".yaml")):
            yield name, [*prose.of_json(yaml.load(text, yaml.CSafeLoader))]
        else:
            yield name, prose.of_html(text)[0] if name.endswith(".html") else prose.of_markdown(text)
    yield "contract", [*prose.of_json(json.loads(json.dumps(data_contract(folder))))]


def _printed(of: str, name: str, command: Callable[[], object]) -> Page:
    """Return what a command prints, as a page."""
    with console.capture() as captured:
        try:
            command()
        except OdError as error:
            console.print(f"{error.code}: {error.message}; next step: {error.next_step}")
    return Page(of, name, tuple(prose.of_markdown(captured.get())))


def known_table(made: Made) -> KnownFlows | None:
    """Return a public table of flows for the pages of the plan; None for other kinds."""
    plan = made.main.release.plan
    if not isinstance(plan, ReleasePlan):
        return None
    homes, works = (zones_of(which, made.row["zones"]) for which in ("same", made.row["destinations"]))
    ends = ["all"] if plan.tree.has_one_side else [*works]
    rows = [(home, work, 7 * k + 11 * m) for k, home in enumerate(homes) for m, work in enumerate(ends)]
    table = pd.DataFrame(rows, columns=["origin", "destination", "trips"])
    if plan.tree.has_one_side:
        table = table.drop(columns="destination").rename(columns={"origin": "area", "trips": "count"})
    given = {} if plan.tree.same_geography else {"destination_geography": plan.tree.destination}
    return KnownFlows.from_frame("table", "public", table, plan.tree.origin, **given)


_STAND_INS = re.compile(r"\{(?:trips|pair|yearly)\}")


def _of_plan(made: Made) -> Iterator[Page]:
    plan, kind, domain = plan_of(made.row), kind_of(made.row), domain_of(made.row)
    periods = [Period(made.main.key.period)]
    every = SimpleNamespace(every=made.row["period"], last=None, first=periods[0])
    series: Any = SimpleNamespace(
        name=SERIES,
        about_facts=ABOUT[made.row["words"]],
        domain=domain,
        kind=kind,
        periods=every,
        columns=SimpleNamespace(row="one each"),
        states_intervals=made.row["intervals"] == "yes",
    )
    subject = Subject.from_plan(plan, ABOUT[made.row["words"]])
    compared, facts = [*iterate_options(plan, subject=subject)], dict[str, Any](runs=1, flows=[], source="")
    if (table := known_table(made)) is not None:
        compared = [option.with_simulated_errors(table, 1) for option in compared[:2]] + compared[2:]
        facts |= {"flows": [*select_example_flows(plan, table)], "source": "The table is synthetic."}  # type: ignore[arg-type]
    allowed = domain.cap.allowed_rho()
    left = SimpleNamespace(measure="rho", cap=allowed, left=allowed, spent=0)
    page = render_decision_page(series, plan, compared, periods, published=[], paid=1, left=left, **facts)
    yield Page("plan", "decide", tuple(prose.of_html(page)[0]))
    try:
        with patch.object(planning, "EPSILONS", ("1", "2")):  # each takes a second, and has the same words
            text = planning.render_planning_page(plan, SERIES, domain.cap, about=series.about_facts)
    except OdError as error:
        yield Page("plan", "planning page", (f"{error.code}: {error.message}; next step: {error.next_step}",))
    else:
        blocks, scripts = list[str](), prose.of_html(text)[1]
        for kind_of_script, script in scripts:
            if kind_of_script.endswith("json"):  # the program takes its nouns from here, which tests in a browser see
                blocks += prose.of_json(json.loads(_STAND_INS.sub("1", script)))
        yield Page("plan", "planning page", tuple(blocks))
    yield _printed("plan", "plan", lambda: printing.print_plan(series, plan, verbose=True))
    yield _printed(
        "plan", "plan --explain", lambda: printing.print_guarantee(kind.describe_guarantee(plan, plan.spent, subject))
    )
