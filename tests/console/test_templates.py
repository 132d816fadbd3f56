"""Rules for the source of all templates."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

import pytest

from openmsmq.console.pages import SECRETS

TEMPLATES: Final = {
    path.name: path.read_text() for path in (files("openmsmq.console") / "templates").iterdir() if path.is_file()
}
_INPUT: Final = re.compile(r"<input\b[^>]*>")


def test_passwords_are_neither_kept_during_a_login_nor_shown_again() -> None:
    fields = [
        field for text in TEMPLATES.values() for field in _INPUT.findall(text) if re.search("type=[\"']?password", field)
    ]
    names = {re.search(' name="([^"]+)"', field).group(1) for field in fields}  # type: ignore[union-attr]
    assert {"password", "current"} <= names <= set(SECRETS)
    assert not [field for field in fields if "value=" in field]
