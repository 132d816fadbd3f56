"""For every operation of the five interfaces: encoded values decode to themselves, and invalid bytes are harmless."""

from __future__ import annotations

import math
import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msrpc.idl import wiretypes as w
from msrpc.interfaces import ms_oaut
from msrpc.ndr import BadStubData, NdrError, Operation, Structure
from ndr.strategies import operations, request, response
from openmsmq.interfaces import ms_mqmp, ms_mqmq, ms_mqmr

OPERATIONS = operations()
BY_NAME = {
    f"{name}{syntax}": (spoken, wire)
    for name, operation, wire in OPERATIONS
    for syntax, spoken in (("", operation), (" in NDR64", operation.ndr64))
}
each_operation = pytest.mark.parametrize("name", [name for name in BY_NAME if "NDR64" not in name])
each_operation_in_ndr64 = pytest.mark.parametrize("name", [name for name in BY_NAME if "NDR64" in name])
FEW = settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
VERY_FEW = settings(FEW, max_examples=6)
MANY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
SECONDS = 2.0  # limit for a stub of some kilobytes: microseconds, unless the machine is busy


def _round_trip(name: str, data: st.DataObject) -> None:
    operation, wire = BY_NAME[name]
    assert operation.request is not None and operation.response is not None
    sent = data.draw(request(wire, operation.request))
    assert operation.decode_request(operation.encode_request(sent)) == sent
    answered = data.draw(response(wire, operation.response))
    assert operation.decode_response(operation.encode_response(answered)) == answered


@each_operation
@FEW
@given(data=st.data())
def test_arguments_and_results_survive_the_wire(name: str, data: st.DataObject) -> None:
    _round_trip(name, data)


@pytest.mark.slow
@each_operation
@MANY
@given(data=st.data())
def test_many_arguments_and_results_survive_the_wire(name: str, data: st.DataObject) -> None:
    _round_trip(name, data)


_VICIOUS = [
    b"\xff" * 8,
    b"\xff" * 4 + bytes(4),
    bytes(7) + b"\x80",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xff\xff\xff\x7f",
    b"\x00\x00\x00\x00",
    b"\x01\x00\x00\x00",
]


