"""Abort counts in the log ([MS-MQRR] 2.2.5.3, AbortCounter, D-66): a definition for each stored message that a
transaction put back, which goes with the message. To write the message again would cost its size for each abort.
"""

from __future__ import annotations

ABORT_PREFIX = b"aborts/"


def abort_definition(queue: int, lookup_identifier: int) -> bytes:
    """The name under which the store keeps how often receives and moves of a message were rolled back."""
    return ABORT_PREFIX + f"{queue}/{lookup_identifier}".encode()


def parse_abort_definition(name: bytes) -> tuple[int, int]:
    """Queue number and lookup identifier."""
    queue, _, lookup_identifier = name.removeprefix(ABORT_PREFIX).partition(b"/")
    return int(queue), int(lookup_identifier)
