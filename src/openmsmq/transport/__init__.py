"""The binary protocol between queue managers ([MS-MQQB]), without sockets, clock or store.

Input: bytes and the time. Output: bytes, deadlines and events. `openmsmq.peering` does the I/O.
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
