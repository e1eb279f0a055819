"""Every folder of tests is a slow one or not, -m imports no more than it must, and of many cases a few are fast."""

import itertools
import tomllib

import pytest

from tests.slow_folders import FOLDERS, KNOWN, TESTS, covering, is_unwanted, without_representatives

FAST = {"od_core", "od_assets", "mutants"}


def test_every_folder_is_slow_or_fast():
    """A new folder of slow tests would else be run by make test, or by nothing."""
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert folders == {*FOLDERS} | FAST


def test_every_marker_is_registered():
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    assert {line.partition(":")[0] for line in settings["ini_options"]["markers"]} == KNOWN | {
        "exhaustive",
        "representatives(*patterns)",
    }


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("", {*FOLDERS} | FAST),
        ("not slow", FAST),
        ("slow", {*FOLDERS} | FAST),
        ("slow and not (browser or faults or spark)", {*FOLDERS} - {"browser", "faults", "spark"} | FAST),
        ("spark or jobs", {"spark", "jobs"}),
        ("slow and skipif", {*FOLDERS} | FAST),
        ("slow and (", {*FOLDERS} | FAST),
    ],
)
def test_what_is_kept_out_of_the_collection(expression, wanted):
    assert {name for name in {*FOLDERS} | FAST if not is_unwanted(TESTS / name, expression)} == wanted
    assert not is_unwanted(TESTS, expression)


@pytest.mark.representatives("a", "b*")
@pytest.mark.parametrize("case", ["a", "b1", "b2", "ab"])
def test_cases_that_no_pattern_names_are_slow(request, case):
    """A pattern without a test is refused, or make test would run none."""
    assert (request.node.get_closest_marker("slow") is not None) == (case == "ab")
    unmet = "b*" if case == "a" else "a"
    with pytest.raises(pytest.UsageError, match=f"no test for '{unmet[0]}"):
        list(without_representatives([request.node], are_all=True))
    assert [*without_representatives([request.node], are_all=False)] == ([request.node] if case == "ab" else [])


def test_without_a_pattern_each_value_of_each_parameter_is_in_a_fast_case():
    """As few of a product as its longest parameter has values; all of a list in which no value occurs twice."""
    product = [
        dict(zip("xyz", values, strict=True)) for values in itertools.product(range(3), "ab", [None, [0], [1], [2]])
    ]
    fast = covering(product)
    assert len(fast) == 4
    assert all(
        {repr(case[name]) for case in product} == {repr(product[number][name]) for number in fast} for name in "xyz"
    )
    assert covering(product) == fast
    assert covering([{"x": number} for number in range(5)]) == {*range(5)}
