"""Collect the answers to the questions of ``od-release init``, from its options or at the terminal.

An answer that does not fit the files is refused; at the terminal, it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from od_assets.cli.init_checks import fault_of_value
from od_assets.cli.init_questions import QUESTIONS, USERS, Answers, Fields, Question
from od_assets.cli.init_records import (
    ROLES,
    absent_column,
    absent_records,
    found_records,
    newest_file,
    unreadable_records,
    unstated_rows,
)
from od_assets.cli.init_zones import found_zones, further_columns, may_be_prefixes
from od_assets.project import current_project
from od_core.errors import OdError
from od_core.files.durable import absence

_NAMED_COLUMNS = (*ROLES, "column")

_OF_FURTHER_COLUMNS = ("names", "coordinates")
"""Questions that are asked only if the list of zones has columns that no answer names."""


def answered(
    given: Mapping[str, str | None],
    ask: Callable[[Question], str] | None,
    tell: Callable[[str], None],
    settings: Fields | None = None,
) -> dict[str, str]:
    """Return an answer to every question that applies, by flag, and show the columns of the files.

    An answer that does not fit the files, or that no declaration could have, is shown with its fault, and asked again.
    A path of records at which there is no file yet, and levels without a column, are accepted if they are given twice.

    Args:
        given: answers by flag; None for a flag without an answer.
        ask: function that asks the user; None if there is no terminal, so every answer without a default must be given.
        tell: function that shows a line on the columns of a file and their types. No line contains a value of a record.
        settings: additional fields of the release's declaration, by path of the field.

    Raises:
        OdError: an answer is missing or does not fit the files, and there is no terminal; the records cannot be read,
            and no other reader was asked for; or no answer states what a row is, though the
            records have unused columns.
    """
    answers: dict[str, str] = {}
    told: set[str] = set()
    for question in QUESTIONS:
        answer = given.get(question.flag)
        if question.units and answers["unit"] not in question.units:
            if answer:
                raise _not_of_unit(question)
            continue
        if question.flag == "one_row_a_trip" and answer in (None, "", "false"):
            answers[question.flag] = _said_of_rows(question, answers, ask, tell, settings or {})
            continue
        if question.flag in _OF_FURTHER_COLUMNS and answer is None and not further_columns(answers, settings or {}):
            answers[question.flag] = ""
            continue
        while True:
            refused = answers.get(question.flag)
            if answer is None:
                answer = ask(question) if ask is not None else question.default
            answers[question.flag] = "" if answer is None else answer
            fault = _fault_of(question, answers, settings or {})
            if fault is None and ask is not None:  # otherwise the declaration as a whole is judged, once
                fault = fault_of_value(question.flag, _with_prefixes(question, answers, given), settings or {})
            if fault is None or (answer and answer == refused and _is_confirmed(question, answers, settings or {})):
                break
            if ask is None or not _may_ask_again(question, answers):
                raise fault
            tell(f"{fault.message}: {fault.next_step}.")
            answer = None
        look = _TOLD.get(question.flag)
        is_told_later = ask is None and question.flag in ("reader", "zones")
        known = {flag: stated for flag in ("unit", "column") if (stated := given.get(flag))}  # a column is used then
        lines = [] if look is None or is_told_later else look({**known, **answers}, settings or {})
        for line in lines:
            if line not in told:
                tell(line)
        told.update(lines)
    return answers


def _fault_of(question: Question, answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if the answer to a question is missing or does not fit the files, or None."""
    answer = answers[question.flag]
    if question.default is None and not answer.strip():
        flag = f"--{question.flag.replace('_', '-')}"
        return OdError("OD-INIT-FLAG", f"{flag} is missing: {question.asks}", next_step=f"give {flag}")
    if question.flag == "records":
        return absent_records(answer)
    if question.flag == "reader":
        return unreadable_records(answers, settings)
    if question.flag in _NAMED_COLUMNS:
        return absent_column(question.flag, answers, settings)
    if question.flag == "zones" and (fault := absence(current_project().root / answer)) is not None:
        return OdError(
            "OD-FILE-MISSING", fault, next_step="give --zones and the path of a public list of zones that can be read"
        )
    return None


def _with_prefixes(question: Question, answers: Answers, given: Mapping[str, str | None]) -> Answers:
    """Return the answers so far. Those on the levels of zones have the prefixes too, if these are given beforehand."""
    prefixes = given.get("prefixes")
    return {**answers, "prefixes": prefixes} if question.flag == "levels" and prefixes else answers


def _not_of_unit(question: Question) -> OdError:
    flag = f"--{question.flag.replace('_', '-')}"
    units = " or ".join(f"--unit {unit}" for unit in question.units)
    what = "protect users" if question.units == USERS else "have it"
    return OdError(
        "OD-INIT-FLAG",
        f"{flag} is given, but --unit does not {what}",
        next_step=f"leave out {flag}, or give {units}",
    )


def _is_confirmed(question: Question, answers: Answers, settings: Fields) -> bool:
    """Return whether an answer that was refused is accepted if it is given again.

    This is a path of records at which there is no file yet, or levels of which some are prefixes of a zone's code.
    """
    if question.flag == "records":
        return newest_file(answers["records"]) is None
    return question.flag == "levels" and may_be_prefixes(answers, settings)


def _may_ask_again(question: Question, answers: Answers) -> bool:
    """Return whether another answer to a question can help. Without a reader's name, the file itself is at fault."""
    return question.flag != "reader" or bool(answers["reader"])


def _said_of_rows(
    question: Question,
    answers: dict[str, str],
    ask: Callable[[Question], str] | None,
    tell: Callable[[str], None],
    settings: Fields,
) -> str:
    """Return the answer to whether each row is one trip. Ask the user if the records have unused columns.

    The user may also name the column of the number of trips, which becomes the answer to that question.

    Raises:
        OdError: the user does not state what a row is, though the records have unused columns or look like flows.
    """
    found = unstated_rows(answers, settings)
    if found is None:
        return ""
    unstated, unused = found
    if unstated is None:
        return "true"
    if ask is not None:
        tell(f"{unstated.message}.")
        answer = ask(question).strip()
        if answer in unused:
            answers["trips"] = answer
            return ""
        if answer.lower() == "true":
            return "true"
    raise unstated


_TOLD: dict[str, Callable[[Answers, Fields], list[str]]] = {
    "reader": found_records,
    "trips": found_records,
    "column": found_records,
    "zones": found_zones,
    "levels": found_zones,
}
"""Functions that return the lines to show after a question, by flag of the question."""
