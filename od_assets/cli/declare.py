"""Read the questions of ``od-release init`` from ``questions.toml``, and write declarations as YAML."""

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, write_durably
from od_core.privacy.unit import RECORDS_OF

Answers = Mapping[str, str]
"""Answers by flag of the question."""

Fields = Mapping[str, str]
"""Additional fields of the release's declaration, by path of the field."""


def as_list(answer: str) -> list[str]:
    """Return the parts of a comma-separated answer."""
    return [part.strip() for part in answer.split(",")]


def as_yaml(answer: str) -> object:
    """Return an answer parsed as YAML with text values only; return it unchanged if it is not valid YAML.

    Numbers and dates stay text, because codes and periods look like them. Number fields accept text too.
    """
    try:
        return yaml.load(answer, Loader=yaml.BaseLoader)  # noqa: S506  # it makes only texts, lists and mappings
    except yaml.YAMLError:
        return answer


def as_number(answer: str) -> int | str:
    """Return a whole number as int, and any other answer unchanged, which the declaration's own checks then judge."""
    return int(answer) if answer.isascii() and answer.isdigit() else answer


def as_mapping(answer: str) -> Any:
    """Return the mapping of an answer such as ``province=3,region=1``, with values as :func:`as_yaml` returns them.

    A part without ``=`` has an empty value.
    """
    mapping = {}
    for part in answer.split(","):
        name, _, value = part.partition("=")
        mapping[name.strip()] = as_yaml(value)
    return mapping


def as_place(answer: str) -> str | list[str]:
    """Return the name of a column of codes; for ``lon,lat`` or ``[point]``, the list of the columns of points."""
    is_of_points = "," in answer or answer.startswith("[")
    return as_list(answer.strip("[]")) if is_of_points else answer


READERS: Mapping[str, Callable[[str], object]] = {
    "text": str,
    "list": as_list,
    "yaml": as_yaml,
    "number": as_number,
    "numbers": lambda answer: [as_number(part.strip()) for part in answer.split(",")],
    "mapping": as_mapping,
    "place": as_place,
}
"""Functions that return the value of an answer, by the name that a question gives."""


UNITS = {
    "": (),
    "users": tuple(kind for kind, records in RECORDS_OF.items() if records.is_of_users),
    "year": tuple(kind for kind, records in RECORDS_OF.items() if records.is_of_year),
}
"""Privacy units for which a question is asked, by the name that a question gives; without one, it is for all units."""


@dataclass(frozen=True)
class Question:
    """A question whose answer fills a field of a declaration; ``questions.toml`` describes the attributes.

    The flag is the option of the command line, without dashes and with underscores.
    """

    flag: str
    asks: str
    place: str
    required: bool = False
    default: str = ""
    read: str = "text"
    kinds: Sequence[str] = ()
    units: str = ""
    advice: str = ""
    shows: str = ""
    may_need_answer: bool = False
    help: str = ""
    if_single: str = ""
    offers: str = ""
    asked_if: str = ""
    is_word: bool = False
    of_list: bool = False

    @property
    def needs(self) -> dict[str, Sequence[str]]:
        """Answers with which the question is asked, by the flag of the question that they answer."""
        required_answers = {"kind": self.kinds, "unit": UNITS[self.units], "outline": ("",) if self.of_list else ()}
        return {flag: answers for flag, answers in required_answers.items() if answers}

    @property
    def option(self) -> str:
        """Name of the option on the command line, such as ``--zones``."""
        return f"--{self.flag.replace('_', '-')}"


_STATED = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))
QUESTIONS = tuple(Question(flag, **stated) for flag, stated in _STATED.items())


def parse_field_values(given: list[str]) -> Fields:
    """Return the values of ``--set FIELD=VALUE``, by path of the field.

    Raises OdError if one is not a field and a value, or the field is ``name``.
    """
    fields = {}
    for text in given:
        field, _, value = text.partition("=")
        if not all(part.strip() for part in (*field.split("."), value)):
            message = f"--set {text!r} is not a field and a value"
            step = "give --set FIELD=VALUE, such as --set geography.unknown=264"
            raise OdError("OD-INIT-FLAG", message, next_step=step)
        if field == "name":
            message = f"--set {text!r} would name the release, which is the first argument"
            raise OdError("OD-INIT-FLAG", message, next_step=f"leave it out, or call od-release init {value}")
        fields[field] = value
    return fields


def make_release_attributes(answers: Answers, fields: Fields) -> dict[str, Any]:
    """Return the nested attributes of a release's declaration, from answers and additional fields.

    The fields replace what the answers say.
    """
    declared = make_file_attributes(answers, "")
    for path, value in fields.items():
        _set_field(declared, path, as_yaml(value))
    return declared


def make_file_attributes(answers: Answers, of_file: str) -> dict[str, Any]:
    """Return the nested attributes that answers declare in one file.

    ``of_file`` is empty for the file of the release, and ``domain`` for that of its data set. The bounds of a unit of a
    year are declared in the file of the data set.
    """
    declared: dict[str, Any] = {}
    for question in QUESTIONS:
        is_moved = question.flag in ("max_trips", "max_trips_pair") and answers.get("unit") in UNITS["year"]
        path = f"domain:{question.place}" if is_moved else question.place
        file, _, field = path.rpartition(":")
        if file == of_file and answers.get(question.flag):
            _set_field(declared, field, READERS[question.read](answers[question.flag]))
    return declared


def _set_field(declared: dict[str, Any], place: str, value: object) -> None:
    """Set a field in nested attributes. ``place`` is its path, with dots between the names of the sections.

    Sections that are absent are added.
    """
    *section_names, name = place.split(".")
    section = declared
    for section_name in section_names:
        if not isinstance(section.get(section_name), dict):
            section[section_name] = {}
        section = section[section_name]
    section[name] = value


_WIDTH = 110
"""Maximum number of characters in a line of YAML."""


def format_yaml_block(declared: Mapping[str, object], indent: int = 0) -> str:
    """Return YAML with one line per field. A section that does not fit on a line has one line per field of its own."""
    lines = ""
    for name, value in declared.items():
        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True)
        line = " " * indent + f"{name}: " + text.removesuffix("\n").removesuffix("\n...") + "\n"
        if len(line) > _WIDTH and isinstance(value, dict):
            line = f"{' ' * indent}{name}:\n{format_yaml_block(value, indent + 2)}"
        lines += line
    return lines


@contextmanager
def refuse_unwritable_file(named: str, next_step: str, code: str = "OD-INIT-WRITE") -> Iterator[None]:
    """Raise OdError in place of an OSError in this context, in which a file is written.

    The message calls the file ``named``, and ``code`` is the code of the error.
    """
    try:
        yield
    except OSError as error:
        raise OdError(code, f"{named} cannot be written: {error.strerror}", next_step=next_step) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file that everybody may read. The file is whole or absent."""
    write_durably(path, lambda file: file.write_text(text, encoding="utf-8"), mode=PUBLIC_FILE_MODE)
