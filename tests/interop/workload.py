"""Client processes that load a queue manager while it is killed, with a record of the outcomes that each one knows.

A message is a text; each client records acknowledged and open operations. `History` combines the records and reports
violations of the guarantees:

- KEPT is only sent to: every acknowledged send is there once, every open one at most once.
- TAKEN has receivers: nothing is received twice. A receive whose reply is lost may lose a message, so at most one
  message may be missing for each of those.
- FROM and TO: messages move in transactions, some of which are aborted; each is in exactly one of the queues.
- DRAINED has receivers in transactions: committed messages never return, aborted ones do.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TextIO

import openmsmq

KEPT, TAKEN = ".\\private$\\kept", ".\\private$\\taken"
FROM, TO, DRAINED = (f".\\private$\\{name}" for name in ("from", "to", "drained"))
QUEUES = {KEPT: False, TAKEN: False, FROM: True, TO: True, DRAINED: True}
LOST = (ConnectionError, openmsmq.MsmqError, OSError)
RETRY = 0.03
WAIT = 0.05  # seconds a receiver waits for a message
LARGEST_GROUP = 6


class Client:
    """A connection that is reopened whenever the daemon has died."""

    def __init__(self, port: int, stop: Event, notes: TextIO, seed: int) -> None:
        self.port, self.stop, self.notes, self.name = port, stop, notes, str(seed)
        self.random = random.Random(seed)
        self.manager: openmsmq.QueueManager | None = None
        self.open: dict[tuple[str, str], openmsmq.MessageQueue] = {}
        self.count = 0

    def note(self, what: str, **details: Any) -> None:
        self.notes.write(json.dumps({"what": what, **details}) + "\n")

    def queue(self, name: str, access: str) -> openmsmq.MessageQueue:
        if self.manager is None:
            self.manager = openmsmq.connect("127.0.0.1", self.port)
        if (name, access) not in self.open:
            self.open[name, access] = self.manager.open(name, access)
        return self.open[name, access]

    def transaction(self) -> openmsmq.Transaction:
        assert self.manager is not None
        return self.manager.transaction()

    def again(self) -> None:
        """Close and forget the connection."""
        if self.manager is not None:
            with contextlib.suppress(*LOST):
                self.manager.close()
        self.manager = None
        self.open.clear()
        time.sleep(RETRY)

    def text(self) -> str:
        """Return a unique text; lengths vary widely."""
        self.count += 1
        return f"{self.name}.{self.count}." + "x" * self.random.choice((0, 10, 200, 900, 5000))

    def turns(self) -> Iterator[None]:
        while not self.stop.is_set():
            yield


def send(client: Client, queue: str) -> None:
    for _ in client.turns():
        text = ""
        try:
            opened = client.queue(queue, "send")
            text = client.text()
            identifier = opened.send(text, recoverable=True, priority=client.random.randrange(8))
        except LOST:
            if text:
                client.note("send open", queue=queue, group=[text])
            client.again()
        else:
            client.note("sent", queue=queue, group=[text], identifiers=[identifier])


def receive(client: Client, queue: str) -> None:
    for _ in client.turns():
        asked = False
        try:
            opened = client.queue(queue, "receive")
            asked = True
            message = opened.receive(WAIT)
        except openmsmq.ReceiveTimeout:
            continue
        except LOST:
            if asked:
                client.note("receive open", queue=queue)
            client.again()
        else:
            client.note("received", queue=queue, group=[message.decode()])


def send_groups(client: Client, queue: str) -> None:
    for _ in client.turns():
        group: list[str] = []
        ending = "aborted"
        try:
            opened = client.queue(queue, "send")
            transaction = client.transaction()
            for _ in range(client.random.randrange(1, LARGEST_GROUP)):
                group.append(client.text())
                opened.send(group[-1], transaction=transaction)
            if client.random.random() < 0.2:
                transaction.abort()
            else:
                ending = "send open"
                transaction.commit()
                ending = "sent"
        except LOST:
            client.again()
        client.note(ending, queue=queue, group=group)


def receive_groups(client: Client, queue: str, onward: str | None = None) -> None:
    """Receive in transactions; with `onward`, forward the received messages in the same transaction."""
    for _ in client.turns():
        group: list[str] = []
        ending = "given back"
        try:
            opened = client.queue(queue, "receive")
            target = client.queue(onward, "send") if onward is not None else None
            transaction = client.transaction()
            with contextlib.suppress(openmsmq.ReceiveTimeout):
                for _ in range(client.random.randrange(1, LARGEST_GROUP)):
                    text = str(opened.receive(WAIT, transaction=transaction).decode())
                    group.append(text)
                    if target is not None:
                        target.send(text, transaction=transaction)
            if client.random.random() < 0.3:
                transaction.abort()
            else:
                ending = "receive open"
                transaction.commit()
                ending = "received"
        except LOST:
            client.again()
        if onward is None:
            client.note(ending, queue=queue, group=group)


ROLES: tuple[tuple[Callable[..., None], tuple[str, ...]], ...] = (
    (send, (KEPT,)),
    (send, (TAKEN,)),
    (receive, (TAKEN,)),
    (send_groups, (FROM,)),
    (receive_groups, (FROM, TO)),
    (send_groups, (DRAINED,)),
    (receive_groups, (DRAINED,)),
)


def run(role: int, port: int, stop: Event, path: str, seed: int) -> None:
    """Entry point of a process."""
    play, queues = ROLES[role]
    with open(path, "w", encoding="utf-8") as notes:
        client = Client(port, stop, notes, seed)
        play(client, *queues)
        client.again()


class Load:
    """One process for each role, from entering to leaving the context."""

    def __init__(self, port: int, directory: Path, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.stop = context.Event()
        self.paths = [directory / f"notes{role}" for role in range(len(ROLES))]
        self._processes = [
            context.Process(target=run, args=(role, port, self.stop, str(path), seed * 100 + role))
            for role, path in enumerate(self.paths)
        ]

    def __enter__(self) -> Load:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for process in self._processes:
            process.join(60)
            if process.is_alive():
                process.terminate()
            assert process.exitcode == 0, f"a client ended with {process.exitcode}"

    @property
    def begun(self) -> bool:
        """Whether every client is running."""
        return all(path.exists() for path in self.paths)


class History:
    """Records of all clients, and the remaining messages of the queues."""

    def __init__(self, paths: list[Path], left: dict[str, list[str]]) -> None:
        self.notes = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
        self.left = left

    def groups(self, what: str, queue: str) -> list[list[str]]:
        return [note["group"] for note in self.notes if note["what"] == what and note["queue"] == queue]

    def texts(self, what: str, queue: str) -> list[str]:
        return [text for group in self.groups(what, queue) for text in group]

    def summary(self) -> str:
        counts = Counter(note["what"] for note in self.notes for _ in note.get("group", "x"))
        return ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))

    def contradictions(self) -> list[str]:
        """Return violations of the guarantees as texts; empty if there are none."""
        found = [f"{KEPT}: {what}" for what in self._plain(KEPT, 0)]
        allowed = sum(note["what"] == "receive open" and note["queue"] == TAKEN for note in self.notes)
        found += [f"{TAKEN}: {what}" for what in self._plain(TAKEN, allowed)]
        found += [f"moved: {what}" for what in self._transactional(FROM, self.left[FROM] + self.left[TO], set())]
        gone = set(self.texts("received", DRAINED))
        found += [f"{DRAINED}: {what}" for what in self._transactional(DRAINED, self.left[DRAINED], gone)]
        found += [f"received and there again: {text[:20]}" for text in gone & set(self.left[DRAINED])]
        identifiers = Counter(i for note in self.notes for i in note.get("identifiers", ()))
        found += [f"identifier {i} given {count} times" for i, count in identifiers.items() if count > 1]
        return found

    def _plain(self, queue: str, may_miss: int) -> Iterator[str]:
        seen = Counter(self.texts("received", queue) + self.left[queue])
        sent, possible = set(self.texts("sent", queue)), set(self.texts("send open", queue))
        yield from (f"duplicate {text[:20]}" for text, count in seen.items() if count > 1)
        yield from (f"never sent {text[:20]}" for text in seen.keys() - sent - possible)
        lost = sent - seen.keys()
        if len(lost) > may_miss:
            yield f"{len(lost)} lost, {may_miss} may be: {[text[:20] for text in lost][:5]}"

    def _transactional(self, queue: str, left: list[str], gone: set[str]) -> Iterator[str]:
        counts = Counter(left)
        yield from (f"duplicate {text[:20]}" for text, count in counts.items() if count > 1)
        open_groups = self.groups("receive open", queue)
        tries = Counter(text for group in open_groups for text in group)
        for group in open_groups:
            # A message that another client received later had been put back; of a message tried twice, the successful
            # try is unknown.
            if len({text in counts or text in gone for text in group if tries[text] == 1}) > 1:
                yield f"half of a receive is there: {[text[:20] for text in group]}"
        maybe_gone = {text for group in open_groups for text in group}
        for group in self.groups("sent", queue):
            yield from (f"lost {t[:20]}" for t in group if t not in counts and t not in gone and t not in maybe_gone)
        for group in self.groups("send open", queue):
            there = {text in counts or text in gone or text in maybe_gone for text in group}
            if len(there) > 1:
                yield f"half of a commit is there: {[text[:20] for text in group]}"
        yield from (f"aborted and there: {t[:20]}" for t in self.texts("aborted", queue) if t in counts or t in gone)
