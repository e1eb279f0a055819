"""Write the sections of a report that show fields of the certificate: protection, checks, spending and citation."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from od_core.privacy.accounting import promise_text, text_above, text_below
from od_core.publication.citation import citation
from od_core.publication.html.report_page import bar, number, paragraph, table
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import Markup, element, joined


def confidence(certificate: dict[str, Any]) -> str | None:
    """Return the confidence of the release's intervals, such as ``90 %``; None for a release without intervals."""
    stated = certificate.get("interval")
    return None if stated is None else f"{float(100 * Fraction(stated)):g} %"


def protected(certificate: dict[str, Any]) -> Markup:
    """Return a list of the certificate's sentences on the guarantee, and of the numbers published exactly."""
    names = {
        "protected": "Protected",
        "public": "Public",
        "not_protected": "Not protected",
        "input": "Accepted inputs",
        "contribution": "Counted trips of a user",
        "year": "The whole year",
        "uncounted": "Uncounted trips",
        "levels": "Repeated levels",
        "segments": "Counted categories",
    }
    stated = certificate["guarantee"]
    facts = [
        joined(element("dt", names.get(name, name)), element("dd", _sentence(stated[name])))
        for name in sorted(stated, key=lambda name: (list(names).index(name) if name in names else len(names), name))
    ]
    invariants = ", ".join(certificate["invariants"]) or "nothing"
    return element(
        "dl", *facts, element("dt", "Published exactly"), element("dd", _sentence(invariants)), class_="facts"
    )


def checks(certificate: dict[str, Any]) -> Markup:
    """Return a paragraph and a table on the blocking checks, which ran before the release was published."""
    outcomes: dict[str, Counter[bool]] = {}
    for check in certificate["checks"]:
        outcomes.setdefault(check["check"], Counter())[check["passed"]] += 1
    passed = sum(count[True] for count in outcomes.values())
    rows = [
        (name.replace("_", " "), number(count.total()), number(count[True])) for name, count in sorted(outcomes.items())
    ]
    return joined(
        paragraph(
            f"{number(passed)} of {number(len(certificate['checks']))} blocking checks passed. They were last run"
            " when the release was published. They cover the inputs, every level and the whole table."
        ),
        table("Blocking checks", ("check", "runs", "passed"), rows, numbers={1, 2}),
    )


def spending(certificate: dict[str, Any], context: ReleaseContext[Any]) -> Markup:
    """Return a paragraph and a table on the charge of the release and the remaining cap."""
    spent = certificate["spent"]
    rho = Fraction(spent["rho_exact"])
    rest = context.cap - context.left - rho
    rows: list[tuple[object, ...]] = [
        ("this release", text_above(rho), _part(rho, context.cap), bar(float(rho), float(context.cap))),
        (
            f"other releases: {number(context.others)}",
            text_above(rest),
            _part(rest, context.cap),
            bar(float(rest), float(context.cap)),
        ),
        (
            "remaining",
            text_below(context.left),
            f"{text_below(100 * context.left / context.cap, 3)} %" if context.cap > 0 else "\u2013",
            bar(float(context.left), float(context.cap)),
        ),
        ("cap", text_above(context.cap), _part(context.cap, context.cap), ""),
    ]
    lost = spent["lost_draws"]
    costs = "charged at most" if certificate["unit"] == "user_year" else "charged"
    year = (
        " The total of a year adds up the periods that cost a user most, until the user's trips of the year are used"
        " up."
    )
    return joined(
        paragraph(
            f"The release promises {promise_text(spent['epsilon'], spent['delta'])}. It {costs} rho {text_above(rho)}"
            f" to data set {certificate['data_set']}"
            f"{f', including {number(lost)} lost draws' if lost else ''}. This charge does not"
            " allow drawing the noise again. Rebuilding the release from its stored measurements costs no budget."
            f"{year if certificate['unit'] == 'user_year' else ''}"
        ),
        table(
            f"The cap of period {context.period}, right after this release was measured",
            ("", "rho", "of the cap", ""),
            rows,
            numbers={1, 2},
            bars={3},
        ),
    )


def how_to_cite(certificate: dict[str, Any]) -> Markup:
    """Return the text that cites the release, with two explanations."""
    return joined(
        paragraph(
            "Cite the period and the revision, because another revision has different noise and different numbers."
        ),
        element("blockquote", citation(certificate)),
        paragraph(
            "The numbers behind this page are in the same folder, with ",
            element("code", "certificate.json"),
            ", which contains all facts on this page and more.",
        ),
    )


def limitations(certificate: dict[str, Any]) -> Markup:
    """Return a list of the known limitations that the certificate states."""
    return element("ul", *(element("li", _sentence(line)) for line in certificate["known_limitations"]))


def common_sections(certificate: dict[str, Any], context: ReleaseContext[Any]) -> list[tuple[str, Markup]]:
    """Return the last sections of a report, which all kinds of releases have, as pairs of heading and content."""
    return [
        ("Checks", checks(certificate)),
        ("Spent and remaining budget", spending(certificate, context)),
        ("How to cite", how_to_cite(certificate)),
        ("Assumptions and limitations", limitations(certificate)),
    ]


def promise_figures(certificate: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the names and values of epsilon, and of delta if it is not 0, for the top of the page."""
    spent = certificate["spent"]
    return [
        ("epsilon", text_above(spent["epsilon"])),
        *([("delta", text_above(spent["delta"]))] if spent["delta"] else []),
    ]


def under_title(certificate: dict[str, Any]) -> str:
    """Return the line below the title: revision, date, data set, mechanism and versions of the geographies."""
    return (
        f"Revision {certificate['revision']}, measured {certificate['measured_at'][:10]} from data set"
        f" {certificate['data_set']}, with mechanism {certificate['mechanism']['name']}.{_versions(certificate)} All"
        " numbers contain noise, except those that are stated as exact."
    )


def _versions(certificate: dict[str, Any]) -> str:
    """Return a sentence on the versions of the geographies; an empty text if they have none."""
    versions: dict[str, str | None] = certificate.get("geography_versions", {})
    stated = [version for version in versions.values() if version is not None]
    if not stated:
        return ""
    if len(versions) == len(stated) and len(set(stated)) == 1:
        return f" Areas of version {stated[0]}."
    named = [f"of {side}s {f'version {version}' if version else 'no version'}" for side, version in versions.items()]
    return f" Areas {', '.join(named)}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _part(value: Fraction, of: Fraction) -> str:
    """Return a spent part of a cap in percent, rounded up to three digits."""
    return f"{text_above(100 * value / of, 3)} %" if of > 0 else "\u2013"
