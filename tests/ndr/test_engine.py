"""The engine returns what the interpreted codec returns, or nothing."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from idl.idl_text import interface
from idl.test_idl_features import FEATURE

from msrpc.interfaces import ms_dcom, ms_oaut
from msrpc.ndr import NULL, BadStubData, NdrError, Operation, Structure
from msrpc.ndr.engine import Codec, announce, codec, declare
from ndr.strategies import all_operations, operations, request, response
from ndr.test_round_trips import mutation, same
from ndr.vector_args import load, operation, vectors
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp
from openmsmq.model.message import Message

FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
VERY_FEW = settings(FEW, max_examples=10)
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))


def _spoken(chosen: list[tuple[str, Operation, Any]]) -> dict[str, tuple[Operation, Any]]:
    """Return the operations that have tables for their arguments and results, in both syntaxes. One of several with the
    same codecs is enough."""
    found, seen = {}, set()
    for name, codecs, wire in chosen:
        for syntax, spoken in (("", codecs), (" in NDR64", codecs.ndr64)):
            if all(isinstance(encoder, Codec) for encoder in spoken.encoders) and spoken.encoders not in seen:
                seen.add(spoken.encoders)
                found[f"{name}{syntax}"] = spoken, wire
    return found


# Whose arguments have optional types without a table.
OF_OBJECTS = ("IDispatch.Invoke", "IDispatch.GetIDsOfNames", "IRemUnknown.RemQueryInterface", "ITypeInfo.GetFuncDesc")
BY_DAY = _spoken([*operations(), *(found for found in all_operations() if found[0] in OF_OBJECTS)])
OPERATIONS = BY_DAY | _spoken(all_operations())
WHOLE = _spoken(operations())
each_operation = pytest.mark.parametrize("name", OPERATIONS)
each_operation_in_ndr = pytest.mark.parametrize("name", [name for name in BY_DAY if "NDR64" not in name])
each_operation_in_ndr64 = pytest.mark.parametrize("name", [name for name in BY_DAY if "NDR64" in name])
SEND = ms_mqmp.qmcomm2.operation("rpc_ACSendMessageEx")


def test_only_what_has_full_pointers_is_interpreted() -> None:
    interpreted = {name for name, codecs, _ in operations() if not isinstance(codecs.encoders[0], Codec)}
    assert interpreted == {name for name, codecs, _ in operations() if not isinstance(codecs.ndr64.encoders[0], Codec)}
    assert interpreted == {"qmcomm.R_QMGetRemoteQueueName", "qmcomm.rpc_QMOpenQueueInternal"}


@pytest.mark.parametrize("path", vectors(), ids=lambda path: path.stem)
def test_recorded_stubs_need_no_interpreter(path: Any) -> None:
    vector = load(path)
    codecs = operation(vector)
    is_request = vector["direction"] == "request"
    decoder = codecs.decoders[(0 if is_request else 2) + ("BE" in vector["transfer_syntax"])]
    encoder = codecs.encoders[0 if is_request else 1]
    if not isinstance(decoder, Codec):
        return
    stub = bytes.fromhex(vector["stub_hex"])
    value = decoder.direct(stub)
    assert value == decoder.interpreted(stub)
    assert encoder.direct(value) == encoder.interpreted(value)


def _values(name: str, data: st.DataObject) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    """Return (value, encoder, decoders) of the arguments and of the results."""
    codecs, wire = OPERATIONS[name]
    orders = 1 if codecs is codecs.ndr64 else 2
    return [
        (data.draw(request(wire, codecs.request)), codecs.encoders[0], codecs.decoders[:orders]),
        (data.draw(response(wire, codecs.response)), codecs.encoders[1], codecs.decoders[2 : 2 + orders]),
    ]


def _agree(name: str, data: st.DataObject) -> None:
    for value, encoder, (decoder, *_) in _values(name, data):
        stub = encoder.interpreted(value)
        written, read = encoder.direct(value), decoder.direct(stub)
        assert written == stub or (written is None and name not in WHOLE)
        assert same(read, decoder.interpreted(stub)) or (read is None and name not in WHOLE)
        assert (written is None) == (read is None)


def _agree_on_bad_stubs(name: str, data: st.DataObject) -> None:
    for value, encoder, decoders in _values(name, data):
        stub = data.draw(mutation(encoder.interpreted(value)))
        for decoder in decoders:
            found = decoder.direct(stub)
            assert found is None or same(found, decoder.interpreted(stub))


TEXT = ms_oaut.FLAGGED_WORD_BLOB(4, 2, [0x41, 0x42])
REFERENCE = ms_dcom.MInterfacePointer(3, b"MEO")
ORPC = ms_dcom.ORPCTHIS(
    ms_dcom.COMVERSION(5, 7), 0, 0, bytes(16),
    ms_dcom.ORPC_EXTENT_ARRAY(1, 0, [ms_dcom.ORPC_EXTENT(bytes(16), 9, bytes(16)), None]),
)  # fmt: skip


@pytest.mark.parametrize("syntax", ["NDR", "NDR64"])
@pytest.mark.parametrize(
    ("kind", "values", "has_table"),
    [
        (0, {}, True), (1, {}, True), (2, {"iVal": -1}, True), (3, {"lVal": -1}, True), (6, {"cyVal": 1 << 62}, True),
        (8, {"bstrVal": TEXT}, True), (8, {"bstrVal": None}, True), (9, {"pdispVal": REFERENCE}, True),
        (11, {"boolVal": -1}, True), (13, {"punkVal": None}, True), (17, {"bVal": 255}, True),
        (20, {"llVal": -1 << 63}, True), (0x4008, {"pbstrVal": TEXT}, True), (0x4009, {"ppdispVal": NULL}, True),
        (0x400C, {"pvarVal": ms_oaut.wireVARIANTStr(vt=3, lVal=7)}, True),
        (4, {"fltVal": 0.5}, False), (5, {"dblVal": 1.5}, False), (7, {"date": 0.5}, False),
        (0x2008, {"parray": None}, True), (0x6011, {"pparray": NULL}, True),
        (0x2011, {"parray": NULL}, True),
    ],
)  # fmt: skip
def test_variants_of_scripts_need_no_interpreter(
    kind: int, values: dict[str, Any], has_table: bool, syntax: str
) -> None:
    invoke = ms_oaut.IDispatch.operation("Invoke")
    codecs = invoke if syntax == "NDR" else invoke.ndr64
    assert codecs.request is not None and codecs.decoders is not None and codecs.encoders is not None
    if "cyVal" in values:
        values = {"cyVal": ms_oaut.CURRENCY(values["cyVal"])}
    variant = ms_oaut.wireVARIANTStr(vt=kind, **values)
    value = codecs.request(ORPC, 7, bytes(16), 0, 1, ms_oaut.DISPPARAMS([None, variant], None, 2, 0))
    stub = codecs.encoders[0].interpreted(value)
    assert codecs.encoders[0].direct(value) == (stub if has_table else None)
    assert codecs.decoders[0].direct(stub) == (value if has_table else None)
    assert codecs.decode_request(codecs.encode_request(value)) == value


def test_a_selector_that_is_calculated_must_match_the_tag() -> None:
    invoke = ms_oaut.IDispatch.operation("Invoke")
    assert invoke.request is not None and invoke.decoders is not None and invoke.encoders is not None
    variant = ms_oaut.wireVARIANTStr(vt=0x2011)  # an array of bytes, whose tag is that of any array
    value = invoke.request(ms_dcom.ORPCTHIS(), pDispParams=ms_oaut.DISPPARAMS([variant], None, 1, 0))
    stub = invoke.encode_request(value)
    tag = stub.index((0x2000).to_bytes(4, "little"))
    assert invoke.decoders[0].direct(stub) == value
    assert invoke.decoders[0].direct(stub[:tag] + (0x2011).to_bytes(4, "little") + stub[tag + 4 :]) is None


def test_no_gap_precedes_elements_that_are_absent() -> None:
    """Gaps precede primitives (C706 14.2.2), so an empty array of 64-bit numbers is its count alone."""
    ping = ms_dcom.IObjectExporter.operation("ComplexPing")
    assert ping.request is not None and ping.decoders is not None and ping.encoders is not None
    value = ping.request(5, 1, 0, 0, None, [])
    stub = bytes.fromhex("0500000000000000 0100 0000 0000 0000 00000000 00000200 00000000")
    for order, written in enumerate(
        (stub, bytes.fromhex("0000000000000005 0001 0000 0000 0000 00000000 00020000 00000000"))
    ):
        assert ping.decoders[order].direct(written) == ping.decoders[order].interpreted(written) == value
    assert ping.encoders[0].direct(value) == ping.encoders[0].interpreted(value) == stub


ODD = [
    None, NULL, True, -1, 1 << 31, 1 << 32, 1 << 64, 1.5, "", "a\0b", "\U0001f600", b"", b"abc", bytearray(16), [],
    [None], [1, "a"], object(), IntEnum("Odd", {"A": 1}).A, ms_mqmp.CACTransferBufferV2(),
]  # fmt: skip


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (object, attribute) and (list, index) in a tree of arguments."""
    if isinstance(value, Structure):
        inner = [(value, name, getattr(value, name)) for name in value.__slots__]
    elif isinstance(value, list):
        inner = [(value, i, item) for i, item in enumerate(value)]
    else:
        return []
    return [(owner, key) for owner, key, _ in inner] + [place for _, _, item in inner for place in _places(item)]


