"""Reserve the budget of a release in the entries of a ledger, and enter that a level is drawn."""

from __future__ import annotations

from collections.abc import Iterable

from od_core.errors import BudgetExceeded, OdError
from od_core.ledger.balance import charge_of, check_cap, in_full_of
from od_core.ledger.domain_entries import enter_domain, other_unit
from od_core.ledger.entries import DOMAIN, DRAWING, MEASURED, RESERVED, Entries, broken
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.same_series import is_reserved, refuse_moved_series, refuse_other_areas
from od_core.periods import Period
from od_core.privacy.cap import Charge
from od_core.privacy.domain import PrivacyDomain, charged_periods, unit_facts
from od_core.privacy.plan import Plan


def reserve(entries: Entries, key: ReleaseKey, domain: str, plan: Plan) -> None:
    """Reserve all levels of a release whose charges are checked; see :meth:`od_core.ledger.ledger.Ledger.reserve`."""
    if is_reserved(entries, key, domain, plan):
        return
    refuse_moved_series(entries, key, domain)
    refuse_other_areas(entries, key, plan)
    declared = entries.newest(DOMAIN, domain=domain)
    unit = unit_facts(plan.unit)
    if declared is None or {name: declared["content"].get(name) for name in unit} != unit:
        raise other_unit(domain)
    periods = charged_periods(Period(key.period), declared["content"]["elementary_period"], plan.unit.kind)
    check_cap(entries, domain, periods, plan.charge, in_full=plan.spent.every_period)
    facts = plan.facts()
    for step in plan.charged_steps:
        content = {"mechanism": facts["mechanism"], "periods": periods, **step.noise_facts, "plan": facts}
        entries.append(RESERVED, domain, key, level=step.number, draw=1, charge=step.charge, content=content)


def begin_draw(entries: Entries, key: ReleaseKey, level: int, noise: str | None = None) -> int:
    """Enter that a draw begins, and return its number; see :meth:`od_core.ledger.ledger.Ledger.start_draw`."""
    row = entries.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
    if row is None or row["kind"] == MEASURED:
        raise OdError(
            "OD-LEDGER-STATE",
            f"level {level} of {key} is {'not reserved' if row is None else 'already measured'}",
            next_step="run the whole release again",
        )
    draw = int(row["draw"])
    if row["kind"] == DRAWING:
        lost = entries.newest(RESERVED, release=str(key), level=level)
        if lost is None:
            raise broken()
        charge, content = charge_of(lost), lost["content"]
        check_cap(entries, row["domain"], content["periods"], charge, in_full=in_full_of(lost), lost_draw=True)
        draw += 1
        entries.append(RESERVED, row["domain"], key, level=level, draw=draw, charge=charge, content=content)
    entries.append(DRAWING, row["domain"], key, level=level, draw=draw, content={"noise": noise})
    return draw


def payable(entries: Entries, domain: PrivacyDomain, plan: Plan, periods: Iterable[Period]) -> int:
    """Return for how many periods the remaining cap pays, if each is released in turn with the budget of a plan.

    Args:
        entries: entries of a trial, to which the data set and the charges are added.
        domain: the data set, as it is declared now.
        plan: plan of one period.
        periods: periods of one series.

    Raises:
        OdError: the ledger would refuse the data set, or a period cannot be charged in it.
    """
    enter_domain(entries, domain)
    in_full, step, number = plan.spent.every_period, plan.uncounted_step, 0
    for period in periods:
        charged = charged_periods(period, domain.elementary_period, domain.unit.kind)
        try:
            check_cap(entries, domain.name, charged, plan.charge, in_full=in_full)
        except BudgetExceeded:
            continue
        number += 1
        if domain.unit.spans_periods:  # otherwise, periods have caps of their own
            content = {"periods": charged}
            own = plan.charge if step is None else Charge(rho=plan.charge.as_rho - in_full)
            entries.append(RESERVED, domain.name, draw=1, charge=own, content=content)
            if step is not None:
                facts = content | step.noise_facts
                entries.append(RESERVED, domain.name, draw=1, charge=step.charge, content=facts)
    return number
