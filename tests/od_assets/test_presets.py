"""Tests of the section ``bounds``, of the preset ``estimate``, and of keys that stood elsewhere in version 0.1."""

import logging
from typing import Any

import pytest

from od_assets.series.section import note_once
from od_core import OdError
from tests.od_assets.conftest import Project

OF_USERS: dict[str, Any] = {"domain__unit": "user_period", "domain__column": "person"}
OF_YEAR = OF_USERS | {"domain__unit": "user_year", "domain__id_pattern": ".+"}


@pytest.fixture(autouse=True)
def notes(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is noted of declarations, each note once."""
    note_once.cache_clear()
    caplog.set_level(logging.WARNING, "od_assets")
    return caplog


@pytest.mark.parametrize(
    ("former", "written", "places"),
    [
        (OF_USERS | {"max_trips": 3}, OF_USERS | {"bounds__max_trips": 3}, ["max_trips"]),
        (
            OF_USERS | {"max_trips": 3, "max_trips_pair": 1},
            OF_USERS | {"bounds": {"max_trips": 3, "max_trips_pair": 1}},
            ["max_trips", "max_trips_pair"],
        ),
        (
            OF_YEAR | {"domain__max_trips": 3, "domain__max_trips_year": 9},
            OF_YEAR | {"domain__bounds": {"max_trips": 3, "max_trips_year": 9}},
            ["max_trips", "max_trips_year"],
        ),
    ],
)
def test_bounds_outside_their_section_are_read_with_a_note(
    project: Project,
    notes: pytest.LogCaptureFixture,
    former: dict[str, Any],
    written: dict[str, Any],
    places: list[str],
) -> None:
    unit = project.component(**written).require_valid().unit
    assert notes.messages == []
    assert project.component(**former).require_valid().unit == unit
    project.component(**former).require_valid()
    assert [text.split(": ", 1)[1] for text in notes.messages] == [
        f"write bounds.{name} instead of {name}, which the next version does not read" for name in places
    ]


def test_a_bound_is_not_declared_in_both_places(project: Project) -> None:
    with pytest.raises(ValueError, match=r"max_trips is written beside bounds\.max_trips"):
        project.component(**OF_USERS, max_trips=3, bounds__max_trips=3)


def test_estimate_is_a_preset_of_the_mechanism(project: Project, notes: pytest.LogCaptureFixture) -> None:
    """The plan of a release states it as an option of its mechanism, as in releases of version 0.1."""
    auto = project.component(estimate="auto").require_valid()
    assert notes.messages == []
    assert auto.mechanism.options["estimate"] == "auto"
    assert project.component(mechanism_options={"estimate": "auto"}).require_valid().mechanism == auto.mechanism
    plain = project.component(estimate="least_squares").require_valid()
    assert plain.mechanism == project.component().require_valid().mechanism


@pytest.mark.parametrize("options", [{"estimate": "shrunk"}, {"leaves": "empirical_bayes", "u": 2}], ids=str)
def test_a_rule_of_estimation_is_read_with_a_note(
    project: Project, notes: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    project.component(mechanism_options=options).require_valid()
    [note] = notes.messages
    assert f"instead of mechanism_options.{' and '.join(options)}, which the next version does not read" in note


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"estimate": "shrunk"}, "no estimate 'shrunk'"),
        ({"estimate": "auto", "mechanism_options": {"u": 2}}, r"declared beside mechanism_options\.u"),
        ({"estimate": "auto", "mechanism": "inftda"}, "estimate"),
    ],
    ids=str,
)
def test_a_wrong_estimate_is_refused(project: Project, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OdError, match=rf"OD-MECHANISM-OPTION.*{said}"):
        project.component(**changes).require_valid()
