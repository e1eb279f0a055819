"""Read sections of YAML files, so that an error names the line of the value."""

import glob
import os
import re
from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from datetime import date
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Self, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from od_assets.project import Project, find_current_project
from od_core.errors import OdError, hide_in_errors, suggest_known_names
from od_core.files.durable import read_file_state

_MAX_VALUES = 100_000
"""Largest number of values, names included, in a document. A large declaration has some hundred."""


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a mapping in which a name is written twice. YAML would keep the last value.

    It also refuses aliases that stand for more than :data:`_MAX_VALUES` values: a few lines can stand for billions.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """Return the value of a document. Raises ConstructorError if it stands for too many values."""
        if _count_nodes(node, {}) > _MAX_VALUES:
            raise yaml.constructor.ConstructorError(
                None, None, f"its aliases (*) stand for more than {_MAX_VALUES:,} values", node.start_mark
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the value of a mapping. Raises ConstructorError if a name is written twice in it."""
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        names = [key.value for key in keys]
        for key in keys:
            if names.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is written twice", key.start_mark)
        return super().construct_mapping(node, deep=deep)


def _count_nodes(node: yaml.Node, known_counts: dict[int, int]) -> int:
    """Return the number of nodes in a node and below it, where each alias counts as all that it stands for.

    ``known_counts`` has the numbers of the nodes that were counted before, by ``id``, and is extended. A node that
    contains itself counts as more than :data:`_MAX_VALUES`.
    """
    if id(node) not in known_counts:
        known_counts[id(node)] = _MAX_VALUES + 1  # found only if the node is reached again from within itself
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = list(chain.from_iterable(node.value))  # pairs of a key and a value
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        known_counts[id(node)] = 1 + sum(_count_nodes(child, known_counts) for child in children)
    return known_counts[id(node)]


def read_yaml_documents(path: Path, where: str) -> list[Any]:
    """Return the YAML documents of a file, as values that the caller may change. Messages name the file ``where``.

    Raises OdError if the file cannot be opened, is not UTF-8 text or is not valid YAML. Of a fault in the YAML, the
    message names the line if the parser knows it.
    """
    try:
        text = read_declaration_content(path).decode()
        return deepcopy(_parse_documents(text))  # a copy, because the parsed documents are cached for all callers
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" (line {error.problem_mark.line + 1})"
        raise _make_file_error(where, f"is not valid YAML{line}: {error.problem}") from None
    except OSError as error:
        raise _make_file_error(where, f"cannot be opened: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _make_file_error(where, "is not UTF-8 text") from None
    except RecursionError:
        raise _make_file_error(where, "is not valid YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError):  # a character, a number or a date
        raise _make_file_error(
            where, "is not valid YAML: it has a character, a number or a date that cannot be read"
        ) from None


def read_declaration_content(path: Path) -> bytes:
    """Return the content of a declaration, from the cache if the file has not changed since it was read.

    Raises OSError if the file cannot be read.
    """
    return _read_content(path, *read_file_state(path))


@lru_cache(maxsize=64)
def _read_content(path: Path, *_state: int) -> bytes:
    """Return the content of a file. ``_state`` is part of the key of the cache, so a changed file is read again."""
    return path.read_bytes()


@lru_cache(maxsize=64)
def _parse_documents(text: str) -> list[Any]:
    """Return the documents of a text. All series of a data set read its file, so the same texts are parsed often."""
    return list(yaml.load_all(text, Loader=_Loader))  # a safe loader


def find_field_line(path: Path, field: Sequence[str]) -> int | None:
    """Return the line number of a field in a YAML file, from 1; of the innermost section that is written without it.

    Return None if not even the outermost section is written. :func:`read_yaml_documents` must be able to read the file.

    Args:
        field: names of the sections, from the outermost one, and of the field; for an item of a list, its index from 0.
    """
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader)
    line = None
    for name in field:
        keys_and_values = {}
        if isinstance(node, yaml.MappingNode):
            keys_and_values = {key.value: (key, value) for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            keys_and_values = {str(number): (value, value) for number, value in enumerate(node.value)}
        if name not in keys_and_values:
            break
        key, node = keys_and_values[name]
        line = key.start_mark.line + 1
    return line


def _make_file_error(where: str, message: str) -> OdError:
    """Return the error for a file of the declarations that cannot be read."""
    return OdError("OD-CONFIG", f"{where} {message}", next_step="correct the file", file=where)


Number = float | int | str
"""A decimal number. YAML reads 1e-8 as text and 1.0e-8 as a float; both are valid for the same number."""


_TEMPLATE = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_VARIABLE = re.compile(
    r"\{\{ *(?:env(?:\.(?P<name>\w+)|\((?P<quote>['\"])(?P<called>\w+)(?P=quote)"
    r"(?: *, *(?P<other>['\"])(?P<default>.*?)(?P=other))? *\))|(?P<root>(?:context\.)?project_root)) *\}\}"
)
"""Patterns of a template in a text of a declaration, and of one that this package replaces, as Dagster's components do.

``{{ env.LAKE }}`` and ``{{ env('LAKE') }}`` stand for the environment variable ``LAKE``, ``{{ env('LAKE', 'data') }}``
for ``data`` if it is not set, and ``{{ project_root }}`` or ``{{ context.project_root }}`` for the project's folder.
"""


def _complete_schema(schema: dict[str, Any], section: type[BaseModel]) -> None:
    """Add to the JSON schema of a section what pydantic does not write: descriptions, templates and nested sections."""
    properties: dict[str, dict[str, Any]] = schema.setdefault("properties", {})
    for name, field in section.model_fields.items():
        key = field.alias or name
        if key in properties and field.description is not None:
            properties[key]["description"] = field.description
    for field_schema in properties.values():
        _compare_mappings_with_section(field_schema)
        if "enum" in field_schema:  # a template may stand for one of the values
            field_schema |= {"if": {"pattern": r"\{\{"}, "then": {}, "else": {"enum": field_schema.pop("enum")}}


def _compare_mappings_with_section(field_schema: dict[str, Any]) -> None:
    """Let ``dg check yaml`` compare a mapping with the one section among a field's alternatives, if there is one.

    An optional field has the alternative null, and an error would only say that none of the alternatives fits. With
    this change, it names the fault within the section.
    """
    alternatives = field_schema.get("anyOf", ())
    sections = [alternative for alternative in alternatives if "$ref" in alternative]
    if len(sections) == 1:
        del field_schema["anyOf"]
        field_schema |= {"if": {"type": "object"}, "then": sections[0], "else": {"anyOf": alternatives}}


def read_sibling_yaml(module: str, name: str) -> Any:
    """Return the content of a YAML file of this package, given its name and the path of a module in its folder."""
    return yaml.load(Path(module).with_name(name).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


_DESCRIPTIONS: dict[str, dict[str, str]] = read_sibling_yaml(__file__, "fields.yaml")


class Section(BaseModel):
    """A section of a declaration. True and false are accepted only for fields that are switches.

    ``fields.yaml`` describes the fields. They are shown in Dagster's reference, in ours, and by ``dg check yaml``.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra=_complete_schema, hide_input_in_errors=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        for name, field in cls.model_fields.items():
            field.description = _DESCRIPTIONS.get(cls.__name__, {}).get(field.alias or name, field.description)

    @field_validator("*", mode="before")
    @classmethod
    def with_variables(cls, value: Any, field: ValidationInfo) -> Any:
        """Return the value of a field with its environment variables; a section's own fields replace theirs.

        Raises ValueError for true and false in a field that is not a switch, and for a variable that is not set.
        """
        annotation = cls.model_fields[str(field.field_name)].annotation
        if isinstance(value, bool) and bool not in (annotation, *get_args(annotation)):
            raise ValueError("true and false are not valid here")
        return value if _has_sections(annotation) else substitute_environment_variables(value)


DECLARATION = "defs.yaml"
"""Name of the file of a declaration."""

WAREHOUSE = "od_assets.components.OdWarehouse"
"""Type of the component that declares what all releases of a project share."""


def list_declaration_files(project: Project | None = None) -> list[Path]:
    """Return all files ``defs.yaml`` of a project, also those of other components, in the order of their paths.

    By default, the project is the current one.
    """
    defs = (project or find_current_project()).defs
    names = glob.glob(f"**/{DECLARATION}", root_dir=defs, recursive=True)  # noqa: PTH207  # it follows links, as Dagster does
    return [defs / name for name in sorted(names)]


def read_component_type(path: Path) -> str:
    """Return the component type that a declaration names; that of flows if it names none.

    The line is found without a parser, so that a declaration that is not valid YAML has a type, too.
    """
    lines = read_declaration_content(path).decode(errors="replace").splitlines()
    type_line = next((line for line in lines if line.startswith("type:")), "type: od_assets.components.OdRelease")
    return type_line.removeprefix("type:").partition(" #")[0].strip().strip("'\"")


class Prefix(Section):
    """The part of the warehouse's declaration that decides the names of releases."""

    key_prefix: str | None = Field(None, pattern="^[a-z][a-z0-9]{0,30}$")


def read_key_prefix(project: Project) -> list[str]:
    """Return the prefix of the asset keys of a project, as its warehouse declares it: one part, or none.

    Raises OdError if the declaration is not valid YAML, or the prefix is wrong.
    """
    path = next((path for path in list_declaration_files(project) if read_component_type(path) == WAREHOUSE), None)
    if path is None:
        return []
    where = f"{path.parent.name}/{path.name}"
    documents = read_yaml_documents(path, where)
    try:
        prefix = Prefix(key_prefix=documents[0]["attributes"].get("key_prefix")).key_prefix
    except ValidationError as error:
        fault = describe_first_fault(
            error.errors(), Prefix, lambda field: find_field_line(path, ["attributes", *field])
        )
        raise OdError("OD-CONFIG", f"{where}: {fault}", next_step="correct the declaration", file=where) from None
    except (AttributeError, IndexError, KeyError, TypeError):
        return []  # the warehouse has a fault of its own
    return [] if prefix is None else [prefix]


class Declaration(Section):
    """A declaration of a project: all attributes of a component."""

    _project: Project | None = PrivateAttr(None)

    def require_valid(self) -> Self:
        """Return the declaration if its values are valid. Raises OdError if one is wrong or does not fit others.

        By default, the types of the fields are the only check. Override this if values of a kind of declaration can be
        wrong although they have these types.
        """
        return self

    def with_project(self, project: Project) -> Self:
        """Return the declaration as one of a project; without this, the project is the current one."""
        copy = self.model_copy()
        for name in set(vars(copy)).difference(type(self).model_fields):
            del vars(copy)[name]  # a value that was computed for the other project
        copy._project = project
        return copy

    @cached_property
    def project(self) -> Project:
        """Project that declares it."""
        return self._project or find_current_project()

    @cached_property
    def prefix(self) -> list[str]:
        """Prefix of the asset keys of the project: one part, or none. Raises OdError if the warehouse is broken."""
        return read_key_prefix(self.project)


class Named(Declaration):
    """A declaration of assets and jobs that are called by its name."""

    stated_name: str = Field(..., alias="name")

    @property
    def path(self) -> list[str]:
        """Beginning of the keys of its assets, and of their groups: the prefix of the project, and the stated name."""
        return [*self.prefix, self.stated_name]

    @cached_property
    def name(self) -> str:
        """Name in release ids, bundles, jobs, run tags and folders; with the prefix of the project, if it has one."""
        return "_".join(self.path)


_ALTERNATIVE = re.compile(r"int|float|str|bool|\[key\]")
_COLLECTION = re.compile(r"(list|dict)\[.*")
"""Patterns of the names of types with which pydantic tells the alternatives of a field apart, and keys from values."""


def substitute_environment_variables(value: Any) -> Any:
    """Return a value of a declaration with the environment variables that its texts name, as in ``{{ env.LAKE }}``.

    No error of this process shows the value of such a variable.

    Raises:
        ValueError: a variable is not set, or a text has another template.
    """
    if isinstance(value, dict):
        return {name: substitute_environment_variables(part) for name, part in value.items()}
    if isinstance(value, list):
        return [substitute_environment_variables(part) for part in value]
    return _TEMPLATE.sub(_resolve_variable, value) if isinstance(value, str) else value


def _resolve_variable(template: re.Match[str]) -> str:
    """Return what a template stands for, and hide the value of an environment variable in messages."""
    match = _VARIABLE.fullmatch(template[0])
    if match is None:
        raise ValueError("a template can only name a variable of the environment, as in {{ env.LAKE }}")
    if match["root"]:
        return str(find_current_project().folder)
    name = match["name"] or match["called"]
    if name in os.environ:
        hide_in_errors(os.environ[name], f"{{{{ env.{name} }}}}")
        return os.environ[name]
    if match["default"] is None:
        raise ValueError(f"the environment variable {name} is not set")
    return match["default"]


def _has_sections(annotation: Any) -> bool:
    """Return whether a field is a section, or has sections, whose own fields are read one by one."""
    return hasattr(annotation, "model_fields") or any(map(_has_sections, get_args(annotation)))


def _find_section(annotation: Any) -> Any:
    """Return the section class in a field's annotation, also if the field is optional; otherwise, the annotation."""
    if get_origin(annotation) is dict:
        return annotation
    return next((part for part in get_args(annotation) if hasattr(part, "model_fields")), annotation)


def describe_first_fault(
    faults: Sequence[ErrorDetails], section: Any, line: Callable[[list[str]], int | None] | None = None
) -> str:
    """Return the field and one fault of a validation error, with the most similar known name for an unknown field.

    An unknown field is reported before a missing field, because it may be a misspelling of the missing one. If a field
    has alternatives, the fault of the alternative that fits best is reported. Names of classes and types that pydantic
    adds to the path are left out.

    Args:
        faults: faults of the validation error, at least one.
        section: class that was validated.
        line: function that returns the line of a field, which is stated after its name; None if there is no file.
    """
    fault = _choose_fault(faults)
    path, known = _locate_fault(section, fault)
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message += f" ({suggest_known_names(path[-1], known)})"
    elif len(path) > 1 and _ALTERNATIVE.fullmatch(path[-1]):
        *path, alternative = path
        message = "Input should be a number" if alternative in ("int", "float") else message
    if fault["type"] == "string_type" and isinstance(fault["input"], int | float | date):
        message += ": to YAML, this is a number, a date or a yes or no, so write it in quotes"
    number = None if line is None else line(path)
    place = "" if number is None else f" (line {number})"
    return f"{'.'.join(path)}{place}: {message}"


def _choose_fault(faults: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the fault of an unknown field if there is one; otherwise the most deeply nested fault of the first field.

    The alternative that fits best has the fault that is nested most deeply.
    """
    unknown = next((fault for fault in faults if fault["type"] == "extra_forbidden"), None)
    first_field = faults[0]["loc"][:1]
    of_first_field = [fault for fault in faults if fault["loc"][:1] == first_field]
    return unknown or max(of_first_field, key=lambda fault: len(fault["loc"]))


def _locate_fault(section: Any, fault: ErrorDetails) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of the fields that lead to a fault, and all field names of the innermost section among them.

    Names of classes and types, which pydantic adds to the path, are left out.
    """
    path: list[str] = []
    annotations: dict[str, Any] = {}
    for name in map(str, fault["loc"] or [""]):  # "" for the whole document
        if name == getattr(section, "__name__", None) or _COLLECTION.fullmatch(name):
            continue
        path.append(name)
        declared = getattr(section, "model_fields", {}).items()
        annotations = {field.alias or field_name: field.annotation for field_name, field in declared}
        is_dict = get_origin(section) is dict
        section = _find_section(get_args(section)[1] if is_dict else annotations.get(name))
    return path, tuple(annotations)
