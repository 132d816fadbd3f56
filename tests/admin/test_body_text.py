"""Detection and display of body formats."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from openmsmq.admin.body_text import HEX_LINES, show
from openmsmq.admin.message_json import from_json, to_json
from openmsmq.cli.showing import show_message
from openmsmq.model.message import Message

NRBF_STRING = bytes.fromhex("0001000000FFFFFFFF01000000000000000601000000054865 6C6C6F0B")


@pytest.mark.parametrize(
    ("body", "kind", "text", "value"),
    [
        (b"", "empty", "", ""),
        (b"hello\r\n", "text", "hello\n", "hello\r\n"),
        ("grün".encode(), "text", "grün", "grün"),
        ("\ufeffmarked".encode(), "text", "marked", "marked"),
        ("hello".encode("utf-16-le"), "text", "hello", "hello"),
        ("\ufeff日本語".encode("utf-16-le"), "text", "日本語", "日本語"),
        ("\ufeffhi".encode("utf-16-be"), "text", "hi", "hi"),
        (b'{"a": [1, 2.5, null]}', "json", '{\n  "a": [\n    1,\n    2.5,\n    null\n  ]\n}', {"a": [1, 2.5, None]}),
        (b"[broken", "text", "[broken", "[broken"),
        (b"[" * 100_000, "text", "[" * 100_000, "[" * 100_000),
        (b'<?xml version="1.0"?>\r\n<string>hi</string>', "xml", "<string>hi</string>", None),
        ("<?xml version='1.0' encoding='utf-16'?><a><b>ä</b></a>".encode("utf-16"), "xml",
         "<a>\n  <b>ä</b>\n</a>", None),
        (b"<a>\n   <b/>\n</a>", "xml", "<a>\n  <b/>\n</a>", None),
        (b"<p>one <b>two</b></p>", "xml", None, None),
        (b"<not xml", "text", "<not xml", None),
        (b'<!DOCTYPE a [<!ENTITY b "bomb">]><a>&b;</a>', "text", '<!DOCTYPE a [<!ENTITY b "bomb">]><a>&b;</a>', None),
        (NRBF_STRING, "nrbf", '"Hello"', "Hello"),
        (b"\x12\x34\x56\x79", "binary", "00000000  12 34 56 79                                       .4Vy", None),
    ],
)  # fmt: skip
def test_bodies_are_recognized(body: bytes, kind: str, text: str | None, value: Any) -> None:
    shown = show(Message(body=body))
    assert shown.kind == kind
    if text is not None:
        assert shown.text == text
    if value is not None or kind == "binary":
        assert shown.value == value


@pytest.mark.parametrize(
    ("value", "kind", "text", "in_json"),
    [
        ("text", "vt_bstr", "text", "text"),
        (42, "vt_i4", "42", 42),
        (1 << 40, "vt_i8", str(1 << 40), 1 << 40),
        (True, "vt_bool", "True", True),
        (1.5, "vt_r8", "1.5", 1.5),
        (float("nan"), "vt_r8", "nan", "nan"),
        (Decimal("1.25"), "vt_cy", "1.2500", "1.2500"),
        (UUID(int=7), "vt_clsid", str(UUID(int=7)), str(UUID(int=7))),
        (datetime(2024, 5, 6, tzinfo=UTC), "vt_date", "2024-05-06 00:00:00+00:00", "2024-05-06T00:00:00+00:00"),
    ],
)
def test_typed_bodies_are_their_values(value: Any, kind: str, text: str, in_json: Any) -> None:
    assert show(Message.of(value)) == (kind, text, in_json)


def test_a_body_that_is_not_of_its_type_is_dumped() -> None:
    assert show(Message(body=b"abc", body_type=3)).text.endswith("abc")


def test_damaged_dotnet_binary_says_what_is_wrong_and_is_dumped() -> None:
    shown = show(Message(body=NRBF_STRING[:-3]))
    assert shown.kind == "binary"
    first, dump = shown.text.splitlines()[:2]
    assert first.startswith("damaged .NET binary, at byte 23: 5 bytes expected")
    assert dump.startswith("00000000  00 01 00 00")


def test_a_long_dump_ends_with_the_length() -> None:
    lines = show(Message(body=bytes([0xFF]) * 3000)).text.splitlines()
    assert len(lines) == HEX_LINES + 1
    assert lines[-1] == "... 3000 bytes in all"


def test_no_message_text_controls_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    body = "\x1b]0;owned\x07\x9b31m\ud800".encode("utf-16-le", "surrogatepass")
    show_message(Message(body=body, body_type=8, label="\x1b[2J"), 0, False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x9b" not in shown and "\x07" not in shown
    assert "\\x1b[2J" in shown and "\\ud800" in shown


def test_json_has_both_the_decoded_body_and_the_bytes_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    for message in (
        Message(body=NRBF_STRING, label="m"), Message.of("half \ud800"), Message(body=struct.pack("<d", 1e300)),
    ):  # fmt: skip
        show_message(message, 0, True)
        document = json.loads(capsys.readouterr().out)
        assert document["decoded"]["kind"] == show(message).kind
        assert document["decoded"]["value"] == show(message).value
        assert from_json(document) == message
        assert "decoded" not in to_json(message)
