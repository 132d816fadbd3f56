"""Send values to a queue, and list what is left in it."""

from __future__ import annotations


def put(qm, queue, *values, **properties):
    with qm.open(queue, "send") as opened:
        for value in values:
            opened.send(value, **properties)


def left(qm, queue):
    with qm.open(queue, "peek") as opened:
        return [message.decode() for message in opened]
