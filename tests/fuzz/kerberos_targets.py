"""Fuzz target for tokens of Kerberos. The protocol is the library's (`gssapi`), which is not tried: a stand-in accepts
or refuses tokens as their bytes say. Tried are our parts: the header of the first token, SPNEGO around it, the legs of
a connection, the protection that the level requires, and the identity in the ticket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import IntFlag
from types import SimpleNamespace
from typing import Any

from rpc.toys import Pair

from fuzz.network_targets import NAMES, NOW, lookup, parts
from msrpc.errors import AuthenticationError
from msrpc.rpc.kerberos import KERBEROS_OIDS, KerberosAcceptor
from msrpc.rpc.pdu import AuthLevel, AuthType
from msrpc.rpc.spnego import LoginMechanism, SpnegoAcceptor, SpnegoInitiator, acceptor, ntlm_login

REFUSED, MIC = 0xFF, bytes(28)


class Flag(IntFlag):
    """Flags of a security context (RFC 2744 5.19, [MS-KILE] 3.4.5.1)."""

    delegate_to_peer = 1
    mutual_authentication = 2
    replay_detection = 4
    out_of_sequence_detection = 8
    confidentiality = 16
    integrity = 32
    dce_style = 0x1000


class LibraryError(Exception):
    """Stands in for `gssapi.exceptions.GSSError`."""

    def gen_message(self) -> str:
        return "refused"


class Context:
    """Stands in for `gssapi.SecurityContext`. A token that ends with `REFUSED` is refused. The last three bytes of the
    first token are flags; the second token is the logon information in the ticket, of which an odd size is not
    verified."""

    def __init__(self, **given: object) -> None:
        self.complete, self.tokens = False, list[bytes]()
        self.initiator_name = self  # `_logon_information` gets it

    def step(self, token: bytes) -> bytes | None:
        if token[-1:] == bytes([REFUSED]):
            raise LibraryError
        self.tokens.append(token)
        self.complete = len(self.tokens) == 2
        return None if self.complete else b"\x6f\x00"

    @property
    def actual_flags(self) -> int:
        return int.from_bytes(self.tokens[0][-3:], "big")

    def get_signature(self, message: bytes) -> bytes:
        return MIC

    def verify_signature(self, message: bytes, signature: bytes) -> None:
        if signature != MIC:
            raise LibraryError


def _logon_information(context: Context, attribute: bytes) -> Any:
    if not context.tokens[1]:
        raise LibraryError
    return SimpleNamespace(authenticated=len(context.tokens[1]) % 2 == 0, values=[context.tokens[1]])


def _measured(size: int, at: int) -> Callable[..., None]:
    def measure(context: Context, iov: list[Any], *more: object) -> None:
        iov[at] = SimpleNamespace(value=bytes(size))

    return measure


def _refuse(*given: object) -> None:
    raise LibraryError


LIBRARY = SimpleNamespace(
    SecurityContext=Context, RequirementFlag=Flag, exceptions=SimpleNamespace(GSSError=LibraryError),
    raw=SimpleNamespace(
        IOV=lambda *buffers, std_layout: list(buffers),
        IOVBufferType=SimpleNamespace(header=1, data=2, mic_token=3, sign_only=4),
        get_name_attribute=_logon_information, wrap_iov_length=_measured(60, 0), get_mic_iov_length=_measured(28, 1),
        unwrap_iov=_refuse,
    ),
)  # fmt: skip


class Initiator(KerberosAcceptor):
    """A client whose ticket is given; the server's tokens are the library's."""

    def step(self, token: bytes) -> bytes:
        answer = self._advance(token)
        self.complete = self._context.complete
        return answer


def login() -> LoginMechanism:
    return LoginMechanism(
        "kerberos", KERBEROS_OIDS, AuthType.GSS_KERBEROS, lambda level: KerberosAcceptor(LIBRARY, None, level)
    )


def logins() -> tuple[LoginMechanism, LoginMechanism]:
    return login(), ntlm_login(lookup, NAMES, random=lambda n: b"\x5a" * n, now=lambda: NOW)


def _check_server(server: KerberosAcceptor | SpnegoAcceptor, level: int, data: bytes) -> None:
    """A completed login has the identity of a domain account, and the protection that the level requires."""
    with suppress(AuthenticationError):
        for part in parts(data):
            server.step(part)
    if not server.complete:
        return
    assert server.identity is not None and server.identity.sid.startswith("S-1-5-21-")
    found: Any = server.protection
    flags = Flag(found._context.actual_flags)
    assert Flag.dce_style | Flag.mutual_authentication in flags and Flag.delegate_to_peer not in flags
    assert level < AuthLevel.PKT or Flag.integrity in flags
    assert level < AuthLevel.PKT_PRIVACY or Flag.confidentiality in flags


def fuzz_kerberos(data: bytes) -> None:
    """The first byte selects the level, and who reads the tokens: Kerberos alone, SPNEGO, a server's connection, or a
    client."""
    choice, data = data[0] if data else 0, data[1:]
    level = (AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY)[choice >> 2 & 3]
    match choice & 3:
        case 0:
            _check_server(KerberosAcceptor(LIBRARY, None, level), level, data)
        case 1:
            _check_server(SpnegoAcceptor(logins(), level), level, data)
        case 2:
            pair = Pair(acceptor=acceptor(*logins()))
            for part in parts(data):
                if not pair.ended:
                    pair.serve(part)
                    pair.server.data_to_send()
        case 3:
            client = SpnegoInitiator(Initiator(LIBRARY, None, level), KERBEROS_OIDS)
            with suppress(AuthenticationError):
                for part in (b"", *parts(data)):
                    client.step(part)


TARGETS = {"kerberos": fuzz_kerberos}
