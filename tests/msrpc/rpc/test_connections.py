"""A client core and a server core joined in memory, at every authentication level, with input in any portions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc.accounts import NOW, SID, acceptor
from rpc.toys import BIG, ECHO, OTHER, REVERSE, WAIT, WHO, Pair, Toy, counter_random

from msrpc.errors import LocalProtocolError
from msrpc.rpc.association import Holder
from msrpc.rpc.bind_pdus import AlterContext, AlterContextResp, ContextResult, PresentationContext
from msrpc.rpc.call import Call
from msrpc.rpc.call_pdus import FaultPdu, decode_bytes
from msrpc.rpc.channel import fragments
from msrpc.rpc.client_connection import BindRefused, Bound, ClientConnectionEnded, FaultReceived, ResponseReceived
from msrpc.rpc.faults import NCA_S_FAULT_CANCEL, NCA_S_UNK_IF, RPC_S_ACCESS_DENIED
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.ntlm import NtlmInitiator
from msrpc.rpc.pdu import NDR, PFC_FIRST_FRAG, AuthLevel, AuthVerifier, PacketType, SyntaxId
from msrpc.rpc.spnego import SpnegoInitiator

LEVELS = [
    AuthLevel.NONE,
    AuthLevel.CONNECT,
    AuthLevel.PKT,
    AuthLevel.PKT_INTEGRITY,
    AuthLevel.PKT_PRIVACY,
]


def initiator(password: str = "Passw0rd!", spnego: bool = False) -> Any:
    ntlm = NtlmInitiator("tester", password, "WORKGROUP", random=counter_random(), now=lambda: NOW)
    return SpnegoInitiator(ntlm) if spnego else ntlm


def bound(level: AuthLevel = AuthLevel.NONE, *, spnego: bool = False, **arguments: Any) -> Pair:
    pair = Pair(Toy(), Toy(OTHER), acceptor=acceptor(counter_random()), **arguments)
    bind(pair, level, spnego=spnego)
    return pair


def bind(
    pair: Pair,
    level: AuthLevel,
    interface: SyntaxId = ECHO,
    *,
    password: str = "Passw0rd!",
    spnego: bool = False,
    again: bool = False,
) -> list[Any]:
    security = None if level == AuthLevel.NONE else initiator(password, spnego)
    auth_type = 0 if security is None else 9 if spnego else 10
    pair.client.bind([interface], auth_type=auth_type, level=level, security=security, again=again)
    return pair.exchange()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("spnego", [False, True])
@pytest.mark.parametrize(("fragment", "chunk"), [(0, 0), (128, 0), (140, 7), (0, 1)])
def test_calls_get_their_answers_at_every_level_and_fragment_size(
    level: AuthLevel, spnego: bool, fragment: int, chunk: int
) -> None:
    pair = bound(level, spnego=spnego, max_fragment=fragment, chunk=chunk)
    if fragment:
        pair.client.max_xmit_frag = fragment
    stubs = [bytes(range(n % 256)) * 3 for n in (0, 1, 7, 16, 40, 255)]
    calls = {pair.client.request(ECHO, REVERSE, stub): stub for stub in stubs}
    assert pair.exchange() == [ResponseReceived(call, stub[::-1]) for call, stub in calls.items()]
    call = pair.client.request(ECHO, WHO, b"")
    who = "||None" if level == AuthLevel.NONE else f"WORKGROUP|tester|{SID}"
    assert pair.exchange() == [ResponseReceived(call, f"{who}|{int(level)}|None".encode())]
    assert not pair.ended


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("chunk", [0, 1, 50])
def test_calls_to_objects_and_others_may_follow_each_other_in_one_segment(level: AuthLevel, chunk: int) -> None:
    pair = bound(level, chunk=chunk)
    targets = [UUID(int=1), None, UUID(int=2), UUID(int=3), None]
    calls = {pair.client.request(ECHO, WHO, b"", target): target for target in targets}
    who = "||None" if level == AuthLevel.NONE else f"WORKGROUP|tester|{SID}"
    named = {call: None if target is None else target.bytes_le for call, target in calls.items()}
    assert pair.exchange() == [
        ResponseReceived(call, f"{who}|{int(level)}|{target}".encode()) for call, target in named.items()
    ]
    assert not pair.ended


@settings(max_examples=60, deadline=None)
@given(
    level=st.sampled_from(LEVELS),
    stubs=st.lists(st.binary(max_size=3000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=8),
    fragment=st.integers(128, 2000),
)
def test_portions_and_fragments_of_any_size_change_nothing(
    level: AuthLevel, stubs: list[bytes], cuts: list[int], fragment: int
) -> None:
    pair = bound(level)
    pair.client.max_xmit_frag = fragment
    calls = [pair.client.request(ECHO, REVERSE, stub) for stub in stubs]
    data, at, turn = pair.client.data_to_send(), 0, 0
    while at < len(data):
        step = cuts[turn % len(cuts)]
        pair.serve(data[at : at + step])
        at, turn = at + step, turn + 1
    answers = pair.exchange()
    assert answers == [ResponseReceived(call, stub[::-1]) for call, stub in zip(calls, stubs, strict=True)]


@pytest.mark.parametrize("level", LEVELS)
def test_no_fragment_exceeds_what_the_peer_takes(level: AuthLevel) -> None:
    pair = bound(level, max_fragment=200)
    pair.client.request(ECHO, BIG, (5000).to_bytes(4, "little"))
    pair.serve(pair.client.data_to_send())
    data = pair.server.data_to_send()
    sizes = []
    while data:
        size = int.from_bytes(data[8:10], "little")
        sizes.append(size)
        data = data[size:]
    assert max(sizes) <= 200
    assert len(sizes) > 20


@pytest.mark.parametrize("spnego", [False, True])
@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_wrong_password_is_refused_at_the_bind_or_at_the_first_request(level: AuthLevel, spnego: bool) -> None:
    pair = Pair(acceptor=acceptor(counter_random()))
    events = bind(pair, level, spnego=spnego, password="wrong")
    if spnego:
        assert events == [BindRefused(RPC_S_ACCESS_DENIED)]
        return
    assert events == [Bound((ECHO,), ())]
    call = pair.client.request(ECHO, REVERSE, b"x")
    assert pair.exchange() == [FaultReceived(call, RPC_S_ACCESS_DENIED)]


def test_calls_of_several_fragments_may_interleave() -> None:
    pair = bound(AuthLevel.NONE)
    pair.client.max_xmit_frag = 128
    calls = []
    pieces = []
    for stub in (b"a" * 300, b"b" * 300, b"c" * 50):
        calls.append(pair.client.request(ECHO, REVERSE, stub))
        pieces.append(pair.client._out[:])
        pair.client._out.clear()
    while any(pieces):
        for queue in pieces:
            if queue:
                pair.serve(queue.pop(0))
    answers = pair.exchange()
    assert sorted(a.call_id for a in answers) == calls
    assert {a.call_id: a.stub for a in answers} == dict(zip(calls, (b"a" * 300, b"b" * 300, b"c" * 50), strict=True))


def test_numbers_of_calls_begin_again_at_one_and_skip_those_in_use() -> None:
    pair = bound()
    pair.answering = False
    waiting = [pair.client.request(ECHO, REVERSE, b"ab") for _ in range(2)]
    pair.exchange()
    pair.answering = True
    pair.client._call_id = 0x7FFFFFFE  # as after 2^31 - 2 calls
    taken = [pair.client.request(ECHO, REVERSE, b"ab") for _ in range(3)]
    assert taken == [0x7FFFFFFF, *(n for n in range(1, 6) if n not in waiting)][:3]
    assert pair.exchange() == [ResponseReceived(call, b"ba") for call in taken]


def test_a_fragment_is_the_last_one_if_nothing_is_left() -> None:
    for size, flags in [(0, [3]), (1, [3]), (16, [3]), (17, [1, 2]), (32, [1, 2]), (33, [1, 0, 2])]:
        made = fragments(PacketType.REQUEST, 0, 1, bytes(4), bytes(size), 16 + 4 + 4 + 16, None)
        assert [pdu[3] for pdu in made] == flags
        assert [int.from_bytes(pdu[16:20], "little") for pdu in made] == list(range(size, -(size == 0), -16))


def test_a_second_bind_with_the_same_context_id_starts_new_keys_and_sequence_numbers() -> None:
    pair = bound(AuthLevel.PKT_PRIVACY)
    call = pair.client.request(ECHO, REVERSE, b"one")
    assert pair.exchange() == [ResponseReceived(call, b"eno")]
    pair.client._channels.clear()  # the next context gets the same identifier
    assert bind(pair, AuthLevel.PKT_INTEGRITY, OTHER, again=True) == [Bound((OTHER,), ())]
    call = pair.client.request(OTHER, REVERSE, b"two")
    assert pair.exchange() == [ResponseReceived(call, b"owt")]


def test_alter_context_may_bring_a_further_security_context_and_both_stay_usable() -> None:
    pair = bound(AuthLevel.PKT_INTEGRITY)
    first = pair.client.channel
    assert bind(pair, AuthLevel.PKT_PRIVACY, OTHER) == [Bound((OTHER,), ())]
    assert pair.client.channel is not first
    for channel in (first, pair.client.channel, first, pair.client.channel):
        pair.client.channel = channel
        call = pair.client.request(ECHO, WHO, b"")
        (answer,) = pair.exchange()
        assert answer == ResponseReceived(call, f"WORKGROUP|tester|{SID}|{channel.level}|None".encode())


@pytest.mark.parametrize("spnego", [False, True])
def test_alter_context_may_repeat_the_last_leg_and_changes_nothing_of_the_security_context(spnego: bool) -> None:
    legs: list[bytes] = []
    pair = Pair(Toy(), Toy(OTHER), acceptor=acceptor(counter_random()))
    security = initiator(spnego=spnego)
    step = security.step
    security.step = lambda token: legs.append(step(token)) or legs[-1]
    auth_type = 9 if spnego else 10
    pair.client.bind([ECHO], auth_type=auth_type, level=AuthLevel.PKT_PRIVACY, security=security)
    pair.exchange()
    last = next(leg for leg in reversed(legs) if leg)
    contexts = (PresentationContext(7, OTHER, (NDR,)),)
    for level, token, accepted in (
        (AuthLevel.PKT_PRIVACY, last, True),
        (AuthLevel.PKT_INTEGRITY, last, False),
        (AuthLevel.PKT_PRIVACY, last + b"x", False),
    ):
        verifier = AuthVerifier(auth_type, level, pair.client.channel.context_id, token)
        pair.serve(AlterContext(90, contexts, verifier=verifier).pack())
        answer = decode_bytes(pair.server.data_to_send())
        if accepted:
            assert isinstance(answer, AlterContextResp)
            assert (answer.answers[0].result, answer.verifier) == (ContextResult.ACCEPTANCE, None)
        else:
            assert isinstance(answer, FaultPdu) and answer.status == RPC_S_ACCESS_DENIED
        call = pair.client.request(ECHO, REVERSE, b"abc")
        assert pair.exchange() == [ResponseReceived(call, b"cba")]


def test_alter_context_without_security_adds_an_interface() -> None:
    pair = bound(AuthLevel.PKT_PRIVACY)
    assert bind(pair, AuthLevel.NONE, OTHER) == [Bound((OTHER,), ())]
    call = pair.client.request(OTHER, REVERSE, b"abc")
    assert pair.exchange() == [ResponseReceived(call, b"cba")]


def test_a_cancelled_call_is_told_and_answers_in_its_own_time() -> None:
    pair = bound()
    call = pair.client.request(ECHO, WAIT, b"")
    assert pair.exchange() == []
    pair.client.cancel(call)
    assert pair.exchange() == [FaultReceived(call, NCA_S_FAULT_CANCEL)]
    pair.client.cancel(call)
    assert pair.exchange() == []
    assert len(pair.toys[0].cancelled) == 1


def test_an_orphaned_call_is_told_and_gets_no_answer() -> None:
    pair = bound()
    call = pair.client.request(ECHO, WAIT, b"")
    pair.exchange()
    pair.client.orphan(call)
    assert pair.exchange() == []
    assert len(pair.toys[0].cancelled) == 1
    assert pair.server.pending == 0


def test_a_call_that_is_orphaned_before_it_is_served_is_abandoned() -> None:
    pair = bound()
    orphaned, other = (pair.client.request(ECHO, REVERSE, b"text") for _ in range(2))
    pair.client.orphan(orphaned)
    events = pair.server.receive_data(pair.client.data_to_send())
    calls = {event.call_id: event for event in events if isinstance(event, Call)}
    assert calls[orphaned].abandoned and not calls[other].abandoned


def test_a_tampered_request_is_refused_and_ends_the_connection() -> None:
    for level in LEVELS[2:]:
        pair = bound(level)
        call = pair.client.request(ECHO, REVERSE, b"important")
        data = bytearray(pair.client.data_to_send())
        data[25] ^= 1
        pair.client.channel = None
        pair.client.request(ECHO, REVERSE, b"behind it")
        pair.serve(bytes(data) + pair.client.data_to_send())
        assert pair.exchange() == [FaultReceived(call, RPC_S_ACCESS_DENIED)]
        assert pair.ended
        assert not pair.toys[0].calls


def test_a_tampered_answer_ends_the_connection_at_the_client() -> None:
    for level in LEVELS[2:]:
        pair = bound(level)
        pair.client.request(ECHO, REVERSE, b"important")
        pair.serve(pair.client.data_to_send())
        data = bytearray(pair.server.data_to_send())
        data[25] ^= 1
        (event,) = pair.client.receive_data(bytes(data))
        assert isinstance(event, ClientConnectionEnded)


def test_an_unprotected_answer_to_a_protected_call_is_not_believed() -> None:
    pair = bound(AuthLevel.PKT_INTEGRITY)
    call = pair.client.request(ECHO, REVERSE, b"x")
    forged = bytes.fromhex("05000203100000001900000000000000010000000000000058")
    (event,) = pair.client.receive_data(forged[:12] + call.to_bytes(4, "little") + forged[16:])
    assert isinstance(event, ClientConnectionEnded)


def test_a_request_without_verifier_is_refused_where_all_that_was_bound_is_protected() -> None:
    pair = bound(AuthLevel.PKT_INTEGRITY)
    pair.client.channel = None
    call = pair.client.request(ECHO, WHO, b"")
    assert pair.exchange() == [FaultReceived(call, RPC_S_ACCESS_DENIED)]


def test_a_connection_joins_the_association_of_another_and_shares_its_handles() -> None:
    pair = bound()
    handles = pair.server.association.handles
    holder = Holder(pair.server.association, None, AuthLevel.NONE)
    handle = handles.create(holder, "queue", object())
    second = Pair(*pair.toys)
    second.server._binder._associations = second.server._associations = pair.associations
    second.client.assoc_group_id = pair.client.assoc_group_id
    second.client.bind([ECHO])
    assert second.exchange() == [Bound((ECHO,), ())]
    assert second.server.association is pair.server.association
    assert second.server.association.handles.get(holder, handle, "queue")
    for connection in (pair.server, second.server):
        assert len(handles) == 1
        connection.connection_lost()
        connection.leave()
    assert len(handles) == 0


def test_a_handle_for_a_client_that_is_gone_is_run_down_at_once() -> None:
    pair = bound()
    call = pair.client.request(ECHO, WAIT, b"")
    pair.exchange()
    (late,) = pair.toys[0].waiting
    assert late.call_id == call
    pair.server.connection_lost()
    pair.server.leave()
    pair.server.leave()
    rundowns: list[str] = []
    assert len(late.handles.create("queue", "q", rundowns.append)) == 20
    assert rundowns == ["q"]
    late.reply(b"nobody hears this")
    assert pair.server.data_to_send() == b""


def test_an_unknown_association_group_is_refused() -> None:
    pair = Pair()
    pair.client.assoc_group_id = 77
    pair.client.bind([ECHO])
    assert pair.exchange() == [BindRefused(0)]


def test_an_unknown_presentation_context_is_a_fault_and_the_connection_continues() -> None:
    pair = bound()
    pair.client.contexts[ECHO] = 40
    call = pair.client.request(ECHO, REVERSE, b"x")
    pair.client.contexts[ECHO] = 0
    good = pair.client.request(ECHO, REVERSE, b"ab")
    assert pair.exchange() == [FaultReceived(call, NCA_S_UNK_IF), ResponseReceived(good, b"ba")]


def test_a_list_of_a_hundred_thousand_names_is_received() -> None:
    """A queue manager has at most 100,000 queues. The longest names have 124 characters."""
    pair, stub = bound(), bytes(100_000 * (2 * 124 + 16))
    call = pair.client.request(ECHO, REVERSE, b"")
    events = [
        event
        for fragment in fragments(PacketType.RESPONSE, 0, call, bytes(4), stub, 5840, None)
        for event in pair.client.receive_data(fragment)
    ]
    assert events == [ResponseReceived(call, stub)]


@pytest.mark.parametrize("how", ["fault", "orphan"])
def test_an_undeliverable_reply_no_longer_counts(how: str) -> None:
    """After one fragment of a large reply, a fault arrives or the caller orphans the call."""
    pair = bound()
    pair.client.limits = RpcLimits(max_response_size=1000)
    for _ in range(3):
        call = pair.client.request(ECHO, REVERSE, b"")
        (whole,) = fragments(PacketType.RESPONSE, 0, call, bytes(4), b"x" * 600, 5840, None)
        begin = whole[:3] + bytes([PFC_FIRST_FRAG]) + whole[4:]
        assert pair.client.receive_data(begin) == []
        if how == "orphan":
            pair.client.orphan(call)
        else:
            fault = FaultPdu(call, RPC_S_ACCESS_DENIED)
            assert pair.client.receive_data(fault.pack()) == [FaultReceived(call, RPC_S_ACCESS_DENIED)]


def test_a_connection_that_has_ended_takes_no_requests() -> None:
    pair = bound()
    pair.client.receive_data(b"this is no PDU of the protocol")
    with pytest.raises(LocalProtocolError, match="has ended"):
        pair.client.request(ECHO, REVERSE, b"")
    with pytest.raises(LocalProtocolError, match="not bound"):
        bound().client.request(OTHER, REVERSE, b"")
