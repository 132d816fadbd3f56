"""The client's side of one connection, without I/O.

A bind offers each interface in one presentation context for each transfer syntax, of which the server accepts one
([MS-RPCE] 3.3.1.5.6). The first bind of a connection also asks which features the server has (3.3.1.5.3).

`bind`, `request` and `cancel` queue bytes for `data_to_send`; `receive_data` returns what the server answered. The
legs of an authentication are handled in here: a `Bound` comes when the last one is done.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msrpc.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from msrpc.rpc.bind_pdus import (
    FEATURES,
    SECURITY_CONTEXT_MULTIPLEXING,
    AlterContext,
    AlterContextResp,
    Auth3,
    Bind,
    BindAck,
    BindNak,
    ContextAnswer,
    ContextResult,
    PresentationContext,
    feature_syntax,
)
from msrpc.rpc.call_pdus import CALL_HEADER_SIZE, CoCancel, FaultPdu, Orphaned, Shutdown, decode, stub_start
from msrpc.rpc.channel import Channel, fragments, normal_level
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import (
    MIN_FRAGMENT,
    NDR,
    PFC_CONC_MPX,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_OBJECT_UUID,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    AuthLevel,
    AuthVerifier,
    ByteOrder,
    Header,
    PacketType,
    SyntaxId,
    padded_verifier,
)
from msrpc.rpc.security import SecurityContext
from msrpc.rpc.splitter import Splitter


@dataclass(frozen=True, slots=True)
class Bound:
    """A bind or alter_context is complete. `accepted` are the interfaces that can be called now."""

    accepted: tuple[SyntaxId, ...]
    rejected: tuple[SyntaxId, ...]


@dataclass(frozen=True, slots=True)
class BindRefused:
    """A bind_nak, or a fault in answer to an alter_context; `status` is its reason or status."""

    status: int


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The whole answer to a call, in the byte order that its PDU header names ([C706] 14.1)."""

    call_id: int
    stub: bytes
    byte_order: ByteOrder = "<"


