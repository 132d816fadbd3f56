"""Kerberos without a domain: choice of the login, coverage of signatures, errors without the library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from msrpc.errors import AuthenticationError, KerberosUnavailable, LocalProtocolError
from msrpc.rpc import der
from msrpc.rpc.channel import Channel, fragments
from msrpc.rpc.kerberos import (
    KERBEROS_OID,
    KERBEROS_OIDS,
    MICROSOFT_KERBEROS_OID,
    KerberosCredentials,
    KerberosInitiator,
    KerberosKeys,
    ap_request,
)
from msrpc.rpc.pdu import AuthLevel, AuthType, Header, PacketType
from msrpc.rpc.security import Identity
from msrpc.rpc.spnego import NTLM_OID, LoginMechanism, NegState, NegTokenInit, NegTokenResp, SpnegoAcceptor, acceptor

CALLER = Identity("alice", "RIG", "S-1-5-21-1-2-3-1102", login="toy")


class Toy:
    """A two-leg mechanism in which the signature of a message is its length."""

    always_signs_headers = False

    def __init__(self) -> None:
        self.complete = False
        self.identity: Identity | None = None
        self.steps: list[bytes] = []

    def step(self, token: bytes) -> bytes:
        self.steps.append(token)
        if len(self.steps) == 2:
            self.complete, self.identity = True, CALLER
        return b"answer" if len(self.steps) == 1 else b""

    @property
    def protection(self) -> Toy:
        return self

    def signature_size(self, level: int) -> int:
        return 12 if level == AuthLevel.PKT_PRIVACY else 8

    def sign(self, message: bytes) -> bytes:
        return len(message).to_bytes(8, "big")

    def verify(self, message: bytes, signature: bytes) -> None:
        if signature != self.sign(message):
            raise AuthenticationError("wrong")

    def wrap(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[bytes, bytes]:
        return body[::-1], self.sign(prefix + suffix).rjust(12)

    def unwrap(self, prefix: bytes, body: bytes, suffix: bytes, signature: bytes) -> bytes:
        self.verify(prefix + suffix, signature[4:])
        return body[::-1]

    def reset_ciphers(self) -> None:
        pass


def made(*names: str) -> tuple[dict[str, Toy], list[LoginMechanism]]:
    toys: dict[str, Toy] = {}
    oids = {"kerberos": KERBEROS_OIDS, "ntlm": (NTLM_OID,)}
    types = {"kerberos": AuthType.GSS_KERBEROS, "ntlm": AuthType.WINNT}
    return toys, [LoginMechanism(n, oids[n], types[n], lambda level, n=n: toys.setdefault(n, Toy())) for n in names]


def offer(*oids: bytes) -> bytes:
    return NegTokenInit(der.wrap(der.SEQUENCE, *(der.wrap(der.OID, oid) for oid in oids)), b"first").pack()


@pytest.mark.parametrize(
    ("logins", "offered", "chosen"),
    [
        (("kerberos", "ntlm"), (MICROSOFT_KERBEROS_OID, KERBEROS_OID, NTLM_OID), MICROSOFT_KERBEROS_OID),
        (("kerberos", "ntlm"), (KERBEROS_OID, NTLM_OID), KERBEROS_OID),
        (("kerberos", "ntlm"), (NTLM_OID,), NTLM_OID),
        (("kerberos", "ntlm"), (NTLM_OID, KERBEROS_OID), KERBEROS_OID),
        (("ntlm", "kerberos"), (KERBEROS_OID, NTLM_OID), NTLM_OID),
        (("ntlm",), (KERBEROS_OID, NTLM_OID), NTLM_OID),
    ],
)
def test_the_first_login_counts_that_the_client_offers(
    logins: tuple[str, ...], offered: tuple[bytes, ...], chosen: bytes
) -> None:
    toys, known = made(*logins)
    answer = NegTokenResp.unpack(SpnegoAcceptor(known, 6).step(offer(*offered)))
    assert answer.mechanism == chosen
    (toy,) = toys.values()
    preferred = chosen == offered[0]
    assert (answer.state == NegState.REQUEST_MIC) != preferred  # protects the list if it was ignored
    assert toy.steps == ([b"first"] if preferred else [])  # the first token is for the first choice


def test_a_login_that_is_not_served_is_refused() -> None:
    _, known = made("ntlm")
    with pytest.raises(AuthenticationError, match="served: ntlm"):
        SpnegoAcceptor(known, 6).step(offer(KERBEROS_OID))
    assert acceptor(*known)(AuthType.GSS_KERBEROS, 6) is None
    assert acceptor(*made("kerberos")[1])(AuthType.WINNT, 6) is None


@pytest.mark.parametrize("signing", [False, True])
@pytest.mark.parametrize("level", [AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_signatures_cover_headers_where_that_was_agreed(level: AuthLevel, signing: bool) -> None:
    here, there = (Channel(16, level, 0, Toy()) for _ in range(2))
    here.header_signing = there.header_signing = signing
    (pdu,) = fragments(PacketType.REQUEST, 0, 1, bytes(4), b"a stub", 5840, here)
    assert there.open(Header.unpack(pdu), pdu, 24) == b"a stub"
    there.header_signing = not signing
    with pytest.raises(AuthenticationError):
        there.open(Header.unpack(pdu), pdu, 24)


def test_the_first_token_is_an_ap_req_with_or_without_a_header_and_nothing_else() -> None:
    request = b"\x6e\x03abc"
    assert ap_request(request) == request
    for oid in KERBEROS_OIDS:
        assert ap_request(der.wrap(0x60, der.wrap(der.OID, oid) + b"\x01\x00" + request)) == request
    others = (b"", b"NTLMSSP\0", b"\x6f\x00", b"\x60", offer(KERBEROS_OID))
    nested = der.wrap(0x60, der.wrap(der.OID, KERBEROS_OID) + b"\x01\x00" + offer(KERBEROS_OID))
    for token in (*others, nested):
        with pytest.raises(AuthenticationError):
            ap_request(token)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(KerberosUnavailable, match=r"pip install .*\[(kerberos|domain)\]"):
        KerberosInitiator(KerberosCredentials("host/here"), AuthLevel.CONNECT)
    with pytest.raises(KerberosUnavailable, match=r"pip install .*\[(kerberos|domain)\]"):
        KerberosKeys(tmp_path / "keytab", "", tmp_path / "replay")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_token_that_was_cut_is_refused(cut: int) -> None:
    for whole, read in (
        (offer(NTLM_OID), NegTokenInit),
        (NegTokenResp(NegState.REJECT, token=b"x" * 9).pack(), NegTokenResp),
    ):
        with pytest.raises(AuthenticationError, match="DER"):
            read.unpack(whole[:-cut])


def test_nothing_is_protected_before_a_mechanism_is_chosen() -> None:
    with pytest.raises(LocalProtocolError, match="no mechanism has been chosen"):
        SpnegoAcceptor([], AuthLevel.PKT_PRIVACY).protection.sign(b"x")
