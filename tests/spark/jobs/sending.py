"""Sending messages whose application tag is their number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def send(qm: Any, queue: str, numbers: Iterable[int]) -> None:
    with qm.open(queue, "send") as sender:
        for number in numbers:
            sender.send(f"body {number}", label=f"label {number}", priority=number % 8, application_tag=number)
