"""Admitted messages can be read by every protocol, moved, journaled, dead-lettered, purged and deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from model.test_admission import messages
from openmsmq.conversion.receive_buffer import message_from_receive
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from protocols import test_qm2qm as qm2qm
from protocols import test_remote_read as remote_read
from protocols.clients import Client, Server
from queueing.world import ALICE

JOURNAL = "DIRECT=OS:.\\private$\\q;JOURNAL"
DEAD = "DIRECT=OS:.\\SYSTEM$;DEADLETTER"
ROOM = {
    "body": 80_000, "extension": 1000, "sender": 1000, "format_name": 1024, "certificate": 1 << 16, "key": 1 << 16,
    "signature": 1 << 16, "provider": 1024,
}  # fmt: skip


def enqueue(server: Server, message: Message) -> bool:
    descriptor = server.world.open("q", Access.SEND)
    try:
        server.world.manager.sending.enqueue(descriptor, replace(message))
    except MsmqError:
        return False
    finally:
        server.world.manager.handles.close_queue(descriptor)
    return True


def read_everywhere(client: Client, name: str, sent: Message) -> None:
    """Peek by each protocol and check the message."""
    found = [
        remote_read.message(remote_read.read(client, remote_read.opened(client, name), ReceiveAction.PEEK_CURRENT)),
        qm2qm.message(qm2qm.read(client, qm2qm.session(client, name)[0], ReceiveAction.PEEK_CURRENT)),
    ]
    response = client.receive(client.open(name, Access.PEEK).pdwQMContext, ReceiveAction.PEEK_CURRENT, **ROOM)
    assert response.result == HResult.MQ_OK
    found.append(message_from_receive(response.ptb))
    for message in found:
        assert (message.label, message.body, message.extension) == (sent.label, sent.body, sent.extension)


@settings(max_examples=40, deadline=None)
@given(sent=messages())
def test_every_admitted_message_can_be_read_moved_journaled_and_removed(sent: Message) -> None:
    server = Server()
    world = server.world
    world.create("q", JOURNAL=1)
    client = server.client()
    sent = replace(
        sent, time_to_be_received=60, acknowledgements_requested=0, administration_queue_format_name="",
        journaling_requested=1, privacy_level=0, priority=3,
    )  # fmt: skip
    if not enqueue(server, sent):
        assert not world.queue("q").entries
        return
    read_everywhere(client, "q", sent)
    key = world.queue("q").first()
    assert key is not None
    world.manager.subqueues.move(world.open("q"), world.open("q;" + "s" * 31, Access.MOVE), key)
    read_everywhere(client, "q;" + "s" * 31, sent)
    world.manager.subqueues.move(world.open("q;" + "s" * 31), world.open("q", Access.MOVE), key)
    assert world.read(world.open("q")).message.body == sent.body
    read_everywhere(client, JOURNAL, sent)
    assert enqueue(server, sent)
    world.restart()
    world.advance(70_000)
    if sent.delivery_guarantee:
        (letter,) = world.messages(world.registry.dead_letters)
        assert letter.body == sent.body
    assert enqueue(server, sent)
    world.manager.reading.purge(world.open("q"))
    assert not world.queue("q").entries
    assert enqueue(server, sent)
    world.manager.administration.delete_queue(world.queue("q"), ALICE)
    assert "q" not in world.registry.by_name


@pytest.mark.parametrize("values", [
    {"label": "x" * 250}, {"label": "\U0001f600" * 125}, {"signature": bytes(65536)}, {"symmetric_key": bytes(65536)},
    {"body": bytes((4 << 20) - 300)}, {"response_queue_format_name": "DIRECT=OS:h\\" + "x" * 2000},
])  # fmt: skip
@pytest.mark.parametrize("how", ["plain", "in a transaction", "to several queues"])
def test_every_entry_point_refuses_messages_that_no_reader_could_get(values: dict[str, Any], how: str) -> None:
    world = Server().world
    world.create("q", TRANSACTION=int(how == "in a transaction"))
    world.create("r")
    name = "DIRECT=OS:.\\private$\\r,DIRECT=OS:.\\private$\\q" if how == "to several queues" else "q"
    with pytest.raises(MsmqError, match="at most"):
        world.send(name, **{"label": "x", **values}, transaction=world.begin() if "transaction" in how else None)
    assert not world.queue("q").entries and not world.queue("r").entries


@pytest.mark.parametrize("name", ["s" * 32, "\U0001f600" * 16])
def test_a_subqueue_whose_name_does_not_fit_in_a_packet_is_not_created(name: str) -> None:
    world = Server().world
    world.create("q")
    with pytest.raises(MsmqError, match="31"):
        world.open(f"q;{name}", Access.MOVE)
