"""Choice of the transfer syntax of a presentation context, and calls in each ([MS-RPCE] 3.3.1.5.3, 3.3.1.5.6)."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from idl.idl_text import interface
from rpc.toys import ECHO, OTHER, REVERSE, Pair, Toy

from msrpc.errors import LocalProtocolError
from msrpc.rpc.bind_pdus import (
    FEATURES,
    KEEP_CONNECTION_ON_ORPHAN,
    SECURITY_CONTEXT_MULTIPLEXING,
    AlterContext,
    Bind,
    BindAck,
    ContextAnswer,
    ContextResult,
    PresentationContext,
    ProviderReason,
    feature_syntax,
)
from msrpc.rpc.call_pdus import FaultPdu, RequestPdu, Response, decode_bytes
from msrpc.rpc.client_connection import Bound, ClientConnection, ClientConnectionEnded
from msrpc.rpc.dispatcher import Dispatcher, SecurityPolicy
from msrpc.rpc.faults import NCA_S_PROTO_ERROR
from msrpc.rpc.pdu import NDR, NDR64, PFC_FIRST_FRAG, PFC_LAST_FRAG, SyntaxId
from msrpc.rpc.throttle import PeerFailures

ACCEPTED, REJECTED = ContextResult.ACCEPTANCE, ContextResult.PROVIDER_REJECTION
NOT_SUPPORTED = ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED
UNKNOWN = SyntaxId(UUID(int=1), (1, 0))


class PrefersNdr(Toy):
    """Supports both syntaxes and prefers NDR 2.0."""

    transfer_syntaxes = (NDR, NDR64)


class PrefersNdr64(Toy):
    """Supports both syntaxes and prefers NDR64."""

    transfer_syntaxes = (NDR64, NDR)


def answers(pair: Pair, *offers: tuple[SyntaxId, ...], kind: type[Bind] = Bind) -> list[tuple[int, int, SyntaxId]]:
    """Bind one interface; return (result, reason, transfer syntax) for each context."""
    contexts = tuple(PresentationContext(n, ECHO, syntaxes) for n, syntaxes in enumerate(offers))
    pair.server.receive_data(kind(1, contexts).pack())
    pdu = decode_bytes(pair.server.data_to_send())
    assert isinstance(pdu, BindAck)
    return [(answer.result, answer.reason, answer.transfer_syntax) for answer in pdu.answers]


YES, YES_64 = (ACCEPTED, 0, NDR), (ACCEPTED, 0, NDR64)
NO = (REJECTED, NOT_SUPPORTED, SyntaxId(UUID(int=0), (0, 0)))


@pytest.mark.parametrize(
    ("toy", "offers", "expected"),
    [
        (PrefersNdr, [(NDR64,)], [YES_64]),
        (PrefersNdr, [(NDR,), (NDR64,)], [YES, NO]),
        (PrefersNdr, [(NDR64,), (NDR,)], [NO, YES]),
        (PrefersNdr, [(NDR64, NDR)], [YES]),
        (PrefersNdr, [(UNKNOWN, NDR64)], [YES_64]),
        (PrefersNdr, [(UNKNOWN,), (NDR64,)], [NO, YES_64]),
        (PrefersNdr, [(NDR,), (NDR,)], [YES, YES]),
        (PrefersNdr, [(UNKNOWN,)], [NO]),
        (PrefersNdr64, [(NDR,), (NDR64,)], [NO, YES_64]),
        (PrefersNdr64, [(NDR,)], [YES]),
        (Toy, [(NDR64,)], [NO]),
        (Toy, [(NDR64,), (NDR,)], [NO, YES]),
    ],
)
def test_the_server_accepts_one_transfer_syntax_of_all_that_are_offered(
    toy: type[Toy], offers: Any, expected: Any
) -> None:
    pair = Pair(toy())
    assert answers(pair, *offers) == expected
    for number, (result, _, syntax) in enumerate(expected):
        assert (number in pair.server.contexts) == (result == ACCEPTED)
        assert result != ACCEPTED or pair.server.contexts[number].is_ndr64 == (syntax == NDR64)


def test_features_are_negotiated_beside_both_syntaxes() -> None:
    pair = Pair(PrefersNdr())
    found = answers(pair, (NDR64,), (NDR,), (feature_syntax(0xFF),))
    assert found[:2] == [NO, YES]
    assert found[2] == (ContextResult.NEGOTIATE_ACK, FEATURES, SyntaxId(UUID(int=0), (0, 0)))
    assert list(pair.server.contexts) == [1]


def test_a_rejected_syntax_may_be_proposed_again_by_alter_context() -> None:
    pair = Pair(PrefersNdr())
    assert answers(pair, (NDR,), (NDR64,)) == [YES, NO]
    assert answers(pair, (NDR,), (NDR64,), kind=AlterContext) == [YES, NO]
    contexts = (PresentationContext(7, ECHO, (NDR64,)),)
    pair.server.receive_data(AlterContext(2, contexts).pack())
    pair.server.data_to_send()
    assert [(n, context.is_ndr64) for n, context in pair.server.contexts.items()] == [(0, False), (7, True)]


ADD, ADDED = interface("""[uuid(12345678-1234-1234-1234-123456789abc), version(1.0), pointer_default(unique)]
    interface adder { long Add([in] long count, [in, size_is(count)] long *numbers, [out] hyper *sum); };""")


class Adder:
    name, uuid, version, minimum_level = "adder", ADD.uuid, ADD.version, 0
    open_opnums = frozenset([0])
    transfer_syntaxes = (NDR, NDR64)

    def accepts(self, opnum: int) -> bool:
        return opnum == 0

    def call(self, call: Any) -> None:
        operation = call.in_syntax(ADD.operations[0])
        request = operation.decode_request(call.stub, call.byte_order)
        call.reply(operation.encode_response(ADDED["Add_Response"](sum(request.numbers), 0)))


@pytest.mark.parametrize("pieces", [1, 3])
def test_each_context_of_a_connection_speaks_its_own_syntax(pieces: int) -> None:
    pair = Pair(Adder())  # type: ignore[arg-type]
    syntax = SyntaxId(ADD.uuid, ADD.version)
    for number, transfer in ((0, NDR), (1, NDR64)):
        pair.server.receive_data(Bind(1, (PresentationContext(number, syntax, (transfer,)),)).pack())
    pair.server.data_to_send()
    for call_id, (context, operation) in enumerate([(0, ADD.operations[0]), (1, ADD.operations[0].ndr64)] * 2, 1):
        stub = operation.encode_request(ADDED["Add_Request"](3, [20, 21, 1]))
        size = -(-len(stub) // pieces)
        parts = [stub[at : at + size] for at in range(0, len(stub), size)]
        for n, part in enumerate(parts):
            flags = (PFC_FIRST_FRAG if n == 0 else 0) | (PFC_LAST_FRAG if n == len(parts) - 1 else 0)
            for call in pair.server.receive_data(RequestPdu(call_id, context, 0, part, flags=flags).pack()):
                assert call.is_ndr64 == bool(context)  # type: ignore[union-attr]
                call.interface.call(call)  # type: ignore[union-attr]
        answer = decode_bytes(pair.server.data_to_send())
        assert isinstance(answer, Response)
        assert operation.decode_response(answer.stub) == ADDED["Add_Response"](42, 0)


def _big_endian_request(call_id: int, context_id: int, opnum: int, stub: bytes) -> bytes:
    head = struct.pack(">BBBBBBBBHHI", 5, 0, 0, 3, 0, 0, 0, 0, 24 + len(stub), 0, call_id)
    return head + struct.pack(">IHH", len(stub), context_id, opnum) + stub


def test_a_big_endian_request_in_ndr64_is_a_protocol_error_and_no_call() -> None:
    pair = Pair(PrefersNdr())
    answers(pair, (NDR64,))
    assert pair.server.receive_data(_big_endian_request(5, 0, REVERSE, b"abc")) == []
    fault = decode_bytes(pair.server.data_to_send())
    assert isinstance(fault, FaultPdu)
    assert (fault.call_id, fault.status) == (5, NCA_S_PROTO_ERROR)
    (call,) = pair.server.receive_data(RequestPdu(6, 0, REVERSE, b"abc").pack())
    assert call.is_ndr64  # type: ignore[union-attr]


def test_nothing_in_ndr64_is_served_together_with_other_calls() -> None:
    class BatchesReverse:
        def operations(self, interface: Any) -> list[int]:
            return [REVERSE]

    class Replies:
        def hold(self) -> None: ...
        def flush(self) -> None: ...

    pair = Pair(PrefersNdr(), PrefersNdr(OTHER))
    dispatcher = Dispatcher(SecurityPolicy(), PeerFailures(lambda: 0.0), Replies(), lambda call: None)
    dispatcher.together = BatchesReverse()  # type: ignore[assignment]
    contexts = (PresentationContext(0, ECHO, (NDR,)), PresentationContext(1, OTHER, (NDR64,)))
    pair.server.receive_data(Bind(1, contexts).pack())
    pair.server.data_to_send()
    caller = pair.server.default_caller
    assert caller is not None
    found = dispatcher.contexts_of(pair.server.contexts, caller)
    assert [(number, opnums) for number, (_, opnums) in found.items()] == [(0, [REVERSE]), (1, [])]
    (call,) = pair.server.receive_data(RequestPdu(2, 1, REVERSE, b"ab").pack())
    dispatcher.dispatch(call)  # type: ignore[arg-type]
    answer = decode_bytes(pair.server.data_to_send())
    assert isinstance(answer, Response)
    assert answer.stub == b"ba"


# --- the client -------------------------------------------------------------------------------------------------------


def bound(toy: Toy, *transfer_syntaxes: SyntaxId) -> tuple[ClientConnection, list[Any]]:
    pair = Pair(toy)
    pair.client.bind([ECHO], transfer_syntaxes=transfer_syntaxes)
    return pair.client, pair.exchange()


@pytest.mark.parametrize(
    ("toy", "offered", "spoken"),
    [
        (PrefersNdr, (NDR, NDR64), NDR),
        (PrefersNdr64, (NDR, NDR64), NDR64),
        (Toy, (NDR, NDR64), NDR),
        (PrefersNdr, (NDR64,), NDR64),
    ],
)
def test_a_client_speaks_what_the_server_accepts(toy: type[Toy], offered: Any, spoken: SyntaxId) -> None:
    client, events = bound(toy(), *offered)
    assert events == [Bound((ECHO,), ())]
    assert client.transfer_syntaxes == {ECHO: spoken}
    assert client.features == FEATURES


def test_a_client_without_a_common_syntax_is_not_bound() -> None:
    client, events = bound(Toy(), NDR64)
    assert events == [Bound((), (ECHO,))]
    assert not client.contexts and not client.transfer_syntaxes


def test_the_first_bind_of_a_client_tells_its_features_for_the_interface_before() -> None:
    client = ClientConnection()
    client.bind([ECHO], transfer_syntaxes=(NDR, NDR64))
    pdu = decode_bytes(client.data_to_send())
    assert isinstance(pdu, Bind)
    assert [context.abstract_syntax for context in pdu.contexts] == [ECHO] * 3
    assert [context.transfer_syntaxes for context in pdu.contexts] == [(NDR,), (NDR64,), (feature_syntax(3),)]
    raw = pdu.contexts[2].transfer_syntaxes[0]
    assert (str(raw.uuid), raw.version) == ("6cb71c2c-9812-4540-0300-000000000000", (1, 0))


def _client_of(reason: int | None) -> ClientConnection:
    """Return a client bound to a server with these features; None: the server does not negotiate features."""
    client = ClientConnection()
    client.bind([ECHO])
    client.data_to_send()
    known = ContextAnswer(REJECTED, NOT_SUPPORTED)
    if reason is not None:
        known = ContextAnswer(ContextResult.NEGOTIATE_ACK, reason)
    client.receive_data(BindAck(1, (ContextAnswer(ACCEPTED, 0, NDR), known)).pack())
    return client


@pytest.mark.parametrize("reason", [None, 0, KEEP_CONNECTION_ON_ORPHAN])
def test_a_client_has_one_security_context_where_the_server_does_not_take_several(reason: int | None) -> None:
    client = _client_of(reason)
    client._channels[1] = client._channels.get(1)  # type: ignore[assignment]
    with pytest.raises(LocalProtocolError, match="several security contexts"):
        client.bind([OTHER], auth_type=10, level=5, security=object())  # type: ignore[arg-type]


def test_of_the_features_of_a_server_a_client_keeps_those_that_it_has() -> None:
    assert _client_of(0xFFFF).features == SECURITY_CONTEXT_MULTIPLEXING | KEEP_CONNECTION_ON_ORPHAN
    assert _client_of(None).features == 0


def test_an_answer_in_another_number_of_contexts_ends_the_connection() -> None:
    client = ClientConnection()
    client.bind([ECHO], transfer_syntaxes=(NDR, NDR64))
    client.data_to_send()
    (event,) = client.receive_data(BindAck(1, (ContextAnswer(ACCEPTED, 0, NDR),)).pack())
    assert isinstance(event, ClientConnectionEnded)
    assert "1 results for 3 presentation contexts" in event.reason
