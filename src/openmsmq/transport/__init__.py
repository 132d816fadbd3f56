"""The binary protocol between queue managers ([MS-MQQB]), as a core without sockets, clock or store.

Bytes and the time go in; bytes, deadlines and events come out. `openmsmq.peering` serves it.
"""

from openmsmq.transport.events import (
    Acknowledged,
    Closed,
    CloseReason,
    Established,
    Event,
    LocalSessionError,
    MessageReceived,
    PeerIdentified,
)
from openmsmq.transport.session import MqqbSession
from openmsmq.transport.settings import SessionSettings
from openmsmq.transport.states import SessionState

__all__ = [
    "Acknowledged",
    "CloseReason",
    "Closed",
    "Established",
    "Event",
    "LocalSessionError",
    "MessageReceived",
    "MqqbSession",
    "PeerIdentified",
    "SessionSettings",
    "SessionState",
]
