"""Requests and responses of one fragment without a verifier, the usual case (C706 12.6.4.9 and 12.6.4.10);
`whole_pdu_headers.c` does the work if it is compiled."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from msrpc.rpc.call_pdus import CALL_HEADER_SIZE, OBJECT_SIZE

# version, type and flags as one integer, then data representation, lengths, call id, alloc_hint, context id, opnum.
_REQUEST: Final = struct.Struct("<IIHHIIHH")
_RESPONSE: Final = struct.Struct("<IIHHIIHBB")
_WHOLE_REQUEST: Final = 0x03000005
_REQUEST_WITH_OBJECT: Final = 0x83000005
_WHOLE_RESPONSE: Final = 0x03020005
_LITTLE_ENDIAN: Final = 0x10

#: Call id, context id, opnum, object UUID (16 bytes, little-endian; None if the request has none) and stub.
WholeRequest = tuple[int, int, int, bytes | None, bytes]


def request_in_python(data: bytes, at: int, most: int) -> WholeRequest | None:
    """Return the request of at most `most` bytes that begins at `at`; None if it is another PDU or incomplete."""
    room = len(data) - at
    if room < CALL_HEADER_SIZE:
        return None
    word, drep, length, auth, call_id, _, context_id, opnum = _REQUEST.unpack_from(data, at)
    start = CALL_HEADER_SIZE
    if word == _REQUEST_WITH_OBJECT:
        start += OBJECT_SIZE
    elif word != _WHOLE_REQUEST:
        return None
    if drep != _LITTLE_ENDIAN or auth or not start <= length <= room or length > most:
        return None
    object_uuid = data[at + CALL_HEADER_SIZE : at + start] or None
    return call_id, context_id, opnum, object_uuid, data[at + start : at + length]


def response_in_python(call_id: int, context_id: int, stub: bytes) -> bytes:
    """Return the response of a call, whose `stub` must fit into one fragment."""
    size = CALL_HEADER_SIZE + len(stub)
    head = _RESPONSE.pack(_WHOLE_RESPONSE, _LITTLE_ENDIAN, size, 0, call_id, len(stub), context_id, 0, 0)
    return head + stub


if TYPE_CHECKING:
    request, response = request_in_python, response_in_python
else:
    try:
        from msrpc.rpc.whole_pdu_headers import request, response
    except ImportError:  # not built here
        request, response = request_in_python, response_in_python
