"""Dead-letter reasons: the table, and the names that users may enter."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import MessageClass
from openmsmq.model.reasons import REASONS, find_reason, reason_of


def test_every_negative_acknowledgment_has_a_reason() -> None:
    assert {r.code for r in REASONS} == {int(kind) for kind in MessageClass if kind >= 0x8000}
    assert len({r.slug for r in REASONS}) == len(REASONS)
    assert all(r.sentence.endswith(".") and r.remedy.endswith(".") for r in REASONS)


@pytest.mark.parametrize("text", ["expired-unread", "RECEIVE_TIMEOUT", "nack_receive_timeout", "0xC002", "0xc002"])
def test_a_reason_is_found_by_slug_name_and_number(text: str) -> None:
    assert find_reason(text).code == 0xC002


def test_an_unknown_reason_gets_the_list_of_reasons() -> None:
    with pytest.raises(ValueError, match=r"expired-unread.*0xC002"):
        find_reason("EXPIRED")


def test_an_unknown_number_says_so() -> None:
    assert find_reason("0x8abc").sentence == "Unknown reason 0x8abc."
    assert reason_of(0x4000).name == "ACK_RECEIVE"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("bad-signature", "the queue requires it"), ("bad-encryption", "privacy level of the queue"),
        ("queue-deleted", "of the queue's machine"), ("purged", "of the queue's machine"),
    ],
)  # fmt: skip
def test_a_reason_is_true_for_queues_of_other_machines_and_for_what_they_require(reason: str, said: str) -> None:
    found = find_reason(reason)
    assert said in f"{found.sentence} {found.remedy}"
