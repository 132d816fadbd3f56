"""SPNEGO around NTLM and Kerberos, both roles (RFC 4178, [MS-SPNG]): auth type 9.

The mechanism list is protected by mechListMIC. With NTLM it takes sequence number 0 of each direction with the first
bytes of its RC4 stream; afterwards the streams restart, but the numbers continue ([MS-SPNG] 3.3.5.1). A client with
auth type 9 may also send bare NTLM messages, which are passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from msrpc.errors import AuthenticationError, LocalProtocolError
from msrpc.rpc import der
from msrpc.rpc.ntlm import DomainUsers, FileTime, NtlmAcceptor, Random, ServerNames, UserLookup
from msrpc.rpc.ntlm_messages import SIGNATURE
from msrpc.rpc.pdu import AuthType
from msrpc.rpc.security import AcceptorFactory, Identity, MessageProtection, Question, SecurityContext

SPNEGO_OID: Final = bytes.fromhex("2b0601050502")  # 1.3.6.1.5.5.2
NTLM_OID: Final = bytes.fromhex("2b06010401823702020a")  # 1.3.6.1.4.1.311.2.2.10

_APPLICATION_0: Final = 0x60


class NegState(IntEnum):
    """RFC 4178 4.2.2."""

    ACCEPT_COMPLETED = 0
    ACCEPT_INCOMPLETE = 1
    REJECT = 2
    REQUEST_MIC = 3


@dataclass(frozen=True, slots=True)
class NegTokenInit:
    """RFC 4178 4.2.1. `mech_list` is the DER of the mechanism list, over which the MICs go."""

    mech_list: bytes
    mech_token: bytes = b""

    @property
    def mechanisms(self) -> tuple[bytes, ...]:
        offered = der.elements(der.unwrap(self.mech_list, der.SEQUENCE))
        return tuple(content for tag, content in offered if tag == der.OID)

    def pack(self) -> bytes:
        token = der.wrap(0xA2, der.wrap(der.OCTET_STRING, self.mech_token)) if self.mech_token else b""
        body = der.wrap(0xA0, der.wrap(der.SEQUENCE, der.wrap(0xA0, self.mech_list), token))
        return der.wrap(_APPLICATION_0, der.wrap(der.OID, SPNEGO_OID), body)

    @classmethod
    def unpack(cls, data: bytes) -> NegTokenInit:
        outer = list(der.elements(der.unwrap(data, _APPLICATION_0)))
        if [tag for tag, _ in outer] != [der.OID, 0xA0] or outer[0][1] != SPNEGO_OID:
            raise AuthenticationError("not a SPNEGO token")
        fields = dict(der.elements(der.unwrap(outer[1][1], der.SEQUENCE)))
        token = der.unwrap(fields[0xA2], der.OCTET_STRING) if 0xA2 in fields else b""
        return cls(fields.get(0xA0, b""), token)


@dataclass(frozen=True, slots=True)
class NegTokenResp:
    """RFC 4178 4.2.2."""

    state: int | None = None
    mechanism: bytes = b""
    token: bytes = b""
    mic: bytes = b""

    def pack(self) -> bytes:
        parts = []
        if self.state is not None:
            parts.append(der.wrap(0xA0, der.wrap(der.ENUMERATED, bytes((self.state,)))))
        if self.mechanism:
            parts.append(der.wrap(0xA1, der.wrap(der.OID, self.mechanism)))
        if self.token:
            parts.append(der.wrap(0xA2, der.wrap(der.OCTET_STRING, self.token)))
        if self.mic:
            parts.append(der.wrap(0xA3, der.wrap(der.OCTET_STRING, self.mic)))
        return der.wrap(0xA1, der.wrap(der.SEQUENCE, *parts))

    @classmethod
    def unpack(cls, data: bytes) -> NegTokenResp:
        fields = dict(der.elements(der.unwrap(der.unwrap(data, 0xA1), der.SEQUENCE)))
        state = der.unwrap(fields[0xA0], der.ENUMERATED) if 0xA0 in fields else b""
        return cls(
            state[0] if state else None,
            der.unwrap(fields[0xA1], der.OID) if 0xA1 in fields else b"",
            der.unwrap(fields[0xA2], der.OCTET_STRING) if 0xA2 in fields else b"",
            der.unwrap(fields[0xA3], der.OCTET_STRING) if 0xA3 in fields else b"",
        )


class Mechanism(SecurityContext, Protocol):
    """A security context that SPNEGO can choose."""

    def reset_ciphers(self) -> None:
        """Reset the ciphers after both MICs of the list ([MS-SPNG] 3.3.5.1)."""


@dataclass(frozen=True, slots=True)
class LoginMechanism:
    """A login mechanism: its name, its identifiers, its auth type, and a factory of contexts for a level."""

    name: str
    mechanisms: tuple[bytes, ...]
    auth_type: AuthType
    accept: Callable[[int], Mechanism]


def ntlm_login(
    lookup: UserLookup,
    names: ServerNames,
    *,
    random: Random,
    now: FileTime,
    allow_anonymous: bool = False,
    domain: DomainUsers | None = None,
) -> LoginMechanism:
    """Return the NTLM login for users of a lookup and of a domain."""

    def accept(level: int) -> Mechanism:
        own = names if domain is None else domain.names(names)
        return NtlmAcceptor(
            lookup, own, random=random, now=now, level=level, allow_anonymous=allow_anonymous, domain=domain
        )

    return LoginMechanism("ntlm", (NTLM_OID,), AuthType.WINNT, accept)


def acceptor(*logins: LoginMechanism) -> AcceptorFactory:
    """Return the acceptors for a server's connections: each login has its own auth type. Auth type 9 is SPNEGO over all
    of them, which uses the first one that the client also offers."""

    def accept(auth_type: int, level: int) -> SecurityContext | None:
        if auth_type == AuthType.GSS_NEGOTIATE:
            return SpnegoAcceptor(logins, level)
        return next((login.accept(level) for login in logins if login.auth_type == auth_type), None)

    return accept


class _Spnego:
    """Base of both roles: protection is the mechanism's."""

    def __init__(self, mechanism: Mechanism | None) -> None:
        self._mechanism = mechanism
        self._mech_list = b""
        self._done = False

    @property
    def _chosen(self) -> Mechanism:
        if self._mechanism is None:
            raise LocalProtocolError("no mechanism has been chosen")
        return self._mechanism

    @property
    def complete(self) -> bool:
        return self._done and self._chosen.complete

    @property
    def identity(self) -> Identity | None:
        return self._mechanism.identity if self._mechanism is not None else None

    @property
    def protection(self) -> MessageProtection:
        return self._chosen.protection

    def question(self, token: bytes) -> Question | None:
        return None


