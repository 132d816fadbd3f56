"""Foreign sites and their connector queues, without a network."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.model import security
from openmsmq.model.constants import (
    Access,
    Acknowledge,
    Journal,
    MessageClass,
    QueueAccessMask,
    SecurityInformation,
    Share,
)
from openmsmq.model.errors import AccessDenied, HResult, QueueNotFound
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.outgoing_queues import ConnectorQueue, ForeignSite
from queueing.pipeline import draft, source
from queueing.world import ALICE, BOB, MACHINE, World, refused

SITE = ForeignSite(UUID("6a2c1f00-0000-0000-0000-00000000000a"), "mainframe", ("SAPHOST", "192.0.2.7"))
OTHER = ForeignSite(UUID("6a2c1f00-0000-0000-0000-00000000000b"), "mail", ("MAILHOST",))
PLAIN, XACT = f"CONNECTOR={SITE.identifier}", f"CONNECTOR={SITE.identifier};XACTONLY"
THERE = r"DIRECT=OS:SapHost\private$\orders"


@pytest.fixture
def world() -> World:
    world = World(replace(MACHINE, foreign_sites=(SITE, OTHER)))
    world.create()
    return world


def connector(world: World, name: str = PLAIN) -> ConnectorQueue:
    (queue,) = (queue for queue in world.registry.connectors.values() if str(queue.format_name) == name)
    return queue


def restarted(world: World, *sites: ForeignSite, **more: Any) -> None:
    world.machine = replace(world.machine, foreign_sites=sites)
    world.restart(**more)


def test_each_site_has_two_connector_queues_one_for_transactions(world: World) -> None:
    assert len(world.registry.connectors) == 4
    for name, transactional in ((PLAIN, False), (XACT, True)):
        properties = connector(world, name).properties
        assert (properties.path_name, properties.label, properties.transactional) == (name, "mainframe", transactional)


@pytest.mark.parametrize("text", [THERE, r"DIRECT=OS:SAPHOST\orders", r"DIRECT=TCP:192.0.2.7\private$\orders"])
def test_a_message_for_a_foreign_machine_goes_where_its_kind_belongs_and_keeps_its_destination(
    world: World, text: str
) -> None:
    world.send(text, "express", connector_type_identifier=bytes(range(16)))
    transaction = world.begin()
    world.send(text, "first", transaction)
    world.send(text, "second", transaction)
    assert world.labels(connector(world, XACT)) == []
    world.manager.transactions.commit(transaction)
    assert world.labels(connector(world)) == ["express"]
    assert world.labels(connector(world, XACT)) == ["first", "second"]
    assert world.registry.outgoing == {}
    for queue in (connector(world), connector(world, XACT)):
        assert {m.destination_queue_format_name for m in world.messages(queue)} == {text}
    assert world.messages(connector(world))[0].connector_type_identifier == bytes(range(16))


def test_other_machines_still_have_outgoing_queues_and_web_servers_none(world: World) -> None:
    world.send(r"DIRECT=OS:ELSEWHERE\private$\q", "on its way")
    with refused(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
        world.send("DIRECT=HTTP://saphost/msmq/private$/q")
    assert len(world.registry.outgoing) == 1
    assert world.labels(connector(world)) == []


def test_a_list_of_queues_may_have_foreign_ones_in_it(world: World) -> None:
    world.send(f"DIRECT=OS:.\\private$\\q,{THERE},DIRECT=OS:MAILHOST\\a", "all")
    mail = connector(world, f"CONNECTOR={OTHER.identifier}")
    assert [world.labels(queue) for queue in (world.queue(), connector(world), mail)] == [["all"]] * 3


def test_a_connector_queue_opens_for_reading_only(world: World) -> None:
    unsupported = HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    for name in (PLAIN, XACT):
        assert world.open(name).queue is connector(world, name)
        assert world.open(name, Access.PEEK).queue is connector(world, name)
        for access in (Access.SEND, Access.MOVE):
            with refused(unsupported):
                world.open(name, access)
    unknown = f"CONNECTOR={UUID(int=5)}"
    with pytest.raises(QueueNotFound):
        world.open(unknown)
    with refused(unsupported):
        world.open(unknown, Access.SEND)


def test_sharing_cursors_transactions_and_purging_are_as_in_other_queues(world: World) -> None:
    transaction = world.begin()
    for label in "ab":
        world.send(THERE, label, transaction)
    world.manager.transactions.commit(transaction)
    reader = world.open(XACT, share=Share.DENY_RECEIVE_SHARE)
    with refused(HResult.MQ_ERROR_SHARING_VIOLATION):
        world.open(XACT)
    work = world.begin(2)
    assert world.read(reader, transaction=work).label == "a"
    world.manager.transactions.abort(work)
    assert world.labels(connector(world, XACT)) == ["a", "b"]
    assert world.manager.reading.purge(reader) == 2
    assert world.labels(connector(world, XACT)) == []


@pytest.mark.parametrize("checkpoint", [False, True])
def test_messages_and_queues_are_there_after_a_restart(world: World, checkpoint: bool) -> None:
    world.send(THERE, "express")
    world.send(THERE, "recoverable", delivery_guarantee=1)
    transaction = world.begin()
    world.send(THERE, "transactional", transaction)
    world.manager.transactions.commit(transaction)
    numbers = {name: connector(world, name).number for name in (PLAIN, XACT)}
    world.restart(checkpoint)
    assert world.labels(connector(world)) == ["recoverable"]
    assert world.labels(connector(world, XACT)) == ["transactional"]
    assert numbers == {name: connector(world, name).number for name in (PLAIN, XACT)}
    world.send(THERE, "goes on")
    assert world.labels(connector(world)) == ["recoverable", "goes on"]


def test_a_site_that_is_no_longer_declared_keeps_its_messages_and_is_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(THERE, "kept", delivery_guarantee=1)
    caplog.set_level(logging.WARNING)
    restarted(world, OTHER)
    assert f"foreign site {SITE.identifier} is not declared: {PLAIN} keeps 1 messages" in caplog.text
    assert world.labels(connector(world)) == ["kept"]
    assert XACT not in map(str, world.registry.connectors)  # it was empty
    world.send(THERE, "new")
    assert len(world.registry.outgoing) == 1
    assert world.read(world.open(PLAIN)).label == "kept"
    restarted(world, OTHER)
    assert PLAIN not in map(str, world.registry.connectors)


def test_a_site_that_is_declared_again_has_its_messages_and_its_new_name(world: World) -> None:
    world.send(THERE, "kept", delivery_guarantee=1)
    restarted(world)
    restarted(world, replace(SITE, name="the mainframe"))
    assert world.labels(connector(world)) == ["kept"]
    assert {queue.properties.label for queue in world.registry.connectors.values()} == {"the mainframe"}
    world.restart()
    assert connector(world).properties.label == "the mainframe"


def test_a_site_declared_too_late_leaves_what_waits_in_outgoing_queues(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.send(THERE, "early", delivery_guarantee=1)
    caplog.set_level(logging.WARNING)
    restarted(world, SITE)
    assert f"1 messages in the outgoing queue for {THERE} are older than the foreign site mainframe" in caplog.text
    world.send(THERE, "late")
    (outgoing,) = world.registry.outgoing.values()
    assert (world.labels(outgoing), world.labels(connector(world))) == (["early"], ["late"])


# -- what becomes of messages -----------------------------------------------------------------------------------------

EVERYTHING = Acknowledge.POS_ARRIVAL | Acknowledge.POS_RECEIVE | Acknowledge.NEG_ARRIVAL | Acknowledge.NEG_RECEIVE


def send_with_everything(world: World, label: str, **more: Any) -> None:
    admin = r"DIRECT=OS:.\private$\q"
    world.send(
        THERE, label, administration_queue_format_name=admin, acknowledgements_requested=int(EVERYTHING), **more
    )  # fmt: skip


def acknowledgments(world: World) -> list[MessageClass]:
    return [MessageClass(message.message_class) for message in world.messages(world.queue())]


def test_only_the_connector_application_confirms_the_arrival_of_a_message(world: World) -> None:
    send_with_everything(world, "m")
    world.read(world.open(PLAIN))
    assert acknowledgments(world) == []


def test_a_sender_that_asks_for_a_journal_copy_has_it_when_the_message_is_in_the_connector_queue(world: World) -> None:
    world.send(THERE, "m", journaling_requested=int(Journal.JOURNAL))
    assert world.labels(world.registry.system_journal) == ["m"]
    world.read(world.open(PLAIN))
    assert world.labels(world.registry.system_journal) == ["m"]


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"time_to_reach_queue": 5}, MessageClass.NACK_REACH_QUEUE_TIMEOUT),
        ({"time_to_be_received": 5}, MessageClass.NACK_REACH_QUEUE_TIMEOUT),
        ({"time_to_reach_queue": 9, "time_to_be_received": 5}, MessageClass.NACK_REACH_QUEUE_TIMEOUT),
    ],
)
def test_an_unfetched_message_expires_and_its_sender_is_notified(
    world: World, times: dict[str, int], reason: MessageClass
) -> None:
    send_with_everything(world, "m", journaling_requested=int(Journal.DEADLETTER), **times)
    world.advance(4_000)
    assert world.labels(connector(world)) == ["m"]
    world.advance(2_000)
    assert world.labels(connector(world)) == []
    assert acknowledgments(world) == [reason]
    assert [m.message_class for m in world.messages(world.registry.dead_letters)] == [reason]


def test_a_message_without_timeouts_never_expires(world: World) -> None:
    world.send(THERE, "m")
    world.advance(10 * 86_400_000)
    assert world.labels(connector(world)) == ["m"]


def test_purged_messages_are_acknowledged_as_deleted_in_transit(world: World) -> None:
    transaction = world.begin()
    send_with_everything(world, "x", journaling_requested=int(Journal.DEADLETTER), transaction=transaction)
    world.manager.transactions.commit(transaction)
    world.manager.reading.purge(world.open(XACT))
    assert acknowledgments(world) == [MessageClass.NACK_DELETED]
    assert world.labels(world.registry.transactional_dead_letters) == ["x"]


def test_a_connector_application_can_reject_a_message(world: World) -> None:
    transaction = world.begin()
    send_with_everything(world, "x", transaction=transaction)
    world.manager.transactions.commit(transaction)
    reader, work = world.open(XACT), world.begin(2)
    found = world.read(reader, transaction=work).message
    world.manager.subqueues.reject(reader, found.lookup_identifier)
    world.manager.transactions.commit(work)
    assert acknowledgments(world) == [MessageClass.NACK_RECEIVE_REJECTED]


# -- who may ----------------------------------------------------------------------------------------------------------


def test_the_descriptor_of_a_connector_queue_says_who_sends_and_who_reads_also_after_a_restart(world: World) -> None:
    descriptor = SecurityDescriptor(
        owner=SYSTEM.sid,
        group=SYSTEM.sid,
        dacl=(
            security.allow(ALICE.sid, QueueAccessMask.WRITE_MESSAGE),
            security.allow(BOB.sid, QueueAccessMask.RECEIVE_MESSAGE | QueueAccessMask.GET_QUEUE_PERMISSIONS),
        ),
    )
    manager, queue = world.manager, connector(world)
    manager.administration.set_security(queue, SecurityInformation.DACL, descriptor.pack(), ALICE)
    world.restart()
    manager, queue = world.manager, connector(world)
    kept = SecurityDescriptor.parse(manager.administration.get_security(queue, SecurityInformation.DACL, BOB))
    assert kept.dacl == descriptor.dacl
    world.send(THERE, "from Alice")
    assert world.read(world.open(PLAIN, caller=BOB)).label == "from Alice"
    with pytest.raises(AccessDenied):
        world.open(PLAIN)
    with pytest.raises(AccessDenied):
        world.open(THERE, Access.SEND, caller=BOB)


def test_a_connector_queue_can_be_neither_deleted_nor_changed(world: World) -> None:
    unsupported = HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    with refused(unsupported):
        world.manager.administration.delete_queue(connector(world), ALICE)
    with refused(unsupported):
        world.manager.administration.set_properties(connector(world), {}, ALICE)


def test_a_pipeline_reads_a_connector_queue_by_its_format_name(world: World) -> None:
    assert source(world, XACT, "queue", ALICE) is connector(world, XACT)


def test_staged_messages_go_to_the_connector_queue_of_their_kind(world: World) -> None:
    stage = world.manager.staged_writes.begin("sink", 1, 0, "a", ALICE)
    targets = [world.manager.staged_writes.target(THERE, transactional, ALICE) for transactional in (False, True)]
    for target, label in zip(targets, ("plain", "x"), strict=True):
        row = draft(target, label=label, delivery_guarantee=1)
        assert world.manager.staged_writes.stage(stage, [row], last=target is targets[1]) == []
    world.manager.staged_writes.seal(stage)
    restarted(world)  # staged messages keep the queues of a site that is no longer declared
    world.manager.staged_writes.finalize("sink", 1, [stage.handle], ALICE)
    assert world.labels(connector(world)) == ["plain"]
    assert world.labels(connector(world, XACT)) == ["x"]
