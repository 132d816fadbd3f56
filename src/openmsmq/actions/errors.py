"""Why an action was not done."""

from __future__ import annotations


class ActionRefused(Exception):
    """The input names something that is not there, or asks for something that can't be done now.

    `status` is the status of HTTP that says so; a command ends with exit code 1. `pointer` is the JSON pointer of the
    field that is wrong; empty if it is no single field.
    """

    def __init__(self, status: int, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.pointer = status, detail, pointer
