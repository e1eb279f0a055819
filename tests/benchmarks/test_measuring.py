"""How figures are printed."""

from __future__ import annotations

import json

import pytest

from benchmarks.measuring import printed

MACHINE = {"processor": "a", "cores": 2, "load_average": 0.123456}
LONG = [{"case": "a", "draws": 1}, {"case": "b", "draws": 12_345}, {"case": "c", "draws": 106_000_000}]
WIDE = [
    {"case": "a", "seconds": {"total": 1.23456, "reserve": 0.5}, "least_and_most": [1.0, 2.0]},
    {"case": "b", "seconds": {"total": 1234.5, "reserve": 0.25}, "facade_seconds": None},
]


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The words of every printed line, without the borders."""
    printed_lines = capsys.readouterr().out.translate(dict.fromkeys(map(ord, "─"), " ")).splitlines()
    return [line.split() for line in printed_lines if line.strip()]


def test_json_is_the_figures(capsys):
    results = {"machine": MACHINE, "cases": WIDE}
    printed(results, as_json=True)
    assert json.loads(capsys.readouterr().out) == results


def test_rows_are_a_table(capsys):
    printed({"cases": LONG}, as_json=False)
    assert lines(capsys) == [["cases"], ["case", "draws"], ["a", "1"], ["b", "12,345"], ["c", "106.0", "M"]]
