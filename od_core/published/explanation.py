"""Explain a published release: what it protected and spent, what an attacker learns, and which decisions mattered.

Only the public bundle is read and, if it is at hand, the ledger. No record is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.ledger.balance import Balance
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import float_above, text_above, text_below
from od_core.published.alternatives import Alternative, alternatives, present
from od_core.published.disclosure.facts import Facts
from od_core.published.disclosure.wording import promise_text
from od_core.published.kinds import bundle_kind_of
from od_core.published.opening import bundle_folder

PRIORS = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
"""Beliefs of an attacker before the release for which bounds are stated."""

UNITS = {"trip": (1, 2, 5, 10, 40), "user": (1, 2), "user_period": (1, 2), "user_year": (1, 2)}
"""Numbers of units of one person, by kind of unit, for which bounds are stated."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """A published release, explained.

    Attributes:
        facts: the public facts.
        balance: cap, spent and remaining rho of the elementary period with the least remaining rho; None if the ledger
            is not at hand.
        chosen: the release as it was planned; None for a derived release.
        others: other choices and their costs; empty for a derived release.
    """

    facts: Facts
    balance: Balance | None
    chosen: Alternative | None
    others: Sequence[Alternative]

    @property
    def protected(self) -> str:
        """What was protected, in the words of the certificate, and the promise."""
        return f"{self.facts.sentence('protected')} The promise of this release is {promise_text(self.facts)}."

    @property
    def spent(self) -> str:
        """What was spent, and what is left of the cap."""
        stated = self.facts.certificate["spent"]
        if self.facts.is_derived:
            said = "Nothing was charged: it follows from published releases, which spent rho"
            said = f"{said} {text_above(Fraction(stated['rho_exact']))} together."
        else:
            draws = stated["lost_draws"]
            lost = f", including {draws} lost draw{'s' * (draws > 1)}" if draws else ""
            rho = text_above(Fraction(stated["rho_exact"]))
            said = (
                f"It cost rho {rho}{lost} for a user with all counted trips of the period; its year was charged at most"
                " that, because the trips of a user in a year are bounded."
                if self.facts.unit == "user_year"
                else f"It charged rho {rho}{lost}."
            )
        if self.balance is None:
            return f"{said} The ledger is not at hand, and the certificate does not state what is left of the cap."
        cap, left, number = self.balance.cap, self.balance.left, self.balance.releases
        spent = text_above(self.balance.spent)
        return (
            f"{said} The cap of data set {self.balance.domain} in period {self.balance.period} is rho"
            f" {text_above(cap)}. {number} release{'s' * (number != 1)} spent {spent} of it, and"
            f" {text_below(left)} is left."
        )

    @property
    def statement(self) -> str:
        """What the bounds on beliefs mean, and what they assume."""
        odds = self.facts.guarantee.odds
        if odds is None:
            return "Epsilon is so large that the release promises nothing about beliefs."
        rare = (
            f" It holds but for outcomes of the noise that have probability {text_above(float(odds[1]))} in all,"
            " whichever case is true."
            if odds[1]
            else " It holds for every outcome."
        )
        return (
            "An attacker compares two cases that differ in one unit. By this release alone, the odds of a case grow by"
            " at most the factor"
            f" {text_above(odds[0])}.{rare} The bounds hold for an attacker who knows all other records. They hold as"
            " well for one who knows any k of them, if what the attacker believes about the others does not depend on"
            " which case is true."
        )

    def losses(self) -> list[dict[str, Any]]:
        """Return what everything that may be published about a unit promises, and then less, down to this release."""
        return [
            {
                "of": one.of,
                "epsilon": float_above(one.guarantee.epsilon),
                "delta": float_above(one.guarantee.delta),
                "best_guess_after": float_above(one.guarantee.best_guess()),
            }
            for one in self.facts.losses
        ]

    def beliefs(self) -> list[dict[str, float]]:
        """Return, for each prior, the least and the largest posterior, and how often the best guess is right."""
        rows = []
        for prior in PRIORS:
            low, high = self.facts.guarantee.posterior(prior)
            rows.append(
                {
                    "prior": float(prior),
                    "posterior_at_least": _below(low),
                    "posterior_at_most": float_above(high),
                    "best_guess_before": float(max(prior, 1 - prior)),
                    "best_guess_after": float_above(self.facts.guarantee.best_guess(prior)),
                }
            )
        return rows

    def persons(self) -> list[dict[str, float | None]]:
        """Return the promise, and how often a guess between two equally likely cases is right, for several units."""
        rows: list[dict[str, float | None]] = []
        for units in UNITS[self.facts.unit]:
            of_all = self.facts.guarantee.of_units(units)
            rows.append(
                {
                    "units": units,
                    "epsilon": None if of_all is None else float_above(of_all.epsilon),
                    "delta": None if of_all is None else float_above(of_all.delta),
                    "best_guess_after": 1.0 if of_all is None else float_above(of_all.best_guess()),
                }
            )
        return rows

    def to_facts(self) -> dict[str, Any]:
        """Return the whole explanation as a JSON-ready dictionary."""
        guarantee, odds = self.facts.guarantee, self.facts.guarantee.odds
        balance = None
        if self.balance is not None:
            amounts = {"cap": self.balance.cap, "spent": self.balance.spent, "left": self.balance.left}
            balance = {
                "data_set": self.balance.domain,
                "period": self.balance.period,
                **{name: str(rho) for name, rho in amounts.items()},
                "releases": self.balance.releases,
            }
        return {
            "release": str(self.facts.key),
            "certificate": self.facts.digest,
            "protected": {
                "sentence": self.protected,
                "unit": self.facts.unit,
                "neighbours": self.facts.certificate["neighbours"],
                "contribution_bound": self.facts.bound,
                "epsilon": float_above(guarantee.epsilon),
                "delta": float_above(guarantee.delta),
            },
            "spent": {"sentence": self.spent, "rho": self.facts.certificate["spent"]["rho_exact"], "cap": balance},
            "attacker": {
                "losses": self.losses(),
                "statement": self.statement,
                "odds_factor": None if odds is None else float_above(odds[0]),
                "odds_factor_fails_with_probability": None if odds is None else float_above(odds[1]),
                "beliefs": self.beliefs(),
                "persons": self.persons(),
            },
            "decisions": {
                "as_released": None if self.chosen is None else self.chosen.facts(),
                "alternatives": [other.facts() for other in self.others],
                "of_releases": [source["release"] for source in self.facts.sources],
            },
        }


def explain_release(bundle: str | Path, ledger: Ledger | None = None) -> Explanation:
    """Explain a published release of any kind.

    Args:
        bundle: its folder or .zip file.
        ledger: the ledger that was charged, if it is at hand. A ledger that has another release, or none, is not used.

    Raises:
        OdError: the bundle does not exist, is damaged or incomplete, or contradicts its certificate.
    """
    with bundle_folder(Path(bundle)) as folder:
        facts = Facts.of(folder)
        if facts.is_derived:
            return Explanation(facts, _balance(facts, ledger), None, ())
        plan = bundle_kind_of(facts.certificate).open(folder).plan
    lost = facts.certificate["spent"]["lost_draws"]
    return Explanation(facts, _balance(facts, ledger), present(plan, lost), alternatives(plan))


def _balance(facts: Facts, ledger: Ledger | None) -> Balance | None:
    """Return the balance with the least remaining rho; None if the ledger is not that of the release."""
    if ledger is None:
        return None
    own = [(facts.key, facts.certificate.get("ledger"))]
    named = [(ReleaseKey.parse(source["release"]), None) for source in facts.sources] or own
    try:
        for key, stated in named:
            entry = ledger.record(key).entry
            if stated is not None and (entry.number, entry.hash) != (stated["entry"], stated["hash"]):
                return None
        found = [ledger.balance(facts.certificate["data_set"], key.period) for key, _ in named]
    except OdError:  # it is the ledger of another project
        return None
    return min(found, key=lambda balance: balance.left)


def _below(value: Fraction) -> float:
    """Return the largest float that is at most a probability."""
    return max(0.0, 1 - float_above(1 - value)) if value else 0.0
