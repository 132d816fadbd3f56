"""NTLMv2 authentication and session security, both roles ([MS-NLMP]).

Only the strong subset: NTLMv2 responses, extended session security, 128-bit keys. LM and NTLMv1 responses are
refused. Randomness and time are arguments; users come from a lookup.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from Cryptodome.Hash import MD4

from msrpc.errors import AuthenticationError, LocalProtocolError, LogonUnavailable
from msrpc.rpc.ntlm_messages import (
    AV_FLAG_MIC_PROVIDED,
    Authenticate,
    AvId,
    Challenge,
    Negotiate,
    NegotiateFlags,
    pack_av_pairs,
    unpack_av_pairs,
)
from msrpc.rpc.ntlm_session import NtlmSession, rc4_stream
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import ANONYMOUS, Identity, Question

# (domain, user) -> (NT hash, SID), or None for a user who does not exist.
UserLookup = Callable[[str, str], tuple[bytes, str] | None]
Random = Callable[[int], bytes]
# The time as FILETIME: 100 ns since 1601, UTC.
FileTime = Callable[[], int]

# 3.1.1.1: maximum age of a response. It also limits the error of the clock of the client.
MAX_LIFETIME: Final = 36 * 3600 * 10_000_000
# An NTLMv2 response: NTProofStr and at least the fixed part of the client challenge (2.2.2.8). NTLMv1's have 24.
MIN_NTLMV2_RESPONSE: Final = 16 + 28

_OFFERED: Final = (
    NegotiateFlags.UNICODE
    | NegotiateFlags.REQUEST_TARGET
    | NegotiateFlags.SIGN
    | NegotiateFlags.SEAL
    | NegotiateFlags.NTLM
    | NegotiateFlags.ALWAYS_SIGN
    | NegotiateFlags.EXTENDED_SESSION_SECURITY
    | NegotiateFlags.VERSION
    | NegotiateFlags.KEY_128
    | NegotiateFlags.KEY_EXCH
    | NegotiateFlags.KEY_56
)
_SUPPORTED: Final = int(_OFFERED | NegotiateFlags.TARGET_INFO | NegotiateFlags.IDENTIFY)
_ADDED: Final = int(
    NegotiateFlags.TARGET_INFO | NegotiateFlags.VERSION | NegotiateFlags.REQUEST_TARGET | NegotiateFlags.NTLM
    | NegotiateFlags.ALWAYS_SIGN
)  # fmt: skip
_REQUIRED: Final = int(NegotiateFlags.UNICODE | NegotiateFlags.EXTENDED_SESSION_SECURITY | NegotiateFlags.KEY_128)


def nt_hash(password: str) -> bytes:
    """Return NTOWFv1 (3.3.1), which a server stores for a user."""
    return MD4.new(password.encode("utf-16-le")).digest()


def ntowf_v2(hash_: bytes, user: str, domain: str) -> bytes:
    """Return NTOWFv2 (3.3.2), derived from the NT hash."""
    # Uppercase() maps single characters; Python's upper() turns some into two (ß).
    upper = "".join(c.upper() if len(c.upper()) == 1 else c for c in user)
    return _hmac_md5(hash_, (upper + domain).encode("utf-16-le"))


def _hmac_md5(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "md5")


def _rc4(key: bytes, data: bytes) -> bytes:
    return rc4_stream(key).update(data)


class _Ntlm:
    """Base of both roles: holds the session when the exchange is complete."""

    def __init__(self) -> None:
        self.session: NtlmSession | None = None
        self.identity: Identity | None = None

    @property
    def complete(self) -> bool:
        return self.session is not None

    @property
    def protection(self) -> NtlmSession:
        if self.session is None:
            raise LocalProtocolError("the authentication is not complete")
        return self.session

    def question(self, token: bytes) -> Question | None:
        return None

    def reset_ciphers(self) -> None:
        self.protection.reset_ciphers()


class NtlmInitiator(_Ntlm):
    """The client (3.1). `random` provides the client challenge, then the session key."""

    def __init__(
        self, user: str, password: str, domain: str, *, random: Random, now: FileTime, target_name: str = ""
    ) -> None:
        super().__init__()
        self._user = user
        self._domain = domain
        self._hash = nt_hash(password)
        self._random = random
        self._now = now
        self._target_name = target_name
        self._negotiate = b""

    def step(self, token: bytes) -> bytes:
        """Return NEGOTIATE in the first step, then AUTHENTICATE in reply to CHALLENGE."""
        if not self._negotiate:
            self._negotiate = Negotiate(_OFFERED).pack()
            return self._negotiate
        if self.session is not None:
            raise AuthenticationError("NTLM has no further leg")
        return self._authenticate(token)

    def _authenticate(self, token: bytes) -> bytes:
        challenge = Challenge.unpack(token)
        flags = challenge.flags & int(_OFFERED)
        if flags & _REQUIRED != _REQUIRED or not flags & NegotiateFlags.SIGN:
            raise AuthenticationError("the server chose weak NTLM features")
        offered = dict(unpack_av_pairs(challenge.target_info))
        timestamp = offered.get(AvId.TIMESTAMP)
        pairs = dict(offered)
        if timestamp is not None:
            av_flags = int.from_bytes(offered.get(AvId.FLAGS, b""), "little") | AV_FLAG_MIC_PROVIDED
            pairs[AvId.FLAGS] = av_flags.to_bytes(4, "little")
        pairs[AvId.CHANNEL_BINDINGS] = bytes(16)
        pairs[AvId.TARGET_NAME] = self._target_name.encode("utf-16-le")
        nonce = self._random(8)
        time = timestamp if timestamp is not None else self._now().to_bytes(8, "little")
        blob = b"\x01\x01" + bytes(6) + time + nonce + bytes(4) + pack_av_pairs(pairs.items()) + bytes(4)
        response_key = ntowf_v2(self._hash, self._user, self._domain)
        proof = _hmac_md5(response_key, challenge.server_challenge + blob)
        if timestamp is not None:
            lm_response = bytes(24)
        else:
            lm_response = _hmac_md5(response_key, challenge.server_challenge + nonce) + nonce
        key = _hmac_md5(response_key, proof)
        encrypted = b""
        if flags & NegotiateFlags.KEY_EXCH:
            exported = self._random(16)
            key, encrypted = exported, _rc4(key, exported)
        message = Authenticate(
            flags, lm_response, proof + blob, self._domain, self._user, "", encrypted, bytes(16)
        ).pack()
        mic_at = Authenticate.MIC_OFFSET
        if timestamp is not None:
            mic = _hmac_md5(key, self._negotiate + token + message)
            message = message[:mic_at] + mic + message[mic_at + 16 :]
        self.session = NtlmSession(key, flags, is_client=True)
        return message


@dataclass(frozen=True, slots=True)
class ServerNames:
    """Names of the server in a CHALLENGE. Without a domain, all of them are the server's own name."""

    computer: str
    domain: str = ""
    dns_computer: str = ""
    dns_domain: str = ""

    def av_pairs(self, now: int) -> bytes:
        """Return the target info, in the order used by Windows."""
        named = (
            (AvId.NB_DOMAIN_NAME, self.domain or self.computer),
            (AvId.NB_COMPUTER_NAME, self.computer),
            (AvId.DNS_DOMAIN_NAME, self.dns_domain or self.computer),
            (AvId.DNS_COMPUTER_NAME, self.dns_computer or self.computer),
        )
        pairs = [(int(kind), text.encode("utf-16-le")) for kind, text in named]
        return pack_av_pairs([*pairs, (AvId.TIMESTAMP, now.to_bytes(8, "little"))])


