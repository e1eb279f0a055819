"""Collect the facts that disclosure documents state. Their words are in ``publication/templates/disclosure``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from od_core.errors import OdError
from od_core.files.durable import file_digest
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.privacy.accounting import promise_text
from od_core.privacy.budget import Cap
from od_core.privacy.domain import largest_rho, most_in_a_year
from od_core.privacy.neighbours import SPANS
from od_core.privacy.plan import is_of_uncounted
from od_core.privacy.posterior import Guarantee
from od_core.privacy.stability import laplace_reach
from od_core.publication.bundle import CERTIFICATE, CHECKSUMS, PACKAGE, stated_digests
from od_core.publication.certificate import Certificate, StatedSource
from od_core.publication.guarantee import TRIPS_OF_A_PERSON
from od_core.publication.read_back import REPAIR, certificate_of, damaged, named, refuse_incomplete
from od_core.publication.templates import filled_data, sentence
from od_core.published.opening import bundle_kind_of, derived_kind_of

TO_COMPLETE = "To be completed by the organisation"
"""Text of a field that only the organisation which publishes a release can fill in."""

DETAILED = ("leaves", "boxes")
"""Names of the noise scales of published boxes, in the plans of trips with stops that know them beforehand."""

_REACH = NormalDist().inv_cdf(0.95)
"""Half of the width, in standard deviations, of the range that has 90 % of a normal distribution."""


@dataclass(frozen=True, eq=False)
class Facts:
    """The public facts on one published release.

    Attributes:
        files: name, description, SHA-256 and more of each file, as the data package states them.
        losses: what is promised for one privacy unit: by everything that may be published about it first, and by this
            release last; see :func:`losses_of`.
    """

    key: ReleaseKey
    certificate: Certificate
    files: tuple[dict[str, Any], ...]
    losses: tuple[Loss, ...]

    @classmethod
    def of(cls, folder: Path) -> Facts:
        """Return the facts on the release in a bundle's folder.

        Raises:
            OdError: the certificate or the data package is missing, cannot be read, does not match its checksum, or
                lacks a fact; or the certificate is of an unknown kind.
        """
        certificate = certificate_of(folder)
        key = ReleaseKey.parse(certificate["release"])
        stated = stated_digests(folder)
        for name in (CERTIFICATE, PACKAGE):
            if not (folder / name).is_file() or file_digest(folder / name) != stated.get(name):
                raise damaged(key, f"{name} is missing or does not match {CHECKSUMS}")
        bundle_kind_of(certificate)  # refuses an unknown kind
        try:
            with refuse_incomplete(named(folder)):
                package = json.loads((folder / PACKAGE).read_text(encoding="utf-8"))
                return cls(key, certificate, tuple(package["resources"]), losses_of(certificate))
        except (ValueError, TypeError, ZeroDivisionError):
            raise OdError(
                "OD-BUNDLE-CHANGED",
                f"the certificate of {key} states numbers that are none",
                next_step=REPAIR,
            ) from None

    @property
    def guarantee(self) -> Guarantee:
        """Promise of this release alone for one privacy unit."""
        return self.losses[-1].guarantee

    @property
    def whole(self) -> Guarantee:
        """Promise of everything that may be published about one privacy unit, as far as the certificate states it."""
        return self.losses[0].guarantee

    @property
    def is_derived(self) -> bool:
        """True if the release follows from other releases, and nothing was measured for it."""
        return derived_kind_of(self.certificate) is not None

    @property
    def contents(self) -> str:
        """What the release has, such as ``flows``."""
        return bundle_kind_of(self.certificate).contents

    @property
    def derivation(self) -> str:
        """How a derived release follows from others, such as ``sums of``; empty for another one."""
        derived = derived_kind_of(self.certificate)
        return "" if derived is None else derived.what

    @property
    def sources(self) -> list[StatedSource]:
        """The releases that a derived release follows from, as its certificate states them; else an empty list."""
        return self.certificate.get("sources", [])

    @property
    def plan(self) -> dict[str, Any]:
        """The plan; empty for a derived release."""
        plan: dict[str, Any] = self.certificate.get("plan", {})
        return plan

    @property
    def units(self) -> int | None:
        """The number of privacy units if it is published, perhaps with noise; None if it is not, as for users."""
        trips = self.certificate["contents"].get("trips")
        return int(trips) if self.certificate["unit"] == "trip" and trips is not None else None

    @property
    def rho(self) -> Fraction | None:
        """Rho of the first loss; None if it holds aside from some outcomes, or is not what derived flows promise."""
        return None if (self.is_derived and "account" not in self.certificate) or self.whole.aside else self.whole.rho

    @property
    def has_threshold(self) -> bool:
        """True if only pairs with trips are measured, and pairs with a noisy count below a threshold are dropped."""
        return any("threshold" in step for step in self.plan.get("steps", []))

    @property
    def reach(self) -> int | None:
        """Number that the noise of one measured number of the most detailed level exceeds at most 1 time in 10.

        None for a derived release, because nothing was measured for it, and for boxes whose noise is known only after
        they are drawn.
        """
        if self.is_derived:
            return None
        step = [one for one in self.plan["steps"] if "breakdown" not in one and not is_of_uncounted(one)][-1]
        if "variance" in step:
            return math.ceil(_REACH * math.sqrt(Fraction(step["variance"])))
        found = (step.get(name) for name in ("scale", *(f"scale_of_{name}" for name in DETAILED)))
        scale = next(filter(None, found), None)
        return None if scale is None else laplace_reach(Fraction(scale))

    @property
    def person(self) -> Guarantee | None:
        """The guarantee for a person with ``TRIPS_OF_A_PERSON`` trips under unit ``trip``; None if it is no promise."""
        return self.guarantee.of_units(TRIPS_OF_A_PERSON)

    @property
    def guess_of_person(self) -> int:
        """In how many of 100 cases the best guess about all trips of such a person is right, at most."""
        return 100 if self.person is None else of_100(self.person.best_guess())

    @cached_property
    def said(self) -> dict[str, str]:
        """The sentences that several documents state, by name."""
        given = {"facts": self, "certificate": self.certificate, "spans": SPANS, "trips_of_a_person": TRIPS_OF_A_PERSON}
        return dict(filled_data("disclosure/sentences.yaml", **given))

    def sentence(self, name: str) -> str:
        """Return a sentence of the certificate's guarantee, with a capital letter and a full stop; or an empty text."""
        return sentence(str(self.certificate["guarantee"].get(name, "")))


