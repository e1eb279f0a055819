"""Rows that are refused: with a code and a next step, before anything is charged or written."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_core import Budget, Ledger, OdError, TopCodeEstimate, Uncounted
from od_core.meaning.features import refuse_unsupported
from tests.matrix.declared import MOST_UNCOUNTED, Records, domain_of, draw, keys_of, plan_of
from tests.matrix.made import fixed_noise
from tests.matrix.options import Row

ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "flows without a delta": ("flows", {"budget": Budget(epsilon=2)}),
    "counts without a delta": ("counts", {"budget": Budget(epsilon=2)}),
    "group sizes with a delta": ("group sizes", {"budget": Budget(epsilon=2, delta="1e-8")}),
    "group sizes in rho": ("group sizes", {"budget": Budget(rho="0.1", delta="1e-8")}),
    "boxes with a delta": ("boxes", {"budget": Budget(epsilon=2, delta="1e-8")}),
    "boxes in rho": ("boxes", {"budget": Budget(rho="0.1", delta="1e-8")}),
    "an estimated top code without a mechanism": ("group sizes", {"top_code": TopCodeEstimate(Fraction(1, 10), 40)}),
    "brackets without a mechanism": ("group sizes", {"top_code": None, "brackets": [1, 4]}),
    "brackets beside a top code": ("group sizes", {"brackets": [1, 4], "mechanism": "cumulative"}),
    "brackets of sorted sizes": ("group sizes", {"top_code": None, "brackets": [1, 4], "mechanism": "sizes"}),
    "measured numbers of groups without a mechanism": ("group sizes", {"groups_share": "1/4"}),
    "uncounted trips where all are counted": ("flows", {"uncounted": Uncounted("1/10", MOST_UNCOUNTED)}),
}
"""Arguments that no option of the rows has, each with the kind that refuses it in an otherwise usual row."""


COMBINATIONS = Path(__file__).with_name("combinations.tsv")
"""Combinations of features that are refused, each by one row of the product's table, also where no plan has them."""


def accepted_combinations() -> list[tuple[str, ...]]:
    """Return each kind and combination of features that ``combinations.tsv`` has, and that is not refused."""
    lines = (line.split("\t") for line in COMBINATIONS.read_text(encoding="utf-8").splitlines()[1:])
    accepted = []
    for kind, features in [(kind, features.split(" ")) for kinds, features in lines for kind in kinds.split(", ")]:
        try:
            refuse_unsupported(kind, {*features})
        except OdError:
            continue
        accepted.append((kind, *features))
    return accepted


def faults_of_refusal(row: Row, root: Path, **more: Any) -> Iterator[str]:
    """Yield what is wrong with the refusal of a row below an empty folder; nothing if it is refused as it should be.

    Its release is asked for with ``more`` arguments.
    """
    with fixed_noise():
        ledger = Ledger(root / "ledger.sqlite")
        try:
            ledger.declare(domain_of(row))
        except OdError as error:
            yield from _faults_of(error)
            return
        key, before = keys_of(row)[-1], (root / "ledger.sqlite").read_bytes()
        balance = ledger.balance(domain_of(row).name, key.period)
        try:
            if not more:
                plan_of(row)
            draw(row, key, ledger, Records(), **more)
        except OdError as error:
            yield from _faults_of(error)
        except Exception as error:  # noqa: BLE001  # any other error is the fault
            yield f"it ends with {type(error).__name__}: {error}"
        else:
            yield "it is not refused"
        if (
            ledger.balance(domain_of(row).name, key.period) != balance
            or (root / "ledger.sqlite").read_bytes() != before
        ):
            yield "something is charged, or entered in the ledger"
        if left := [path for path in root.rglob("*") if path.is_file() and path.name not in _OF_LEDGER]:
            yield f"files are written: {', '.join(path.name for path in left)}"


_OF_LEDGER = {"ledger.head", "ledger.sqlite", "release.lock", "hmac.key"}


def _faults_of(error: OdError) -> Iterator[str]:
    if not error.code.startswith("OD-") or "\n" in error.message:
        yield f"the error has no code, or more than one line: {error}"
    if not error.next_step:
        yield f"the error has no next step: {error}"
