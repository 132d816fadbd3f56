"""Type serialization version 1 ([MS-RPCE] 2.2.6): a structure with its own headers, outside of calls."""

from __future__ import annotations

import struct
import sys
from typing import Any, TypeVar

from msrpc.errors import BadStubData, NdrError
from msrpc.ndr.runtime import _DECODE_ERRORS, _ENCODE_ERRORS, DecodeState, EncodeState

_COMMON = struct.Struct("<BBHI")
_FILLER = 0xCCCCCCCC
_LITTLE, _BIG = 0x10, 0x00
HEADERS = 16  # bytes of both headers

T = TypeVar("T")


def serialize(value: Any) -> bytes:
    """Encode a structure of a generated module with both headers; the size is a multiple of 8 bytes. Raises
    NdrError."""
    kind = type(value)
    module = sys.modules[kind.__module__]
    out = bytearray()
    state = EncodeState()
    try:
        getattr(module, f"_e_{kind.__name__}")(out, value, state)
        if pointees := getattr(module, f"_g_{kind.__name__}", None):
            pointees(out, value, state)
    except _ENCODE_ERRORS as error:
        raise NdrError(f"{kind.__name__}: {error}") from error
    out += bytes(-len(out) % 8)
    return _COMMON.pack(1, _LITTLE, 8, _FILLER) + struct.pack("<II", len(out), 0) + bytes(out)


def deserialize(kind: type[T], data: bytes) -> T:
    """Decode the result of `serialize`, in either byte order. Raises BadStubData."""
    if len(data) < HEADERS:
        raise BadStubData(f"{kind.__name__}: {len(data)} bytes are too short for the serialization headers")
    version, order, _, _ = _COMMON.unpack_from(data)
    if version != 1 or order not in (_LITTLE, _BIG):
        raise BadStubData(f"{kind.__name__}: serialization version {version}, byte order {order:#x}")
    suffix = "" if order == _LITTLE else "_be"
    module = sys.modules[kind.__module__]
    body, state = data[HEADERS:], DecodeState()
    try:
        value, at = getattr(module, f"_b_{kind.__name__}{suffix}")(body, 0, state)
        if pointees := getattr(module, f"_f_{kind.__name__}{suffix}", None):
            pointees(value, body, at, state)
    except _DECODE_ERRORS as error:
        raise BadStubData(f"{kind.__name__}: {error}") from None
    found: T = value
    return found


def size_of(data: bytes) -> int:
    """Return the size in bytes of the serialized structure at the start of `data`, including headers. Raises
    BadStubData."""
    if len(data) < HEADERS:
        raise BadStubData(f"{len(data)} bytes are too short for the serialization headers")
    (length,) = struct.unpack_from("<I" if data[1] == _LITTLE else ">I", data, 8)
    return HEADERS + int(length)
