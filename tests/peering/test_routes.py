"""Messages routed through other queue managers: four machines, two hops, one of them killed."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from openmsmq.model.constants import Acknowledge, Journal
from openmsmq.model.message import Message
from openmsmq.transport.routing import Manager, Routing, RoutingLink, Site
from peering.network import Network, Node
from peering.test_outcomes import acknowledgments, message, messages, settled

NAMES = ("ALPHA", "ROUTER", "GATE", "OMEGA")
ADDRESSES = {name: f"127.0.0.{20 + index}" for index, name in enumerate(NAMES)}
GUIDS = {name: bytes([index + 1]) * 16 for index, name in enumerate(NAMES)}


def routing(own: bytes) -> Routing:
    """ALPHA and ROUTER are in site A, whose gate is ROUTER; GATE and OMEGA in site B."""
    managers = [
        Manager(GUIDS[name], ADDRESSES[name], ("A",) if name in ("ALPHA", "ROUTER") else ("B",),
                routing_server=name in ("ROUTER", "GATE"))
        for name in NAMES
    ]  # fmt: skip
    sites = [Site("A", (GUIDS["ROUTER"],)), Site("B", (GUIDS["GATE"],))]
    return Routing(own, managers, sites, [RoutingLink("A", "B", 1)])


class FourMachines:
    """The four machines; OMEGA has the queues `plain` and `tx`."""

    def __init__(self, seed: int = 1) -> None:
        self.network = Network(seed)
        self.nodes = {
            name: Node(self.network, name, ADDRESSES[name], index + 1, routing) for index, name in enumerate(NAMES)
        }
        asyncio.set_event_loop(self.network.loop)

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()
        self.nodes["ALPHA"].create("admin")
        for name in ("plain", "tx"):
            self.nodes["OMEGA"].create(name, transactional=name == "tx")
        await self.nodes["OMEGA"].committer.drain()

    def name(self, queue: str, node: str = "OMEGA") -> str:
        registry = self.nodes[node].manager.registry
        return str(registry.format_name(registry.by_name[queue]))

    @property
    def waiting(self) -> int:
        return sum(len(queue) for node in self.nodes.values() for queue in node.manager.registry.outgoing.values())

    def run(self, story: Any) -> None:
        try:
            self.network.loop.run_until_complete(story())
        finally:
            asyncio.set_event_loop(None)
            self.network.loop.close()


def asking(line: FourMachines, label: str) -> Message:
    everything = Acknowledge.POS_ARRIVAL | Acknowledge.POS_RECEIVE | Acknowledge.NEG_ARRIVAL | Acknowledge.NEG_RECEIVE
    return message(
        label, acknowledgements_requested=int(everything),
        journaling_requested=int(Journal.JOURNAL | Journal.DEADLETTER),
        administration_queue_format_name=line.name("admin", "ALPHA"),
    )  # fmt: skip


def test_a_message_is_routed_and_its_acknowledgments_return() -> None:
    line = FourMachines()

    async def story() -> None:
        await line.start()
        alpha, omega = line.nodes["ALPHA"], line.nodes["OMEGA"]
        await alpha.send(line.name("plain"), [asking(line, "p")])
        await alpha.send(line.name("tx"), [asking(line, "1"), asking(line, "2")], transactional=True)
        await settled(60)
        assert omega.labels("plain") == ["p"] and omega.labels("tx") == ["1", "2"]
        assert acknowledgments(alpha) == ["ACK_REACH_QUEUE"] * 3
        received = omega.take("plain")
        assert received is not None and received.source_machine_identifier == GUIDS["ALPHA"]
        omega.take("tx")
        omega.take("tx")
        await settled(60)
        assert acknowledgments(alpha) == ["ACK_REACH_QUEUE"] * 3 + ["ACK_RECEIVE"] * 3
        assert sorted(m.label for m in messages(alpha.manager.registry.system_journal)) == ["1", "2", "p"]
        for name in ("ROUTER", "GATE", "OMEGA"):
            assert not line.nodes[name].manager.registry.system_journal.entries, "journals are the sender's"
            assert not any(key.startswith((b"route/", b"final-ack/")) for key in line.nodes[name].store.definitions)
        assert line.waiting == 0

    line.run(story)


@pytest.mark.parametrize("seed", range(12))
def test_with_a_repeatedly_killed_hop_messages_arrive_once_and_in_order(seed: int) -> None:
    line = FourMachines(seed)

    async def trouble() -> None:
        chance = line.network.chance
        for _ in range(6):
            await asyncio.sleep(chance.uniform(0.05, 4))
            node = line.nodes[chance.choice(NAMES)]
            node.crash(power=bool(chance.getrandbits(1)))
            await asyncio.sleep(chance.uniform(0.1, 5))
            await node.start()

    async def story() -> None:
        await line.start()
        name, work = line.name("tx"), asyncio.ensure_future(trouble())
        sent: list[str] = []
        told = set()
        for number in range(30):
            labels = [f"{number}.{k}" for k in range(4)]
            while not line.nodes["ALPHA"].life:
                await asyncio.sleep(0.01)
            sent += labels
            if await line.nodes["ALPHA"].send(name, [message(label) for label in labels], transactional=True):
                told |= set(labels)
            await asyncio.sleep(line.network.chance.uniform(0, 1))
        await work
        for _ in range(3600):
            await asyncio.sleep(1)
            if not line.waiting:
                break
        arrived = line.nodes["OMEGA"].labels("tx")
        assert len(set(arrived)) == len(arrived)
        assert told <= set(arrived) <= set(sent)
        assert [sent.index(label) for label in arrived] == sorted(sent.index(label) for label in arrived)
        assert not line.waiting

    line.run(story)


def test_what_expires_at_a_hop_is_reported_by_the_hop_and_is_no_dead_letter_there() -> None:
    line = FourMachines()

    async def story() -> None:
        await line.start()
        alpha, gate = line.nodes["ALPHA"], line.nodes["GATE"]
        line.nodes["OMEGA"].crash()
        name = f"PRIVATE={UUID(bytes_le=GUIDS['OMEGA'])}\\00000010"
        late = asking(line, "late")
        late.time_to_reach_queue = 40
        await alpha.send(name, [late])
        await settled(20)
        assert not [q for q in alpha.manager.registry.outgoing.values() if q.entries]
        await settled(30)
        gate.manager.expire()
        await gate.committer.drain()
        await settled(30)
        assert acknowledgments(alpha) == ["NACK_REACH_QUEUE_TIMEOUT"]
        assert not gate.manager.registry.dead_letters.entries

    line.run(story)


def test_t21_a_message_that_has_made_too_many_hops_goes_no_further() -> None:
    line = FourMachines()

    async def story() -> None:
        await line.start()
        # GATE has a wrong routing table, with OMEGA behind ROUTER.
        back = dict.fromkeys((GUIDS["OMEGA"],), (GUIDS["ROUTER"],))
        gate = line.nodes["GATE"].service._routing
        gate.next_hops = lambda destination: back.get(destination, (destination,))  # type: ignore[method-assign]
        await line.nodes["ALPHA"].send(line.name("plain"), [asking(line, "round and round")])
        await settled(120)
        assert acknowledgments(line.nodes["ALPHA"]) == ["NACK_HOP_COUNT_EXCEEDED"]
        assert line.waiting == 0 and not line.nodes["OMEGA"].labels("plain")

    line.run(story)


def test_a_machine_that_is_not_a_router_forwards_nothing() -> None:
    line = FourMachines()
    line.nodes["ROUTER"]._routing = Routing

    async def story() -> None:
        await line.start()
        await line.nodes["ALPHA"].send(line.name("plain"), [asking(line, "m")])
        await settled(60)
        assert not line.nodes["OMEGA"].labels("plain")
        assert line.waiting == 0

    line.run(story)
