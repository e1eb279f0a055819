"""Describe the arguments and options of commands to Typer, with the texts of ``options.toml``."""

import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

STATED = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))


def described(name: str, command: Callable[..., None], asked: Mapping[str, str]) -> Callable[..., None]:
    """Return the function of a command, with a signature that Typer reads.

    Args:
        asked: texts of the options that a function takes as ``**keywords``, by name. They follow its arguments.
    """
    texts: dict[str, Any] = {}
    for names, stated in STATED.items():
        texts |= stated if names == "*" or name in names.split(", ") else {}
    arguments, keywords, options = [], [], []
    signature = inspect.signature(command, eval_str=True)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            one = parameter.replace(kind=parameter.KEYWORD_ONLY, default=None)
            keywords = [_with(one.replace(name=each), typer.Option(help=text)) for each, text in asked.items()]
            continue
        if parameter.annotation is typer.Context:
            arguments.append(parameter)
            continue
        text, is_argument = texts[parameter.name], parameter.default is parameter.empty
        more = {"help": text} if isinstance(text, str) else dict(text)
        given = more.pop("names", [f"--{parameter.name.replace('_', '-')}"])
        if more.pop("is", "argument" if is_argument else "option") == "argument":
            arguments.append(_with(parameter, typer.Argument(**more)))
        else:
            options.append(_with(parameter, typer.Option(*given, **more)))
    command.__signature__ = signature.replace(parameters=[*arguments, *keywords, *options])  # type: ignore[attr-defined]
    return command


def _with(parameter: inspect.Parameter, info: Any) -> inspect.Parameter:
    return parameter.replace(annotation=Annotated[parameter.annotation, info], kind=parameter.KEYWORD_ONLY)