@st.composite
def mutation(draw: st.DrawFn, stub: bytes) -> bytes:
    match draw(st.sampled_from(["cut", "flip", "word", "insert", "noise"])):
        case "cut":
            return stub[: draw(st.integers(0, max(0, len(stub) - 1)))]
        case "flip" if stub:
            bit = draw(st.integers(0, 8 * len(stub) - 1))
            return stub[: bit // 8] + bytes([stub[bit // 8] ^ 1 << bit % 8]) + stub[bit // 8 + 1 :]
        case "word":
            at = 4 * draw(st.integers(0, len(stub) // 4))
            return stub[:at] + (word := draw(st.sampled_from(_VICIOUS))) + stub[at + len(word) :]
        case "insert":
            at = draw(st.integers(0, len(stub)))
            return stub[:at] + draw(st.binary(max_size=9)) + stub[at:]
    return draw(st.binary(max_size=200))


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, where NaN equals NaN."""
    if isinstance(a, Structure) and type(a) is type(b):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__slots__)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _mutate(name: str, data: st.DataObject) -> None:
    operation, wire = BY_NAME[name]
    assert operation.request is not None and operation.response is not None
    for stub, decode, encode in (
        (
            operation.encode_request(data.draw(request(wire, operation.request))),
            operation.decode_request,
            operation.encode_request,
        ),
        (
            operation.encode_response(data.draw(response(wire, operation.response))),
            operation.decode_response,
            operation.encode_response,
        ),
    ):
        mutated = data.draw(mutation(stub))
        begin = time.process_time()
        for order in ("<", ">"):
            try:
                value = decode(mutated, order)
            except BadStubData:
                continue
            # An accepted value can be encoded and decoded again.
            assert same(decode(encode(value)), value)
        assert time.process_time() - begin < SECONDS


@each_operation
@FEW
@given(data=st.data())
def test_mutated_stubs_are_refused_or_are_values(name: str, data: st.DataObject) -> None:
    _mutate(name, data)


@each_operation_in_ndr64
@VERY_FEW
@given(data=st.data())
def test_mutated_stubs_in_ndr64_are_refused_or_are_values(name: str, data: st.DataObject) -> None:
    _mutate(name, data)


@pytest.mark.slow
@each_operation_in_ndr64
@MANY
@given(data=st.data())
def test_many_mutated_stubs_in_ndr64_are_refused_or_are_values(name: str, data: st.DataObject) -> None:
    _mutate(name, data)


@pytest.mark.slow
@each_operation
@MANY
@given(data=st.data())
def test_many_mutated_stubs_are_refused_or_are_values(name: str, data: st.DataObject) -> None:
    _mutate(name, data)


def refused_cheaply(operation: Operation, stub: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadStubData):
            operation.decode_request(stub)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, f"{peak} bytes were allocated for a stub of {len(stub)}"


@pytest.mark.parametrize("count", [0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x40000000])
def test_an_announced_count_beyond_the_bytes_is_refused_before_anything_is_allocated(count: int) -> None:
    words = count.to_bytes(4, "little")
    create = ms_mqmp.qmcomm.operation("R_QMCreateObjectInternal")
    name = b"\1\0\0\0" + words + bytes(4) + words + b"a\0"
    refused_cheaply(create, name)
    head = bytes.fromhex("01000000 02000000 00000000 02000000 6100 0000 00000000 00000000 01000000")
    refused_cheaply(create, head + words + b"\1\0\0\0")  # PROPIDs
    refused_cheaply(create, head + b"\1\0\0\0" + b"\x65\0\0\0" + words + bytes(4))  # PROPVARIANTs
    info = ms_mqmr.qmmgmt.operation("R_QMMgmtGetInfo")
    refused_cheaply(info, bytes.fromhex("0100 0100 00000000 01000000") + words + bytes(8))


def _nested(depth: int) -> Any:
    value = ms_mqmq.tag_inner_PROPVARIANT(vt=3, lVal=1)
    for _ in range(depth):
        value = ms_mqmq.tag_inner_PROPVARIANT(vt=0x100C, capropvar=ms_mqmq.CAPROPVARIANT(1, [value]))
    return value


def _create_request(value: Any) -> Any:
    operation = ms_mqmp.qmcomm.operation("R_QMCreateObjectInternal")
    assert operation.request is not None
    return operation.request(dwObjectType=1, lpwcsPathName="a", cp=1, aProp=[101], apVar=[value])


def test_nested_propvariants_decode_to_a_sufficient_depth() -> None:
    operation = ms_mqmp.qmcomm.operation("R_QMCreateObjectInternal")
    sent = _create_request(_nested(6))
    assert operation.decode_request(operation.encode_request(sent)) == sent


@pytest.mark.parametrize("depth", [20, 60])
def test_propvariants_nested_too_deep_are_refused(depth: int) -> None:
    operation = ms_mqmp.qmcomm.operation("R_QMCreateObjectInternal")
    with pytest.raises(BadStubData, match="nested"):
        operation.decode_request(operation.encode_request(_create_request(_nested(depth))))


def _minimum_sizes(wire: w.WireType, seen: set[int]) -> list[int]:
    if id(wire) in seen:
        return []
    seen.add(id(wire))
    match wire:
        case w.Array(element=element):
            return [w.minimum_size(element), *_minimum_sizes(element, seen)]
        case w.Pointer(to=to):
            return _minimum_sizes(to, seen)
        case w.Struct(fields=members):
            return [size for f in members for size in _minimum_sizes(f.type, seen)]
        case w.Union(arms=arms):
            return [size for arm in arms if arm.field for size in _minimum_sizes(arm.field.type, seen)]
    return []


def test_no_array_has_elements_of_size_zero() -> None:
    sizes = [
        size
        for _, _, wire in OPERATIONS
        for parameter in wire.parameters
        for size in _minimum_sizes(parameter.type, set())
    ]
    assert len(sizes) > 100
    assert min(sizes) > 0


PATH_TO_FORMAT = ms_mqmp.qmcomm.operation("R_QMObjectPathToObjectFormat")
STRINGS = [
    ("odd number of bytes", "02000000 00000000 02000000 6100 00"),
    ("no terminator", "02000000 00000000 02000000 6100 6200"),
    ("no characters at all", "00000000 00000000 00000000"),
    ("embedded NUL", "04000000 00000000 04000000 6100 0000 6200 0000"),
    ("two terminators", "03000000 00000000 03000000 6100 0000 0000"),
    ("offset", "03000000 01000000 02000000 6100 0000"),
    ("more characters than announced", "01000000 00000000 02000000 6100 0000"),
    ("offset and count that wrap", "ffffffff ffffffff 02000000 6100 0000"),
]
_FORMAT = "01000000 01000000 00000000"


def _path_request(string: str) -> bytes:
    stub = bytes.fromhex(string)
    return stub + bytes(-len(stub) % 4) + bytes.fromhex(_FORMAT)


@pytest.mark.parametrize(("what", "string"), STRINGS, ids=[what for what, _ in STRINGS])
def test_a_malformed_string_is_refused(what: str, string: str) -> None:
    stub = bytes.fromhex(string) if what == "odd number of bytes" else _path_request(string)
    with pytest.raises(BadStubData):
        PATH_TO_FORMAT.decode_request(stub)


def test_a_lone_surrogate_is_kept() -> None:
    decoded = PATH_TO_FORMAT.decode_request(_path_request("03000000 00000000 03000000 6100 00d8 0000"))
    assert decoded.lpwcsPathName == "a\ud800"
    again = PATH_TO_FORMAT.decode_request(PATH_TO_FORMAT.encode_request(decoded))
    assert again == decoded


@pytest.mark.parametrize(("announced", "maximum"), [(None, 2), (10, 10), (2, 2)])
def test_an_array_of_a_response_has_the_size_that_the_request_announced(announced: int | None, maximum: int) -> None:
    """C706 14.3.3.4: max_count is the value of size_is even if fewer elements follow; clients compare the two."""
    operation = ms_oaut.IEnumVARIANT.operation("Next")
    elements = [ms_oaut.wireVARIANTStr(vt=0), ms_oaut.wireVARIANTStr(vt=1)]
    response = ms_oaut.IEnumVARIANT_Next_Response(rgVar=elements, pCeltFetched=2, celt=announced)
    stub = operation.encode_response(response)
    assert struct.unpack_from("<3I", stub, 8) == (maximum, 0, 2)  # after ORPCTHAT
    assert operation.decode_response(stub).rgVar == elements


def test_a_union_is_refused_if_the_selector_that_follows_it_has_another_value() -> None:
    operation = ms_oaut.ITypeInfo.operation("GetVarDesc")
    element = ms_oaut.ELEMDESC(tdesc=ms_oaut.TYPEDESC(hreftype=0x11223344, vt=29), paramdesc=ms_oaut.PARAMDESC())
    response = ms_oaut.ITypeInfo_GetVarDesc_Response(ppVarDesc=ms_oaut.VARDESC(oInst=1, elemdescVar=element, varkind=0))
    for spoken in (operation, operation.ndr64):
        stub = spoken.encode_response(response)
        assert spoken.decode_response(stub) == response
        changed = stub.replace(bytes.fromhex("44332211 1d00"), bytes.fromhex("44332211 0000"))
        assert changed != stub
        with pytest.raises(BadStubData, match="TYPEDESC: union selected by 29 and 0"):
            spoken.decode_response(changed)


def test_an_array_of_a_response_is_not_larger_than_announced() -> None:
    operation = ms_oaut.IEnumVARIANT.operation("Next")
    elements = [ms_oaut.wireVARIANTStr(vt=0)] * 2
    with pytest.raises(NdrError, match="rgVar: 2 elements, at most 1 announced"):
        operation.encode_response(ms_oaut.IEnumVARIANT_Next_Response(rgVar=elements, pCeltFetched=2, celt=1))
