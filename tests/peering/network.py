"""Queue managers on a simulated network: time, sockets, disks and faults come from one seed.

`Loop` is an event loop that advances its clock when it is idle. `Network` carries bytes between listeners and
connections, with delays, in pieces, and with requested faults. All bytes must be packets that conform to the
specifications; closing the loop checks this. A `Node` is a queue manager with its message service, on a disk that
loses unsynced data in a crash.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import selectors
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from openmsmq.model import names, security
from openmsmq.model.constants import Access, PropId, ReceiveAction, Share
from openmsmq.model.default_descriptors import default_machine_security
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.peering.options import TransferOptions
from openmsmq.peering.service import MessageService
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import NoTransport, OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.store import Store
from openmsmq.store.committer import Committer
from openmsmq.transport.routing import Routing
from packets.conversation import Conversation, Side, Watch
from store.memory_vfs import MemoryVfs

EPOCH = 1_700_000_000_000  # milliseconds
PORT = 1801
ELSEWHERE = "127.0.0.99"  # source address of connections without one


class _Selector:
    """A selector that does not wait: the simulated time advances instead."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the simulation stands still: nothing is scheduled")
        self._loop.passed += max(timeout, 0)
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Loop(asyncio.SelectorEventLoop):
    """Event loop whose connections and names are those of the network."""

    def __init__(self, network: Network) -> None:
        self.passed = 0.0
        self.network = network
        super().__init__(_Selector(self))  # type: ignore[arg-type]

    def time(self) -> float:
        return self.passed

    def close(self) -> None:
        super().close()
        self.network.watch.hold()

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.network.listen(factory, host, port or PORT)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, *, local_addr: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(factory, local_addr[0] if local_addr else ELSEWHERE, host, port)

    async def create_datagram_endpoint(  # type: ignore[override]
        self, factory: Any, local_addr: Any = None, remote_addr: Any = None, **_: Any
    ) -> Any:
        protocol = factory()
        return Datagrams(self.network, protocol, local_addr[0] if local_addr else ELSEWHERE, remote_addr[0]), protocol

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        await asyncio.sleep(0.001)
        address = self.network.resolver.get(host)
        if address is None:
            raise OSError(f"{host} is not known")
        return [(2, 1, 6, "", (address, port))]


class Listener:
    """A listener at one address."""

    def __init__(self, network: Network, factory: Callable[[], Any], address: str, port: int) -> None:
        self.network, self.factory, self.address, self.port = network, factory, address, port
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self.address, self.port

    def close(self) -> None:
        self.network.listeners.pop(self.address, None)


