"""Acknowledgments reach the right queue manager, even if its address changes or is shared, and replies to unknown
peers do not use up shared resources."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.model.constants import Acknowledge, Journal, MessageClass
from openmsmq.model.errors import InsufficientResources
from openmsmq.model.names import parse_format_name
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.peering import durable, memory
from openmsmq.peering.arrival import ArrivalOrigin, DeliveryResult
from openmsmq.queueing import registry as registries
from openmsmq.queueing.consumer_group import BatchLimits
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import QueueKind
from openmsmq.queueing.records import FINAL_ACK_PREFIX
from openmsmq.store import Operation
from peering.conftest import Pair
from peering.network import Node
from peering.test_arrival import judge, numbered, packet
from peering.test_outcomes import TX, message, messages, outgoing, settled
from peering.test_routes import GUIDS, FourMachines
from peering.test_sequences import order_ack
from queueing.pipeline import done

OUTSIDE = "127.0.0.200"
STRANGER = "127.0.0.66"


@pytest.fixture
def trio(pair: Pair) -> tuple[Node, Node, Node]:
    """ALPHA and GAMMA, which share the external address OUTSIDE, and BETA."""
    gamma = Node(pair.network, "GAMMA", "127.0.0.13", 3)
    pair.network.translated = {"127.0.0.11": OUTSIDE, "127.0.0.13": OUTSIDE}
    pair.run(gamma.start)
    return pair.alpha, gamma, pair.beta


def is_done(node: Node, name: str = TX) -> bool:
    """Whether all sent messages are acknowledged."""
    queue = outgoing(node, name)
    return not queue.entries and queue.journal is not None and not queue.journal.entries


def test_two_queue_managers_behind_one_address_each_get_their_own_acknowledgments(
    pair: Pair, trio: tuple[Node, Node, Node]
) -> None:
    alpha, gamma, beta = trio

    async def story() -> None:
        for round_ in range(3):
            for node in (alpha, gamma):
                sent = [message(f"{node.name}{round_}", journaling_requested=int(Journal.JOURNAL))]
                await node.send(TX, sent, transactional=True)
            await settled(5)
        assert len(beta.labels("tx")) == 6
        for node in (alpha, gamma):
            assert not outgoing(node, TX).entries, f"{node.name} has its order acknowledgments"
        while beta.take("tx") is not None:
            pass
        await settled(10)
        for node in (alpha, gamma):
            assert is_done(node), f"{node.name} has its final acknowledgments"
            assert [m.label for m in messages(node.manager.registry.system_journal)] == [
                f"{node.name}{round_}" for round_ in range(3)
            ]

    pair.run(story)


def test_final_acknowledgments_survive_a_restart_of_their_queue_manager_and_find_the_right_peer(
    pair: Pair, trio: tuple[Node, Node, Node]
) -> None:
    alpha, gamma, beta = trio

    async def story() -> None:
        for node in (alpha, gamma):
            await node.send(TX, [message(node.name, journaling_requested=int(Journal.JOURNAL))], transactional=True)
        await settled(5)
        beta.crash()
        await settled(5)
        await beta.start()
        while beta.take("tx") is not None:
            pass
        await settled(30)
        for node in (gamma, alpha):  # other machines cannot connect to them: they reconnect themselves
            await node.send(TX, [message("again")], transactional=True)
            await settled(30)
            assert [m.label for m in messages(node.manager.registry.system_journal)] == [node.name]

    pair.run(story)


@pytest.mark.parametrize("restart", [False, True])
def test_a_consumer_group_sends_final_acknowledgments_as_any_other_reader(pair: Pair, restart: bool) -> None:
    """[MS-MQQB] 3.1.7.17"""

    async def story() -> None:
        journal = int(Journal.JOURNAL)
        sent = [message("a", journaling_requested=journal), message("b"), message("c", journaling_requested=journal)]
        await pair.alpha.send(TX, sent, transactional=True)
        await settled(5)
        if restart:
            pair.beta.crash()
            await pair.beta.start()
        queue, groups = pair.beta.manager.registry.by_name["tx"], pair.beta.manager.consumer_groups
        group = done(groups.claim(queue, "g", 0, BatchLimits()))
        assert [m.label for m in map(queue.message, group.keys)] == ["a", "b", "c"]
        done(groups.commit_claim(group, group.end))
        await settled(120)
        assert is_done(pair.alpha), "it has its final acknowledgments"
        assert [m.label for m in messages(pair.alpha.manager.registry.system_journal)] == ["a", "c"]
        assert not any(name.startswith(FINAL_ACK_PREFIX) for name in pair.beta.store.definitions)

    pair.run(story)


def test_after_a_power_failure_a_peer_gets_its_replies_on_the_new_session(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the old connection is not noticed for a minute."""

    async def story() -> None:
        await pair.alpha.send(TX, [message("a")], transactional=True)
        await settled(5)
        monkeypatch.setattr(pair.network, "crash", lambda address: pair.network.listeners.pop(address, None))
        old = [socket for socket in pair.network.sockets if socket.own == pair.alpha.address]
        pair.alpha.crash(power=True)
        for socket in old:
            socket.closed = True
        await pair.alpha.start()
        await pair.alpha.send(TX, [message("b")], transactional=True)
        await settled(5)
        assert pair.beta.labels("tx") == ["a", "b"]
        assert not outgoing(pair.alpha, TX).entries, "the order acknowledgment came by the new session"

    pair.run(story)


