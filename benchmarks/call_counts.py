"""Count function calls and modules per message between socket and log, and back.

    python benchmarks/call_counts.py [--verbose]

Counts calls of the project's functions in a daemon that runs the sources, whether or not they are compiled. The
generated codecs, `msrpc.ndr` and time-dependent calls are left out. `tests/test_call_counts.py` checks that the counts
do not exceed `MOST`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import sources

sources.prefer()  # before the first import of the project: calls of compiled modules cannot be counted

import openmsmq  # noqa: E402
from openmsmq.server.daemon import Daemon  # noqa: E402
from openmsmq.server.loading import load  # noqa: E402
from openmsmq.store import ownership  # noqa: E402

# A check of the ownership is valid for 1 ms, so on a slow machine a message has more checks than on a fast one.
ownership.FRESH = float("inf")  # type: ignore[misc]

SOURCES = str(Path(openmsmq.__file__).parents[1]) + os.sep
MESSAGES = 200
#: Operation -> maximum number of calls.
MOST = {"express send": 79, "durable send": 117, "durable send to a waiting reader": 270}
CLIENT = r"""
import sys, threading, time, openmsmq
port, what, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
name = r".\private$\q"
with openmsmq.connect("127.0.0.1", port=port) as here, openmsmq.connect("127.0.0.1", port=port) as there:
    here.create_queue(name)
    with here.open(name, "send") as sender, there.open(name, protocol="qmcomm") as reader:
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(count):
            if "reader" in what:
                thread = threading.Thread(target=reader.receive, args=(30,))
                thread.start()
                time.sleep(0.01)
            sender.send(bytes(100), recoverable=what != "express send")
            if "reader" in what:
                thread.join()
        print("done", flush=True)
        sys.stdin.readline()
"""


async def calls(what: str) -> Counter[tuple[str, str]]:
    """Return the calls by module and function during an operation."""
    found: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES) and not code.co_name.startswith("<"):
            module = code.co_filename.removeprefix(SOURCES).removeprefix("openmsmq/")
            if not module.startswith(("interfaces", "msrpc/interfaces", "msrpc/ndr")):
                found[module, code.co_qualname] += 1

    with tempfile.TemporaryDirectory() as directory:
        options = {"data_dir": Path(directory) / "data", "endpoint_mapper_port": 0, "rpc_port": 0}
        daemon = Daemon(load(options=options, environment={}))
        await daemon.start()
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, str(daemon.endpoints["qmcomm"][1]), what, str(MESSAGES),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert client.stdin is not None and client.stdout is not None
        await client.stdout.readline()
        client.stdin.write(b"\n")
        sys.setprofile(count)
        await client.stdout.readline()
        sys.setprofile(None)
        client.stdin.write(b"\n")
        await client.wait()
        await daemon.stop()
    return found


def main() -> None:
    logging.disable()
    for what in MOST:
        counted = {place: int(count / MESSAGES + 0.1) for place, count in asyncio.run(calls(what)).items()}
        each = {place: count for place, count in counted.items() if count}
        own = {place: count for place, count in each.items() if place[0].startswith("queueing")}
        everything, inner = (
            f"{sum(some.values()):.0f} calls in {len({module for module, _ in some})} modules" for some in (each, own)
        )
        print(f"{what}: {everything}; in queueing {inner}")
        if "--verbose" in sys.argv:
            print(*(f"    {count:4} {module} {name}" for (module, name), count in sorted(each.items())), sep="\n")


if __name__ == "__main__":
    main()