class Socket(asyncio.Transport):
    """One end of a connection. Written bytes arrive at `other` later, in order, in pieces."""

    def __init__(
        self, network: Network, protocol: Any, own: str, peer: str, side: Side, conversation: Conversation
    ) -> None:
        super().__init__()
        self.network, self.protocol, self.own, self.peer = network, protocol, own, peer
        self._side, self._conversation = side, conversation
        self.other: Socket
        self.closed = False
        self.number = network.next_number()
        self._arrives = 0.0  # arrival time of the latest bytes at the other end
        self._inbox: deque[bytes] = deque()
        self._high = 64 << 10  # bytes in transit above which the writer must pause
        self._under_way, self._paused = 0, False
        self.broken = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer, 40000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or self._high

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        if self.closed:
            return
        network, chance = self.network, self.network.chance
        network.watch.feed(self._conversation, self._side, bytes(data))
        pieces = [bytes(data)]
        if chance.random() < 0.2 and len(data) > 1:
            cut = chance.randrange(1, len(data))
            pieces = [pieces[0][:cut], pieces[0][cut:]]
        self._under_way += len(data)
        if self._under_way > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()
        for piece in pieces:
            self._arrives = max(self._arrives + 1e-6, network.loop.time() + chance.uniform(0.0001, network.slowness))
            network.loop.call_at(self._arrives, self.other._arrived, piece)

    def _arrived(self, data: bytes) -> None:
        self._inbox.append(data)
        self._deliver()

    def _has_left(self, size: int) -> None:
        """Record that the other end has read a number of bytes."""
        self._under_way -= size
        if self._paused and self._under_way <= self._high // 4 and not self.closed:
            self._paused = False
            self.network.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self.closed and not self._paused:
            self.protocol.resume_writing()

    def _deliver(self) -> None:
        """Deliver arrived bytes, unless the machine is cut off: then TCP retries while the connection is open."""
        if self._inbox and self.network.severed(self.own, self.peer):
            self.network.loop.call_later(1, self._deliver)
            return
        while self._inbox and not self.closed and not self.broken:
            data = self._inbox.popleft()
            self.other._has_left(len(data))
            self.protocol.data_received(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.network.sockets.discard(self)
            self.network.loop.call_soon(self.protocol.connection_lost, None)
            at = max(self._arrives, self.network.loop.time()) + 0.0001
            self.network.loop.call_at(at, self.other.vanish)

    abort = close

    def vanish(self) -> None:
        """Handle the loss of the other end."""
        if self.closed:
            return
        if self.network.severed(self.own, self.peer):
            self.network.loop.call_later(1, self.vanish)
        else:
            self.closed = True
            self.network.sockets.discard(self)
            self.protocol.connection_lost(ConnectionResetError("reset"))


class Datagrams:
    """A datagram socket for one address; `Network.answering` returns the replies of that address."""

    def __init__(self, network: Network, protocol: Any, own: str, peer: str) -> None:
        self.network, self.protocol, self.own, self.peer = network, protocol, own, peer
        self.closed = False

    def sendto(self, data: bytes) -> None:
        if not self.network.severed(self.own, self.peer):
            for answer in self.network.answering.get(self.peer, lambda data, own: [])(data, self.own):
                self.network.loop.call_later(self.network.chance.uniform(0.0001, 0.05), self._arrive, answer)

    def _arrive(self, data: bytes) -> None:
        if not self.closed:
            self.protocol.datagram_received(data, (self.peer, 3527))

    def close(self) -> None:
        self.closed = True


class Network:
    """The network; the seed determines all events and their times."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.slowness = 0.05  # maximum seconds that a packet takes
        self.listeners: dict[str, Listener] = {}
        self.sockets: set[Socket] = set()
        self.resolver: dict[str, str] = {}
        self.answering: dict[str, Callable[[bytes, str], list[bytes]]] = {}  # datagrams, by the address asked
        self.partition: frozenset[str] = frozenset()  # addresses on one side
        self.translated: dict[str, str] = {}  # visible address of an address behind a router
        self.watch = Watch()
        self._numbers = itertools.count()
        self.loop = Loop(self)

    def next_number(self) -> int:
        return next(self._numbers)

    def severed(self, one: str, other: str) -> bool:
        return (one in self.partition) != (other in self.partition)

    def listen(self, factory: Callable[[], Any], address: str, port: int) -> Listener:
        self.listeners[address] = listener = Listener(self, factory, address, port)
        return listener

    async def connect(self, factory: Callable[[], Any], own: str, host: str, port: int) -> tuple[Socket, Any]:
        await asyncio.sleep(self.chance.uniform(0.0001, self.slowness))
        listener = self.listeners.get(host)
        if self.severed(own, host):
            await asyncio.sleep(60)
        if listener is None:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = factory(), listener.factory()
        conversation = self.watch.connection()
        one = Socket(self, near, own, host, Side.INITIATOR, conversation)
        other = Socket(self, far, host, self.translated.get(own, own), Side.ACCEPTOR, conversation)
        one.other, other.other = other, one
        self.sockets |= {one, other}
        far.connection_made(other)
        near.connection_made(one)
        return one, near

    def break_one(self) -> None:
        """Break a connection; its ends notice at different times, and bytes in transit are lost."""
        if self.sockets:
            socket = self.chance.choice(sorted(self.sockets, key=lambda socket: socket.number))
            for end in (socket, socket.other):
                end.broken = True
                self.loop.call_later(self.chance.uniform(0, 3), end.vanish)

    def crash(self, address: str) -> None:
        """End all connections of a machine, as seen by the others."""
        for socket in sorted(self.sockets, key=lambda socket: socket.number):
            if socket.own == address:
                socket.closed = True
                self.sockets.discard(socket)
                self.loop.call_later(self.chance.uniform(0.001, 2), socket.other.vanish)
        self.listeners.pop(address, None)


class _Syncer:
    """A slow disk."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def submit(self, handles: list[int], done: Callable[[OSError | None], None]) -> None:
        node, life = self._node, self._node.life

        def sync() -> None:
            if node.life == life:
                for handle in handles:
                    node.vfs.fdatasync(handle)
                done(None)

        node.network.loop.call_later(node.network.chance.uniform(0.0001, 0.02), sync)


class NoKeys:
    """Key store without keys and certificates."""

    def __init__(self) -> None:
        directory = EmptyDirectory()
        self.arrival = ArrivalProtection(CryptoPolicy(), directory, directory, lambda: 0.0)
        self.departure = DepartureProtection(CryptoPolicy(), directory, bytes)


class EmptyDirectory:
    """An empty directory."""

    def private_key(self, level: int) -> None:
        return None

    def public_keys(self) -> list[Any]:
        return []

    def public_keys_of(self, machine: bytes) -> list[Any]:
        return []

    def certificates_of_user(self, sid: bytes) -> list[bytes]:
        return []

    def certificates_of_machine(self, guid: bytes) -> list[bytes]:
        return []


class Node:
    """A queue manager. `life` counts its starts, 0 while it is down."""

    def __init__(
        self, network: Network, name: str, address: str, number: int, routing: Callable[[bytes], Routing] | None = None
    ) -> None:
        self.network, self.name, self.address = network, name, address
        self._routing = routing
        self.vfs = MemoryVfs()
        self.machine = Machine(
            name, bytes([number]) * 16, addresses=frozenset([address]), own_loopback=True,
            security=default_machine_security([security.EVERYONE]),
        )  # fmt: skip
        self.protections = NoKeys()
        self.options: dict[str, Any] = {}  # further `TransferOptions`
        self.life = 0
        self._starts = 0
        self._service: MessageService | None = None
        self.drift = 0  # clock error in milliseconds
        self._writing = 0.0  # seconds that writes have taken

    def clock(self) -> int:
        return EPOCH + self.drift + int(self.network.loop.time() * 1000)

    def _disk_clock(self) -> float:
        """Seconds by which the committer measures its writes; one in ten is slow."""
        self._writing += 0.01 * (self.network.chance.random() < 0.1)
        return self._writing

    async def start(self) -> None:
        chance = self.network.chance
        self._starts += 1
        self.life = life = self._starts
        loop = self.network.loop
        self.store = Store.open("/store", vfs=self.vfs, segment_size=1 << 20, entropy=chance.randbytes)
        recovered = self.store.recovered
        self.manager = QueueManager(
            self.machine, self.store, self.clock, chance.randbytes, recovered.queues, recovered.prepared, self, self,
            monotonic=lambda: int(self.network.loop.time() * 1000),
        )  # fmt: skip
        self.committer = Committer(
            self.store, loop, on_failure=self._failed, syncer=_Syncer(self), before=(self.manager.turn,),
            clock=self._disk_clock,
        )  # fmt: skip
        service = MessageService(self.manager, self._when_durable, self.protections, self._options(), loop)
        await service.start(self.address, PORT)
        if self.life == life:
            self._service = service

    def _options(self) -> TransferOptions:
        routing = self._routing(self.machine.identifier) if self._routing is not None else None
        return replace(TransferOptions(source=self.address, routing=routing), **self.options)

    def _when_durable(self, callback: Callable[[], object]) -> None:
        life = self.life
        self.committer.when_durable(lambda: callback() if self.life == life else None)

    def _failed(self, error: BaseException) -> None:
        raise AssertionError("the store has failed") from error

    def crash(self, *, power: bool = False) -> None:
        """Kill the process, or fail the power: then the disk has the synced data and parts of the rest."""
        if not self.life:
            return
        service, self._service, self.life = self._service, None, 0
        self.network.crash(self.address)
        chance = self.network.chance
        self.vfs = (
            self.vfs.crash(
                lambda index, total: bool(chance.getrandbits(1)), chance.randrange(len(self.vfs.changes) + 1)
            )
            if power
            else self.vfs.killed()
        )
        if service is not None:
            _silence(service)

    # -- QueueManagerHost and Transport ------------------------------------------------------------------------

    def turn_wanted(self) -> None:
        life = self.life
        self.network.loop.call_soon(lambda: self.manager.turn() if self.life == life else None)

    def deadline_changed(self) -> None:
        """Do nothing: the simulation calls `expire`."""

    def failed(self, error: BaseException) -> None:
        raise AssertionError("memory and log disagree") from error

    def wake(self, queue: OutgoingQueue | None) -> None:
        if self._service is not None:
            self._service.wake(queue)

    def resend(self, queue: OutgoingQueue) -> None:
        (self._service or NoTransport()).resend(queue)

    @property
    def service(self) -> MessageService:
        assert self._service is not None
        return self._service

    # -- applications ------------------------------------------------------------------------------------------

    def create(self, name: str, *, transactional: bool = False) -> Queue:
        values = {PropId.PROPID_Q_TRANSACTION: int(transactional)}
        return self.manager.administration.create_queue(f".\\private$\\{name}", values, None, SYSTEM)

    async def send(self, destination: str, messages: list[Message], *, transactional: bool = False) -> bool:
        """Send a message; returns whether the sender got a success reply, which a crash may prevent."""
        manager, life = self.manager, self.life
        name = names.parse_format_name(destination)
        descriptor = manager.handles.open_queue(name, Access.SEND, Share.DENY_NONE, SYSTEM)
        try:
            transaction = None
            if transactional:
                transaction = manager.transactions.create(self.network.chance.randbytes(16))
            for message in messages:
                manager.sending.enqueue(descriptor, message, transaction)
            if transaction is not None:
                manager.transactions.commit(transaction)
        finally:
            manager.handles.close_queue(descriptor)
        done = self.network.loop.create_future()
        self.committer.when_durable(lambda: done.done() or done.set_result(None))
        while self.life == life:
            if done.done():
                return True
            await asyncio.sleep(0.001)
        return False

    def labels(self, name: str) -> list[str]:
        queue = self.manager.registry.by_name[name]
        return [queue.message(key).label for key in queue.available]

    def take(self, name: str) -> Message | None:
        """Receive one message, if there is one."""
        descriptor = self.manager.handles.open_queue(
            names.parse_format_name(f"DIRECT=OS:.\\private$\\{name}"), Access.RECEIVE, Share.DENY_NONE, SYSTEM
        )
        found: list[Message] = []

        def answered(_: int, message: Message | None) -> None:
            if message is not None:
                found.append(message)

        try:
            self.manager.reading.read(
                descriptor, ReceiveAction.RECEIVE, 0, lambda message: int(HResult.MQ_OK), answered
            )
        finally:
            self.manager.handles.close_queue(descriptor)
        return found[0] if found else None


def _silence(service: MessageService) -> None:
    """Stop all activity of a killed process."""
    service._stopped = True
    if service._heartbeat is not None:
        service._heartbeat.cancel()
    service._order_acks.stop()
    for destination in service._destinations.values():
        if destination.attempt is not None:
            destination.attempt.cancel()
        if destination.timer is not None:
            destination.timer.cancel()
    for connection in service._serving:
        connection._over = True
        if connection._timer is not None:
            connection._timer.cancel()