def test_a_queue_manager_that_moved_gets_its_replies_at_the_new_address(pair: Pair) -> None:
    async def story() -> None:
        both = int(Journal.JOURNAL | Journal.DEADLETTER)
        await pair.alpha.send(TX, [message("a", journaling_requested=both)], transactional=True)
        await settled(5)
        pair.alpha.crash()
        await settled(5)
        stranger = Node(pair.network, "STRANGER", pair.alpha.address, 9)
        await stranger.start()  # has the old address now
        pair.alpha.address = "127.0.0.77"
        await pair.alpha.start()
        assert pair.beta.take("tx") is not None
        await settled(60)
        await pair.alpha.send(TX, [message("b")], transactional=True)
        await settled(60)
        assert [m.label for m in messages(pair.alpha.manager.registry.system_journal)] == ["a"]
        assert is_done(pair.alpha) and not outgoing(pair.alpha, TX).entries

    pair.run(story)


def test_a_reply_to_a_refused_unknown_peer_uses_its_session_and_leaves_nothing(pair: Pair) -> None:
    missing = TX.replace("tx", "missing")

    async def story() -> None:
        before = dict(pair.beta.store.definitions)
        await pair.alpha.send(
            missing, [message(str(n), journaling_requested=int(Journal.DEADLETTER)) for n in range(5)],
            transactional=True,
        )  # fmt: skip
        await settled(10)
        dead = messages(pair.alpha.manager.registry.transactional_dead_letters)
        assert [(m.label, m.message_class) for m in dead] == [(str(n), MessageClass.NACK_BAD_DST_Q) for n in range(5)]
        assert is_done(pair.alpha, missing)
        assert not pair.beta.manager.registry.outgoing and dict(pair.beta.store.definitions) == before

    pair.run(story)


@pytest.mark.parametrize("peers", [2 * memory.MOST_TENTATIVE, pytest.param(100_000, marks=pytest.mark.slow)])
def test_unknown_peers_create_no_queues_and_no_durable_state(pair: Pair, peers: int) -> None:
    arrival, beta = pair.beta.service._arrival, pair.beta.manager
    before = dict(pair.beta.store.definitions)
    for number in range(peers):
        source = b"stranger" + number.to_bytes(8, "little")
        made = numbered(1, 0, "missing" if number % 2 else "plain")
        made.user.source_queue_manager = source
        if number % 3:
            made.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=77)
        verdict = judge(arrival, made, ArrivalOrigin(source if number % 5 else b"\7" * 16, STRANGER))
        assert verdict.fate is DeliveryResult.REJECTED
        direct = not number % 3
        assert (verdict.answer is not None) == (direct or bool(number % 5))
    left = {name for name in pair.beta.store.definitions if name not in before}
    assert not beta.registry.outgoing and not left
    assert len(pair.beta.service._sources._tentative) <= memory.MOST_TENTATIVE
    assert beta.changes.outgoing_for(parse_format_name("DIRECT=OS:new\\private$\\q"))  # type: ignore[arg-type]


