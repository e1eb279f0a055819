"""Tests of the preset ``estimate``."""

from typing import Any

import pytest

from od_core import OdError
from tests.od_assets.conftest import Project


def test_estimate_is_a_preset_of_the_mechanism(project: Project) -> None:
    """The plan of a release states it as an option of its mechanism, as in releases of version 0.1."""
    assert project.component(estimate="auto").require_valid().mechanism.options["estimate"] == "auto"
    plain = project.component(estimate="least_squares").require_valid()
    assert plain.mechanism == project.component().require_valid().mechanism


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"estimate": "shrunk"}, "no estimate 'shrunk'"),
        ({"mechanism_options": {"estimate": "auto"}}, r"mechanism_options\.estimate is not declared"),
        ({"mechanism_options": {"u": 2, "leaves": "empirical_bayes"}}, r"mechanism_options\.leaves is not declared"),
        ({"estimate": "auto", "mechanism": "inftda"}, "estimate"),
    ],
    ids=str,
)
def test_a_wrong_estimate_is_refused(project: Project, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OdError, match=rf"OD-MECHANISM-OPTION.*{said}"):
        project.component(**changes).require_valid()
