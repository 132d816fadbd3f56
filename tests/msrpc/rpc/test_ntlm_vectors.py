"""Replayed NTLM conversations give the recorded keys, signatures and plaintexts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msrpc.rpc.call_pdus import decode_bytes
from msrpc.rpc.channel import Channel
from msrpc.rpc.ntlm import NtlmAcceptor, ServerNames, nt_hash
from msrpc.rpc.ntlm_messages import Authenticate, Challenge, Negotiate
from msrpc.rpc.pdu import AuthType, Header
from msrpc.rpc.spnego import NTLM_OID, LoginMechanism, SpnegoAcceptor

VECTORS = Path(__file__).parents[2] / "vectors" / "ntlm"
FILES = sorted(VECTORS.glob("*.json"))
SID = "S-1-5-21-1-2-3-1000"
RECORDED_TIME = 0x01DC0731F1746000


def load(name: Path) -> dict:
    return json.loads(name.read_text())


def lookup(domain: str, user: str) -> tuple[bytes, str] | None:
    return (nt_hash("Passw0rd!"), SID) if (domain, user) == ("WORKGROUP", "tester") else None


def acceptor(recorded: dict, level: int) -> NtlmAcceptor:
    challenge = bytes.fromhex(recorded["server_challenge"])
    return NtlmAcceptor(lookup, ServerNames("RIG"), random=lambda n: challenge, now=lambda: RECORDED_TIME, level=level)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_recorded_conversation_replays_in_both_directions(path: Path) -> None:
    recorded = load(path)
    contexts = {c["after_pdu_index"]: c for c in recorded["security_contexts"]}
    channels: dict[int, tuple[Channel, Channel]] = {}
    checked = 0
    for index, item in enumerate(recorded["pdus"]):
        raw = bytes.fromhex(item["hex"])
        header, pdu = Header.unpack(raw), decode_bytes(raw)
        verifier = getattr(pdu, "verifier", None)
        if item["type"] in ("bind", "alter_context", "auth3") and verifier:
            known = channels.get(verifier.context_id)
            if known is None or known[0].context.complete:
                inner = acceptor(recorded, verifier.level)
                ntlm = LoginMechanism("ntlm", (NTLM_OID,), AuthType.WINNT, lambda level, made=inner: made)
                context = SpnegoAcceptor([ntlm], 0) if verifier.auth_type == 9 else inner
                channel = Channel(verifier.auth_type, verifier.level, verifier.context_id, context)
                channels[verifier.context_id] = channel, inner
            channel, inner = channels[verifier.context_id]
            token = channel.context.step(verifier.value)
            if item["type"] != "auth3":
                answer = recorded["pdus"][index + 1]["auth_verifier"]["auth_value_hex"]
                assert token.hex() == answer
        if index in contexts:
            expected = contexts[index]
            channel, inner = channels[expected["auth_context_id"]]
            session = inner.session
            assert session.exported_session_key.hex() == expected["ExportedSessionKey"]
            assert session.client_signing_key.hex() == expected["ClientSigningKey"]
            assert session.server_signing_key.hex() == expected["ServerSigningKey"]
            assert session.client_sealing_key.hex() == expected["ClientSealingKey"]
            assert session.server_sealing_key.hex() == expected["ServerSealingKey"]
            assert channel.context.identity.sid == SID
        if "plain_stub_hex" in item and verifier:
            channel = channels[verifier.context_id][0]
            start = 40 if header.flags & 0x80 and item["type"] == "request" else 24
            if item["direction"] == "client":
                assert channel.open(header, raw, start).hex() == item["plain_stub_hex"]
            else:
                flags, head = header.flags, raw[16:start]
                stub = bytes.fromhex(item["plain_stub_hex"])
                again = channel.close(header.packet_type, flags, header.call_id, head, stub)
                assert again.hex() == raw.hex()
            checked += 1
    assert checked or recorded["auth_level"] == "CONNECT"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_messages_of_a_recorded_conversation_parse(path: Path) -> None:
    recorded = load(path)
    for item in recorded["pdus"]:
        value = bytes.fromhex(item.get("auth_verifier", {}).get("auth_value_hex", ""))
        if value.startswith(b"NTLMSSP\0\x01"):
            Negotiate.unpack(value)
        elif value.startswith(b"NTLMSSP\0\x02"):
            assert Challenge.unpack(value).pack() == value
        elif value.startswith(b"NTLMSSP\0\x03"):
            message = Authenticate.unpack(value)
            assert (message.domain, message.user) == ("WORKGROUP", "tester")
