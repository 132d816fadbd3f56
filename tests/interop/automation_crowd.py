"""Many clients of the automation objects in one process, for a test that kills it: each opens its own queue
exclusively and holds ten objects. Prints "ready"; answers each line of standard input with the number of clients that
still have all their objects.

    python automation_crowd.py PORT PING_SECONDS CLIENTS FIRST_QUEUE
"""

import sys
from typing import Any

from msrpc.interfaces import ms_oaut as o
from openmsmq.com.apartment import Apartment
from openmsmq.com.proxies import CLASSES, wrap

RECEIVE, DENY_RECEIVE, MESSAGES = 1, 1, 8


def new(apartment: Apartment, name: str) -> Any:
    coclass = CLASSES[f"MSMQ{name}"]
    return wrap(apartment, apartment.create(coclass.uuid, o.IDispatch.uuid), coclass.default.name)


def client(port: int, period: float, queue: int) -> list[Any]:
    apartment = Apartment("127.0.0.1", port, ping_seconds=period)
    info = new(apartment, "QueueInfo")
    info.PathName = f".\\private$\\crowd{queue}"
    held = [info, info.Open(RECEIVE, DENY_RECEIVE)]
    for number in range(MESSAGES):
        message = new(apartment, "Message")
        message.Label = f"{queue}-{number}"
        held.append(message)
    return held


def is_whole(queue: int, held: list[Any]) -> bool:
    _, opened, *messages = held
    labels = [f"{queue}-{number}" for number in range(MESSAGES)]
    return bool(opened.Access == RECEIVE) and [message.Label for message in messages] == labels


def main() -> None:
    port, period, clients, first = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    crowd = {queue: client(port, period, queue) for queue in range(first, first + clients)}
    print("ready", flush=True)
    for _ in sys.stdin:
        print(sum(is_whole(queue, held) for queue, held in crowd.items()), flush=True)


if __name__ == "__main__":
    main()
