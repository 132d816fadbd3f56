"""Fuzz targets for stubs of calls, of every operation of every known interface, in NDR 2.0 and NDR64. A target ends
normally for correctly refused input."""

from __future__ import annotations

from typing import Any

from msrpc.interfaces import com, ms_dcom, ms_oaut, ms_rpce_epm, ms_rpce_mgmt
from msrpc.ndr import BadStubData, ByteOrder, Interface, NdrError, Operation
from openmsmq.interfaces import mc_mqac, ms_cmpo, ms_mqmp, ms_mqmr, ms_mqqp, ms_mqrr

_INTERFACES = tuple(
    found
    for module in (
        ms_mqmp, ms_mqqp, ms_mqrr, ms_rpce_epm, ms_mqmr, ms_cmpo, ms_rpce_mgmt, ms_dcom, ms_oaut, com, mc_mqac
    )
    for found in vars(module).values()
    if isinstance(found, Interface)
)  # fmt: skip
OPERATIONS = list(
    dict.fromkeys(
        operation for interface in _INTERFACES for operation in interface.operations if operation.used_on_wire
    )
)


def _chosen(data: bytes) -> tuple[Operation, int, bytes]:
    """The first two bytes select an operation, the third has flags, the rest is the stub."""
    number, flags = int.from_bytes(data[:2], "little"), data[2] if len(data) > 2 else 0
    return OPERATIONS[number % len(OPERATIONS)], flags, data[3:]


def _decode(operation: Operation, stub: bytes, is_response: int, order: ByteOrder) -> Any:
    """Decode a stub. A value that the engine returns is that of the interpreted codec."""
    assert operation.decoders is not None
    decoder: Any = operation.decoders[2 * is_response + (order == ">")]
    decode = operation.decode_response if is_response else operation.decode_request
    value = _complete(decode(stub, order))
    if hasattr(decoder, "direct"):
        direct, interpreted = decoder.direct(stub), _complete(decoder.interpreted(stub))
        assert direct is None or repr(_complete(direct)) == repr(interpreted), (direct, interpreted)
    return value


def _complete(value: Any) -> Any:
    for slot in value.__slots__:  # sizes that only a request has
        if not hasattr(value, slot):
            setattr(value, slot, None)
    return value


def _encode(operation: Operation, value: Any, is_response: int) -> bytes:
    """Encode a value. What the engine returns is what the interpreted codec returns."""
    assert operation.encoders is not None
    encoder: Any = operation.encoders[is_response]
    stub = operation.encode_response(value) if is_response else operation.encode_request(value)
    if hasattr(encoder, "direct"):
        assert encoder.direct(value) in (None, encoder.interpreted(value))
    return stub


def _check(operation: Operation, spoken: Operation, stub: bytes, is_response: int, order: ByteOrder) -> None:
    """Decode a stub in one syntax, and encode and decode the value in both."""
    try:
        value = _decode(spoken, stub, is_response, order)
    except BadStubData:
        return
    for each in (operation, operation.ndr64):
        try:
            written = _encode(each, value, is_response)
        except NdrError:
            # Enumerations have 16 bits in NDR 2.0, and a response decoded alone lacks the sizes in the request.
            assert is_response or each is not spoken
            continue
        assert repr(_decode(each, written, is_response, "<")) == repr(value)


def fuzz_ndr20(data: bytes) -> None:
    """An odd third byte selects the response; its second bit, big-endian byte order. A decoded value can be encoded and
    decoded to the same value, and the engine in C agrees with the interpreted codecs."""
    operation, flags, stub = _chosen(data)
    _check(operation, operation, stub, flags & 1, ">" if flags & 2 else "<")


def fuzz_ndr64(data: bytes) -> None:
    """Like `fuzz_ndr20`, for NDR64, which is little-endian only."""
    operation, flags, stub = _chosen(data)
    _check(operation, operation.ndr64, stub, flags & 1, "<")


TARGETS = {"ndr20": fuzz_ndr20, "ndr64": fuzz_ndr64}
