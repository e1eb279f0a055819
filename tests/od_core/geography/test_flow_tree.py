"""The flow tree's arrays against the same tree as dictionaries, over two different geographies."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, OdError
from od_core.geography import flow_tree
from od_core.geography.flow_tree import Nodes, Pairs
from tests.od_core.oracles.inftda import Node
from tests.od_core.strategies import TREES, geography_of, worlds
from tests.od_core.truth import leaf_pairs


def test_levels_alternate_as_published():
    """(0,0), (0,1), (1,1), (1,2), ..., (g,g) for the destination tree; the origin tree is its mirror image."""
    geography = geography_of([("a", "b", "c")])
    destination, origin = FlowTree(geography, geography, "destination"), FlowTree(geography, geography, "origin")
    pairs = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)]
    assert destination.depth == origin.depth == 6
    assert [destination.level_pair(level) for level in range(7)] == pairs
    assert [origin.level_pair(level) for level in range(7)] == [(d, o) for o, d in pairs]
    assert [destination.refines_origin(level) for level in range(1, 7)] == [False, True] * 3
    assert [origin.refines_origin(level) for level in range(1, 7)] == [True, False] * 3
    first, second = "level_1", "level_2"
    assert destination.level_names[:4] == [("all", "all"), ("all", first), (first, first), (first, second)]
    assert origin.level_names[1] == ("level_1", "all")


@given(world=worlds(), order=st.sampled_from(TREES))
def test_children_parents_and_cells_of_every_public_node(world, order):
    tree, reference = world.trees(order)
    levels = reference.levels()
    assert tree.depth == reference.depth
    for level, nodes in enumerate(levels):
        assert tree.cells(level) == len(nodes)
        parents, public = world.nodes(tree, level, nodes), tree.list_public_nodes(level)
        assert public.level == level
        assert public.origin.tolist() == parents.origin.tolist()
        assert public.destination.tolist() == parents.destination.tolist()
        if level == tree.depth:
            break
        [families] = tree.expand(parents)
        children = families.children
        expected = world.nodes(tree, level + 1, levels[level + 1])
        assert children.level == level + 1
        assert children.origin.tolist() == expected.origin.tolist()
        assert children.destination.tolist() == expected.destination.tolist()
        assert np.diff(families.offsets).tolist() == [len(reference.children(node)) for node in nodes]
        back = tree.find_ancestors(children, level)
        assert back.level == level
        assert back.origin.tolist() == parents.origin.tolist()
        assert back.destination.tolist() == parents.destination.tolist()


@given(world=worlds(), order=st.sampled_from(TREES))
def test_ranks_and_leaf_pairs_of_every_public_node(world, order):
    """Against the leaf pairs listed depth first: a node's leaves are one run of them."""
    tree, reference = world.trees(order)
    rank = {leaf: k for k, leaf in enumerate(reference.leaves_below(((), ())))}
    expected, pairs = world.nodes(tree, tree.depth, [*rank]), tree.find_leaf_pairs(np.arange(len(rank))[::-1])
    assert pairs.level == tree.depth
    assert pairs.origin.tolist() == expected.origin.tolist()[::-1]
    assert pairs.destination.tolist() == expected.destination.tolist()[::-1]
    for level, public in enumerate(reference.levels()):
        nodes = world.nodes(tree, level, public)
        below = [[rank[leaf] for leaf in reference.leaves_below(node)] for node in public]
        assert tree.compute_first_ranks(nodes).tolist() == [ranks[0] for ranks in below]
        assert leaf_pairs(tree, nodes).tolist() == [len(ranks) for ranks in below]


@given(world=worlds(), order=st.sampled_from(TREES), data=st.data(), size=st.integers(1, 9))
def test_chunks_are_whole_parents_in_order_and_not_larger_than_need_be(world, order, data, size):
    """Every parent once; each chunk but the last is full to within its last parent."""
    tree, reference = world.trees(order)
    level = data.draw(st.integers(0, tree.depth - 1))
    public = reference.levels()[level]
    some = [node for node in public if data.draw(st.booleans())] if len(public) < 30 else public
    parents = world.nodes(tree, level, some)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_tree, "CHILDREN_AT_ONCE", size)
        chunks = list(tree.expand(parents))
    children = [node for parent in some for node in reference.children(parent)]
    for name in ("origin", "destination"):
        pieces = [getattr(chunk.children, name) for chunk in chunks]
        found = [value for piece in pieces for value in piece.tolist()]
        assert found == getattr(world.nodes(tree, level + 1, children), name).tolist()
    assert [chunk.first for chunk in chunks] == list(accumulate(map(len, chunks[:-1]), initial=0))[: len(chunks)]
    assert [trips for chunk in chunks for trips in parents.trips[chunk.parents].tolist()] == parents.trips.tolist()
    fan_outs = [len(reference.children(node)) for node in some]
    for chunk in chunks:
        assert chunk.level == level + 1
        assert 1 <= len(chunk) < size + max(fan_outs)
        kept = [at for at in range(len(chunk)) if data.draw(st.booleans())] if len(chunk) < 30 else [len(chunk) - 1]
        of_chunk = chunk.children
        selected = Pairs(level + 1, of_chunk.origin[kept], of_chunk.destination[kept])
        assert tree.find_positions(chunk, selected).tolist() == kept
    assert len(chunks) <= sum(fan_outs) / size + 1


@given(world=worlds(), order=st.sampled_from(TREES))
def test_sums_at_every_pair_of_levels(world, order):
    """By origin and then destination, pairs without trips left out."""
    tree, _ = world.trees(order)
    leaves = world.nodes(tree, tree.depth, list(world.flows), list(world.flows.values()))
    for o_level in range(tree.origin.depth + 1):
        for d_level in range(tree.origin.depth + 1):
            expected: dict[Node, int] = {}
            for (o, d), trips in world.flows.items():
                pair = o[:o_level], d[:d_level]
                expected[pair] = expected.get(pair, 0) + trips
            o_number, d_number = world.numbered(o_level, d_level)
            rows = sorted((o_number[o], d_number[d], trips) for (o, d), trips in expected.items() if trips)
            origin, destination, trips = (column.tolist() for column in tree.sum_trips(leaves, o_level, d_level))
            assert list(zip(origin, destination, trips, strict=True)) == rows


def test_ranks_beyond_32_bits():
    """A nation's sections: more leaf pairs than a 32-bit number counts."""
    zones = [(f"r{k // 1000}", f"z{k}") for k in range(60_000)]
    tree = FlowTree(geography_of(zones), geography_of(zones))
    ranks = np.array([0, 1, 999_999, 2**31 - 1, 2**31, 2**31 + 1, 3_599_999_999])
    assert tree.compute_first_ranks(tree.find_leaf_pairs(ranks)).tolist() == ranks.tolist()


def test_refuses_what_is_no_tree():
    deep = geography_of([("a", "b")])
    with pytest.raises(OdError, match=r"OD-TREE-UNKNOWN.*did you mean 'destination'"):
        FlowTree(deep, deep, "destinations")
    area = np.zeros(1, dtype=np.int32)
    with pytest.raises(OdError, match="OD-NODES-SHAPE"):
        Nodes(0, area, area, np.ones(2, dtype=np.int64))
