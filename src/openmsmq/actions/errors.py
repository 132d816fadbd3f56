"""Errors of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ActionRefused(Exception):
    """The input names an object that does not exist, or an action that is not possible now.

    `status` is the HTTP status; a command ends with exit code 1. `pointer` is the JSON pointer of the invalid field;
    empty if it is not a single field. `more` has additional members of the HTTP response.
    """

    def __init__(self, status: int, detail: str, pointer: str = "", **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.pointer, self.more = status, detail, pointer, more


class ActionIncomplete(Exception):
    """Part of the action was done and part failed: `output` has the details, `detail` the counts.

    The HTTP status is 409, with the members of the output; a command shows the output and ends with exit code 1.
    """

    def __init__(self, detail: str, output: Any) -> None:
        super().__init__(detail)
        self.detail, self.output = detail, output


class InputError(ValueError):
    """A value is not allowed: the HTTP status is 422; a command reports a usage error. `pointer` as in ActionRefused;
    `errors` maps pointers to sentences if several values are wrong.
    """

    def __init__(self, detail: str, pointer: str = "", errors: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.errors = errors or ({pointer: detail} if pointer else {})


class UnknownAccount(InputError):
    """A name is neither a user nor a group."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, "/user")
