"""Editing of messages before they are sent again."""

from __future__ import annotations

import pytest

from openmsmq.admin.editing import MessageEdits, document, edited
from openmsmq.model.constants import INFINITE, VarType
from openmsmq.model.message import Message

TEXTS = [
    Message.of("grüße\n"),
    Message("a\0".encode("utf-16-le"), body_type=VarType.VT_LPWSTR),
    Message(b"latin \xe9\0", body_type=VarType.VT_LPSTR),
    Message("<a>ü</a>".encode()),
    Message(b""),
]


@pytest.mark.parametrize("message", TEXTS, ids=lambda m: str(m.body_type))
def test_a_document_that_nobody_changes_is_the_same_message(message: Message) -> None:
    assert "text" in document(message)
    assert edited(message, document(message)) == message


@pytest.mark.parametrize(
    "message", [Message(b"\xff\xfe\x00"), Message.of(42), Message(b"\xff\xff\x01", body_type=VarType.VT_BSTR)]
)
def test_binary_bodies_are_kept(message: Message) -> None:
    assert "text" not in document(message)
    assert edited(message, document(message)) == message


def test_label_text_and_times_are_changed() -> None:
    changed = edited(TEXTS[0], {**document(TEXTS[0]), "label": "new", "text": "ok", "time_to_be_received": 5})
    assert (changed.label, changed.decode(), changed.time_to_be_received) == ("new", "ok", 5)
    assert document(TEXTS[0])["time_to_reach_queue"] is None and TEXTS[0].time_to_reach_queue == INFINITE


@pytest.mark.parametrize(
    ("values", "said"),
    [({"identifier": "00"}, "can't be changed"), ({"text": 1}, "allowed: text"), ({"body": "?"}, "body")],
)
def test_unchangeable_properties_are_reported(values: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        edited(TEXTS[0], values)


def test_options_change_what_they_name() -> None:
    message = MessageEdits(label="l", body="new", priority=7, time_to_be_received=9).apply(TEXTS[3])
    assert (message.label, message.body, message.priority, message.time_to_be_received) == ("l", b"new", 7, 9)
    assert MessageEdits(body=b"\xff").apply(TEXTS[0]).body == b"\xff"
    assert MessageEdits().apply(TEXTS[0]) == TEXTS[0]
    with pytest.raises(ValueError, match="the body is a int, not text"):
        MessageEdits(body="x").apply(Message.of(42))
