"""100,000 sources flood each table that unknown peers can fill: it stays within its bounds, and the entries of known
peers and local programs stay. The table in docs/security.md has the same rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from msrpc.dcom import pinging
from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.pinging import PingSets
from msrpc.rpc import association, throttle
from msrpc.rpc.association import AssociationTable
from msrpc.rpc.faults import Fault
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.server import ServerLimits
from msrpc.rpc.throttle import Attempt, FailureLimits, PeerFailures
from oletx.simulated import Network
from openmsmq.accounts import login_attempts
from openmsmq.accounts.login_attempts import Delays
from openmsmq.console import limits as web_limits
from openmsmq.console.bounded import BoundedProtocol
from openmsmq.console.callers import WebSessions
from openmsmq.console.live import Streams
from openmsmq.model.errors import InsufficientResources
from openmsmq.model.shares import Shares
from openmsmq.oletx import partners
from openmsmq.oletx.partners import MOST_SESSIONS, MOST_UNFINISHED
from openmsmq.oletx.session import Rank, Status
from openmsmq.oletx.states import PartnerSessionState
from openmsmq.oletx.structures import Partner
from openmsmq.packet.internal import EstablishConnection
from openmsmq.peering import memory, resolving
from openmsmq.peering.known_addresses import MOST_KNOWN, KnownAddresses
from openmsmq.peering.limits import SessionLimits
from openmsmq.peering.memory import Duplicates, Sources
from openmsmq.peering.options import TransferOptions
from openmsmq.peering.resolving import ResolvedTarget, Resolver
from openmsmq.queueing import staged_writes
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.transport.routing import Routing
from openmsmq.transport.sequence import SequenceId
from queueing.world import World

SOURCES = 100_000
KNOWN, STRANGER = "10.0.0.1", "192.0.2.66"


def sources(count: int = SOURCES) -> Iterator[tuple[int, str]]:
    """Return sources: half share one address, the others have one each."""
    for number in range(1, count + 1):
        yield number, STRANGER if number <= count // 2 else f"2001:db8::{number:x}"


def guid(number: int) -> bytes:
    return number.to_bytes(16, "little")


def failed_tries() -> None:
    now = itertools.count()
    failures = PeerFailures(lambda: next(now) * 1e-5, FailureLimits(login=3))
    for number, address in sources():
        failures.count(address, Attempt.LOGIN)
        assert number % 997 or not failures.refuses(KNOWN, Attempt.LOGIN)
    assert failures.remembered <= throttle._MAXIMUM_PEERS
    for _ in range(3):
        failures.count(KNOWN, Attempt.LOGIN)
    assert failures.refuses(KNOWN, Attempt.LOGIN), "it is counted as ever"


def wrong_passwords() -> None:
    delays = Delays(lambda: 0.0)
    for _ in range(5):
        delays.failed("admin", STRANGER)
    for number, _ in sources():
        delays.failed(f"user{number}", STRANGER)
    assert delays.left("admin", STRANGER) == 4, "failures under other names do not end a delay"
    assert delays.left("another", STRANGER) > 0 and delays.left("alice", KNOWN) == 0
    for number, address in sources():
        delays.failed(f"user{number}", address)
    assert len(delays) == login_attempts.REMEMBERED and delays.left("alice", KNOWN) == 0


def wrong_passwords_of_long_ago() -> None:
    now = 0.0
    delays = Delays(lambda: now)
    delays.failed("alice", KNOWN)
    now += login_attempts.FORGOTTEN_AFTER + 1
    delays.failed("bob", KNOWN)
    assert len(delays) == 1


class Held:
    """An owner of handles that counts rundowns."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        self.table = AssociationTable(lambda size: next(numbers).to_bytes(size, "little"))
        self.down = 0

    def open(self, group: association.Association) -> bytes:
        return group.held_by(None, None, AuthLevel.NONE).create("kind", "queue", self._run_down)

    def _run_down(self, _: object) -> None:
        self.down += 1


def handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(association.log, "warning", lambda *_: None)
    held = Held()
    held.table.shares.__init__(2000, 1000)  # type: ignore[misc]
    known = held.table.join(0, KNOWN)
    assert known is not None
    first = held.open(known)
    groups = []
    for number, address in sources():
        group = held.table.join(0, address) if number % 10 == 1 else groups[-1]
        assert group is not None
        groups.append(group)
        with suppress(Fault):
            held.open(group)
        assert held.table.shares.of(STRANGER) <= 1000 and held.table.shares.held <= 2000
    assert known.held_by(None, None, AuthLevel.NONE).get(first, "kind") == "queue"
    for group in {id(each): each for each in groups}.values():
        held.table.leave(group)
    assert held.table.shares.held == 1 and held.down == SOURCES
    second = held.open(known)
    for handle in (first, second):
        known.held_by(None, None, AuthLevel.NONE).close(handle, "kind")
    known.handles.charge(1)
    known.handles.charge(-1)
    assert held.table.shares.held == 0


def association_groups() -> None:
    """Each group needs a connection; `rpc.server` limits those per host and in total."""
    limits = ServerLimits()
    assert limits.max_connections_per_peer < limits.max_connections
    table = Held().table
    for _, address in sources():
        group = table.join(0, address)
        assert group is not None
        table.leave(group)
    assert len(table) == 0


def ping_sets() -> None:
    numbers = itertools.count(1)
    sets = PingSets(lambda: next(numbers), lambda oid: True, 360.0)
    known, status = sets.change(0, 0, [7], [], KNOWN, 0.0)
    refused = sum(bool(sets.change(0, 0, [number], [], address, 0.0)[1]) for number, address in sources())
    assert status == 0 and refused >= SOURCES - pinging.MOST_SETS
    assert len(sets) <= pinging.MOST_SETS and sets._of_peer[STRANGER] == pinging.MOST_SETS_OF_PEER
    assert sets.ping(known, 300.0) == 0 and 7 not in sets.expire(360.0) and sets.holds(7)
    assert len(sets) == 1 and sets.change(0, 0, [], [], STRANGER, 360.0)[1] == 0, "room again"


def objects() -> None:
    budget = ObjectBudget("objects", 10_000, 500)
    budget.take(KNOWN)
    for _, address in sources():
        with suppress(InsufficientResources):
            budget.take(address)
    assert budget.held_by(STRANGER) == 500 and budget.taken == 10_000
    budget.give_back(KNOWN)
    budget.take(KNOWN)