class SpnegoInitiator(_Spnego):
    """The client: it offers one mechanism alone, by its identifiers."""

    def __init__(self, mechanism: Mechanism, identifiers: tuple[bytes, ...] = (NTLM_OID,)) -> None:
        super().__init__(mechanism)
        self._identifiers = identifiers

    def step(self, token: bytes) -> bytes:
        mechanism = self._chosen
        if not self._mech_list:
            self._mech_list = der.wrap(der.SEQUENCE, *(der.wrap(der.OID, oid) for oid in self._identifiers))
            return NegTokenInit(self._mech_list, mechanism.step(b"")).pack()
        answer = NegTokenResp.unpack(token)
        if answer.state == NegState.REJECT or self._done:
            raise AuthenticationError("the server rejected the negotiation")
        if answer.mechanism not in (b"", *self._identifiers):
            raise AuthenticationError("the server chose a mechanism that was not offered")
        if not mechanism.complete:
            message = mechanism.step(answer.token)
            return NegTokenResp(token=message, mic=mechanism.protection.sign(self._mech_list)).pack()
        if answer.mic:
            mechanism.protection.verify(self._mech_list, answer.mic)
        # Our MIC was sent, so our stream restarts whether or not the server replied with one.
        mechanism.reset_ciphers()
        self._done = True
        return b""


class SpnegoAcceptor(_Spnego):
    """The server: it chooses the first of its logins that is in the client's list, regardless of its place there."""

    def __init__(self, logins: Sequence[LoginMechanism], level: int) -> None:
        super().__init__(None)
        self._logins = logins
        self._level = level
        self._bare = False
        self._mic_required = False

    def question(self, token: bytes) -> Question | None:
        """Return the mechanism's query. The first leg has none, because it contains no user name."""
        if self._mechanism is None or self._done:
            return None
        try:
            return self._mechanism.question(token if self._bare else NegTokenResp.unpack(token).token)
        except AuthenticationError:
            return None  # `step` says why

    def step(self, token: bytes) -> bytes:
        if not self._mech_list and not self._bare:
            if not token.startswith(SIGNATURE):
                return self._choose(NegTokenInit.unpack(token))
            self._bare = True
            self._take(NTLM_OID)
        if self._bare:
            answer = self._chosen.step(token)
            self._done = self._chosen.complete
            return answer
        return self._go_on(NegTokenResp.unpack(token))

    def _take(self, *offered: bytes) -> tuple[LoginMechanism, bytes]:
        """Select the first login with one of these mechanisms; return it and the identifier that the client uses."""
        for login in self._logins:
            for identifier in offered:
                if identifier in login.mechanisms:
                    self._mechanism = login.accept(self._level)
                    return login, identifier
        known = ", ".join(login.name for login in self._logins)
        raise AuthenticationError(f"the client offers no mechanism that is served: {known}")

    def _choose(self, offer: NegTokenInit) -> bytes:
        mechanisms = offer.mechanisms
        login, identifier = self._take(*mechanisms)
        self._mech_list = offer.mech_list
        preferred = mechanisms[0] in login.mechanisms
        if preferred and offer.mech_token:
            answer = self._chosen.step(offer.mech_token)
            return NegTokenResp(NegState.ACCEPT_INCOMPLETE, identifier, answer).pack()
        # The optimistic token is for another mechanism. As ours was not the client's first choice, the list must be
        # protected (RFC 4178 5).
        self._mic_required = not preferred
        state = NegState.REQUEST_MIC if self._mic_required else NegState.ACCEPT_INCOMPLETE
        return NegTokenResp(state, identifier).pack()

    def _go_on(self, message: NegTokenResp) -> bytes:
        mechanism = self._chosen
        if self._done or message.state == NegState.REJECT:
            raise AuthenticationError("the client rejected the negotiation")
        answer = mechanism.step(message.token)
        if not mechanism.complete:
            return NegTokenResp(NegState.ACCEPT_INCOMPLETE, token=answer).pack()
        mic = b""
        if message.mic:
            mechanism.protection.verify(self._mech_list, message.mic)
            mic = mechanism.protection.sign(self._mech_list)
            mechanism.reset_ciphers()
        elif self._mic_required:
            raise AuthenticationError("the client did not protect its list of mechanisms")
        self._done = True
        return NegTokenResp(NegState.ACCEPT_COMPLETED, mic=mic).pack()
