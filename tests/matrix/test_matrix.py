"""Every valid pair of options, from the plan to the site: each row has its known findings, and no others."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.matrix.declared import refusal
from tests.matrix.findings import known_findings, known_of, signature
from tests.matrix.options import Row, all_combinations, covering_rows, held, name_of, stored_rows, usual
from tests.matrix.refused import faults_of_refusal
from tests.matrix.run import run

VALID, REFUSED = stored_rows(refused=False), stored_rows(refused=True)


@pytest.mark.parametrize("name", VALID)
def test_a_row_has_its_known_findings_and_no_others(name: str, tmp_path: Path) -> None:
    """A finding that is not known is a defect; a known one that is gone leaves the list."""
    found = run(VALID[name], tmp_path)[2]
    signatures = {signature(check, each): each for check, some in found.items() for each in some}
    known = known_of(name)
    new = [f"{one[0]}: {each}" for one, each in signatures.items() if one not in known]
    assert not new, "\n".join(new)
    gone = known - signatures.keys()
    assert not gone, "take out of known.tsv, by python -m tests.matrix --known:\n" + "\n".join(map(str, sorted(gone)))


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_row_is_refused_before_anything_is_charged(name: str, tmp_path: Path) -> None:
    assert [*faults_of_refusal(REFUSED[name], tmp_path)] == []


def test_the_rows_hold_every_valid_pair() -> None:
    """A pair that no row has is that of a refused row."""
    missing = dict.fromkeys(all_combinations(2))
    for row in VALID.values():
        for pair in held(row, missing):
            del missing[pair]
    assert [pair for pair in missing if usual(pair) not in REFUSED.values()] == []
    assert [name for name, row in VALID.items() if refusal(row) is not None] == []
    assert [name for name, row in REFUSED.items() if refusal(row) is None] == []


def test_every_known_finding_has_rows_and_a_reason() -> None:
    numbers = {name.partition("-")[0] for name in VALID}
    assert [one for one, (rows, why) in known_findings().items() if not rows or not rows <= numbers or not why] == []


@pytest.mark.slow
def test_rows_of_triples_have_no_findings_of_another_kind(pytestconfig: pytest.Config) -> None:
    """Rows that hold triples of values, drawn anew at every run: what is found there is known of some row."""
    seed = (pytestconfig.cache and pytestconfig.cache.get("matrix/seed", 1)) or 1
    known, new = {*known_findings()}, list[str]()
    triples = [*all_combinations(3)]
    rows = covering_rows(is_valid, triples[seed % 97 :: 97], seed=seed)[0]
    for number, row in enumerate(rows):
        with tempfile.TemporaryDirectory() as folder:
            found = run(row, Path(folder))[2]
        signatures = {signature(check, each): each for check, some in found.items() for each in some}
        new += [f"{name_of(number, row)} {row}: {each}" for one, each in signatures.items() if one not in known]
    assert not new, "\n".join(new)


def is_valid(row: Row) -> bool:
    """Return whether the plan of a row is not refused."""
    return refusal(row) is None
