"""What is printed is text: a name neither is markup nor moves a terminal."""

import io
import re
import tomllib
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from rich.table import Table

import od_assets
from od_assets.cli.printing import make_sentence_templates, print_outcome
from od_assets.runs.jobs import Outcome, show_progress
from od_assets.terminal import PlainConsole, escape_unprintable
from od_core import Budget, Geography, PrivacyUnit, release_flows
from od_core.flows.publishing.kind import FLOWS

NAMES = ["[/bold]", "[red]x", ":key:", "a\x1b]0;title\x07b", "\x9b2J", "c\rd", "\u202eright", "\udcff", "ü → [1]"]


def shown(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def test_what_cannot_be_printed_is_written_out():
    assert escape_unprintable("Bundle: ü\n\x1b[31m") == "Bundle: ü\n\\x1b[31m"
    assert [escape_unprintable(name) for name in NAMES] == [shown(name) for name in NAMES]
    assert escape_unprintable("a\tb\u2028c\x00\x7f") == r"a\tb\u2028c\x00\x7f"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printed_as_it_is(name):
    """In lines, tables, their titles and headings, and rules, where a terminal is written to as well."""
    for terminal in (False, True):
        said = io.StringIO()
        console = PlainConsole(file=said, width=80, force_terminal=terminal, no_color=True, highlight=False)
        table = Table(name, title=name)
        table.add_row(name)
        console.print(name)
        console.print(table)
        console.rule(name)
        text = said.getvalue()
        assert text.count(shown(name)) == 5
        if not terminal:
            assert all(sign.isprintable() or sign == "\n" for sign in text)
        assert not [obeyed for obeyed in ("\x1b]0", "\x9b", "\x07", "\r", "\u202e") if obeyed in text]


def test_a_refused_run_of_a_public_release_does_not_say_that_it_is_not_published(capsys):
    print_outcome(Outcome({"release": "trips/2001-02/r1", "was_public": True, "failures": ["a reason"]}))
    assert capsys.readouterr().out == ("trips/2001-02/r1 stays as it was published; this run was refused.\na reason\n")


PUBLISHED = {
    **{"release": "trips/2001-01/r1", "drawn": 7, "measurements": 7, "checks": [], "bundle": "r1"},
    **{"cap_rho": 9, "left_rho": 0, "lost_draws": [], "unpublished": []},
}


def test_a_run_with_area_totals_counts_the_flows_between_zones(capsys):
    """The totals of areas stand after the levels, and are no flows."""
    zones = pd.DataFrame({"region": ["A", "A", "B"], "zone": ["a1", "a2", "b1"]})
    rows = [(origin, destination, "u") for origin in zones["zone"] for destination in zones["zone"]] * 90
    for unit in (PrivacyUnit("trip", "bounded"), PrivacyUnit("user_period", "bounded", "user", 1000)):
        budget = Budget(rho=9_000_000, delta="1e-8")  # hardly any noise: all 9 flows are above 0
        given = {"unit": unit, "budget": budget, "area_totals": "1/10", "fault_threshold": 0, "one_row_a_trip": True}
        frame = pd.DataFrame(rows, columns=["origin", "destination", "user"])
        release = release_flows(frame, Geography.from_frame(zones, ["region", "zone"]), **given)
        print_outcome(Outcome(PUBLISHED, release, FLOWS))
        said = " ".join(capsys.readouterr().out.split())
        flows = (release.flows["trips"] > 0).sum()
        assert f"in {flows} flows above 0, some of which are noise alone, from zone to zone." in said
        assert ("counted trips" in said, "At most 1,000 trips per user are counted" in said) == (
            2 * (unit.kind != "trip",)
        )


def test_a_bar_shows_what_is_at_work(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    title = "[/bold] :key: \x1b]0;title\x07"
    with dg.DagsterInstance.ephemeral() as instance, show_progress(instance, "run", title, print, 26, transient=False):
        pass
    said = capsys.readouterr().err
    assert r"[/bold] :key: \x1b]0;title\x07" in said
    assert "\x07" not in said
    assert "0/26" in said


def test_a_refusal_is_printed_as_it_is(refused, tmp_path):
    bundle = tmp_path / "[bold]\x1b]0;title\x07.zip"
    bundle.write_bytes(b"")
    said = refused("compare", str(bundle), str(bundle))
    assert said.startswith("OD-")
    assert r"[bold]\x1b]0;title\x07.zip" in said
    assert said.strip().isprintable()


def test_there_is_no_other_console():
    """Of rich's own, the strings are markup."""
    folder = Path(od_assets.__file__).parent
    with_a_console = {path.name for path in folder.rglob("*.py") if "Console(" in path.read_text(encoding="utf-8")}
    assert with_a_console == {"terminal.py", "jobs.py"}
    assert "rich.console" not in (folder / "runs" / "jobs.py").read_text(encoding="utf-8")


def test_every_sentence_can_be_read_and_is_printed_somewhere():
    used = {
        name
        for file in Path(od_assets.__file__).parent.rglob("*.py")
        for name in re.findall(r"""\b(?:say|format_sentence)\(\s*["'](\w+\.\w+)""", file.read_text(encoding="utf-8"))
    }
    templates = make_sentence_templates()
    assert used == {*templates.list_templates()}
    assert all(templates.get_template(name) for name in used)


def test_every_table_can_be_read_and_is_printed_somewhere():
    folder = Path(od_assets.__file__).parent / "cli"
    source = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    for name, columns in tomllib.loads((folder / "texts.toml").read_text(encoding="utf-8"))["tables"].items():
        assert f'"{name}"' in source
        assert columns.pop("title")
        assert all(make_sentence_templates().compile_expression(expression) for expression in columns.values())
