"""Two builds in turns: the server's processor time for each message, and the ratio of the second to the first.

    python benchmarks/turns.py CHECKOUT CHECKOUT [--rounds 6] [--seconds 3] [--connections 8]

Each checkout has its own `.venv` (`make setup compiled`). Rounds alternate, so that a machine whose speed drifts treats
both alike; the median of the ratios is what to quote.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from systems import cpu

HERE = Path(__file__).parent
OPERATIONS = ("express send", "durable send", "receive")
ENDLESS = 1 << 40


@contextmanager
def daemon(checkout: Path, directory: Path) -> Iterator[tuple[int, int]]:
    """The queue manager of a checkout: process identifier and port."""
    python = checkout / ".venv/bin/python"
    command = [python, "-m", "openmsmq.cli", "serve", "--data-dir", directory, "--endpoint-mapper-port", "0"]
    with subprocess.Popen(
        [*map(str, command), "--rpc-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=checkout
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield process.pid, ready["endpoints"]["qmcomm"]["port"]
        finally:
            process.terminate()


def load(port: int, what: str, queue: str, connections: int, seconds: float, count: int = ENDLESS) -> int:
    """Run the load generator; how many operations it did."""
    options = {"system": "openmsmq", "port": port, "what": what, "queue": queue, "connections": connections,
               "seconds": seconds, "count": count}  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(HERE / "load.py"), json.dumps(options)], capture_output=True, text=True, check=True
    )
    return int(json.loads(done.stdout)["count"])


def measure(checkout: Path, connections: int, seconds: float) -> dict[str, float]:
    """Microseconds of the server's processor time by operation."""
    found = {}
    with tempfile.TemporaryDirectory() as directory, daemon(checkout, Path(directory)) as (pid, port):
        create = "import openmsmq, sys\nwith openmsmq.connect('127.0.0.1', port=int(sys.argv[1])) as m:\n"
        create += "    for n in 'abc': m.create_queue(f'.\\\\private$\\\\{n}')"
        subprocess.run([str(checkout / ".venv/bin/python"), "-c", create, str(port)], check=True, cwd=checkout)
        filled = load(port, "durable send", "c", 64, seconds)
        for what, queue in zip(OPERATIONS, "abc", strict=True):
            before = cpu(pid)
            count = load(port, what, queue, connections, seconds, ENDLESS if queue != "c" else max(1, filled - 200))
            found[what] = (cpu(pid) - before) / count * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs=2, type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=8)
    arguments = parser.parse_args()
    rounds = []
    for number in range(arguments.rounds):
        order = arguments.checkouts if number % 2 == 0 else arguments.checkouts[::-1]
        both = {path: measure(path.resolve(), arguments.connections, arguments.seconds) for path in order}
        rounds.append([both[path] for path in arguments.checkouts])
    for what in OPERATIONS:
        first, second = ([each[index][what] for each in rounds] for index in (0, 1))
        ratios = sorted(b / a for a, b in zip(first, second, strict=True))
        print(
            f"{what} x{arguments.connections}: {statistics.median(first):.1f} and {statistics.median(second):.1f} us, "
            f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
