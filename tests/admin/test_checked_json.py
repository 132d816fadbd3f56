"""JSON that somebody else sent, as the types that are expected."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from openmsmq.admin.checked_json import ExactTime, Time, Unexpected, converted, parsed


class Inner(NamedTuple):
    name: str


class Outer(NamedTuple):
    at: Time
    inner: Inner
    words: list[str]
    later: Time | None


DOCUMENT = {"at": 1, "inner": {"name": "x", "more": 1}, "words": ["a"], "later": None, "unknown": {}}


def test_objects_become_what_is_expected_and_other_members_are_left_out() -> None:
    assert converted(DOCUMENT, Outer) == Outer(Time(1), Inner("x"), ["a"], None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"at": -1}, "at"), ({"at": 1.5}, "at"), ({"at": 253_402_300_800}, "at"), ({"at": True}, "at"),
        ({"inner": {}}, "name"), ({"inner": {"name": 1}}, "name"), ({"inner": []}, "inner"), ({"inner": None}, "inner"),
        ({"words": "a"}, "words"), ({"words": ["a", 1]}, "words"), ({"words": None}, "words"),
        ({"later": "1"}, "later"), ({"later": 1 << 70}, "later"), ({"later": False}, "later"),
    ],
)  # fmt: skip
def test_what_is_otherwise_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(Unexpected) as caught:
        converted(DOCUMENT | change, Outer)
    assert str(caught.value) == named


def test_a_member_that_is_missing_is_named() -> None:
    with pytest.raises(Unexpected, match=r"^at$"):
        converted({name: value for name, value in DOCUMENT.items() if name != "at"}, Outer)


@pytest.mark.parametrize(
    ("value", "wanted", "fits"),
    [
        (1, int, True), (1, float, True), (1.5, float, True), (1.5, int, False), (True, int, False), (1, bool, False),
        (True, bool, True), (1 << 64, int, False), (-(1 << 64), float, False), (None, str | None, True),
        ("", str | None, True), (1, str | None, False), ({}, dict[str, Any], True), ([], dict[str, Any], False),
        (1.5, ExactTime, True), (-0.5, ExactTime, False), ("1", ExactTime, False), (object, Any, True),
    ],
)  # fmt: skip
def test_values_are_held_to_their_types(value: Any, wanted: Any, fits: bool) -> None:
    if fits:
        assert converted(value, wanted) == value
    else:
        with pytest.raises(Unexpected):
            converted(value, wanted)


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_nothing(text: bytes) -> None:
    assert parsed(text) is None
