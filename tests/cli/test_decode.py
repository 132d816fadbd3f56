"""`openmsmq decode`, with bytes sent by other implementations."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import CommandResult, invoke
from msrpc.rpc.bind_pdus import Bind, BindAck, ContextAnswer, PresentationContext
from msrpc.rpc.call_pdus import RequestPdu
from msrpc.rpc.pdu import NDR, NDR64, SyntaxId
from openmsmq.cli import captures, decoding
from openmsmq.cli.dissecting import find
from openmsmq.interfaces.ms_mqmp import qmcomm, rpc_QMOpenQueueInternal_Request
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT
from openmsmq.interfaces.ms_mqrr import R_OpenQueue_Request, RemoteRead, SectionBuffer
from openmsmq.model.text import is_visible
from openmsmq.packet import MessagePacket

VECTORS = Path(__file__).parents[1] / "vectors"
CONVERSATIONS = sorted([*(VECTORS / "pdu").glob("*.json"), *(VECTORS / "ntlm").glob("*.json")])
CLIENT, SERVER = ("10.0.0.1", 49152), ("10.0.0.2", 2103)


def pdus(name: str) -> list[dict[str, Any]]:
    return list(json.loads((VECTORS / "pdu" / f"{name}.json").read_text())["pdus"])


def conversation(name: str) -> str:
    return "".join(pdu["hex"] for pdu in pdus(name))


def found(ended: CommandResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.stdout.splitlines()]


# -- PDUs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_every_pdu_of_every_conversation_is_found(path: Path) -> None:
    sent = json.loads(path.read_text())["pdus"]
    findings = list(find(bytes.fromhex("".join(pdu["hex"] for pdu in sent))))
    assert [finding.heading.partition(",")[0].lower() for finding in findings] == [
        pdu["type"].replace("_", "") for pdu in sent
    ]


def test_a_call_has_its_interface_operation_and_fields() -> None:
    ended = invoke("decode", conversation("samba_plain"))
    assert 'context 0 = "qmcomm, fdb3a030-065f-11d1-bb9b-00a024ea5525 v1.0"' in ended.stdout
    assert ": qmcomm 31 R_QMGetRTQMServerPort\n  context_id = 0\n  fIP = " in ended.stdout


def test_big_endian_fields_are_read_as_such() -> None:
    bind, _, request, response, *_ = (pdu["hex"] for pdu in pdus("samba_bigendian"))
    asked, call, answer = found(invoke("decode", bind + request + response, "--json"))
    assert "big-endian" in asked["found"] and "big-endian" in call["found"]
    assert call["fields"] == {"context_id": 0, "fIP": 1}
    assert answer["fields"]["result"] == 2105


@pytest.mark.parametrize("has_answer", [True, False], ids=["answered", "bind alone"])
def test_calls_are_read_in_the_transfer_syntax_of_their_context(has_answer: bool) -> None:
    operation, interface = RemoteRead.operation("R_OpenQueue"), SyntaxId(RemoteRead.uuid, RemoteRead.version)
    sent = R_OpenQueue_Request(QUEUE_FORMAT(m_qft=3, m_pDirectID="OS:.\\private$\\q"), dwAccess=1)
    offers = ((NDR,), (NDR64, NDR) if has_answer else (NDR64,))
    data = Bind(1, tuple(PresentationContext(n, interface, syntaxes) for n, syntaxes in enumerate(offers))).pack()
    if has_answer:
        data += BindAck(1, tuple(ContextAnswer(0, 0, syntax) for syntax in (NDR, NDR64))).pack()
    data += RequestPdu(2, 0, operation.opnum, operation.encode_request(sent)).pack()
    data += RequestPdu(3, 1, operation.opnum, operation.ndr64.encode_request(sent)).pack()
    *_, narrow, wide = find(data)
    assert narrow.fields | {"context_id": 1} == wide.fields
    assert wide.fields["pQueueFormat"]["m_pDirectID"] == "OS:.\\private$\\q"
    assert wide.heading.endswith("R_OpenQueue in NDR64") and narrow.heading.endswith("R_OpenQueue")
    assert not narrow.error and not wide.error


def test_fragments_are_put_together() -> None:
    ended = invoke("decode", conversation("wine_send_9000"), "--json")
    first, last = (
        each for each in found(ended) if "rpc_ACSendMessageEx" in each["found"] and "Request" in each["found"]
    )
    assert "more follow" in first["fields"]["fragment"]
    assert last["fields"]["ptb"]["old"]["Send"]["pResponseQueueFormat"]["m_pDirectID"].endswith("\\orders")


@pytest.mark.parametrize("order", ["", ".be"])
def test_a_stub_alone_is_read_as_the_operation_that_is_named(order: str) -> None:
    vector = json.loads((VECTORS / "ndr" / f"RemoteRead.rr_start.req.samba{order}.json").read_text())
    options = ["--operation", vector["method"], *(["--big-endian"] if order else [])]
    ended = invoke("decode", vector["stub_hex"], *options, "--json")
    (stub,) = found(ended)
    assert ended.code == 0 and stub["fields"]["ulTimeout"] == vector["args"]["ulTimeout"] > 0


def test_a_message_in_an_answer_is_shown_with_its_headers() -> None:
    vector = json.loads((VECTORS / "ndr" / "RemoteRead.rr_start_full.resp.samba.json").read_text())
    operation = RemoteRead.operation(vector["method"])
    response = operation.decode_response(bytes.fromhex(vector["stub_hex"]))
    packet = MessagePacket()
    packet.message.properties.label = "inside"
    data = packet.pack()
    response.ppPacketSections = [SectionBuffer(0, len(data), len(data), data)]
    stub = operation.encode_response(response).hex()
    (shown,) = found(invoke("decode", stub, "--operation", vector["method"], "--response", "--json"))
    (section,) = shown["fields"]["ppPacketSections"]
    assert section["pSectionBuffer"]["message packet"]["message"]["properties"]["label"] == "inside"


def test_sealed_calls_are_reported_as_sealed() -> None:
    path = next(path for path in (VECTORS / "ntlm").glob("*privacy*.json"))
    text = "".join(pdu["hex"] for pdu in json.loads(path.read_text())["pdus"])
    assert any("sealed" in each["fields"] for each in found(invoke("decode", text, "--json")))


def test_a_call_without_its_bind_needs_the_interface() -> None:
    request = pdus("samba_plain")[2]["hex"]
    ended = invoke("decode", request)
    assert ended.code == 1 and "ERROR the bind of context 0 is not in the input: give --interface" in ended.stdout
    ended = invoke("decode", request, "--interface", "qmcomm")
    assert ended.code == 0 and "qmcomm 31 R_QMGetRTQMServerPort" in ended.stdout


# -- message packets ---------------------------------------------------------------------------------------------------


def test_a_message_packet_has_its_headers(tmp_path: Path) -> None:
    text = (VECTORS / "packet" / "user-message.hex").read_text()
    file = tmp_path / "packet.hex"
    file.write_text(text + (b"a\0" * 1000 + bytes(2)).hex())
    ended = invoke("decode", "--file", str(file), "--json")
    (packet,) = found(ended)
    assert ended.code == 0
    assert packet["fields"]["message"]["properties"]["label"] == "mqsender label"
    assert packet["fields"]["message"]["user"]["destination"]["direct"] == "OS:a04bm02\\q"


def test_a_truncated_packet_is_shown_as_far_as_possible_and_fails() -> None:
    ended = invoke("decode", stdin=(VECTORS / "packet" / "user-message.hex").read_text())
    assert ended.code == 1 and 'label = "mqsender label"' in ended.stdout
    assert "ERROR MessagePropertiesHeader" in ended.stdout


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no bytes"),
        ("00112233", "neither a DCE/RPC PDU"),
        ("0500", "it is truncated: the bytes end before its end"),
        ("05000b03100000007400000001000000", "it is truncated: the bytes end before its end of 116"),
        ("05010b03100000007400000001000000", "protocol version 5.1, not 5.0"),
        ("05004203100000001000000001000000", "packet type 66 is not known"),
    ],
)
def test_unreadable_input_is_explained(text: str, said: str) -> None:
    ended = invoke("decode", text, stdin="")
    assert ended.code == 1 and f"ERROR {said}" in ended.stdout, ended


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("xyz",), "neither hexadecimal digits"),
        (("00", "--file", __file__), "HEX or --file"),
        (("00", "--response"), "need --operation"),
        (("00", "--operation", "rpc_Nothing"), "no interface has an operation 'rpc_Nothing'"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], said: str) -> None:
    ended = invoke("decode", *arguments)
    assert ended.code == 2 and said in ended.stderr


def test_text_from_the_network_is_escaped() -> None:
    evil = "OS:\x1b]0;owned\x07\u202e\n\\private$\\q"
    vector = json.loads((VECTORS / "ndr" / "qmcomm.open_private.req.samba.json").read_text())
    request = rpc_QMOpenQueueInternal_Request(
        QUEUE_FORMAT(m_qft=3, m_pDirectID=evil), 2, 0, 0, None, 0, bytes(16), evil, 0, 0
    )
    stub = qmcomm.operation(vector["method"]).encode_request(request).hex()
    for options in ((), ("--json",)):
        ended = invoke("decode", stub, "--operation", vector["method"], *options)
        assert ended.code == 0 and "owned" in ended.stdout
        assert all(is_visible(character) for line in ended.stdout.splitlines() for character in line)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    for start in (b"", bytes.fromhex("0500000310000000")):
        assert list(find(start + data))


# -- captures ----------------------------------------------------------------------------------------------------------


def tcp(source: tuple[str, int], destination: tuple[str, int], sequence: int, data: bytes, flags: int = 0x10) -> bytes:
    header = struct.pack(">HHIIBBHHH", source[1], destination[1], sequence, 0, 5 << 4, flags, 0, 0, 0)
    addresses = b"".join(bytes(map(int, end[0].split("."))) for end in (source, destination))
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0, 64, 6, 0) + addresses
    return bytes(12) + b"\x08\x00" + ip + header + data


def capture(packets: Iterable[bytes], order: str = "<", link_type: int = 1) -> bytes:
    head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    return head + b"".join(struct.pack(f"{order}IIII", 0, 0, len(each), len(each)) + each for each in packets)


def packets_of(name: str, piece: int = 700) -> list[bytes]:
    """Return the conversation as TCP segments."""
    at, made = {"client": 0xFFFFFF00, "server": 7}, []  # the client's sequence numbers wrap
    for pdu in pdus(name):
        data, ends = bytes.fromhex(pdu["hex"]), (CLIENT, SERVER) if pdu["direction"] == "client" else (SERVER, CLIENT)
        for start in range(0, len(data), piece):
            part = data[start : start + piece]
            made.append(tcp(*ends, at[pdu["direction"]] & 0xFFFFFFFF, part))
            at[pdu["direction"]] += len(part)
    return made


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_capture_has_what_its_connections_carried(tmp_path: Path, order: str) -> None:
    file = tmp_path / "capture.pcap"
    packets = packets_of("wine_send_9000")
    packets[3], packets[4] = packets[4], packets[3]  # two segments are reordered
    packets.insert(6, packets[5])  # one segment is retransmitted
    file.write_bytes(capture([*packets, b"\0" * 14 + b"no IP"], order))
    ended = invoke("decode", "--file", str(file))
    assert ended.code == 0, ended.stdout[-500:]
    assert "10.0.0.1:49152 to 10.0.0.2:2103: Request, call 1, little-endian, 3732 bytes: qmcomm2 1" in ended.stdout
    assert "10.0.0.2:2103 to 10.0.0.1:49152: Response, call 1" in ended.stdout


def test_a_segment_that_was_not_captured_is_missed(tmp_path: Path) -> None:
    file = tmp_path / "capture.pcap"
    packets = packets_of("wine_send_9000")
    del packets[4]
    file.write_bytes(capture(packets))
    ended = invoke("decode", "--file", str(file))
    assert ended.code == 1 and "ERROR 700 bytes are missing from the capture" in ended.stdout


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bytes.fromhex("0a0d0d0a") + bytes(40), "this is pcapng"),
        (capture([], link_type=105), "link type 105 is not supported"),
        (capture(packets_of("samba_plain"))[:-3], "the capture is truncated"),
        (capture([])[:20], "not a capture in the format of libpcap"),
    ],
)
def test_unreadable_captures_are_explained(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "capture.pcap"
    file.write_bytes(data)
    ended = invoke("decode", "--file", str(file))
    assert ended.code == 1 and said in ended.stdout


@pytest.mark.parametrize("tags", ["", "81000001", "88a8000181000002"])
def test_a_segment_in_a_virtual_network_is_read(tags: str) -> None:
    frame = tcp(CLIENT, SERVER, 7, b"data")
    [found] = captures.segments(capture([frame[:12] + bytes.fromhex(tags) + frame[12:]]))
    assert (found.source, found.sequence, found.data) == ("10.0.0.1:49152", 7, b"data")


@given(st.binary(max_size=300), st.sampled_from([1, 101, 113, 276]))
def test_no_packet_breaks_a_capture(data: bytes, link_type: int) -> None:
    assert all(piece.data or piece.error for piece in captures.pieces(capture([data], link_type=link_type)))


def test_a_segment_of_ipv6_ends_where_its_header_says() -> None:
    tcp = struct.pack(">HHIIBBHHH", 1801, 40000, 7, 0, 5 << 4, 0x18, 0, 0, 0) + b"data"
    packet = struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + bytes(32) + tcp
    for padding in (b"", b"padding of the link"):
        found = captures._segment(packet + padding, 101)
        assert found is not None and (found.sequence, found.data) == (7, b"data")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (9, "9"), (10, "10 (0xa)"), (0x80004005, "2147500037 (0x80004005)"), (-5, "-5"), (True, "True"),
        (None, "None"), (1.5, "1.5"), ("", '""'), ("a", '"a"'), (b"", "no bytes"), (b"\x01\xff", "01ff (2 bytes)"),
        (bytes(decoding._LONGEST), f"{'00' * decoding._LONGEST} ({decoding._LONGEST} bytes)"),
        (bytes(decoding._LONGEST + 1), f"{'00' * decoding._LONGEST}... ({decoding._LONGEST + 1} bytes)"),
        ([], "[]"),
    ],
)  # fmt: skip
def test_values_are_shown_with_what_a_reader_needs(value: object, shown: str) -> None:
    assert list(decoding._lines({"field": value}, 1)) == [f"  field = {shown}"]


def test_members_of_structures_and_lists_are_indented() -> None:
    values = {"a": {"b": [10, {"c": ""}]}, "d": 1}
    assert list(decoding._lines(values, 1)) == [
        "  a", "    b", "      [0] = 10 (0xa)", "      [1]", '        c = ""', "  d = 1",
    ]  # fmt: skip
