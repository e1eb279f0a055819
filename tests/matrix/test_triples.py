"""Some triples of options, others at every run, from the plan to the site."""

import random
import tempfile
from pathlib import Path

from tests.matrix.declared import refusal
from tests.matrix.findings import known_findings
from tests.matrix.options import Row, all_combinations, covering_rows, name_of
from tests.matrix.run import run, signed


def test_rows_of_triples_have_no_findings_of_another_kind():
    """Rows that hold some triples of values, others at every run: what is found there is known, if of another page."""
    seed = random.SystemRandom().randrange(10**6)
    known, new = {(check, what) for check, _, what in known_findings()}, list[str]()
    for number, row in enumerate(covering_rows(is_valid, [*all_combinations(3)][seed % 199 :: 199], seed=seed)[0]):
        with tempfile.TemporaryDirectory() as folder:
            found = signed(run(row, Path(folder))[2])
        new += [f"seed {seed}, {name_of(number, row)} {row}: {one}" for one in found if (one[0], one[2]) not in known]
    assert not new, "\n".join(new)


def is_valid(row: Row) -> bool:
    """Return whether the plan of a row is not refused."""
    return refusal(row) is None
