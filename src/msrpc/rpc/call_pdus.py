"""PDUs that carry calls: request, response, fault, co_cancel, orphaned and shutdown; and `decode` for all PDUs.

C706 12.6.4.6-11 and [MS-RPCE] 2.2.2.8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, Self
from uuid import UUID

from msrpc.errors import RemoteProtocolError
from msrpc.rpc.bind_pdus import AlterContext, AlterContextResp, Auth3, Bind, BindAck, BindNak
from msrpc.rpc.pdu import (
    HEADER_SIZE,
    PFC_OBJECT_UUID,
    PFC_WHOLE,
    AuthVerifier,
    Header,
    PacketType,
    frame,
    read_uuid,
)

CALL_HEADER_SIZE: Final = 24
OBJECT_SIZE: Final = 16  # bytes of the object UUID of a request, which follows the header
_CALL: Final = {"<": struct.Struct("<IHH"), ">": struct.Struct(">IHH")}
_FAULT: Final = {"<": struct.Struct("<IHBBII"), ">": struct.Struct(">IHBBII")}


@dataclass(frozen=True, slots=True)
class RequestPdu:
    """request (C706 12.6.4.9): one fragment of a call. `stub` is as on the wire: encrypted if the channel encrypts."""

    packet_type: ClassVar[PacketType] = PacketType.REQUEST

    call_id: int
    context_id: int
    opnum: int
    stub: bytes
    object_uuid: UUID | None = None
    alloc_hint: int = 0
    flags: int = PFC_WHOLE
    verifier: AuthVerifier | None = None

    def pack(self) -> bytes:
        body = _CALL["<"].pack(self.alloc_hint, self.context_id, self.opnum)
        flags = self.flags & ~PFC_OBJECT_UUID
        if self.object_uuid is not None:
            flags |= PFC_OBJECT_UUID
            body += self.object_uuid.bytes_le
        return frame(self.packet_type, flags, self.call_id, body + self.stub, self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> RequestPdu:
        start = stub_start(header)
        hint, context_id, opnum = _CALL[header.byte_order].unpack_from(data, HEADER_SIZE)
        target = read_uuid(data, CALL_HEADER_SIZE, header.byte_order) if header.flags & PFC_OBJECT_UUID else None
        verifier = AuthVerifier.unpack(data, header, start)
        end = header.body_end - (len(verifier.padding) if verifier else 0)
        return cls(header.call_id, context_id, opnum, data[start:end], target, hint, header.flags, verifier)


@dataclass(frozen=True, slots=True)
class Response:
    """response (C706 12.6.4.10): one fragment of an answer."""

    packet_type: ClassVar[PacketType] = PacketType.RESPONSE

    call_id: int
    context_id: int
    stub: bytes
    cancel_count: int = 0
    alloc_hint: int = 0
    flags: int = PFC_WHOLE
    verifier: AuthVerifier | None = None

    def pack(self) -> bytes:
        body = struct.pack("<IHBx", self.alloc_hint, self.context_id, self.cancel_count) + self.stub
        return frame(self.packet_type, self.flags, self.call_id, body, self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> Response:
        start = stub_start(header)
        hint, context_id = struct.unpack_from(header.byte_order + "IH", data, HEADER_SIZE)
        verifier = AuthVerifier.unpack(data, header, start)
        end = header.body_end - (len(verifier.padding) if verifier else 0)
        return cls(header.call_id, context_id, data[start:end], data[22], hint, header.flags, verifier)


@dataclass(frozen=True, slots=True)
class FaultPdu:
    """fault (C706 12.6.4.7, [MS-RPCE] 2.2.2.8); stub data is ignored and never sent."""

    packet_type: ClassVar[PacketType] = PacketType.FAULT

    call_id: int
    status: int
    context_id: int = 0
    cancel_count: int = 0
    flags: int = PFC_WHOLE
    verifier: AuthVerifier | None = None

    def pack(self) -> bytes:
        # alloc_hint counts the whole PDU, as Windows fills it ([MS-RPCE] 2.2.2.8 subtracts 0x20 from it).
        body = _FAULT["<"].pack(0x20, self.context_id, self.cancel_count, 0, self.status, 0)
        return frame(self.packet_type, self.flags, self.call_id, body, self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> FaultPdu:
        # Some servers leave out the four reserved octets after the status.
        if header.body_end < HEADER_SIZE + 12:
            raise RemoteProtocolError("fault is truncated")
        _, context_id, cancels, _, status = struct.unpack_from(header.byte_order + "IHBBI", data, HEADER_SIZE)
        verifier = AuthVerifier.unpack(data, header, HEADER_SIZE + 12)
        return cls(header.call_id, status, context_id, cancels, header.flags, verifier)


@dataclass(frozen=True, slots=True)
class _Signal:
    """A PDU that consists of the header only and refers to a call."""

    packet_type: ClassVar[PacketType]

    call_id: int
    flags: int = PFC_WHOLE
    verifier: AuthVerifier | None = None

    def pack(self) -> bytes:
        return frame(self.packet_type, self.flags, self.call_id, b"", self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> Self:
        return cls(header.call_id, header.flags, AuthVerifier.unpack(data, header, HEADER_SIZE))


@dataclass(frozen=True, slots=True)
class CoCancel(_Signal):
    """co_cancel (C706 12.6.4.8): the client asks the server to end the call early."""

    packet_type: ClassVar[PacketType] = PacketType.CO_CANCEL


@dataclass(frozen=True, slots=True)
class Orphaned(_Signal):
    """orphaned (C706 12.6.4.6): the client no longer waits for the call."""

    packet_type: ClassVar[PacketType] = PacketType.ORPHANED


@dataclass(frozen=True, slots=True)
class Shutdown:
    """shutdown (C706 12.6.4.11): the server asks the client to close an idle connection."""

    packet_type: ClassVar[PacketType] = PacketType.SHUTDOWN

    call_id: int = 0
    flags: int = PFC_WHOLE

    def pack(self) -> bytes:
        return frame(self.packet_type, self.flags, self.call_id, b"")

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> Shutdown:
        return cls(header.call_id, header.flags)


Pdu = (
    Bind
    | BindAck
    | BindNak
    | AlterContext
    | AlterContextResp
    | Auth3
    | RequestPdu
    | Response
    | FaultPdu
    | CoCancel
    | Orphaned
    | Shutdown
)
_TYPES: Final[dict[int, type[Pdu]]] = {
    kind.packet_type: kind
    for kind in (
        Bind,
        BindAck,
        BindNak,
        AlterContext,
        AlterContextResp,
        Auth3,
        RequestPdu,
        Response,
        FaultPdu,
        CoCancel,
        Orphaned,
        Shutdown,
    )
}


def decode(header: Header, data: bytes) -> Pdu:
    """Decode `data`, which must be exactly one PDU. Raises `RemoteProtocolError`."""
    kind = _TYPES.get(header.packet_type)
    if kind is None:
        raise RemoteProtocolError(f"packet type {header.packet_type} is not known")
    return kind.unpack(header, data)


def decode_bytes(data: bytes) -> Pdu:
    """Decode a PDU from the bytes alone."""
    if len(data) < HEADER_SIZE:
        raise RemoteProtocolError(f"{len(data)} bytes are too short for a PDU")
    header = Header.unpack(data)
    if header.frag_length != len(data):
        raise RemoteProtocolError(f"fragment length {header.frag_length} for {len(data)} bytes")
    return decode(header, data)


def stub_start(header: Header) -> int:
    """Return the offset of the stub in a request or response. Raises `RemoteProtocolError` if the fragment ends
    before."""
    is_request = header.packet_type == PacketType.REQUEST
    start = CALL_HEADER_SIZE + (OBJECT_SIZE if is_request and header.flags & PFC_OBJECT_UUID else 0)
    if header.body_end < start:
        raise RemoteProtocolError("the fragment ends within its header")
    return start
