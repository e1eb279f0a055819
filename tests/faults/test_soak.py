"""A hundred trials of the soak; that it finds defects; and what its models of a power cut keep."""

import json
import random

import pytest

from tests.faults import soak_shim
from tests.faults.soak import preloaded
from tests.faults.soak_models import Disk, kept_by_cut
from tests.faults.soak_shim import Operation
from tests.postgres import programs

KINDS = [*["stops", "group_sizes"] * 4, "flows", "parts"]
"""In turn: the small ones more often, since a trial of the others takes twice as long."""

compiled = pytest.mark.skipif(soak_shim.compiler() is None, reason="needs Linux and a C compiler")


@compiled
@pytest.mark.parametrize("trials", [(30, 25, 25), (8, 4, 8, "--server")], ids=["sqlite", "postgresql"])
def test_a_hundred_faults_damage_nothing_and_are_ended_by_running_again(trials):
    if "--server" in trials and programs() is None:
        pytest.skip("needs PostgreSQL (Debian: postgresql)")
    kills, errors, cuts, *server = map(str, trials)
    options = ["--kills", kills, "--errors", errors, "--cuts", cuts, *server, "--seed", "7", "--kinds", *KINDS]
    done = preloaded(["tests.faults.soak", *options], capture_output=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@compiled
def test_defects_are_found():
    """A draw under no charge, a measurement that is not synced, a public file written in place."""
    done = preloaded(["tests.faults.soak_planted"], capture_output=True)
    found = {(name, is_planted): lines for name, is_planted, lines in json.loads(done.stdout)}
    assert [lines for (_, is_planted), lines in found.items() if not is_planted] == [[], [], []], found
    assert "level 1 was drawn 2 times, and charged 1 times" in found["never_charged_again", True]
    assert any(line.startswith("running again does not end it") for line in found["never_synced", True]), found
    assert "damaged public file: r1.zip" in found["written_in_place", True]


RENAMED = [
    Operation(1, "CREATE", 5, 0, "a.tmp", "", b""),
    Operation(2, "WRITE", 5, 0, "a.tmp", "", b"x" * 5000),
    Operation(3, "SYNC", 5, 0, "a.tmp", "", b""),
    Operation(4, "RENAME", 0, 0, "a.tmp", "a", b""),
    Operation(5, "SYNC", 9, 0, "", "", b""),
]
"""A file that is written durably into the root."""


def left(folder, made, model) -> set[tuple[tuple[str, int, int], ...]]:
    """Every folder that a power cut leaves in forty tries: of each file its name, its length, and how much is data."""
    states = set()
    for seed in range(40):
        chance, disk = random.Random(seed), Disk(folder / "empty")  # noqa: S311  # each another
        disk.apply(kept_by_cut(made, chance, model))
        place = folder / f"{model} {seed}"
        disk.write(place, chance, model)
        files = sorted(path for path in place.rglob("*") if path.is_file())
        contents = [(str(path.relative_to(place)), path.read_bytes()) for path in files]
        states.add(tuple((name, len(content), content.count(b"x")) for name, content in contents))
    return states


WHOLE = (("a", 5000, 5000),)
PLACED = [
    Operation(1, "MKDIR", 0, 0, "new", "", b""),
    *(
        Operation(done.number + 1, done.kind, done.inode, 0, f"new/{done.path}".rstrip("/"), "new/a", done.data)
        for done in RENAMED
    ),
]
"""The same, in a new folder, whose own name is not synced."""


@pytest.mark.parametrize(
    ("made", "model", "expected"),
    [
        (RENAMED, "ordered", {WHOLE}),
        (RENAMED, "strict", {WHOLE}),
        (RENAMED[:4], "ordered", {WHOLE, (("a.tmp", 5000, 5000),)}),
        (RENAMED[:4], "strict", {(), WHOLE, (("a.tmp", 5000, 5000),), (*WHOLE, ("a.tmp", 5000, 5000))}),
        (RENAMED[:2], "ordered", {(), (("a.tmp", 0, 0),), (("a.tmp", 5000, 0),), (("a.tmp", 5000, 5000),)}),
        (PLACED, "ordered", {(("new/a", 5000, 5000),)}),
        (PLACED, "strict", {(), (("new/a", 5000, 5000),)}),
    ],
)
def test_a_power_cut_keeps_what_was_synced_and_any_of_the_rest(tmp_path, made, model, expected):
    (tmp_path / "empty").mkdir()
    assert left(tmp_path, made, model) == expected


def test_pages_that_were_not_synced_are_lost_by_themselves(tmp_path):
    """Either page, in the strict model; a file that has grown may be zeros, in the ordered one."""
    (tmp_path / "empty").mkdir()
    synced = [*RENAMED[:1], Operation(2, "SYNC", 9, 0, "", "", b""), RENAMED[1]]
    sizes = {(0, 0), (4096, 4096), (5000, 904), (5000, 5000)}
    assert {state[0][1:] for state in left(tmp_path, synced, "strict")} == sizes
