"""The folders of slow tests and their markers, and which of them a run need not even import."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from _pytest.mark.expression import Expression  # of -m; pytest offers it nowhere else, and its version is pinned

TESTS = Path(__file__).parent

FOLDERS = ("benchmarks", "browser", "faults", "jobs", "leaks", "spark", "statistical")

MARKERS: dict[str, frozenset[str]] = {name: frozenset({"slow", name}) for name in FOLDERS}
"""By folder, the markers of every test in it. Tests of the other folders have none of them."""

KNOWN = frozenset().union(*MARKERS.values())


@cache
def markers(path: Path) -> frozenset[str]:
    """Return the markers of a file or folder of tests."""
    place = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return MARKERS.get(place[0], frozenset()) if place else frozenset()


def is_unwanted(path: Path, expression: str) -> bool:
    """Return whether ``-m`` wants no test of a file or folder, by the markers of its folder alone.

    The folders that hold others are always wanted, and so is all where the expression is empty, has a marker that
    belongs to no folder (``skipif``), or cannot be read, which pytest says itself.
    """
    if path in (TESTS, *TESTS.parents) or not expression:
        return False
    try:
        wanted = Expression.compile(expression)
    except SyntaxError:
        return False
    names = set(re.findall(r"[^\s()]+", expression)) - {"and", "or", "not"}
    return names <= KNOWN and not wanted.evaluate(lambda name, /, **_: name in markers(path))


# Which tests one worker runs (``--dist loadgroup``): by default those of a file, which may share what takes long.

RELEASES = ("statistical/test_flights_grid.py", "statistical/test_independence.py", "statistical/test_residuals.py")
"""Files that share the real releases of ``statistical/conftest.py``."""

FIRST = ("jobs/test_foreign_project.py", "jobs/test_user_year.py", *RELEASES, "spark/", "browser/", "faults/")
"""Begun before all others, so that nothing is waited for at the end: long ones, and those that mostly wait."""

SPREAD = (
    *("benchmarks/test_small_sizes.py", "faults/test_killed.py", "faults/test_soak.py", "jobs/test_examples.py"),
    *("jobs/test_group_size_job.py", "jobs/test_release_job.py", "leaks/", "statistical/test_group_size_choice.py"),
    *("statistical/test_group_size_mechanisms.py", "statistical/test_one_run_audit.py"),
    *("statistical/test_random_trees.py", "statistical/test_stops_audit.py"),
    "statistical/test_user_audit.py",
)
"""Long files whose tests share nothing, so that any worker may run any of them."""


def group(path: Path) -> str | None:
    """Return the name of the tests that one worker runs; None for a test that is a group of its own."""
    place = path.relative_to(TESTS).as_posix()
    return None if place.startswith(SPREAD) else "releases" if place in RELEASES else place


@cache
def turn(path: Path) -> int:
    """Return the place of a file in the order in which files are begun."""
    place = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    return next((turn for turn, first in enumerate(FIRST) if place.startswith(first)), len(FIRST))
