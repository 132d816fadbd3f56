"""Invalid input is cheap and gets a clear answer (I6): a fault, a bind_nak or the end of the connection."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc.accounts import acceptor
from rpc.test_connections import bound, initiator
from rpc.toys import BIG, ECHO, REVERSE, Pair, counter_random

from msrpc.rpc.assembly import Account, ReassemblyBudget
from msrpc.rpc.bind_pdus import AlterContext, Auth3, Bind, BindNak, PresentationContext, RejectReason
from msrpc.rpc.call_pdus import CoCancel, FaultPdu, Orphaned, RequestPdu, Response, Shutdown, decode_bytes
from msrpc.rpc.faults import (
    NCA_S_FAULT_REMOTE_NO_MEMORY,
    NCA_S_PROTO_ERROR,
    NCA_S_SERVER_TOO_BUSY,
    RPC_S_ACCESS_DENIED,
    RPC_S_PROTOCOL_ERROR,
)
from msrpc.rpc.pdu import NDR, PFC_FIRST_FRAG, PFC_LAST_FRAG, AuthLevel, AuthVerifier, PacketType, SyntaxId, frame
from msrpc.rpc.verification import SIGNATURE as TRAILER

CONTEXT = PresentationContext(0, ECHO, (NDR,))
PLAIN = RequestPdu(7, 0, REVERSE, b"abcd")


def patched(pdu: Any, offset: int, fmt: str, value: int) -> bytes:
    data = bytearray(pdu.pack())
    struct.pack_into(fmt, data, offset, value)
    return bytes(data)


def answers(pair: Pair) -> list[Any]:
    data, found = pair.server.data_to_send(), []
    while data:
        size = int.from_bytes(data[8:10], "little")
        found.append(decode_bytes(data[:size]))
        data = data[size:]
    return found


def fragment(flags: int, **changes: Any) -> bytes:
    fields = {"call_id": 7, "context_id": 0, "opnum": REVERSE, "stub": b"abcd", **changes}
    return RequestPdu(**fields, flags=flags).pack()


NEGOTIATE = initiator().step(b"")
FATAL_AFTER_BIND = {
    "frag_length below the header": patched(PLAIN, 8, "<H", 15),
    "frag_length zero": patched(PLAIN, 8, "<H", 0),
    "frag_length above the limit": patched(PLAIN, 8, "<H", 5841),
    "auth_length beyond the fragment": patched(PLAIN, 10, "<H", 60000),
    "auth_length that leaves no room for the header": patched(PLAIN, 10, "<H", 9),
    "request cut inside its header": patched(PLAIN, 8, "<H", 20)[:20],
    "object UUID flag without the bytes": patched(PLAIN, 3, "<B", 0x83),
    "another protocol version": patched(PLAIN, 0, "<B", 4),
    "another minor version": patched(PLAIN, 1, "<B", 1),
    "EBCDIC characters": patched(PLAIN, 4, "<B", 0x11),
    "VAX floats": patched(PLAIN, 5, "<B", 1),
    "unknown packet type": patched(PLAIN, 2, "<B", 99),
    "response sent to a server": Response(7, 0, b"").pack(),
    "fault sent to a server": FaultPdu(7, 5).pack(),
    "shutdown sent to a server": Shutdown().pack(),
    "bind_nak sent to a server": BindNak(7, 0).pack(),
    "middle fragment without a first one": fragment(0),
    "last fragment without a first one": fragment(PFC_LAST_FRAG),
    "first fragment twice": fragment(PFC_FIRST_FRAG) * 2,
    "opnum changes in mid-call": fragment(PFC_FIRST_FRAG) + fragment(PFC_LAST_FRAG, opnum=2),
    "context id changes in mid-call": fragment(PFC_FIRST_FRAG) + fragment(PFC_LAST_FRAG, context_id=3),
    "call id of a call that waits": fragment(3, opnum=2) + fragment(3),
    "fragmented bind": Bind(7, (CONTEXT,), flags=PFC_FIRST_FRAG).pack(),
    "bind with more contexts than fit": patched(Bind(7, (CONTEXT,)), 24, "<B", 50),
    "bind with too many contexts": patched(Bind(7, (CONTEXT,)), 24, "<B", 255),
    "bind with too many transfer syntaxes": patched(Bind(7, (CONTEXT,)), 30, "<B", 255),
    "auth3 that nothing waits for": Auth3(7, AuthVerifier(10, 5, 1, NEGOTIATE)).pack(),
    "auth3 without a verifier": patched(Auth3(7, AuthVerifier(10, 5, 1, b"")), 10, "<H", 0),
    "auth padding that exceeds the body": patched(Auth3(7, AuthVerifier(10, 5, 1, b"x" * 16)), 22, "<B", 255),
}


@pytest.mark.parametrize("name", FATAL_AFTER_BIND)
@pytest.mark.parametrize("chunk", [0, 1])
def test_a_meaningless_pdu_ends_the_connection_with_a_fault(name: str, chunk: int) -> None:
    pair = bound(chunk=chunk)
    pair.serve(FATAL_AFTER_BIND[name])
    found = answers(pair)
    assert len(pair.ended) == 1
    assert len(found) <= 1 + len(pair.toys[0].calls)
    for pdu in found:
        if isinstance(pdu, FaultPdu):
            assert pdu.status == NCA_S_PROTO_ERROR
        else:
            assert isinstance(pdu, BindNak)
    pair.serve(PLAIN.pack())
    assert answers(pair) == []
    assert not pair.server.data_to_send()


@pytest.mark.parametrize(
    ("drep", "call_id"), [(0x10, 7), (0x11, 7), (0x00, 7 << 24), (0x01, 7 << 24)], ids=lambda value: f"{value:#x}"
)
def test_the_final_fault_has_the_call_id_in_the_byte_order_of_the_refused_pdu(drep: int, call_id: int) -> None:
    pair = bound()
    pair.serve(b"\5\1" + patched(PLAIN, 4, "<B", drep)[2:])
    (fault,) = answers(pair)
    assert (fault.call_id, fault.status) == (call_id, NCA_S_PROTO_ERROR)


@pytest.mark.parametrize("drep", [0x10, 0x00])
def test_a_bind_of_another_version_is_rejected_and_an_auth3_gets_no_reply(drep: int) -> None:
    pair = Pair()
    pair.serve(b"\4" + patched(Bind(7, (CONTEXT,)), 4, "<B", drep)[1:])
    (nak,) = answers(pair)
    assert (nak.call_id, nak.reason) == (7 if drep else 7 << 24, RejectReason.PROTOCOL_VERSION_NOT_SPECIFIED)
    pair = bound()
    pair.serve(patched(Auth3(7, AuthVerifier(10, 5, 1, NEGOTIATE)), 0, "<B", 4))
    assert answers(pair) == [] and len(pair.ended) == 1


@pytest.mark.parametrize(("body", "versions"), [("0400", ()), ("040000", ()), ("04000205010500", ((5, 1), (5, 0)))])
def test_a_bind_nak_may_lack_the_versions(body: str, versions: tuple[tuple[int, int], ...]) -> None:
    nak = decode_bytes(frame(PacketType.BIND_NAK, 3, 7, bytes.fromhex(body)))
    assert isinstance(nak, BindNak)
    assert (nak.call_id, nak.reason, nak.versions) == (7, 4, versions)


@pytest.mark.parametrize(
    "pdu",
    [PLAIN, AlterContext(7, (CONTEXT,)), Auth3(7, AuthVerifier(10, 5, 1, NEGOTIATE))],
    ids=lambda p: type(p).__name__,
)
def test_nothing_is_served_before_a_bind(pdu: Any) -> None:
    pair = Pair()
    pair.serve(pdu.pack())
    assert len(pair.ended) == 1
    assert not pair.toys[0].calls


def test_cancel_and_orphaned_for_calls_that_do_not_exist_are_ignored() -> None:
    pair = bound()
    pair.serve(CoCancel(99).pack() + Orphaned(99).pack() + PLAIN.pack())
    assert [type(a) for a in answers(pair)] == [Response]


def test_fragments_that_never_end_are_bounded() -> None:
    pair = bound(max_call_size=10_000)
    first = fragment(PFC_FIRST_FRAG, stub=bytes(4000))
    pair.serve(first + fragment(0, stub=bytes(4000)) * 50)
    (fault,) = answers(pair)
    assert fault.status == NCA_S_FAULT_REMOTE_NO_MEMORY
    assert pair.server._memory.held == 0
    assert not pair.ended
    pair.serve(fragment(PFC_LAST_FRAG) + PLAIN.pack())
    assert [type(a) for a in answers(pair)] == [Response]


def test_the_bound_on_fragments_is_for_all_calls_of_the_connection_together() -> None:
    pair = bound(max_call_size=10_000)
    for call in range(10, 15):
        pair.serve(fragment(PFC_FIRST_FRAG, call_id=call, stub=bytes(4000)))
    assert [a.call_id for a in answers(pair)] == [12, 13, 14]
    assert pair.server._memory.held == 8000


def test_all_connections_together_are_bounded_and_give_back_what_they_held() -> None:
    budget = ReassemblyBudget(10_000)
    pairs = [bound() for _ in range(3)]
    for pair in pairs:
        pair.server._memory = Account(1_000_000, budget)
        pair.serve(fragment(PFC_FIRST_FRAG, stub=bytes(4000)))
    assert [bool(answers(pair)) for pair in pairs] == [False, False, True]
    assert budget.used == 8000
    pairs[0].serve(fragment(0))
    pairs[0].serve(fragment(PFC_LAST_FRAG))
    pairs[1].server.connection_lost()
    assert budget.used == 0
    pairs[2].serve(fragment(PFC_LAST_FRAG) + fragment(PFC_FIRST_FRAG, stub=bytes(4000)) + b"\xff" * 16)
    assert budget.used == 0


def test_more_unanswered_calls_than_allowed_are_refused_one_by_one() -> None:
    pair = bound(max_pending=3)
    for call in range(10, 15):
        pair.serve(fragment(3, call_id=call, opnum=2))
    assert [(a.call_id, a.status) for a in answers(pair)] == [(n, NCA_S_SERVER_TOO_BUSY) for n in (13, 14)]


def test_more_incomplete_calls_than_allowed_end_the_connection() -> None:
    pair = bound(max_pending=3)
    for call in range(10, 13):
        pair.serve(fragment(PFC_FIRST_FRAG, call_id=call))
    assert not pair.ended
    pair.serve(fragment(PFC_FIRST_FRAG, call_id=13))
    assert "more than 3 requests are incomplete" in pair.ended[0]


def test_a_call_may_have_the_longest_body_and_its_properties_and_no_more() -> None:
    for beyond, status in ((0, []), (1, [NCA_S_FAULT_REMOTE_NO_MEMORY])):
        pair = bound()
        call = pair.client.request(ECHO, BIG, b"".ljust((4 << 20) + (64 << 10) + beyond, b"\0"))
        assert [getattr(event, "status", None) for event in pair.exchange()] == (status or [None]), call


def test_presentation_and_security_contexts_are_bounded() -> None:
    pair = bound(max_contexts=4, max_security_contexts=2)
    for context_id in range(1, 8):
        pair.serve(AlterContext(7, (PresentationContext(context_id, ECHO, (NDR,)),)).pack())
    found = answers(pair)
    assert [getattr(a, "status", None) for a in found] == [None] * 3 + [RPC_S_PROTOCOL_ERROR] * 4
    assert {(a.context_id, a.cancel_count) for a in found[3:]} == {(0, 0)}
    for auth_context in range(5):
        verifier = AuthVerifier(10, 5, auth_context, NEGOTIATE)
        pair.serve(AlterContext(7, (CONTEXT,), verifier=verifier).pack())
    assert [getattr(a, "status", None) for a in answers(pair)] == [None] * 2 + [RPC_S_PROTOCOL_ERROR] * 3


@pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_the_level_may_not_sink_within_a_connection(level: AuthLevel) -> None:
    pair = bound(level)
    lower = AuthVerifier(10, AuthLevel.CONNECT, 1, b"\x01" + bytes(15))
    pair.serve(RequestPdu(7, 0, REVERSE, b"x" * 16, verifier=lower).pack())
    (fault,) = answers(pair)
    assert fault.status == RPC_S_ACCESS_DENIED
    assert not pair.toys[0].calls


def test_a_request_in_an_unknown_or_unfinished_security_context_is_refused() -> None:
    pair = bound(AuthLevel.PKT_INTEGRITY)
    pair.serve(AlterContext(7, (CONTEXT,), verifier=AuthVerifier(10, 5, 2, NEGOTIATE)).pack())
    answers(pair)
    for auth_context in (2, 3):
        pair.serve(RequestPdu(8, 0, REVERSE, b"x" * 16, verifier=AuthVerifier(10, 5, auth_context, bytes(16))).pack())
        (fault,) = answers(pair)
        assert fault.status == RPC_S_ACCESS_DENIED
    assert not pair.toys[0].calls


def test_the_security_context_of_a_later_fragment_must_be_that_of_the_first() -> None:
    pair = bound(AuthLevel.PKT_INTEGRITY)
    pair.client.max_xmit_frag = 128
    pair.client.request(ECHO, REVERSE, bytes(100))
    first = pair.client._out[0]
    pair.serve(first + RequestPdu(int.from_bytes(first[12:16], "little"), 0, REVERSE, b"x", flags=PFC_LAST_FRAG).pack())
    assert len(pair.ended) == 1
    assert not pair.toys[0].calls


SENSELESS = (
    b"x",
    b"NTLMSSP\0",
    b"NTLMSSP\0\x01\0\0\0\0\0\0\0",
    b"\x60\x80",
    b"\x60\x84\xff\xff\xff\xff" + bytes(20),
    b"\xa1\x02\x30\x00",
    bytes(200),
)


@pytest.mark.parametrize(
    ("auth_type", "reason"),
    [
        (16, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED),
        (10, RejectReason.INVALID_CHECKSUM),
        (9, RejectReason.INVALID_CHECKSUM),
    ],
)
def test_a_bind_with_an_invalid_token_is_refused(auth_type: int, reason: RejectReason) -> None:
    for token in SENSELESS:
        pair = Pair(acceptor=acceptor(counter_random()))
        pair.serve(Bind(3, (CONTEXT,), verifier=AuthVerifier(auth_type, 5, 1, token)).pack())
        (nak,) = answers(pair)
        assert (nak.call_id, nak.reason) == (3, reason)
        assert not pair.server.bound
        assert len(pair.associations) == 0


def test_authentication_padding_that_exceeds_the_stub_ends_the_connection() -> None:
    for level in (AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY):
        pair = bound(level)
        pair.serve(patched(RequestPdu(7, 0, 1, b"x", verifier=AuthVerifier(10, level, 1, bytes(16))), 27, "<B", 255))
        assert len(pair.ended) == 1
        assert not pair.toys[0].calls


def test_a_bind_of_another_protocol_version_is_told_which_one_is_spoken() -> None:
    pair = Pair()
    pair.serve(patched(Bind(3, (CONTEXT,)), 1, "<B", 1))
    (nak,) = answers(pair)
    assert (nak.reason, nak.versions) == (RejectReason.PROTOCOL_VERSION_NOT_SPECIFIED, ((5, 0),))


def test_a_peer_with_a_tiny_receive_buffer_is_refused() -> None:
    pair = Pair()
    pair.serve(Bind(3, (CONTEXT,), 5840, 20).pack())
    (nak,) = answers(pair)
    assert nak.reason == RejectReason.LOCAL_LIMIT_EXCEEDED


PCONTEXT = ECHO.pack() + NDR.pack()
FOREIGN = SyntaxId(ECHO.uuid, (9, 9)).pack() + NDR.pack()


@pytest.mark.parametrize(
    ("trailer", "stub"),
    [
        (TRAILER + struct.pack("<HHI", 0x4001, 4, 1), b"abcd"),
        (TRAILER + struct.pack("<HHI", 1, 4, 1) + struct.pack("<HH", 0x4002, 40) + PCONTEXT, b"abcd"),
        (TRAILER + struct.pack("<HH", 0x4002, 40) + FOREIGN, None),
        (TRAILER + struct.pack("<HH", 0xC007, 0), None),
        (TRAILER + struct.pack("<HH", 0x4007, 0), b"abcd"),
        (TRAILER + struct.pack("<HH", 0x0007, 0), b"abcd" + TRAILER + struct.pack("<HH", 0x0007, 0)),
        (TRAILER + struct.pack("<HH", 0x4007, 400), b"abcd" + TRAILER + struct.pack("<HH", 0x4007, 400)),
        (b"xx" + TRAILER, b"abcdxx" + TRAILER),
    ],
)
def test_a_verification_trailer_is_checked_and_taken_off(trailer: bytes, stub: bytes | None) -> None:
    pair = bound(AuthLevel.PKT_PRIVACY)
    pair.client.request(ECHO, REVERSE, b"abcd" + trailer)
    pair.exchange()
    assert [call.stub for call in pair.toys[0].calls] == ([] if stub is None else [stub])
    assert not pair.ended


def test_a_header_trailer_must_repeat_the_header() -> None:
    for opnum, served in ((REVERSE, 1), (REVERSE + 1, 0)):
        pair = bound(AuthLevel.PKT_INTEGRITY)
        header2 = struct.pack("<HHBBH4sIHH", 0x4003, 16, 0, 0, 0, b"\x10\0\0\0", pair.client._call_id + 1, 0, opnum)
        pair.client.request(ECHO, REVERSE, b"abcd" + TRAILER + header2)
        pair.exchange()
        assert len(pair.toys[0].calls) == served


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_end_in_an_answer_or_the_end_and_never_in_an_exception(data: st.DataObject) -> None:
    """Valid conversations with changed, deleted and inserted bytes; input in one piece and in single bytes agree."""
    samples = [Bind(1, (CONTEXT,)).pack(), PLAIN.pack(), CoCancel(7).pack(), Orphaned(7).pack()]
    samples += FATAL_AFTER_BIND.values()
    samples.append(Bind(1, (CONTEXT,), verifier=AuthVerifier(10, 5, 1, NEGOTIATE)).pack())
    stream = bytearray(b"".join(data.draw(st.lists(st.sampled_from(samples), max_size=5))))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(stream)))
        stream[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    outcomes = []
    for chunk in (0, 1):
        pair = bound(AuthLevel.PKT_INTEGRITY, chunk=chunk)
        pair.answering = False  # the time of a reply depends on when events are read
        pair.serve(bytes(stream))
        outcomes.append((pair.server.data_to_send(), pair.ended, [c.stub for c in pair.toys[0].calls]))
    assert outcomes[0] == outcomes[1]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_client_survives_any_answer(data: st.DataObject) -> None:
    pair = bound()
    call = pair.client.request(ECHO, REVERSE, b"abc")
    pair.client.data_to_send()
    good = [Response(call, 0, b"cba").pack(), FaultPdu(call, 5).pack(), Shutdown().pack(), BindNak(call, 1).pack()]
    good.append(Response(call, 0, b"c", flags=PFC_FIRST_FRAG).pack())
    stream = bytearray(b"".join(data.draw(st.lists(st.sampled_from(good), max_size=4))))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(stream)))
        stream[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    pair.client.receive_data(bytes(stream))


def test_an_orphaned_call_gives_back_the_fragments_that_had_come() -> None:
    pair = bound()
    pair.serve(fragment(PFC_FIRST_FRAG, stub=bytes(4000)))
    assert pair.server._memory.held == 4000
    pair.serve(Orphaned(7).pack())
    assert pair.server._memory.held == 0
    pair.serve(fragment(PFC_FIRST_FRAG) + fragment(PFC_LAST_FRAG))
    assert [type(a) for a in answers(pair)] == [Response]


def test_a_late_fragment_of_an_orphaned_call_is_ignored() -> None:
    """[MS-RPCE] 3.3.3.5.6."""
    pair = bound()
    pair.serve(fragment(PFC_FIRST_FRAG) + Orphaned(7).pack() + fragment(0) + fragment(PFC_LAST_FRAG))
    assert not pair.ended and not answers(pair)
    pair.serve(fragment(PFC_FIRST_FRAG) + fragment(PFC_LAST_FRAG))
    assert [type(a) for a in answers(pair)] == [Response]


def test_a_fragment_of_a_call_that_never_began_ends_the_connection() -> None:
    pair = bound()
    pair.serve(fragment(0))
    assert pair.ended


@pytest.mark.parametrize(("auth_type", "level"), [(10, AuthLevel.PKT_PRIVACY), (9, AuthLevel.PKT_INTEGRITY)])
def test_the_authentication_stays_what_it_was_between_two_legs(auth_type: int, level: AuthLevel) -> None:
    pair = Pair(acceptor=acceptor(counter_random()))
    pair.serve(Bind(1, (CONTEXT,), verifier=AuthVerifier(10, AuthLevel.PKT_INTEGRITY, 1, NEGOTIATE)).pack())
    assert not pair.ended
    pair.serve(AlterContext(2, (CONTEXT,), verifier=AuthVerifier(auth_type, level, 1, NEGOTIATE)).pack())
    assert pair.ended == ["the auth type or level changed between two legs"]
