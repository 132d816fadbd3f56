"""Every recorded PDU can be parsed without loss."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from msrpc.errors import RemoteProtocolError
from msrpc.rpc.call_pdus import decode, decode_bytes
from msrpc.rpc.pdu import AuthLevel, PacketType
from msrpc.rpc.splitter import Splitter

VECTORS = Path(__file__).parents[2] / "vectors"
FILES = sorted([*(VECTORS / "pdu").glob("*.json"), *(VECTORS / "ntlm").glob("*.json")])


def pdus(path: Path) -> list[dict]:
    return json.loads(path.read_text())["pdus"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_recorded_pdu_parses_to_what_was_recorded(path: Path) -> None:
    for recorded in pdus(path):
        data = bytes.fromhex(recorded["hex"])
        pdu = decode_bytes(data)
        assert pdu.packet_type == PacketType[recorded["type"].upper()]
        if "call_id" in recorded:
            assert pdu.call_id == recorded["call_id"]
        if "opnum" in recorded and recorded["type"] == "request":
            assert pdu.opnum == recorded["opnum"]
        if "object_uuid" in recorded:
            assert str(pdu.object_uuid) == recorded["object_uuid"]
        verifier = recorded.get("auth_verifier")
        if verifier:
            assert (pdu.verifier.auth_type, pdu.verifier.level) == (verifier["auth_type"], verifier["auth_level"])
            assert pdu.verifier.context_id == verifier["auth_context_id"]
            assert len(pdu.verifier.padding) == verifier["auth_pad_length"]
            assert pdu.verifier.value.hex() == verifier["auth_value_hex"]
        if "plain_stub_hex" in recorded and not (verifier and verifier["auth_level"] == AuthLevel.PKT_PRIVACY):
            assert pdu.stub.hex() == recorded["plain_stub_hex"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_parsed_pdu_packs_to_the_bytes_it_came_from(path: Path) -> None:
    for recorded in pdus(path):
        data = bytes.fromhex(recorded["hex"])
        if data[4] != 0x10 or data[2] in (PacketType.FAULT, PacketType.BIND_ACK, PacketType.ALTER_CONTEXT_RESP):
            continue  # big-endian, or with fields that differ between implementations
        if data[2] == PacketType.RESPONSE and data[23]:
            continue
        assert decode_bytes(data).pack().hex() == data.hex()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_parsed_answer_to_a_bind_keeps_its_meaning_when_packed(path: Path) -> None:
    for recorded in pdus(path):
        pdu = decode_bytes(bytes.fromhex(recorded["hex"]))
        assert decode_bytes(pdu.pack()) == pdu


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_bytes_fed_one_at_a_time_give_the_same_pdus_as_all_at_once(path: Path) -> None:
    for direction in ("client", "server"):
        stream = b"".join(bytes.fromhex(p["hex"]) for p in pdus(path) if p["direction"] == direction)
        whole, single = Splitter(), Splitter()
        whole.feed(stream)
        expected = []
        while found := whole.next():
            expected.append(decode(*found))
        got = []
        for i in range(len(stream)):
            single.feed(stream[i : i + 1])
            while found := single.next():
                got.append(decode(*found))
        assert got == expected
        assert not single.partial


def test_a_pdu_that_is_cut_off_anywhere_is_a_typed_error() -> None:
    """Parsing a prefix with a corrected frag_length raises no other exception."""
    for path in FILES[:40:3]:
        for recorded in pdus(path)[:6]:
            data = bytes.fromhex(recorded["hex"])
            order = "little" if data[4] == 0x10 else "big"
            for length in range(16, len(data), 3):
                cut = bytearray(data[:length])
                cut[8:10] = length.to_bytes(2, order)
                with contextlib.suppress(RemoteProtocolError):
                    decode_bytes(bytes(cut))
