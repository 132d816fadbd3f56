"""Known deviations of this queue manager's packets from the specifications.

`tests/peering/test_packets.py` verifies that each deviation still exists, so that none is excused after it is fixed.
"""

from __future__ import annotations

from packets.reading import Excused

# Deviation D-104: messages that the queue manager itself creates expire.
LIFE_OF_ACKNOWLEDGMENTS = ("BaseHeader.TimeToReachQueue", "0xFFFFFFFF: no UserMessage packet")
EXCUSED: Excused = frozenset({LIFE_OF_ACKNOWLEDGMENTS})
