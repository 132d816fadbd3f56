"""Responses of servers that may be wrong."""

from __future__ import annotations

from typing import Any

from msrpc.errors import RemoteProtocolError
from msrpc.ndr import BadStubData, ByteOrder, Operation


def decoded(operation: Operation, stub: bytes, byte_order: ByteOrder = "<") -> Any:
    """Decode the response to a call. Raises RemoteProtocolError."""
    try:
        return operation.decode_response(stub, byte_order)
    except BadStubData as error:
        raise RemoteProtocolError(f"cannot decode the response of the server: {error}") from error
