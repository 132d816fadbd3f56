"""Access rights as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.rights import MACHINE_RIGHTS, QUEUE_RIGHTS, mask_of, words_of


@pytest.mark.parametrize(
    ("words", "mask"),
    [
        (["FullControl"], 0xF003F),
        (["send"], 0x4),
        (["Receive", "WriteMessage"], 0x7),
        (["JournalReceive"], 0xA),
        (["GenericRead"], 0x2002B),
        (["genericwrite"], 0x20024),
        (["Look"], 0x22),
        (["0x3", "Delete"], 0x10003),
    ],
)
def test_each_word_has_its_mask(words: list[str], mask: int) -> None:
    assert mask_of(words) == mask


def test_each_word_for_the_machine_has_its_mask() -> None:
    assert mask_of(["FullControl"], MACHINE_RIGHTS) == 0xF00F7
    assert mask_of(["ReceiveComputerJournal", "PeekDeadLetter", "CreateQueue"], MACHINE_RIGHTS) == 0xC6


@pytest.mark.parametrize("rights", [QUEUE_RIGHTS, MACHINE_RIGHTS])
def test_each_mask_is_shown_in_words_that_mean_it(rights: tuple) -> None:
    @given(st.integers(1, (1 << 32) - 1))
    def holds(mask: int) -> None:
        assert mask_of(words_of(mask, rights), rights) == mask

    holds()
    assert words_of(0, rights) == []


def test_a_right_that_includes_others_is_shown_alone() -> None:
    assert words_of(0xF003F) == ["FullControl"]
    assert words_of(0xB) == ["ReceiveMessage", "ReceiveJournalMessage"]
    assert words_of(0x104) == ["WriteMessage", "0x100"]


@pytest.mark.parametrize(
    ("word", "said"),
    [("Fly", "WriteMessage"), ("AllExtendedRights", "directory"), ("0x", "mask"), ("0x0", "mask"),
                     ("0x1ffffffff", "mask"), ("0x100000000", "mask")],
)  # fmt: skip
def test_unknown_rights_are_refused(word: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mask_of([word])