def asking(number: int) -> Any:
    return packet(
        "missing", acknowledgements_requested=int(Acknowledge.NEG_ARRIVAL),
        administration_queue_format_name=f"DIRECT=OS:host{number}\\private$\\admin",
    )  # fmt: skip


def test_administration_queues_of_one_host_stay_within_its_share(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arrival, beta = pair.beta.service._arrival, pair.beta.manager
    monkeypatch.setattr(arrival._protection, "acknowledges", lambda packet, reason: True)
    for number in range(1000):
        judge(arrival, asking(number), ArrivalOrigin(bytes([number % 250]) * 16, STRANGER))
    assert len(beta.registry.outgoing) == registries.ANSWERS_OF_HOST
    (warning,) = [each for each in caplog.records if "discarded" in each.message]
    assert STRANGER in warning.message and "max_outgoing_queues" in warning.message
    judge(arrival, asking(2000), ArrivalOrigin(b"\x01" * 16, "127.0.0.67"))  # another host
    assert len(beta.registry.outgoing) == registries.ANSWERS_OF_HOST + 1
    # A peer whose transactional messages were accepted is known and not subject to the share.
    known = ArrivalOrigin(b"\x44" * 16, STRANGER)
    assert judge(arrival, numbered(1, 0), known).fate is DeliveryResult.ACCEPTED
    for number in range(3000, 3010):
        judge(arrival, asking(number), known)
    assert len(beta.registry.outgoing) == registries.ANSWERS_OF_HOST + 11


def test_shares_of_outgoing_queues_survive_a_restart_and_end_with_their_queues(pair: Pair) -> None:
    async def story() -> None:
        registry = pair.beta.manager.registry
        first = registry.create_outgoing(parse_format_name("DIRECT=OS:h0\\private$\\q"), STRANGER)  # type: ignore[arg-type]
        for number in range(1, registries.ANSWERS_OF_HOST):
            registry.create_outgoing(parse_format_name(f"DIRECT=OS:h{number}\\private$\\q"), STRANGER)  # type: ignore[arg-type]
        registry.drop(first)
        await pair.beta.committer.drain()
        pair.beta.crash()
        await pair.beta.start()
        registry = pair.beta.manager.registry
        registry.create_outgoing(parse_format_name("DIRECT=OS:again\\private$\\q"), STRANGER)  # type: ignore[arg-type]
        with pytest.raises(InsufficientResources, match=STRANGER):
            registry.create_outgoing(parse_format_name("DIRECT=OS:more\\private$\\q"), STRANGER)  # type: ignore[arg-type]
        registry.create_outgoing(parse_format_name("DIRECT=OS:local\\private$\\q"))  # type: ignore[arg-type]

    pair.run(story)


def test_if_the_sequence_table_is_full_a_message_stays_with_its_sender(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        sources = pair.beta.service._sources
        monkeypatch.setattr(sources._shares, "total", 1)
        stranger = judge(pair.beta.service._arrival, numbered(1, 0), ArrivalOrigin(b"\x44" * 16, STRANGER))
        assert stranger.fate is DeliveryResult.ACCEPTED
        await pair.alpha.send(TX, [message("a"), message("b")], transactional=True)
        await settled(20)
        assert len(outgoing(pair.alpha, TX)) == 2 and pair.beta.labels("tx") == ["m"]
        assert "sequence forget" in caplog.text and str(UUID(bytes_le=pair.alpha.machine.identifier)) in caplog.text
        tx = pair.beta.manager.registry.by_name["tx"]
        assert pair.beta.service.forget_sequence(tx, b"\x44" * 16)
        assert not pair.beta.service.forget_sequence(tx, b"\x44" * 16)
        await settled(60)
        assert pair.beta.labels("tx") == ["m", "a", "b"] and is_done(pair.alpha)

    pair.run(story)


def test_a_sequence_exhausted_by_a_forger_continues_once_forgotten(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message("a")], transactional=True)
        await settled(5)
        forged = numbered(1, 0)
        forged.user.source_queue_manager = pair.alpha.machine.identifier
        forged.transaction.sequence_timestamp = forged.transaction.sequence_ordinal = 0xFFFFFFFF  # type: ignore[union-attr]
        judge(pair.beta.service._arrival, forged, ArrivalOrigin(b"\x44" * 16, STRANGER))
        await pair.alpha.send(TX, [message("b")], transactional=True)
        await settled(20)
        assert pair.beta.labels("tx") == ["a", "m"]
        tx = pair.beta.manager.registry.by_name["tx"]
        assert pair.beta.service.forget_sequence(tx, pair.alpha.machine.identifier)
        await settled(60)
        assert pair.beta.labels("tx") == ["a", "m", "b"] and is_done(pair.alpha)

    pair.run(story)


def test_sequences_of_deleted_queues_are_forgotten(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message("a")], transactional=True)
        await settled(5)
        registry, sources = pair.beta.manager.registry, pair.beta.service._sources
        registry.drop(registry.by_name["tx"])
        assert sources.count == 1
        await settled(120)
        assert sources.count == 0
        assert not [name for name in pair.beta.store.definitions if name.startswith(b"incoming-sequence/")]

    pair.run(story)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_for_a_public_queue_is_routed_over_hops(restarts: bool, transactional: bool) -> None:
    """[MS-MQQB] 3.1.5.8.2, 3.1.5.8.5: the packet names the queue manager of the queue."""
    line, guid = FourMachines(), UUID(int=77)

    async def story() -> None:
        await line.start()
        alpha, router, omega = line.nodes["ALPHA"], line.nodes["ROUTER"], line.nodes["OMEGA"]
        properties = QueueProperties("OMEGA\\p", instance=guid.bytes_le, transactional=transactional)
        properties = properties._replace(security=omega.manager.registry.by_name["plain"].properties.security)
        omega.manager.registry.create(properties, QueueKind.PUBLIC)
        alpha.manager.registry.remember_place(guid, QueueLocation("OMEGA\\p", 0, GUIDS["OMEGA"]))
        if restarts:
            line.nodes["GATE"].crash()
        await alpha.send(f"PUBLIC={guid}", [message("a"), message("b")], transactional=transactional)
        await settled(5)
        if restarts:
            router.crash(power=True)
            await router.start()
            await line.nodes["GATE"].start()
        await settled(120)
        queue = omega.manager.registry.public[guid]
        assert [m.label for m in messages(queue)] == ["a", "b"]
        assert line.waiting == 0

    line.run(story)


