"""A relay after a refusal by the other machine."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import MessageClass
from openmsmq.model.message import Message
from openmsmq.relaying.records import RelayDefinition, RelayProgress
from openmsmq.relaying.relay import Relay
from openmsmq.server.relay_sending import PAUSE, _refused


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
