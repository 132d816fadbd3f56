"""What the packets of this queue manager are known to do otherwise than the specifications have it."""

from __future__ import annotations

from packets.reading import Excused

EXCUSED: Excused = frozenset(
    {
        # Deviation D-104: messages that the queue manager sends of its own accord do not wait for ever.
        ("MS-MQMQ 2.2.19.1", "BaseHeader.TimeToReachQueue"),
        # Messages for which nobody has chosen an algorithm have 0.
        ("MS-MQMQ 2.2.19.3", "MessagePropertiesHeader.EncryptionAlgorithm"),
    }
)
