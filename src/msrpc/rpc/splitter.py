"""Split a stream of bytes into PDUs.

Each PDU is returned as one `bytes` object with a checked header; `decode` or the fast paths of the connections read the
rest. At most one fragment is buffered.
"""

from __future__ import annotations

from msrpc.rpc.pdu import HEADER_SIZE, MAX_FRAGMENT, Header


class Splitter:
    """Feed bytes, get whole PDUs. Raises `RemoteProtocolError` at the first bad header; nothing may follow it.

    `partial`: what has arrived of a PDU that is not complete.
    """

    def __init__(self, maximum: int = MAX_FRAGMENT) -> None:
        self._maximum = maximum
        self.partial = bytearray()

    def rest(self) -> bytes:
        """Return the data of the incomplete or invalid PDU."""
        return bytes(memoryview(self.partial)[:HEADER_SIZE])

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self.partial += data

    def feed_one(self, data: bytes) -> tuple[Header, bytes] | None:
        """Do what `feed` does, but if `data` is exactly one PDU, return it at once, without a copy."""
        if not self.partial and len(data) >= HEADER_SIZE:
            length = int.from_bytes(data[8:10], "little" if data[4] & 0x10 else "big")
            if length == len(data) <= self._maximum:
                header = Header.unpack(data, self._maximum)
                if header.frag_length == length:
                    return header, data
        self.partial += data
        return None

    def next(self) -> tuple[Header, bytes] | None:
        """The next whole PDU, or None until more bytes come."""
        partial = self.partial
        if len(partial) < HEADER_SIZE:
            return None
        header = Header.unpack(partial, self._maximum)
        length = header.frag_length
        if len(partial) < length:
            return None
        pdu = bytes(memoryview(partial)[:length])
        # bytearray drops its head without moving the rest, so a long run of fragments stays linear.
        del partial[:length]
        return header, pdu
