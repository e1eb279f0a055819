"""Every number in the disclosure documents is of the certificate, follows from the plan, or is of a listed phrase."""

import json
import math
import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from od_core.privacy import accounting
from od_core.privacy.accounting import compute_tight_epsilon, format_rounded_up, round_up_to_float
from od_core.privacy.budget import Spent
from od_core.privacy.posterior import Guarantee
from od_core.publication.certificate import read_guarantee_for_one_unit
from od_core.published import documents as made
from od_core.published.documents import PRIORS, disclosure_documents
from tests.od_core.published.disclosure.certified import FILES, KINDS, certified, written

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")

DIGEST = r"\b[0-9a-f]{16}\.(?=\s|<)"
"""The beginning of a certificate's digest, which is decimal digits alone in one of two thousand releases."""

PHRASES = {
    made.REGISTRY: [r"90 % interval", r"times in 100", r"9 times in 10", r"SHA-256", r'"tier": 3'],
    made.CHECKLIST: [
        *(r"NIST SP 800-226", r"10\.6028/NIST\.SP\.800-226", r"March 2025", r"times in 100", r"9 times in 10"),
        *(r"Epsilon is at most 1\.", r"is above 1, but below 10\.", r"is 10 or more", r"above 1e-5\.", r"1/n\^2"),
        *(r"mean 0", r"not below 0", r"Delta is 0\.(?!\d)", r'"section": "[\d.]+"'),
    ],
    made.CHECKLIST_PAGE: [
        *(r"NIST SP 800-226", r"March 2025", r"times in 100", r"9 times in 10", r"Epsilon is at most 1\."),
        *(r"is above 1, but below 10\.", r"is 10 or more", r"above 1e-5\.", r"1/n\^2", r"mean 0", r"not below 0"),
        *(r"Delta is 0\.(?!\d)", r"<dd>\d+</dd>", DIGEST),
    ],
    made.NOTICE: [r"9 of 10 cases", r"50 of 100 cases", r"of 100 cases", r"One number"],
    made.ASSESSMENT: [r"## \d\.", r"times in 100", DIGEST],
    made.PROVENANCE: [r'"_:\w+\d+"', r"2001/XMLSchema", r"noisy measurement \d+", r"measurement/[\w/-]+/\d+"],
}
"""Phrases of each document with numbers that are the same for all releases, or that count the document's own parts."""


def numbers(text: str) -> set[str]:
    """The numbers of a text, as they are written."""
    return {found.replace(",", "") for found in NUMBER.findall(text)}


def of_certificate(facts: Any) -> Iterator[str]:
    """The numbers of every text and every value of a certificate, which may be written in several ways."""
    if isinstance(facts, dict | list):
        for part in facts.values() if isinstance(facts, dict) else facts:
            yield from of_certificate(part)
    elif isinstance(facts, str):
        yield from numbers(facts)
    elif isinstance(facts, int | float) and not isinstance(facts, bool):
        yield str(facts)
        yield from numbers(yaml.safe_dump(facts))
        if facts > 0:  # a float above a decimal number, which a text rounds up to that number
            yield format_rounded_up(Fraction(facts) * Fraction(10**12 - 1, 10**12))


def guarantee(spent: Spent) -> Guarantee:
    """The promise of a plan, from the plan alone."""
    if spent.promise is not None:
        return Guarantee(spent.epsilon, spent.delta, None if spent.delta else spent.rho)
    variances = None
    if spent.shifted_cells is not None:
        pairs = zip(spent.levels, spent.shifted_cells, strict=True)
        variances = tuple(cells / (2 * rho) for rho, cells in pairs for _ in range(cells))
    return Guarantee(spent.epsilon, spent.delta, spent.rho, variances)


def person(spent: Spent) -> tuple[Guarantee | None, set[str]]:
    """The promise to a person with 40 trips, and the texts of its epsilon and its delta."""
    if spent.promise is None:
        rho = 1600 * spent.rho
        epsilon = compute_tight_epsilon(rho, spent.delta)
        return Guarantee(epsilon, spent.delta, rho), {format_rounded_up(epsilon), format_rounded_up(spent.delta)}
    if spent.delta:
        assert 40 * math.exp(39 * float(spent.epsilon)) * float(spent.delta) > 1
        return None, set()
    return Guarantee(40 * spent.epsilon, rho=1600 * spent.rho), {format_rounded_up(40 * spent.epsilon)}


def two_ids(one: Guarantee) -> set[str]:
    """The texts of the promise to a person with two user ids, by group privacy."""
    if one.rho is not None and one.delta:
        both = Guarantee(compute_tight_epsilon(4 * one.rho, one.delta), one.delta, 4 * one.rho)
    else:
        delta = 2 * math.exp(one.epsilon) * float(one.delta)
        both = Guarantee(2 * one.epsilon, Fraction(delta), None if one.rho is None else 4 * one.rho)
    return {*map(format_rounded_up, (both.epsilon, both.delta)), cases(both.bound_guess_probability())}


def cases(probability: Fraction) -> str:
    return str(math.ceil(100 * probability))


def percent(value: Fraction, rounding: str) -> str:
    scaled = Decimal(value.numerator) / Decimal(value.denominator) * 100
    return f"{scaled.quantize(Decimal('0.1'), rounding=rounding).normalize():f}"


