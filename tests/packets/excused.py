"""What the packets of this queue manager are known to do otherwise than the specifications have it.

`tests/peering/test_packets.py` shows each of them, so that what is mended is excused no longer.
"""

from __future__ import annotations

from packets.reading import Excused

# Deviation D-104: what the queue manager sends of its own accord does not wait for ever.
LIFE_OF_ACKNOWLEDGMENTS = ("BaseHeader.TimeToReachQueue", "0xFFFFFFFF: no UserMessage packet")
EXCUSED: Excused = frozenset({LIFE_OF_ACKNOWLEDGMENTS})
