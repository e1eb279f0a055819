"""The tables of mutants fit the code and the tests as they are now, so that a change that moves code moves them too."""

from tests.mutants import ROOT, listed


def test_each_defect_can_be_planted_and_names_tests_that_exist():
    mutants = listed()
    planted = [str(mutant) for mutant in mutants if (ROOT / mutant.file).read_text().count(mutant.old) != 1]
    named = {test.split("[")[0] for mutant in mutants for test in mutant.tests}
    absent = [name for name in named if f"def {name.split('::')[-1]}(" not in (ROOT / name.split("::")[0]).read_text()]
    assert (planted, absent) == ([], [])
    assert len(mutants) >= 200
    assert all(mutant.tests and mutant.old != mutant.new for mutant in mutants)
