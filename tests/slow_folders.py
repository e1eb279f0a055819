"""The folders of slow tests and their markers, which of them a run need not even import, and slow tests elsewhere."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression  # of -m; pytest offers it nowhere else, and its version is pinned

TESTS = Path(__file__).parent

FOLDERS = ("benchmarks", "browser", "faults", "jobs", "leaks", "matrix", "spark", "statistical")

MARKERS: dict[str, frozenset[str]] = {name: frozenset({"slow", name}) for name in FOLDERS}
"""By folder, the markers of every test in it. A test of the other folders has none of them, or ``slow`` alone."""

KNOWN = frozenset().union(*MARKERS.values())


@cache
def markers(path: Path) -> frozenset[str]:
    """Return the markers of a file or folder of tests."""
    place = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return MARKERS.get(place[0], frozenset()) if place else frozenset()


def is_unwanted(path: Path, expression: str) -> bool:
    """Return whether ``-m`` wants no test of a file or folder, by the markers that tests there may have.

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

    def is_met(by):
        return wanted.evaluate(lambda name, /, **_: name in by)

    return names <= KNOWN and not is_met(markers(path)) and not is_met(markers(path) | {"slow"})


# Of a file or function with the marker ``representatives``, which tests are slow.


def without_representatives(items: Sequence[pytest.Item], *, are_all: bool) -> Iterator[pytest.Function]:
    """Yield the tests that ``representatives`` leaves to the slow ones.

    It names what is fast, by patterns of names of functions (for a file) or of cases (for a function). Without any, a
    few cases of a function are, in which each value of each parameter occurs.

    Args:
        items: tests of any files.
        are_all: whether they are all tests of their files.

    Raises:
        pytest.UsageError: if they are, and there is none that a pattern is meant for.
    """
    marked = defaultdict[tuple[Path, str], list[pytest.Function]](list)
    unmet = dict[tuple[int, str], Path]()  # a test that another file imports has the same marker in both
    for item in items:
        if isinstance(item, pytest.Function) and (marker := item.get_closest_marker("representatives")):
            marked[item.path, item.originalname].append(item)
            unmet |= dict.fromkeys(((id(marker), pattern) for pattern in marker.args), item.path)
    for (_, name), cases in marked.items():
        marker = cases[0].get_closest_marker("representatives")
        if not marker.args:
            fast = covering([case.callspec.params for case in cases])
            yield from (case for number, case in enumerate(cases) if number not in fast)
            continue
        for case in cases:
            known = (name, case.callspec.id) if hasattr(case, "callspec") else (name,)
            met = [pattern for pattern in marker.args if any(fnmatchcase(one, pattern) for one in known)]
            for pattern in met:
                unmet.pop((id(marker), pattern), None)
            if not met:
                yield case
    if unmet and are_all:
        raise pytest.UsageError("; ".join(f"no test for {pattern!r} in {path}" for (_, pattern), path in unmet.items()))


def covering(cases: Sequence[Mapping[str, object]]) -> set[int]:
    """Return numbers of cases in which each value of each parameter occurs: next is always one with the most new ones.

    Values are the same if they look the same.
    """
    values = [{(name, repr(value)) for name, value in case.items()} for case in cases]
    fast, left = set[int](), set(chain.from_iterable(values))
    while left:
        best = max(range(len(cases)), key=lambda number: (len(values[number] & left), -number))
        fast.add(best)
        left -= values[best]
    return fast


# Which tests one worker runs (``--dist loadgroup``): by default those of a file, which may share what takes long.

RELEASES = ("statistical/test_independence.py", "statistical/test_residuals.py")
"""Files that share the real releases of ``statistical/conftest.py``."""

FIRST = ("jobs/test_foreign_project.py", "jobs/test_user_year.py", *RELEASES, "spark/", "browser/", "faults/")
"""Begun before all others, so that nothing is waited for at the end: long ones, and those that mostly wait."""

SPREAD = (
    *("benchmarks/test_small_sizes.py", "faults/test_killed_draw.py", "faults/test_soak.py", "jobs/test_examples.py"),
    *("jobs/test_group_size_job.py", "jobs/test_release_job.py", "jobs/test_two_code_locations.py", "leaks/"),
    "statistical/test_group_size_choice.py",
    *("statistical/test_one_run_audit.py", "statistical/test_random_trees.py", "statistical/test_stops_audit.py"),
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
