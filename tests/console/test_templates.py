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


def test_passwords_are_neither_kept_during_a_login_nor_shown_again() -> None:
    inputs = [field for text in TEMPLATES.values() for field in _INPUT.findall(text)]
    fields = [field for field in inputs if re.search("type=[\"']?password", field)]
    names = {name for field in fields for name in re.findall(' name="([^"]+)"', field)}
    assert {"password", "current"} <= names <= set(SECRETS) and len(fields) >= len(names)
    assert not [field for field in fields if "value=" in field]
