"""The receiver of the demo: another process, which takes every message of some queues."""

from __future__ import annotations

from multiprocessing.connection import Connection

from files import Record

import openmsmq


def run(port: int, queues: dict[str, bool], results: Connection) -> None:
    """Entry point: sends (queue, record) for each message and None at the end."""
    with openmsmq.connect("127.0.0.1", port) as manager:
        for name, transactional in queues.items():
            with manager.open(name) as queue:
                try:
                    while True:
                        if transactional:
                            received = []
                            with manager.transaction() as transaction:
                                try:
                                    for _ in range(100):
                                        received.append(queue.receive(0, transaction=transaction))
                                except openmsmq.ReceiveTimeout:
                                    pass
                            if not received:
                                break
                        else:
                            received = [queue.receive(0)]
                        for message in received:
                            results.send((name, Record.from_body(str(message.decode()))))
                except openmsmq.ReceiveTimeout:
                    continue
    results.send(None)
