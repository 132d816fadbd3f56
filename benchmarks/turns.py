"""Compare builds in alternating rounds: the server's CPU time per operation, and the ratio of each build to the first.

    python benchmarks/turns.py CHECKOUT CHECKOUT... [--rounds 6] [--seconds 3] [--connections 8]

Each checkout has its own `.venv` (`make setup`). Rounds alternate in direction, so that drift of the machine's speed
affects all alike; quote the median of the ratios. To measure the benefit of compiling some modules, use a second
checkout without them in `openmsmq.compiled.MODULES`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from load import ENDLESS, load
from systems import cpu

FILL = 64  # connections that fill a queue


class Operation(NamedTuple):
    """An operation and a system of load.py."""

    name: str
    system: str = "openmsmq"
    queue: str = ""  # queue that is filled in advance, for operations that receive


OPERATIONS = (
    Operation("express send"), Operation("durable send"), Operation("receive", queue="b"),
    Operation("remoteread", "two phases", "c"), Operation("R_QMMgmtGetInfo", "management"),
)  # fmt: skip


@contextmanager
def daemon(checkout: Path, directory: Path, under: tuple[str, ...] = ()) -> Iterator[tuple[int, dict[str, int]]]:
    """Run the queue manager of a checkout, optionally under another program. Yields its process identifier and ports by
    endpoint."""
    python = checkout / ".venv/bin/python"
    command = [*under, python, "-m", "openmsmq.cli", "serve", "--data-dir", directory, "--endpoint-mapper-port", "0"]
    command += ["--rpc-port", "0", "--message-port", "0"]  # several daemons may run at the same time
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=checkout
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield process.pid, {name: where["port"] for name, where in ready["endpoints"].items()}
        finally:
            process.terminate()


def measure(checkout: Path, connections: int, seconds: float) -> dict[str, float]:
    """Return the server's CPU time in microseconds by operation."""
    found = {}
    with tempfile.TemporaryDirectory() as directory, daemon(checkout, Path(directory)) as (pid, ports):
        port = ports["qmcomm"]
        create = "import openmsmq, sys\nwith openmsmq.connect('127.0.0.1', port=int(sys.argv[1])) as m:\n"
        create += "    for n in 'abc': m.create_queue(f'.\\\\private$\\\\{n}')"
        subprocess.run([str(checkout / ".venv/bin/python"), "-c", create, str(port)], check=True, cwd=checkout)
        for operation in OPERATIONS:
            count, queue = ENDLESS, operation.queue or "a"
            if operation.queue:
                filled = load(port=port, what="durable send", queue=queue, connections=FILL, seconds=seconds)
                count = max(1, filled["count"] - 200)
            before = cpu(pid)
            done = load(
                port=port, what=operation.name, queue=queue, connections=connections, seconds=seconds, count=count,
                system=operation.system,
            )  # fmt: skip
            found[operation.name] = (cpu(pid) - before) / done["count"] * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=8)
    arguments = parser.parse_args()
    base, *others = arguments.checkouts
    rounds = []
    for number in range(arguments.rounds):
        order = arguments.checkouts if number % 2 == 0 else arguments.checkouts[::-1]
        rounds.append({path: measure(path.resolve(), arguments.connections, arguments.seconds) for path in order})
    for other, operation in itertools.product(others, OPERATIONS):
        first, second = ([each[path][operation.name] for each in rounds] for path in (base, other))
        ratios = sorted(b / a for a, b in zip(first, second, strict=True))
        print(
            f"{other.name}: {operation.name} x{arguments.connections}: "
            f"{statistics.median(first):.1f} and {statistics.median(second):.1f} us, "
            f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
