"""Effects of granting and revoking on a security descriptor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.admin.permissions import denied, effective, entries, granted, lost, revoked, sid_for
from openmsmq.model.constants import QueueAccessMask as Q
from openmsmq.model.rights import words_of
from openmsmq.model.security import EVERYONE, Ace, SecurityDescriptor, allow, deny

ALICE, STAFF = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002"
SEND, RECEIVE, CHANGE = int(Q.WRITE_MESSAGE), int(Q.RECEIVE_MESSAGE), int(Q.CHANGE_QUEUE_PERMISSIONS)
masks = st.integers(1, 0xFFFFF)
aces = st.builds(Ace, st.sampled_from([0, 1]), st.just(0), masks, st.sampled_from([ALICE, STAFF, EVERYONE]))
descriptors = st.builds(SecurityDescriptor, dacl=st.none() | st.lists(aces, max_size=5).map(tuple))


def test_a_grant_is_one_entry_and_lifts_a_denial() -> None:
    before = SecurityDescriptor(dacl=(deny(ALICE, SEND | RECEIVE), allow(ALICE, CHANGE)))
    assert granted(before, ALICE, SEND).dacl == (deny(ALICE, RECEIVE), allow(ALICE, CHANGE | SEND))


def test_a_grant_keeps_the_entries_before_and_after_the_one_that_it_changes() -> None:
    before = SecurityDescriptor(dacl=(allow(STAFF, SEND), allow(ALICE, SEND), allow(EVERYONE, SEND)))
    after = granted(before, ALICE, RECEIVE).dacl
    assert after == (allow(STAFF, SEND), allow(ALICE, SEND | RECEIVE), allow(EVERYONE, SEND))


@given(descriptors, masks)
def test_a_granted_right_applies_unless_a_group_is_denied(before: SecurityDescriptor, mask: int) -> None:
    after = granted(before, ALICE, mask)
    assert after.grants({ALICE}, mask)
    assert effective(after, {ALICE}) & mask == mask & 0xF003F


@given(descriptors, masks)
def test_a_denied_right_is_not_gained_through_a_group(before: SecurityDescriptor, mask: int) -> None:
    assert not denied(before, ALICE, mask).grants({ALICE, STAFF, EVERYONE}, mask)


@given(descriptors.filter(lambda d: d.dacl is not None), masks)
def test_revoking_removes_only_the_named_right(before: SecurityDescriptor, mask: int) -> None:
    after = revoked(before, ALICE, mask)
    for bit in (1 << n for n in range(20)):
        assert after.grants({ALICE}, bit) == (before.grants({ALICE}, bit) and not bit & mask)
        assert after.grants({STAFF}, bit) == before.grants({STAFF}, bit)


def test_generic_rights_are_split_when_one_is_revoked() -> None:
    before = SecurityDescriptor(dacl=(allow(ALICE, 0x10000000),))
    after = revoked(before, ALICE, SEND)
    assert not after.grants({ALICE}, SEND) and after.grants({ALICE}, int(Q.GENERIC_ALL) & ~SEND)


def test_unknown_entries_stay() -> None:
    odd = Ace(9, 0, 1, "", b"\x09\0\x08\0\1\0\0\0")
    before = SecurityDescriptor(dacl=(odd, allow(ALICE, SEND)))
    assert odd in (granted(before, STAFF, SEND).dacl or ())
    assert odd in (revoked(before, ALICE, SEND).dacl or ())


def test_a_user_is_warned_before_locking_themselves_out() -> None:
    everybody = SecurityDescriptor(owner=STAFF, dacl=(allow(EVERYONE, int(Q.GENERIC_ALL)),))
    (first, second, *others) = lost(everybody, revoked(everybody, EVERYONE, 0xFFFFFFFF), {ALICE, EVERYONE})
    assert "change the permissions" in first and "see the permissions" in second
    owner, administrators = others
    assert f"the owner, {STAFF}, may not use the queue" in owner and "administrators may not" in administrators
    assert lost(everybody, revoked(everybody, EVERYONE, 0xFFFFFFFF), {STAFF, EVERYONE}) == others
    nobody = SecurityDescriptor(dacl=(allow(ALICE, CHANGE),))
    assert "no user may change" in lost(nobody, revoked(nobody, ALICE, CHANGE), {STAFF})[0]


def test_users_are_named_in_many_ways() -> None:
    known = {"alice": ALICE}.get
    assert [sid_for(who, known) for who in ("alice", "HERE\\alice", ALICE, "Everyone")] == [ALICE] * 3 + [EVERYONE]
    for who in ("bob", "S-1-x"):
        with pytest.raises(ValueError):
            sid_for(who, known)


def test_entries_have_the_words_of_the_rights_that_they_are_about() -> None:
    descriptor = SecurityDescriptor(dacl=(allow(ALICE, SEND), deny(STAFF, 0x80000000 | RECEIVE)))
    first, second = entries(descriptor, {ALICE: "alice"})
    assert (first.kind, first.name, first.rights) == ("allow", "alice", tuple(words_of(SEND)))
    assert (second.kind, second.name, second.mask) == ("deny", STAFF, 0x80000000 | RECEIVE)
    assert first.rights and set(words_of(RECEIVE)) <= set(second.rights) and "send" not in second.rights
