from __future__ import annotations

import json
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.admin.json_bytes import json_bytes
from openmsmq.model.errors import QueueNotFound
from openmsmq.model.text import as_unicode, counted, json_line, printable, printable_json, some_of

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202egnp\u2066\u200b\u200f\u2028\u2029\ud800\x7f\r\nid: forged"
_DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn", "Co"}


def dangerous(text):
    return [c for c in text if unicodedata.category(c) in _DANGEROUS]


def test_control_and_invisible_characters_are_escaped():
    shown = printable(HOSTILE)
    assert not dangerous(shown)
    assert shown.startswith(r"\x1b]0;owned\x07\x9b31m\u202egnp\u2066\u200b\u200f\u2028\u2029\ud800\x7f\r\n")


@pytest.mark.parametrize("text", ["", "plain", "Grüße, 東京\u3000都", "[bold]not markup[/bold]", "a\u00a0b", "😀"])
def test_harmless_text_is_unchanged(text):
    assert printable(text) == text


def test_line_breaks_are_kept_if_allowed():
    assert printable("a\r\nb\rc\td\x0b", multiline=True) == "a\nb\nc\td\\x0b"


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_passes_with_dangerous_characters(text):
    assert not dangerous(printable(text))
    assert set(dangerous(printable(text, multiline=True))) <= {"\n", "\t"}


@given(st.text(st.characters(exclude_categories=())))
def test_json_is_the_same_value_without_anything_dangerous(text):
    line = printable_json({"label": text})
    assert not dangerous(line)
    assert json.loads(line) == {"label": text}


@given(st.text(st.characters(exclude_categories=())))
def test_every_parser_accepts_a_line_of_json(text: str) -> None:
    line = json_line({"label": text})
    assert b"\n" not in line
    assert msgspec.json.decode(line) == {"label": as_unicode(text)}
    assert json_bytes({"label": text}) in (line, msgspec.json.encode({"label": as_unicode(text)}))


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert as_unicode("a\ud800b\udc00\U0001f600") == "a\ufffdb\ufffd\U0001f600"
    assert as_unicode("\ud83d\ude00") == "\U0001f600"


def test_indented_json_has_line_breaks_and_nothing_else_that_is_dangerous() -> None:
    text = printable_json({"label": HOSTILE}, indent=1)
    assert dangerous(text) == ["\n", "\n"] and json.loads(text) == {"label": HOSTILE}


def test_an_error_message_is_one_line_whatever_its_detail_holds():
    error = QueueNotFound(detail=HOSTILE)
    assert not dangerous(str(error))
    assert error.detail == HOSTILE


@pytest.mark.parametrize(
    ("given", "text"),
    [((0, "message"), "0 messages"), ((1, "message"), "1 message"), ((1200, "message"), "1,200 messages"),
     ((1, "entry", "entries"), "1 entry"), ((2, "entry", "entries"), "2 entries")],
)  # fmt: skip
def test_counts_have_singular_and_plural(given: tuple[Any, ...], text: str) -> None:
    assert counted(*given) == text


def test_very_many_names_make_no_long_text() -> None:
    assert some_of(["a", "b"]) == "a, b" and some_of([]) == ""
    names = dict.fromkeys(f"q{number}" for number in range(98_990))
    assert some_of(names, 3) == "q0, q1, q2 and 98,987 more" and len(some_of(names)) < 100