def http_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "open_connections", set())
    monkeypatch.setattr(BoundedProtocol, "peers", type(BoundedProtocol.peers)())

    class Clock:
        def time(self) -> float:
            return 0.0

    def connect(address: str) -> bool:
        protocol = BoundedProtocol.__new__(BoundedProtocol)
        protocol.loop = Clock()  # type: ignore[assignment]
        return protocol.admit(address)

    assert all(connect(KNOWN) for _ in range(3))
    for _ in range(SOURCES // 2):
        connect(STRANGER)
    assert BoundedProtocol.peers[STRANGER] == web_limits.CONNECTIONS_PER_PEER
    assert connect(KNOWN), "one host leaves room for others"
    for number, address in sources():
        if number > SOURCES // 2:
            connect(address)
    assert len(BoundedProtocol.open_connections) == web_limits.CONNECTIONS
    assert BoundedProtocol.peers[KNOWN] == 4


def http_sessions() -> None:
    """Only users who have logged in have one."""
    sessions = WebSessions(lambda: 0.0)
    secret, _ = sessions.open("ticket", "S-1-5-21-1", "alice")
    for _ in range(SOURCES // 2):
        sessions.open("ticket", "S-1-5-21-2", "mallory")
    assert len(sessions) == 1 + web_limits.SESSIONS_PER_USER and sessions.find(secret) is not None
    for number in range(SOURCES // 2):
        sessions.open("ticket", f"S-1-5-21-3-{number}", "user")
        assert number % 500 or sessions.find(secret) is not None, "one that is used is not the least used one"
    assert len(sessions) == web_limits.SESSIONS == sum(map(len, sessions._of_user.values()))


def streams() -> None:
    """See `tests/console/test_live.py`, which opens them."""
    shares = Shares[str](Streams.shares.total, Streams.shares.each)
    opened = sum(shares.take(STRANGER) for _ in range(SOURCES))
    assert opened == web_limits.STREAMS_PER_USER and shares.take(KNOWN)
    for _, address in sources():
        shares.take(address)
    assert shares.held == web_limits.STREAMS and shares.of(KNOWN) == 1


class Peer:
    """A connection at an address."""

    def __init__(self, address: str) -> None:
        self.address = address


def link_connections() -> None:
    connections: dict[Any, None] = {}
    options = TransferOptions(max_sessions=4000, max_sessions_per_peer=100)
    limits = SessionLimits(options, connections, guid(0))  # type: ignore[arg-type]
    refused = 0

    def connect(address: str) -> tuple[Peer, bool]:
        peer = Peer(address)
        connections[peer] = None
        accepted = limits.connected(address)
        if not accepted:
            del connections[peer]
            limits.closed(address)
        return peer, accepted

    known, accepted = connect(KNOWN)
    assert accepted
    for number, address in sources():
        refused += not connect(address)[1]
        if number == SOURCES // 2:
            assert sum(each.address == STRANGER for each in connections) == 200
            assert limits.accepts(KNOWN) and connect(KNOWN)[1], "one host leaves room for others"
    assert len(connections) == 8000 and refused > 0
    for peer in [each for each in connections if each is not known]:
        del connections[peer]
        limits.closed(peer.address)
    assert limits.admits(known, EstablishConnection(client_guid=guid(1))) and limits._at == {KNOWN: 1}  # type: ignore[arg-type]


def claimed_addresses() -> None:
    resolver = Resolver({}, Routing(guid(0)), None)
    resolver.met(guid(0), KNOWN)
    for number in range(1, SOURCES):
        resolver.met(guid(number), STRANGER)
    (hop,) = resolver.last_met(ResolvedTarget(identifier=guid(0)))
    assert hop.address == KNOWN and len(resolver._met) == 1 + resolving.MOST_MET_AT_ADDRESS
    for number, address in sources():
        resolver.met(guid(number), address)
    assert len(resolver._met) == resolving.MOST_MET == sum(map(len, resolver._at.values()))


def first_addresses() -> None:
    known = KnownAddresses({}, lambda _: None, lambda: 10**9)
    known.met(guid(0), KNOWN)
    for number, address in sources():
        known.met(guid(number), address)
    assert known.of(guid(0)) == KNOWN and len(known) == MOST_KNOWN


def queue() -> Queue:
    return Queue(16, QueueKind.PRIVATE, QueueProperties("q"), lambda *_: b"")


def incoming_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    at = queue()
    table = Sources({}, {16: at})
    known = table.of(guid(0), at, "", SequenceId(1, 1))
    table.keep(known, KNOWN)
    for number, address in sources():
        source = table.of(guid(number), at, "", SequenceId(1, 1))
        if table.has_room(source, address):
            table.keep(source, address)
    assert table.is_kept(known) and table.has_room(known, KNOWN)
    assert table._shares.of(STRANGER) == memory.INCOMING_OF_ADDRESS and table.count <= memory.MOST_INCOMING


def tentative_sequences() -> None:
    at = queue()
    table = Sources({}, {16: at})
    known = table.of(guid(0), at, "", SequenceId(1, 1))
    table.keep(known, KNOWN)
    for number, _ in sources():
        table.keep_tentative(table.of(guid(number), at, "", SequenceId(1, 1)))
    assert table.is_kept(known) and len(table._tentative) == memory.MOST_TENTATIVE


def duplicates() -> None:
    told = Duplicates({}, 0.0, 200_000)
    known, stranger = guid(0), guid(1)
    told.add(known + bytes(4), 0.0)
    for number in range(SOURCES):
        told.add(stranger + number.to_bytes(4, "little"), 1.0)
    for number, _ in sources():
        told.add(guid(number) + bytes(4), 2.0)
    assert told.seen(known + bytes(4), 3.0)
    assert len(told._history) <= 200_000


def stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_writes, "MOST_STAGES_OF_OWNER", SOURCES // 2)
    world = World()
    written = world.manager.staged_writes
    mallory, alice = (Caller(f"S-1-5-21-9-9-9-{number}", frozenset([f"S-1-5-21-9-9-9-{number}"])) for number in (1, 2))
    first = written.begin("s", 1, 0, "a", alice)
    for number in range(SOURCES):
        with suppress(InsufficientResources):
            written.begin("s", 1, number, "a", mallory)
    assert len(written.stages()) == 1 + SOURCES // 2
    another = written.begin("s", 1, 1, "a", alice)
    for stage in (first, another):
        written.drop(stage)
    assert written._shares.of(alice.sid) == 0 and written._shares.held == SOURCES // 2


#: Floods by the first column of the table.
def partner_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partners.logger, "disabled", True)  # the daemon writes 20 lines of a kind in ten seconds
    network = Network()
    here, friend = network.site("HERE", 1 << 100), network.site("FRIEND", 1 << 101)
    heard = friend.manager.partners
    session = heard._new(here.partner)
    session.want()
    network.run(lambda: session.state is PartnerSessionState.ACTIVE)
    known = here.manager.partners
    for number, address in sources():
        known.poke(Partner(UUID(int=number), f"H{number}"), here.partner.cid, Rank.SECONDARY, address)
        assert number % 997 or len(known) <= MOST_SESSIONS
    assert len(known) == MOST_SESSIONS and len(known._begun.get(STRANGER, ())) == MOST_UNFINISHED
    network.run(seconds=10)
    assert known.sessions() == [one for one in known.sessions() if one.partner == friend.partner]
    assert len(known) == 1 and set(known._begun) == {"FRIEND"}
    assert known.poke(Partner(UUID(int=1), "LATE"), here.partner.cid, Rank.SECONDARY, STRANGER) == Status.OK


FLOODS: dict[str, tuple[Callable[..., None], ...]] = {
    "`rpc`: failed tries by host": (failed_tries,),
    "logins: wrong passwords by user and host": (wrong_passwords, wrong_passwords_of_long_ago),
    "`rpc`: association groups": (association_groups,),
    "`rpc`: queues, cursors, transactions of associations": (handles,),
    "`oletx`: sessions of transaction managers": (partner_sessions,),
    "`dcom`: ping sets": (ping_sets,),
    "`dcom`: objects, notifications, sinks": (objects,),
    "`web`: HTTP connections": (http_connections,),
    "`web`: sessions": (http_sessions,),
    "`web`: streams of events": (streams,),
    "`link`: connections": (link_connections,),
    "`link`: claimed addresses of queue managers": (claimed_addresses,),
    "`link`: first addresses of queue managers": (first_addresses,),
    "`link`: sequences of which nothing was accepted": (tentative_sequences,),
    "`link`: sequences": (incoming_sequences,),
    "`link`: duplicates": (duplicates,),
    "`bulk`: stages": (stages,),
}


@pytest.mark.parametrize(
    "flood", [each for floods in FLOODS.values() for each in floods], ids=lambda each: each.__name__
)
def test_a_flood_of_unknown_sources_stays_within_bounds(
    flood: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flood(*[monkeypatch] * flood.__code__.co_argcount)


def test_the_table_of_the_documentation_has_these_rows() -> None:
    text = (Path(__file__).parents[1] / "docs/security.md").read_text(encoding="utf-8")
    table = text.partition("**Tables that strangers can make grow.**")[2].partition("**System queues.**")[0]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)
    assert rows[1:] == ["---", *FLOODS] or rows[1:] == list(FLOODS)
