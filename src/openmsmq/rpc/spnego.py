"""SPNEGO around NTLM, both roles (RFC 4178, [MS-SPNG]): auth type 9.

The mechanism list is protected by mechListMIC, which takes sequence number 0 of each direction with the first bytes
of its RC4 stream; afterwards the streams begin again while the numbers go on ([MS-SPNG] 3.3.5.1). A client that says
auth type 9 may also send bare NTLM messages, which are passed through.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from openmsmq.rpc import der
from openmsmq.rpc.errors import AuthenticationError
from openmsmq.rpc.ntlm import FileTime, NtlmAcceptor, NtlmInitiator, Random, ServerNames, UserLookup
from openmsmq.rpc.ntlm_messages import SIGNATURE
from openmsmq.rpc.pdu import AuthType
from openmsmq.rpc.security import AcceptorFactory, Identity, SecurityContext

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


def ntlm_acceptor(
    lookup: UserLookup, names: ServerNames, *, random: Random, now: FileTime, allow_anonymous: bool = False
) -> AcceptorFactory:
    """What a server gives to its connections: NTLM under auth type 10, SPNEGO or bare NTLM under 9."""

    def accept(auth_type: int, level: int) -> SecurityContext | None:
        if auth_type not in (AuthType.GSS_NEGOTIATE, AuthType.WINNT):
            return None
        ntlm = NtlmAcceptor(lookup, names, random=random, now=now, level=level, allow_anonymous=allow_anonymous)
        return SpnegoAcceptor(ntlm) if auth_type == AuthType.GSS_NEGOTIATE else ntlm

    return accept


class _Spnego:
    """What both roles share: protection is the mechanism's."""

    def __init__(self, mechanism: NtlmInitiator | NtlmAcceptor) -> None:
        self._mechanism = mechanism
        self._mech_list = b""
        self._done = False

    @property
    def complete(self) -> bool:
        return self._done and self._mechanism.complete

    @property
    def identity(self) -> Identity | None:
        return self._mechanism.identity

    @property
    def signature_size(self) -> int:
        return self._mechanism.signature_size

    def sign(self, message: bytes) -> bytes:
        return self._mechanism.sign(message)

    def verify(self, message: bytes, signature: bytes) -> None:
        self._mechanism.verify(message, signature)

    def wrap(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[bytes, bytes]:
        return self._mechanism.wrap(prefix, body, suffix)

    def unwrap(self, prefix: bytes, body: bytes, suffix: bytes, signature: bytes) -> bytes:
        return self._mechanism.unwrap(prefix, body, suffix, signature)


class SpnegoInitiator(_Spnego):
    """The client: it offers NTLM alone."""

    def __init__(self, mechanism: NtlmInitiator) -> None:
        super().__init__(mechanism)
        self._signed = False

    def step(self, token: bytes) -> bytes:
        if not self._mech_list:
            self._mech_list = der.wrap(der.SEQUENCE, der.wrap(der.OID, NTLM_OID))
            return NegTokenInit(self._mech_list, self._mechanism.step(b"")).pack()
        answer = NegTokenResp.unpack(token)
        if answer.state == NegState.REJECT or self._done:
            raise AuthenticationError("the server rejected the negotiation")
        if answer.mechanism not in (b"", NTLM_OID):
            raise AuthenticationError("the server chose a mechanism that was not offered")
        if not self._mechanism.complete:
            message = self._mechanism.step(answer.token)
            return NegTokenResp(token=message, mic=self._mechanism.sign(self._mech_list)).pack()
        if answer.mic:
            self._mechanism.verify(self._mech_list, answer.mic)
        # Ours has been sent, so our stream begins again whether or not the server answered with one.
        self._mechanism.reset_ciphers()
        self._done = True
        return b""


class SpnegoAcceptor(_Spnego):
    """The server: it chooses NTLM, wherever in the client's list it stands."""

    def __init__(self, mechanism: NtlmAcceptor) -> None:
        super().__init__(mechanism)
        self._bare = False
        self._mic_required = False

    def step(self, token: bytes) -> bytes:
        if self._bare or (not self._mech_list and token.startswith(SIGNATURE)):
            self._bare = True
            answer = self._mechanism.step(token)
            self._done = self._mechanism.complete
            return answer
        if not self._mech_list:
            return self._choose(NegTokenInit.unpack(token))
        return self._go_on(NegTokenResp.unpack(token))

    def _choose(self, offer: NegTokenInit) -> bytes:
        mechanisms = offer.mechanisms
        if NTLM_OID not in mechanisms:
            raise AuthenticationError("the client does not offer NTLM")
        self._mech_list = offer.mech_list
        if mechanisms[0] == NTLM_OID and offer.mech_token:
            answer = self._mechanism.step(offer.mech_token)
            return NegTokenResp(NegState.ACCEPT_INCOMPLETE, NTLM_OID, answer).pack()
        # The optimistic token is for another mechanism. As ours was not the client's first choice, the list must be
        # protected (RFC 4178 5).
        self._mic_required = mechanisms[0] != NTLM_OID
        state = NegState.REQUEST_MIC if self._mic_required else NegState.ACCEPT_INCOMPLETE
        return NegTokenResp(state, NTLM_OID).pack()

    def _go_on(self, message: NegTokenResp) -> bytes:
        if self._done or message.state == NegState.REJECT:
            raise AuthenticationError("the client rejected the negotiation")
        answer = self._mechanism.step(message.token)
        if not self._mechanism.complete:
            return NegTokenResp(NegState.ACCEPT_INCOMPLETE, token=answer).pack()
        mic = b""
        if message.mic:
            self._mechanism.verify(self._mech_list, message.mic)
            mic = self._mechanism.sign(self._mech_list)
            self._mechanism.reset_ciphers()
        elif self._mic_required:
            raise AuthenticationError("the client did not protect its list of mechanisms")
        self._done = True
        return NegTokenResp(NegState.ACCEPT_COMPLETED, mic=mic).pack()
