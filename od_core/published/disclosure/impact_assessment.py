"""Write the record of a release for a data protection impact assessment, as Markdown to be completed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from od_core.privacy.accounting import text_above
from od_core.publication.certificate import TRIPS_OF_A_PERSON
from od_core.publication.markup import in_markdown
from od_core.published.disclosure.facts import (
    GUESS,
    TO_COMPLETE,
    Facts,
    loss_text,
    of_100,
    software_text,
    sources_text,
    unit_text,
)

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
"""Beliefs of an attacker before the release for which the residual risk is stated."""

ORGANISATION = (
    "Controller, and joint controllers or processors",
    "Data protection officer, and their advice",
    "Purpose of the processing",
    "Legal basis",
    "Categories of data subjects, and views of their representatives",
    "Retention and deletion of the records",
    "Transfers to other countries",
)
"""Fields that only the organisation can fill in."""


def impact_assessment(facts: Facts) -> str:
    """Return the record as Markdown text. Values of the certificate are shown as text, and cannot add markup."""
    parts = [
        f"# Impact assessment: {in_markdown(str(facts.key))}",
        f"This record states the technical facts on one published release. It was made from the certificate"
        f" {facts.digest[:16]}. Fields marked *{TO_COMPLETE}* are not known to the software.",
        "## 1. Fields of the organisation",
        _table(("field", "content"), [(field, f"*{TO_COMPLETE}*") for field in ORGANISATION]),
        "## 2. What is processed",
        _table(("what", "facts"), _processing(facts)),
        "## 3. Necessity and proportionality",
        _list(_necessity(facts)),
        f"Whether the purpose could be reached with less: *{TO_COMPLETE}*.",
        "## 4. Risks and measures",
        _table(("risk to people", "measures", "what remains"), _risks(facts)),
        "## 5. Residual risk",
        in_markdown(facts.sentence("protected")),
        *_residual(facts),
        f"Not protected: {in_markdown(facts.sentence('not_protected'))}",
        "Known limitations:",
        _list([in_markdown(line) for line in facts.certificate["known_limitations"]]),
        "## 6. Decision",
        _table(
            ("field", "content"),
            [
                (field, f"*{TO_COMPLETE}*")
                for field in ("Residual risk accepted by", "Date, and date of the next review", "Prior consultation")
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _processing(facts: Facts) -> list[tuple[str, str]]:
    of = in_markdown(str(facts.certificate["data_set"]))
    rows = [
        ("Release", in_markdown(f"{facts.key.release}, period {facts.key.period}, revision {facts.key.revision}")),
        ("Data set", of),
        ("Published", in_markdown(f"tables of {facts.contents}")),
        ("Date", in_markdown(f"measured {facts.certificate['measured_at'][:10]}")),
        ("Software", in_markdown(software_text(facts))),
    ]
    if facts.is_derived:
        made = f"{facts.derivation} {sources_text(facts)}. No record is read for it."
        return [*rows, ("Made of", in_markdown(made))]
    return [
        *rows,
        ("Records read", in_markdown(f"trip records of period {facts.key.period}. {facts.sentence('input')}")),
        ("Counted", in_markdown(_counted(facts))),
        ("Published exactly", in_markdown("; ".join(facts.invariants) or "nothing")),
        ("Mechanism", in_markdown(f"{facts.certificate['mechanism']['name']}, {facts.noise_law} noise")),
        ("Kept confidential", "the records, their counts, and the keys; none of them is published"),
    ]


def _counted(facts: Facts) -> str:
    bounded = " ".join(filter(None, map(facts.sentence, ("contribution", "uncounted"))))
    return f"{len(facts.plan['steps'])} queries, all of them in the published plan. {bounded}".strip()


def _necessity(facts: Facts) -> list[str]:
    if facts.is_derived:
        return [
            "The numbers follow from published releases alone. No further processing of records is needed for them.",
            "Nothing is charged to the cap, and nothing is revealed beyond those releases.",
        ]
    points = [
        f"Counts are published instead of records. Each of the {len(facts.plan['steps'])} queries is measured once,"
        " with noise.",
        "Areas, categories and settings are public beforehand, and none is taken from the records.",
        "A cap limits what all releases of the data set spend together; a release beyond it is refused undrawn.",
    ]
    if facts.unit != "trip":
        points.append(f"At most {facts.bound} trips of a user are counted; further ones are removed before counting.")
    return points


def _risks(facts: Facts) -> list[tuple[str, str, str]]:
    exact = in_markdown("; ".join(facts.invariants)) or "nothing"
    rows = [
        (
            "Singling out: somebody finds a person's trips in the tables",
            "noise on every measured count; no record and no identifier is published",
            f"about one privacy unit: {loss_text(facts)}",
        ),
        (
            "Linking: tables are combined with other data on the same people",
            "the guarantee holds whatever else is known, even every other record",
            "the same bound; other tables made from the same people are not covered",
        ),
        (
            "Inference: a person's attributes follow from the tables",
            "a person's own records change what can be learned only within the bound",
            "what holds for many people can be learned of each",
        ),
        (
            "Accumulation: many releases from the same records",
            "a ledger charges every release before it is drawn, and a cap is enforced",
            "several periods add up; the cap is a decision of the organisation",
        ),
        (
            "Numbers without noise",
            "published exactly only where all neighbouring inputs have the same number",
            f"published exactly: {exact}",
        ),
        (
            "Breach of the records, or misuse by those who operate the software",
            "one folder that only the operator can read; no value of a record in logs or messages",
            f"*{TO_COMPLETE}*: encryption, access, deletion",
        ),
    ]
    if facts.unit == "trip":
        person = facts.person
        many = 100 if person is None else of_100(person.best_guess())
        rows.append(
            (
                "A person with many trips",
                "each trip is protected by itself",
                "more can be learned of such a person as a whole"
                if facts.is_derived
                else f"from this release alone, of {TRIPS_OF_A_PERSON} trips in the period together:"
                f" {GUESS.format(many)}",
            )
        )
    return rows


def _residual(facts: Facts) -> list[str]:
    """Return the losses, and a table with a column for each of them that bounds beliefs."""
    bounded = [(one, one.guarantee.odds) for one in facts.losses]
    columns = [one for one, odds in bounded if odds is not None]
    said = f"For {in_markdown(unit_text(facts))}: {in_markdown(loss_text(facts))}"
    none = [f"{in_markdown(one.of)}: this promise bounds no belief." for one, odds in bounded if odds is None]
    if not columns:
        return [said, *none]
    rows = []
    for prior in PRIORS:
        ranges = [one.guarantee.posterior(prior) for one in columns]
        rows.append((_percent(prior), *(f"{_percent(low, up=False)} to {_percent(high)}" for low, high in ranges)))
    rare = [f"{in_markdown(one.of)}: {text_above(float(odds[1]))}" for one, odds in bounded if odds and odds[1]]
    except_for = f", except with a probability ({'; '.join(rare)})" if rare else ""
    return [
        said,
        *none,
        f"For an attacker who knows everything else, a belief moves at most like this{except_for}:",
        _table(("belief before", *(f"after: {in_markdown(one.of)}" for one in columns)), rows),
    ]


def _percent(value: Fraction, *, up: bool = True) -> str:
    """Return a probability in percent with one decimal place, rounded up, or down."""
    tenths = -((-1000 * value.numerator) // value.denominator) if up else 1000 * value.numerator // value.denominator
    return f"{tenths / 10:g} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(points: Sequence[str]) -> str:
    return "\n".join(f"- {point}" for point in points)
