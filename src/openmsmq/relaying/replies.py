"""Redirect replies: replace the name of a moved response queue in a fetched message."""

from __future__ import annotations

from collections.abc import Iterable

from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message
from openmsmq.model.names import DirectFormatName, Suffix, parse_format_name
from openmsmq.relaying.relay import Relay

_HERE = ("switched", "done")  # states in which programs send to the local queue


def redirect_reply(message: Message, host: str, relays: Iterable[Relay], here: str) -> bool:
    """Replace the response queue of a message with the queue of this machine, if that response queue has moved from
    `host`.

    This is done only if the relay of that queue has the option `RelayDefinition.replies`, and not in a signed message,
    because the signature covers the name ([MS-MQMQ] 2.5.1 to 2.5.3). `here` is the computer name of this machine.
    Returns whether the name was changed.
    """
    name = message.response_queue_format_name
    if not name or message.signature or message.multiple_destination_signature:
        return False
    relay = _relay_of(name, host, relays)
    if relay is None:
        return False
    message.response_queue_format_name = f"DIRECT=OS:{here}\\{relay.definition.queue.removeprefix('.' + chr(92))}"
    return True


def _relay_of(name: str, host: str, relays: Iterable[Relay]) -> Relay | None:
    try:
        parsed = parse_format_name(name)
    except MsmqError:  # the name is untrusted
        return None
    if not isinstance(parsed, DirectFormatName) or parsed.suffix is not Suffix.NONE or parsed.subqueue:
        return None
    for relay in relays:
        definition = relay.definition
        if (
            definition.replies
            and definition.state in _HERE
            and definition.remote.lower() == parsed.path.lower()
            and definition.host.lower() == host.lower() == parsed.address.lower()
        ):
            return relay
    return None
