"""A relay after a refusal by the other machine."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import MessageClass
from openmsmq.model.message import Message
from openmsmq.relaying.records import RelayDefinition, RelayProgress
from openmsmq.relaying.relay import Relay
from openmsmq.server.relay_sending import PATIENCE, PAUSE, RelaySender, _refused
from queueing.world import World


@pytest.mark.parametrize(
    ("message_class", "reason"),
    [(MessageClass.NACK_Q_EXCEED_QUOTA, "NACK_Q_EXCEED_QUOTA"), (0x9ABC, "0x9abc")],
    ids=["known", "unknown"],
)
def test_after_a_refusal_a_relay_names_the_reason_and_pauses(message_class: int, reason: str) -> None:
    relay = Relay(RelayDefinition(".\\private$\\orders", "far", "private$\\orders", "sending", 5, 5), RelayProgress())
    message = Message(b"x", identifier=bytes(16) + (7).to_bytes(4, "little"))
    _refused(relay, message, message_class, 100)
    assert relay.rests_until == 100 + PAUSE
    assert relay.refused[message.id] == (f"far does not take it: {reason}", 100)
    assert relay.trouble == f"far refuses messages, and they are sent again later: {reason}"


class Sending:
    """A relay that sends the messages of a queue, with a clock."""

    def __init__(self) -> None:
        self.world, self.now = World(), 1_000_000
        definition = RelayDefinition(".\\private$\\orders", "far", "private$\\orders", "sending", 5, 5)
        self.relay, self.queue = Relay(definition, RelayProgress()), self.world.create("orders")
        self.sender = RelaySender(self.relay, lambda: self.queue, self.world.manager, lambda: self.now, check)
        self.world.send("orders")


async def check() -> None:
    return None


def test_after_the_clock_was_set_back_a_relay_does_not_pause_for_longer() -> None:
    sending = Sending()
    _refused(sending.relay, Message(b"x", identifier=bytes(20)), MessageClass.NACK_BAD_DST_Q, sending.now)
    assert sending.sender._turn() == 0
    sending.now -= 3600
    assert sending.sender._turn() == 1


def test_missing_acknowledgments_are_reported_although_the_clock_was_set_back() -> None:
    sending = Sending()
    sending.relay.unacknowledged = 1
    sending.sender._look_for_standstill(0, 0)
    sending.now -= 3600
    sending.sender._look_for_standstill(0, 0)
    assert not sending.relay.trouble
    sending.now += PATIENCE
    sending.sender._look_for_standstill(0, 0)
    assert "does not say that they arrived" in sending.relay.trouble
    assert f"openmsmq msg move '{sending.relay.definition.queue};relay' --all" in sending.relay.trouble


def test_messages_that_cannot_leave_are_reported_until_one_does() -> None:
    sending = Sending()
    assert sending.sender._turn() == 1
    for seconds, is_reported in ((0, False), (PATIENCE - 1, False), (1, True)):
        sending.now += seconds
        sending.sender._turn()
        assert ("openmsmq outgoing show 'DIRECT=OS:far" in sending.relay.trouble) is is_reported
    sending.world.send("orders")
    sending.sender._turn()
    assert sending.relay.trouble.startswith("1 message for far cannot leave"), "others that arrive change nothing"
    [outgoing] = sending.world.registry.outgoing.values()
    outgoing.left += 1
    sending.sender._turn()
    assert sending.relay.trouble == ""
