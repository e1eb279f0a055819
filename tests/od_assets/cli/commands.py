"""Commands of the command line, run in this process: what they print, what they state, and how they are refused."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from od_core import OdError


def command(*arguments: str, **options: Any) -> Result:
    """The result of a command, whatever it is."""
    return CliRunner().invoke(app, arguments, **options)


def printed(*arguments: str) -> str:
    """What a command prints that does what it is asked to do."""
    result = command(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def stated(*arguments: str) -> Any:
    """What such a command states as JSON."""
    return json.loads(printed(*arguments, "--json"))


def refusal(*arguments: str) -> OdError:
    """The error of a command that is refused: one line, with what to do. Nothing else is printed."""
    result = command(*arguments)
    assert isinstance(result.exception, OdError), result.output
    assert result.stdout == ""
    assert result.exception.next_step
    assert "\n" not in str(result.exception)
    return result.exception
