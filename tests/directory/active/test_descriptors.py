"""Conversion between queue rights and security descriptors of directory objects."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from openmsmq.directory.active.descriptors import (
    _OF_QUEUE,
    FULL_CONTROL,
    _read,
    from_directory,
    of_computer,
    of_machine,
    to_directory,
)
from openmsmq.model.constants import MachineAccessMask
from openmsmq.model.constants import QueueAccessMask as Q
from openmsmq.model.errors import MsmqError
from openmsmq.model.security import (
    ANONYMOUS,
    EVERYONE,
    LOCAL_SYSTEM,
    Ace,
    SecurityDescriptor,
    allow,
    deny,
    sid_bytes,
)

COMPUTER = "S-1-5-21-1-2-3-1107"
USER, GROUP = "S-1-5-21-1-2-3-1102", "S-1-5-21-1-2-3-1105"
READ_PROPERTY, WRITE_PROPERTY, CONTROL_ACCESS = 0x10, 0x20, 0x100
entries = st.lists(
    st.builds(
        lambda make, sid, mask: make(sid, mask),
        st.sampled_from([allow, deny]),
        st.sampled_from([USER, GROUP, EVERYONE, ANONYMOUS]),
        st.integers(1, int(Q.GENERIC_ALL)).map(lambda mask: mask & int(Q.GENERIC_ALL)).filter(bool),
    ),
    max_size=6,
)


@given(st.sampled_from([USER, ANONYMOUS]), entries)
def test_rights_come_back_as_they_were(owner: str, dacl: list) -> None:
    assume(not any((one.type, one.sid) == (two.type, two.sid) for one, two in pairwise(dacl)))
    queue = SecurityDescriptor(owner=owner, dacl=tuple(dacl)).pack()
    assert from_directory(to_directory(queue, COMPUTER), COMPUTER) == queue


def test_entries_for_one_account_that_follow_one_another_become_one() -> None:
    queue = SecurityDescriptor(owner=USER, dacl=(allow(GROUP, 0x4), allow(GROUP, 0x20))).pack()
    found = SecurityDescriptor.parse(from_directory(to_directory(queue, COMPUTER), COMPUTER))
    assert found.dacl == (allow(GROUP, 0x24),)


def test_who_may_read_properties_may_not_write_the_object() -> None:
    def rights(mask: int) -> int:
        made = SecurityDescriptor.parse(to_directory(SecurityDescriptor(dacl=(allow(USER, mask),)).pack(), COMPUTER))
        return sum(entry.mask for entry in made.dacl or () if entry.sid == USER)

    assert rights(int(Q.GET_QUEUE_PROPERTIES)) & (READ_PROPERTY | WRITE_PROPERTY) == READ_PROPERTY
    assert rights(int(Q.SET_QUEUE_PROPERTIES)) & (READ_PROPERTY | WRITE_PROPERTY) == WRITE_PROPERTY
    assert rights(int(Q.RECEIVE_MESSAGE | Q.WRITE_MESSAGE)) == 0  # only extended rights, in separate entries


def test_entries_that_are_too_short_or_of_other_types_give_no_rights() -> None:
    """The bytes of an entry are written by anybody who may change the object."""
    queue = SecurityDescriptor(owner=USER, dacl=(allow(GROUP, int(Q.RECEIVE_MESSAGE)),)).pack()
    made = SecurityDescriptor.parse(to_directory(queue, COMPUTER))
    assert made.dacl is not None
    extended = [entry for entry in made.dacl if entry.raw]
    assert extended
    for entry in extended:
        assert _read(entry, _OF_QUEUE) is not None
        for size in range(len(entry.raw)):
            assert _read(replace(entry, raw=entry.raw[:size]), _OF_QUEUE) is None
        assert _read(replace(entry, type=0x07), _OF_QUEUE) is None, "an audit entry"


def test_entries_of_computer_and_system_precede_all_denials() -> None:
    queue = SecurityDescriptor(owner=USER, dacl=(deny(EVERYONE, int(Q.GENERIC_ALL)),)).pack()
    made = SecurityDescriptor.parse(to_directory(queue, COMPUTER))
    assert made.owner == COMPUTER and made.dacl is not None
    assert made.dacl[:2] == (allow(COMPUTER, FULL_CONTROL), allow(LOCAL_SYSTEM, FULL_CONTROL))


def test_without_an_access_control_list_everybody_has_all() -> None:
    made = from_directory(to_directory(SecurityDescriptor(owner=USER).pack(), COMPUTER), COMPUTER)
    assert SecurityDescriptor.parse(made).dacl == (allow(EVERYONE, int(Q.GENERIC_ALL)),)


def test_full_control_of_somebody_elses_object_is_all_rights_and_what_is_inherited_is_none() -> None:
    inherited = allow(GROUP, FULL_CONTROL)
    inherited = type(inherited)(inherited.type, 0x10, inherited.mask, inherited.sid)
    made = SecurityDescriptor(owner=GROUP, dacl=(allow(USER, FULL_CONTROL), inherited)).pack()
    found = SecurityDescriptor.parse(from_directory(made, COMPUTER))
    assert (found.owner, found.dacl) == (GROUP, (allow(USER, int(Q.GENERIC_ALL)),))


def test_a_machine_object_may_be_read_by_users_and_changed_by_nobody_else() -> None:
    found = SecurityDescriptor.parse(of_computer(COMPUTER))
    assert {entry.sid: entry.mask for entry in found.dacl or ()} == {
        COMPUTER: FULL_CONTROL, LOCAL_SYSTEM: FULL_CONTROL, "S-1-5-11": 0x20094,
    }  # fmt: skip


@given(st.binary(max_size=200))
def test_invalid_descriptors_are_refused(data: bytes) -> None:
    made = bytearray(to_directory(SecurityDescriptor(owner=USER, dacl=(allow(USER, 0x3F),)).pack(), COMPUTER))
    for at, octet in enumerate(data):
        made[-1 - at % len(made)] ^= octet
    with suppress(MsmqError):
        from_directory(bytes(made), COMPUTER)
    with pytest.raises(MsmqError):
        from_directory(bytes(made)[:10], COMPUTER)


@pytest.mark.parametrize(("make", "kind"), [(allow, 0x05), (deny, 0x06)])
def test_an_object_entry_without_an_object_type_is_for_the_whole_object(make: Callable[..., Ace], kind: int) -> None:
    """Domain tools write all extended rights of an account as `(OA;;CR;;;SID)`, and `(OD;;CR;;;SID)`."""
    body = sid_bytes(USER)
    raw = struct.pack("<BBHII", kind, 0, 12 + len(body), CONTROL_ACCESS | READ_PROPERTY, 0) + body
    made = SecurityDescriptor(owner=GROUP, dacl=(Ace(kind, 0, CONTROL_ACCESS, "", raw),)).pack()
    found = SecurityDescriptor.parse(from_directory(made, COMPUTER))
    rights = Q.RECEIVE_MESSAGE | Q.WRITE_MESSAGE | Q.RECEIVE_JOURNAL_MESSAGE | Q.GET_QUEUE_PROPERTIES
    assert found.dacl == (make(USER, int(rights)),)


def test_who_may_create_queue_objects_below_that_of_a_machine_may_create_queues_there() -> None:
    queue_class = UUID("9a0dc343-c100-11d1-bbc5-0080c76670c0")

    def typed(sid: str, of_type: UUID, mask: int) -> Ace:
        body = of_type.bytes_le + sid_bytes(sid)
        return Ace(0x05, 0, mask, "", struct.pack("<BBHII", 0x05, 0, 12 + len(body), mask, 1) + body)

    def grants(*dacl: Ace) -> bool:
        made = of_machine(SecurityDescriptor(owner=COMPUTER, dacl=dacl).pack())
        return SecurityDescriptor.parse(made).grants(frozenset([USER]), int(MachineAccessMask.CREATE_QUEUE))

    assert grants(allow(USER, FULL_CONTROL))
    assert grants(allow(USER, 0x1))
    assert grants(replace(allow(USER, 0x1), flags=0x10)), "inherited"
    assert grants(typed(USER, queue_class, 0x1))
    assert not grants(typed(USER, UUID(int=1), 0x1))
    assert not grants(typed(USER, queue_class, 0x2))
    assert not grants(allow(USER, READ_PROPERTY | CONTROL_ACCESS))
    assert not grants(deny(USER, 0x1), allow(USER, FULL_CONTROL))
