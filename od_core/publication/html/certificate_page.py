"""Make the page of a certificate, and the certificate within a report."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from html import escape
from typing import Any

from markupsafe import Markup

from od_core.privacy.accounting import promise_text, text_above, text_below
from od_core.publication.codebook import citation
from od_core.publication.html.report_page import bar, number, paragraph, table
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import element, joined


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


_PARTS = (
    ("What is protected", ("guarantee", "known_limitations")),
    (
        "What was released",
        ("release", "data_set", "period", "revision", "contents", "uncounted", "interval", "invariants", "promises"),
    ),
    (
        "What was spent",
        ("spent", "privacy_loss", "account", "unit", "neighbours", "contribution_bound", "fault_threshold"),
    ),
    (
        "How it was measured",
        ("records", "mechanism", "noise", "levels", "repeated_levels", "geographies", "geography_versions"),
    ),
    ("How it was checked", ("checks",)),
)
"""Headings of the page and the names of the fields below them; all other fields are below :data:`_REST`."""

_REST = "Plan, ledger and software"

_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
  padding: 1rem; max-width: 60rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2rem; border-bottom: 1px solid #767676; }
dt { font-weight: bold; margin-top: .5rem; } dd { margin-left: 1rem; overflow-wrap: anywhere; }
div { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; }
th, td { border: 1px solid #767676; padding: .2rem .5rem; text-align: left;
  overflow-wrap: normal; white-space: nowrap; }
@media print { body { max-width: none; } div { overflow: visible; }
  th, td { overflow-wrap: anywhere; white-space: normal; font-size: .7rem; padding: .1rem .25rem; }
  th, td:nth-child(-n+4) { overflow-wrap: normal; } }
"""


def certificate_page(certificate: dict[str, Any]) -> str:
    """Return the HTML page of a certificate. It contains all fields of the certificate and nothing else."""
    named = {fact for _, facts in _PARTS for fact in facts}
    parts = [*_PARTS, (_REST, tuple(sorted(certificate.keys() - named)))]
    sections = [
        f"<section>\n<h2>{heading}</h2>\n{_facts({fact: certificate[fact] for fact in facts if fact in certificate})}"
        "</section>\n"
        for heading, facts in parts
    ]
    title = f"Certificate of {escape(certificate['release'])}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _facts(facts: dict[str, Any]) -> str:
    """Return fields as an HTML list of names and values; a value is text, a list, a table or further fields."""
    items = [f"<dt>{_words(name)}</dt><dd>{_value(value, name)}</dd>\n" for name, value in facts.items()]
    return f"<dl>\n{''.join(items)}</dl>\n"


def _value(value: Any, name: str) -> str:
    if isinstance(value, dict):
        return _facts(value) if value else "none"
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return _table(value, name)
    if isinstance(value, list):
        return f"<ul>{''.join(f'<li>{_value(item, name)}</li>' for item in value)}</ul>" if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else escape(str(value))


def _table(rows: list[dict[str, Any]], name: str) -> str:
    """Return an HTML table with ``-`` for fields that a row lacks. On a narrow screen, only the table scrolls."""
    heads = list(dict.fromkeys(fact for row in rows for fact in row))
    head = "".join(f'<th scope="col">{_words(fact)}</th>' for fact in heads)
    cells = [[_value(row[fact], fact) if fact in row else "-" for fact in heads] for row in rows]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in cells)
    return (
        f'<div tabindex="0" role="region" aria-label="{_words(name)}"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>"
    )


def _words(name: str) -> str:
    """Return the name of a field with spaces and a capital letter, escaped for HTML."""
    return escape(name.replace("_", " ")).capitalize()
