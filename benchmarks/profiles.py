"""Instruction profiles of the server by function, as text in `benchmarks/profiles`. Needs valgrind.

    python benchmarks/profiles.py BEFORE AFTER [--connections 64] [--count 4000]

Each of the two checkouts has its own `.venv` and native modules (`make setup compiled`). Counts are per operation, with
all connections open: instructions of a function including its callees, without the kernel. They hardly vary between
runs, regardless of other load.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import tempfile
from pathlib import Path

import sealed
import turns
from load import load, opened, repeat
from wires import connect

import openmsmq.aio
from msrpc.rpc.pdu import AuthLevel
from openmsmq.accounts.users import UsersFile

HERE = Path(__file__).parent / "profiles"
OPERATIONS = {  # and their systems
    "durable send": "openmsmq", "express send": "openmsmq", "receive": "openmsmq", "remoteread": "two phases",
}  # fmt: skip
# At PKT_PRIVACY, by clients of the library.
SEALED = {"sealed send": ("send", sealed.send), "sealed receive": ("receive", sealed.receive)}
LEAST = 0.02  # minimum share of a function in the profile
_LINE = re.compile(r"\s*([\d,]+) \([ \d.]+%\)\s+(\S+):(\S+) \[.*/([^/\]]+)\]$")
_TOTAL = re.compile(r"\s*([\d,]+) \(100.0%\)\s+PROGRAM TOTALS")
# Event loops and call machinery, which include everything else.
_LEFT_OUT = re.compile(r"uv_|__pyx_|_Py|Py[A-Z]|method_|slot_|cfunction_|type_call|below|object_|partial_|builtin_")

CREATE = """
import openmsmq, sys
with openmsmq.connect("127.0.0.1", port=int(sys.argv[1]), user=sys.argv[2], password=sys.argv[3]) as manager:
    manager.create_queue(".\\\\private$\\\\a")
"""


def profile(checkout: Path, what: str, connections: int, count: int) -> dict[str, float]:
    """Return the instructions per operation by function, and those of the whole server as `all`. Raises
    CalledProcessError."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        found, data = directory / "counts", directory / "data"
        data.mkdir(mode=0o700)
        UsersFile(data / "users.json").add(sealed.USER, sealed.PASSWORD, administrator=True)
        under = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={found}")
        with turns.daemon(checkout, data, under) as (pid, ports):
            port, python = ports["qmcomm"], str(checkout / ".venv/bin/python")
            create = [python, "-c", CREATE, str(port), sealed.USER, sealed.PASSWORD]
            subprocess.run(create, check=True, cwd=checkout)
            if what in SEALED:
                done = asyncio.run(run_sealed(pid, port, what, connections, count))
            else:
                done = run_plain(pid, port, what, connections, count)
        text = subprocess.run(
            ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--auto=no", str(found)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    return {function: instructions / done for function, instructions in read(text).items()}


def run_plain(pid: int, port: int, what: str, connections: int, count: int) -> int:
    """Run an operation while the server is profiled. Returns how often."""
    load(port=port, what="durable send", queue="a", connections=connections, count=2 * count)
    with opened(connect(OPERATIONS[what], port, what, "a") for _ in range(connections)) as wires:
        switch(pid, "on")
        done = int(repeat(wires, 600, count)["count"])
        switch(pid, "off")
    return done


async def run_sealed(pid: int, port: int, what: str, connections: int, count: int) -> int:
    """Like `run_plain`, for an operation of `SEALED`."""
    access, operation = SEALED[what]
    login = {"user": sealed.USER, "password": sealed.PASSWORD, "level": AuthLevel.PKT_PRIVACY}
    managers = [await openmsmq.aio.connect("127.0.0.1", port, **login) for _ in range(connections)]
    sending = [await manager.open("a", "send", protocol="qmcomm") for manager in managers]
    queues = [await manager.open("a", access, protocol="qmcomm") for manager in managers]
    each = count // connections
    await asyncio.gather(*(repeated(sealed.send, queue, 2 * each) for queue in sending))
    switch(pid, "on")
    await asyncio.gather(*(repeated(operation, queue, each) for queue in queues))
    switch(pid, "off")
    for manager in managers:
        await manager.close()
    return each * connections


async def repeated(operation: sealed.Operation, queue: openmsmq.aio.MessageQueue, times: int) -> None:
    for _ in range(times):
        await operation(queue)


def switch(pid: int, to: str) -> None:
    subprocess.run(["callgrind_control", "-i", to, str(pid)], check=True, stdout=subprocess.DEVNULL)


def read(text: str) -> dict[str, int]:
    """Parse the output of callgrind_annotate."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if total := _TOTAL.match(line):
            counts["all"] = int(total[1].replace(",", ""))
        elif (match := _LINE.match(line)) and not _LEFT_OUT.match(match[3]):
            function = match[3].removeprefix("CPyDef_").replace("___", ".").removesuffix("'2")
            file = match[2].rpartition("/")[2]
            name = function if match[3].startswith("CPyDef_") else f"{function} ({file})"
            if "native" in match[4] or file.endswith(".c"):
                counts.setdefault(name, int(match[1].replace(",", "")))
    return counts


def table(what: str, connections: int, before: dict[str, float], after: dict[str, float]) -> str:
    most = {name: max(after.get(name, 0), before.get(name, 0)) for name in {**after, **before}}
    names = sorted((name for name in most if most[name] >= LEAST * after["all"]), key=lambda name: -most[name])
    lines = [f"{what}, {connections} connections: instructions for one operation, with what a function calls", ""]
    lines += [f"{'before':>9} {'after':>9}", ""]
    lines += [f"{before.get(name, 0):9.0f} {after.get(name, 0):9.0f}  {name}" for name in names]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--count", type=int, default=4000)
    arguments = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    for what in (*OPERATIONS, *SEALED):
        profiles = [
            profile(checkout.resolve(), what, arguments.connections, arguments.count)
            for checkout in (arguments.before, arguments.after)
        ]
        path = HERE / f"{what.replace(' ', '-')}-{arguments.connections}.txt"
        path.write_text(table(what, arguments.connections, *profiles))
        print(f"{what}: {profiles[0]['all']:.0f} and {profiles[1]['all']:.0f} instructions, {path}")


if __name__ == "__main__":
    main()
