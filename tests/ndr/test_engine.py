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

from msrpc.interfaces import ms_dcom
from msrpc.ndr import NULL, BadStubData, NdrError, Operation, Structure
from msrpc.ndr.engine import Codec, announce, codec, declare
from ndr.strategies import operations, request, response
from ndr.test_round_trips import mutation, same
from ndr.vector_args import load, operation, vectors
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp
from openmsmq.model.message import Message

FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
VERY_FEW = settings(FEW, max_examples=10)
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
OPERATIONS = {
    f"{name}{syntax}": (spoken, wire)
    for name, codecs, wire in operations()
    for syntax, spoken in (("", codecs), (" in NDR64", codecs.ndr64))
    if isinstance(spoken.encoders[0], Codec)
}
each_operation = pytest.mark.parametrize("name", OPERATIONS)
each_operation_in_ndr = pytest.mark.parametrize("name", [name for name in OPERATIONS if "NDR64" not in name])
each_operation_in_ndr64 = pytest.mark.parametrize("name", [name for name in OPERATIONS if "NDR64" in name])
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
        assert encoder.direct(value) == stub
        assert decoder.direct(stub) == value


def _agree_on_bad_stubs(name: str, data: st.DataObject) -> None:
    for value, encoder, decoders in _values(name, data):
        stub = data.draw(mutation(encoder.interpreted(value)))
        for decoder in decoders:
            found = decoder.direct(stub)
            assert found is None or same(found, decoder.interpreted(stub))


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
    assert by_engine >= {"Align", "TwoLevels", "Anonymous1", "Strings", "Range", "Handles"}
    assert not by_engine & {"Pointers", "Conformant", "Varying", "Switch1", "Parameters", "FixedString"}
    assert "Numbers" not in by_engine, "floating point has no table"


def test_structures_that_lead_to_something_without_a_table_have_none() -> None:
    _, names = interface("""[uuid(12345678-1234-1234-1234-123456789abc), version(1.0), pointer_default(unique)]
        interface circle {
            struct B;
            typedef struct A { struct B *b; } A;
            typedef struct B { A *a; double d; } B;
            void Call([in] A *a);
        };""")
    assert not isinstance(names["circle"].operations[0].decoders[0], Codec)


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


@pytest.mark.parametrize("table", ["x", ("x",), (), 5, ("p", True), ("o", 1), ("u", "I", 5), int])
def test_an_invalid_table_is_refused(table: Any) -> None:
    class Made:
        __slots__ = ("a",)

    announce(Made, 4, False, False, False)
    with pytest.raises((TypeError, ValueError, LookupError)):
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
