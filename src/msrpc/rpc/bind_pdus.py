"""PDUs that set a connection up: bind, bind_ack, bind_nak, alter_context, alter_context_resp and auth3.

C706 12.6.4.1-5 and [MS-RPCE] 2.2.2.4-5, 2.2.2.9-10, 2.2.2.14-15.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final
from uuid import UUID

from msrpc.errors import RemoteProtocolError
from msrpc.rpc.pdu import (
    HEADER_SIZE,
    MAX_CONTEXTS_PER_BIND,
    MAX_FRAGMENT,
    MAX_TRANSFER_SYNTAXES,
    NULL_SYNTAX,
    PFC_WHOLE,
    AuthVerifier,
    Header,
    PacketType,
    SyntaxId,
    frame,
)

# [MS-RPCE] 2.2.2.14: the "transfer syntax" of bind-time feature negotiation is this prefix and eight octets of bits.
FEATURE_NEGOTIATION_PREFIX: Final = UUID("6cb71c2c-9812-4540-0000-000000000000").bytes_le[:8]
SECURITY_CONTEXT_MULTIPLEXING: Final = 0x01
KEEP_CONNECTION_ON_ORPHAN: Final = 0x02
FEATURES: Final = SECURITY_CONTEXT_MULTIPLEXING | KEEP_CONNECTION_ON_ORPHAN  # those that this package implements


def feature_syntax(features: int) -> SyntaxId:
    """Return the "transfer syntax" that announces `features` of a client."""
    return SyntaxId(UUID(bytes_le=FEATURE_NEGOTIATION_PREFIX + struct.pack("<Q", features)), (1, 0))


class ContextResult(IntEnum):
    """p_cont_def_result_t, [MS-RPCE] 2.2.2.4."""

    ACCEPTANCE = 0
    USER_REJECTION = 1
    PROVIDER_REJECTION = 2
    NEGOTIATE_ACK = 3


class ProviderReason(IntEnum):
    """p_provider_reason_t, C706 12.6.3.1."""

    REASON_NOT_SPECIFIED = 0
    ABSTRACT_SYNTAX_NOT_SUPPORTED = 1
    PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED = 2
    LOCAL_LIMIT_EXCEEDED = 3


class RejectReason(IntEnum):
    """Why a bind was refused, [MS-RPCE] 2.2.2.5."""

    REASON_NOT_SPECIFIED = 0
    TEMPORARY_CONGESTION = 1
    LOCAL_LIMIT_EXCEEDED = 2
    PROTOCOL_VERSION_NOT_SPECIFIED = 4
    AUTHENTICATION_TYPE_NOT_RECOGNIZED = 8
    INVALID_CHECKSUM = 9


@dataclass(frozen=True, slots=True)
class PresentationContext:
    """p_cont_elem_t: an interface, the transfer syntaxes that the client supports, and the proposed context id."""

    context_id: int
    abstract_syntax: SyntaxId
    transfer_syntaxes: tuple[SyntaxId, ...]


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """p_result_t. For NEGOTIATE_ACK `reason` is the bitmask of features ([MS-RPCE] 2.2.2.15)."""

    result: int
    reason: int = 0
    transfer_syntax: SyntaxId = NULL_SYNTAX


@dataclass(frozen=True, slots=True)
class Bind:
    """bind (C706 12.6.4.3); `AlterContext` has the same body."""

    packet_type: ClassVar[PacketType] = PacketType.BIND

    call_id: int
    contexts: tuple[PresentationContext, ...]
    max_xmit_frag: int = MAX_FRAGMENT
    max_recv_frag: int = MAX_FRAGMENT
    assoc_group_id: int = 0
    flags: int = PFC_WHOLE
    verifier: AuthVerifier | None = None

    def pack(self) -> bytes:
        sizes = (self.max_xmit_frag, self.max_recv_frag, self.assoc_group_id)
        parts = [struct.pack("<HHIBxxx", *sizes, len(self.contexts))]
        for context in self.contexts:
            parts.append(struct.pack("<HBx", context.context_id, len(context.transfer_syntaxes)))
            parts.append(context.abstract_syntax.pack())
            parts.extend(syntax.pack() for syntax in context.transfer_syntaxes)
        return frame(self.packet_type, self.flags, self.call_id, b"".join(parts), self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> Bind:
        order, end = header.byte_order, header.body_end
        _need(data, HEADER_SIZE, 12, end)
        xmit, recv, group, count = struct.unpack_from(order + "HHIB", data, HEADER_SIZE)
        if count > MAX_CONTEXTS_PER_BIND:
            raise RemoteProtocolError(f"{count} presentation contexts in one bind, limit {MAX_CONTEXTS_PER_BIND}")
        at = HEADER_SIZE + 12
        contexts = []
        for _ in range(count):
            _need(data, at, 24, end)
            context_id, syntaxes = struct.unpack_from(order + "HB", data, at)
            if syntaxes > MAX_TRANSFER_SYNTAXES:
                raise RemoteProtocolError(f"{syntaxes} transfer syntaxes in one context, limit {MAX_TRANSFER_SYNTAXES}")
            _need(data, at + 24, 20 * syntaxes, end)
            abstract = SyntaxId.unpack(data, at + 4, order)
            offers = tuple(SyntaxId.unpack(data, at + 24 + 20 * i, order) for i in range(syntaxes))
            contexts.append(PresentationContext(context_id, abstract, offers))
            at += 24 + 20 * syntaxes
        verifier = AuthVerifier.unpack(data, header, at)
        return cls(header.call_id, tuple(contexts), xmit, recv, group, header.flags, verifier)


@dataclass(frozen=True, slots=True)
class AlterContext(Bind):
    """alter_context (C706 12.6.4.1): more presentation contexts, or a further security leg."""

    packet_type: ClassVar[PacketType] = PacketType.ALTER_CONTEXT


@dataclass(frozen=True, slots=True)
class BindAck:
    """bind_ack (C706 12.6.4.4); `AlterContextResp` has the same body. `secondary_address` has no terminating NUL."""

    packet_type: ClassVar[PacketType] = PacketType.BIND_ACK

    call_id: int
    answers: tuple[ContextAnswer, ...]
    max_xmit_frag: int = MAX_FRAGMENT
    max_recv_frag: int = MAX_FRAGMENT
    assoc_group_id: int = 0
    secondary_address: bytes = b""
    flags: int = PFC_WHOLE
    verifier: AuthVerifier | None = None

    def pack(self) -> bytes:
        address = self.secondary_address + b"\0" if self.secondary_address else b""
        sizes = (self.max_xmit_frag, self.max_recv_frag, self.assoc_group_id)
        parts = [struct.pack("<HHIH", *sizes, len(address)), address]
        parts.append(bytes(-(10 + len(address)) % 4))
        parts.append(struct.pack("<Bxxx", len(self.answers)))
        for answer in self.answers:
            parts.append(struct.pack("<HH", answer.result, answer.reason) + answer.transfer_syntax.pack())
        return frame(self.packet_type, self.flags, self.call_id, b"".join(parts), self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> BindAck:
        order, end = header.byte_order, header.body_end
        _need(data, HEADER_SIZE, 10, end)
        xmit, recv, group, length = struct.unpack_from(order + "HHIH", data, HEADER_SIZE)
        at = HEADER_SIZE + 10
        _need(data, at, length, end)
        address = bytes(data[at : at + length]).rstrip(b"\0")
        at += length
        at += -at % 4
        _need(data, at, 4, end)
        count = data[at]
        at += 4
        _need(data, at, 24 * count, end)
        answers = []
        for _ in range(count):
            result, reason = struct.unpack_from(order + "HH", data, at)
            answers.append(ContextAnswer(result, reason, SyntaxId.unpack(data, at + 4, order)))
            at += 24
        verifier = AuthVerifier.unpack(data, header, at)
        return cls(header.call_id, tuple(answers), xmit, recv, group, address, header.flags, verifier)


@dataclass(frozen=True, slots=True)
class AlterContextResp(BindAck):
    """alter_context_response (C706 12.6.4.2)."""

    packet_type: ClassVar[PacketType] = PacketType.ALTER_CONTEXT_RESP


@dataclass(frozen=True, slots=True)
class BindNak:
    """bind_nak (C706 12.6.4.5, [MS-RPCE] 2.2.2.9); a signature and extended error information are ignored."""

    packet_type: ClassVar[PacketType] = PacketType.BIND_NAK

    call_id: int
    reason: int
    versions: tuple[tuple[int, int], ...] = ((5, 0),)
    flags: int = PFC_WHOLE

    def pack(self) -> bytes:
        body = struct.pack("<HB", self.reason, len(self.versions)) + b"".join(bytes(v) for v in self.versions)
        return frame(self.packet_type, self.flags, self.call_id, body)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> BindNak:
        end = header.body_end
        _need(data, HEADER_SIZE, 2, end)
        (reason,) = struct.unpack_from(header.byte_order + "H", data, HEADER_SIZE)
        # Some servers omit the list of versions.
        count = data[HEADER_SIZE + 2] if end > HEADER_SIZE + 2 else 0
        _need(data, HEADER_SIZE + 3, 2 * count, max(end, HEADER_SIZE + 3))
        pairs = data[HEADER_SIZE + 3 : HEADER_SIZE + 3 + 2 * count]
        versions = tuple((pairs[i], pairs[i + 1]) for i in range(0, 2 * count, 2))
        return cls(header.call_id, reason, versions, header.flags)


@dataclass(frozen=True, slots=True)
class Auth3:
    """rpc_auth_3 ([MS-RPCE] 2.2.2.10): the last security leg, which has no answer."""

    packet_type: ClassVar[PacketType] = PacketType.AUTH3

    call_id: int
    verifier: AuthVerifier
    flags: int = PFC_WHOLE
    pad: bytes = bytes(4)

    def pack(self) -> bytes:
        return frame(self.packet_type, self.flags, self.call_id, self.pad, self.verifier)

    @classmethod
    def unpack(cls, header: Header, data: bytes) -> Auth3:
        _need(data, HEADER_SIZE, 4, header.body_end)
        verifier = AuthVerifier.unpack(data, header, HEADER_SIZE + 4)
        if verifier is None:
            raise RemoteProtocolError("auth3 without a verifier")
        return cls(header.call_id, verifier, header.flags, bytes(data[HEADER_SIZE : HEADER_SIZE + 4]))


def _need(data: bytes, offset: int, count: int, end: int) -> None:
    if offset + count > end:
        raise RemoteProtocolError(f"{PacketType(data[2]).name} ends at byte {end}, before its last field")
