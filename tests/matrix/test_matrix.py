"""Every valid pair of options, from the plan to the site: each row has its known findings, and no others."""

import pytest

from tests.matrix import checks_sources
from tests.matrix.declared import refusal
from tests.matrix.findings import Finding, Signature, known_findings, known_of
from tests.matrix.options import all_combinations, held, stored_rows, usual
from tests.matrix.refused import ARGUMENTS, accepted_combinations, faults_of_refusal
from tests.matrix.run import run, run_on_sources, signed

VALID, REFUSED = stored_rows(refused=False), stored_rows(refused=True)


@pytest.mark.parametrize("name", VALID)
def test_a_row_has_its_known_findings_and_no_others(name, tmp_path):
    """A finding that is not known is a defect; a known one that is gone leaves the list."""
    assert_known(name, signed(run(VALID[name], tmp_path)[2]))


def test_templates_and_pages_have_their_known_findings_and_no_others():
    assert_known(checks_sources.ROW, signed(run_on_sources()))


def assert_known(row: str, found: dict[Signature, Finding]) -> None:
    known = known_of(row)
    new = [f"{one[0]}: {each}" for one, each in found.items() if one not in known]
    assert not new, "\n".join(new)
    gone = sorted(known - found.keys())
    assert not gone, "take out of known.tsv, by python -m tests.matrix --known:\n" + "\n".join(map(str, gone))


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_row_is_refused_before_anything_is_charged(name, tmp_path):
    assert [*faults_of_refusal(REFUSED[name], tmp_path)] == []


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_is_refused_before_anything_is_charged(name, tmp_path):
    kind, more = ARGUMENTS[name]
    assert [*faults_of_refusal(usual(frozenset({("kind", kind)})), tmp_path, **more)] == []


def test_combinations_of_features_are_refused():
    """A row that the table of what is supported has lost is seen here, also if no plan of a row has its features."""
    assert accepted_combinations() == []


def test_the_rows_hold_every_valid_pair():
    """A pair that no row has is that of a refused row."""
    missing = dict.fromkeys(all_combinations(2))
    for row in VALID.values():
        for pair in held(row, missing):
            del missing[pair]
    assert [pair for pair in missing if usual(pair) not in REFUSED.values()] == []
    assert [name for name, row in VALID.items() if refusal(row) is not None] == []
    assert [name for name, row in REFUSED.items() if refusal(row) is None] == []


def test_every_known_finding_has_rows_and_a_reason():
    numbers = {name.partition("-")[0] for name in (*VALID, checks_sources.ROW)}
    assert [one for one, (rows, why) in known_findings().items() if not rows or not rows <= numbers or not why] == []
