"""What a notebook shows of objects: public texts alone, escaped, and of a release the numbers that it has."""

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import od_core
from od_core import Budget, FlowTree, Geography, Grid, OdError, PrivacyUnit, Trajectories, release_flows
from od_core.evaluation.metrics import Truth
from od_core.group_sizes.groups import GroupSizes
from od_core.records.counting import count_trips

MARKUP = "<b>&amp;</b>"
ZONES = pd.DataFrame(
    [(f"R{region}", f"{MARKUP}{region}", f"Z{region}{zone}") for region in range(3) for zone in range(12)],
    columns=["region", "region_name", "zone"],
)
GEOGRAPHY = Geography.from_frame(
    ZONES.drop(columns="region_name").assign(region_name=ZONES["region_name"]),
    levels=["region", "zone"],
    names={"region": "region_name"},
)
FLOWS = pd.DataFrame({"origin": ["Z00", "Z11", "Z00"], "destination": ["Z11", "Z22", "Z01"], "trips": [5_000, 40, 7]})
USUAL = {"unit": PrivacyUnit("trip"), "budget": Budget("1", "1e-8")}


def tables(shown: object) -> list[list[list[str]]]:
    """The texts of the cells of each table; it must be well-formed, without anything that loads or runs."""
    text = shown._repr_html_()  # type: ignore[attr-defined]
    found = ElementTree.fromstring(f"<p>{text}</p>")  # noqa: S314  # our own text
    allowed = {"p", "table", "caption", "thead", "tbody", "tr", "th", "td", "br", "small"}
    assert {each.tag for each in found.iter()} <= allowed
    assert {name for each in found.iter() for name in each.attrib} <= {"style", "scope", "aria-label"}
    return [[["|".join(cell.itertext()) for cell in row] for row in table.iter("tr")] for table in found.iter("table")]


def test_an_error_shows_no_confidential_detail() -> None:
    error = OdError("OD-SUM-NAMES", MARKUP, next_step="name it", confidential_detail="SECRET")
    told = [["Error", "OD-SUM-NAMES"], ["What", MARKUP], ["Budget", "nothing was spent"], ["Next step", "name it"]]
    assert tables(error) == [told]


@pytest.mark.parametrize("mechanism", ["inftda_refined", "stability_histogram"])
def test_a_release_shows_the_flows_of_a_coarse_level_and_what_it_cost(mechanism: str) -> None:
    release = release_flows(FLOWS, GEOGRAPHY, mechanism=mechanism, **USUAL)  # type: ignore[arg-type]
    summary, shown = tables(release)
    cost = "rho 0.019" if mechanism == "inftda_refined" else "epsilon"
    assert summary[-1][0] == "Cost"
    assert summary[-1][1].startswith(cost)
    assert summary[-1][1].endswith(" of the cap of its data set")
    has_ends = mechanism == "inftda_refined"
    flows = release.flows_at("region", "region", interval=has_ends).set_index(["origin", "destination"])
    names = {label: code for code, label in zip(GEOGRAPHY.codes[1], GEOGRAPHY.labels[1], strict=True)}
    assert len(shown) == 4 if has_ends else len(shown) <= 4
    for name, *cells in shown[1:]:
        for column, cell in zip(shown[0][1:], cells, strict=True):
            pair = names[name], names[column]
            if pair not in flows.index:
                assert cell == "0"
                continue
            row = flows.loc[pair]
            ends = f"|{row['lower']:,} to {row['upper']:,}" if has_ends else ""
            assert cell == f"{row['trips']:,}{ends}"
    flows = release.flows_at("region", "all").set_index("origin")["trips"]
    order = [int(flows.get(names[name], 0)) for name, *_ in shown[1:]]
    assert order == sorted(order, reverse=True)


def test_what_is_confidential_shows_nothing() -> None:
    """Neither the values of an object that holds records, nor their number; and every such class has its own text."""
    tree = FlowTree(GEOGRAPHY, GEOGRAPHY)
    counts = count_trips(FLOWS, tree)
    groups = GroupSizes(np.array([0]), np.array([3]), np.array([1]))
    points = Trajectories(np.array([[1, 2]], dtype=np.int32), Grid((4, 4)))
    held = [counts, Truth.from_counts(tree, counts), points, groups]
    for each in held:
        assert repr(each) == str(each) == f"{type(each).__name__}(confidential)"
        assert not hasattr(each, "_repr_html_")
    for path in Path(str(od_core.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = isinstance(node, ast.ClassDef) and " ".join((ast.get_docstring(node) or "").split())
            if isinstance(node, ast.ClassDef) and re.search("^Confidential|is confidential", said or ""):
                own = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__repr__"]
                made = [each for each in map(ast.unparse, node.decorator_list) if each.startswith("dataclass")]
                assert own or not made or "repr=False" in made[0], f"{path.name}: {node.name} would show its fields"
