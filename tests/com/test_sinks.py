"""Resources that the daemon holds for the processes of its event sinks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon import Daemon, eventually
from msrpc.dcom.bindings import TCP, Bindings
from msrpc.dcom.objref import StandardReference, unpack
from msrpc.hresults import ComResult
from msrpc.interfaces.ms_dcom import MInterfacePointer
from openmsmq.com import ComError, Dispatch, WithEvents, close_all
from openmsmq.com.client import _Sink
from openmsmq.interfaces import mc_mqac as m

MANY = 16
PROGRAM = """
import sys
from openmsmq.com import Dispatch, WithEvents
class Handler: pass
event = Dispatch("MSMQ.MSMQEvent", host="127.0.0.1", port=int(sys.argv[1]), ping_seconds=0.5)
held = WithEvents(event, Handler)
print("ready", flush=True)
sys.stdin.read()
"""


class Handler:
    pass


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        yield running
    assert "Traceback" not in running.log, running.log


def sockets(daemon: Daemon) -> int:
    """Return the number of the daemon's open sockets."""
    count = 0
    for descriptor in Path(f"/proc/{daemon.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            count += os.readlink(descriptor).startswith("socket:")
    return count


def advised(daemon: Daemon, number: int) -> Any:
    """Connect a sink that the daemon takes for one in a separate process."""
    event = Dispatch("MSMQEvent", host="127.0.0.1", port=daemon.mapper_port, ping_seconds=10 + number / 1000)
    return event, WithEvents(event, Handler)


async def _sink(event: Any) -> tuple[Any, StandardReference]:
    """Return the connection point of an event, and a reference to a sink for it."""
    apartment = event._apartment
    container = await apartment.query(event._oleobj_, m.IConnectionPointContainer.uuid)
    wanted = m.IConnectionPointContainer_FindConnectionPoint_Request(riid=m._DMSMQEventEvents.uuid.bytes_le)
    operation = m.IConnectionPointContainer.operation("FindConnectionPoint")
    found = await container.exporter.call(m.IConnectionPointContainer, container.ipid, operation, wanted)
    point = await apartment.adopt(container.exporter, found.ppCP)
    given = unpack(await apartment.export(_Sink(apartment, point.exporter, Handler()), point.exporter))
    assert isinstance(given, StandardReference)
    return point, given


def test_connections_to_sinks_end_when_these_are_unadvised_or_released(daemon: Daemon) -> None:
    before = sockets(daemon)
    held = [advised(daemon, number) for number in range(MANY)]
    most = sockets(daemon)
    for _, connection in held[: MANY // 2]:
        connection.close()
    eventually(lambda: sockets(daemon) <= most - MANY // 2)
    held.clear()
    close_all()
    eventually(lambda: sockets(daemon) <= before)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with a short ping period."""
    with Daemon(tmp_path / "data", "--com-ping-seconds", "1") as running:
        yield running
    assert "Traceback" not in running.log, running.log


def test_programs_that_were_killed_are_forgotten_and_the_log_stays_quiet(impatient: Daemon) -> None:
    daemon = impatient
    before, command = sockets(daemon), [sys.executable, "-c", PROGRAM, str(daemon.mapper_port)]
    programs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for program in programs:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
    assert sockets(daemon) >= before + 4
    quiet = len(daemon.log)
    for program in programs:
        program.kill()
        program.communicate()
    eventually(lambda: sockets(daemon) <= before)
    time.sleep(2)  # two ping periods: a client that is not forgotten would cause a warning in each
    lines = [line for line in daemon.log[quiet:].splitlines() if "resolver" in line and " WARNING " in line]
    assert len(lines) <= len(programs), lines


def test_a_sink_on_another_host_is_looked_for_on_the_clients_own(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.99", 0)) as victim:
        victim.settimeout(0.5)
        event = Dispatch("MSMQEvent", host="127.0.0.1", port=daemon.mapper_port)
        apartment = event._apartment

        async def advise() -> None:
            point, given = await _sink(event)
            addresses = Bindings(((TCP, f"127.0.0.99[{victim.getsockname()[1]}]"),) * 200)
            forged = StandardReference(given.iid, 5, given.oxid + 1, given.oid, given.ipid, addresses).pack()
            request = m.IConnectionPoint_Advise_Request(pUnkSink=MInterfacePointer(len(forged), forged))
            operation = m.IConnectionPoint.operation("Advise")
            answer = await point.exporter.call(m.IConnectionPoint, point.ipid, operation, request)
            raise ComError(answer.result, "")

        with pytest.raises(ComError) as refused:
            apartment.run(advise())
        assert refused.value.hresult == ComResult.CONNECT_E_CANNOTCONNECT
        with pytest.raises(TimeoutError):
            victim.accept()
    close_all()


def test_sinks_that_cannot_be_reached_take_no_memory_and_little_time(daemon: Daemon) -> None:
    event = Dispatch("MSMQEvent", host="127.0.0.1", port=daemon.mapper_port)
    apartment = event._apartment
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    async def advise(times: int) -> None:
        point, given = await _sink(event)
        operation = m.IConnectionPoint.operation("Advise")
        for number in range(times):
            addresses = Bindings(((TCP, f"127.0.0.1[{port}]"),))
            forged = StandardReference(given.iid, 5, number + 1, given.oid, given.ipid, addresses).pack()
            request = m.IConnectionPoint_Advise_Request(pUnkSink=MInterfacePointer(len(forged), forged))
            answer = await point.exporter.call(m.IConnectionPoint, point.ipid, operation, request)
            assert answer.result == ComResult.CONNECT_E_CANNOTCONNECT

    apartment.run(advise(2000))
    before = daemon.resident
    apartment.run(advise(4000))
    assert daemon.resident - before < 8 << 20  # fails if sinks leak 5.2 KB each
    close_all()


@pytest.mark.parametrize(
    ("member", "flags", "delivered"),
    [(0, 1, True), (1, 1, True), (0, 3, True), (0, 2, False), (0, 0, False), (2, 1, False), (-1, 3, False)],
)
def test_a_sink_delivers_calls_of_its_methods_and_refuses_others(member: int, flags: int, delivered: bool) -> None:
    apartment = SimpleNamespace(spawned=[])
    apartment.spawn = lambda work: (apartment.spawned.append(work), work.close())
    sink = _Sink(apartment, None, Handler())
    request = SimpleNamespace(dispIdMember=member, dwFlags=flags, pDispParams=SimpleNamespace(rgvarg=None), rgVarRef=[])
    answer = sink.Invoke(SimpleNamespace(), request)
    assert answer.result == (0 if delivered else ComResult.DISP_E_MEMBERNOTFOUND)
    assert len(apartment.spawned) == delivered


def test_a_sink_knows_the_names_of_its_methods() -> None:
    sink = _Sink(SimpleNamespace(), None, Handler())
    known = sink.GetIDsOfNames(SimpleNamespace(), SimpleNamespace(rgszNames=["arrived", "ARRIVEDERROR"]))
    assert (known.rgDispId, known.result) == ([0, 1], 0)
    unknown = sink.GetIDsOfNames(SimpleNamespace(), SimpleNamespace(rgszNames=["Arrived", None, "x"]))
    assert (unknown.rgDispId, unknown.result) == ([0, -1, -1], ComResult.DISP_E_UNKNOWNNAME)
    with pytest.raises(ComError):
        sink.GetTypeInfo(SimpleNamespace(), SimpleNamespace(iTInfo=0))
