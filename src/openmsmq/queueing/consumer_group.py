"""Consumer groups: who has got how far in a queue, and what they hold. No part of the specifications."""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias, TypeVar

from openmsmq.model.constants import INFINITE
from openmsmq.model.lookup_id import sequence_of
from openmsmq.queueing.queue import Lock, LockKind, Queue

T = TypeVar("T")

# An operation on many messages: it stops between bounded pieces, so that others get their turn, and returns its result.
Steps: TypeAlias = Generator[None, None, T]

GROUP_PREFIX = b"group/"


class BatchLimits(NamedTuple):
    """When to stop taking messages; the first one is always taken."""

    messages: int = INFINITE
    bytes: int = 1 << 62


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A consumer group of a queue.

    Attributes:
        cursor: sequence up to which everything was removed that the group had claimed.
        token: of the latest claim; the readers of earlier ones are fenced.
        keys: lookup identifiers of what is claimed, in the order of their sequence; all of them are locked.
        end: sequence up to which the claim goes; `cursor` if there is none.
        lock: of all the keys; its `overdue` are those whose time came meanwhile, which expire if they are put back.
    """

    queue: Queue
    name: str
    cursor: int = 0
    token: str = ""
    keys: list[int] = field(default_factory=list)
    end: int = 0
    lock: Lock = field(init=False)

    def __post_init__(self) -> None:
        self.lock = Lock(LockKind.CLAIM, self, overdue=set())

    @property
    def overdue(self) -> set[int]:
        assert self.lock.overdue is not None
        return self.lock.overdue

    @property
    def definition(self) -> bytes:
        """The name under which the store keeps it."""
        return group_definition(self.queue.number, self.name)

    def until(self, sequence: int) -> int:
        """How many keys lie at or below a sequence."""
        return bisect_right(self.keys, sequence, key=sequence_of)

    def encode(self, cursor: int, keys: list[int], end: int) -> bytes:
        """The value of the definition. All keys one by one, because a message that is moved into the queue may take a
        place between them; neighbours differ by little, so they pack well."""
        packed = zlib.compress(array("q", [b - a for a, b in pairwise([0, *keys])]).tobytes(), 1)
        values = {"cursor": cursor, "token": self.token, "end": end, "keys": base64.b64encode(packed).decode()}
        return json.dumps(values).encode()

    def restore(self, value: bytes) -> None:
        """Take over a definition, and lock what is left of the claim. Express messages did not survive."""
        values = json.loads(value)
        self.cursor, self.token, self.end = values["cursor"], values["token"], values["end"]
        differences = array("q")
        differences.frombytes(zlib.decompress(base64.b64decode(values["keys"])))
        entries = self.queue.entries
        self.keys = [key for key in accumulate(differences) if key in entries]
        for key in self.keys:
            self.queue.lock(key, self.lock)


def group_definition(queue: int, name: str) -> bytes:
    return GROUP_PREFIX + f"{queue}/{name}".encode()


def parse_group_definition(name: bytes) -> tuple[int, str]:
    """Queue number and name of the group."""
    number, _, group = name.removeprefix(GROUP_PREFIX).decode().partition("/")
    return int(number), group
