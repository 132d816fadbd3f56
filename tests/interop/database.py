"""An SQLite database as a participant, and a program that moves messages from a queue to a database and to another
queue manager. `python -m interop.database NEAR_PORT FAR_PORT FILE` runs until it is killed."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing, suppress

import openmsmq

QUEUE = r".\private$\x"


class Ledger:
    """Ledger in SQLite. Prepared rows are in a separate table, because SQLite has only one-phase commits."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE IF NOT EXISTS done (item TEXT)")
        self._database.execute("CREATE TABLE IF NOT EXISTS prepared (tx TEXT, item TEXT)")
        self._database.commit()
        self._items: list[str] = []
        self.refuses = False

    def add(self, item: str) -> None:
        self._items.append(item)

    def items(self) -> list[str]:
        return [row[0] for row in self._database.execute("SELECT item FROM done ORDER BY rowid")]

    # -- openmsmq.Participant --------------------------------------------------------------------------------------

    def prepare(self, transaction: str) -> None:
        if self.refuses:
            raise RuntimeError("the database refuses")
        with self._database:
            rows = [(transaction, item) for item in self._items]
            self._database.executemany("INSERT INTO prepared VALUES (?, ?)", rows)

    def commit(self, transaction: str) -> None:
        with self._database:
            self._database.execute("INSERT INTO done SELECT item FROM prepared WHERE tx = ?", (transaction,))
            self._database.execute("DELETE FROM prepared WHERE tx = ?", (transaction,))
        self._items = []

    def rollback(self, transaction: str) -> None:
        with self._database:
            self._database.execute("DELETE FROM prepared WHERE tx = ?", (transaction,))
        self._items = []

    def in_doubt(self) -> list[str]:
        return [row[0] for row in self._database.execute("SELECT DISTINCT tx FROM prepared")]

    def close(self) -> None:
        self._database.close()


def move_one(near: openmsmq.QueueManager, far: openmsmq.QueueManager, ledger: Ledger) -> str:
    """Receive from one, send to the other and insert into the database in one transaction."""
    with near.open(QUEUE) as source, far.open(QUEUE, "send") as target:
        with near.transaction(distributed=True) as transaction:
            transaction.enlist(ledger)
            item: str = source.receive(0, transaction=transaction).decode()
            target.send(item, transaction=transaction)
            ledger.add(item)
    return item


def main() -> None:
    near_port, far_port, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    while True:
        with suppress(openmsmq.MsmqError, ConnectionError), closing(Ledger(path)) as ledger:
            with openmsmq.connect("127.0.0.1", near_port) as near, openmsmq.connect("127.0.0.1", far_port) as far:
                near.resolve(ledger)
                while True:
                    try:
                        move_one(near, far, ledger)
                    except openmsmq.ReceiveTimeout:
                        return


if __name__ == "__main__":
    main()
