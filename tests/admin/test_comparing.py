"""Comparisons of two queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openmsmq.admin.comparing import MOST_NAMED, OneSided, compare
from openmsmq.model.message import Message


def messages(labels: str) -> list[Message]:
    return [Message(label=label, body=label.encode()) for label in labels]


@pytest.mark.parametrize(
    ("left", "right", "both", "in_order", "left_only", "right_only"),
    [
        ("", "", 0, True, "", ""),
        ("abc", "abc", 3, True, "", ""),
        ("abc", "ac", 2, True, "b", ""),
        ("ac", "abc", 2, True, "", "b"),
        ("ab", "ba", 2, False, "", ""),
        ("aa", "aa", 2, True, "", ""),
        ("aba", "aab", 3, False, "", ""),
        ("abab", "abab", 4, True, "", ""),  # of equal messages the first is the first
        ("aab", "ab", 2, True, "a", ""),
        ("ab", "aab", 2, True, "", "a"),
        ("cba", "d", 0, True, "cba", "d"),
    ],
)
def test_equal_messages_are_paired_in_their_order(
    left: str, right: str, both: int, in_order: bool, left_only: str, right_only: str
) -> None:
    found = compare(messages(left), messages(right))
    assert (found.left, found.right, found.both, found.in_order) == (len(left), len(right), both, in_order)
    assert [each.label for each in found.left_only] == list(left_only)
    assert [each.label for each in found.right_only] == list(right_only)
    assert found.are_equal is (left == right)


def test_of_messages_that_differ_the_first_are_named_on_each_side() -> None:
    message = Message(label="m", sent_time=7, body=b"four")
    left = [replace(message, identifier=b"l" * 16 + n.to_bytes(4, "little"), priority=1) for n in range(MOST_NAMED + 1)]
    right = [replace(one, priority=2) for one in left]
    found = compare(left, right)
    assert (found.left, found.right, found.both) == (MOST_NAMED + 1, MOST_NAMED + 1, 0)
    assert found.left_only == found.right_only == [OneSided(one.id, "m", 7, 4) for one in left[:MOST_NAMED]]
