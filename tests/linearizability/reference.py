"""A queue in memory that simulated clients use at the same time: histories that are known to be linearizable.

It is mutable and knows effects, not results, so it shares nothing with model.py but the specification.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from linearizability.history import FAILED, OK, UNKNOWN, Operation


class Queue:
    """Messages as lists [value, priority, transaction that locks it, whether that one sends it]."""

    def __init__(self) -> None:
        self.messages: list[list[Any]] = []

    def put(self, value: str, priority: int, transaction: str | None) -> None:
        self.messages.append([value, priority, transaction, transaction is not None])
        self.messages.sort(key=lambda message: -message[1])  # stable

    def first(self) -> list[Any] | None:
        return next((message for message in self.messages if message[2] is None), None)

    def end(self, transaction: str, committed: bool) -> None:
        self.messages = [m for m in self.messages if m[2] != transaction or m[3] == committed]
        for message in self.messages:
            if message[2] == transaction:
                message[2:] = [None, False]


class Simulation:
    """Clients of a few queues. Each operation has its effect somewhere between its call and its return."""

    def __init__(self, chance: random.Random, clients: int, queues: int = 1, crashes: float = 0.0) -> None:
        self.chance, self.crashes = chance, crashes
        self.queues = {f"q{number}": Queue() for number in range(queues)}
        self.open: dict[str, str] = {}  # transactions of clients
        self.history: list[Operation] = []
        self.now = 1
        self.count = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._clients = [f"c{number}" for number in range(clients)]
        self._epoch = 0

    def run(self, operations: int, drain: bool = True) -> list[Operation]:
        for client in self._clients:
            self._turn(client)
        while self._events and len(self.history) < operations:
            self.now, _, effect = heapq.heappop(self._events)
            effect()
        self._events.clear()
        self.now = max(operation.returned for operation in self.history) + 1
        self._crash()
        while drain:
            self.now += 10
            results = [self._apply("drain", "receive", name, None, None) for name in self.queues]
            for name, result in zip(self.queues, results, strict=True):
                self.history.append(Operation("drain", "receive", self.now, self.now + 1, OK, name, None, None, result))
                self.now += 2
            drain = any(results)
        return self.history

    def _at(self, moment: int, effect: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self._events, (moment, self.count, effect))

    def _turn(self, client: str) -> None:
        """Let a client choose an operation."""
        kinds = ["send", "send", "send", "receive", "receive", "receive", "peek", "begin", "lock"]
        if client in self.open:
            kinds = ["commit"] if "lock" in self.open[client] else ["send", "receive", "commit", "commit"]
            kinds.append("abort")
        kind = self.chance.choice(kinds)
        transaction = self.open.get(client)
        if kind in ("begin", "lock"):
            self.count += 1
            transaction = f"{kind} {client} {self.count}"
        queue = self.chance.choice([*self.queues]) if kind in ("send", "receive", "peek", "lock") else None
        argument: Any = None
        if kind == "send":
            self.count += 1
            argument = [f"m{self.count}", 0 if transaction else self.chance.choice((0, 0, 0, 5))]
        call = self.now + self.chance.randrange(1, 20)
        effect = call + self.chance.randrange(0, 20)
        returned = effect + self.chance.randrange(0, 20)

        epoch = self._epoch

        def happen() -> None:
            fate = self.chance.random()
            if fate < self.crashes / 4:
                self._crash()
            is_alive = epoch == self._epoch  # otherwise the server has died since the call
            is_done, is_known = is_alive and fate >= self.crashes / 2, is_alive and fate >= self.crashes
            result = self._apply(client, kind, queue, transaction, argument) if is_done else None
            outcome = OK if is_known else UNKNOWN if is_done else self.chance.choice((UNKNOWN, FAILED))
            told = result if is_known else None
            self.history.append(Operation(client, kind, call, returned, outcome, queue, transaction, argument, told))
            if not is_known and transaction is not None:
                self._abort(client, transaction, returned)
            self._at(returned, lambda: self._turn(client))

        self._at(effect, happen)

    def _abort(self, client: str, transaction: str, moment: int) -> None:
        """The server notices that a connection is gone."""
        self.history.append(Operation(client, "abort", moment, moment, UNKNOWN, None, transaction))

        def happen() -> None:
            if self.open.get(client) == transaction:
                del self.open[client]
            for queue in self.queues.values():
                queue.end(transaction, False)

        self.open.pop(client, None)
        self._at(moment + self.chance.randrange(30), happen)

    def _crash(self) -> None:
        """Everything that is open ends; nobody else does anything at that moment."""
        self.history.append(Operation("nemesis", "crash", self.now, self.now))
        for queue in self.queues.values():
            for transaction in {m[2] for m in queue.messages if m[2] is not None}:
                queue.end(transaction, False)
        self.open.clear()
        self._epoch += 1

    def _apply(self, client: str, kind: str, name: str | None, transaction: str | None, argument: Any) -> str | None:
        queue = self.queues[name] if name is not None else Queue()
        if kind == "send":
            queue.put(argument[0], argument[1], transaction)
        elif kind == "begin":
            self.open[client] = str(transaction)
        elif kind in ("commit", "abort"):
            for each in self.queues.values():
                each.end(str(transaction), kind == "commit")
            self.open.pop(client, None)
        else:
            message = queue.first()
            if message is None:
                return None
            if kind == "lock":
                self.open[client] = str(transaction)
            if kind != "peek" and transaction is None:
                queue.messages.remove(message)
            elif kind != "peek":
                message[2:] = [transaction, False]
            return str(message[0])
        return None
