"""Give the examples in the library's docstrings the names of the tour in ``od_core``."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

import od_core


@pytest.fixture(scope="session")
def names_beside_the_tour(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The public names of the library, an empty folder, and the places of a published release."""
    from tests.od_core.publication.published_kinds import EXAMPLES, publish_examples

    made = publish_examples(tmp_path_factory.mktemp("examples"), {"flows": EXAMPLES["flows"]})
    published = made["flows"].place
    names = {name: getattr(od_core, name) for name in od_core.__all__}
    return names | {"published": published, "bundle": published.bundle, "folder": tmp_path_factory.mktemp("tour")}


@pytest.fixture(scope="session")
def names_of_the_tour(names_beside_the_tour: dict[str, Any]) -> dict[str, Any]:
    """The names that the tour makes, which runs once, and those beside it."""
    names = dict(names_beside_the_tour)
    for example in doctest.DocTestParser().get_examples(od_core.__doc__ or ""):
        exec(compile(example.source, "tour", "single", dont_inherit=True), names)  # noqa: S102  # of our own docstring
    return names


@pytest.fixture(autouse=True)
def names_of_an_example(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Give an example the names of the tour. The tour itself has none, so that it can be pasted."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    doctest_namespace.clear()
    if request.node.name != "od_core":
        doctest_namespace.update(request.getfixturevalue("names_of_the_tour"))
