"""Requests and responses of one fragment: for any bytes, native code, Python and the general PDUs agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msrpc.rpc.call_pdus import CALL_HEADER_SIZE, OBJECT_SIZE, RequestPdu, Response, decode
from msrpc.rpc.pdu import HEADER_SIZE, Header
from msrpc.rpc.whole_pdus import request, request_in_python, response, response_in_python

MOST = 200

pdus = st.builds(
    lambda call, context, opnum, stub, target, flags: RequestPdu(
        call, context, opnum, stub, target, flags=flags
    ).pack(),
    st.integers(0, (1 << 32) - 1), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.binary(max_size=2 * MOST),
    st.none() | st.uuids(), st.sampled_from((3, 3, 3, 1, 2, 0)),
)  # fmt: skip


def spoiled(pdu: bytes, at: int, value: int) -> bytes:
    at %= len(pdu)
    return pdu[:at] + bytes([value]) + pdu[at + 1 :]


some_bytes = st.one_of(
    st.binary(max_size=60),
    st.lists(pdus, max_size=3).map(b"".join),
    st.builds(spoiled, pdus, st.integers(0, CALL_HEADER_SIZE + OBJECT_SIZE), st.integers(0, 255)),
    st.builds(lambda pdu, less: pdu[:-less], pdus, st.integers(1, 45)),
)


@given(some_bytes, st.integers(0, 80), st.sampled_from((MOST, 5840)))
def test_whole_requests_are_parsed(data: bytes, at: int, most: int) -> None:
    found = request(data, at, most)
    assert found == request_in_python(data, at, most)
    if found is not None:
        header = Header.unpack(data[at:])
        general = RequestPdu.unpack(header, data[at : at + header.frag_length])
        target = general.object_uuid.bytes_le if general.object_uuid is not None else None
        assert (general.call_id, general.context_id, general.opnum, target, general.stub) == found
        assert header.frag_length <= most and general.verifier is None


@given(pdus)
def test_a_whole_request_is_found(pdu: bytes) -> None:
    assert (request(pdu + b"next", 0, 5840) is not None) == (pdu[3] & 0x7F == 3)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, 0xFFFF), st.binary(max_size=MOST))
def test_whole_responses_are_parsed(call_id: int, context_id: int, stub: bytes) -> None:
    made = response(call_id, context_id, stub)
    assert made == response_in_python(call_id, context_id, stub)
    found = decode(Header.unpack(made[:HEADER_SIZE]), made)
    assert isinstance(found, Response)
    assert (found.call_id, found.context_id, found.stub, found.alloc_hint) == (call_id, context_id, stub, len(stub))
