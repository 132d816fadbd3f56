"""Security descriptors as text ([MS-DTYP] 2.5.1)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.sddl import canonical, from_sddl, to_sddl
from openmsmq.model.security import Ace, SecurityDescriptor, allow, deny, sid_bytes

ALICE = "S-1-5-21-1-2-3-1001"
GUID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    "text",
    [
        "O:BAG:SYD:(A;;CCDCLCSWRPWPSDRCWDWO;;;WD)",
        f"O:{ALICE}D:PAI(D;;LC;;;AN)(A;;CCDC;;;{ALICE})(A;ID;GR;;;AU)",
        "D:",
        "D:NO_ACCESS_CONTROL",
        f"O:SYD:(OA;CIIO;RP;{GUID};;WD)S:(AU;SAFA;0x23f;;;WD)",
        "D:(A;;0x80200;;;BA)",
        "D:(RAW;;;;;0910140001000000010100000000000100000000)",
    ],
)
def test_canonical_text_comes_back(text: str) -> None:
    descriptor = from_sddl(text)
    assert to_sddl(descriptor) == text
    assert to_sddl(SecurityDescriptor.parse(descriptor.pack())) == text or "NO_ACCESS" in text


def test_denials_come_first_and_inherited_entries_last() -> None:
    aces = (allow("S-1-1-0", 1), Ace(1, 0x10, 2, ALICE), deny(ALICE, 4), allow(ALICE, 8))
    assert [ace.mask for ace in canonical(aces)] == [4, 1, 8, 2]


sids = st.sampled_from(["S-1-1-0", "S-1-5-7", "S-1-5-18", "S-1-5-32-544", ALICE, "S-1-5-21-9-9-9-500"])
masks = st.integers(0, (1 << 32) - 1)
plain = st.builds(Ace, st.sampled_from([0, 1]), st.integers(0, 255), masks, sids)


DENYING = (6, 10, 12)  # denying entries: object, callback and callback object


@st.composite
def foreign(draw: st.DrawFn) -> Ace:
    """Draw an entry of another type, with any bytes."""
    kind, flags, mask = draw(st.integers(2, 255)), draw(st.integers(0, 255)), draw(masks)
    body = b"" if kind in DENYING else draw(st.binary(max_size=12).map(lambda data: data + bytes(-len(data) % 4)))
    if kind in DENYING or draw(st.booleans()):  # a descriptor with a damaged denying entry is refused
        body = (b"\1\0\0\0" + UUID(GUID).bytes_le if kind in (5, 6, 7, 8, 12) else b"") + sid_bytes(draw(sids))
    raw = bytes([kind, flags]) + (8 + len(body)).to_bytes(2, "little") + mask.to_bytes(4, "little") + body
    return Ace(kind, flags, mask, "", raw)


lists = st.none() | st.lists(plain | foreign(), max_size=5).map(tuple)


@given(st.none() | sids, st.none() | sids, lists, lists)
def test_nothing_is_lost_between_descriptor_and_text(owner: str, group: str, dacl: tuple, sacl: tuple) -> None:
    dacl = dacl if dacl is None else canonical(dacl)
    descriptor = SecurityDescriptor.parse(SecurityDescriptor(owner, group, dacl, sacl).pack())
    text = to_sddl(descriptor)
    if text:
        assert SecurityDescriptor.parse(from_sddl(text).pack()) == descriptor


@pytest.mark.parametrize(("kind", "word"), [(0, "A"), (1, "D")])
def test_an_entry_in_hexadecimal_is_the_same_one_in_words(kind: int, word: str) -> None:
    raw = bytes((kind, 0, 20, 0)) + (4).to_bytes(4, "little") + sid_bytes("S-1-1-0")
    assert from_sddl(f"D:(RAW;;;;;{raw.hex()})") == from_sddl(f"D:({word};;0x4;;;WD)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected O:"),
        ("everyone", "expected O:"),
        ("O:BAO:SY", "twice"),
        ("O:LA", "is not a SID"),
        ("D:X(A;;CC;;;WD)", "flags are"),
        ("D:(A;;CC;;;WD)x", "parentheses"),
        ("D:(A;;CC;;WD)", "six fields"),
        ("D:(ZZ;;CC;;;WD)", "unknown type"),
        ("D:(A;;QQ;;;WD)", "is not a valid right"),
        ("D:(A;QQ;CC;;;WD)", "is not a valid flag"),
        ("D:(A;;0x1ffffffff;;;WD)", "32 bits"),
        (f"D:(A;;CC;{GUID};;WD)", "GUIDs"),
        ("D:(RAW;;;;;00)", "not a complete entry"),
    ],
)
def test_errors_in_a_text_are_reported(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_sddl(text)
