"""What runs in a process of its own, which shares nothing but the files."""

from fractions import Fraction
from multiprocessing.synchronize import Barrier
from pathlib import Path

from od_core import OdError, ReleaseKey
from tests.od_core.ledger.ledger_rows import ledger_at, small_plan


def reserve_at_once(start: Barrier, path: Path, revisions: range) -> list[str]:
    """Try to set one release after another aside; 'won', or the code of the refusal, for each."""
    ledger = ledger_at(path)
    plan = small_plan(Fraction(1, 10))
    start.wait()
    results = []
    for revision in revisions:
        try:
            ledger.reserve(ReleaseKey("commuters", "2001-06", revision), "commuters", plan)
            results.append("won")
        except OdError as error:
            results.append(error.code)
    return results
