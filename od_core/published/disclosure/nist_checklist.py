"""Answer what NIST SP 800-226 asks of a release, with evidence in its certificate and in the documentation.

The publication, "Guidelines for Evaluating Differential Privacy Guarantees" (March 2025), orders what a guarantee
depends on as a pyramid and warns of privacy hazards. It has no schema of its own; ``nist_checklist.schema.json`` is
ours. The texts of the requirements and the names of the hazards are ours, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from markupsafe import Markup

from od_core.privacy.accounting import text_above
from od_core.publication.html.report_page import page, paragraph, table
from od_core.publication.markup import element, joined
from od_core.published.disclosure.facts import (
    TO_COMPLETE,
    Facts,
    loss_text,
    person_text,
    promise_text,
    software_text,
    sources_text,
    unit_text,
)

Answer = Literal["met", "met with a limit", "not met", "for the organisation", "not applicable"]

PUBLICATION = "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025)"

LAYERS = {
    "top": "Top of the pyramid: the strength of the guarantee",
    "middle": "Middle of the pyramid: the algorithms",
    "bottom": "Bottom of the pyramid: the deployment",
    "hazard": "Privacy hazards",
}


@dataclass(frozen=True)
class Item:
    """One requirement of the checklist, answered for a release.

    Attributes:
        id: short name.
        layer: key of ``LAYERS``.
        section: section of the publication; None if it is not known to us.
        requirement: what the publication asks for.
        answer: the answer in one word or a few.
        text: why.
        evidence: JSON pointers into ``certificate.json``.
        documentation: pages of the documentation, with their headings.
    """

    id: str
    layer: str
    section: str | None
    requirement: str
    answer: Answer
    text: str
    evidence: tuple[str, ...] = ()
    documentation: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """Return the item as a JSON-ready dictionary."""
        return {
            "id": self.id,
            "layer": self.layer,
            "section": self.section,
            "requirement": self.requirement,
            "answer": self.answer,
            "text": self.text,
            "evidence": [f"certificate.json#{pointer}" for pointer in self.evidence],
            "documentation": [f"docs/{place}" for place in self.documentation],
        }


def checklist_json(facts: Facts, items: Sequence[Item]) -> str:
    """Return the checklist as JSON text, which meets ``nist_checklist.schema.json``."""
    checklist = {
        "publication": PUBLICATION,
        "doi": "10.6028/NIST.SP.800-226",
        "release": str(facts.key),
        "certificate": facts.digest,
        "items": [item.facts() for item in items],
    }
    return json.dumps(checklist, indent=2, ensure_ascii=False) + "\n"


def checklist_page(facts: Facts, items: Sequence[Item]) -> str:
    """Return the checklist as an HTML page."""
    counted = [
        (answer, str(sum(item.answer == answer for item in items))) for answer in dict.fromkeys(i.answer for i in items)
    ]
    sections = [
        (
            heading,
            table(
                f"What is required, and what holds: {heading}",
                ("requirement", "answer", "why, and where to see it"),
                [(item.requirement, item.answer, _why(item)) for item in items if item.layer == layer],
            ),
        )
        for layer, heading in LAYERS.items()
    ]
    about = joined(
        paragraph(
            f"The requirements follow {PUBLICATION}. They are stated in our words, because the publication has no list"
            " that programs could read."
        ),
        paragraph(
            "Places such as ",
            element("code", "/spent/epsilon"),
            " are fields of ",
            element("code", "certificate.json"),
            "; places that begin with docs/ are pages of the documentation of od-release. Answers that only the"
            " organisation can give are marked.",
        ),
    )
    under = f"The guarantee of {facts.key} ({promise_text(facts)}), evaluated. Certificate {facts.digest[:16]}."
    return page("Evaluation by NIST SP 800-226", under, counted, [*sections, ("About this checklist", about)])


def _why(item: Item) -> Markup:
    places = [*item.evidence, *(f"docs/{place}" for place in item.documentation)]
    shown = [element("code", place) for place in places]
    listed = joined(" See ", *(part for place in shown for part in (place, " "))) if shown else joined()
    return joined(item.text, listed)


SMALL_EPSILON, LARGE_EPSILON = Fraction(1), Fraction(10)
"""Epsilon up to which the publication calls a guarantee strong, and from which it doubts that it is meaningful."""

LARGE_DELTA = Fraction(1, 100_000)
"""Delta above which the publication calls a guarantee suspicious."""

_SPENDING = ("/guarantee/protected", "/spent")
_MEASURED = ("/plan/steps", "/mechanism", "/noise")


def checklist(facts: Facts) -> list[Item]:
    """Return all items of the checklist for a release, in the order of the pyramid, and then the hazards."""
    return [*_top(facts), *_middle(facts), *_bottom(facts), *_hazards(facts)]


def _top(facts: Facts) -> list[Item]:
    return [
        Item(
            "privacy-parameters",
            "top",
            "2",
            "All privacy parameters of the guarantee are reported.",
            "met",
            f"{facts.variant}. {loss_text(facts)} {_all_parameters(facts)}",
            ("/spent",),
            ("explanation/privacy.md#what-it-costs", "explanation/noise.md#exact-accounting"),
        ),
        Item(
            "unit-of-privacy",
            "top",
            "2.4",
            "The unit of privacy and the neighbouring data sets are stated, and the unit covers a person.",
            "met" if facts.unit == "user" else "met with a limit",
            f"The unit is {unit_text(facts)}. One unit is"
            f" {'replaced (bounded)' if facts.is_bounded else 'added or removed (unbounded)'}. {_limit_of_unit(facts)}",
            ("/unit", "/neighbours", "/contribution_bound", "/guarantee/protected"),
            ("explanation/privacy.md#privacy-unit", "explanation/privacy.md#neighbours"),
        ),
    ]


def _all_parameters(facts: Facts) -> str:
    if facts.is_derived:
        return f"It follows from the releases {sources_text(facts)}, and nothing was charged for it."
    if facts.guarantee.rho is None:
        return "The mechanism promises these parameters directly."
    return f"The certificate states the original rho, {facts.certificate['spent']['rho_exact']}, and each conversion."


def _limit_of_unit(facts: Facts) -> str:
    if facts.unit == "user":
        return "The unit covers all periods: the losses of all releases add up under one cap."
    if facts.unit in ("user_period", "user_year"):
        spans = "periods" if facts.unit == "user_period" else "years"
        return f"A user in several {spans} has several units, whose losses add up."
    units = "A person has as many units as records"
    return f"{units}." if facts.is_derived else f"{units}: {person_text(facts)}."


def _middle(facts: Facts) -> list[Item]:
    if facts.is_derived:
        how = f"The numbers are computed from published releases alone ({sources_text(facts)})."
        evidence: tuple[str, ...] = ("/sources",)
    else:
        how = (
            f"Mechanism {facts.certificate['mechanism']['name']} with {facts.noise_law} noise. The noise comes from the"
            f" backend {facts.certificate['noise']}, and each charge is recomputed from its noise."
        )
        evidence = _MEASURED
    interval = facts.certificate.get("interval") is not None
    size = (
        ""
        if facts.reach is None
        else (f" The noise of one measured number of the most detailed level is at most {facts.reach}, 9 times in 10.")
    )
    return [
        Item(
            "algorithms-and-correctness",
            "middle",
            "3",
            "The algorithms are known to give the guarantee, and are implemented correctly.",
            "met",
            f"{how} Each claim has a proof and tests that find planted defects.",
            evidence,
            ("explanation/how-it-works.md", "explanation/noise.md", "explanation/assurance.md#claims"),
        ),
        Item(
            "utility",
            "middle",
            "3",
            "The accuracy of the results is stated.",
            "met" if interval else "met with a limit",
            (
                "Every number has an interval, which holds the true one about 9 times in 10."
                if interval
                else "Numbers have no intervals."
            )
            + size,
            ("/interval", "/contents"),
            ("explanation/uncertainty.md",),
        ),
        Item(
            "bias",
            "middle",
            "3",
            "The bias that the noise and the processing after it cause is known.",
            "met with a limit",
            "The noise has mean 0. Published numbers are whole and not below 0, so small numbers are biased upwards and"
            " the relative error is largest for small groups. The unbiased measurements are published with them."
            if facts.plan and facts.contents == "flows" and not facts.has_threshold
            else "The noise has mean 0, but published numbers are whole and not below 0, so small numbers are biased,"
            " and the relative error is largest for small groups.",
            ("/contents",),
            ("explanation/estimator.md", "reference/limits.md#known-limitations"),
        ),
    ]


def _bottom(facts: Facts) -> list[Item]:
    return [
        Item(
            "access-control",
            "bottom",
            "4.4",
            "The records are secured, and few have access to them.",
            "for the organisation",
            "Records, true counts and keys are in one folder that only the operator can read; no log or message states"
            f" a value of them. Encryption at rest and the choice of operators: {TO_COMPLETE.lower()}.",
            ("/known_limitations",),
            ("reference/limits.md#known-vulnerabilities", "explanation/how-it-works.md#what-is-written-where"),
        ),
        Item(
            "trust-model",
            "bottom",
            "4",
            "It is stated whom the people in the data must trust.",
            "met with a limit",
            "Central model: the organisation and the operator of its machine see the records and are trusted. Data"
            " users see only what is published, which the guarantee covers but for what is stated as exact.",
            ("/known_limitations",),
            ("explanation/privacy.md#assumptions",),
        ),
        Item(
            "query-model",
            "bottom",
            "4",
            "The queries are known in advance.",
            "met",
            "Data release model: the plan, fixed before a record is read, has all charges and the rule of all queries."
            " Nobody queries the records.",
            ("/sources",) if facts.is_derived else ("/plan", "/plan_digest"),
            ("explanation/how-it-works.md#the-path-of-a-record",),
        ),
        Item(
            "side-channels",
            "bottom",
            "4",
            "Side channels are closed: floating point, running time, error messages, tuning.",
            "met with a limit",
            "Noise is drawn as exact integers, and the budget is added up as exact fractions. Error messages state no"
            " value of a record. The running time and the fact that a run failed are not protected, so logs of them"
            " must stay inside.",
            ("/known_limitations",),
            ("explanation/noise.md#random-bits", "reference/limits.md#known-vulnerabilities"),
        ),
        Item(
            "data-collection-exposure",
            "bottom",
            "4",
            "No more data are collected and kept than the purpose needs.",
            "for the organisation",
            "Only the columns that the declaration names are read. Which records are collected and when they are"
            f" deleted: {TO_COMPLETE.lower()}.",
            ("/records",),
            ("how-to/zones-and-records.md",),
        ),
    ]


def _hazards(facts: Facts) -> list[Item]:
    return [*_hazards_of_parameters(facts), *_hazards_of_unit(facts), *_hazards_of_algorithms(facts)]


def _hazards_of_parameters(facts: Facts) -> list[Item]:
    epsilon, delta = facts.whole.epsilon, facts.whole.delta
    strong: Answer = "met" if epsilon <= SMALL_EPSILON else "met with a limit"
    size = "is at most 1" if epsilon <= SMALL_EPSILON else "is above 1, but below 10"
    if epsilon >= LARGE_EPSILON:
        strong, size = "not met", "is 10 or more, which may mean little"
    return [
        Item(
            "large-epsilon",
            "hazard",
            None,
            "Epsilon is small enough for the guarantee to mean something.",
            strong,
            f"Epsilon {size}. Of an attacker who knows everything else: {loss_text(facts)}",
            _SPENDING,
            ("explanation/privacy.md#what-it-costs",),
        ),
        _delta(facts, delta),
        Item(
            "conversion-hides-parameters",
            "hazard",
            None,
            "Converted parameters are reported together with the original ones.",
            "not applicable" if facts.is_derived or facts.guarantee.rho is None else "met",
            "The parameters are the original ones."
            if facts.is_derived or facts.guarantee.rho is None
            else "Rho is stated exactly, with epsilon by each conversion at the stated delta.",
            ("/spent",),
            ("explanation/privacy.md#what-it-costs",),
        ),
        Item(
            "losses-add-up",
            "hazard",
            None,
            "The losses of several releases from the same records add up to a limit.",
            "met with a limit",
            f"Each release is charged to data set {facts.certificate['data_set']} before it is drawn, in a ledger that"
            f" refuses what exceeds the cap. Not protected: {facts.sentence('not_protected')}",
            ("/data_set", "/guarantee/not_protected", *(() if facts.is_derived else ("/ledger",))),
            ("explanation/privacy.md#the-ledger",),
        ),
    ]


def _delta(facts: Facts, delta: Fraction) -> Item:
    """Return the item on the size of delta, which is compared with 1/n^2 where the number of units n is public."""
    requirement = "Delta is far below one over the number of units."
    place: tuple[str, ...] = ("/spent",)
    if not delta:
        return Item("large-delta", "hazard", None, requirement, "not applicable", "Delta is 0.", place)
    said = f"Delta is {text_above(float(delta))}, {'not ' if delta <= LARGE_DELTA else ''}above 1e-5."
    answer: Answer = "met" if delta <= LARGE_DELTA else "not met"
    trips = facts.certificate["contents"].get("trips")
    if facts.unit == "trip" and trips:
        n = int(trips)
        within = delta * n**2 <= 1
        answer = "met with a limit" if answer == "met" and not within else answer
        counted = "" if facts.has_exact_numbers else "released "
        said += f" With {n:,} {counted}trips, it is {'at most' if within else 'above'} 1/n^2."
        place = ("/spent", "/contents/trips")
    else:
        said += f" The number of units is not public. Compare delta with it: {TO_COMPLETE.lower()}."
        answer = "for the organisation" if answer == "met" else answer
    return Item(
        "large-delta", "hazard", None, requirement, answer, said, place, ("reference/limits.md#known-limitations",)
    )


def _hazards_of_unit(facts: Facts) -> list[Item]:
    is_trip = facts.unit == "trip"
    exact = "; ".join(facts.invariants)
    return [
        Item(
            "event-level-unit",
            "hazard",
            "2.4",
            "The unit is not a single event of a person who may have several.",
            "met with a limit" if is_trip else "met",
            f"The unit is {unit_text(facts)}.{f' {_limit_of_unit(facts)}' if is_trip else ''}",
            ("/unit", "/guarantee/not_protected"),
            ("explanation/privacy.md#privacy-unit",),
        ),
        Item(
            "unbounded-contributions",
            "hazard",
            "2.4",
            "One unit can change the results only up to a limit.",
            "met",
            f"At most {facts.bound} {'trip' if facts.bound == 1 else 'trips'} of one unit"
            f" {'is' if facts.bound == 1 else 'are'} counted.{facts.considered}",
            ("/contribution_bound",),
            ("explanation/privacy.md#contribution-bound", "explanation/privacy.md#weights"),
        ),
        Item(
            "size-is-public",
            "hazard",
            "2.4",
            "The number of records is not public because neighbours are bounded.",
            "met with a limit" if facts.has_exact_numbers else "met",
            "The total number of trips is published exactly. It is equal for all neighbours."
            if facts.has_exact_numbers
            else "No number of records is published exactly.",
            ("/exact", "/neighbours"),
            ("explanation/privacy.md#the-total-number-of-trips",),
        ),
        Item(
            "other-releases",
            "hazard",
            "2",
            "No numbers without noise, and no other tables, are published from the same records.",
            "for the organisation",
            f"Without noise, this release publishes: {exact or 'nothing'}. Tables that are made elsewhere from data on"
            f" the same people are not taken into account: {TO_COMPLETE.lower()}.",
            ("/invariants", "/guarantee/public", "/known_limitations"),
            ("reference/limits.md#known-limitations",),
        ),
    ]


def _hazards_of_algorithms(facts: Facts) -> list[Item]:
    return [
        Item(
            "own-implementation",
            "hazard",
            "3",
            "The noise is not of an untested implementation.",
            "met" if not facts.is_derived else "not applicable",
            "No noise was drawn for these numbers."
            if facts.is_derived
            else f"Backend {facts.certificate['noise']} of {software_text(facts)}: opendp is the library OpenDP; table"
            " is of this software, and draws the same distribution with a proof. Both are tested against their plan.",
            ("/sources",) if facts.is_derived else ("/noise", "/software"),
            ("explanation/noise.md#two-backends", "explanation/noise.md#how-the-noise-is-tested"),
        ),
        Item(
            "processing-with-the-records",
            "hazard",
            "2",
            "Processing after the noise does not use the records again.",
            "met",
            "All steps after the measurement use published values alone, and a verification repeats them and"
            " compares the bytes.",
            ("/sources",) if facts.is_derived else ("/checks",),
            ("explanation/how-it-works.md#the-path-of-a-record", "explanation/assurance.md#a-second-verifier"),
        ),
        Item(
            "categories-from-the-data",
            "hazard",
            "3",
            "The areas and categories that are counted are not taken from the records.",
            "met",
            "Areas and categories are public lists. Only pairs with trips are measured, and a pair below a threshold is"
            " dropped: delta is the probability that a pair which only one unit uses is published."
            if facts.has_threshold
            else "Areas and categories are public lists. Each of them is measured, or dropped by a rule on noisy values"
            " alone.",
            ("/guarantee/public",),
            ("explanation/privacy.md#further-terms",),
        ),
        Item(
            "settings-from-the-data",
            "hazard",
            "4",
            "Settings, such as bounds and budgets, were not chosen by looking at the records.",
            "for the organisation",
            "The plan is fixed before a record is read. That its settings were not chosen by looking at earlier"
            f" records: {TO_COMPLETE.lower()}.",
            ("/sources",) if facts.is_derived else ("/plan", "/plan_digest"),
            ("reference/limits.md#known-vulnerabilities",),
        ),
        Item(
            "floating-point",
            "hazard",
            "4",
            "Noise in floating point does not reveal the number below it.",
            "met",
            "All noise is of whole numbers, drawn exactly.",
            ("/known_limitations",) if facts.is_derived else ("/noise",),
            ("explanation/privacy.md#why-the-noise-is-what-the-plan-says",),
        ),
        Item(
            "audit-instead-of-proof",
            "hazard",
            "2",
            "The guarantee does not rest on an audit alone.",
            "met",
            "It rests on proofs. Audits of whole releases are made in addition, to find defects.",
            (),
            ("explanation/assurance.md#an-audit-of-whole-releases", "explanation/noise.md#exact-accounting"),
        ),
        Item(
            "breach-of-the-records",
            "hazard",
            "4.4",
            "The stored records are safe: a breach of them would void the guarantee.",
            "for the organisation",
            "In the central model, a breach reveals the records that are stored. Delete records that are no longer"
            f" needed, and encrypt disks: {TO_COMPLETE.lower()}.",
            ("/known_limitations",),
            ("reference/limits.md#known-vulnerabilities",),
        ),
    ]
