"""Conversion of message filters in inputs to criteria and command options."""

from __future__ import annotations

from shlex import quote
from typing import Any, Final

from openmsmq.actions.errors import InputError
from openmsmq.admin.selection import Criteria
from openmsmq.model.reasons import find_reason

#: Fields of `Criteria` with the same name in inputs.
_SAME: Final = ("find", "label", "correlation", "destination", "older", "newer", "larger", "smaller", "text")
#: Field of inputs -> option of commands.
_OPTIONS: Final = {
    "find": "--find", "label": "--label", "correlation": "--correlation", "reason": "--reason",
    "destination": "--meant-for", "older": "--older", "newer": "--newer", "larger": "--larger", "smaller": "--smaller",
    "text": "--text",
}  # fmt: skip


def criteria_of(where: Any, at: str = "") -> Criteria:
    """Return the criteria in an input, which may have only some of the fields; `at` is the JSON pointer of that input.
    Raises InputError for an unknown reason."""
    given = {name: getattr(where, name, None) for name in _SAME}
    reason, ids = getattr(where, "reason", None), getattr(where, "ids", None)
    try:
        classes = None if reason is None else frozenset([find_reason(reason).code])
    except ValueError as error:
        raise InputError(str(error), f"{at}/reason") from None
    return Criteria(ids=None if ids is None else frozenset(ids), classes=classes, **given)


def options_of(where: Any) -> list[str]:
    """Return the filter as options of a command."""
    words = [word for identifier in getattr(where, "ids", None) or () for word in ("--id", identifier)]
    for name, option in _OPTIONS.items():
        value = getattr(where, name, None)
        if value is not None:
            words += [option, str(value)]
    return words


def as_text(words: list[str]) -> str:
    """Return options as text to append to a shell command; empty if there are none."""
    return "".join(f" {quote(word)}" for word in words)
