"""The comparison of two states: each runs its own code, and what got slower is named."""

import subprocess

import pytest

from benchmarks.performance import measured, slower, state_at

COUNTS = "month, counts"
COMMAND = """\
from pathlib import Path

import od_core

(Path(od_core.__file__).parents[1] / "data" / "records.csv").read_text()
for _ in range(CALLS):
    od_core.work()
"""


@pytest.fixture
def states(tmp_path):
    """Unpacked commits of a tiny project whose command enters 20, 22, 23 functions; the last lacks the command."""
    root = tmp_path / "project"
    texts = {
        "pyproject.toml": "",
        "data/records.csv": "",
        "od_core/__init__.py": "def work():\n    pass\n",
        "od_assets/__init__.py": "",
    }

    def committed(name, text):
        for path, content in {**texts, name: text}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        for command in (["init", "-q"], ["add", *texts, name], [*author, "commit", "-q", "-m", "a state"]):
            arguments = ["git", *command]
            subprocess.run(arguments, cwd=root, check=True)
        return state_at("HEAD", root)

    # Of the calls, two are those of the modules.
    found = [committed("od_assets/cli.py", COMMAND.replace("CALLS", str(calls))) for calls in (18, 20, 21)]
    return [*found, committed("od_assets/cli.py", "raise SystemExit('no such command')\n")]


def test_each_state_runs_its_own_code_and_what_is_slower_by_more_than_a_tenth_is_named(states, tmp_path):
    before, tenth, more, _ = states
    assert measured(COUNTS, tenth, before, tmp_path, pairs=1) == [
        {"case": COUNTS, "quantity": "calls", "this_state": 22, "tagged_state": 20, "ratio": 1.1},
        {"case": COUNTS, "quantity": "opens", "this_state": 1, "tagged_state": 1, "ratio": 1},
    ]
    rows = [row for this in (tenth, more) for row in measured(COUNTS, this, before, tmp_path, pairs=1)]
    assert slower(rows) == [f"{COUNTS}, calls: 1.15 times"]
    assert slower(measured(COUNTS, before, more, tmp_path, pairs=1)) == []
