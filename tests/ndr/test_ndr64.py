"""NDR64 ([MS-RPCE] 2.2.5): its rules and examples byte by byte, and comparison with a second encoder for each
operation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from idl.idl_text import interface

from msrpc.idl import wiretypes as w
from msrpc.ndr import BadStubData, NdrError, Operation
from ndr.ndr64_by_text import Encoder
from ndr.strategies import all_operations, operations, request, response
from ndr.test_round_trips import refused_cheaply

FEW = settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
VERY_FEW = settings(FEW, max_examples=4)
OF_QUEUES = {name for name, _, _ in operations()}
BY_NAME = {name: (operation, wire) for name, operation, wire in all_operations()}


def _content(value: Any) -> dict[str, Any]:
    """Return the arguments in a stub; a decoded response lacks sizes that only the request has."""
    return {name: getattr(value, name) for name in value.__slots__ if hasattr(value, name)}


def _agree(name: str, data: st.DataObject) -> None:
    operation, wire = BY_NAME[name]
    assert operation.request is not None and operation.response is not None
    wide = operation.ndr64
    sent = data.draw(request(wire, operation.request))
    stub = wide.encode_request(sent)
    assert stub.hex(" ", 4) == Encoder().arguments(wire.inputs, sent).hex(" ", 4)
    assert _content(wide.decode_request(stub)) == _content(operation.decode_request(operation.encode_request(sent)))
    answered = data.draw(response(wire, operation.response))
    stub = wide.encode_response(answered)
    results = [*wire.outputs, *([w.Field("result", wire.result)] if wire.result else [])]
    assert stub.hex(" ", 4) == Encoder().arguments(results, answered).hex(" ", 4)
    decoded = operation.decode_response(operation.encode_response(answered))
    assert _content(wide.decode_response(stub)) == _content(decoded)


@pytest.mark.parametrize("name", sorted(OF_QUEUES))
@FEW
@given(data=st.data())
def test_both_syntaxes_of_operations_on_queues_have_the_same_values(name: str, data: st.DataObject) -> None:
    _agree(name, data)


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - OF_QUEUES))
@VERY_FEW
@given(data=st.data())
def test_both_syntaxes_of_all_other_operations_have_the_same_values(name: str, data: st.DataObject) -> None:
    _agree(name, data)


_HEAD = "[uuid(12345678-1234-1234-1234-123456789abc), version(1.0), pointer_default(unique)] interface example {"


def declared(text: str) -> tuple[Operation, dict[str, Any]]:
    """Return the NDR64 codec of the only operation of an interface, and the names of its module."""
    made, names = interface(_HEAD + text + "};")
    return made.operations[0].ndr64, names


def travels(operation: Operation, value: Any, stub: str) -> None:
    """Check that a request is encoded as these bytes and decoded from them."""
    expected = bytes.fromhex(stub)
    assert operation.encode_request(value).hex(" ", 4) == expected.hex(" ", 4)
    assert operation.decode_request(expected) == value


def test_section_4_6_the_maximum_count_of_an_array_has_8_bytes() -> None:
    operation, names = declared("void CorrelatedMethod([in] long Size, [in, size_is(Size)] short *pArray);")
    stub = "02000000 00000000 0200000000000000 0100 feff"
    travels(operation, names["CorrelatedMethod_Request"](2, [1, -2]), stub)
    with pytest.raises(BadStubData, match="2 elements, 3 announced"):
        operation.decode_request(bytes.fromhex("03" + stub[2:]))


def test_section_4_7_a_unicode_string_has_a_pointer_and_three_counts_of_8_bytes() -> None:
    operation, names = declared("""
        typedef struct _UNICODE_STRING {
            unsigned short Length; unsigned short MaximumLength;
            [size_is(MaximumLength/2), length_is(Length/2)] unsigned short *pString;
        } UNICODE_STRING;
        void Call([in] UNICODE_STRING *text);""")
    value = names["Call_Request"](names["UNICODE_STRING"](4, 8, [0x61, 0x62]))
    travels(
        operation,
        value,
        """
        0400 0800 00000000 0000020000000000
        0400000000000000 0000000000000000 0200000000000000 6100 6200""",
    )


def test_section_4_8_a_structure_ends_at_a_multiple_of_its_alignment() -> None:
    operation, names = declared("""
        typedef struct _StructWithPad { long l; short s; } StructWithPad;
        void Call([in] StructWithPad *one, [in] char after, [in, size_is(2)] StructWithPad *two);""")
    pad = names["StructWithPad"]
    travels(
        operation,
        names["Call_Request"](pad(1, 2), 3, [pad(4, 5), pad(6, 7)]),
        """
        01000000 0200 0000
        03 00000000000000
        0200000000000000 04000000 0500 0000 06000000 0700 0000""",
    )


def test_enumerations_have_4_bytes_with_and_without_v1_enum() -> None:
    operation, names = declared("""
        typedef enum { A = 1, B = 2 } NARROW;
        typedef [v1_enum] enum { C = 3 } WIDE;
        void Call([in] char before, [in] NARROW n, [in] WIDE w, [in, size_is(2)] NARROW *all);""")
    travels(
        operation,
        names["Call_Request"](9, 2, 3, [1, 2]),
        """
        09 000000 02000000 03000000 00000000
        0200000000000000 01000000 02000000""",
    )


def test_an_integer_of_the_size_of_pointers_is_a_hyper() -> None:
    operation, names = declared("void Call([in] __int3264 s, [in] long after, [in] unsigned __int3264 u);")
    travels(operation, names["Call_Request"](-1, 5, 1 << 63), "ffffffffffffffff 05000000 00000000 0000000000000080")


def test_the_arm_of_a_union_is_aligned_as_the_largest_one_of_all() -> None:
    operation, names = declared("""
        typedef struct {
            unsigned char before; unsigned char kind;
            [switch_is(kind)] union { [case(1)] unsigned char little; [case(2)] hyper large; [default] ; };
            unsigned char after;
        } HOLDS;
        void Call([in] HOLDS *h);""")
    request, holds = names["Call_Request"], names["HOLDS"]
    begin = "09 {0} 000000000000 {0} 00000000000000 "
    travels(operation, request(holds(9, 1, 7, None, 8)), begin.format("01") + "07 08 000000000000")
    travels(operation, request(holds(9, 2, None, 7, 8)), begin.format("02") + "0700000000000000 08 00000000000000")
    travels(operation, request(holds(9, 3, None, None, 8)), begin.format("03") + "08 00000000000000")


def test_arrays_of_references_have_a_value_in_place_of_each() -> None:
    operation, names = declared("""
        typedef [ref] long *REFERENCE;
        typedef struct { REFERENCE two[2]; } REFERS;
        void Call([in] REFERS *r);""")
    travels(
        operation,
        names["Call_Request"](names["REFERS"]([5, 6])),
        """
        0000020000000000 0400020000000000 05000000 06000000""",
    )


def test_strings_have_three_counts_of_8_bytes_or_two_where_their_size_is_fixed() -> None:
    operation, names = declared("""
        typedef struct { [string] wchar_t fixed[4]; } FIXED;
        void Call([in] short before, [in, string] wchar_t *text, [in, string, unique] char *narrow, [in] FIXED *f);""")
    travels(
        operation,
        names["Call_Request"](1, "a", "b", names["FIXED"]("c")),
        """
        0100 000000000000
        0200000000000000 0000000000000000 0200000000000000 6100 0000
        00000000 0000020000000000
        0200000000000000 0000000000000000 0200000000000000 62 00
        000000000000
        0000000000000000 0200000000000000 6300 0000 00000000""",
    )


def test_the_gap_of_a_conformant_structure_travels_before_its_elements() -> None:
    operation, names = declared("""
        typedef struct { hyper first; unsigned char count; [size_is(count)] unsigned char data[]; } TAIL;
        void Call([in] unsigned char before, [in] TAIL *t, [in] unsigned char after);""")
    travels(
        operation,
        names["Call_Request"](9, names["TAIL"](1, 3, b"abc"), 7),
        """
        09 00000000000000 0300000000000000
        0100000000000000 03 00000000000000 616263 0000000000 07""",
    )


def test_the_count_of_a_conformant_structure_does_not_align_it() -> None:
    operation, names = declared("""
        typedef struct { unsigned short count; [size_is(count)] unsigned char data[]; } TAIL;
        void Call([in] TAIL *t, [in] unsigned short after);""")
    travels(operation, names["Call_Request"](names["TAIL"](3, b"abc"), 7), "0300000000000000 0300 616263 00 0700")


def test_a_context_handle_has_20_bytes_that_are_aligned_to_4() -> None:
    operation, names = declared("""
        typedef [context_handle] void *HANDLE;
        void Call([in] unsigned char before, [in] HANDLE h, [in] hyper after);""")
    travels(
        operation,
        names["Call_Request"](1, bytes(range(20)), 2),
        f"""
        01 000000 {bytes(range(20)).hex()} 0200000000000000""",
    )


LYING = [1 << 31, (1 << 32) - 1, 1 << 32, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


@pytest.mark.parametrize("count", LYING)
@pytest.mark.parametrize("place", ["conformant", "maximum", "offset", "actual"])
def test_a_wrong_count_is_refused_before_anything_is_allocated(count: int, place: str) -> None:
    if place == "conformant":
        operation, _ = declared("void Call([in] unsigned hyper n, [in, size_is(n)] hyper *all);")
        stub = count.to_bytes(8, "little") * 2 + bytes(64)
    else:
        operation, _ = declared("void Call([in, string] wchar_t *text);")
        counts = {"maximum": 2, "offset": 0, "actual": 2} | {place: count}
        stub = b"".join(value.to_bytes(8, "little") for value in counts.values()) + b"a\0\0\0"
    refused_cheaply(operation, stub)


def test_there_is_no_big_endian_ndr64() -> None:
    operation, names = declared("void Call([in] long n);")
    stub = operation.encode_request(names["Call_Request"](1))
    with pytest.raises(BadStubData, match="big-endian"):
        operation.decode_request(stub, ">")
    with pytest.raises(BadStubData, match="big-endian"):
        operation.decode_response(b"", ">")


def test_a_value_that_does_not_fit_is_refused_as_in_ndr() -> None:
    operation, names = declared("void Call([in] short n, [in, size_is(n)] short *all);")
    with pytest.raises(NdrError, match="1 elements, 2 announced"):
        operation.encode_request(names["Call_Request"](2, [1]))


def test_the_twin_of_an_operation_is_made_once_and_is_its_own() -> None:
    for operation, _ in BY_NAME.values():
        assert operation.ndr64 is operation.ndr64 is operation.ndr64.ndr64 is not operation
        assert (operation.ndr64.request, operation.ndr64.response) == (operation.request, operation.response)
