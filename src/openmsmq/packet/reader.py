"""A bounds-checked reader: every length is checked against the bytes left before anything is done with it."""

from __future__ import annotations

import struct

from openmsmq.packet.errors import BadPacket


class Reader:
    """Reads little-endian values from `data`, from the start of one header to its end."""

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
        """Read one header: errors name it, and alignment counts from its start."""
        scope = HeaderScope(self, self.name, self._start)
        self.name, self._start = name, self.position
        return scope

    def restricted(self, size: int) -> PartScope:
        """Read a part of `size` bytes: nothing behind it is seen, and what is not read is skipped."""
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
        """How many bytes are left to a multiple from the start of the header."""
        return -(self.position - self._start) % alignment

    def align(self, alignment: int = 4) -> None:
        """Skip padding, of any value, up to a multiple from the start of the header; less where the data ends."""
        self.position += min(self.padding(alignment), self.remaining)

    def text(self, size: int) -> str:
        """WCHARs of `size` bytes, up to the terminator."""
        if size % 2:
            raise BadPacket(f"{self.name}: a text of {size} bytes is not made of WCHARs")
        return text_of(self.bytes(size))

    def terminated(self, size: int) -> str:
        """A null-terminated text of `size` bytes, terminator included; it holds no other null character."""
        if size % 2:
            raise BadPacket(f"{self.name}: a text of {size} bytes is not made of WCHARs")
        return terminated_text(self.bytes(size), self.name)

    def _need(self, size: int) -> None:
        if size < 0 or size > self.end - self.position:
            raise BadPacket(f"{self.name}: {size} bytes announced, {self.end - self.position} left")


def text_of(data: bytes) -> str:
    """WCHARs up to the terminator."""
    return data.decode("utf-16-le", "surrogatepass").partition("\0")[0]


def terminated_text(data: bytes, name: str) -> str:
    """The text of WCHARs that end with the only null character. `name` is that of the header, for errors."""
    text = data.decode("utf-16-le", "surrogatepass")
    if text.find("\0") != len(text) - 1 or not text:
        raise BadPacket(f"{name}: a text of {len(data)} bytes whose last character, and no other, should be null")
    return text[:-1]


def wchars(text: str) -> bytes:
    """A text with its terminator."""
    return text.encode("utf-16-le", "surrogatepass") + b"\0\0"


def padded(data: bytes, alignment: int = 4) -> bytes:
    """`data` with zeros up to a multiple."""
    return data + bytes(-len(data) % alignment)


class HeaderScope:
    """A header is read until the scope ends. After an error its name stays available for the error message."""

    def __init__(self, reader: Reader, name: str, start: int) -> None:
        self._reader, self._name, self._start = reader, name, start

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._reader.name, self._reader._start = self._name, self._start


class PartScope:
    """Until its end a part is read."""

    def __init__(self, reader: Reader, end: int) -> None:
        self._reader, self._end = reader, end

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._reader.position, self._reader.end = self._reader.end, self._end
