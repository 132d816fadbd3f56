"""Rules for the source of all templates."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

from openmsmq.console.pages import SECRETS

TEMPLATES: Final = {
    path.name: path.read_text() for path in (files("openmsmq.console") / "templates").iterdir() if path.is_file()
}
_INPUT: Final = re.compile(r"<input\b[^>]*>")
_VALUE: Final = re.compile(r'<(\w+)\b[^<]*?\bvalue=(?:"([^"]*)"|(\S*\{\{))')
_TEXT: Final = re.compile(r"<textarea\b[^>]*>(.*?)</textarea>", re.DOTALL)
_EXPRESSION: Final = re.compile(r"\{\{ (.*?) \}\}", re.DOTALL)
#: A whole expression, because a filter applies only to the operand next to it.
_EXACT: Final = re.compile(r"(\([^()]*(\([^()]*\)[^()]*)*\)|[\w.\[\]]+(\([^()]*\))?(\|\w+)*)\|exact")


def test_passwords_are_neither_kept_during_a_login_nor_shown_again() -> None:
    inputs = [field for text in TEMPLATES.values() for field in _INPUT.findall(text)]
    fields = [field for field in inputs if re.search("type=[\"']?password", field)]
    names = {name for field in fields for name in re.findall(' name="([^"]+)"', field)}
    assert {"password", "current"} <= names <= set(SECRETS) and len(fields) >= len(names)
    assert not [field for field in fields if "value=" in field]


def test_values_of_form_fields_are_not_rewritten() -> None:
    """Elsewhere, invisible characters are made visible. In a field, a browser would send back the escapes instead."""
    values = [
        value or unquoted for text in TEMPLATES.values() for tag, value, unquoted in _VALUE.findall(text)
        if tag != "progress"
    ]  # fmt: skip
    values += [content for text in TEMPLATES.values() for content in _TEXT.findall(text)]
    expressions = [expression for value in values for expression in _EXPRESSION.findall(value)]
    assert len(expressions) > 80 and len(expressions) == sum(value.count("{{") for value in values)
    assert not [expression for expression in expressions if not _EXACT.fullmatch(expression)]


def test_the_first_line_end_of_a_text_is_kept() -> None:
    """HTML drops a line end directly after the tag."""
    texts = [content for text in TEMPLATES.values() for content in _TEXT.findall(text)]
    assert texts and all(content.startswith("\n{{") for content in texts)
