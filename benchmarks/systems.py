"""The measured servers, each in its own process on the same file system."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import wires
from load import program

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from daemon import Daemon

RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
START = 90.0


class Server(NamedTuple):
    port: int
    pid: int


def cpu(pid: int) -> float:
    """Return the CPU time of a process in seconds, from its clock (clock_getcpuclockid(3)) with nanosecond
    resolution."""
    return time.clock_gettime(~pid << 3 | 2)


def cpu_of_all(pid: int) -> float:
    """Return the CPU time of a process and all its descendants, including ended ones, in seconds."""
    total, ticks = 0.0, os.sysconf("SC_CLK_TCK")
    children: dict[int, list[int]] = {}
    ended: dict[int, float] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended; its parent includes it
            fields = (directory / "stat").read_text().rpartition(")")[2].split()  # from the third on, see proc(5)
            children.setdefault(int(fields[1]), []).append(int(directory.name))
            ended[int(directory.name)] = (int(fields[13]) + int(fields[14])) / ticks
    left = [pid]
    while left:
        one = left.pop()
        with contextlib.suppress(OSError):
            total += cpu(one)
        total += ended.get(one, 0.0)
        left += children.get(one, ())
    return total


def machine() -> str:
    """Return the processors and the kernel of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return f"{os.cpu_count()} × {processor}, {platform.system()} {platform.release()}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(ready: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START
    while True:
        try:
            ready()
            return
        except (OSError, AssertionError, ValueError) as error:
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"{process.args!r} does not answer") from error
            time.sleep(0.2)


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def openmsmq(directory: Path) -> Iterator[Daemon]:
    directory.mkdir(exist_ok=True)
    with Daemon(directory / "openmsmq", "--log-level", "error") as daemon:
        yield daemon


@contextlib.contextmanager
def floor(directory: Path, form: str, work: int) -> Iterator[Server]:
    """Run the baseline program in one of its forms; `work` in nanoseconds per request."""
    sizes = [",".join(map(str, operation)) for operation in wires.FLOOR_OPERATIONS.values()]
    command = [str(program("floor")), str(directory / f"floor-{form}-{work}"), form, str(work), *sizes]
    with ended(process := subprocess.Popen(command, stdout=subprocess.PIPE)):
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()), process.pid)


@contextlib.contextmanager
def rabbitmq(directory: Path) -> Iterator[Server]:
    """Run a RabbitMQ broker in `directory`."""
    with broker(directory) as (server, _):
        yield server


@contextlib.contextmanager
def broker(directory: Path, plugins: str = "") -> Iterator[tuple[Server, dict[str, str]]]:
    """Run a broker with plugins (comma-separated). Also yields the environment in which `rabbitmqctl` finds it."""
    port, distribution, mapper = free_port(), free_port(), free_port()
    home = directory / "rabbitmq"
    home.mkdir(parents=True)
    (home / "plugins").write_text(f"[{plugins}].")
    environment = dict(
        os.environ, HOME=str(home), RABBITMQ_MNESIA_BASE=str(home), RABBITMQ_LOG_BASE=str(home),
        RABBITMQ_NODENAME="bench@localhost", RABBITMQ_NODE_IP_ADDRESS="127.0.0.1", RABBITMQ_NODE_PORT=str(port),
        RABBITMQ_DIST_PORT=str(distribution), ERL_EPMD_PORT=str(mapper), RABBITMQ_PID_FILE=str(home / "pid"),
        RABBITMQ_ENABLED_PLUGINS_FILE=str(home / "plugins"),
    )  # fmt: skip
    # Started here so that it can be stopped; the server would leave it running.
    with ended(subprocess.Popen(["epmd", "-port", str(mapper)], env=environment, stderr=subprocess.DEVNULL)):
        output = (home / "output").open("wb")
        with output:
            process = subprocess.Popen([RABBITMQ], env=environment, stdout=output, stderr=output)
        with ended(process):
            wait_for(lambda: wires.amqp_declare(port, "classic", "classic"), process)
            wires.amqp_declare(port, "quorum", "quorum")
            yield Server(port, process.pid), environment


@contextlib.contextmanager
def redis(directory: Path) -> Iterator[Server]:
    port, home = free_port(), directory / "redis"
    home.mkdir()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--appendonly", "yes"]
    options += ["--appendfsync", "always", "--save", ""]
    process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with ended(process):
        wait_for(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), process)
        yield Server(port, process.pid)


def postgresql_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextlib.contextmanager
def postgresql(directory: Path) -> Iterator[Server]:
    programs = postgresql_programs()
    assert programs is not None
    port, home = free_port(), directory / "postgresql"
    home.mkdir()
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    if user:
        shutil.chown(home, user)
    data = home / "data"
    subprocess.run(
        [programs / "initdb", "-A", "trust", "-U", "postgres", "-D", data], user=user, cwd=home, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    options = ["-p", str(port), "-k", home, "-h", "127.0.0.1", "-c", "max_connections=200"]
    process = subprocess.Popen(
        [programs / "postgres", "-D", data, *options],
        user=user, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with ended(process):
        table = "CREATE TABLE IF NOT EXISTS q (id bigserial PRIMARY KEY, b bytea NOT NULL)"
        wait_for(lambda: wires.postgresql_query(port, table), process)
        yield Server(port, process.pid)


def installed() -> dict[str, bool]:
    return {
        "rabbitmq": Path(RABBITMQ).exists(),
        "redis": shutil.which("redis-server") is not None,
        "postgresql": postgresql_programs() is not None,
    }
