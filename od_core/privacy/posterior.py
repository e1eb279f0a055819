"""Bound what an attacker learns about one privacy unit from a release.

The attacker asks which of two hypotheses is true: that the input is D, or that it is the neighbouring input D'. Before
the release, the attacker believes in D with a probability, the prior. The attacker knows everything else about both
inputs, such as all other records; the bounds also hold for an attacker who knows fewer records, if what the attacker
believes about the unknown ones does not depend on which hypothesis is true. Then both hypotheses are mixtures of
neighbouring inputs with the same weights, and no bound here grows by mixing.

Let L be the privacy loss, the logarithm of how much likelier a published outcome is under D than under D'. Two things
are bounded, for every pair of neighbours and whichever hypothesis is true:

* :attr:`Guarantee.odds`: the factor exp(L) by which one outcome multiplies the odds. For a pure epsilon, L is at most
  epsilon always. For rho, L is at most rho + 2 sqrt(rho ln(1/delta)) but with probability delta
  [bun2016concentrated, Lemma 3.5 with its sub-Gaussian tail]. For (epsilon, delta) alone, L is at most epsilon + ln 2
  but with probability 2 delta: delta is at least E max(0, 1 - exp(epsilon - L)), which is at least P(L > epsilon +
  ln 2) / 2.
* :meth:`Guarantee.bound_guess_probability`: the probability that the attacker's best guess of the true hypothesis is
  right, over all outcomes. For a prior p of at most 1/2, it is (1 - p) + p d(ln((1 - p) / p)), where d(e) is the
  largest E max(0, 1 - exp(e - L)) over neighbours: the least delta for which the release is (e, delta)-differentially
  private. For a larger prior, exchange the hypotheses.

:meth:`Guarantee.bound_delta` bounds d(e) from above by the least of all bounds that hold: the exact privacy loss of the
noise (:mod:`od_core.privacy.privacy_loss`); what follows from rho; and what follows from the promise.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from od_core.errors import OdError
from od_core.privacy import privacy_loss
from od_core.privacy.accounting import (
    as_decimal,
    bound_exp_from_above,
    compute_bun_steinke_epsilon,
    compute_tight_epsilon,
)
from od_core.privacy.budget import Cap, Spent

DELTA_OF_CAP = Fraction(1, 10**8)
"""Delta at which a cap in rho is stated beside a release without a delta."""

MAX_EXPONENT = Fraction(10_000)
"""Largest epsilon for which odds are computed. The factor e^10000 is as good as no promise."""

_DIGITS = 40
"""Number of digits of the computations with decimal numbers."""

_GUARD = Fraction(1, 10**30)
"""Margin by which results are rounded up; far more than the errors of the operations with ``_DIGITS`` digits."""


@dataclass(frozen=True)
class Guarantee:
    """The promise of a release for one privacy unit, with what else is known of its privacy loss.

    Raises OdError if epsilon is not above 0, delta is not in [0, 1), or rho is not above 0.

    Attributes:
        epsilon: promised epsilon.
        delta: promised delta; 0 for a pure epsilon.
        rho: rho of zero-concentrated differential privacy; None if it is not known. A release with a pure epsilon has
            one, too, although its epsilon does not follow from it.
        variances: planned variance of the noise of each cell that differs by ``shift`` between neighbours; None if the
            exact privacy loss is not defined. See :func:`od_core.privacy.privacy_loss.compute_exact_delta`.
        shift: largest change of a cell, for ``variances``.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None
    variances: tuple[Fraction, ...] | None = None
    shift: int = 1

    @classmethod
    def from_spent(cls, spent: Spent) -> Guarantee:
        """Return the guarantee of a release that spent this budget.

        If a mechanism promises (epsilon, delta) directly, with a delta above 0, nothing is known of rho.
        """
        if spent.promise is not None and spent.delta:
            return cls(spent.epsilon, spent.delta)
        return cls(spent.epsilon, spent.delta, spent.rho, spent.variances, shift=spent.shift)

    @classmethod
    def from_rho(cls, rho: Fraction, delta: Fraction) -> Guarantee:
        """Return the joint promise of releases whose rhos sum to ``rho``, with epsilon stated at ``delta``."""
        return cls(compute_tight_epsilon(rho, delta), delta, rho)

    @classmethod
    def from_cap(cls, cap: Cap, release: Guarantee) -> Guarantee:
        """Return the joint guarantee of all releases that a cap allows; ``release`` is the guarantee of one of them.

        A cap in epsilon and delta promises just that. Its rho does not bound all that it allows, because releases with
        a pure epsilon may exceed it. If ``release`` is charged with a delta, others may follow from results, and the
        cap promises a delta of 1 - (1 - delta)^2.

        For a cap in rho, epsilon is stated at the delta of ``release`` or, if that is 0, at :data:`DELTA_OF_CAP`.
        """
        if cap.epsilon is None:
            return cls.from_rho(cap.allowed_rho(), release.delta or DELTA_OF_CAP)
        has_threshold = release.delta > 0 and not release.is_converted
        return cls(cap.epsilon, cap.delta * (2 - cap.delta) if has_threshold else cap.delta)

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 <= self.delta < 1 or (self.rho is not None and self.rho <= 0):
            raise OdError(
                "OD-BUDGET-NUMBER",
                "a guarantee needs an epsilon above 0, a delta of at least 0 and below 1, and a rho above 0, if any",
                next_step="restore the certificate",
            )

    @property
    def is_converted(self) -> bool:
        """True if epsilon is converted from rho at delta; False if the mechanism promises epsilon directly."""
        return self.rho is not None and self.delta > 0

    @property
    def odds(self) -> tuple[Fraction, Fraction] | None:
        """Largest factor by which the odds of a hypothesis grow, and the probability that they grow by more.

        The factor is rounded up. None if the factor is larger than e^``MAX_EXPONENT``, or if the probability is 1
        or more: then there is no promise. See the module for the three cases.
        """
        if self.rho is not None and self.delta > 0:
            largest_loss = compute_bun_steinke_epsilon(self.rho, self.delta)
            multiple, exceeded = 1, self.delta
        elif self.delta > 0:
            largest_loss = self.epsilon
            multiple, exceeded = 2, 2 * self.delta  # the loss is at most epsilon + ln 2
        else:
            largest_loss = self.epsilon
            multiple, exceeded = 1, Fraction(0)
        if largest_loss > MAX_EXPONENT or exceeded >= 1:
            return None
        return multiple * bound_exp_from_above(largest_loss), exceeded

    def bound_posterior(self, prior: Fraction) -> tuple[Fraction, Fraction]:
        """Return a lower and an upper bound of the probability that a hypothesis has after the release.

        ``prior`` is its probability before the release. The lower bound is rounded down, the upper one up. Each bound
        is missed with at most the probability that :attr:`odds` states. Without odds, the bounds are 0 and 1. Raises
        OdError if the prior is not between 0 and 1.
        """
        _check_prior(prior)
        odds = self.odds
        if odds is None:
            return Fraction(0), Fraction(1)
        factor, _exceeded = odds
        odds_before = prior / (1 - prior)
        return odds_before / (odds_before + factor), odds_before * factor / (1 + odds_before * factor)

    def bound_guess_probability(self, prior: Fraction = Fraction(1, 2)) -> Fraction:
        """Return the largest probability that a guess between two hypotheses is right, rounded up.

        Without the release, this probability is the larger one of ``prior`` and 1 - ``prior``. For the formula, see the
        module. Raises OdError if the prior is not between 0 and 1.
        """
        _check_prior(prior)
        less_likely = min(prior, 1 - prior)
        likelier = 1 - less_likely
        return likelier + less_likely * self.bound_delta(likelier / less_likely)

    def bound_delta(self, factor: Fraction) -> Fraction:
        """Return an upper bound of the delta of the release at epsilon = ln(``factor``); ``factor`` is at least 1.

        It is the least of 1 and of the bounds that the module names, as far as their parameters are known.
        """
        bounds = [Fraction(1), self._bound_delta_by_promise(factor)]
        epsilon = _bound_ln_from_below(factor)
        if self.rho is not None:
            bounds.append(_bound_delta_by_divergence(self.rho))
            bounds.append(_bound_delta_by_renyi(self.rho, epsilon))
        if self.variances is not None:
            bounds.append(Fraction(privacy_loss.compute_exact_delta(self.variances, epsilon, self.shift)))
        return min(bounds)

    def scale_to_units(self, units: int) -> Guarantee | None:
        """Return the guarantee for a person with this many privacy units; None if it promises nothing.

        For k units, rho becomes k^2 rho [bun2016concentrated, Proposition 1.9], and (epsilon, delta) becomes
        (k epsilon, k e^((k - 1) epsilon) delta) [dwork2014foundations, Theorem 2.2, by summing the geometric series].
        """
        if units == 1:
            return self
        exponent = min((units - 1) * self.epsilon, MAX_EXPONENT)
        factor_of_delta = units * bound_exp_from_above(exponent)
        return self._scale_by_factors(of_epsilon=units, of_rho=units**2, of_delta=factor_of_delta)

    def scale_to_periods(self, periods: int) -> Guarantee | None:
        """Return the joint guarantee of ``periods`` releases like this one; None if it promises nothing."""
        return self._scale_by_factors(of_epsilon=periods, of_rho=periods, of_delta=periods)

    def _scale_by_factors(self, of_epsilon: int, of_rho: int, of_delta: Fraction | int) -> Guarantee | None:
        """Return the guarantee with multiples of its rho, epsilon and delta; None if delta becomes 1 or more.

        The factors are ``of_rho``, ``of_epsilon`` and ``of_delta``. If epsilon is converted from rho, only rho is
        multiplied, and converted again at the same delta.
        """
        rho = None if self.rho is None else of_rho * self.rho
        if rho is not None and self.delta > 0:
            return Guarantee.from_rho(rho, self.delta)
        delta = of_delta * self.delta
        return None if delta >= 1 else Guarantee(of_epsilon * self.epsilon, delta, rho)

    def _bound_delta_by_promise(self, factor: Fraction) -> Fraction:
        """Return an upper bound of delta at ln(``factor``), from epsilon and delta alone.

        The trade-off function of an (e, d)-differentially private release [dong2022gaussian] lies above one with a
        corner at (1 - d) / (1 + exp(e)), which gives 1 - (1 - d)(1 + factor) / (1 + exp(e)).
        """
        if self.epsilon > MAX_EXPONENT:
            return Fraction(1)
        odds = bound_exp_from_above(self.epsilon)
        if factor >= odds:
            return self.delta
        return max(self.delta, 1 - (1 - self.delta) * (1 + factor) / (1 + odds))


