"""Rows that are refused: with a code and a next step, before anything is charged or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from od_core import Ledger, OdError
from tests.matrix.declared import Records, domain_of, draw, keys_of, plan_of
from tests.matrix.made import fixed_noise
from tests.matrix.options import Row


def faults_of_refusal(row: Row, root: Path) -> Iterator[str]:
    """Yield what is wrong with the refusal of a row below an empty folder; nothing if it is refused as it should be."""
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
            plan_of(row)
            draw(row, key, ledger, Records())
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