def beliefs(promised: Guarantee) -> Iterator[str]:
    """The beliefs of the impact assessment before and after, from the factor by which odds grow."""
    if promised.rho is not None and promised.delta:
        factor, missed = math.exp(accounting.compute_bun_steinke_epsilon(promised.rho, promised.delta)), promised.delta
    else:
        factor, missed = math.exp(promised.epsilon) * (2 if promised.delta else 1), 2 * promised.delta
    if missed:
        yield format_rounded_up(missed * Fraction(10**12 - 1, 10**12))
    for prior in PRIORS:
        before = float(prior / (1 - prior))
        yield percent(prior, ROUND_CEILING)
        yield percent(Fraction(before * factor / (1 + before * factor)), ROUND_CEILING)
        yield percent(Fraction(before / (before + factor)), ROUND_FLOOR)


def reach(step: dict[str, Any]) -> Iterator[str]:
    """How far the noise of a step reaches 9 times in 10, by adding up its probabilities."""
    at = np.arange(-2000, 2001)
    if "variance" in step:
        weights = np.exp(-(at**2) / (2 * float(Fraction(step["variance"]))))
    else:
        scales = [step[name] for name in ("scale", "scale_of_leaves", "scale_of_boxes") if name in step]
        if not scales:
            return
        weights = np.exp(-np.abs(at) / float(Fraction(scales[0])))
    within = [int(k) for k in range(2000) if weights[np.abs(at) <= k].sum() >= 0.9 * weights.sum()]
    yield from (str(within[0]), str(within[0] + 1))  # that of a Gaussian is rounded up once more


def explained(name: str) -> set[str]:
    """All numbers that the documents of a release may state."""
    release = certified(name)
    day = release.facts["measured_at"][:10]
    found = {*of_certificate(release.facts), "40", *of_certificate(FILES), *numbers(day)}
    if release.plan is None:
        users = release.facts["unit"] == "user"
        name, spent = ("all_periods", certified("users")) if users else ("one_period", certified("trips"))
        stated = release.facts["spent"][name]
        one = guarantee(spent.plan.spent)  # of each of two releases
        rho = 2 * one.rho if users else one.rho
        promised = Guarantee(Fraction(stated["epsilon"]), Fraction(stated["delta"]), rho, one.variances)
        found |= {*of_certificate(round_up_to_float(rho))}
    else:
        spent = release.plan.spent
        promised = guarantee(spent)
        found.add(str(len(release.plan.charged_steps)))
        found |= {format_rounded_up(spent.epsilon), format_rounded_up(spent.delta)}
        of_pairs = [one for one in release.plan.facts()["steps"] if not one.keys() & {"breakdown", "area_totals"}]
        found |= {*reach(of_pairs[-1])}
        if release.plan.unit.kind == "trip":
            many, texts = person(spent)
            found |= {*texts, "100" if many is None else cases(many.bound_guess_probability())}
    if release.facts["unit"] != "trip":
        found |= two_ids(promised)
    return found | {cases(promised.bound_guess_probability()), *beliefs(promised)}


def stated(document: str, text: str) -> set[str]:
    """The numbers of a document without those of its own phrases."""
    if document == made.REGISTRY:
        text = json.dumps(yaml.safe_load(text), ensure_ascii=False)
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    for phrase in PHRASES[document]:
        text = re.sub(phrase, " ", text)
    text = re.sub(r"<[^>]*>|\\", " ", text)  # of links, and of Markdown's escapes
    return {number.rstrip(".") for number in numbers(text)}


@pytest.mark.representatives("segments", "users", "threshold", "group sizes", "tree of boxes", "sum")
@pytest.mark.parametrize("name", KINDS)
def test_every_number_is_of_the_plan(name: str, tmp_path: Path) -> None:
    _, texts = disclosure_documents(written(certified(name).facts, tmp_path / "r1"))
    known = explained(name)
    for document, text in texts.items():
        assert sorted(stated(document, text) - known) == [], document


def test_the_stated_noise_is_that_of_pairs_of_zones(tmp_path: Path) -> None:
    """Area totals, the last steps of a plan, have much wider noise."""
    release = certified("area totals")
    found = made.Facts.from_bundle(written(release.facts, tmp_path / "r1")).reach
    assert str(found) in {*reach(release.plan.step(release.plan.tree.depth).facts())}
    assert str(found) not in {*reach(release.plan.facts()["steps"][-1])}


def test_lost_draws_count_and_leave_no_exact_privacy_loss() -> None:
    facts = json.loads(json.dumps(certified("trips").facts))
    assert read_guarantee_for_one_unit(facts).variances is not None
    twice = 2 * Fraction(facts["spent"]["rho_exact"])
    facts["spent"] |= {"lost_draws": 5, "rho_exact": str(twice), "epsilon_exact": None, "epsilon": 1.5}
    assert read_guarantee_for_one_unit(facts) == Guarantee(Fraction(3, 2), Fraction(1, 10**8), twice)
    direct = json.loads(json.dumps(certified("threshold").facts))
    direct["spent"] |= {"lost_draws": 1, "delta": 2e-6, "epsilon": 2.0}
    assert read_guarantee_for_one_unit(direct) == Guarantee(Fraction(2), Fraction(2e-6))
