"""What a check finds in a row, and the findings that are known and still to be mended."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

KNOWN = Path(__file__).with_name("known.tsv")
"""Known findings: check, page, what is wrong, rows that have it, and why it is still there.

A row must have its known findings and no others, so that the list is shortened by whoever mends one.
"""


class Finding(NamedTuple):
    """A fault of a public file or page.

    Attributes:
        file: file or page, with the bundle that it is of, such as ``release/report.html``.
        what: what is wrong, in words that are the same for the same fault of other rows.
        text: where it is, or with which numbers.
    """

    file: str
    what: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.what}" + (f": {self.text}" if self.text else "")


Signature = tuple[str, str, str]
"""Check, page and what is wrong: the same for the same fault of all rows."""


def signature(check: str, finding: Finding) -> Signature:
    """Return the signature of a finding: periods, levels and numbers of its file's name are left out."""
    page = re.sub(r"commuters(_sum|_assisted|_otherwise)?/\d[^/]*/", r"commuters\1/PERIOD/", finding.file)
    page = re.sub(r"(flows|group_sizes)(_all|_region|_zone)+\.", r"\1_LEVELS.", page)
    return check, page, finding.what


def known_findings() -> Mapping[Signature, tuple[frozenset[str], str]]:
    """Return the rows that have each known finding, by their numbers, and the reason why it is still there."""
    lines = [line.split("\t") for line in KNOWN.read_text(encoding="utf-8").splitlines()[1:]]
    return {(check, page, what): (frozenset(rows.split()), why) for check, page, what, rows, why in lines}


def known_of(row: str) -> set[Signature]:
    """Return the known findings of a row, given its name."""
    number = row.partition("-")[0]
    return {one for one, (rows, _) in known_findings().items() if number in rows}


def write_known(found: Mapping[str, Iterable[Signature]], reasons: Mapping[Signature, str]) -> None:
    """Write the list of known findings from those of each row, by its name."""
    rows: dict[Signature, set[str]] = {}
    for row, signatures in found.items():
        for one in {*signatures}:
            rows.setdefault(one, set()).add(row.partition("-")[0])
    lines = [("check", "page", "what", "rows", "why")]
    lines += [(*one, " ".join(sorted(numbers)), reasons.get(one, "issue 78")) for one, numbers in sorted(rows.items())]
    KNOWN.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
