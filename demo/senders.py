"""Sender process of the demo, which tolerates a crash of the queue manager.

A send without a reply may or may not have been executed; the sender checks the queue before it resends.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

import openmsmq
from files import Record

BATCH = 50  # messages in a transaction
RETRY = 0.05  # seconds between attempts to reach a queue manager that is down
PATIENCE = 60.0  # seconds until a sender gives up


class Sender:
    """Sends records to one queue, in transactions if the queue is transactional."""

    def __init__(self, port: int, queue: str, transactional: bool) -> None:
        self._port, self._queue, self._transactional = port, queue, transactional
        self.reconnected = 0
        self._connect()

    def _connect(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._manager = openmsmq.connect("127.0.0.1", self._port)
                self._open = self._manager.open(self._queue, "send")
                return
            except (ConnectionError, openmsmq.MsmqError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY)

    def send(self, records: list[Record]) -> None:
        """Send a group of records exactly once; for a transactional queue, in one transaction."""
        while records:
            try:
                self._attempt(records)
                return
            except (ConnectionError, openmsmq.MsmqError):
                self._manager.close()
                self._connect()
                self.reconnected += 1
                present = self._present()
                records = [record for record in records if record.path not in present]

    def _attempt(self, records: list[Record]) -> None:
        if not self._transactional:
            for record in records:
                self._open.send(record.to_body(), label=record.path[-249:], recoverable=True)
            return
        with self._manager.transaction() as transaction:
            for record in records:
                self._open.send(record.to_body(), label=record.path[-249:], transaction=transaction)

    def _present(self) -> set[str]:
        with self._manager.open(self._queue, "peek") as queue:
            return {Record.from_body(str(message.decode())).path for message in queue}


def run(port: int, queue: str, transactional: bool, records: list[Record], progress: Connection) -> None:
    """Entry point of a sender process: reports the number of acknowledged records, then the number of reconnections."""
    sender = Sender(port, queue, transactional)
    size = BATCH if transactional else 1
    for start in range(0, len(records), size):
        group = records[start : start + size]
        sender.send(group)
        progress.send(len(group))
    progress.send(-1 - sender.reconnected)
