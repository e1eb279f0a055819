"""Templates: what a value holds stays a value, in every format, and a fact that is not there is an error."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import DictLoader

from od_core.languages import ENGLISH, list_languages, use_language
from od_core.publication import templates
from od_core.publication.templates import format_sentence, render_data, render_template

HOSTILE = "</script><b>&amp; {{ 7 * 7 }} {% if %} \"quoted\" 'too' | a: [b](c) `d` # e"
FOLDER = Path(templates.__file__).with_name("templates")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have templates by name instead of those of the package."""

    def have(texts: Mapping[str, str]) -> None:
        for ending in {name.rpartition(".")[2] for name in texts}:
            monkeypatch.setattr(templates._make_environment(ending, ENGLISH), "loader", DictLoader(texts))
        monkeypatch.setattr(templates, "_read_yaml_template", lambda name: yaml.load(texts[name], templates._Loader))  # noqa: S506

    return have


def test_a_value_is_data_in_every_format(given: Any) -> None:
    markup = {"a.html": "<p>{{ x }}</p>", "a.md": "| {{ x }} |"}
    data = {"a.json": '{"x": {{ x }}, "of": [{{ "a " ~ x }}]}', "a.yaml": "x: '{{ x }}'\n'y': a {{ x }}\nz: !fact x"}
    given(markup | data)
    assert render_template("a.html", x="<b>&") == "<p>&lt;b&gt;&amp;</p>"
    assert render_template("a.md", x="<b>|*") == "| &lt;b&gt;\\|\\* |"
    assert json.loads(render_template("a.json", x=HOSTILE)) == {"x": HOSTILE, "of": [f"a {HOSTILE}"]}
    assert render_data("a.json", x=HOSTILE) == {"x": HOSTILE, "of": [f"a {HOSTILE}"]}
    assert render_data("a.yaml", x=HOSTILE) == {"x": HOSTILE, "y": f"a {HOSTILE}", "z": HOSTILE}


def test_a_name_that_is_not_there_is_an_error_like_that_of_a_dictionary(given: Any) -> None:
    data = {"a.yaml": "a: '{{ x.y }}'", "b.yaml": "a: !fact x.y.z", "a.json": "{{ x.y }}"}
    given({"a.html": "{{ x.y }}", "b.html": "{{ z }}", **data})
    for name in ("a.html", "a.json", "a.yaml", "b.yaml"):
        with pytest.raises(KeyError, match="y"):
            (render_template if name.endswith("html") else render_data)(name, x={})
    with pytest.raises(KeyError, match="z"):
        render_template("b.html")


def test_texts_of_data_use_those_before_them_and_facts_that_are_none_are_left_out(given: Any) -> None:
    text = """
    first: >-
      {% if n > 1 %}
      many,
      {% endif %}
      {{ n }}
    second: "{{ first }} again"
    number: !fact n + 1
    absent: !fact none
    none: null
    inner: {absent: !fact none, list: ["{{ second }}", !fact n]}
    lines: |-
      - {{ n }}
      {% if n > 9 %}
      - large
      {% endif %}
      - end
    """
    given({"a.yaml": text})
    again = "many, 2 again"
    expected = {"first": "many, 2", "second": again, "number": 3, "none": None, "lines": "- 2\n- end"}
    assert render_data("a.yaml", n=2) == expected | {"inner": {"list": [again, 2]}}


@pytest.mark.parametrize("language", [ENGLISH, *list_languages()])
def test_every_template_can_be_read(language: str) -> None:
    """A template or a translation with a fault is found, even if no test fills it in."""

    def compile_texts(part: object) -> None:
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            compile_texts(inner)
        if isinstance(part, str):
            templates._compile_template(part, language)

    with use_language(language):
        for path in FOLDER.rglob("*.*"):
            name, ending = path.relative_to(FOLDER).as_posix(), path.suffix[1:]
            if ending == "yaml":
                compile_texts(templates._read_yaml_template(name))
            else:
                templates._make_environment(ending, language).get_template(name)


def test_sentences() -> None:
    assert [format_sentence(text) for text in ("", "a", "a.", "B b")] == ["", "A.", "A.", "B b."]
