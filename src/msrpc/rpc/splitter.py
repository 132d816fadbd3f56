"""Split a stream of bytes into PDUs.

Each PDU is returned as one `bytes` object with a checked header; `decode` or the fast paths of the connections read the
rest. At most one fragment is buffered.
"""

from __future__ import annotations

from msrpc.rpc.pdu import HEADER_SIZE, MAX_FRAGMENT, Header


class Splitter:
    """Converts bytes to complete PDUs. Raises `RemoteProtocolError` at the first invalid header, after which it must
    not be used.

    `partial`: received bytes of an incomplete PDU.
    """

    def __init__(self, maximum: int = MAX_FRAGMENT) -> None:
        self._maximum = maximum
        self.partial = bytearray()

    def rest(self) -> bytes:
        """Return the data of the incomplete or invalid PDU."""
        return bytes(memoryview(self.partial)[:HEADER_SIZE])

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self.partial += data

    def feed_one(self, data: bytes) -> tuple[Header, bytes] | None:
        """Like `feed`, but if `data` is exactly one PDU, return it without copying."""
        if not self.partial and len(data) >= HEADER_SIZE:
            length = int.from_bytes(data[8:10], "little" if data[4] & 0x10 else "big")
            if length == len(data) <= self._maximum:
                header = Header.unpack(data, self._maximum)
                if header.frag_length == length:
                    return header, data
        self.partial += data
        return None

    def next(self) -> tuple[Header, bytes] | None:
        """Return the next complete PDU; None until more bytes arrive."""
        partial = self.partial
        if len(partial) < HEADER_SIZE:
            return None
        header = Header.unpack(partial, self._maximum)
        length = header.frag_length
        if len(partial) < length:
            return None
        pdu = bytes(memoryview(partial)[:length])
        # bytearray removes its head without moving the rest, so that many fragments take linear time.
        del partial[:length]
        return header, pdu
