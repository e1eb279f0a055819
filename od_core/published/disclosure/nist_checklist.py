"""Answer what NIST SP 800-226 asks of a release, with evidence in its certificate and in the documentation.

The publication, "Guidelines for Evaluating Differential Privacy Guarantees" (March 2025), orders what a guarantee
depends on as a pyramid and warns of privacy hazards. It has no schema of its own; ``nist_checklist.schema.json`` is
ours. The texts of the requirements and the names of the hazards are ours, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from od_core.publication.html.report_page import page, paragraph, table
from od_core.publication.markup import Markup, element, joined
from od_core.published.disclosure.facts import Facts
from od_core.published.disclosure.wording import promise_text

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
