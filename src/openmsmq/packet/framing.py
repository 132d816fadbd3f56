"""Split a byte stream into packets ([MS-MQMQ] 2.2.19.1, [MS-MQQB] 3.1.5.1).

A stream cannot be resynchronized, because bodies may contain the signature: after the first bad header no more packets
can be read.
"""

from __future__ import annotations

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.headers import BaseHeader
from openmsmq.packet.reader import Reader
from openmsmq.packet.user_message import MAXIMUM_PACKET

BASE_HEADER_SIZE = 16
SESSION_HEADER_SIZE = 16
LARGEST_INTERNAL_PACKET = 572  # EstablishConnection ([MS-MQQB] 2.2.3)
READ_SIZE = 0x40000  # maximum bytes that one `feed` may add to a nearly complete packet


class Framer:
    """`feed` bytes, then call `next` until it returns None.

    `maximum` is the largest accepted PacketSize in bytes; it may be changed between packets. At most `maximum`, a
    SessionHeader and READ_SIZE bytes are buffered.
    """

    def __init__(self, maximum: int = MAXIMUM_PACKET) -> None:
        self.maximum = maximum
        self._partial = bytearray()
        self._size = 0  # size of the first packet in `_partial`; 0 while its header is incomplete

    @property
    def has_partial(self) -> bool:
        """Whether part of a packet has arrived."""
        return bool(self._partial)

    @property
    def buffered(self) -> int:
        """Number of received bytes of an incomplete packet."""
        return len(self._partial)

    def feed(self, data: bytes) -> None:
        """Add received bytes. Raises BadPacket if too many are buffered, because `next` was not called."""
        if len(self._partial) + len(data) > self.maximum + SESSION_HEADER_SIZE + READ_SIZE:
            raise BadPacket(f"{len(self._partial) + len(data)} bytes are buffered, more than the limit")
        self._partial += data

    def next(self) -> tuple[BaseHeader, bytes] | None:
        """Return the BaseHeader and the bytes of the next packet; None until it is complete.

        Raises BadPacket for an invalid header: version, signature, or a PacketSize out of range.
        """
        if len(self._partial) < (self._size or BASE_HEADER_SIZE):
            return None
        header = BaseHeader.unpack(Reader(bytes(self._partial[:BASE_HEADER_SIZE])))
        self._size = self._checked_size(header)
        if len(self._partial) < self._size:
            return None
        packet = bytes(memoryview(self._partial)[: self._size])
        # bytearray removes its head without moving the rest, so a burst of small packets takes linear time.
        del self._partial[: self._size]
        self._size = 0
        return header, packet

    def _checked_size(self, header: BaseHeader) -> int:
        """Return the size of a packet in the stream. Deviation D-87: PacketSize does not include the SessionHeader of a
        UserMessage, but does include that of an internal packet."""
        size = header.packet_size
        maximum = min(self.maximum, LARGEST_INTERNAL_PACKET) if header.internal else self.maximum
        if not BASE_HEADER_SIZE <= size <= maximum:
            raise BadPacket(f"BaseHeader: PacketSize is {size}, allowed: {BASE_HEADER_SIZE} to {maximum}")
        return size + SESSION_HEADER_SIZE if header.has_session and not header.internal else size
