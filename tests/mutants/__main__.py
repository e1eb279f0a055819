"""Try every mutant in a copy of the checkout, and fail unless its tests find it.

python -m tests.mutants --only privacy      # of files or tests whose name has this text
python -m tests.mutants --find --only privacy      # search the nearest tests instead of those listed
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import Copy, Mutant, Outcome, listed, nearest


def main() -> int:
    """Print each outcome, and return 0 if all mutants are caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Try the mutants of the product.")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose file or tests contain it")
    parser.add_argument("--workers", type=int, default=1, help="copies in which mutants are tried at once")
    parser.add_argument("--find", action="store_true", help="run the nearest test files instead of the listed tests")
    given = parser.parse_args()
    mutants, begun = listed(given.only), time.perf_counter()
    if not mutants:
        parser.error(f"no mutant has {given.only!r} in its file or its tests")  # pytest would run all tests
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        Path(folder).chmod(0o711)  # for tests that give up the rights of root
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(given.workers):
            place = Path(folder) / str(number)
            place.mkdir()
            copies.put(Copy(place))

        def tried(mutant):
            copy = copies.get()
            try:
                return copy.outcome(mutant, nearest(mutant) if given.find else mutant.tests)
            finally:
                copies.put(copy)

        if not given.find and (said := _failing(copies, mutants)):
            print(f"Some tests fail without any mutant:\n{said}")
            return 1
        with ThreadPoolExecutor(given.workers) as pool:
            outcomes = [_printed(outcome) for outcome in pool.map(tried, mutants)]
    states = Counter(outcome.state for outcome in outcomes)
    print(f"{len(outcomes)} mutants in {time.perf_counter() - begun:.0f} s: {dict(states)}")
    return 0 if all(outcome.is_caught for outcome in outcomes) else 1


def _failing(copies: SimpleQueue[Copy], mutants: list[Mutant]) -> str:
    """Return what is said of the tests that fail without a mutant: they would seem to find every mutant."""
    copy = copies.get()
    copies.put(copy)
    return copy.failing(sorted({test for mutant in mutants for test in mutant.tests}))


def _printed(outcome: Outcome) -> Outcome:
    print(f"{outcome.state:9} {outcome.seconds:5.0f} s  {outcome.mutant}  {outcome.test}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
