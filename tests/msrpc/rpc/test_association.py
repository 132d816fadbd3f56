"""Association groups and context handles."""

from __future__ import annotations

from typing import Any

import pytest
from rpc.toys import counter_random

from msrpc.rpc.association import NULL_HANDLE, Association, AssociationTable, ContextHandles, HeldHandles, Holder
from msrpc.rpc.faults import (
    NCA_S_FAULT_CONTEXT_MISMATCH,
    NCA_S_FAULT_REMOTE_NO_MEMORY,
    RPC_S_ACCESS_DENIED,
    Fault,
)
from msrpc.rpc.pdu import AuthLevel

ALICE, BOB = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002"


def held(handles: ContextHandles, sid: str | None = None, level: AuthLevel = AuthLevel.NONE) -> HeldHandles:
    """Return the handles of an association as seen by a caller."""
    group = _GROUPS.setdefault(id(handles), Association(1, "192.0.2.1", handles))
    return HeldHandles(handles, Holder(group, sid, level))


_GROUPS: dict[int, Association] = {}


def handles(**arguments: Any) -> HeldHandles:
    return held(ContextHandles(counter_random(), **arguments))


def test_a_handle_is_twenty_octets_with_attributes_zero_and_leads_to_its_object() -> None:
    table, queue = handles(), object()
    handle = table.create("queue", queue)
    assert len(handle) == 20
    assert handle[:4] == bytes(4)
    assert table.get(handle, "queue") is queue
    assert table.get(bytearray(handle), "queue") is queue
    assert table.close(handle, "queue") is queue


def test_a_handle_that_is_null_unknown_closed_foreign_or_of_another_kind_is_a_context_mismatch() -> None:
    table, other = handles(), held(ContextHandles(lambda n: b"\xee" * n))
    handle, closed, foreign = table.create("queue", 1), table.create("queue", 2), other.create("queue", 3)
    table.close(closed, "queue")
    changed = b"\1" + handle[1:]
    for bad, kind in (
        (NULL_HANDLE, "queue"),
        (closed, "queue"),
        (foreign, "queue"),
        (handle, "cursor"),
        (changed, "queue"),
        (handle[:19], "queue"),
        (b"", "queue"),
    ):
        for operation in (table.get, table.close):
            with pytest.raises(Fault) as fault:
                operation(bad, kind)
            assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
    assert table.get(handle, "queue") == 1


def test_the_number_of_handles_is_bounded() -> None:
    table = handles(maximum=2)
    first = table.create("queue", 1)
    table.create("queue", 2)
    with pytest.raises(Fault) as fault:
        table.create("queue", 3)
    assert fault.value.status == NCA_S_FAULT_REMOTE_NO_MEMORY
    table.close(first, "queue")
    table.create("queue", 3)


def test_a_handle_above_the_limit_is_run_down() -> None:
    table, seen = handles(maximum=1), []
    table.create("queue", 1, seen.append)
    with pytest.raises(Fault):
        table.create("queue", 2, seen.append)
    assert seen == [2]


@pytest.mark.parametrize(
    ("owner", "stranger"),
    [
        ((ALICE, AuthLevel.CONNECT), (BOB, AuthLevel.PKT_PRIVACY)),
        ((ALICE, AuthLevel.CONNECT), (None, AuthLevel.NONE)),
        ((None, AuthLevel.NONE), (BOB, AuthLevel.PKT_PRIVACY)),
        ((ALICE, AuthLevel.PKT_INTEGRITY), (ALICE, AuthLevel.CONNECT)),
    ],
)
def test_a_handle_is_invalid_for_another_caller_or_at_a_lower_level(owner: Any, stranger: Any) -> None:
    entries = ContextHandles(counter_random())
    handle = held(entries, *owner).create("queue", 1)
    for operation in (held(entries, *stranger).get, held(entries, *stranger).close):
        with pytest.raises(Fault) as fault:
            operation(handle, "queue")
        assert fault.value.status == RPC_S_ACCESS_DENIED
    assert held(entries, owner[0], AuthLevel.PKT_PRIVACY).get(handle, "queue") == 1


def test_handles_run_down_newest_first_and_a_failing_one_does_not_stop_the_rest() -> None:
    entries = ContextHandles(counter_random())
    table, seen = held(entries), []

    def rundown(obj: str) -> None:
        seen.append(obj)
        if obj == "bad":
            raise RuntimeError("a bug")

    for name in ("queue", "bad", "cursor"):
        table.create("x", name, rundown)
    table.create("x", "without")
    entries.run_down()
    assert seen == ["cursor", "bad", "queue"]
    assert len(entries) == 0


def test_a_rundown_that_makes_a_new_handle_ends_nevertheless() -> None:
    entries = ContextHandles(counter_random())
    table, seen = held(entries), []
    table.create("x", 1, lambda obj: (seen.append(obj), table.create("x", 2, seen.append)))
    entries.run_down()
    assert seen == [1, 2]
    assert len(entries) == 0


def test_a_group_lives_until_its_last_connection_leaves() -> None:
    table, rundowns = AssociationTable(counter_random()), []
    group = table.join(0, "10.0.0.1")
    assert table.join(group.group_id, "10.0.0.1") is group
    group.handles.create(Holder(group, None, AuthLevel.NONE), "x", "obj", rundowns.append)
    table.leave(group)
    assert rundowns == []
    table.leave(group)
    assert rundowns == ["obj"]
    assert table.join(group.group_id, "10.0.0.1") is None


def test_a_group_cannot_be_joined_from_another_host() -> None:
    table = AssociationTable(counter_random())
    group = table.join(0, "10.0.0.1")
    assert table.join(group.group_id, "10.0.0.2") is None
    assert group.connections == 1


def test_group_identifiers_are_never_zero_and_never_in_use() -> None:
    drawn = iter([bytes(4), b"\1\0\0\0", b"\1\0\0\0", b"\2\0\0\0"])
    table = AssociationTable(lambda n: next(drawn))
    assert [table.join(0, "h").group_id, table.join(0, "h").group_id] == [1, 2]
