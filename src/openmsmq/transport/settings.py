"""What a queue manager brings into each of its sessions ([MS-MQQB] 3.1.1.3.1, 3.1.2). Times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_SIZE = 64  # [MS-MQMQ] 2.2.20.4
MAXIMUM_WINDOW_SIZE = 0xFFFF


@dataclass(frozen=True, slots=True)
class Settings:
    """`identifier` is QueueManager.Identifier, 16 bytes.

    `packet_timeout` bounds the time from the first byte of a packet to its last; 4 MiB in it are 14 KB/s.
    """

    identifier: bytes
    window_size: int = WINDOW_SIZE
    server_class: bool = True
    initialization_timeout: float = 60_000  # 3.1.2.1, note 43
    cleanup_timeout: float = 300_000  # 3.1.2.2, note 44; 120,000 on a routing server
    ack_wait_timeout: int = 20_000  # 3.1.3.2, note 51; an acceptor takes the initiator's
    packet_timeout: float = 300_000
