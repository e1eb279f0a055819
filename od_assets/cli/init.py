"""The command ``od-release init``: declare a new release."""

import sys

import typer

from od_assets.cli.init_questions import Question, further_fields
from od_assets.cli.releases import plan
from od_assets.terminal import console


def init(name: str, further: list[str] | None = None, **given: str | None) -> None:
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


def _asked(question: Question) -> str:
    """Ask a question at the terminal, after its advice, and return the answer."""
    if question.advice:
        console.print(question.advice, style="dim")
    answer: str = typer.prompt(question.asks, default=question.default, show_default=bool(question.default))
    return answer
