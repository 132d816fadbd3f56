"""A bounds-checked reader: every length is checked against the remaining bytes before it is used."""

from __future__ import annotations

import struct

from openmsmq.packet.errors import BadPacket


class Reader:
    """Reads little-endian values from `data`. Methods raise BadPacket."""

    def __init__(self, data: bytes, name: str = "packet") -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.name = name
        self._start = 0

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def header(self, name: str) -> HeaderScope:
        """Begin a header: errors contain its name, and alignment is relative to its start."""
        scope = HeaderScope(self, self.name, self._start)
        self.name, self._start = name, self.position
        return scope

    def restricted(self, size: int) -> PartScope:
        """Begin a part of `size` bytes: reads cannot go beyond it, and its unread rest is skipped."""
        self._need(size)
        scope = PartScope(self, self.end)
        self.end = self.position + size
        return scope

    def bytes(self, size: int) -> bytes:
        self._need(size)
        value = self.data[self.position : self.position + size]
        self.position += size
        return value

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        self._need(layout.size)
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def u16(self) -> int:
        return int.from_bytes(self.bytes(2), "little")

    def u32(self) -> int:
        return int.from_bytes(self.bytes(4), "little")

    def padding(self, alignment: int = 4) -> int:
        """Return the number of padding bytes up to a multiple of `alignment` from the start of the header."""
        return -(self.position - self._start) % alignment

    def align(self, alignment: int = 4) -> None:
        """Skip padding of any value up to a multiple of `alignment` from the start of the header, or to the end of the
        data."""
        self.position += min(self.padding(alignment), self.remaining)

    def text(self, size: int) -> str:
        """Return a text of `size` bytes of WCHARs, up to the terminator."""
        if size % 2:
            raise BadPacket(f"{self.name}: a text of WCHARs has an odd size, {size} bytes")
        return text_of(self.bytes(size))

    def terminated(self, size: int) -> str:
        """Return a null-terminated text of `size` bytes including the terminator, without other null characters."""
        if size % 2:
            raise BadPacket(f"{self.name}: a text of WCHARs has an odd size, {size} bytes")
        return terminated_text(self.bytes(size), self.name)

    def _need(self, size: int) -> None:
        if size < 0 or size > self.end - self.position:
            raise BadPacket(f"{self.name}: {size} bytes announced, {self.end - self.position} left")


def text_of(data: bytes) -> str:
    """Return the text in WCHARs up to the terminator."""
    return data.decode("utf-16-le", "surrogatepass").partition("\0")[0]


def terminated_text(data: bytes, name: str) -> str:
    """Return the text of null-terminated WCHARs without other null characters. `name` is that of the header, for
    errors."""
    text = data.decode("utf-16-le", "surrogatepass")
    if text.find("\0") != len(text) - 1 or not text:
        raise BadPacket(f"{name}: a text of {len(data)} bytes is not terminated by its only null")
    return text[:-1]


def wchars(text: str) -> bytes:
    """Return a text as WCHARs with terminator."""
    return text.encode("utf-16-le", "surrogatepass") + b"\0\0"


def padded(data: bytes) -> bytes:
    """Return `data`, padded with zeros to a multiple of 4 bytes."""
    return data + bytes(-len(data) % 4)


class HeaderScope:
    """Scope of a header; see `Reader.header`. After an error, the name is kept for the error message."""

    def __init__(self, reader: Reader, name: str, start: int) -> None:
        self._reader, self._name, self._start = reader, name, start

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._reader.name, self._reader._start = self._name, self._start


class PartScope:
    """Scope of a part; see `Reader.restricted`."""

    def __init__(self, reader: Reader, end: int) -> None:
        self._reader, self._end = reader, end

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._reader.position, self._reader.end = self._reader.end, self._end
