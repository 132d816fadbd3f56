"""Why an action was not done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ActionRefused(Exception):
    """The input names something that is not there, or asks for something that can't be done now.

    `status` is the status of HTTP that says so; a command ends with exit code 1. `pointer` is the JSON pointer of the
    invalid field; empty if it is not a single field. `more` are further members of the answer by HTTP.
    """

    def __init__(self, status: int, detail: str, pointer: str = "", **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.pointer, self.more = status, detail, pointer, more


class ActionIncomplete(Exception):
    """Some of it was done and some failed: `output` says what, `detail` how much.

    HTTP answers 409 with the members of the output; a command shows it and ends with exit code 1.
    """

    def __init__(self, detail: str, output: Any) -> None:
        super().__init__(detail)
        self.detail, self.output = detail, output


class InputError(ValueError):
    """A value is not allowed: HTTP answers 422, a command says that it was used wrongly. `pointer` as in
    ActionRefused; `errors` are sentences by pointer where several values are wrong."""

    def __init__(self, detail: str, pointer: str = "", errors: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.errors = errors or ({pointer: detail} if pointer else {})


class UnknownAccount(InputError):
    """A name is neither a user nor a group."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, "/user")
