"""What is printed is text: a name neither is markup nor moves a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from rich.table import Table

import od_assets
from od_assets.cli.findings import Finding
from od_assets.cli.printing import print_findings, print_frame, print_outcome
from od_assets.runs.progress import followed
from od_assets.runs.run_period import Outcome
from od_assets.terminal import PlainConsole, printable

NAMES = ["[/bold]", "[red]x", ":key:", "a\x1b]0;title\x07b", "\x9b2J", "c\rd", "\u202eright", "\udcff", "ü → [1]"]


def shown(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def test_what_cannot_be_printed_is_written_out() -> None:
    assert printable("Bundle: ü\n\x1b[31m") == "Bundle: ü\n\\x1b[31m"
    assert [printable(name) for name in NAMES] == [shown(name) for name in NAMES]
    assert printable("a\tb\u2028c\x00\x7f") == r"a\tb\u2028c\x00\x7f"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printed_as_it_is(name: str) -> None:
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


def test_findings_and_frames(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings([Finding("zones [/x].csv"), Finding("[red]", "a \x1b]0;b", ":key:")])
    print_outcome(Outcome({"release": "trips/2001-01/r1", "failures": ["[/x]: a \x9b2J"]}, None))
    print_frame("[/x]", pd.DataFrame({"[/a]_b": ["[red]", ":key:"], "\x9b": [1, 2]}))
    said = capsys.readouterr().out
    assert said.startswith("ok     zones [/x].csv\nWRONG  [red]: a \\x1b]0;b [next: :key:]\n")
    assert "trips/2001-01/r1 is not published.\n[/x]: a \\x9b2J\n[/x] " in said
    assert "[/a] b" in said
    assert r"\x9b" in said


def test_a_bar_shows_what_is_at_work(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    title = "[/bold] :key: \x1b]0;title\x07"
    with dg.DagsterInstance.ephemeral() as instance, followed(instance, "run", title, print, transient=False):
        pass
    said = capsys.readouterr().err
    assert r"[/bold] :key: \x1b]0;title\x07" in said
    assert "\x07" not in said


def test_a_refusal_is_printed_as_it_is(refused: Callable[..., str], tmp_path: Path) -> None:
    bundle = tmp_path / "[bold]\x1b]0;title\x07.zip"
    bundle.write_bytes(b"")
    said = refused("compare", str(bundle), str(bundle))
    assert said.startswith("OD-")
    assert r"[bold]\x1b]0;title\x07.zip" in said
    assert said.strip().isprintable()


def test_there_is_no_other_console() -> None:
    """Of rich's own, the strings are markup."""
    folder = Path(od_assets.__file__).parent
    with_a_console = {path.name for path in folder.rglob("*.py") if "Console(" in path.read_text(encoding="utf-8")}
    assert with_a_console == {"terminal.py", "printing.py", "progress.py"}
    for path in (folder / "cli" / "printing.py", folder / "runs" / "progress.py"):
        assert "rich.console" not in path.read_text(encoding="utf-8")
