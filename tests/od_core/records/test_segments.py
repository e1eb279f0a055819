"""The value type of breakdowns: what is refused, and that facts give the same breakdown again."""

import pytest

from od_core import OdError
from od_core.records.segments import (
    MAX_BREAKDOWNS,
    MAX_CATEGORIES,
    RESERVED_NAMES,
    Breakdown,
    find_breakdown,
    make_breakdowns,
)

MODES = ("car", "bus", "walk")
MANY = tuple(f"c{number}" for number in range(MAX_CATEGORIES + 1))


def refused(code: str, *arguments: object) -> str:
    """The one line with which a breakdown is refused: place, cause and next step."""
    with pytest.raises(OdError) as caught:
        Breakdown(*arguments)  # type: ignore[arg-type]
    text = str(caught.value)
    assert caught.value.code == code
    assert "\n" not in text
    assert caught.value.next_step
    return text


@pytest.mark.parametrize("category", ["=1+1", "-", "a,=b", "@x", "\uff1dx"])
def test_a_category_that_a_spreadsheet_could_run_is_refused(category):
    assert "formula" in refused("OD-SEGMENT-LIST", "mode", ("car", category))


@pytest.mark.parametrize("name", ["", " mode", "2nd", "mode-1", "mode;", "möde", "a" * 64, None, 7])
def test_a_name_that_cannot_name_a_column_is_refused(name):
    assert repr(name) in refused("OD-SEGMENT-LIST", name, MODES)


@pytest.mark.parametrize("name", sorted({*RESERVED_NAMES, "Origin", "TOTAL"}))
def test_a_name_of_a_column_of_every_release_is_refused(name):
    assert f"{name}_category" in refused("OD-SEGMENT-LIST", name, MODES)


@pytest.mark.parametrize(
    ("categories", "cause"),
    [
        ((), "has 0 categories"),
        (("car",), "has 1 categories; it may have 2 to 64"),
        (MANY, "has 65 categories"),
        ("car", "not a list of texts"),
        (("car", 7), "not a list of texts"),
        (("car", None), "not a list of texts"),
        (("car", ""), "''"),
        (("car", "  "), "empty"),
        (("car", " bus"), "' bus'"),
        (("car", "bus\t"), "bus"),
        (("car", "b\u200bus"), "invisible"),
        (("car", "bus", "car"), "'car' and 'car'"),
        (("car", "Car"), "'car' and 'Car'"),
        (("v\u00e9lo", "ve\u0301lo"), "how accents are encoded"),
    ],
)
def test_a_list_that_cannot_be_published_is_refused(categories, cause):
    text = refused("OD-SEGMENT-LIST", "mode", categories)
    assert cause in text
    assert "'mode'" in text


def test_unknown_must_be_a_listed_category():
    assert "'Car'" in refused("OD-SEGMENT-LIST", "mode", MODES, "Car")
    assert Breakdown("mode", MODES, "walk").unknown == "walk"


def test_breakdowns_are_those_of_the_caller_in_the_given_order():
    made = make_breakdowns({"mode": list(MODES), "hour": ["00", "01"]}, {"mode": "walk"})
    assert made == (Breakdown("mode", MODES, "walk"), Breakdown("hour", ("00", "01")))
    assert make_breakdowns(None) == make_breakdowns({}) == ()
    assert find_breakdown(made, "hour") is made[1]
    with pytest.raises(OdError, match=r"OD-SEGMENT-UNKNOWN.*'hours'.*did you mean 'hour'"):
        find_breakdown(made, "hours")


@pytest.mark.parametrize(
    ("segments", "unknown", "cause"),
    [
        ({f"by{number}": MODES for number in range(MAX_BREAKDOWNS + 1)}, None, "at most 3"),
        ({"mode": MODES, "Mode": MODES}, None, "differ only in case"),
        ({"mode": MODES}, {"modes": "car"}, "did you mean 'mode'"),
        ({"mode": MODES}, {"mode": "rail"}, "'rail'"),
        ({"mode": ("car",)}, None, "1 categories"),
    ],
)
def test_breakdowns_that_do_not_fit_together_are_refused(segments, unknown, cause):
    with pytest.raises(OdError, match=r"OD-SEGMENT-LIST.*" + cause) as caught:
        make_breakdowns(segments, unknown)
    assert "\n" not in str(caught.value)