def test_going_offline_ends_every_session(pair: Pair) -> None:
    async def story() -> None:
        for number in range(5):
            node = Node(pair.network, f"N{number}", f"127.0.1.{number}", 20 + number)
            await node.start()
            node.create("q")
            await pair.alpha.send(f"DIRECT=TCP:{node.address}\\private$\\q", [message("a")])
        await settled(3)
        assert pair.alpha.service.sessions == 5
        for queue in list(pair.alpha.manager.registry.outgoing.values())[::2]:
            pair.alpha.manager.registry.drop(queue)
        pair.alpha.manager.outgoing.set_online(False)
        await settled(3)
        assert pair.alpha.service.sessions == 0

    pair.run(story)


def test_nothing_is_kept_for_deleted_acknowledgment_queues(pair: Pair) -> None:
    async def story() -> None:
        registry, service = pair.beta.manager.registry, pair.beta.service
        for number in range(100):
            name = parse_format_name(f"PRIVATE={UUID(int=number + 1)}\\00000004")
            queue = registry.create_outgoing(name)  # type: ignore[arg-type]
            pair.beta.manager.arrivals.send(queue, message("ack"))
        service.wake()
        assert len(service._owed) == 100
        for queue in list(registry.outgoing.values())[:99]:
            registry.drop(queue)
        await settled(120)
        assert len(service._owed) == 1

    pair.run(story)


