"""[MS-NRBF] streams, written by hand from the record definitions of section 2, and hostile ones."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.nrbf import MAXIMUM_DEPTH, MAXIMUM_ELEMENTS, NrbfError, decode_nrbf, looks_like_nrbf

HEADER = bytes.fromhex("00 01000000 FFFFFFFF 01000000 00000000")
END = b"\x0b"
LIBRARY = bytes.fromhex("0C 02000000 03") + b"Lib"


def text(value: str) -> bytes:
    data = value.encode()
    assert len(data) < 128
    return bytes([len(data)]) + data


def int32(value: int) -> bytes:
    return struct.pack("<i", value)


def stream(*records: bytes) -> Any:
    return decode_nrbf(HEADER + b"".join(records) + END)


def points(*members: bytes, identifier: int = 1) -> bytes:
    """ClassWithMembersAndTypes: class Point with int x and object y."""
    return (
        b"\x05" + int32(identifier) + text("Point") + int32(2) + text("x") + text("y") + bytes([0, 2, 8]) + int32(2)
        + b"".join(members)
    )  # fmt: skip


def array(*elements: bytes, identifier: int = 1, length: int | None = None) -> bytes:
    return b"\x10" + int32(identifier) + int32(len(elements) if length is None else length) + b"".join(elements)


def string(value: str, identifier: int) -> bytes:
    return b"\x06" + int32(identifier) + text(value)


def reference(identifier: int) -> bytes:
    return b"\x09" + int32(identifier)


NULL = b"\x0a"


def test_a_string() -> None:
    data = bytes.fromhex(
        "0001000000FFFFFFFF0100000000000000"  # SerializationHeader: root 1, header -1, version 1.0
        "0601000000" "0B48656C6C6F20576F726C64"  # BinaryObjectString 1, "Hello World"
        "0B"  # MessageEnd
    )  # fmt: skip
    assert looks_like_nrbf(data)
    assert decode_nrbf(data) == "Hello World"


def test_an_empty_string_and_an_empty_array() -> None:
    assert decode_nrbf(HEADER + string("", 1) + END) == ""
    assert decode_nrbf(HEADER + b"\x0f" + int32(1) + int32(0) + b"\x08" + END) == []


def test_an_array_of_int32() -> None:
    data = bytes.fromhex(
        "0001000000FFFFFFFF0100000000000000"
        "0F01000000" "03000000" "08" "01000000" "FEFFFFFF" "03000000"  # ArraySinglePrimitive 1, 3 elements, Int32
        "0B"
    )  # fmt: skip
    assert decode_nrbf(data) == [1, -2, 3]


def test_a_class_with_members() -> None:
    data = bytes.fromhex(
        "0001000000FFFFFFFF0100000000000000"
        "0C02000000" "03" "4C6962"  # BinaryLibrary 2, "Lib"
        "0501000000" "05" "4F72646572"  # ClassWithMembersAndTypes 1, "Order"
        "03000000" "024964" "044E616D65" "044E657874"  # 3 members: Id, Name, Next
        "00" "01" "04" "08" "05" "4F72646572" "02000000"  # Primitive Int32, String, Class "Order" of library 2
        "02000000"  # library 2
        "2A000000" "0603000000" "03" "666F6F" "0A"  # 42, "foo", null
        "0B"
    )  # fmt: skip
    assert decode_nrbf(data) == {"$type": "Order", "Id": 42, "Name": "foo", "Next": None}


def test_an_array_of_objects_with_nulls_and_references() -> None:
    elements = (string("a", 2), NULL, b"\x0d\x02", b"\x0e" + int32(1), b"\x08\x01\x01", reference(2))
    assert stream(array(*elements, length=7)) == ["a", None, None, None, None, True, "a"]


def test_instances_share_a_class_and_come_after_the_references_to_them() -> None:
    second = b"\x01" + int32(4) + int32(3) + int32(7) + NULL  # ClassWithId 4, as 3
    decoded = stream(LIBRARY, array(reference(3), reference(4)), points(int32(5), NULL, identifier=3), second)
    assert decoded == [{"$type": "Point", "x": 5, "y": None}, {"$type": "Point", "x": 7, "y": None}]


def test_classes_without_types_hold_their_values_in_records() -> None:
    system = b"\x02" + int32(1) + text("System.Thing") + int32(1) + text("v") + b"\x08\x08" + int32(9)
    assert stream(system) == {"$type": "System.Thing", "v": 9}
    with_library = LIBRARY + b"\x03" + int32(1) + text("Thing") + int32(1) + text("v") + int32(2) + NULL
    assert stream(with_library) == {"$type": "Thing", "v": None}
    typed = b"\x04" + int32(1) + text("S") + int32(1) + text("v") + bytes([7, 2])  # a PrimitiveArray of bytes
    assert stream(typed + b"\x0f" + int32(2) + int32(2) + b"\x02\xab\xcd") == {"$type": "S", "v": b"\xab\xcd"}


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (1, b"\x01", True),
        (2, b"\xff", 255),
        (3, "é".encode(), "é"),
        (3, "€".encode(), "€"),
        (5, text("-12.50"), Decimal("-12.50")),
        (6, struct.pack("<d", 1.5), 1.5),
        (7, b"\xff\xff", -1),
        (9, struct.pack("<q", -1 << 40), -1 << 40),
        (10, b"\xff", -1),
        (11, struct.pack("<f", 0.25), 0.25),
        (12, struct.pack("<q", -15_000_000), timedelta(seconds=-1.5)),
        (13, struct.pack("<Q", 630822816000000000 | 1 << 62), datetime(2000, 1, 1, tzinfo=UTC)),
        (13, struct.pack("<Q", 630822816000000000), datetime(2000, 1, 1)),
        (14, b"\xff\xff", 65535),
        (15, b"\xff\xff\xff\xff", 0xFFFFFFFF),
        (16, b"\xff" * 8, (1 << 64) - 1),
        (17, b"", None),
        (18, text("s"), "s"),
    ],
)
def test_primitives(kind: int, data: bytes, value: Any) -> None:
    assert stream(array(b"\x08" + bytes([kind]) + data)) == [value]


def test_rectangular_arrays_are_lists_of_lists() -> None:
    matrix = b"\x07" + int32(1) + b"\x02" + int32(2) + int32(2) + int32(3) + b"\x00\x08"
    assert stream(matrix + b"".join(map(int32, range(6)))) == [[0, 1, 2], [3, 4, 5]]
    offset = b"\x07" + int32(1) + b"\x03" + int32(1) + int32(2) + int32(-5) + b"\x01"
    assert stream(offset + string("a", 2) + NULL) == ["a", None]
    jagged = b"\x07" + int32(1) + b"\x01" + int32(1) + int32(1) + b"\x07\x08" + reference(2)
    assert stream(jagged, b"\x0f" + int32(2) + int32(1) + b"\x08" + int32(4)) == [[4]]
    empty = b"\x07" + int32(1) + b"\x02" + int32(2) + int32(0) + int32(3) + b"\x00\x08"
    assert stream(empty) == []


def test_self_references_terminate() -> None:
    assert stream(LIBRARY, points(int32(1), reference(1))) == {
        "$id": 1, "$type": "Point", "x": 1, "y": {"$ref": 1},
    }  # fmt: skip
    assert stream(array(reference(1))) == {"$id": 1, "$values": [{"$ref": 1}]}


def test_shared_objects_are_written_once() -> None:
    """Forty arrays that each refer twice to the next one would otherwise expand to a list of 2**40 items."""
    arrays = [array(reference(n + 1), reference(n + 1), identifier=n) for n in range(1, 41)]
    decoded = stream(*arrays, array(string("x" * 100, 99), reference(99), identifier=41))
    assert len(json.dumps(decoded)) < 5000
    assert decoded[1] == {"$ref": 2}


# -- hostile input ---------------------------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    data = b"".join(array(identifier=n, length=1) for n in range(1, depth + 1))
    return HEADER + data + NULL + END


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no header"),
        (HEADER, "1 bytes expected, but only 0 remain"),
        (HEADER + END, "reference to the missing object 1"),
        (HEADER + string("a", 1), "only 0 remain"),
        (HEADER + b"\x06" + int32(1) + b"\xff\xff\xff\xff\x07x", "expected"),
        (HEADER + b"\x06" + int32(1) + b"\xff" * 6, "more than five bytes"),
        (HEADER + b"\x06" + int32(1) + b"\x01\xff" + END, "no UTF-8"),
        (HEADER + string("a", 1) + string("b", 1) + END, "defined twice"),
        (HEADER + b"\x15" + END, "record type 21"),
        (HEADER + b"\x0f" + int32(1) + int32(1 << 30) + b"\x08", "1073741824 elements"),
        (HEADER + b"\x0f" + int32(1) + int32(2) + b"\x08", "2 elements, 1 bytes are left"),
        (HEADER + b"\x0f" + int32(1) + int32(-1) + b"\x08", "-1 elements"),
        (HEADER + array(b"\x0e" + int32(1 << 30), length=1 << 30) + END, f"at most {MAXIMUM_ELEMENTS}"),
        (HEADER + array(b"\x0e" + int32(5), length=3) + END, "5 nulls, but only 3 elements remain"),
        (HEADER + array(b"\x0d\x00", length=3) + END, "0 nulls, but only 3 elements remain"),
        (HEADER + array(length=3) + END, "ends within an object"),
        (HEADER + b"\x0f" + int32(1) + int32(5) + b"\x11" + bytes(9), "primitive type 17"),
        (HEADER + array(b"\x08\x63") + END, "primitive type 99"),
        (HEADER + array(b"\x08\x05" + text("x")) + END, "ConversionSyntax"),
        (HEADER + array(b"\x08\x0d" + b"\xff" * 8) + END, "out of range"),
        (HEADER + b"\x01" + int32(1) + int32(9) + END, "a class that is not known"),
        (HEADER + b"\x05" + int32(1) + text("C") + int32(1 << 30), "members"),
        (HEADER + b"\x05" + int32(1) + text("C") + int32(1) + text("m") + b"\x09", "binary type 9"),
        (HEADER + b"\x07" + int32(1) + b"\x02" + int32(2) + int32(1 << 20) + int32(1 << 20) + b"\x00\x08", "at most"),
        (HEADER + b"\x07" + int32(1) + b"\x02" + int32(33) + bytes(40), "33 dimensions"),
        (HEADER + LIBRARY + points(int32(1), b"\x0d\x02") + END, "2 nulls for the member y"),
        (nested(MAXIMUM_DEPTH + 1), "within each other"),
        (nested(MAXIMUM_DEPTH + 1)[: -len(NULL + END)], "within each other"),  # before the rest is read
        (nested(MAXIMUM_DEPTH)[: -len(NULL + END)], "1 bytes expected, but only 0 remain"),
        (HEADER + b"".join(array(reference(n % 999 + 1), identifier=n) for n in range(1, 1000)) + END, "within each"),
    ],
)  # fmt: skip
def test_hostile_streams_are_refused_with_a_reason(data: bytes, said: str) -> None:
    with pytest.raises(NrbfError, match=said):
        decode_nrbf(data)


def test_long_names_are_not_repeated_without_limit() -> None:
    name = b"\xa0\x8d\x06" + b"n" * 100_000
    definition = b"\x02" + int32(1) + name + int32(0)
    instances = b"".join(b"\x01" + int32(n) + int32(1) for n in range(2, 500))
    with pytest.raises(NrbfError, match="names of more than"):
        decode_nrbf(HEADER + definition + instances + END)


def test_the_maximum_nesting_depth_is_accepted() -> None:
    value = decode_nrbf(nested(MAXIMUM_DEPTH // 2))
    for _ in range(MAXIMUM_DEPTH // 2):
        (value,) = value
    assert value is None


SAMPLE = HEADER + LIBRARY + points(int32(1), array(string("a", 5), reference(1), identifier=4)) + END


@given(st.lists(st.tuples(st.integers(17, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_streams_are_decoded_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for position, byte in changes:
        data[position] = byte
    with suppress(NrbfError):
        json.dumps(decode_nrbf(bytes(data)), default=str)


@given(st.binary(max_size=200))
def test_any_bytes_after_a_header_are_decoded_or_refused(data: bytes) -> None:
    with suppress(NrbfError):
        decode_nrbf(HEADER + data)
