"""Ask the questions of ``od-release init`` in turn: those that apply and have no answer yet.

At the terminal, an answer with a fault is asked again; elsewhere, it is refused.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import typer

from od_assets.cli.declare import QUESTIONS, Answers, Fields, Question
from od_assets.cli.new_declaration import (
    CHECKS_OF_FILES,
    CHECKS_OF_VALUES,
    can_levels_be_prefixes,
    choose_number_flag,
    describe_records,
    describe_zones,
    evaluate_expression,
    find_newest_file,
    find_row_ambiguity,
    refuse_wrong_fields,
)
from od_assets.cli.printing import say
from od_assets.series.partitions import SINGLE
from od_assets.terminal import console
from od_core.errors import OdError


class _Back(Exception):  # noqa: N818  # no error: it is the answer "back"
    """The request of the person who answers to be asked the previous question again."""


def collect_answers(given: Mapping[str, str | None], fields: Fields) -> dict[str, str]:
    """Return an answer to every question that applies, by flag, and show the columns of the files and their types.

    Missing answers are asked for at the terminal. An answer that does not fit the files, or that no declaration could
    have, is shown with its fault, and asked again. A path of records at which there is no file yet, and levels without
    a column, are accepted if they are given twice. Nothing that is shown contains a value of a record.

    ``given`` has answers by flag; None for a flag without an answer.

    Raises:
        OdError: an answer is missing or wrong, and there is no terminal; an additional field is wrong; the records
            cannot be read, and no other reader was asked for; or no answer states what a row is.
    """
    interview = _Interview(dict(given), fields)
    asked: list[int] = []
    number = 0
    while number < len(QUESTIONS):
        try:
            if interview.answer(QUESTIONS[number]):
                asked.append(number)
            number += 1
        except _Back:
            if asked:
                number = asked.pop()
            interview.forget_answers(number)
    return interview.answers


@dataclass
class _Interview:
    """The state of asking the questions in turn."""

    given: dict[str, str | None]
    """Answers that were given on the command line, by flag; None for a flag without an answer."""
    fields: Fields
    """Additional fields of the declaration."""
    answers: dict[str, str] = field(default_factory=dict)
    """Answers so far, by flag."""
    told: set[str] = field(default_factory=set)
    """Lines and advice that were shown already."""
    at_terminal: bool = field(default_factory=lambda: sys.stdin.isatty())
    """Whether questions can be asked."""

    @property
    def known(self) -> dict[str, str]:
        """The answers so far, and those to later questions that are given beforehand."""
        return {flag: answer for flag, answer in self.given.items() if answer} | self.answers

    def forget_answers(self, number: int) -> None:
        """Remove the answers to a question and to those after it, so that it is asked even if it was given beforehand.

        ``number`` is the index of the question in ``QUESTIONS``.
        """
        flag = QUESTIONS[number].flag
        if flag == "one_row_a_trip":
            self.answers[choose_number_flag(self.answers)] = ""  # its answer may have been this column
        for question in QUESTIONS[number:]:
            self.answers.pop(question.flag, None)
        self.given[flag] = None

    def answer(self, question: Question) -> bool:
        """Find or ask for the answer to a question, add it to the answers, and return whether it was asked.

        Then show the columns of the files that the answers name. Raises OdError as :func:`collect_answers` does, and
        _Back if the previous question is to be asked again.
        """
        flag = question.flag
        if self._is_left_out(question):
            return False
        if flag == "one_row_a_trip" and self.given.get(flag) in (None, "", "false"):
            return self._answer_rows(question)
        if self._is_needless(question):
            self.answers[flag] = self._suggest_answer(question) or question.default
            if flag == "unit":
                say("init.no_ids")
            return False
        was_asked = self._accept_answer(question)
        self._clear_unfit_answers(flag)
        if flag == "kind" and self.at_terminal:
            refuse_wrong_fields(self.answers[flag], self.fields)
        self._show_files(question)
        return was_asked

    def _is_left_out(self, question: Question) -> bool:
        """Return whether other answers make a question inapplicable. Raises OdError if it was answered all the same."""
        known = self.known
        unmet = {
            flag: fitting_answers
            for flag, fitting_answers in question.needs.items()
            if known.get(flag, fitting_answers[0]) not in fitting_answers
        }
        if unmet and self.given.get(question.flag):
            flag, fitting_answers = next(iter(unmet.items()))
            if flag == "outline":
                message = f"{question.option} is of a list of zones, and --outline is of zones without a list"
                raise OdError("OD-INIT-FLAG", message, next_step="leave out one of the two")
            options = " or ".join(f"--{flag} {answer}" for answer in fitting_answers)
            verb = "have it" if len(fitting_answers) == 1 else "protect users"
            message = f"{question.option} is given, but --{flag} does not {verb}"
            raise OdError("OD-INIT-FLAG", message, next_step=f"leave out {question.option}, or give {options}")
        return bool(unmet)

    def _answer_rows(self, question: Question) -> bool:
        """Answer whether each row is one trip, from the files or at the terminal, and return whether it was asked.

        At the terminal, the answer is ``yes`` or the name of an unused column with the number of trips. Elsewhere,
        raises OdError if the files leave it unclear.
        """
        ambiguity = find_row_ambiguity(self.answers, self.fields)
        self.answers[question.flag] = "" if ambiguity is None else "true"
        if ambiguity is None:
            return False
        error, unused_columns = ambiguity
        if error is None:
            return False
        if not self.at_terminal:
            raise error
        _tell(f"{error.message}.")
        while True:
            reply = self._prompt(question, question.asks, "")
            if reply in unused_columns:
                self.answers |= {choose_number_flag(self.answers): reply, question.flag: ""}
                return True
            if reply.lower() in ("yes", "y", "true"):
                return True
            say("init.answer")

    def _can_ask(self, question: Question) -> bool:
        """Return whether a question can be asked at the terminal: it has no answer that was given beforehand."""
        return self.at_terminal and self.given.get(question.flag) is None

    def _is_needless(self, question: Question) -> bool:
        """Return whether the files show that a question need not be asked at the terminal."""
        if not (self._can_ask(question) and question.asked_if):
            return False
        return not evaluate_expression(question.asked_if, self.known, self.fields)

    def _suggest_answer(self, question: Question) -> str:
        """Return the answer that the files suggest at the terminal; "" if there is none."""
        if not (self._can_ask(question) and question.offers):
            return ""
        return evaluate_expression(question.offers, self.known, self.fields) or ""

    def _accept_answer(self, question: Question) -> bool:
        """Add an answer that fits to the answers, and return whether it was asked; at the terminal, ask until one fits.

        Elsewhere, raises OdError if the given or default answer does not fit.
        """
        known = self.known
        is_needed = question.required and all(flag in known for flag in question.needs)
        offer = self._suggest_answer(question)
        answer = self.given.get(question.flag)
        was_asked = False
        while True:
            refused_answer = self.answers.get(question.flag)
            if answer is None:
                was_asked = self.at_terminal
                answer = self._ask_with_default(question, offer, is_needed) if was_asked else question.default
            answer = (answer.lower() if question.is_word else answer).strip()
            self.answers[question.flag] = answer
            try:
                self._check_answer(question, answer, is_needed)
            except OdError as error:
                is_repeated = answer != "" and answer == refused_answer
                if not (is_repeated and self._is_confirmed(question.flag)):
                    self._tell_fault(question, answer, error)
                    answer = None
                    continue
            return was_asked

    def _ask_with_default(self, question: Question, offer: str, is_needed: bool) -> str:
        """Ask a question once; an empty line means the offer, the default, or ``none``, which leaves the field out."""
        is_of_single_release = self.answers.get("every") == SINGLE
        asks = question.if_single if question.if_single and is_of_single_release else question.asks
        may_be_left_out = not is_needed and not question.may_need_answer
        default = offer or question.default
        if not default and may_be_left_out:
            default = "none"
        return self._prompt(question, asks, default)

    def _check_answer(self, question: Question, answer: str, is_needed: bool) -> None:
        """Raise OdError if an answer is missing, or does not fit the files or, at the terminal, the answers before."""
        flag = question.flag
        if is_needed and not answer:
            message = f"{question.option} is missing: {question.asks}"
            raise OdError("OD-INIT-FLAG", message, next_step=f"give {question.option}")
        if flag in CHECKS_OF_FILES:
            CHECKS_OF_FILES[flag](self.answers, self.fields)
        # Without a terminal, the whole declaration is judged, once.
        if self.at_terminal and flag in CHECKS_OF_VALUES and (answer or question.may_need_answer):
            # Prefixes given beforehand belong to the levels.
            prefixes = self.given.get("prefixes") if flag == "levels" else None
            answers = {**self.answers, "prefixes": prefixes} if prefixes else self.answers
            CHECKS_OF_VALUES[flag](answers, self.fields)

    def _is_confirmed(self, flag: str) -> bool:
        """Return whether an answer that was refused is accepted if it is given again."""
        return flag in _CONFIRMED and _CONFIRMED[flag](self.answers, self.fields)

    def _tell_fault(self, question: Question, answer: str, error: OdError) -> None:
        """Show the fault of an answer at the terminal; raise it where no other answer to the question can help."""
        is_of_file = question.flag == "reader" and not answer  # no reader is named, so the file itself is at fault
        if not self.at_terminal or is_of_file:
            raise error
        if answer or question.may_need_answer:
            # Here, an answer is typed without its option: "give --date and a column" reads "give a column".
            step = re.sub(r"(--\w[\w-]* or )?--(?!set)\w[\w-]* and |--(?!set)", "", error.next_step)
            _tell(f"{error.message}: {step}.")
        else:
            say("init.answer")

    def _clear_unfit_answers(self, flag: str) -> None:
        """Clear answers that do not fit the one to ``flag``, such as a column of ids if trips are protected."""
        for question in QUESTIONS:
            fitting_answers = question.needs.get(flag)
            is_unfit = fitting_answers is not None and self.answers[flag] not in fitting_answers
            if is_unfit and self.answers.get(question.flag):
                self.answers[question.flag] = ""

    def _show_files(self, question: Question) -> None:
        """Show the columns of the files that the answer names.

        Without a terminal, nothing is shown after the questions on the reader and the path of zones, since later
        questions show the same files.
        """
        if not question.shows or not (self.at_terminal or question.flag not in ("reader", "zones")):
            return
        # Columns of ids are shown as used, also before the questions on them.
        given_early = {flag: self.given[flag] or "" for flag in ("unit", "column") if self.given.get(flag)}
        describe = describe_records if question.shows == "records" else describe_zones
        for line in describe({**given_early, **self.answers}, self.fields):
            if line not in self.told:
                _tell(line)
            self.told.add(line)

    def _prompt(self, question: Question, asks: str, offer: str) -> str:
        """Ask a question at the terminal, and return the answer, without quotes; empty if it is ``none``.

        The advice is shown before the question is first asked, and again for the answer ``?``. Raises _Back for the
        answer ``back``, and typer.Abort for ``quit``.
        """
        while True:
            if question.advice and question.advice not in self.told:
                console.print(question.advice, style="dim")
            self.told.add(question.advice)
            answer: str = typer.prompt(asks, default=offer, show_default=bool(offer)).strip()
            if answer[:1] == answer[-1:] and answer[:1] in ("'", '"'):  # pasted from a command line
                answer = answer[1:-1].strip()
            if answer.lower() == "back":
                raise _Back
            if answer.lower() == "quit":
                raise typer.Abort
            if answer != "?":
                return "" if answer.lower() == "none" else answer
            self.told.discard(question.advice)
            say("init.help", place=question.place.rpartition(":")[2], option=question.option)


def _tell(line: str) -> None:
    """Print a line, which the terminal may wrap."""
    console.print(line, soft_wrap=True)


_CONFIRMED: dict[str, Callable[[Answers, Fields], bool]] = {
    "records": lambda answers, _fields: find_newest_file(answers["records"]) is None,
    "levels": can_levels_be_prefixes,
}
"""Functions that say whether an answer that was refused is accepted if it is given again, by flag of the question."""