@dataclass(frozen=True, slots=True)
class NetworkLogon:
    """Data for a server that checks a response on behalf of this one ([MS-APDS] 3.1.5.1)."""

    domain: str
    user: str
    workstation: str
    challenge: bytes
    lm_response: bytes
    nt_response: bytes


@dataclass(frozen=True, slots=True)
class LoggedOn:
    """The response was correct. `key` is the session base key (3.3.2)."""

    identity: Identity
    key: bytes


class DomainUsers(Protocol):
    """Accounts whose responses another server checks."""

    @property
    def first(self) -> bool:
        """Whether they take precedence over local users of the same name if the client sends no domain."""

    def is_named(self, domain: str) -> bool:
        """Whether this is a known name of the domain."""

    def names(self, names: ServerNames) -> ServerNames:
        """Return the names of the server and of the domain."""

    def log_on(self, logon: NetworkLogon) -> LoggedOn | None:
        """Return None for a user unknown to the domain. Blocks. Raises AuthenticationError if the domain refuses the
        user, LogonUnavailable if the domain can't be reached."""


class NtlmAcceptor(_Ntlm):
    """The server (3.2). `random` provides the challenge; `level` is the authentication level that the client
    requests."""

    def __init__(
        self,
        lookup: UserLookup,
        names: ServerNames,
        *,
        random: Random,
        now: FileTime,
        level: int = AuthLevel.PKT_PRIVACY,
        allow_anonymous: bool = False,
        domain: DomainUsers | None = None,
    ) -> None:
        super().__init__()
        self._domain = domain
        # The answer of the domain, None until there is one.
        self._answer: LoggedOn | AuthenticationError | None = None
        self._asked = False
        self._lookup = lookup
        self._names = names
        self._random = random
        self._now = now
        self._level = level
        self._allow_anonymous = allow_anonymous
        self._negotiate = b""
        self._challenge = b""
        self._server_challenge = b""

    def question(self, token: bytes) -> Question | None:
        """Return the query to the domain if the user may belong to it."""
        domain = self._domain
        if domain is None or not self._negotiate or self._asked or self.session is not None:
            return None
        try:
            message = Authenticate.unpack(token)
            self._check_form(message)
        except AuthenticationError:
            return None  # `step` says why
        if _is_anonymous(message) or not self._may_be_of_domain(domain, message):
            return None
        logon = NetworkLogon(
            message.domain, message.user, message.workstation, self._server_challenge, message.lm_response,
            message.nt_response,
        )  # fmt: skip
        self._asked = True
        self._answer = LogonUnavailable(f"the domain has not said in time who {message.user!r} is")

        def ask() -> None:
            try:
                self._answer = domain.log_on(logon)
            except AuthenticationError as error:
                self._answer = error

        return ask

    def _may_be_of_domain(self, domain: DomainUsers, message: Authenticate) -> bool:
        domain_name = message.domain.casefold()
        if domain_name and domain_name in (self._names.computer.casefold(), self._names.dns_computer.casefold()):
            return False
        named = domain.is_named(message.domain) or "@" in message.user
        return named or domain.first or self._lookup(message.domain, message.user) is None

    def step(self, token: bytes) -> bytes:
        """Return CHALLENGE in reply to NEGOTIATE; empty in reply to AUTHENTICATE."""
        if not self._negotiate:
            return self._answer_negotiate(token)
        if self.session is not None:
            raise AuthenticationError("NTLM has no further leg")
        self._check(Authenticate.unpack(token), token)
        return b""

    def _answer_negotiate(self, token: bytes) -> bytes:
        offered = Negotiate.unpack(token).flags
        if offered & _REQUIRED != _REQUIRED:
            raise AuthenticationError("the client offers only weak NTLM features")
        self._negotiate = token
        self._server_challenge = self._random(8)
        names = self._names
        target = NegotiateFlags.TARGET_TYPE_DOMAIN if names.domain else NegotiateFlags.TARGET_TYPE_SERVER
        flags = offered & _SUPPORTED | _ADDED | target
        info = names.av_pairs(self._now())
        self._challenge = Challenge(flags, self._server_challenge, names.domain or names.computer, info).pack()
        return self._challenge

    def _check_form(self, message: Authenticate) -> None:
        """Check the parts that need no account (3.2.5.1.2)."""
        flags = message.flags
        if flags & _REQUIRED != _REQUIRED:
            raise AuthenticationError("the client chose weak NTLM features")
        if self._level >= AuthLevel.PKT and not flags & NegotiateFlags.SIGN:
            raise AuthenticationError("the client did not negotiate signing")
        if self._level >= AuthLevel.PKT_PRIVACY and not flags & NegotiateFlags.SEAL:
            raise AuthenticationError("the client did not negotiate sealing")
        response = message.nt_response
        if not _is_anonymous(message) and (len(response) < MIN_NTLMV2_RESPONSE or response[16:18] != b"\x01\x01"):
            raise AuthenticationError("only NTLMv2 responses are accepted")

    def _check(self, message: Authenticate, token: bytes) -> None:
        """Check AUTHENTICATE (3.2.5.1.2)."""
        self._check_form(message)
        flags = message.flags
        if _is_anonymous(message):
            if not self._allow_anonymous:
                raise AuthenticationError("anonymous callers are not served")
            base_key, identity, blob = bytes(16), ANONYMOUS, b""
        else:
            base_key, identity = self._check_account(message)
            blob = message.nt_response[16:]
        key = base_key
        if flags & NegotiateFlags.KEY_EXCH:
            # 3.2.5.1.2 exchanges a key only for signing and sealing, but clients also send one without them.
            if len(message.session_key) == 16:
                key = _rc4(base_key, message.session_key)
            elif flags & (NegotiateFlags.SIGN | NegotiateFlags.SEAL):
                raise AuthenticationError("the client sent no session key")
        if blob:
            self._check_blob(blob, key, message, token)
        self.identity = identity
        self.session = NtlmSession(key, flags, is_client=False)

    def _check_account(self, message: Authenticate) -> tuple[bytes, Identity]:
        """Return the session base key and the user. For a user known to the domain, its answer is final: another
        attempt with a local account of this name would make two passwords valid."""
        domain, answer = self._domain, self._answer
        if domain is None or not self._asked:
            return self._check_response(message)
        if isinstance(answer, LoggedOn):
            return answer.key, answer.identity
        if answer is not None and not isinstance(answer, LogonUnavailable):
            raise answer
        if domain.is_named(message.domain) or self._lookup(message.domain, message.user) is None:
            raise answer or _unknown(message)
        return self._check_response(message)

    def _check_response(self, message: Authenticate) -> tuple[bytes, Identity]:
        """Return the session base key and the local user if the NTLMv2 response is correct."""
        response = message.nt_response
        found = self._lookup(message.domain, message.user)
        # An unknown user costs as much time as a wrong password.
        hash_, sid = found if found is not None else (bytes(16), "")
        proof, blob = response[:16], response[16:]
        # Some clients wrongly compute the response with an empty domain.
        for domain in (message.domain, ""):
            response_key = ntowf_v2(hash_, message.user, domain)
            expected = _hmac_md5(response_key, self._server_challenge + blob)
            if hmac.compare_digest(expected, proof) and found is not None:
                return _hmac_md5(response_key, proof), Identity(message.user, message.domain, sid, login="ntlm")
        raise _unknown(message)

    def _check_blob(self, blob: bytes, key: bytes, message: Authenticate, token: bytes) -> None:
        """Check the client's time, and its MIC over all three messages if the blob announces one."""
        time = int.from_bytes(blob[8:16], "little")
        if abs(time - self._now()) > MAX_LIFETIME:
            raise AuthenticationError("the response is too old")
        pairs = dict(unpack_av_pairs(blob[28:]))
        if not int.from_bytes(pairs.get(AvId.FLAGS, b""), "little") & AV_FLAG_MIC_PROVIDED:
            return
        at = Authenticate.MIC_OFFSET
        cleared = token[:at] + bytes(16) + token[at + 16 :]
        mic = _hmac_md5(key, self._negotiate + self._challenge + cleared)
        if message.mic is None or not hmac.compare_digest(mic, message.mic):
            raise AuthenticationError("the MIC is wrong")


def _is_anonymous(message: Authenticate) -> bool:
    return not message.user and not message.nt_response and message.lm_response in (b"", b"\0")


def _unknown(message: Authenticate) -> AuthenticationError:
    detail = f"unknown user or wrong password: {message.domain!r} {message.user!r}"
    return AuthenticationError(detail, message.user)
