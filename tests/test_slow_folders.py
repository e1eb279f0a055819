"""Every folder of tests is a slow one or not, and -m imports no more than it must."""

from __future__ import annotations

import tomllib

import pytest

from tests.slow_folders import ANY_ORDER, BY_FILE, KNOWN, TESTS, is_unwanted, markers

FAST = {"od_core", "od_assets"}


def test_every_folder_is_slow_or_fast():
    """A new folder of slow tests would else be run by make test, or by nothing."""
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert folders == {*ANY_ORDER, *BY_FILE} | FAST


def test_every_marker_is_registered():
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    assert {line.partition(":")[0] for line in settings["ini_options"]["markers"]} == KNOWN


def test_a_test_has_the_markers_of_its_folder():
    assert markers(TESTS / "spark" / "test_cluster.py") == {"slow", "by_file", "spark"}
    assert markers(TESTS / "jobs" / "test_replay.py") == {"slow", "jobs"}
    for path in ("od_core/spark/test_spark_refusals.py", "test_docs.py", ".", "../od_core/periods.py"):
        assert markers(TESTS / path) == set()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("", {*ANY_ORDER, *BY_FILE} | FAST),
        ("not slow", FAST),
        ("slow and not by_file", {*ANY_ORDER}),
        ("by_file", {*BY_FILE}),
        ("spark or jobs", {"spark", "jobs"}),
        ("slow and skipif", {*ANY_ORDER, *BY_FILE} | FAST),
        ("slow and (", {*ANY_ORDER, *BY_FILE} | FAST),
    ],
)
def test_what_is_kept_out_of_the_collection(expression, wanted):
    assert {name for name in {*ANY_ORDER, *BY_FILE} | FAST if not is_unwanted(TESTS / name, expression)} == wanted
    assert not is_unwanted(TESTS, expression)


def test_the_markers_of_this_test_are_those_of_its_folder(request):
    assert {mark.name for mark in request.node.iter_markers()} & KNOWN == markers(request.path)
