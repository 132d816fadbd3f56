"""Reads bytes field by field, so that a violated rule is reported with section, field, offset and value.

In this directory, only the tests import openmsmq: the readers are an independent reading of the specifications.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

# Struct formats of integers by their width in bytes (little-endian, MS-MQMQ 2.2.18); other fields are byte strings.
INTEGERS = {1: "<B", 2: "<H", 4: "<I"}


class Violation(Exception):
    """Bytes that the specification does not allow.

    `section` is the specification with its section, `field` the names of the header and the field, `offset` the
    offset of the field's first byte in its packet, `value` the value found, `rule` the requirement of the section.
    """

    def __init__(self, section: str, field: str, offset: int, value: object, rule: str) -> None:
        super().__init__(f"{section}: {field} at offset {offset} is {value!r}: {rule}")
        self.section, self.field, self.offset, self.value, self.rule = section, field, offset, value, rule


class Header:
    """The fields of one header. `header["Flags.DQ"]` is a bit field of `Flags`."""

    def __init__(self, section: str, name: str, start: int) -> None:
        self.section, self.name, self.start = section, name, start
        self.end = start
        self._values: dict[str, Any] = {}
        self._offsets: dict[str, int] = {}
        self._fixed: dict[str, int] = {}

    def __getitem__(self, field: str) -> Any:
        return self._values[field]

    def get(self, field: str) -> Any:
        """Return the value of a field, or None if the field is absent."""
        return self._values.get(field)

    def keep(self, field: str, value: object, offset: int) -> None:
        self._values[field], self._offsets[field] = value, offset

    def bits(self, field: str, widths: dict[str, int]) -> None:
        """Split an integer into bit fields, given their names and widths, the lowest bit first."""
        value, values = self._values[field], self._values
        for name, shift, mask in _BITS.get((self.name, field)) or _bit_fields(self.name, field, widths):
            values[name] = value >> shift & mask

    def must(self, field: str, holds: bool, rule: str, section: str | None = None) -> None:
        """Raise Violation unless the rule holds."""
        if not holds:
            name = f"{self.name}.{field}"
            raise Violation(section or self.section, name, self._offset(field), self._values[field], rule)

    def _offset(self, field: str) -> int:
        """Return the offset of a field, or of the integer that contains a bit field."""
        known = {name: self.start + at for name, at in self._fixed.items()} | self._offsets
        return known[field] if field in known else known[field.partition(".")[0]]

    def fix(self, names: dict[str, int], values: tuple[Any, ...]) -> None:
        """Set the fixed fields, with their offsets from the start."""
        self._fixed = names
        self._values.update(zip(names, values, strict=True))

    def unused(self, *fields: str) -> None:
        for field in fields:
            self.must(field, not self[field], "reserved, not to be set when sent")


# Layouts of headers by their names, cached.
_BITS: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
_LAYOUTS: dict[tuple[str, str], tuple[struct.Struct, dict[str, int]]] = {}


def _bit_fields(header: str, field: str, widths: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return names, shifts and masks of the bit fields."""
    shifts = [0, *itertools.accumulate(widths.values())]
    made = [
        (f"{field}.{name}", shift, (1 << width) - 1)
        for (name, width), shift in zip(widths.items(), shifts, strict=False)
    ]
    return _BITS.setdefault((header, field), made)


def _layout(section: str, name: str, fields: dict[str, int]) -> tuple[struct.Struct, dict[str, int]]:
    """Return the fixed fields of a header as one structure, and their offsets in it."""
    formats = [INTEGERS.get(width, f"{width}s").lstrip("<") for width in fields.values()]
    offsets = [0, *itertools.accumulate(fields.values())]
    made = struct.Struct("<" + "".join(formats)), dict(zip(fields, offsets, strict=False))
    return _LAYOUTS.setdefault((section, name), made)


class Reader:
    """Reads the bytes of one packet. `strict` also checks SHOULD rules about reserved fields."""

    def __init__(self, data: bytes, strict: bool = True) -> None:
        self.data, self.strict = data, strict
        self.position = 0

    def header(self, section: str, name: str, fields: dict[str, int]) -> Header:
        """Read the fixed fields of a header that starts here; `fields` are their widths in bytes."""
        header = Header(section, name, self.position)
        layout, offsets = _LAYOUTS.get((section, name)) or _layout(section, name, fields)
        if self.position + layout.size > len(self.data):
            for field, width in fields.items():
                self.take(header, field, width)  # one of them raises
        header.fix(offsets, layout.unpack_from(self.data, self.position))
        self.position = header.end = self.position + layout.size
        return header

    def take(self, header: Header, field: str, width: int) -> Any:
        """Read the next field: an integer if the width is that of an integer, otherwise bytes. Raises Violation if
        the packet ends."""
        offset, end = self.position, self.position + width
        if end > len(self.data):
            left = len(self.data) - offset
            raise Violation(
                header.section, f"{header.name}.{field}", offset, left, f"{width} bytes are needed, but fewer are left"
            )
        value: Any = self.data[offset:end]
        if width in INTEGERS:
            (value,) = struct.unpack(INTEGERS[width], value)
        header.keep(field, value, offset)
        self.position = header.end = end
        return value

    def blob(self, header: Header, field: str, width: int) -> bytes:
        """Read bytes, even if the width is that of an integer."""
        offset = self.position
        self.take(header, field, width)
        value = self.data[offset : self.position]
        header.keep(field, value, offset)
        return value

    def align(self, header: Header, boundary: int = 4) -> None:
        """Skip the padding up to the next boundary, counted from the header's start. Padding bytes have any value."""
        size = -(self.position - header.start) % boundary
        if self.position + size > len(self.data):
            raise Violation(
                header.section, f"{header.name} (padding)", self.position, len(self.data) - self.position,
                f"padded up to the next boundary of {boundary} bytes",
            )  # fmt: skip
        self.position += size
        header.end = self.position


def text(header: Header, field: str) -> str:
    """Decode a null-terminated string of WCHARs. Raises Violation if it has no terminator, or more than one null."""
    raw = header[field]
    header.must(field, len(raw) % 2 == 0, "WCHARs have two bytes")
    value = str(raw.decode("utf-16-le", "surrogatepass"))
    header.must(field, value[-1:] == "\0", "null-terminated")
    header.must(field, value.find("\0") == len(value) - 1, "the only null character is the last")
    return value[:-1]
