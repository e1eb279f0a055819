"""Write the tables of the documentation that follow from the code, and link the citations of its site.

``make pages`` writes what the code says between ``<!-- commands -->`` and ``<!-- end -->`` in a page, and a test fails
where a page says something else. MkDocs calls :func:`on_config` and :func:`on_page_content` when it builds the site
(``hooks`` in ``mkdocs.yml``).
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import error_codes
import notebook_cells

BIBLIOGRAPHY = Path(__file__).parent / "references.bib"
SOURCES = "reference/sources.md"
DECISIONS = "decisions"

_MADE = re.compile(r"^<!-- (\w+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
"""What a page has from the code, with the comments around it."""


def fill_page(page: str) -> str:
    """Return the text of a page with what the code says now between its comments."""
    return _MADE.sub(lambda found: f"<!-- {found[1]} -->\n\n{make_text(found[1])}\n\n<!-- end -->", page)


def make_text(name: str) -> str:
    """Return what the code says, without spaces at the ends of lines."""
    return re.sub(r" +$", "", "\n".join(MADE[name]()).strip(), flags=re.MULTILINE)


def on_config(config: Any) -> Any:
    """Replace the folder of decisions in the navigation of the site by its pages, in the order of their numbers."""
    pages = sorted(Path(config["docs_dir"], DECISIONS).glob("*.md"))
    [explanation] = (section["Explanation"] for section in config["nav"] if "Explanation" in section)
    [decisions] = (entry for entry in explanation if DECISIONS in entry.values())
    decisions["Decisions"] = [f"{DECISIONS}/{page.name}" for page in pages]
    return config


def on_page_content(html: str, page: Any, files: Any, **_: Any) -> str:
    """Link citations to their sources, and the roles of docstrings to the objects that they name."""
    url = files.get_file_from_path(SOURCES).url_relative_to(page.file)
    keys = "|".join(entries())
    cited = re.compile(rf"\[(?=(?:{keys})\b)[^\]<]*\]")
    key = re.compile(rf"\b({keys})\b")
    html = cited.sub(lambda found: key.sub(rf'<a href="{url}#\1">\1</a>', found[0]), html)
    return re.sub(r":(?:class|func|meth|mod|attr|data|exc):<code>~?([^<]+)</code>", _object, html)


def _object(found: re.Match[str]) -> str:
    name = found[1] if found[1].startswith("od_") else f"od_core.{found[1]}"
    shown = found[1].rpartition(".")[2] if found[0].find("~") > 0 else found[1]
    return f'<autoref optional identifier="{name}"><code>{shown}</code></autoref>'


def entries() -> dict[str, dict[str, str]]:
    """Return the entries of the bibliography by key, as plain text."""
    found = {}
    for key, fields in re.findall(r"@\w+\{(\w+),\n(.*?)\n\}", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.DOTALL):
        found[key] = {name: _plain(text) for name, text in re.findall(r"^  (\w+) = \{(.*)\},?$", fields, re.MULTILINE)}
    return found


def _plain(text: str) -> str:
    for tex, sign in ((r"{\'e}", "é"), (r"\'e", "é")):
        text = text.replace(tex, sign)
    return text.replace("{", "").replace("}", "")


def sources() -> Iterator[str]:
    """Yield one paragraph for each entry of the bibliography, with its key as the anchor."""
    for key, entry in sorted(entries().items()):
        authors = entry["author"].replace(" and ", "; ")
        place = entry.get("journal") or entry.get("booktitle") or entry.get("publisher") or ""
        volume = " ".join(filter(None, [entry.get("volume", ""), f"({entry['number']})" if "number" in entry else ""]))
        address = f"https://doi.org/{entry['doi']}" if "doi" in entry else entry.get("url", "")
        said = [f"{authors} ({entry['year']}). *{entry['title']}*", ", ".join(filter(None, [place, volume]))]
        said += [entry.get("note", ""), f"<{address}>" if address else ""]
        yield f'<a id="{key}"></a>`{key}`: ' + ". ".join(filter(None, said)) + ".\n"


def commands() -> Iterator[str]:
    """Yield the commands of od-release, with their arguments and options."""
    from typer.main import get_command

    from od_assets.cli.app import app

    def described(path: str, command: Any) -> Iterator[str]:
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        usage = [f"[{each.name.upper()}]" if not each.required else each.name.upper() for each in arguments]
        yield f"\n## {path}\n\n{command.help or ''}\n"
        yield f"```\nod-release {' '.join([path, *usage, *(['[OPTIONS]'] if options else [])])}\n```\n"
        if arguments or options:
            yield "| argument or option | meaning |\n|---|---|"
        for each in (*arguments, *options):
            name = each.name.upper() if each in arguments else ", ".join(each.opts)
            has_default = each.default not in (None, False, "", ()) and not callable(each.default)
            shown = f" Default: {each.default}." if has_default else ""
            yield f"| `{name}` | {_cell(each.help or '')}{shown} |"
        for name, child in getattr(command, "commands", {}).items():
            yield from described(f"{path} {name}", child)

    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        yield from described(name, command)


def components() -> Iterator[str]:
    """Yield the keys of every component, section by section."""
    import od_assets.components as own

    seen: dict[Any, str] = {}
    series = own.OdRelease, own.OdCounts, own.OdGroupSizes, own.OdStops, own.OdReleases
    for component in (*series, own.OdSite, own.OdComparison, own.OdWarehouse):
        yield f"\n## {component.__name__}\n\n`type: od_assets.components.{component.__name__}`. {component.__doc__}\n"
        yield from _section(component, "attributes", seen)


def domain() -> Iterator[str]:
    """Yield the keys of a privacy domain."""
    from od_assets.series.series import DomainSection

    yield from _section(DomainSection, "a file of `defs/domains`", {})


def _section(section: Any, place: str, seen: dict[Any, str]) -> Iterator[str]:
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    nested = []
    for field_name, field in section.model_fields.items():
        name = field.alias or field_name
        within = dict.fromkeys((field.annotation, *_within(field.annotation)))
        parts = [part for part in within if hasattr(part, "model_fields")]
        nested += [(name, part) for part in parts]
        default = "required" if field.is_required() else _default(field)
        yield f"| `{name}` | {_type(field.annotation)} | {default} | {_cell(field.description)} |"
    for name, part in nested:
        where = name if place == "attributes" or place.startswith("a file") else f"{place}.{name}"
        if part in seen:
            first = seen[part]
            yield f"\n`{where}` has the keys of [`{first}`](#{first.replace('.', '')}-{part.__name__.lower()}).\n"
            continue
        seen[part] = where
        anchor = f"{where.replace('.', '')}-{part.__name__.lower()}"
        yield f'\n<a id="{anchor}"></a>\n\n### `{where}`\n\n{part.__doc__}\n'
        yield from _section(part, where, seen)


def _within(annotation: Any) -> Iterator[Any]:
    for part in get_args(annotation):
        yield part
        yield from _within(part)


def _type(annotation: Any) -> str:
    names = {
        "str": "text", "int": "whole number", "float": "number", "bool": "true or false", "list": "list",
        "dict": "mapping", "tuple": "list", "NoneType": "",
    }  # fmt: skip
    if get_args(annotation) and getattr(annotation, "__name__", "") not in ("list", "dict", "tuple"):
        parts = list(dict.fromkeys(filter(None, map(_type, get_args(annotation)))))
        if {"number", "whole number", "text"} <= set(parts):
            parts = ["number", *(part for part in parts if part not in ("number", "whole number", "text"))]
        return " or ".join(parts)
    if hasattr(annotation, "model_fields"):
        return "section"
    return names.get(getattr(annotation, "__name__", ""), "text")


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}) or hasattr(type(value), "model_fields"):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("{", "&#123;")


def errors() -> Iterator[str]:
    """Yield the classes of errors with their codes, causes and remedies."""
    from od_core import errors as library

    by_class: dict[str, list[error_codes.Raised]] = {}
    for one in error_codes.raised():
        by_class.setdefault(library.find_error_class(one.code).__name__, []).append(one)
    for name, each in by_class.items():
        yield f"\n## {name}\n\n{getattr(library, name).__doc__.strip()}\n"
        yield "| code | cause | remedy |\n|---|---|---|"
        for one in each:
            cause, remedy = (_escaped(text) or "see the message" for text in (one.cause, one.remedy))
            yield f"| `{one.code}` | {cause} | {remedy} |"


def estimators() -> Iterator[str]:
    """Yield the rules of estimation in the words of reports and of Dagster."""
    from od_core.flows.estimators import ESTIMATORS

    yield "| rule | what it makes of the measurements |\n|---|---|"
    for one in ESTIMATORS.values():
        yield f"| {_cell(one.texts['name'])} | {_cell(one.texts['words'])} |"


def published_group_sizes() -> Iterator[str]:
    """Yield the rows of ``group-sizes-fioretto.csv`` as one table per data set, with the levels in one cell."""
    shown = (
        "histogram|top_down|cumulative_nearest|cumulative_relaxed|cumulative_dp|cumulative|bottom_up_posterior, sizes"
    )
    file = Path(__file__).parent / "reference" / "tables" / "group-sizes-fioretto.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["paper_name"] or row["mechanism"] in shown.split("|")]
    for data_set, of_data_set in groupby(rows, key=itemgetter("data_set")):
        yield f"**{data_set.capitalize()}**\n"
        columns = ("L1", "L1 in the paper", "earth mover's distance", "violations", "runs", "seconds")
        yield f"| epsilon | mechanism | in the paper | {' | '.join(columns)} |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for (epsilon, mechanism), group in groupby(of_data_set, key=itemgetter("epsilon", "mechanism")):
            levels = list(group)
            sums = [
                " / ".join(f"{int(row[column]):,}" if row[column] else "-" for row in levels)
                for column in ("l1", "paper_l1", "distance")
            ]
            one = levels[0]
            violations = f"{one['violations']} ({one['paper_violations']})" if one["paper_name"] else one["violations"]
            cells = [
                epsilon,
                f"`{mechanism}`",
                one["paper_name"] or "-",
                *sums,
                violations,
                one["runs"],
                one["seconds"],
            ]
            yield f"| {' | '.join(cells)} |"
        yield ""


def _escaped(text: str) -> str:
    return _cell(text.replace("<", "&lt;").replace(">", "&gt;"))


def combinations() -> Iterator[str]:
    """Yield the formats of each kind of release, and the combinations of options that it refuses."""
    from od_core.meaning.features import list_possible_formats, list_usual_formats, read_support

    words = read_support().features
    for kind, name in read_support().kinds.items():
        possible = ", ".join(f"`{form}`" for form in list_possible_formats(kind, words.keys()))
        usual = ", ".join(f"`{form}`" for form in list_usual_formats(kind, words.keys()))
        yield f"\n## {name.capitalize()}\n\nFormats beside Parquet: {possible}; if none are chosen, {usual}.\n"
        yield "| refused | unless | code | reason |\n|---|---|---|---|"
        for row in read_support().by_kind[kind]:
            refused = ", ".join(words[each] for each in words if each in row.features)
            needed = " or ".join(words[each] for each in words if each in row.needs)
            yield f"| {_cell(refused)} | {_cell(needed)} | `{row.code}` | {_cell(row.reason)} |"


def modules() -> Iterator[str]:
    """Yield each package with its modules, and what they say of themselves first."""
    root = Path(__file__).parent.parent
    files = chain.from_iterable((root / top).rglob("__init__.py") for top in ("od_core", "od_assets"))
    for package in sorted(file.parent for file in files):
        yield f"\n**`{package.relative_to(root)}`**: {_summary(package / '__init__.py')}\n"
        for module in sorted(package.glob("[!_]*.py")):
            yield f"- `{module.name}`: {_summary(module)}"
    for folder in ("atlas/src", "atlas/src/planning"):
        yield f"\n**`{folder}`**\n"
        for module in sorted((root / folder).glob("*.ts")):
            yield f"- `{module.name}`: {_summary(module)}"


def _summary(module: Path) -> str:
    """Return the first line of what a module of Python or TypeScript says of itself."""
    source = module.read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(source)) or "" if module.suffix == ".py" else source.removeprefix("/** ")
    line = told.partition("\n")[0].removesuffix(" */").replace("``", "`")
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", line)


def performance() -> Iterator[str]:
    """Yield the rows of ``performance.csv``, and below them which states they are of."""
    file = Path(__file__).parent / "reference" / "tables" / "performance.csv"
    shown = ("case", "quantity", "this_state", "tagged_state", "ratio")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    yield f"| {' | '.join(shown).replace('_', ' ')} |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(row[name] or '-' for name in shown)} |"
    yield f"\nThis state is {rows[0]['state']}, and the tagged one {rows[0]['tag']}; measured on {rows[0]['date']}."


MADE: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "components": components,
    "domain": domain,
    "errors": errors,
    "estimators": estimators,
    "fioretto": published_group_sizes,
    "modules": modules,
    "notebook": notebook_cells.page,
    "performance": performance,
    "sources": sources,
    "support": combinations,
}

if __name__ == "__main__":
    for path in sorted(Path(__file__).parent.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (filled := fill_page(text)) != text:
            path.write_text(filled, encoding="utf-8")