@dataclass(frozen=True, slots=True)
class FaultReceived:
    """The call failed with `status`."""

    call_id: int
    status: int


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The server would like an idle connection closed."""


@dataclass(frozen=True, slots=True)
class ClientConnectionEnded:
    """The server broke the protocol, or, with `untrusted`, a signature or login was wrong; the connection must be
    closed."""

    reason: str
    untrusted: bool = False


Event = Bound | BindRefused | ResponseReceived | FaultReceived | ShutdownRequested | ClientConnectionEnded

_REQUEST: Final = struct.Struct("<IIHHIIHH")
_WHOLE_REQUEST: Final = 0x03000005
_LITTLE_DREP: Final = 0x10


class _Negotiation:
    """A bind or alter_context in progress."""

    def __init__(self, call_id: int, contexts: tuple[PresentationContext, ...], channel: Channel | None) -> None:
        self.call_id = call_id
        self.contexts = contexts
        self.channel = channel
        self.answers: tuple[ContextAnswer, ...] | None = None


class ClientConnection:
    """See the module. One negotiation may be in progress at a time; calls are multiplexed by call id."""

    def __init__(
        self, *, max_fragment: int | None = None, limits: RpcLimits | None = None, assoc_group_id: int = 0
    ) -> None:
        self.limits = limits or RpcLimits()
        self.max_xmit_frag = max_fragment or self.limits.max_fragment
        self.assoc_group_id = assoc_group_id
        self.secondary_address = b""
        self.contexts: dict[SyntaxId, int] = {}
        #: The transfer syntax of each interface that was accepted.
        self.transfer_syntaxes: dict[SyntaxId, SyntaxId] = {}
        #: The features that both sides have ([MS-RPCE] 2.2.2.15).
        self.features = 0
        self._offered: dict[tuple[SyntaxId, SyntaxId], int] = {}
        self.channel: Channel | None = None
        self._channels: dict[int, Channel] = {}
        #: Whether a login has been sent and nothing has shown yet that the server accepts it. The last leg of NTLM has
        #: no answer; a failed login shows at the first call ([MS-RPCE] 3.3.1.5.2.1).
        self.login_open = False
        self._splitter = Splitter(self.limits.max_fragment)
        self._out: list[bytes] = []
        self._call_id = 0
        self._negotiation: _Negotiation | None = None
        self._calls: dict[int, Channel | None] = {}
        self._answers: dict[int, list[bytes]] = {}
        self._answered = 0
        self._bound = False
        self._header_signing = False
        self._ended = False

    def data_to_send(self) -> bytes:
        """Take what must be sent."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    # --- what a client does ----------------------------------------------------------------------------------------

    def bind(
        self,
        interfaces: Sequence[SyntaxId],
        *,
        auth_type: int = 0,
        level: AuthLevel = AuthLevel.NONE,
        security: SecurityContext | None = None,
        again: bool = False,
        transfer_syntaxes: Sequence[SyntaxId] = (NDR,),
    ) -> None:
        """Offer interfaces: a bind at first, an alter_context afterwards (or a further bind with `again`).

        With `security` a new security context is built, and calls use it from then on. Of `transfer_syntaxes` the
        server chooses one for each interface; of several that it accepts the first one is used. Raises
        LocalProtocolError for a further security context unless the server takes several ([MS-RPCE] 3.3.1.5.4).
        """
        if self._ended or self._negotiation is not None:
            raise LocalProtocolError(
                "the connection has ended" if self._ended else "another negotiation is in progress"
            )
        channel = None
        if security is not None:
            if self._channels and not self.features & SECURITY_CONTEXT_MULTIPLEXING:
                raise LocalProtocolError("the server does not take several security contexts on one connection")
            # Each security context has an id of its own on the connection ([MS-RPCE] 3.3.1.5.2.1).
            channel = Channel(auth_type, normal_level(level), len(self._channels) + 1, security)
        offers = [(interface, syntax) for interface in interfaces for syntax in transfer_syntaxes]
        if not self._bound and offers:
            offers.append((interfaces[-1], feature_syntax(FEATURES)))
        contexts = tuple(
            PresentationContext(self._offered.setdefault(offer, len(self._offered)), offer[0], (offer[1],))
            for offer in offers
        )
        negotiation = _Negotiation(self._next_call_id(), contexts, channel)
        verifier = self._leg(channel, b"") if channel else None
        flags = PFC_WHOLE
        if channel is not None and channel.level >= AuthLevel.PKT:
            flags |= PFC_SUPPORT_HEADER_SIGN
        kind = AlterContext if self._bound and not again else Bind
        if kind is Bind:
            flags |= PFC_CONC_MPX
        size = self.limits.max_fragment
        pdu = kind(negotiation.call_id, negotiation.contexts, size, size, self.assoc_group_id, flags, verifier)
        self._negotiation = negotiation
        self._out.append(pdu.pack())

    def request(self, interface: SyntaxId, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> int:
        """Begin a call and return its id. Raises `LocalProtocolError` if the interface is not bound."""
        context_id = self.contexts.get(interface)
        if context_id is None or self._ended:
            raise LocalProtocolError("the connection has ended" if self._ended else f"{interface} is not bound")
        call_id = self._next_call_id()
        channel = self.channel
        if channel is not None and channel.level < AuthLevel.PKT and len(self._channels) == 1:
            channel = None  # level CONNECT needs a verifier only to choose among several contexts (3.3.1.5.4)
        self._calls[call_id] = channel
        size = CALL_HEADER_SIZE + len(stub)
        if channel is None and object_uuid is None and size <= self.max_xmit_frag:
            head = _REQUEST.pack(_WHOLE_REQUEST, _LITTLE_DREP, size, 0, call_id, len(stub), context_id, opnum)
            self._out.append(head + stub)
        else:
            head, flags = struct.pack("<HH", context_id, opnum), 0
            if object_uuid is not None:
                head, flags = head + object_uuid.bytes_le, PFC_OBJECT_UUID
            self._out += fragments(PacketType.REQUEST, flags, call_id, head, stub, self.max_xmit_frag, channel)
        return call_id

    def cancel(self, call_id: int) -> None:
        """Ask the server to end the call early; its answer, often a fault, still comes."""
        if call_id in self._calls:
            self._out.append(CoCancel(call_id).pack())

    def orphan(self, call_id: int) -> None:
        """Give the call up: no answer comes (C706 12.6.4.6)."""
        if self._calls.pop(call_id, self) is not self:
            self._answered -= sum(map(len, self._answers.pop(call_id, ())))
            self._out.append(Orphaned(call_id).pack())

    # --- what the server answers -----------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes that arrived, in any portions. After `ClientConnectionEnded` bytes are ignored."""
        events: list[Event] = []
        if self._ended:
            return events
        try:
            found = self._splitter.feed_one(data)
            while found := found or self._splitter.next():
                self._handle(*found, events)
                found = None
        except (RemoteProtocolError, AuthenticationError) as error:
            self._ended = True
            events.append(ClientConnectionEnded(str(error), isinstance(error, AuthenticationError)))
        return events

    def _handle(self, header: Header, raw: bytes, events: list[Event]) -> None:
        if header.packet_type == PacketType.RESPONSE:
            self._response(header, raw, events)
            return
        pdu = decode(header, raw)
        match pdu:
            case BindAck():
                self._bind_ack(pdu, events)
            case BindNak():
                self._negotiation = None
                events.append(BindRefused(pdu.reason))
            case FaultPdu():
                self._fault(pdu, header, raw, events)
            case Shutdown():
                events.append(ShutdownRequested())
            case _:
                raise RemoteProtocolError(f"{pdu.packet_type.name} is not for a client")

    def _bind_ack(self, pdu: BindAck, events: list[Event]) -> None:
        negotiation = self._negotiation
        if negotiation is None or pdu.call_id != negotiation.call_id:
            raise RemoteProtocolError(f"{pdu.packet_type.name} that nothing asked for")
        if negotiation.answers is None:
            if len(pdu.answers) != len(negotiation.contexts):
                raise RemoteProtocolError(
                    f"{len(pdu.answers)} results for {len(negotiation.contexts)} presentation contexts"
                )
            negotiation.answers = pdu.answers
        if not isinstance(pdu, AlterContextResp):
            if pdu.max_recv_frag < MIN_FRAGMENT:
                raise RemoteProtocolError(f"the server takes fragments of {pdu.max_recv_frag} only")
            self.max_xmit_frag = min(self.max_xmit_frag, pdu.max_recv_frag)
            self.assoc_group_id = pdu.assoc_group_id
            self.secondary_address = pdu.secondary_address
            self._bound = True
        self._header_signing = self._header_signing or bool(pdu.flags & PFC_SUPPORT_HEADER_SIGN)
        channel = negotiation.channel
        if channel is not None:
            channel.header_signing = self._header_signing
            if not channel.context.complete:
                verifier = self._leg(channel, pdu.verifier.value if pdu.verifier else b"")
                if verifier is not None and not channel.context.complete:
                    again = AlterContext(
                        negotiation.call_id,
                        negotiation.contexts,
                        pdu.max_xmit_frag,
                        pdu.max_recv_frag,
                        self.assoc_group_id,
                        verifier=verifier,
                    )
                    self._out.append(again.pack())
                    return
                if verifier is not None:
                    self._out.append(Auth3(negotiation.call_id, verifier).pack())
                if not channel.context.complete:
                    raise AuthenticationError("the server ended the authentication early")
            if channel.level >= AuthLevel.PKT and not channel.covers_headers:
                # A server that supports it agrees; an attacker in the middle may have changed the answer.
                raise AuthenticationError("the server does not sign headers")
            self._channels[channel.context_id] = channel
            self.channel, self.login_open = channel, True
        self._negotiation = None
        accepted: dict[SyntaxId, PresentationContext] = {}
        for context, answer in zip(negotiation.contexts, negotiation.answers, strict=True):
            if answer.result == ContextResult.ACCEPTANCE:
                accepted.setdefault(context.abstract_syntax, context)
            elif answer.result == ContextResult.NEGOTIATE_ACK:
                self.features = answer.reason & FEATURES
        for interface, context in accepted.items():
            self.contexts[interface] = context.context_id
            (self.transfer_syntaxes[interface],) = context.transfer_syntaxes
        asked = dict.fromkeys(context.abstract_syntax for context in negotiation.contexts)
        events.append(Bound(tuple(accepted), tuple(interface for interface in asked if interface not in accepted)))

    def _leg(self, channel: Channel, token: bytes) -> AuthVerifier | None:
        answer = channel.context.step(token)
        return padded_verifier(channel.auth_type, channel.level, channel.context_id, answer)

    def _response(self, header: Header, raw: bytes, events: list[Event]) -> None:
        call_id, flags = header.call_id, header.flags
        self.login_open = False
        start = stub_start(header)
        channel = self._calls.get(call_id)
        stub = self._open(channel, header, raw, start)
        if call_id not in self._calls:
            return  # of a call that was orphaned before its answer came
        pieces = self._answers.get(call_id)
        if flags & PFC_FIRST_FRAG:
            if pieces is not None:
                raise RemoteProtocolError("received a first fragment twice")
            if flags & PFC_LAST_FRAG:
                del self._calls[call_id]
                events.append(ResponseReceived(call_id, stub, header.byte_order))
                return
            pieces = self._answers[call_id] = []
        elif pieces is None:
            raise RemoteProtocolError("fragment of a response whose first fragment was not received")
        if stub:
            pieces.append(stub)
            self._answered += len(stub)
            if self._answered > self.limits.max_response_size:
                raise RemoteProtocolError(f"the response exceeds {self.limits.max_response_size} bytes")
        if flags & PFC_LAST_FRAG:
            del self._calls[call_id], self._answers[call_id]
            stub = b"".join(pieces)
            self._answered -= len(stub)
            events.append(ResponseReceived(call_id, stub, header.byte_order))

    def _open(self, channel: Channel | None, header: Header, raw: bytes, start: int) -> bytes:
        """Verify and decrypt a fragment with the channel of its call, and return its stub. Responses to orphaned calls
        are verified, too, because their sequence numbers count.
        """
        if not header.auth_length:
            if channel is not None and channel.level >= AuthLevel.PKT:
                raise AuthenticationError("an answer without protection to a protected call")
            return raw[start : header.body_end]
        verifier = AuthVerifier.unpack(raw, header, start)
        assert verifier is not None
        named = self._channels.get(verifier.context_id)
        if named is None or (channel is not None and named is not channel):
            raise AuthenticationError(f"answer in an unknown security context {verifier.context_id}")
        return named.open(header, raw, start)

    def _fault(self, pdu: FaultPdu, header: Header, raw: bytes, events: list[Event]) -> None:
        negotiation = self._negotiation
        if negotiation is not None and negotiation.call_id == pdu.call_id:
            self._negotiation = None
            events.append(BindRefused(pdu.status))
        elif self._calls.pop(pdu.call_id, self) is not self:
            self._answered -= sum(map(len, self._answers.pop(pdu.call_id, ())))
            events.append(FaultReceived(pdu.call_id, pdu.status))
            self.login_open = self.login_open and pdu.status == RPC_S_ACCESS_DENIED
        named = self._channels.get(pdu.verifier.context_id) if pdu.verifier else None
        if named is not None:
            # Its sequence number counts, so the response must be verified even if no caller waits for it.
            named.open(header, raw, CALL_HEADER_SIZE)

    def _next_call_id(self) -> int:
        self._call_id = self._call_id % 0x7FFFFFFF + 1
        while self._call_id in self._calls:
            self._call_id = self._call_id % 0x7FFFFFFF + 1
        return self._call_id
