"""Histories: what clients of a queue manager asked for, when, and what they were told.

A history is a list of operations in JSON Lines, so that it can be published and checked again. This module, model.py
and checker.py share no code with the server, and need nothing but Python.

| kind | argument | result | meaning |
|---|---|---|---|
| send | [value, priority] | | in `transaction` if it has one |
| receive | | value, or null for a time-out | in `transaction` if it has one |
| peek | | value, or null | the first message; takes nothing |
| begin, commit | | | of `transaction`; argument "in order" if a crash may end a commit after the first messages |
| abort | | | of `transaction`; argument "if open" if it may have ended before |
| lock | | value, or null | a receive in two phases: begins `transaction`, which has the message until it ends |
| stage | list of values | | begins `transaction`, which survives crashes, and sends in it at one moment |
| claim | maximum | list of values | begins `transaction`, which survives crashes, with the first messages |
| crash | | | the server is dead, or replaced: ends all transactions but those of stages and claims |
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
OUTCOMES = (OK, FAILED, UNKNOWN)
KINDS = ("send", "receive", "peek", "begin", "commit", "abort", "lock", "stage", "claim", "crash")


@dataclass(frozen=True)
class Operation:
    """One operation of a client. Times are nanoseconds of one monotonic clock.

    Outcome `failed`: certainly not done. `unknown`: it may have happened once between its call and the next crash, or
    never; with `repeats`, the client may have repeated it by itself until `returned`.
    """

    client: str
    kind: str
    call: int
    returned: int
    outcome: str = OK
    queue: str | None = None
    transaction: str | None = None
    argument: Any = None
    result: Any = None
    entrance: str = ""
    repeats: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.outcome not in OUTCOMES or self.returned < self.call:
            raise ValueError(f"not an operation: {asdict(self)}")

    @property
    def sent(self) -> list[str]:
        """Values that it adds to its queue."""
        if self.kind == "send":
            return [self.argument[0]]
        return list(self.argument) if self.kind == "stage" else []

    @property
    def seen(self) -> list[str]:
        """Values that the client was given."""
        if self.outcome != OK or self.result is None:
            return []
        return list(self.result) if self.kind == "claim" else [self.result]

    def __str__(self) -> str:
        words = [f"{self.call / 1e6:.3f}..{self.returned / 1e6:.3f} ms", self.client, self.kind]
        words += [f"in {self.transaction}"] if self.transaction else []
        words += [f"at {self.queue}"] if self.queue else []
        words += [f"of {self.argument!r}"] if self.argument is not None else []
        if self.outcome == OK and self.kind in ("receive", "peek", "lock", "claim"):
            words.append(f"gave {self.result!r}")
        return " ".join(words) + ("" if self.outcome == OK else f": {self.outcome}")


def write(path: Path, history: Iterable[Operation]) -> None:
    """Write a history by the time of calls, compressed if the name ends with .xz. Defaults are left out."""
    lines = []
    for operation in sorted(history, key=lambda o: o.call):
        fields = asdict(operation)
        lines.append(json.dumps({name: value for name, value in fields.items() if value not in (None, "", False)}))
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(lzma.compress(data, preset=9) if path.suffix == ".xz" else data)


def read(path: Path) -> list[Operation]:
    """Read a history that `write` has written. Raises ValueError."""
    data = path.read_bytes()
    return list(_parsed(lzma.decompress(data) if path.suffix == ".xz" else data))


def _parsed(data: bytes) -> Iterator[Operation]:
    for number, line in enumerate(data.decode().splitlines(), 1):
        try:
            yield Operation(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from None