def _bound_delta_by_divergence(rho: Fraction) -> Fraction:
    """Return an upper bound of delta at any epsilon, from rho: no delta exceeds the total variation distance.

    The Kullback-Leibler divergence is at most rho. So the distance is at most sqrt(rho / 2) by Pinsker's inequality,
    and at most sqrt(1 - exp(-rho)) by the inequality of Bretagnolle and Huber.
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        exact_rho = as_decimal(rho)
        pinsker = (exact_rho / 2).sqrt()
        bretagnolle_huber = (1 - (-exact_rho).exp()).sqrt()
    return min(Fraction(1), Fraction(min(pinsker, bretagnolle_huber)) + _GUARD)


def _bound_delta_by_renyi(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return an upper bound of delta at ``epsilon``, at most 1, from rho [canonne2020discrete, Proposition 12].

    Every order alpha > 1 gives a valid delta, exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    Multiples of the best order for a Gaussian, (epsilon + rho) / (2 rho), are tried, and the smallest delta is
    returned. The logarithm of delta, with u = alpha - 1, is u ((1 + u) rho - epsilon) + (1 + u) ln(u / (1 + u)) - ln u.
    """
    gaussian_order = max(float(epsilon + rho) / (2 * float(rho)), 1.0)
    if not math.isfinite(gaussian_order):
        return Fraction(1)
    smallest = Fraction(1)
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        exact_rho, exact_epsilon = as_decimal(rho), as_decimal(epsilon)
        for factor in map(Decimal, ("0.6", "0.8", "1", "1.1", "1.3", "2")):
            u = max(Decimal(gaussian_order) * factor - 1, Decimal("0.001"))  # alpha - 1
            log_delta = u * ((1 + u) * exact_rho - exact_epsilon) + (1 + u) * (u.ln() - (1 + u).ln()) - u.ln()
            if log_delta < 0:
                smallest = min(smallest, Fraction(log_delta.exp()) + _GUARD)
    return smallest


def _bound_ln_from_below(value: Fraction) -> Fraction:
    """Return a lower bound, at least 0, of the natural logarithm of ``value``, which is at least 1."""
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        return max(Fraction(as_decimal(value).ln()) - _GUARD, Fraction(0))


def _check_prior(prior: Fraction) -> None:
    """Raise OdError unless a prior is a probability between 0 and 1, neither included."""
    if not 0 < prior < 1:
        raise OdError("OD-BUDGET-NUMBER", "a prior must be above 0 and below 1", next_step="correct the prior")
