"""RabbitMQ's shovel, for comparison with `transfer.py`: durable messages from one broker to another on this machine.

    python benchmarks/shovel.py [--count 50000] [--size 1024]

The shovel is created when all messages are in the source queue, so only the transfer is measured. It uses `ack-mode`
on-confirm, so nothing is lost.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import wires
from systems import broker

RABBITMQCTL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
QUEUE = "classic"
PIECE = 128 * 1024 - 8  # bytes of a body in one frame


def count(port: int) -> int:
    """Return the number of messages in the queue."""
    with wires.amqp_login(port) as sock:
        sock.sendall(wires._method(1, 50, 10, bytes(2) + wires._short(QUEUE) + b"\1" + bytes(4)))  # passive
        answer = wires._amqp_answer(sock, 50, 11)
    found: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
    return found


def fill(port: int, messages: int, size: int) -> None:
    """Publish persistent messages."""
    publish = wires._method(1, 60, 40, bytes(2) + wires._short("") + wires._short(QUEUE) + b"\0")
    header = wires._frame(2, 1, struct.pack(">HHQHB", 60, 0, size, 1 << 12, 2))
    pieces = [wires._frame(3, 1, bytes(min(PIECE, size - start))) for start in range(0, size, PIECE)]
    one = publish + header + b"".join(pieces)
    with wires.amqp_login(port) as sock:
        for _ in range(messages):
            sock.sendall(one)
        while count(port) < messages:
            time.sleep(0.05)


def measure(messages: int, size: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as text,
        broker(Path(text) / "a", "rabbitmq_shovel") as ((source, _), environment),
        broker(Path(text) / "b") as ((target, _), _),
    ):
        fill(source, messages, size)
        definition: dict[str, object] = {
            "src-protocol": "amqp091", "src-uri": f"amqp://127.0.0.1:{source}", "src-queue": QUEUE,
            "dest-protocol": "amqp091", "dest-uri": f"amqp://127.0.0.1:{target}", "dest-queue": QUEUE,
            "ack-mode": "on-confirm", "src-prefetch-count": 1000,
        }  # fmt: skip
        definition["src-queue-args"] = definition["dest-queue-args"] = {"x-queue-type": "classic"}
        control = [RABBITMQCTL, "-n", environment["RABBITMQ_NODENAME"], "set_parameter", "shovel", "benchmark"]
        subprocess.run([*control, json.dumps(definition)], env=environment, check=True, stdout=subprocess.DEVNULL)
        while not (already := count(target)):
            time.sleep(0.005)
        started = time.perf_counter()
        while count(target) < messages:
            time.sleep(0.02)
        seconds = time.perf_counter() - started
    rate = (messages - already) / seconds
    return {"size": size, "messages": messages - already, "per_second": round(rate),
            "megabytes_per_second": round(rate * size / 1e6, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--size", type=int, nargs="+", default=[1024])
    given = parser.parse_args()
    for size in given.size:
        messages = given.count if size < 100_000 else max(given.count // 100, 8)
        print(json.dumps({"system": "RabbitMQ shovel", **measure(messages, size)}), flush=True)


if __name__ == "__main__":
    main()
