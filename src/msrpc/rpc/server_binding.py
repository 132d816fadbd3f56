"""Negotiation on a server connection: presentation contexts, features, fragment sizes and security contexts.

C706 12.6.4.3-5 and [MS-RPCE] 3.3.1.5.2-4, 3.3.1.5.6-7.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from msrpc.errors import AuthenticationError, LogonUnavailable, RemoteProtocolError
from msrpc.rpc.association import Association, AssociationTable
from msrpc.rpc.bind_pdus import (
    FEATURE_NEGOTIATION_PREFIX,
    FEATURES,
    AlterContext,
    AlterContextResp,
    Auth3,
    Bind,
    BindAck,
    BindNak,
    ContextAnswer,
    ContextResult,
    PresentationContext,
    ProviderReason,
    RejectReason,
)
from msrpc.rpc.call import InterfaceTable, RpcInterface, transfer_syntaxes
from msrpc.rpc.call_pdus import FaultPdu
from msrpc.rpc.channel import Channel, normal_level
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, RPC_S_PROTOCOL_ERROR
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import (
    MIN_FRAGMENT,
    NDR64,
    PFC_CONC_MPX,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    AuthLevel,
    AuthVerifier,
    SyntaxId,
    padded_verifier,
)
from msrpc.rpc.security import AcceptorFactory, LoginObserver, Question
from msrpc.rpc.server_channels import ServerChannels
from msrpc.rpc.throttle import Attempt, PeerFailures

log = logging.getLogger(__name__)

_LEVELS = (AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY)


@dataclass(frozen=True, slots=True)
class BoundContext:
    """An accepted presentation context."""

    interface: RpcInterface
    abstract_syntax: SyntaxId
    transfer_syntax: SyntaxId
    is_ndr64: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_ndr64", self.transfer_syntax == NDR64)


class _Refused(Exception):
    """The bind or alter_context cannot be granted: the answer is a bind_nak with `reason`, or a fault with `status`,
    which does not exist for a bind.
    """

    def __init__(self, reason: RejectReason, status: int = 0) -> None:
        self.reason = reason
        self.status = status


class Binder:
    """Negotiated state of one connection so far."""

    def __init__(
        self,
        interfaces: InterfaceTable,
        associations: AssociationTable,
        peer_host: str,
        secondary_address: bytes,
        acceptor: AcceptorFactory | None,
        limits: RpcLimits,
        failures: PeerFailures,
        logins: LoginObserver,
    ) -> None:
        self._failures = failures
        self._logins = logins
        self._interfaces = interfaces
        self._associations = associations
        self._peer_host = peer_host
        self._secondary_address = secondary_address
        self._acceptor = acceptor
        self._limits = limits
        self.association: Association | None = None
        self.contexts: dict[int, BoundContext] = {}
        self.channels = ServerChannels()
        self.max_xmit_frag = limits.max_fragment
        self.header_signing = False

    def question(self, pdu: Bind | Auth3) -> Question | None:
        """Return a query that must be answered before `alter` or `auth3` takes the PDU, which continues a login. A bind
        has nothing to ask, as it begins one."""
        verifier = pdu.verifier
        if not isinstance(pdu, (AlterContext, Auth3)) or verifier is None:
            return None
        channel = self.channels.by_id.get(verifier.context_id)
        if channel is None or not channel.waits or self._failures.refuses(self._peer_host, Attempt.LOGIN):
            return None
        if (channel.auth_type, channel.level) != (verifier.auth_type, normal_level(verifier.level)):
            return None
        return channel.question(verifier.value)

    # --- bind and alter_context ------------------------------------------------------------------------------------

    def bind(self, pdu: Bind) -> bytes:
        """Return the bind_ack or bind_nak. A second bind on a connection adds contexts, as some clients expect."""
        try:
            if pdu.max_recv_frag < MIN_FRAGMENT:
                raise _Refused(RejectReason.LOCAL_LIMIT_EXCEEDED)
            joined = self.association
            if joined is None:
                joined = self._join(pdu.assoc_group_id)
            elif pdu.assoc_group_id not in (0, joined.group_id):
                joined = None
            if joined is None:
                raise _Refused(RejectReason.REASON_NOT_SPECIFIED)
            fresh, self.association = self.association is None, joined
            try:
                answers, verifier = self._negotiate(pdu)
            except BaseException:
                if fresh:
                    self.association = None
                    self._associations.leave(joined)
                raise
        except _Refused as refusal:
            return BindNak(pdu.call_id, refusal.reason).pack()
        self.max_xmit_frag = min(self._limits.max_fragment, pdu.max_recv_frag)
        self._agree_on_header_signing(pdu)
        return BindAck(
            pdu.call_id,
            answers,
            self.max_xmit_frag,
            min(self._limits.max_fragment, max(pdu.max_xmit_frag, MIN_FRAGMENT)),
            joined.group_id,
            self._secondary_address,
            PFC_WHOLE | pdu.flags & (PFC_SUPPORT_HEADER_SIGN | PFC_CONC_MPX),
            verifier,
        ).pack()

    def alter(self, pdu: AlterContext) -> bytes:
        """Return the alter_context_resp, or a fault."""
        if self.association is None:
            raise RemoteProtocolError("alter_context before bind")
        try:
            answers, verifier = self._negotiate(pdu)
        except _Refused as refusal:
            return FaultPdu(pdu.call_id, refusal.status).pack()
        self._agree_on_header_signing(pdu)
        return AlterContextResp(
            pdu.call_id,
            answers,
            self.max_xmit_frag,
            min(self._limits.max_fragment, max(pdu.max_xmit_frag, MIN_FRAGMENT)),
            self.association.group_id,
            flags=PFC_WHOLE | pdu.flags & (PFC_SUPPORT_HEADER_SIGN | PFC_CONC_MPX),
            verifier=verifier,
        ).pack()

    def _join(self, group_id: int) -> Association | None:
        if not group_id:
            return self._associations.join(0, self._peer_host)
        if self._failures.refuses(self._peer_host, Attempt.JOIN):
            raise _Refused(RejectReason.TEMPORARY_CONGESTION)  # not: there is no such group
        joined = self._associations.join(group_id, self._peer_host)
        if joined is None:
            self._failures.count(self._peer_host, Attempt.JOIN)
        return joined

    def _agree_on_header_signing(self, pdu: Bind) -> None:
        """Record header signing if a bind or alter_context negotiates it; it then applies to the whole connection
        ([MS-RPCE] 3.3.1.5.2.2, D-17)."""
        self.header_signing = self.header_signing or bool(pdu.flags & PFC_SUPPORT_HEADER_SIGN)
        for channel in self.channels.by_id.values():
            channel.header_signing = self.header_signing

    def _negotiate(self, pdu: Bind) -> tuple[tuple[ContextAnswer, ...], AuthVerifier | None]:
        accepted: dict[int, BoundContext] = {}
        chosen = self._chosen(pdu.contexts)
        answers = tuple(self._answer(context, chosen, accepted) for context in pdu.contexts)
        if len(self.contexts.keys() | accepted.keys()) > self._limits.max_contexts:
            raise _Refused(RejectReason.LOCAL_LIMIT_EXCEEDED, RPC_S_PROTOCOL_ERROR)
        verifier = self._security_leg(pdu) if pdu.verifier else None
        if not pdu.verifier and accepted:
            self.channels.allow_unprotected()
        self.contexts.update(accepted)
        return answers, verifier

    def _chosen(self, contexts: tuple[PresentationContext, ...]) -> dict[SyntaxId, SyntaxId]:
        """Return abstract syntax -> the transfer syntax to accept among those that a PDU offers: the one that the
        interface prefers, or else the first one that it supports ([MS-RPCE] 3.3.1.5.6)."""
        offers: dict[SyntaxId, list[SyntaxId]] = {}
        for context in contexts:
            offers.setdefault(context.abstract_syntax, []).extend(context.transfer_syntaxes)
        chosen: dict[SyntaxId, SyntaxId] = {}
        for abstract, offered in offers.items():
            interface = self._interfaces.find(abstract)
            served = transfer_syntaxes(interface) if interface is not None else ()
            usable = [syntax for syntax in offered if syntax in served]
            if usable:
                chosen[abstract] = served[0] if served[0] in usable else usable[0]
        return chosen

    def _answer(
        self, context: PresentationContext, chosen: dict[SyntaxId, SyntaxId], accepted: dict[int, BoundContext]
    ) -> ContextAnswer:
        """Return the result for a presentation context ([MS-RPCE] 3.3.1.5.3, 3.3.1.5.6)."""
        for offer in context.transfer_syntaxes:
            raw = offer.uuid.bytes_le
            if raw.startswith(FEATURE_NEGOTIATION_PREFIX):
                return ContextAnswer(ContextResult.NEGOTIATE_ACK, raw[8] & FEATURES)
        interface = self._interfaces.find(context.abstract_syntax)
        if interface is None:
            return ContextAnswer(ContextResult.PROVIDER_REJECTION, ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
        syntax = chosen.get(context.abstract_syntax)
        if syntax is None or syntax not in context.transfer_syntaxes:
            reason = ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED
            return ContextAnswer(ContextResult.PROVIDER_REJECTION, reason)
        accepted[context.context_id] = BoundContext(interface, context.abstract_syntax, syntax)
        return ContextAnswer(ContextResult.ACCEPTANCE, 0, syntax)

    # --- security contexts -----------------------------------------------------------------------------------------

    def _security_leg(self, pdu: Bind) -> AuthVerifier | None:
        """Process one leg of an authentication ([MS-RPCE] 3.3.1.5.2.1). Return the verifier of the reply.

        A bind always starts a new context, even if its id is in use. An alter_context continues a context that waits
        for a further leg, and otherwise starts a new one. If it repeats the leg that completed a context (deviation
        D-60), as Samba does to add interfaces after auth3, the context is not changed, and the reply has no token.
        """
        verifier = pdu.verifier
        assert verifier is not None
        level = normal_level(verifier.level)
        channel = self.channels.by_id.get(verifier.context_id)
        altering = isinstance(pdu, AlterContext)
        if altering and channel is not None and channel.repeats(verifier.auth_type, level, verifier.value):
            return None
        if self._failures.refuses(self._peer_host, Attempt.LOGIN):
            raise _Refused(RejectReason.TEMPORARY_CONGESTION, RPC_S_ACCESS_DENIED)
        going_on = altering and channel is not None and channel.waits
        if going_on:
            assert channel is not None
            if (channel.auth_type, channel.level) != (verifier.auth_type, level):
                raise RemoteProtocolError("the auth type or level changed between two legs")
        else:
            channel = self._new_channel(verifier, level)
        try:
            token = channel.step(verifier.value)
        except AuthenticationError as error:
            self._log_failure(error)
            if going_on or verifier.context_id not in self.channels.by_id:
                # Kept, because later requests that use it must be refused ([MS-RPCE] 3.3.1.5.2.1).
                channel.failed = True
                self.channels.add(channel)
            raise _Refused(RejectReason.INVALID_CHECKSUM, RPC_S_ACCESS_DENIED) from None
        self.channels.add(channel)
        self._log_login(channel)
        return padded_verifier(verifier.auth_type, verifier.level, verifier.context_id, token)

    def _new_channel(self, verifier: AuthVerifier, level: int) -> Channel:
        if len(self.channels.by_id.keys() | {verifier.context_id}) > self._limits.max_security_contexts:
            raise _Refused(RejectReason.LOCAL_LIMIT_EXCEEDED, RPC_S_PROTOCOL_ERROR)
        context = None
        if self._acceptor is not None and level in _LEVELS:
            context = self._acceptor(verifier.auth_type, level)
        if context is None:
            raise _Refused(RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED, RPC_S_ACCESS_DENIED)
        return Channel(verifier.auth_type, level, verifier.context_id, context)

    def auth3(self, pdu: Auth3) -> None:
        """Process the last leg. It has no reply, so a failure shows at the first request ([MS-RPCE] 3.3.1.5.2.1)."""
        verifier = pdu.verifier
        channel = self.channels.by_id.get(verifier.context_id)
        if channel is None or not channel.waits:
            raise RemoteProtocolError("auth3 for a security context that expects none")
        if (channel.auth_type, channel.level) != (verifier.auth_type, normal_level(verifier.level)):
            raise RemoteProtocolError("the auth type or level changed between two legs")
        try:
            if self._failures.refuses(self._peer_host, Attempt.LOGIN):
                raise LogonUnavailable("too many have failed")
            channel.step(verifier.value)
        except AuthenticationError as error:
            self._log_failure(error)
            channel.failed = True
        else:
            channel.failed = not channel.context.complete
            self._log_login(channel)
        self.channels.update()

    def _log_login(self, channel: Channel) -> None:
        who = channel.context.identity if channel.usable else None
        if who is not None and not who.anonymous:
            place = self._peer_host or who.origin
            log.info("%s\\%s (%s) logged in from %s by %s", who.domain, who.user, who.sid, place, who.login)
            self._logins.logged_in(who, self._peer_host)

    def _log_failure(self, error: AuthenticationError) -> None:
        if not isinstance(error, LogonUnavailable):
            self._failures.count(self._peer_host, Attempt.LOGIN)
            self._logins.refused(error.user, self._peer_host)
        log.warning("authentication from %s failed: %s", self._peer_host, error)
