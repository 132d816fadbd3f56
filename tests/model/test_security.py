"""SIDs, security descriptors and the access check ([MS-DTYP] 2.4 and 2.5.3.2)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmsmq.model import security
from openmsmq.model.constants import QueueAccessMask as Q
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.security import Ace, SecurityDescriptor, allow, deny, sid_bytes, sid_text

ALICE, BOB, STAFF = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002", "S-1-5-21-1-2-3-513"

SIDS = [
    ("S-1-1-0", "010100000000000100000000"),
    ("S-1-5-18", "010100000000000512000000"),
    ("S-1-5-32-544", "01020000000000052000000020020000"),
    ("S-1-5", "0100000000000005"),
    ("S-1-281474976710655-4294967295", "0101ffffffffffffffffffff"),
]


@pytest.mark.parametrize(("text", "data"), SIDS)
def test_a_sid_converts_to_bytes(text: str, data: str) -> None:
    assert sid_bytes(text).hex() == data
    assert sid_text(bytes.fromhex(data)) == text


@pytest.mark.parametrize(
    "text", ["", "S-1", "S-2-5-18", "S-1-5-x", "S-1-281474976710656-1", "S-1-5-4294967296", "S-1-5" + "-1" * 16]
)
def test_text_that_is_not_a_sid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="S-1-"):
        sid_bytes(text)


@pytest.mark.parametrize("data", ["", "01", "0101000000000005", "0201000000000005120000", "01010000000000051200000000",
                                  "0110" + "00" * 70])  # fmt: skip
def test_bytes_that_are_not_a_sid_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match="SID"):
        sid_text(bytes.fromhex(data))


# Entries, caller, requested rights, whether access is granted. The owner of each descriptor is BOB.
CHECKS = [
    ([], {ALICE}, Q.PEEK_MESSAGE, False),
    ([], {ALICE}, 0, True),
    ([allow(ALICE, Q.PEEK_MESSAGE)], {ALICE}, Q.PEEK_MESSAGE, True),
    ([allow(ALICE, Q.PEEK_MESSAGE)], {BOB}, Q.PEEK_MESSAGE, False),
    ([allow(ALICE, Q.PEEK_MESSAGE)], {ALICE}, Q.RECEIVE_MESSAGE, False),
    ([allow(ALICE, Q.PEEK_MESSAGE), allow(STAFF, Q.DELETE_MESSAGE)], {ALICE, STAFF}, Q.RECEIVE_MESSAGE, True),
    ([deny(ALICE, Q.PEEK_MESSAGE), allow(ALICE, Q.GENERIC_ALL)], {ALICE}, Q.PEEK_MESSAGE, False),
    ([deny(ALICE, Q.PEEK_MESSAGE), allow(ALICE, Q.GENERIC_ALL)], {ALICE}, Q.WRITE_MESSAGE, True),
    ([allow(ALICE, Q.GENERIC_ALL), deny(ALICE, Q.PEEK_MESSAGE)], {ALICE}, Q.PEEK_MESSAGE, True),
    ([deny(STAFF, Q.WRITE_MESSAGE), allow(ALICE, Q.WRITE_MESSAGE)], {ALICE, STAFF}, Q.WRITE_MESSAGE, False),
    ([deny(STAFF, Q.WRITE_MESSAGE), allow(ALICE, Q.WRITE_MESSAGE)], {ALICE}, Q.WRITE_MESSAGE, True),
    ([Ace(0, security.INHERIT_ONLY_ACE, Q.WRITE_MESSAGE, ALICE)], {ALICE}, Q.WRITE_MESSAGE, False),
    ([allow(ALICE, 0x10000000)], {ALICE}, Q.GENERIC_ALL, True),
    ([allow(ALICE, 0x40000000)], {ALICE}, Q.WRITE_MESSAGE, True),
    ([allow(ALICE, 0x40000000)], {ALICE}, Q.PEEK_MESSAGE, False),
    ([allow(ALICE, 0x80000000)], {ALICE}, Q.RECEIVE_MESSAGE, True),
    ([deny(ALICE, 0x10000000), allow(ALICE, Q.GENERIC_ALL)], {ALICE}, Q.PEEK_MESSAGE, False),
    ([Ace(5, 0, 0xFFFFFFFF, "", b"\5\0\x08\0\xff\xff\xff\xff")], {ALICE, ""}, Q.PEEK_MESSAGE, False),
    ([], {BOB}, Q.GET_QUEUE_PERMISSIONS | Q.CHANGE_QUEUE_PERMISSIONS, True),
    ([], {BOB}, Q.TAKE_QUEUE_OWNERSHIP, False),
    ([deny(BOB, Q.CHANGE_QUEUE_PERMISSIONS)], {BOB}, Q.CHANGE_QUEUE_PERMISSIONS, True),
]


@pytest.mark.parametrize(("entries", "sids", "wanted", "granted"), CHECKS)
def test_the_access_check_follows_its_algorithm(entries: list[Ace], sids: set[str], wanted: int, granted: bool) -> None:
    descriptor = SecurityDescriptor(owner=BOB, group=STAFF, dacl=tuple(entries))
    assert descriptor.grants(sids, wanted) is granted


def test_no_access_list_grants_everything_and_an_empty_one_nothing() -> None:
    assert SecurityDescriptor(owner=BOB).grants({ALICE}, Q.GENERIC_ALL)
    assert not SecurityDescriptor(owner=BOB, dacl=()).grants({ALICE}, Q.PEEK_MESSAGE)


def test_parts_are_selected_and_merged_by_security_information() -> None:
    old = SecurityDescriptor(BOB, STAFF, (allow(BOB, 1),), (allow(BOB, 2),))
    new = SecurityDescriptor(ALICE, ALICE, (allow(ALICE, 3),), (allow(ALICE, 4),))
    for information in range(16):
        merged, selected = old.merge(new, information), old.select(information)
        for bit, name in ((1, "owner"), (2, "group"), (4, "dacl"), (8, "sacl")):
            chosen = bool(information & bit)
            assert getattr(merged, name) == getattr(new if chosen else old, name)
            assert getattr(selected, name) == (getattr(old, name) if chosen else None)


_SID = st.builds(
    lambda authority, subs: "-".join(["S-1", str(authority), *map(str, subs)]),
    st.integers(0, (1 << 48) - 1),
    st.lists(st.integers(0, 0xFFFFFFFF), max_size=15),
)
_MASK = st.integers(0, 0xFFFFFFFF)
_ACE = st.one_of(
    st.builds(Ace, st.sampled_from([0, 1]), st.integers(0, 255), _MASK, _SID),
    st.builds(
        lambda kind, flags, mask, rest: Ace(
            kind, flags, mask, "", struct.pack("<BBHI", kind, flags, 8 + len(rest), mask) + rest
        ),
        st.integers(2, 20).filter(lambda kind: kind not in (0x06, 0x0A, 0x0C)), st.integers(0, 255), _MASK,
        st.binary(max_size=20),
    ),
)  # fmt: skip
_ACL = st.one_of(st.none(), st.lists(_ACE, max_size=5).map(tuple))
_DESCRIPTOR = st.builds(SecurityDescriptor, st.none() | _SID, st.none() | _SID, _ACL, _ACL)


@settings(max_examples=150, deadline=None)
@given(_DESCRIPTOR)
def test_a_descriptor_survives_its_bytes(descriptor: SecurityDescriptor) -> None:
    back = SecurityDescriptor.parse(descriptor.pack())
    assert (back.owner, back.group) == (descriptor.owner, descriptor.group)
    assert (back.dacl, back.sacl) == (descriptor.dacl, descriptor.sacl)
    assert back.pack() == descriptor.pack()


@settings(max_examples=300, deadline=None)
@given(_DESCRIPTOR.map(SecurityDescriptor.pack), st.data())
def test_arbitrary_bytes_parse_as_a_descriptor_or_are_refused(packed: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(packed) - 1))
    mutated = packed[:at] + data.draw(st.binary(min_size=1, max_size=4)) + packed[at + 1 :]
    mutated = mutated[: data.draw(st.integers(0, len(mutated)))]
    try:
        descriptor = SecurityDescriptor.parse(mutated)
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR:
            raise
    else:
        assert SecurityDescriptor.parse(descriptor.pack()).dacl == descriptor.dacl


def test_an_access_list_with_object_entries_has_the_ds_revision() -> None:
    entry = Ace(5, 0, 1, "", struct.pack("<BBHI", 5, 0, 8, 1))
    plain = SecurityDescriptor(dacl=(allow(ALICE, 1),)).pack()
    with_object = SecurityDescriptor(dacl=(entry,)).pack()
    assert (plain[20], with_object[20]) == (2, 4)


def test_an_absolute_descriptor_or_another_revision_is_refused() -> None:
    good = SecurityDescriptor(BOB).pack()
    for bad in (b"\2" + good[1:], good[:2] + b"\0\0" + good[4:], b""):
        with pytest.raises(MsmqError) as error:
            SecurityDescriptor.parse(bad)
        assert error.value.hresult == HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR


def test_bytes_are_recognized_as_exactly_one_sid() -> None:
    sid = security.sid_bytes("S-1-5-21-1-2-3-1001")
    assert security.is_sid(sid) and security.is_sid(security.sid_bytes("S-1-1-0"))
    for wrong in (b"", sid[:-1], sid + b"\0", sid[:-4], b"\2" + sid[1:], b"\1\x10" + bytes(6 + 64)):
        assert not security.is_sid(wrong), wrong
    assert security.is_sid(b"\1\x0f" + bytes(6 + 60)) and security.is_sid(b"\1\0" + bytes(6))