def _agree_on_odd_values(name: str, data: st.DataObject) -> None:
    for value, encoder, _ in _values(name, data):
        places = _places(value)
        if not places:
            continue
        owner, key = data.draw(st.sampled_from(places))
        odd = data.draw(st.sampled_from(ODD))
        if isinstance(key, str):
            setattr(owner, key, odd)
        else:
            owner[key] = odd
        stub = encoder.direct(value)
        assert stub is None or stub == encoder.interpreted(value)


CLAIMS = [_agree, _agree_on_bad_stubs, _agree_on_odd_values]
each_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__.strip("_"))


@each_operation_in_ndr64
@each_claim
@VERY_FEW
@given(data=st.data())
def test_the_engine_agrees_with_the_interpreted_codec_in_ndr64(name: str, claim: Any, data: st.DataObject) -> None:
    claim(name, data)


@each_operation_in_ndr
@each_claim
@FEW
@given(data=st.data())
def test_the_engine_agrees_with_the_interpreted_codec(name: str, claim: Any, data: st.DataObject) -> None:
    claim(name, data)


@pytest.mark.slow
@each_operation
@each_claim
@MANY
@given(data=st.data())
def test_the_engine_agrees_with_the_interpreted_codec_on_many_stubs(name: str, claim: Any, data: st.DataObject) -> None:
    claim(name, data)


