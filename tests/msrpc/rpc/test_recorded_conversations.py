"""Recorded connections replayed through the server core: its calls, bind results and responses equal the recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from rpc.accounts import NOW, SID, lookup

from msrpc.rpc.association import AssociationTable
from msrpc.rpc.bind_pdus import ContextResult
from msrpc.rpc.call import Call, InterfaceTable
from msrpc.rpc.call_pdus import decode_bytes
from msrpc.rpc.ntlm import ServerNames
from msrpc.rpc.pdu import AuthLevel, SyntaxId
from msrpc.rpc.server_connection import ServerConnection
from msrpc.rpc.spnego import acceptor as acceptor_of
from msrpc.rpc.spnego import ntlm_login

VECTORS = Path(__file__).parents[2] / "vectors"
NTLM = sorted((VECTORS / "ntlm").glob("*.json"))
PLAIN = [path for path in sorted((VECTORS / "pdu").glob("*.json")) if "trailer" not in path.name]


class Anything:
    """An interface with the given syntax that accepts all calls."""

    name = "anything"
    minimum_level = AuthLevel.NONE
    open_opnums: frozenset[int] = frozenset()

    def __init__(self, syntax: SyntaxId) -> None:
        self.uuid, self.version = syntax.uuid, syntax.version

    def accepts(self, opnum: int) -> bool:
        return True

    def call(self, call: Call) -> None:
        raise AssertionError("the conversations are replayed without a server behind the connection")


def offered(recorded: dict[str, Any]) -> InterfaceTable:
    """Return all interfaces that the recorded client binds."""
    pdus = [decode_bytes(bytes.fromhex(p["hex"])) for p in recorded["pdus"] if p["type"] in ("bind", "alter_context")]
    return InterfaceTable(Anything(context.abstract_syntax) for pdu in pdus for context in pdu.contexts)


def server(recorded: dict, group: int = 1) -> ServerConnection:
    challenge = bytes.fromhex(recorded.get("server_challenge", "00" * 8))
    acceptor = acceptor_of(ntlm_login(lookup, ServerNames("RIG"), random=lambda n: challenge, now=lambda: NOW))
    associations = AssociationTable(lambda n: group.to_bytes(n, "little"))
    return ServerConnection(offered(recorded), associations, acceptor=acceptor)


@pytest.mark.parametrize("path", NTLM, ids=lambda p: p.stem)
@pytest.mark.parametrize("chunk", [0, 1])
def test_an_authenticated_conversation_is_answered_with_the_recorded_bytes(path: Path, chunk: int) -> None:
    recorded = json.loads(path.read_text())
    groups = [decode_bytes(bytes.fromhex(p["hex"])).assoc_group_id for p in recorded["pdus"] if p["type"] == "bind_ack"]
    connection = server(recorded, groups[0])
    connection._binder._secondary_address = b""
    waiting: dict[int, Call] = {}
    calls = 0
    for item in recorded["pdus"]:
        raw = bytes.fromhex(item["hex"])
        if item["direction"] == "client":
            for portion in [raw[i : i + 1] for i in range(len(raw))] if chunk else [raw]:
                for event in connection.receive_data(portion):
                    assert isinstance(event, Call)
                    waiting[event.call_id] = event
            if item["type"] == "request" and item["call_id"] in waiting:
                call = waiting[item["call_id"]]
                assert call.caller.sid == SID
                assert call.caller.level == AuthLevel[recorded["auth_level"]]
                assert call.object_uuid == (UUID(item["object_uuid"]).bytes_le if "object_uuid" in item else None)
                assert call.opnum == item["opnum"]
                expected = item.get("stub_hex_without_trailer", item["plain_stub_hex"])
                assert call.stub.hex().endswith(expected[-200:])
                calls += 1
            continue
        if item["type"] == "response":
            pdu = decode_bytes(raw)
            call = waiting.pop(item["call_id"])
            call.reply(bytes.fromhex(item["plain_stub_hex"]))
            sent = connection.data_to_send()
            if pdu.flags & 3 == 3:
                assert sent.hex() == raw.hex()
        else:
            sent, kept = decode_bytes(connection.data_to_send()), decode_bytes(raw)
            assert (sent.packet_type, sent.call_id) == (kept.packet_type, kept.call_id)
            assert sent.verifier == kept.verifier
            ours, theirs = sent.answers, kept.answers
            # The recorded server did not advertise KeepConnectionOnOrphan; ours does on request.
            assert [a.result for a in ours] == [a.result for a in theirs]
    assert calls


@pytest.mark.parametrize("path", PLAIN, ids=lambda p: p.stem)
def test_a_conversation_without_security_is_understood(path: Path) -> None:
    recorded = json.loads(path.read_text())
    connection = server(recorded)
    stubs: dict[int, bytes] = {}
    for item in recorded["pdus"]:
        if item["direction"] != "client":
            continue
        raw = bytearray.fromhex(item["hex"])
        pdu = decode_bytes(bytes(raw))
        if item["type"] in ("bind", "alter_context"):
            order = "little" if raw[4] else "big"
            raw[20:24] = (connection.association.group_id if connection.association else 0).to_bytes(4, order)
        events = connection.receive_data(bytes(raw))
        if item["type"] == "request":
            stubs[pdu.call_id] = stubs.get(pdu.call_id, b"") + pdu.stub
        for event in events:
            assert isinstance(event, Call), event
            object_uuid = None if pdu.object_uuid is None else pdu.object_uuid.bytes_le
            assert (event.opnum, event.stub, event.object_uuid) == (pdu.opnum, stubs.pop(pdu.call_id), object_uuid)
            assert event.byte_order == ("<" if raw[4] else ">")
            event.reply(b"")
        answer = connection.data_to_send()
        if events or item["type"] != "request":
            assert answer
    assert not stubs


def test_feature_negotiation_is_acknowledged_with_the_features_that_both_have() -> None:
    recorded = json.loads((VECTORS / "pdu" / "samba_plain.json").read_text())
    connection = server(recorded)
    connection.receive_data(bytes.fromhex(recorded["pdus"][0]["hex"]))
    ack = decode_bytes(connection.data_to_send())
    results = [(a.result, a.reason) for a in ack.answers]
    offered = decode_bytes(bytes.fromhex(recorded["pdus"][0]["hex"])).contexts[1].transfer_syntaxes[0].uuid.bytes_le[8]
    assert results == [(ContextResult.ACCEPTANCE, 0), (ContextResult.NEGOTIATE_ACK, offered & 3)]
