"""Decoder for the .NET Remoting Binary Format ([MS-NRBF]) of BinaryFormatter, to plain Python values.

No classes are instantiated. An object becomes a dictionary of its members and `$type`; an array becomes a list, one of
bytes becomes bytes. An object that is referenced several times is written out at its first occurrence with an `$id` (a
list then is in `$values`); the other occurrences are `{"$ref": id}`. So cycles end, and the output is never much larger
than the input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import IntEnum
from typing import Any

MAXIMUM_DEPTH = 100  # nesting depth of objects; bounds recursion here and in callers
MAXIMUM_ELEMENTS = 1 << 20  # of all arrays together: a run of nulls of any length takes 5 bytes
MAXIMUM_NAMES = 1 << 24  # characters of all type and member names, which are repeated in the output for each instance
SHORT_TEXT = 64  # characters; repeated longer texts become references


class NrbfError(ValueError):
    """The bytes are not a stream of this format, or exceed a limit; the message has the reason and the position."""


class RecordType(IntEnum):
    """RecordTypeEnumeration, [MS-NRBF] 2.1.2.1; MethodCall (21) and MethodReturn (22) belong to remoting."""

    SERIALIZED_STREAM_HEADER = 0
    CLASS_WITH_ID = 1
    SYSTEM_CLASS_WITH_MEMBERS = 2
    CLASS_WITH_MEMBERS = 3
    SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES = 4
    CLASS_WITH_MEMBERS_AND_TYPES = 5
    BINARY_OBJECT_STRING = 6
    BINARY_ARRAY = 7
    MEMBER_PRIMITIVE_TYPED = 8
    MEMBER_REFERENCE = 9
    OBJECT_NULL = 10
    MESSAGE_END = 11
    BINARY_LIBRARY = 12
    OBJECT_NULL_MULTIPLE_256 = 13
    OBJECT_NULL_MULTIPLE = 14
    ARRAY_SINGLE_PRIMITIVE = 15
    ARRAY_SINGLE_OBJECT = 16
    ARRAY_SINGLE_STRING = 17


class BinaryType(IntEnum):
    """BinaryTypeEnumeration, 2.1.2.2."""

    PRIMITIVE = 0
    STRING = 1
    OBJECT = 2
    SYSTEM_CLASS = 3
    CLASS = 4
    OBJECT_ARRAY = 5
    STRING_ARRAY = 6
    PRIMITIVE_ARRAY = 7


_BYTE = 2  # PrimitiveTypeEnumeration, 2.1.2.3
_PRIMITIVES = {6: "<d", 7: "<h", 8: "<i", 9: "<q", 10: "<b", 11: "<f", 14: "<H", 15: "<I", 16: "<Q", _BYTE: "<B"}
_BOOLEAN, _CHAR, _DECIMAL, _TIME_SPAN, _DATE_TIME, _NULL, _STRING = 1, 3, 5, 12, 13, 17, 18
_OFFSET_ARRAYS = (3, 4, 5)  # BinaryArrayTypeEnumeration, 2.4.1.1: arrays with lower bounds
_HEADER = struct.Struct("<Biiii")
_ORIGIN = datetime(1, 1, 1)
_OBJECT = (BinaryType.OBJECT, 0)

Member = tuple[BinaryType, int]  # a type, and the primitive type of it or its elements


@dataclass(slots=True)
class _Reference:
    identifier: int


@dataclass(slots=True)
class _Class:
    """ClassInfo and MemberTypeInfo, 2.3.1.1 and 2.3.1.2."""

    name: str
    names: list[str]
    members: list[Member]
    size: int = 0  # total characters of its names

    def __post_init__(self) -> None:
        self.size = len(self.name) + sum(map(len, self.names))


@dataclass(slots=True)
class _Object:
    """An item with an ObjectId: an instance of a class, an array or a text."""

    identifier: int
    value: Any = None
    definition: _Class | None = None


@dataclass(slots=True)
class _Nulls:
    count: int


def looks_like_nrbf(data: bytes) -> bool:
    """Whether data begins with a SerializationHeader record of version 1.0 (2.6.1)."""
    if len(data) < _HEADER.size:
        return False
    record, _, _, major, minor = _HEADER.unpack_from(data)
    return (record, major, minor) == (RecordType.SERIALIZED_STREAM_HEADER, 1, 0)


def decode_nrbf(data: bytes) -> Any:
    """Return the root object of a stream as plain Python values. Raises NrbfError."""
    if not looks_like_nrbf(data):
        raise NrbfError("the stream has no header of version 1.0")
    reader = _Reader(data)
    root = _HEADER.unpack_from(data)[1]
    reader.at = _HEADER.size
    reader.read_all()
    return _Resolver(reader.objects).resolve(_Reference(root))


@dataclass(slots=True)
class _Reader:
    """Parses records into objects whose members are values, objects and references. Methods raise NrbfError."""

    data: bytes
    at: int = 0
    objects: dict[int, _Object] = field(default_factory=dict)
    elements: int = 0
    names: int = 0

    # -- bytes ---------------------------------------------------------------------------------------------------

    def fail(self, reason: str) -> NrbfError:
        return NrbfError(f"at byte {self.at}: {reason}")

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.at:
            raise self.fail(f"{count} bytes expected, but only {len(self.data) - self.at} remain")
        start, self.at = self.at, self.at + count
        return self.data[start : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "little", signed=True)

    def count(self, what: str) -> int:
        """Read a number of items, which take at least one byte each."""
        value = self.int32()
        if not 0 <= value <= len(self.data) - self.at:
            raise self.fail(f"{value} {what}, {len(self.data) - self.at} bytes are left")
        return value

    def text(self) -> str:
        """Read a LengthPrefixedString, 2.1.1.6: the length in up to five groups of seven bits, then UTF-8."""
        length = 0
        for group in range(5):
            byte = self.byte()
            length |= (byte & 0x7F) << 7 * group
            if not byte & 0x80:
                break
        else:
            raise self.fail("a length of more than five bytes")
        try:
            return self.take(length).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self.fail(f"no UTF-8: {error.reason}") from None

    # -- values --------------------------------------------------------------------------------------------------

    def primitive(self, kind: int) -> Any:
        if kind in _PRIMITIVES:
            layout = _PRIMITIVES[kind]
            return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        special = _SPECIAL.get(kind)
        if special is None:
            raise self.fail(f"primitive type {kind}")
        try:
            return special(self)
        except (OverflowError, InvalidOperation, UnicodeDecodeError, ValueError) as error:
            raise error if isinstance(error, NrbfError) else self.fail(str(error)) from None

    def character(self) -> str:
        """Read a UTF-8 character; its first byte determines its length."""
        first = self.byte()
        more = 0 if first < 0x80 else 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        return (bytes([first]) + self.take(more)).decode()

    def date_time(self) -> datetime:
        """Read a DateTime, 2.1.1.5: 62 bits of 100 ns since the year 1, and the kind: 1 is UTC; others get no time
        zone."""
        raw = int.from_bytes(self.take(8), "little")
        moment = _ORIGIN + timedelta(microseconds=(raw & (1 << 62) - 1) // 10)
        return moment.replace(tzinfo=UTC) if raw >> 62 == 1 else moment

    def time_span(self) -> timedelta:
        return timedelta(microseconds=int.from_bytes(self.take(8), "little", signed=True) // 10)

    # -- records -------------------------------------------------------------------------------------------------

    def read_all(self) -> None:
        while self.record(0) is not _END:
            pass

    def record(self, depth: int) -> Any:
        """Read the next record: a value, _Object, _Reference, _Nulls, or _END. Libraries are skipped."""
        if depth > MAXIMUM_DEPTH:
            raise self.fail(f"more than {MAXIMUM_DEPTH} objects within each other")
        while (kind := self.byte()) == RecordType.BINARY_LIBRARY:
            self.int32()
            self.text()
        handler = _RECORDS.get(kind)
        if handler is None:
            raise self.fail(f"unsupported record type {kind}")
        return handler(self, depth + 1)

    def new(self, definition: _Class | None = None) -> _Object:
        made = _Object(self.int32(), definition=definition)
        if made.identifier in self.objects:
            raise self.fail(f"object {made.identifier} is defined twice")
        self.objects[made.identifier] = made
        return made

    def class_with_id(self, depth: int) -> _Object:
        made = self.new()
        metadata = self.objects.get(self.int32())
        if metadata is None or metadata.definition is None:
            raise self.fail(f"object {made.identifier} is of a class that is not known")
        return self.instance(made, metadata.definition, depth)

    def class_with_members(self, depth: int, typed: bool, library: bool) -> _Object:
        made = self.new()
        name = self.text()
        names = [self.text() for _ in range(self.count("members"))]
        members = self.member_types(len(names)) if typed else [_OBJECT] * len(names)
        if library:
            self.int32()
        return self.instance(made, _Class(name, names, members), depth)

    def instance(self, made: _Object, definition: _Class, depth: int) -> _Object:
        self.names += definition.size
        if self.names > MAXIMUM_NAMES:
            raise self.fail(f"names of more than {MAXIMUM_NAMES} characters")
        made.definition = definition
        made.value = {"$type": definition.name}
        for name, member in zip(definition.names, definition.members, strict=True):
            value = self.member(member, depth)
            if isinstance(value, _Nulls):
                if value.count != 1:
                    raise self.fail(f"{value.count} nulls for the member {name}")
                value = None
            made.value[name] = value
        return made

    def member_types(self, count: int) -> list[Member]:
        kinds = [self.binary_type() for _ in range(count)]
        return [(kind, self.additional(kind)) for kind in kinds]

    def binary_type(self) -> BinaryType:
        value = self.byte()
        try:
            return BinaryType(value)
        except ValueError:
            raise self.fail(f"unsupported binary type {value}") from None

    def additional(self, kind: BinaryType) -> int:
        """Read AdditionalInfos; return the primitive type. Class names are skipped."""
        if kind in (BinaryType.PRIMITIVE, BinaryType.PRIMITIVE_ARRAY):
            return self.primitive_type()
        if kind in (BinaryType.SYSTEM_CLASS, BinaryType.CLASS):
            self.text()
            if kind is BinaryType.CLASS:
                self.int32()
        return 0

    def primitive_type(self) -> int:
        """Read the primitive type of a member or an element. Null and String are not allowed here (2.1.2.3); a null
        would take 0 bytes."""
        value = self.byte()
        if value in (_NULL, _STRING):
            raise self.fail(f"primitive type {value} for a member")
        return value

    def member(self, member: Member, depth: int) -> Any:
        kind, primitive = member
        value = self.primitive(primitive) if kind is BinaryType.PRIMITIVE else self.record(depth)
        if value is _END:
            raise self.fail("the message ends within an object")
        return value

    def string(self, depth: int) -> _Object:
        made = self.new()
        made.value = self.text()
        return made

    def reference(self, depth: int) -> _Reference:
        return _Reference(self.int32())

    def primitive_array(self, depth: int) -> _Object:
        made = self.new()
        length = self.count("elements")
        made.value = self.elements_of((BinaryType.PRIMITIVE, self.primitive_type()), length, depth)
        return made

    def object_array(self, depth: int) -> _Object:
        made = self.new()
        made.value = self.elements_of(_OBJECT, self.int32(), depth)
        return made

    def binary_array(self, depth: int) -> _Object:
        """Read a BinaryArray, 2.4.3.1, of any rank. The last index varies fastest; the result is nested lists."""
        made = self.new()
        shape = self.byte()
        rank = self.count("dimensions")
        if not 1 <= rank <= 32:
            raise self.fail(f"an array of {rank} dimensions")
        lengths = [self.int32() for _ in range(rank)]
        if shape in _OFFSET_ARRAYS:
            self.take(4 * rank)
        (member,) = self.member_types(1)
        total = 1
        for length in lengths:
            if length < 0:
                raise self.fail(f"{length} elements")
            total *= length
        values = self.elements_of(member, total, depth)
        for length in reversed(lengths[1:]):
            values = [values[i : i + length] for i in range(0, len(values), length)] if length else []
        made.value = values
        return made

    def elements_of(self, member: Member, length: int, depth: int) -> Any:
        self.elements += max(length, 0)
        if length < 0 or self.elements > MAXIMUM_ELEMENTS:
            raise self.fail(f"{length} elements, at most {MAXIMUM_ELEMENTS} in all arrays together")
        if member == (BinaryType.PRIMITIVE, _BYTE):
            return self.take(length)
        values: list[Any] = []
        while len(values) < length:
            value = self.member(member, depth)
            if isinstance(value, _Nulls):
                if not 0 < value.count <= length - len(values):
                    raise self.fail(f"{value.count} nulls, but only {length - len(values)} elements remain")
                values += [None] * value.count
            else:
                values.append(value)
        return values


_END = object()
_SPECIAL: dict[int, Callable[[_Reader], Any]] = {
    _BOOLEAN: lambda reader: bool(reader.byte()),
    _CHAR: _Reader.character,
    _DECIMAL: lambda reader: Decimal(reader.text()),
    _TIME_SPAN: _Reader.time_span,
    _DATE_TIME: _Reader.date_time,
    _NULL: lambda reader: None,
    _STRING: _Reader.text,
}
_RECORDS: dict[int, Callable[[_Reader, int], Any]] = {
    RecordType.CLASS_WITH_ID: _Reader.class_with_id,
    RecordType.SYSTEM_CLASS_WITH_MEMBERS: lambda r, depth: r.class_with_members(depth, typed=False, library=False),
    RecordType.CLASS_WITH_MEMBERS: lambda r, depth: r.class_with_members(depth, typed=False, library=True),
    RecordType.SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES: lambda r, depth: r.class_with_members(depth, True, False),
    RecordType.CLASS_WITH_MEMBERS_AND_TYPES: lambda r, depth: r.class_with_members(depth, True, True),
    RecordType.BINARY_OBJECT_STRING: _Reader.string,
    RecordType.BINARY_ARRAY: _Reader.binary_array,
    RecordType.MEMBER_PRIMITIVE_TYPED: lambda r, depth: r.primitive(r.byte()),
    RecordType.MEMBER_REFERENCE: _Reader.reference,
    RecordType.OBJECT_NULL: lambda r, depth: None,
    RecordType.MESSAGE_END: lambda r, depth: _END,
    RecordType.OBJECT_NULL_MULTIPLE_256: lambda r, depth: _Nulls(r.byte()),
    RecordType.OBJECT_NULL_MULTIPLE: lambda r, depth: _Nulls(r.int32()),
    RecordType.ARRAY_SINGLE_PRIMITIVE: _Reader.primitive_array,
    RecordType.ARRAY_SINGLE_OBJECT: _Reader.object_array,
    RecordType.ARRAY_SINGLE_STRING: _Reader.object_array,
}


class _Resolver:
    """Converts objects and references to plain values."""

    def __init__(self, objects: dict[int, _Object]) -> None:
        self._objects = objects
        self._made: set[int] = set()
        self._referred: set[int] = set()

    def resolve(self, root: _Reference) -> Any:
        self._find_repeated(root)
        return self._value(root, 0)

    def _find_repeated(self, root: _Reference) -> None:
        """Find objects that occur more than once. Iterative, because the depth is not limited yet."""
        seen: set[int] = set()
        pending: list[Any] = [root]
        while pending:
            found = self._object(pending.pop())
            if found is None:
                continue
            if found.identifier in seen:
                self._referred.add(found.identifier)
                continue
            seen.add(found.identifier)
            pending += _parts(found.value)

    def _object(self, value: Any) -> _Object | None:
        if not isinstance(value, _Reference):
            return value if isinstance(value, _Object) else None
        try:
            return self._objects[value.identifier]
        except KeyError:
            raise NrbfError(f"reference to the missing object {value.identifier}") from None

    def _value(self, value: Any, depth: int) -> Any:
        if depth > MAXIMUM_DEPTH:
            raise NrbfError(f"more than {MAXIMUM_DEPTH} objects within each other")
        found = self._object(value)
        if found is None:
            return [self._value(element, depth + 1) for element in value] if isinstance(value, list) else value
        if isinstance(found.value, str) and len(found.value) <= SHORT_TEXT:
            return found.value
        if found.identifier in self._made:
            return {"$ref": found.identifier}
        self._made.add(found.identifier)
        identity = {"$id": found.identifier} if found.identifier in self._referred else {}
        if isinstance(found.value, dict):
            return {**identity, **{name: self._value(part, depth + 1) for name, part in found.value.items()}}
        plain = self._value(found.value, depth + 1)
        return {**identity, "$values": plain} if identity else plain


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        for element in value:
            if isinstance(element, list):
                yield from _parts(element)
            else:
                yield element
