"""The verification trailer after a request's stub ([MS-RPCE] 2.2.2.13).

Some clients repeat the fields of their bind and request headers under the signature. A server compares them and removes
the trailer from the stub.
"""

from __future__ import annotations

import struct
from typing import Final

from msrpc.errors import AuthenticationError
from msrpc.rpc.pdu import PacketType, SyntaxId

SIGNATURE: Final = bytes.fromhex("8ae3137102f43671")
COMMAND_BITMASK_1: Final = 1
COMMAND_PCONTEXT: Final = 2
COMMAND_HEADER2: Final = 3
COMMAND_END: Final = 0x4000
MUST_PROCESS: Final = 0x8000
CLIENT_SUPPORT_HEADER_SIGNING: Final = 1
# The three known commands take 80 octets with the signature. A signature further from the end is user data.
MAX_TRAILER: Final = 256


def strip_trailer(
    stub: bytes,
    *,
    abstract_syntax: SyntaxId,
    transfer_syntax: SyntaxId,
    header_signing: bool,
    call_id: int,
    context_id: int,
    opnum: int,
    drep: bytes,
) -> bytes:
    """Return the stub without its trailer, if it has one.

    A signature that is not followed by commands up to the end of the stub is user data. Raises `AuthenticationError` if
    a command contradicts the connection, or if it must be processed but is unknown.
    """
    at = stub.rfind(SIGNATURE, max(0, len(stub) - MAX_TRAILER))
    if at < 0 or at % 4:
        return stub
    commands = _commands(stub, at + len(SIGNATURE))
    if commands is None:
        return stub
    for command, value in commands:
        kind = command & 0x3FFF
        if kind == COMMAND_BITMASK_1 and len(value) == 4:
            if value[0] & CLIENT_SUPPORT_HEADER_SIGNING and not header_signing:
                raise AuthenticationError("header signing was removed from the bind")
        elif kind == COMMAND_PCONTEXT and len(value) == 40:
            if value != abstract_syntax.pack() + transfer_syntax.pack():
                raise AuthenticationError("presentation context differs from the verification trailer")
        elif kind == COMMAND_HEADER2 and len(value) == 16:
            packet_type, _, _, seen_drep, *rest = struct.unpack("<BBH4sIHH", value)
            if (packet_type, seen_drep, rest) != (PacketType.REQUEST, drep, [call_id, context_id, opnum]):
                raise AuthenticationError("request header differs from the verification trailer")
        elif command & MUST_PROCESS:
            raise AuthenticationError(f"unknown verification command {kind}")
    return stub[:at]


def _commands(stub: bytes, at: int) -> list[tuple[int, bytes]] | None:
    """Return the commands from `at` up to the one marked as last; None if they do not end at the end of the stub."""
    found = []
    while at + 4 <= len(stub):
        command, length = struct.unpack_from("<HH", stub, at)
        at += 4 + length
        if length % 4 or at > len(stub):
            return None
        found.append((command, stub[at - length : at]))
        if command & COMMAND_END:
            return found if at == len(stub) else None
    return None