def test_stubs_refused_by_the_engine_go_to_the_interpreted_codec() -> None:
    with pytest.raises(BadStubData, match="unpack_from requires"):
        SEND.decode_request(b"abc")
    with pytest.raises(NdrError, match="hQueue has 3 bytes, not 20"):
        SEND.encode_request(SEND.request(hQueue=b"abc"))
    with pytest.raises(TypeError, match="one argument"):
        SEND.decoders[0](b"", b"")


def test_without_a_table_the_interpreted_codec_is_used_at_once() -> None:
    by_engine = {o.name for o in FEATURE.operations if isinstance(o.decoders[0], Codec)}
    assert by_engine >= {"Align", "TwoLevels", "Anonymous1", "Strings", "Range", "Handles", "Conformant"}
    assert not by_engine & {
        "Pointers", "ConformantVarying", "TrailingString", "Varying", "Switch1", "Parameters", "FixedString",
    }  # fmt: skip
    assert "Numbers" not in by_engine, "floating point has no table"


def test_the_engine_stops_at_what_is_optional_and_has_no_table() -> None:
    _, names = interface("""[uuid(12345678-1234-1234-1234-123456789abc), version(1.0), pointer_default(unique)]
        interface circle {
            struct B;
            typedef struct A { struct B *b; } A;
            typedef struct B { A *a; double d; } B;
            void Call([in] A *a);
        };""")
    codecs, a, b = names["circle"].operations[0], names["A"], names["B"]
    decoder, encoder = codecs.decoders[0], codecs.encoders[0]
    for value, has_table in ((codecs.request(a()), True), (codecs.request(a(b(a(), 0.5))), False)):
        stub = encoder.interpreted(value)
        assert encoder.direct(value) == (stub if has_table else None)
        assert decoder.direct(stub) == (value if has_table else None)
        assert decoder(encoder(value)) == value


