"""A bounds-checked reader: every length is checked against the bytes left before anything is done with it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager


class BadPacket(ValueError):
    """The bytes are no packet; the message says which header lacks what."""


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

    @contextmanager
    def header(self, name: str) -> Iterator[None]:
        """Read one header: errors name it, and alignment counts from its start."""
        outer, start = self.name, self._start
        self.name, self._start = name, self.position
        yield
        self.name, self._start = outer, start

    @contextmanager
    def restricted(self, size: int) -> Iterator[None]:
        """Read a part of `size` bytes: nothing behind it is seen, and what is not read is skipped."""
        self._need(size)
        outer, self.end = self.end, self.position + size
        yield
        self.position, self.end = self.end, outer

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

    def align(self, alignment: int = 4) -> None:
        """Skip padding, of any value, up to a multiple from the start of the header; less where the data ends."""
        padding = -(self.position - self._start) % alignment
        self.position += min(padding, self.remaining)

    def text(self, size: int) -> str:
        """WCHARs of `size` bytes, up to the terminator."""
        if size % 2:
            raise BadPacket(f"{self.name}: a text of {size} bytes is not made of WCHARs")
        return self.bytes(size).decode("utf-16-le", "surrogatepass").partition("\0")[0]

    def _need(self, size: int) -> None:
        if size < 0 or size > self.end - self.position:
            raise BadPacket(f"{self.name}: {size} bytes announced, {self.end - self.position} left")


def wchars(text: str) -> bytes:
    """A text with its terminator."""
    return text.encode("utf-16-le", "surrogatepass") + b"\0\0"


def padded(data: bytes, alignment: int = 4) -> bytes:
    """`data` with zeros up to a multiple."""
    return data + bytes(-len(data) % alignment)
