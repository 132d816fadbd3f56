"""Parameters of the sessions of a queue manager ([MS-MQQB] 3.1.1.3.1, 3.1.2). Times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from openmsmq.packet.internal import ACK_TIMEOUT

WINDOW_SIZE = 512  # deviation D-163: 64 as written; the smaller one of both sides applies
MAXIMUM_WINDOW_SIZE = 0xFFFF


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Parameters of all sessions. `identifier` is QueueManager.Identifier, 16 bytes. Raises ValueError for values that
    packets cannot represent.

    `packet_timeout` is the maximum time from the first byte of a packet to its last; the default allows 4 MiB at 14
    KB/s.
    """

    identifier: bytes
    window_size: int = WINDOW_SIZE
    server_class: bool = True
    initialization_timeout: float = 60_000  # 3.1.2.1, note 43
    cleanup_timeout: float = 300_000  # 3.1.2.2, note 44; 120,000 on a routing server
    ack_wait_timeout: int = 20_000  # 3.1.3.2, note 51; an acceptor uses that of the initiator
    packet_timeout: float = 300_000

    def __post_init__(self) -> None:
        if len(self.identifier) != 16 or not any(self.identifier):
            raise ValueError(f"not the identifier of a queue manager: {self.identifier.hex()}")
        if not 1 <= self.window_size <= MAXIMUM_WINDOW_SIZE:
            raise ValueError(f"window_size is {self.window_size} packets, allowed: 1 to {MAXIMUM_WINDOW_SIZE}")
        if self.ack_wait_timeout not in ACK_TIMEOUT:
            raise ValueError(f"ack_wait_timeout is {self.ack_wait_timeout} ms, allowed: 20,000 to 120,000")
