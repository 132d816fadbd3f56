"""NTLM: the examples of the specification, and input that must be refused."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc.accounts import NOW, SID, lookup

from msrpc.errors import AuthenticationError, LocalProtocolError
from msrpc.rpc.ntlm import (
    MAX_LIFETIME,
    NtlmAcceptor,
    NtlmInitiator,
    ServerNames,
    nt_hash,
    ntowf_v2,
)
from msrpc.rpc.ntlm_messages import (
    Authenticate,
    Challenge,
    Negotiate,
    NegotiateFlags,
    pack_av_pairs,
    unpack_av_pairs,
)
from msrpc.rpc.ntlm_session import NtlmSession
from msrpc.rpc.pdu import AuthLevel, AuthType
from msrpc.rpc.spnego import (
    NTLM_OID,
    LoginMechanism,
    NegState,
    NegTokenInit,
    NegTokenResp,
    SpnegoAcceptor,
    SpnegoInitiator,
)

KERBEROS_OID = bytes.fromhex("2a864886f712010202")
FLAGS = 0xE2088235
SERVER_CHALLENGE = bytes.fromhex("0123456789abcdef")

# [MS-NLMP] 4.2.4.3.
EXAMPLE_CHALLENGE = bytes.fromhex(
    "4e544c4d53535000020000000c000c003800000033828ae20123456789abcdef00000000000000002400240044000000"
    "060070170000000f53006500720076006500720002000c0044006f006d00610069006e0001000c005300650072007600"
    "6500720000000000"
)
EXAMPLE_AUTHENTICATE = bytes.fromhex(
    "4e544c4d535350000300000018001800"
    "6c00000054005400840000000c000c00"
    "48000000080008005400000010001000"
    "5c00000010001000d8000000358288e2"
    "0501280a0000000f44006f006d006100"
    "69006e00550073006500720043004f00"
    "4d005000550054004500520086c35097"
    "ac9cec102554764a57cccc19aaaaaaaa"
    "aaaaaaaa68cd0ab851e51c96aabc927b"
    "ebef6a1c010100000000000000000000"
    "00000000aaaaaaaaaaaaaaaa00000000"
    "02000c0044006f006d00610069006e00"
    "01000c00530065007200760065007200"
    "0000000000000000c5dad2544fc97990"
    "94ce1ce90bc9d03e"
)


def acceptor(**changes: Any) -> NtlmAcceptor:
    arguments = {"random": lambda n: SERVER_CHALLENGE, "now": lambda: NOW, **changes}
    return NtlmAcceptor(arguments.pop("lookup", lookup), ServerNames("RIG"), **arguments)


def initiator(user: str = "tester", password: str = "Passw0rd!", domain: str = "WORKGROUP") -> NtlmInitiator:
    return NtlmInitiator(user, password, domain, random=lambda n: b"\xaa" * n, now=lambda: NOW)


def test_the_specification_s_one_way_function() -> None:
    assert ntowf_v2(nt_hash("Password"), "User", "Domain").hex() == "0c868a403bfd7a93a3001ef22ef02e3f"


def test_the_specification_s_conversation_gives_its_session_key() -> None:
    users = {("Domain", "User"): (nt_hash("Password"), SID)}
    server = acceptor(lookup=lambda domain, user: users.get((domain, user)), now=lambda: 0)
    server.step(Negotiate(FLAGS).pack())
    assert server.step(EXAMPLE_AUTHENTICATE) == b""
    assert server.session.exported_session_key == b"\x55" * 16
    assert server.identity.user == "User"


def test_the_specification_s_challenge_is_answered_with_its_lm_response() -> None:
    client = NtlmInitiator("User", "Password", "Domain", random=lambda n: b"\xaa" * n, now=lambda: 0)
    client.step(b"")
    answer = Authenticate.unpack(client.step(EXAMPLE_CHALLENGE))
    assert answer.lm_response.hex() == "86c35097ac9cec102554764a57cccc19" + "aa" * 8


def test_the_specification_s_message_is_sealed_and_signed_as_it_says() -> None:
    session = NtlmSession(b"\x55" * 16, 0xE2888233, is_client=True)
    assert session.client_sealing_key.hex() == "59f600973cc4960a25480a7c196e4c58"
    assert session.client_signing_key.hex() == "4788dc861b4782f35d43fd98fe1a2d39"
    sealed, signature = session.wrap(b"", "Plaintext".encode("utf-16-le"), b"")
    assert sealed.hex() == "54e50165bf1936dc996020c1811b0f06fb5f"
    assert signature.hex() == "010000007fb38ec5c55d497600000000"


def test_both_sides_come_to_the_same_keys_and_protect_in_both_directions() -> None:
    client, server = initiator(), acceptor()
    server.step(client.step(server.step(client.step(b""))))
    assert client.session.exported_session_key == server.session.exported_session_key
    assert server.identity.sid == SID
    for _ in range(3):
        for sender, receiver in ((client, server), (server, client)):
            sealed, signature = sender.protection.wrap(b"head", b"body", b"tail")
            assert receiver.protection.unwrap(b"head", sealed, b"tail", signature) == b"body"
            receiver.protection.verify(b"plain", sender.protection.sign(b"plain"))


def test_a_replayed_or_reordered_message_does_not_verify() -> None:
    client, server = initiator(), acceptor()
    server.step(client.step(server.step(client.step(b""))))
    first = client.protection.sign(b"one")
    server.protection.verify(b"one", first)
    with pytest.raises(AuthenticationError):
        server.protection.verify(b"one", first)


def authenticate(client: NtlmInitiator, server: NtlmAcceptor) -> tuple[Authenticate, bytes]:
    token = client.step(server.step(client.step(b"")))
    return Authenticate.unpack(token), token


@pytest.mark.parametrize(
    "client",
    [initiator(password="wrong"), initiator(user="nobody"), initiator(password="")],
    ids=["wrong password", "unknown user", "empty password"],
)
def test_a_client_without_the_password_is_refused(client: NtlmInitiator) -> None:
    server = acceptor()
    _, token = authenticate(client, server)
    with pytest.raises(AuthenticationError):
        server.step(token)
    assert not server.complete
    with pytest.raises(LocalProtocolError):
        server.protection.sign(b"")


def test_a_client_that_computes_with_an_empty_domain_is_accepted() -> None:
    client, server = initiator(domain=""), acceptor()
    message, _ = authenticate(client, server)
    assert message.domain == ""
    server = acceptor()
    client = initiator(domain="")
    token = client.step(server.step(client.step(b"")))
    server.step(token)
    assert server.complete


@pytest.mark.parametrize("length", [0, 1, 24, 43])
def test_lm_and_ntlmv1_responses_are_refused(length: int) -> None:
    server = acceptor()
    message, _ = authenticate(initiator(), server)
    with pytest.raises(AuthenticationError, match="NTLMv2"):
        server.step(replace(message, nt_response=bytes(length), lm_response=bytes(24)).pack())


def test_a_client_needs_signing() -> None:
    client = initiator()
    client.step(b"")
    challenge = Challenge(FLAGS & ~NegotiateFlags.SIGN, SERVER_CHALLENGE, "RIG", pack_av_pairs(()))
    with pytest.raises(AuthenticationError, match="weak"):
        client.step(challenge.pack())


@pytest.mark.parametrize("kept", [0, NegotiateFlags.SIGN, NegotiateFlags.SEAL])
def test_a_missing_key_fails_only_signing_and_sealing(kept: int) -> None:
    """3.2.5.1.2: clients that neither sign nor seal also announce a key exchange, but send no key."""
    client, server = initiator(), acceptor(level=AuthLevel.CONNECT)
    negotiate = client.step(b"")
    challenge = server.step(negotiate)
    message = Authenticate.unpack(client.step(challenge))
    flags = message.flags & ~(NegotiateFlags.SIGN | NegotiateFlags.SEAL) | kept | NegotiateFlags.KEY_EXCH
    bare = replace(message, flags=flags, session_key=b"", mic=bytes(16)).pack()
    response_key = ntowf_v2(nt_hash("Passw0rd!"), "tester", "WORKGROUP")
    key = hmac.digest(response_key, message.nt_response[:16], "md5")
    mic = hmac.digest(key, negotiate + challenge + bare, "md5")
    token = bare[: Authenticate.MIC_OFFSET] + mic + bare[Authenticate.MIC_OFFSET + 16 :]
    if kept:
        with pytest.raises(AuthenticationError, match="no session key"):
            server.step(token)
    else:
        server.step(token)
        assert server.complete and server.session.exported_session_key == key


def test_a_checksum_is_encrypted_only_where_keys_are_exchanged() -> None:
    """3.4.4.2."""
    key, message = b"\x55" * 16, b"message"
    for flags in (FLAGS | NegotiateFlags.KEY_EXCH, FLAGS & ~NegotiateFlags.KEY_EXCH):
        session = NtlmSession(key, flags, is_client=True)
        plain = hmac.digest(session.client_signing_key, bytes(4) + message, "md5")[:8]
        signature = session.sign(message)
        assert signature[:4] + signature[12:] == b"\1\0\0\0" + bytes(4)
        assert (signature[4:12] == plain) is not bool(flags & NegotiateFlags.KEY_EXCH)


@pytest.mark.parametrize(
    "flag", [NegotiateFlags.KEY_128, NegotiateFlags.EXTENDED_SESSION_SECURITY, NegotiateFlags.UNICODE]
)
def test_weak_features_are_refused_on_both_sides(flag: int) -> None:
    with pytest.raises(AuthenticationError, match="weak"):
        acceptor().step(Negotiate(FLAGS & ~flag).pack())
    server = acceptor()
    message, _ = authenticate(initiator(), server)
    with pytest.raises(AuthenticationError, match="weak"):
        server.step(replace(message, flags=message.flags & ~flag).pack())
    client = initiator()
    client.step(b"")
    with pytest.raises(AuthenticationError, match="weak"):
        client.step(Challenge(FLAGS & ~flag, SERVER_CHALLENGE, "RIG", pack_av_pairs(())).pack())


@pytest.mark.parametrize(
    ("level", "flag"), [(AuthLevel.PKT, NegotiateFlags.SIGN), (AuthLevel.PKT_PRIVACY, NegotiateFlags.SEAL)]
)
def test_a_level_needs_the_features_it_uses(level: AuthLevel, flag: int) -> None:
    server = acceptor(level=level)
    message, _ = authenticate(initiator(), server)
    with pytest.raises(AuthenticationError):
        server.step(replace(message, flags=message.flags & ~flag).pack())


def test_a_changed_negotiation_does_not_match_the_mic() -> None:
    client, server = initiator(), acceptor()
    negotiate = client.step(b"")
    changed = Negotiate(Negotiate.unpack(negotiate).flags & ~NegotiateFlags.KEY_56).pack()
    with pytest.raises(AuthenticationError, match="MIC"):
        server.step(client.step(server.step(changed)))


def test_a_removed_mic_is_detected() -> None:
    server = acceptor()
    message, token = authenticate(initiator(), server)
    assert message.mic is not None
    with pytest.raises(AuthenticationError, match="MIC"):
        server.step(replace(message, mic=None).pack())
    server = acceptor()
    _, token = authenticate(initiator(), server)
    at = Authenticate.MIC_OFFSET
    with pytest.raises(AuthenticationError, match="MIC"):
        server.step(token[:at] + bytes(16) + token[at + 16 :])


def test_an_old_response_is_refused() -> None:
    for age, accepted in ((MAX_LIFETIME - 1, True), (MAX_LIFETIME + 1, False)):
        clock = iter((NOW, NOW + age))
        server = acceptor(now=lambda clock=clock: next(clock))
        _, token = authenticate(initiator(), server)
        if accepted:
            server.step(token)
        else:
            with pytest.raises(AuthenticationError, match="old"):
                server.step(token)


def anonymous_token(server: NtlmAcceptor) -> bytes:
    server.step(Negotiate(FLAGS).pack())
    return Authenticate(FLAGS | NegotiateFlags.ANONYMOUS, b"\0", b"", "", "", "", bytes(16), None).pack()


def test_an_anonymous_caller_is_recognized_where_that_is_allowed() -> None:
    server = acceptor(allow_anonymous=True)
    server.step(anonymous_token(server))
    assert server.identity.anonymous
    server.protection.verify(b"", NtlmSession(server.session.exported_session_key, FLAGS, is_client=True).sign(b""))
    server = acceptor()
    token = anonymous_token(server)
    with pytest.raises(AuthenticationError, match="anonymous"):
        server.step(token)


def test_a_fourth_leg_is_refused() -> None:
    client, server = initiator(), acceptor()
    token = client.step(server.step(client.step(b"")))
    server.step(token)
    for side in (client, server):
        with pytest.raises(AuthenticationError, match="NTLM has no further leg"):
            side.step(EXAMPLE_CHALLENGE)


@settings(max_examples=200)
@given(st.data())
def test_any_token_is_accepted_or_a_typed_error(data: st.DataObject) -> None:
    server, client = acceptor(), initiator()
    good = [client.step(b"")]
    good.append(acceptor().step(good[0]))
    good.append(client.step(good[1]))
    for make in (acceptor, spnego_acceptor, initiator, lambda: SpnegoInitiator(initiator())):
        side = make()
        for token in good:
            changed = bytearray(token)
            for _ in range(data.draw(st.integers(0, 3))):
                at = data.draw(st.integers(0, len(changed)))
                changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
            try:
                side.step(bytes(changed))
            except AuthenticationError:
                break
    assert not server.complete


@given(st.lists(st.tuples(st.integers(1, 10), st.binary(max_size=40)), max_size=10))
def test_av_pairs_read_back(pairs: list[tuple[int, bytes]]) -> None:
    assert unpack_av_pairs(pack_av_pairs(pairs)) == tuple(pairs)


def spnego_acceptor() -> SpnegoAcceptor:
    return SpnegoAcceptor(
        [LoginMechanism("ntlm", (NTLM_OID,), AuthType.WINNT, lambda level: acceptor())], AuthLevel.PKT_PRIVACY
    )


def mech_list(*oids: bytes) -> bytes:
    content = b"".join(b"\x06" + bytes((len(oid),)) + oid for oid in oids)
    return b"\x30" + bytes((len(content),)) + content


def test_spnego_with_another_mechanism_in_front_needs_a_mic_over_the_list() -> None:
    for with_mic in (True, False):
        server, client = spnego_acceptor(), initiator()
        offer = mech_list(KERBEROS_OID, NTLM_OID)
        answer = NegTokenResp.unpack(server.step(NegTokenInit(offer, b"a kerberos ticket").pack()))
        assert (answer.state, answer.mechanism) == (NegState.REQUEST_MIC, NTLM_OID)
        answer = NegTokenResp.unpack(server.step(NegTokenResp(token=client.step(b"")).pack()))
        token = client.step(answer.token)
        message = NegTokenResp(token=token, mic=client.protection.sign(offer) if with_mic else b"").pack()
        if not with_mic:
            with pytest.raises(AuthenticationError, match="protect"):
                server.step(message)
            continue
        answer = NegTokenResp.unpack(server.step(message))
        assert answer.state == NegState.ACCEPT_COMPLETED
        client.protection.verify(offer, answer.mic)
        client.reset_ciphers()
        server.protection.verify(b"request", client.protection.sign(b"request"))


def test_spnego_without_ntlm_or_with_a_wrong_mic_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="ntlm"):
        spnego_acceptor().step(NegTokenInit(mech_list(KERBEROS_OID), b"x").pack())
    client, server = SpnegoInitiator(initiator()), spnego_acceptor()
    token = NegTokenResp.unpack(client.step(server.step(client.step(b""))))
    with pytest.raises(AuthenticationError):
        server.step(replace(token, mic=bytes(16)).pack())


def test_spnego_without_a_mic_starts_at_sequence_number_zero() -> None:
    ntlm, server = initiator(), spnego_acceptor()
    offer = mech_list(NTLM_OID)
    challenge = NegTokenResp.unpack(server.step(NegTokenInit(offer, ntlm.step(b"")).pack()))
    answer = NegTokenResp.unpack(server.step(NegTokenResp(token=ntlm.step(challenge.token)).pack()))
    assert (answer.state, answer.mic) == (NegState.ACCEPT_COMPLETED, b"")
    server.protection.verify(b"request", ntlm.protection.sign(b"request"))


def test_bare_ntlm_is_accepted_where_spnego_is_expected() -> None:
    client, server = initiator(), spnego_acceptor()
    assert server.step(client.step(server.step(client.step(b"")))) == b""
    assert server.complete


@pytest.mark.parametrize(("length", "said"), [(43, "only NTLMv2"), (44, "wrong password")])
def test_a_response_without_pairs_is_long_enough_for_an_ntlmv2_one(length: int, said: str) -> None:
    """[MS-NLMP] 2.2.2.7: 16 bytes of proof and 28 more bytes precede the pairs."""
    message, _ = authenticate(initiator(), server := acceptor())
    response = (bytes(16) + b"\1\1" + bytes(26))[:length]
    with pytest.raises(AuthenticationError, match=said):
        server.step(replace(message, nt_response=response).pack())
