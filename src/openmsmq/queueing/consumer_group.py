"""Consumer groups: their positions in a queue and the messages that they have claimed. Not part of the
specifications."""

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

# An operation on many messages. It yields between bounded steps, so that other work can run, and returns its result.
Steps: TypeAlias = Generator[None, None, T]

GROUP_PREFIX = b"group/"


class BatchLimits(NamedTuple):
    """Maximum size of a claim; the first message is always taken."""

    messages: int = INFINITE
    bytes: int = 1 << 62


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A consumer group of a queue.

    Attributes:
        cursor: sequence up to which all claimed messages have been removed.
        token: token of the latest claim; readers of earlier claims are fenced.
        keys: lookup identifiers of the claimed messages in sequence order; all of them are locked.
        end: last sequence of the claim; `cursor` if there is no claim.
        lock: lock of all the keys; its `overdue` lists those that have become due, which expire if they are put
            back.
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
        """Return the name of the definition that stores the group."""
        return group_definition(self.queue.number, self.name)

    def until(self, sequence: int) -> int:
        """Return the number of keys at or below a sequence."""
        return bisect_right(self.keys, sequence, key=sequence_of)

    def encode(self, cursor: int, keys: list[int], end: int) -> bytes:
        """Return the value of the definition. It lists every key, because a message moved into the queue may fall
        between them. Neighboring keys differ by little, so they compress well."""
        packed = zlib.compress(array("q", [b - a for a, b in pairwise([0, *keys])]).tobytes(), 1)
        values = {"cursor": cursor, "token": self.token, "end": end, "keys": base64.b64encode(packed).decode()}
        return json.dumps(values).encode()

    def restore(self, value: bytes) -> None:
        """Load the group from a stored definition and lock the remaining messages of the claim. Express messages did
        not survive the restart."""
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
    """Return the queue number and the name of the group."""
    number, _, group = name.removeprefix(GROUP_PREFIX).decode().partition("/")
    return int(number), group
