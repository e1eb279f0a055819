"""The command ``od-release init``: declare a new release."""

import inspect
import sys
from typing import Annotated

import typer

from od_assets.cli.init_questions import QUESTIONS, Question, further_fields
from od_assets.cli.releases import plan
from od_assets.terminal import console


def init(
    name: Annotated[
        str, typer.Argument(help="Name of the release and of its data set: lower-case letters, digits, _.")
    ],
    further: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other field, such as geography.unknown=264; can be given more than once."),
    ] = None,
    **given: str | None,
) -> None:
    """Declare a new release: ask for the missing options, write its files, and print its plan. Releases nothing."""
    from od_assets.cli.init_answers import answered
    from od_assets.cli.new_declaration import initialize, places_of

    places_of(name)  # refuses a taken name before any question
    fields = further_fields(further or [])
    ask = _asked if sys.stdin.isatty() else None
    answers = answered(given, ask, lambda line: console.print(line, soft_wrap=True), fields)
    files, area_counts = initialize(name, answers, fields)
    areas = ", ".join(f"{number} {level}" for level, number in area_counts.items())
    written = "\n".join(map(str, files))
    console.print(f"Areas: {areas}.\nWritten:\n{written}\n", soft_wrap=True)
    plan(name)


def _with_options(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature of ``init`` in which every question has an option of its own, which Typer reads."""
    name, further, _ = signature.parameters.values()
    options = [
        inspect.Parameter(
            question.flag,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(help=question.asks)],
        )
        for question in QUESTIONS
    ]
    return signature.replace(parameters=[name, *options, further.replace(kind=inspect.Parameter.KEYWORD_ONLY)])


init.__signature__ = _with_options(inspect.signature(init, eval_str=True))  # type: ignore[attr-defined]


def _asked(question: Question) -> str:
    """Ask a question at the terminal, after its advice, and return the answer."""
    if question.advice:
        console.print(question.advice, style="dim")
    answer: str = typer.prompt(question.asks, default=question.default, show_default=bool(question.default))
    return answer