def test_each_name_of_a_transactional_queue_has_its_own_sequence(pair: Pair) -> None:
    """Each is an outgoing queue at the source (D-97); messages of one must not count as duplicates of others."""
    called = (TX, "DIRECT=OS:beta\\private$\\tx", "DIRECT=OS:BETA.example\\private$\\TX")
    pair.network.resolver["beta.example"] = pair.beta.address
    pair.beta.machine = replace(pair.beta.machine, qualified_name="beta.example")

    async def story() -> None:
        for round_ in range(4):
            for index, name in enumerate(called):
                await pair.alpha.send(name, [message(f"{round_}{index}")], transactional=True)
                await settled(2)
        assert pair.beta.labels("tx") == [f"{round_}{index}" for round_ in range(4) for index in range(3)]
        assert all(is_done(pair.alpha, name) for name in called)
        pair.beta.crash()
        await pair.beta.start()
        for name in called:
            await pair.alpha.send(name, [message("again")], transactional=True)
        await settled(60)
        assert pair.beta.labels("tx")[12:] == ["again"] * 3
        tx = pair.beta.manager.registry.by_name["tx"]
        assert len(tx.incoming) == 3 and pair.beta.service.forget_sequence(tx, pair.alpha.machine.identifier)
        assert not tx.incoming and pair.beta.service._sources.count == 0

    pair.run(story)


def test_a_sequence_of_an_earlier_version_without_names_continues(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message("a"), message("b")], transactional=True)
        await settled(1)
        sources = pair.beta.service._sources
        (known,) = sources.of_queue(pair.beta.manager.registry.by_name["tx"].number)
        position = known.sequence.position
        tx = pair.beta.manager.registry.by_name["tx"]
        pair.beta.manager.arrivals.note([
            *sources.removal(known), durable.put_incoming(known.source, tx.number, "", position, 0, 7)
        ])  # fmt: skip
        await pair.beta.committer.drain()
        pair.beta.crash()
        await pair.beta.start()
        again = numbered(position.number, 0)
        again.user.source_queue_manager = pair.alpha.machine.identifier
        assert again.transaction is not None
        again.transaction.sequence_timestamp = position.identifier.timestamp
        again.transaction.sequence_ordinal = position.identifier.ordinal
        arrival, origin = pair.beta.service._arrival, ArrivalOrigin(pair.alpha.machine.identifier, pair.alpha.address)
        assert judge(arrival, again, origin).fate is DeliveryResult.OUT_OF_ORDER, "it has come"
        again.transaction.sequence_number, again.transaction.previous_sequence_number = position.number + 1, 1
        assert judge(arrival, again, origin).fate is DeliveryResult.ACCEPTED

    pair.run(story)


def test_an_acknowledgment_that_is_not_of_the_next_hop_is_ignored_and_logged(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message("a", journaling_requested=int(Journal.JOURNAL))], transactional=True)
        await settled(5)
        service = pair.alpha.service
        (sequence,) = list(service._sequences)
        forged = packet("tx", message_class=int(MessageClass.ORDER_ACK))
        forged.properties.body = order_ack(sequence, 1).pack()
        assert service._sender.acknowledge(forged, b"\x66" * 16)
        assert "66666666-6666" in caplog.text and "routing_file" in caplog.text

    pair.run(story)


@pytest.mark.sources
def test_the_record_of_a_sequence_is_not_written_with_each_message(pair: Pair) -> None:
    noted: list[int] = []

    async def story() -> None:
        note = pair.alpha.manager.arrivals.note

        def noting(operations: Sequence[Operation]) -> None:
            noted.append(len(operations))
            note(operations)

        pair.alpha.manager.arrivals.note = noting  # type: ignore[method-assign,assignment]
        await pair.alpha.send(TX, [message("a")], transactional=True)
        while not noted:
            await asyncio.sleep(0.001)
        await pair.alpha.send(TX, [message("b")], transactional=True)
        while len(noted) == 1:
            await asyncio.sleep(0.001)
        await settled()
        assert pair.beta.labels("tx") == ["a", "b"]

    pair.run(story)
    assert noted[:2] == [3, 1]


def test_acknowledgments_go_to_the_session_that_delivers_if_another_one_has_the_same_identifier(pair: Pair) -> None:
    alpha, beta = pair.alpha, pair.beta
    clone = Node(pair.network, "CLONE", STRANGER, 1)
    pair.run(clone.start)
    assert clone.manager.machine.identifier == alpha.manager.machine.identifier

    async def story() -> None:
        for number in range(3):
            await alpha.send(TX, [message(f"{number}")], transactional=True)
            await settled(5)
            assert not outgoing(alpha, TX).entries, number
            await clone.send(TX.replace("tx", "plain"), [message("express")])
            await settled(5)
        assert beta.labels("tx") == ["0", "1", "2"]

    pair.run(story)
