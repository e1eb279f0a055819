"""The measures of other software's tables against loops over tiny tables, its programs, and what they are given."""

import os
import re
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers.contenders import CONTENDERS, FOLDER, ROOT
from benchmarks.peers.limited import run_limited
from benchmarks.peers.measures import Released, consistent_share, level_measures
from benchmarks.peers.user_level import USER_CONTENDERS, rows

EVERY = (*CONTENDERS, *USER_CONTENDERS.values())
PARENTS = np.array([0, 0, 1], dtype=np.int32)
ZONES = list(product(range(3), repeat=2))


@given(
    st.lists(st.integers(-2, 3), min_size=9, max_size=9),
    st.lists(st.integers(0, 3), min_size=9, max_size=9).filter(any),
    st.lists(st.integers(-2, 3), min_size=4, max_size=4),
)
def test_measures_are_those_of_a_loop(trips, true, above):
    listed = dict(zip(ZONES, trips, strict=True))
    tables = [np.array(above, dtype=float).reshape(2, 2), np.array(trips, dtype=float).reshape(3, 3)]
    found = level_measures(Released(tables[1], tables[1] - 1, tables[1] + 1), np.array(true, dtype=float).reshape(3, 3))
    pairs = list(zip(trips, true, strict=True))
    assert found["error"] == pytest.approx(sum(abs(a - b) for a, b in pairs) / sum(true))
    assert found["error_cut"] == pytest.approx(sum(abs(max(a, 0) - b) for a, b in pairs) / sum(true))
    assert found["largest"] == max(abs(a - b) for a, b in pairs)
    assert found["negative"] == pytest.approx(sum(a < 0 for a in trips) / 9)
    assert found["covered"] == pytest.approx(sum(abs(a - b) <= 1 for a, b in pairs) / 9)
    assert found["width"] == 2
    positive = [b for a, b in pairs if a > 0]
    assert found["false_discoveries"] == pytest.approx(
        sum(b == 0 for b in positive) / len(positive) if positive else np.nan, nan_ok=True
    )
    with_trips = [a for a, b in pairs if b > 0]
    assert found["false_negatives"] == pytest.approx(sum(a <= 0 for a in with_trips) / len(with_trips))
    same = used = 0
    for number, pair in enumerate(product(range(2), repeat=2)):
        within = [listed[zone] for zone in ZONES if (PARENTS[zone[0]], PARENTS[zone[1]]) == pair]
        if above[number] or any(within):
            used, same = used + 1, same + (sum(within) == above[number])
    share = same / used if used else np.nan
    assert consistent_share(tables, [PARENTS]) == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize(
    ("code", "limits", "fault"),
    [
        ("", {}, ""),
        ("raise ValueError('too few')", {}, "ValueError: too few"),
        ("import time; time.sleep(60)", {"most_seconds": 0.1}, "time"),
        ("import time; kept = b'1' * 10**8; time.sleep(60)", {"most_gigabytes": 0.05}, "memory"),
    ],
)
def test_a_program_is_ended_at_its_limits(code, limits, fault):
    assert run_limited([sys.executable, "-S", "-c", code], os.environ, **limits).fault == fault


def test_every_environment_is_made_by_the_makefile_from_packages_pinned_by_hash():
    names = {contender.environment for contender in EVERY if contender.environment is not None}
    (made,) = re.findall(r"^PEERS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(made.split()) == names
    pinned = re.compile(r"(?:[a-z0-9-]+(?:\[[a-z]+\])?==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n)+")
    for name in {*names, "building"}:
        assert pinned.fullmatch((FOLDER / "requirements" / f"{name}.txt").read_text(encoding="utf-8")), name


def test_a_small_panel_is_released_and_its_cut_is_stated():
    class Options:
        contender, case, epsilon, runs, data, small = ("ours_users_pairs",), ("panel", "taxis"), ("10",), 1, None, True

    (row,) = rows(Options)  # type: ignore[arg-type]
    assert (row["data_set"], row["example"], row["finished"]) == ("panel", "yes", "yes")
    assert len(row["cut"]) == len(row["error"]) == 3
    assert all(error > cut - 0.05 for error, cut in zip(row["error"], row["cut"], strict=True))
