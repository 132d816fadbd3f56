"""Split a byte stream into packets ([MS-MQMQ] 2.2.19.1, [MS-MQQB] 3.1.5.1).

A stream cannot be resynchronized, because bodies may contain the signature: after the first bad header no more packets
can be read.
"""

from __future__ import annotations

import struct
from typing import Final

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.headers import SIGNATURE, VERSION, SessionHeader
from openmsmq.packet.user_message import MAXIMUM_PACKET

BASE_HEADER_SIZE: Final = 16
SESSION_HEADER_SIZE: Final = 16
LARGEST_INTERNAL_PACKET: Final = 572  # EstablishConnection ([MS-MQQB] 2.2.3)
READ_SIZE: Final = 0x40000  # maximum bytes that one `feed` may add to a nearly complete packet

_BASE: Final = struct.Struct("<BBHII")
_FLAGS: Final = 2  # offset of BaseHeader.Flags
_INTERNAL, _SESSION = 0x08, 0x10


def is_internal(packet: bytes) -> bool:
    """Whether a packet is one of the session itself."""
    return packet[_FLAGS] & _INTERNAL != 0


def has_session(packet: bytes) -> bool:
    """Whether a UserMessage ends with a SessionHeader."""
    return packet[_FLAGS] & _SESSION != 0


def with_session(packet: bytes, session: SessionHeader) -> bytes:
    """Return a UserMessage that ends with a SessionHeader."""
    return packet[:_FLAGS] + bytes([packet[_FLAGS] | _SESSION]) + packet[_FLAGS + 1 :] + session.pack()


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

    def next(self) -> bytes | None:
        """Return the next packet; None until it is complete.

        Raises BadPacket for an invalid BaseHeader: version, signature, or a PacketSize out of range.
        """
        partial = self._partial
        if len(partial) < (self._size or BASE_HEADER_SIZE):
            return None
        if not self._size:
            self._size = self._checked_size()
            if len(partial) < self._size:
                return None
        packet = bytes(memoryview(partial)[: self._size])
        # bytearray removes its head without moving the rest, so a burst of small packets takes linear time.
        del partial[: self._size]
        self._size = 0
        return packet

    def _checked_size(self) -> int:
        """Return the size of the first packet in the stream. Deviation D-87: PacketSize does not include the
        SessionHeader of a UserMessage, but does include that of an internal packet."""
        version, _, flags, signature, size = _BASE.unpack_from(self._partial)
        if version != VERSION or signature != SIGNATURE:
            raise BadPacket(f"BaseHeader: version {version:#x}, signature {signature:#x}")
        internal = flags & _INTERNAL
        maximum = min(self.maximum, LARGEST_INTERNAL_PACKET) if internal else self.maximum
        if not BASE_HEADER_SIZE <= size <= maximum:
            raise BadPacket(f"BaseHeader: PacketSize is {size}, allowed: {BASE_HEADER_SIZE} to {maximum}")
        return int(size) + (SESSION_HEADER_SIZE if flags & _SESSION and not internal else 0)
