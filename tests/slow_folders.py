"""The folders of slow tests and their markers, and which of them a run need not even import."""

from __future__ import annotations

from pathlib import Path

from _pytest.mark.expression import Expression  # of -m; pytest offers it nowhere else, and its version is pinned

TESTS = Path(__file__).parent

ANY_ORDER = ("statistical", "leaks", "jobs", "benchmarks")
BY_FILE = ("faults", "browser", "spark")
"""The tests of one file of these share sessions and servers, so one worker runs them (``--dist loadfile``)."""

MARKERS: dict[str, frozenset[str]] = {
    **{name: frozenset({"slow", name}) for name in ANY_ORDER},
    **{name: frozenset({"slow", "by_file", name}) for name in BY_FILE},
}
"""By folder, the markers of every test in it. Tests of the other folders have none of them."""

KNOWN = frozenset().union(*MARKERS.values())


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
    return wanted.idents() <= KNOWN and not wanted.evaluate(lambda name, /, **_: name in markers(path))
