"""The binary protocol between queue managers ([MS-MQQB]), as a core without sockets, clock or store.

Bytes and the time go in; bytes, deadlines and events come out. `openmsmq.link` serves it.
"""

from openmsmq.transport.events import (
    Acknowledged,
    Closed,
    Established,
    Event,
    LocalProtocolError,
    MessageReceived,
    PeerIdentified,
    Reason,
)
from openmsmq.transport.session import Session
from openmsmq.transport.settings import Settings
from openmsmq.transport.states import State

__all__ = [
    "Acknowledged",
    "Closed",
    "Established",
    "Event",
    "LocalProtocolError",
    "MessageReceived",
    "PeerIdentified",
    "Reason",
    "Session",
    "Settings",
    "State",
]
