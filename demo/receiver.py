"""Receiver processes of the demo, which receive all messages of some queues."""

from __future__ import annotations

from multiprocessing.connection import Connection

import openmsmq
from files import Record

GIVEN_UP = "given up"
_GIVE_UP_EACH = 100


class GaveUp(Exception):
    """Simulated failure of a program while it processes a message."""


def run_in_two_phases(port: int, queues: dict[str, bool], results: Connection) -> None:
    """Entry point: as `run`, through MS-MQRR. It abandons every 100th message once and reports this with GIVEN_UP.

    A message is removed when the next one is requested; after a failure, the message is put back.
    """
    with openmsmq.connect("127.0.0.1", port) as manager:
        for name in queues:
            with manager.open(name, protocol="remoteread") as queue:
                failed: set[bytes] = set()
                count, more = 0, True
                while more:
                    try:
                        for message in queue.consume(0):
                            if count % _GIVE_UP_EACH == 0 and message.identifier not in failed:
                                failed.add(message.identifier)
                                raise GaveUp
                            results.send((name, Record.from_body(str(message.decode()))))
                            count += 1
                        more = False
                    except GaveUp:
                        results.send(GIVEN_UP)
    results.send(None)


def run(port: int, queues: dict[str, bool], results: Connection) -> None:
    """Entry point: sends (queue, record) for each message and None at the end. Reads by MS-MQMP."""
    with openmsmq.connect("127.0.0.1", port) as manager:
        for name, transactional in queues.items():
            with manager.open(name, protocol="qmcomm") as queue:
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
