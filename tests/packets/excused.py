"""What the packets of this queue manager are known to do otherwise than the specifications have it.

`tests/link/test_packets.py` shows each of them, so that what is mended is excused no longer.
"""

from __future__ import annotations

from packets.reading import Excused

# Deviation D-104: what the queue manager sends of its own accord does not wait for ever.
LIFE_OF_ACKNOWLEDGMENTS = ("BaseHeader.TimeToReachQueue", "0xFFFFFFFF: no UserMessage packet")
# Messages for which nobody has chosen an algorithm have 0 (MS-MQMQ 2.2.19.3).
NO_ALGORITHM = ("MessagePropertiesHeader.EncryptionAlgorithm", "a value of the table")
EXCUSED: Excused = frozenset({LIFE_OF_ACKNOWLEDGMENTS, NO_ALGORITHM})
