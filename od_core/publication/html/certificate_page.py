"""Write the certificate as a printable HTML page with every field of the JSON file, without external resources."""

from __future__ import annotations

from html import escape
from typing import Any

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
