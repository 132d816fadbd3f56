"""The automation objects: calls per second and the server's CPU time per call, compared with qmcomm2.

    python benchmarks/automation.py [--seconds 3]

The clients are threads of this process, so rates depend on them as much as on the server; the cost of the server is its
CPU time. For "prepared send", the load generator repeats the same bytes, so the server is always busy. Memory is the
increase per exported object in a server in this process (tracemalloc).
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from load import opened, repeat
from systems import cpu
from turns import daemon
from wires import Wire, connect

import openmsmq
from msrpc.dcom.activation import VERSION, interface_pointer
from msrpc.dcom.slots import METHOD
from msrpc.dcom.variant import VT, Variant, to_wire
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import ORPCTHIS
from msrpc.rpc import client
from openmsmq.com.apartment import Apartment
from openmsmq.com.proxies import CLASSES, wrap
from openmsmq.interfaces import mc_mqac as m

ROOT = Path(__file__).parent.parent
HOST, PATH, BODY = "127.0.0.1", ".\\private$\\bench", bytes(1024)
SEND, RECEIVE, RECOVERABLE = 2, 1, 1
Step = Callable[[], object]


class Objects:
    """A client of the automation objects."""

    def __init__(self, port: int) -> None:
        self.apartment = Apartment(HOST, port)

    def new(self, name: str) -> Any:
        coclass = CLASSES[f"MSMQ{name}"]
        return wrap(self.apartment, self.apartment.create(coclass.uuid, o.IDispatch.uuid), coclass.default.name)

    def opened(self, access: int) -> Any:
        info = self.new("QueueInfo")
        info.PathName = PATH
        return info.Open(access, 0)

    def activation(self) -> Step:
        return lambda: self.new("Message")

    def by_invoke(self) -> Step:
        message = self.new("Message")
        return lambda: message.Priority

    def by_vtable(self) -> Step:
        target = self.apartment.create(CLASSES["MSMQMessage"].uuid, m.IMSMQMessage4.uuid)
        operation = m.IMSMQMessage4.operation("get_Priority")
        assert operation.request is not None

        def step() -> None:
            work = target.exporter.call(m.IMSMQMessage4, target.ipid, operation, operation.request())
            assert self.apartment.run(work).result == 0

        return step

    def send(self) -> Step:
        queue, message = self.opened(SEND), self.new("Message")
        message.Body, message.Delivery = BODY, RECOVERABLE
        return lambda: message.Send(queue)

    def receive(self) -> Step:
        queue = self.opened(RECEIVE)
        return lambda: queue.Receive(ReceiveTimeout=0).Body

    def prepared_send(self, port: int) -> Wire:
        """Return a connection to the objects' port that repeats a Send of a recoverable message."""
        queue, message = self.opened(SEND), self.new("Message")
        message.Body, message.Delivery = BODY, RECOVERABLE
        pointer = interface_pointer(queue._oleobj_.to_objref())
        argument = to_wire(Variant(VT.DISPATCH, pointer), lambda target, by_dispatch: pointer)
        (dispid,) = (member.dispid for member in m.IMSMQMessage4.all_members if member.name == "Send")
        parameters = o.DISPPARAMS([argument], None, 1, 0)
        request = o.IDispatch_Invoke_Request(dispIdMember=dispid, dwFlags=METHOD, pDispParams=parameters)
        request.orpcthis = ORPCTHIS(version=VERSION, cid=bytes(16))
        operation = o.IDispatch.operation("Invoke")
        connection = client.connect(HOST, port)
        syntax = connection.bind(o.IDispatch.uuid, o.IDispatch.version)
        stub = operation.encode_request(request)
        connection.core.request(syntax, operation.opnum, stub, UUID(bytes_le=message._oleobj_.ipid))
        return Wire(
            connection._socket, [connection.core.data_to_send()], "results", keep=(connection, self, queue, message)
        )


class Calls:
    """A client of qmcomm2."""

    def __init__(self, port: int) -> None:
        self.manager = openmsmq.connect(HOST, port=port)

    def send(self) -> Step:
        queue = self.manager.open(PATH, "send")
        return lambda: queue.send(BODY, recoverable=True)

    def receive(self) -> Step:
        queue = self.manager.open(PATH, "receive")
        return lambda: queue.receive(timeout=0).body


def measure(pid: int, steps: list[Step], seconds: float) -> tuple[float, float]:
    """Return operations per second, and the server's CPU time per operation in microseconds."""
    counts = [0] * len(steps)
    barrier = threading.Barrier(len(steps) + 1)

    def work(number: int) -> None:
        steps[number]()
        barrier.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            steps[number]()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(steps))]
    for thread in threads:
        thread.start()
    barrier.wait()
    used, began = cpu(pid), time.monotonic()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began), (cpu(pid) - used) * 1e6 / sum(counts)


def measure_prepared(pid: int, wires: list[Wire], seconds: float) -> tuple[float, float]:
    """Like `measure`, with prepared requests."""
    with opened(wires) as connections:
        used = cpu(pid)
        result = repeat(connections, seconds)
        assert not result["failed"], f"{result['failed']} of {result['count']} sends failed"
        return result["rate"], (cpu(pid) - used) * 1e6 / result["count"]


def memory(name: str, interface: Any) -> float:
    """Return the memory per exported object in bytes."""
    sys.path.insert(0, str(ROOT / "tests"))
    from dcom.world import ComWorld

    world, count = ComWorld(), 2000
    world.export(world.new(name), interface)
    gc.collect()
    tracemalloc.start()
    for _ in range(count):
        world.export(world.new(name), interface)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    return used


def compare(name: str, connections: int, measured: Iterable[tuple[float, float]]) -> None:
    """Print rates and costs of calls of qmcomm2 and of objects, in this order."""
    costs: list[float] = []
    for kind, (rate, cost) in zip((Calls, Objects), measured, strict=True):
        costs.append(cost)
        ratio = f"{cost / costs[0]:.2f}" if costs[1:] else ""
        print(f"| {name}, {kind.__name__} | {connections} | {rate:,.0f} | {cost:.0f} | {ratio} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory, daemon(ROOT, Path(directory)) as (pid, ports):
        objects = ports["ept"]
        with openmsmq.connect(HOST, port=ports["qmcomm"]) as manager:
            manager.create_queue(PATH)
        print("| what | connections | a second | server's µs for each | to qmcomm2 |\n|---|--:|--:|--:|--:|")
        for name in ("activation", "by_vtable", "by_invoke"):
            rate, cost = measure(pid, [getattr(Objects(objects), name)()], seconds)
            print(f"| {name} | 1 | {rate:,.0f} | {cost:.0f} | |", flush=True)
        rpc = ports["qmcomm"]
        for connections in (1, 8, 64):
            for name in ("send", "receive"):
                compare(name, connections, (
                    measure(pid, [getattr(kind(port), name)() for _ in range(connections)],
                            seconds if name == "send" else seconds / 4)
                    for kind, port in ((Calls, rpc), (Objects, objects))
                ))  # fmt: skip
            prepared = (
                [connect("openmsmq", rpc, "durable send", "bench") for _ in range(connections)],
                [Objects(objects).prepared_send(rpc) for _ in range(connections)],
            )
            compare("prepared send", connections, (measure_prepared(pid, wires, seconds) for wires in prepared))
    for name, interface in (("Message", m.IMSMQMessage4), ("QueueInfo", m.IMSMQQueueInfo4), ("Queue", m.IMSMQQueue4)):
        print(f"{name}: {memory(name, interface):.0f} bytes for an exported object")


if __name__ == "__main__":
    main()