def guarantee_of(certificate: Certificate) -> Guarantee:
    """Return the promise of a certificate for one privacy unit.

    That of derived flows is for all their releases together under units ``user`` and ``user_year``. Under other units,
    it is that of the release with the weakest promise, because the records of one unit are of one period.
    """
    spent = certificate["spent"]
    if "sources" in certificate:
        name: Literal["all_periods", "one_period"] = "one_period"
        if certificate["unit"] in ("user", "user_year"):
            name = "all_periods"
        loss = certificate.get("privacy_loss", {}).get(name, {})
        rho, variances = loss.get("rho_exact"), loss.get("variances")
        return Guarantee(
            Fraction(spent[name]["epsilon"]),
            Fraction(spent[name]["delta"]),
            None if rho is None else Fraction(rho),
            None if variances is None else tuple(map(Fraction, variances)),
        )
    steps = certificate["plan"]["steps"]
    if not all("variance" in step for step in steps):
        delta = spent["delta"] if spent["lost_draws"] else certificate["plan"]["delta"]
        return Guarantee(Fraction(spent["epsilon"]), Fraction(delta))
    variances = None
    if spent["epsilon_exact"] is not None:  # each of the cells that differ then differs by one
        variances = tuple(Fraction(step["variance"]) for step in steps for _ in range(step["sensitivity_squared"]))
    return Guarantee(
        Fraction(spent["epsilon"]), Fraction(certificate["plan"]["delta"]), Fraction(spent["rho_exact"]), variances
    )


@dataclass(frozen=True)
class Loss:
    """What some releases together promise for one privacy unit; ``of`` names them, as the subject of a sentence."""

    of: str
    guarantee: Guarantee

    @property
    def promise(self) -> str:
        """The promise, such as ``epsilon 1 at delta 1e-8``, rounded up."""
        return promise_text(float(self.guarantee.epsilon), float(self.guarantee.delta))

    @property
    def guess(self) -> int:
        """In how many of 100 cases the best guess between two equally likely cases is right, at most."""
        return of_100(self.guarantee.best_guess())


_TOGETHER = {"user": "of all periods", "user_year": "of a year", "user_period": "of a period", "trip": "of a period"}


def losses_of(certificate: Certificate) -> tuple[Loss, ...]:
    """Return what is promised for a privacy unit: by everything that the cap allows, by a year, and by the release.

    The first is of everything that is public about the unit, if the certificate states the cap. The cap holds for all
    releases of the data set: of all periods under unit ``user``, and otherwise of the period or the year of the unit.
    """
    own, account, found = guarantee_of(certificate), certificate.get("account"), []
    unit = certificate["unit"]
    if account is not None:
        together = f"Everything that may be published {_TOGETHER[unit]} under the cap of the data set"
        found.append(Loss(together, Guarantee.of_cap(Cap.from_facts(account["cap"]), own.delta)))
    if unit == "user_year" and "plan" in certificate:
        spent, plan = certificate["spent"], certificate["plan"]
        known = (account or {}).get("periods_of_year")
        periods = known or most_in_a_year(Period(certificate["period"]))
        in_full = Fraction(spent["rho_by_level_exact"][-1]) if is_of_uncounted(plan["steps"][-1]) else Fraction(0)
        bound, year = certificate["contribution_bound"], plan["max_trips_year"]
        rho = largest_rho([Fraction(spent["rho_exact"]) - in_full] * periods, bound, year) + periods * in_full
        named = f"A year of {periods} periods, each of them released once like this one,"
        found.append(Loss(named, Guarantee.of_rho(rho, own.delta)))
    derived = "sources" in certificate
    found.append(
        Loss("These numbers, with the releases that they follow from," if derived else "This release alone", own)
    )
    return tuple(found)


def of_100(probability: Fraction) -> int:
    """Return a probability as a number of cases in 100, rounded up."""
    return math.ceil(100 * probability)