def test_structures_that_always_have_something_without_a_table_have_none() -> None:
    _, names = interface("""[uuid(12345678-1234-1234-1234-123456789abc), version(1.0), pointer_default(unique)]
        interface inside {
            typedef struct A { long n; [size_is(n)] long v[]; } A;
            typedef struct B { double d; } B;
            typedef struct C { [ref] B *b; } C;
            typedef struct D { struct A a; } D;
            void Refers([in] C *c);
            void Ends([in] D *d);
        };""")
    for called in names["inside"].operations:
        assert not isinstance(called.decoders[0], Codec), called.name


def test_a_reference_in_a_structure_leads_to_something_whatever_stands_for_it() -> None:
    made, names = interface("""[uuid(12345678-1234-1234-1234-123456789abc), version(1.0), pointer_default(unique)]
        interface references {
            typedef struct { [ref] long *to; long after; } REFERS;
            void Call([in] REFERS *r);
        };""")
    codecs, refers = made.operations[0], names["REFERS"]
    for stub in (bytes.fromhex("00000200 05000000 07000000"), bytes.fromhex("00000000 05000000 07000000")):
        value = codecs.decoders[0].direct(stub)
        assert value.r == refers(to=7, after=5) == codecs.decoders[0].interpreted(stub).r
    assert codecs.encoders[0].direct(value) == codecs.encoders[0].interpreted(value)
    value.r.to = None
    assert codecs.encoders[0].direct(value) is None
    with pytest.raises(NdrError):
        codecs.encode_request(value)


@pytest.mark.parametrize(
    "table",
    [
        "x",
        ("x",),
        (),
        5,
        ("p", True),
        ("o", 1),
        ("u", "I", 5),
        int,
        ("a", "I", ("/", 1, 2), None, False, False, 4),
        ("a", "I", ("&", 1), None, False, False, 4),
        ("a", "I", ("~", "b"), None, False, False, 4),
    ],
)
def test_an_invalid_table_is_refused(table: Any) -> None:
    class Made:
        __slots__ = ("a",)

    announce(Made, 4, False, False, False)
    with pytest.raises((TypeError, ValueError, LookupError, AttributeError)):
        declare(Made, (("a", table, None, None),), (), False)
    with pytest.raises(LookupError):
        declare(Made, (), (), True)
    with pytest.raises((TypeError, AttributeError)):
        codec("<", len, Made, (("b", "I", None, None),), ())


@pytest.mark.parametrize("codecs", [SEND, SEND.ndr64], ids=["NDR", "NDR64"])
def test_the_engine_leaks_no_memory(codecs: Operation) -> None:
    decoder, encoder = codecs.decoders[0], codecs.encoders[0]
    value = SEND.request(hQueue=bytes(20), ptb=send_buffer(Message(label="order", body=bytes(500))))
    stub = encoder.direct(value)
    counted = [None, True, NULL, SEND.request]

    def rounds() -> tuple[int, list[int]]:
        for _ in range(200):
            for end in range(0, len(stub) + 1, 7):
                decoder.direct(stub[:end])
            encoder.direct(value)
        return sys.getallocatedblocks(), [sys.getrefcount(c) for c in counted]

    rounds()
    blocks, references = rounds()
    again, more = rounds()
    assert abs(again - blocks) < 100
    assert all(abs(a - b) < 100 for a, b in zip(references, more, strict=True))
