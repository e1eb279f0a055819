"""The benchmark at full numbers of groups: plain averages and the omniscient line by other means, error by size."""

from fractions import Fraction

import numpy as np

from benchmarks.count_of_counts import Plain
from tests.od_core.group_sizes.test_mechanisms import children_of, noisy_values, random_world
from tests.od_core.oracles import group_sizes as oracle


def test_plain_averages_are_those_of_the_oracle_group_by_group():
    """Rounded sizes; an average counts as one estimate, so the weights of its parts are halved at each level."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        world = random_world(rng)
        frame, geography = world.frame, world.frame.geography
        plain = Plain(tuple(rng.choice(["cumulative", "sizes"], geography.depth).tolist()))
        noisy = noisy_values(world, plain, rng, p=0.4)
        groups = {}
        for level, query, values in zip(frame.levels, plain.list_level_queries(geography.depth), noisy, strict=True):
            totals = frame.count_groups(level).tolist()
            ends = np.cumsum([0, *totals]).tolist()
            variance = Fraction(1, 2 ** max(level - 2, 0))
            for area, (code, total) in enumerate(zip(geography.codes[level], totals, strict=True)):
                own, power = (values[ends[area] : ends[area + 1]], 2) if query == "sizes" else (values[area], 1)
                found = oracle.groups_of(query, own.tolist(), total, frame.top_code, Fraction(1), power)
                groups[f"{level} {code}"] = [(Fraction(oracle.half_up(size)), variance) for size, _ in found]
        merged = oracle.merged(children_of(geography), [f"1 {code}" for code in geography.codes[1]], groups)
        leaves = [merged[f"{geography.depth} {code}"] for code in geography.zones]
        expected = [oracle.leaf_histogram(own, frame.top_code) for own in leaves]
        assert plain.estimate(frame, noisy, Fraction(1))[-1].tolist() == expected
