"""Creating and changing queues, and the required rights ([MS-MQDMPR] 3.1.7.1.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from openmsmq.model import security
from openmsmq.model.constants import INFINITE, Access, MachineAccessMask, PropId
from openmsmq.model.constants import QueueAccessMask as Q
from openmsmq.model.errors import HResult
from openmsmq.model.security import SecurityDescriptor, allow
from openmsmq.queueing.administration import _differing
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.registry import FIRST_QUEUE_NUMBER
from queueing.world import ALICE, BOB, MACHINE, START, World, refused

P = PropId


@pytest.fixture
def world() -> World:
    return World()


# -- creating --------------------------------------------------------------------------------------------------


def test_a_new_queue_has_the_defaults_and_survives_a_restart(world: World) -> None:
    queue = world.create("Orders", LABEL="the label", JOURNAL=1, QUOTA=7, TRANSACTION=1, BASEPRIORITY=-3)
    before = queue.properties
    assert (before.path_name, before.label, before.journaling, before.quota) == ("HERE\\Orders".replace(
        "\\", "\\private$\\"), "the label", True, 7)  # fmt: skip
    assert (before.journal_quota, before.create_time, before.transactional) == (INFINITE, START // 1000, True)
    assert before.instance != bytes(16)
    world.restart()
    assert world.queue("orders").properties == before
    assert world.queue("orders").number == queue.number


@pytest.mark.parametrize(
    "path", [".\\private$\\q", "HERE\\private$\\q", "here\\PRIVATE$\\q", "here.example.com\\private$\\q",
             "127.0.0.1\\private$\\q", "localhost\\private$\\q"]
)  # fmt: skip
def test_this_machine_is_known_by_all_its_names(world: World, path: str) -> None:
    assert world.manager.administration.create_queue(path, {}, None, ALICE).properties.path_name == "HERE\\private$\\q"


@pytest.mark.parametrize(
    "path", ["elsewhere\\private$\\q", "HERE\\q", "HERE\\private$\\q;sub", "HERE\\system$;journal", "q"]
)
def test_only_private_queues_of_this_machine_can_be_created(world: World, path: str) -> None:
    with refused(HResult.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
        world.manager.administration.create_queue(path, {}, None, ALICE)
    assert not world.registry.by_name


def test_names_are_unique_regardless_of_case(world: World) -> None:
    world.create("Orders")
    with refused(HResult.MQ_ERROR_QUEUE_EXISTS):
        world.create("oRDERS")


def test_creating_needs_the_right_on_the_machine() -> None:
    descriptor = SecurityDescriptor(dacl=(allow(ALICE.sid, MachineAccessMask.CREATE_QUEUE),))
    world = World(replace(MACHINE, security=descriptor))
    world.create("mine", ALICE)
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.create("yours", BOB)


def test_a_queue_number_is_never_used_again(world: World) -> None:
    first = world.create("a")
    world.manager.administration.delete_queue(first, ALICE)
    second = world.create("a")
    assert second.number > first.number
    world.manager.administration.delete_queue(second, ALICE)
    world.restart()
    assert world.create("a").number > second.number


def test_a_full_disk_creates_nothing(world: World) -> None:
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.create()
    world.store.full = False
    assert world.create().number == FIRST_QUEUE_NUMBER


def test_a_given_descriptor_is_completed_with_the_defaults(world: World) -> None:
    given = SecurityDescriptor(dacl=(allow(BOB.sid, Q.GENERIC_ALL),)).pack()
    queue = world.manager.administration.create_queue(".\\private$\\q", {}, given, ALICE)
    parsed = SecurityDescriptor.parse(queue.properties.security)
    assert (parsed.owner, parsed.group) == (ALICE.sid, ALICE.sid)
    assert parsed.dacl == (allow(BOB.sid, Q.GENERIC_ALL),)
    owner_only = SecurityDescriptor(owner=BOB.sid).pack()
    other = world.manager.administration.create_queue(".\\private$\\r", {}, owner_only, SYSTEM)
    parsed = SecurityDescriptor.parse(other.properties.security)
    assert parsed.owner == BOB.sid and parsed.grants([security.EVERYONE], Q.GENERIC_ALL)


# -- properties ------------------------------------------------------------------------------------------------

PROPERTY_RULES = [  # property, good value, bad value or None, may be given on creation, may be set
    (P.PROPID_Q_INSTANCE, bytes(16), None, False, False),
    (P.PROPID_Q_TYPE, b"t" * 16, b"short", True, True),
    (P.PROPID_Q_JOURNAL, 1, 2, True, True),
    (P.PROPID_Q_QUOTA, 5, -1, True, True),
    (P.PROPID_Q_JOURNAL_QUOTA, INFINITE, INFINITE + 1, True, True),
    (P.PROPID_Q_LABEL, "x" * 124, "x" * 125, True, True),
    (P.PROPID_Q_LABEL, "a\nb", "a\0b", True, True),
    (P.PROPID_Q_CREATE_TIME, 5, None, False, False),
    (P.PROPID_Q_MODIFY_TIME, 5, None, False, False),
    (P.PROPID_Q_AUTHENTICATE, 1, 2, True, True),
    (P.PROPID_Q_PRIV_LEVEL, 2, 3, True, True),
    (P.PROPID_Q_TRANSACTION, 1, 2, True, False),
    (P.PROPID_Q_PATHNAME_DNS, "x", None, False, False),
    (P.PROPID_Q_MULTICAST_ADDRESS, "234.1.2.3:80", "1.2.3.4:80", True, True),
    (P.PROPID_Q_MULTICAST_ADDRESS, "", "234.1.2.3:80,DIRECT=OS:x\\y", True, True),
    (P.PROPID_Q_ADS_PATH, "x", None, False, False),
]


@pytest.mark.parametrize(("propid", "good", "bad", "on_create", "on_set"), PROPERTY_RULES)
def test_a_property_may_be_given_where_its_rule_says(
    world: World, propid: PropId, good: Any, bad: Any, on_create: bool, on_set: bool
) -> None:
    queue = world.create("base")
    attempts = [
        (
            on_create,
            lambda value: world.manager.administration.create_queue(".\\private$\\new", {propid: value}, None, ALICE),
        ),
        (on_set, lambda value: world.manager.administration.set_properties(queue, {propid: value}, ALICE)),
    ]
    for allowed, attempt in attempts:
        if not allowed:
            with refused(HResult.MQ_ERROR_PROPERTY_NOTALLOWED):
                attempt(good)
            continue
        if bad is not None:
            with refused(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
                attempt(bad)
        attempt(good)
    if on_create:
        assert world.manager.administration.get_properties(world.queue("new"), [propid], ALICE) == [good]
    else:
        assert "new" not in world.registry.by_name
    if on_set:
        assert world.manager.administration.get_properties(queue, [propid], ALICE) == [good]


@pytest.mark.parametrize("value", [-32768, -5, 32767])
def test_the_base_priority_of_a_private_queue_is_always_zero(world: World, value: int) -> None:
    """[MS-MQMQ] 2.3.1.6: it is checked, but ignored."""
    queue = world.create("base", BASEPRIORITY=value)
    base = P.PROPID_Q_BASEPRIORITY
    assert world.manager.administration.get_properties(queue, [base], ALICE) == [0]
    world.manager.administration.set_properties(queue, {base: value}, ALICE)
    assert world.manager.administration.get_properties(queue, [base], ALICE) == [0]
    for wrong in (-32769, 32768):
        with refused(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
            world.manager.administration.set_properties(queue, {base: wrong}, ALICE)


def test_a_base_priority_that_an_earlier_version_stored_is_zero_after_a_restart(world: World) -> None:
    queue = world.create()
    world.registry.update(queue, queue.properties._replace(base_priority=7))
    world.restart()
    assert world.queue().properties.base_priority == 0


def test_properties_are_set_all_or_none_and_the_time_of_the_change_is_kept(world: World) -> None:
    queue = world.create(LABEL="old")
    with refused(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        world.manager.administration.set_properties(queue, {P.PROPID_Q_LABEL: "new", P.PROPID_Q_JOURNAL: 9}, ALICE)
    assert queue.properties.label == "old"
    world.now += 5000
    world.manager.administration.set_properties(queue, {P.PROPID_Q_LABEL: "new", P.PROPID_Q_JOURNAL_QUOTA: 3}, ALICE)
    assert (queue.properties.label, queue.properties.modify_time) == ("new", START // 1000 + 5)
    assert queue.journal is not None and queue.journal.properties.quota == 3
    world.restart()
    assert world.queue().properties.label == "new"
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.administration.set_properties(world.queue(), {P.PROPID_Q_LABEL: "newer"}, ALICE)
    assert world.queue().properties.label == "new"


@pytest.mark.parametrize("propid", [0, 100, 114, 127, 999])
def test_unknown_queue_properties_are_refused(world: World, propid: int) -> None:
    queue = world.create()
    for attempt in (
        lambda: world.manager.administration.get_properties(queue, [propid], ALICE),
        lambda: world.manager.administration.set_properties(queue, {propid: 1}, ALICE),
    ):
        with refused(HResult.MQ_ERROR_ILLEGAL_PROPID):
            attempt()


def test_computed_properties(world: World) -> None:
    queue = world.create()
    wanted = [P.PROPID_Q_PATHNAME, P.PROPID_Q_PATHNAME_DNS, P.PROPID_Q_ADS_PATH]
    values = world.manager.administration.get_properties(queue, list(wanted), ALICE)
    assert values == ["HERE\\private$\\q", "here.example.com\\private$\\q", ""]


def test_after_a_rename_path_names_begin_with_the_new_name(world: World) -> None:
    world.create("q", LABEL="kept")
    renamed = replace(MACHINE, computer_name="THERE", qualified_name="there.example.com", aliases=frozenset(["here"]))
    world.machine = renamed
    for checkpoint in (False, True):
        world.restart(checkpoint)
        queue = world.queue("q")
        wanted = [P.PROPID_Q_PATHNAME, P.PROPID_Q_PATHNAME_DNS, P.PROPID_Q_LABEL]
        values = world.manager.administration.get_properties(queue, list(wanted), ALICE)
        assert values == ["THERE\\private$\\q", "there.example.com\\private$\\q", "kept"]
        assert queue.journal is not None and queue.journal.properties.path_name == "THERE\\private$\\q;journal"
    assert world.open("DIRECT=OS:HERE\\private$\\q").queue is world.queue("q")


def test_a_new_descriptor_is_a_change_of_the_queue(world: World) -> None:
    queue = world.create()
    created = queue.properties.modify_time
    world.advance(5000)
    world.manager.administration.set_security(queue, 4, SecurityDescriptor(dacl=()).pack(), ALICE)
    assert world.queue().properties.modify_time == created + 5


# -- rights ----------------------------------------------------------------------------------------------------

RIGHTS: list[tuple[Q, Any]] = [
    (Q.GET_QUEUE_PROPERTIES, lambda w, q: w.manager.administration.get_properties(q, [P.PROPID_Q_LABEL], BOB)),
    (Q.SET_QUEUE_PROPERTIES, lambda w, q: w.manager.administration.set_properties(q, {P.PROPID_Q_LABEL: "x"}, BOB)),
    (Q.GET_QUEUE_PERMISSIONS, lambda w, q: w.manager.administration.get_security(q, 15, BOB)),
    (
        Q.CHANGE_QUEUE_PERMISSIONS,
        lambda w, q: w.manager.administration.set_security(q, 4, SecurityDescriptor(dacl=()).pack(), BOB),
    ),
    (
        Q.TAKE_QUEUE_OWNERSHIP,
        lambda w, q: w.manager.administration.set_security(q, 1, SecurityDescriptor(BOB.sid).pack(), BOB),
    ),
    (Q.DELETE_QUEUE, lambda w, q: w.manager.administration.delete_queue(q, BOB)),
    (Q.WRITE_MESSAGE, lambda w, q: w.open("q", Access.SEND, caller=BOB)),
    (Q.PEEK_MESSAGE, lambda w, q: w.open("q", Access.PEEK, caller=BOB)),
    (Q.RECEIVE_MESSAGE, lambda w, q: w.open("q", Access.RECEIVE, caller=BOB)),
    (Q.PEEK_MESSAGE, lambda w, q: w.open("DIRECT=OS:.\\private$\\q;JOURNAL", Access.PEEK, caller=BOB)),
    (Q.RECEIVE_JOURNAL_MESSAGE, lambda w, q: w.open("DIRECT=OS:.\\private$\\q;JOURNAL", Access.RECEIVE, caller=BOB)),
]


@pytest.mark.parametrize(("right", "attempt"), RIGHTS)
def test_each_operation_needs_exactly_its_right(world: World, right: Q, attempt: Any) -> None:
    queue = world.create()
    everything_else = SecurityDescriptor(ALICE.sid, ALICE.sid, (allow(BOB.sid, Q.GENERIC_ALL & ~right),))
    world.manager.administration.set_security(queue, 4, everything_else.pack(), ALICE)
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        attempt(world, queue)
    only_this = SecurityDescriptor(ALICE.sid, ALICE.sid, (allow(BOB.sid, right),))
    world.manager.administration.set_security(queue, 4, only_this.pack(), ALICE)
    attempt(world, queue)


def test_the_security_of_a_queue_comes_back_in_the_parts_that_are_asked_for(world: World) -> None:
    queue = world.create()
    for information in range(1, 16):
        parsed = SecurityDescriptor.parse(world.manager.administration.get_security(queue, information, ALICE))
        assert (parsed.owner is not None, parsed.group is not None, parsed.dacl is not None, parsed.sacl) == (
            bool(information & 1), bool(information & 2), bool(information & 4), None)  # fmt: skip


SYSTEM_OPENS = [
    ("DIRECT=OS:.\\SYSTEM$;DEADLETTER", Access.PEEK, MachineAccessMask.PEEK_DEADLETTER_MESSAGE),
    ("DIRECT=OS:.\\SYSTEM$;DEADLETTER", Access.RECEIVE, MachineAccessMask.RECEIVE_DEADLETTER_MESSAGE),
    ("DIRECT=OS:.\\SYSTEM$;DEADXACT", Access.RECEIVE, MachineAccessMask.RECEIVE_DEADLETTER_MESSAGE),
    ("DIRECT=OS:.\\SYSTEM$;JOURNAL", Access.PEEK, MachineAccessMask.PEEK_JOURNAL_QUEUE_MESSAGE),
    ("DIRECT=OS:.\\SYSTEM$;JOURNAL", Access.RECEIVE, MachineAccessMask.RECEIVE_JOURNAL_QUEUE_MESSAGE),
]


@pytest.mark.parametrize(("name", "access", "right"), SYSTEM_OPENS)
def test_system_queues_are_guarded_by_the_machine(name: str, access: Access, right: MachineAccessMask) -> None:
    everyone = (allow(ALICE.sid, right), allow(BOB.sid, MachineAccessMask.GENERIC_ALL & ~right))
    world = World(replace(MACHINE, security=SecurityDescriptor(dacl=everyone)))
    assert world.open(name, access, caller=ALICE).queue is not None
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.open(name, access, caller=BOB)


def test_system_queues_and_journals_are_neither_deleted_nor_changed(world: World) -> None:
    journal = world.create().journal
    assert journal is not None
    for queue in (journal, world.registry.dead_letters):
        for attempt in (
            lambda q=queue: world.manager.administration.delete_queue(q, ALICE),
            lambda q=queue: world.manager.administration.set_properties(q, {P.PROPID_Q_LABEL: "x"}, ALICE),
            lambda q=queue: world.manager.administration.get_properties(q, [P.PROPID_Q_LABEL], ALICE),
            lambda q=queue: world.manager.administration.set_security(q, 4, SecurityDescriptor(dacl=()).pack(), ALICE),
            lambda q=queue: world.manager.administration.get_security(q, 4, ALICE),
        ):
            with refused(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
                attempt()


def test_queues_are_counted_by_their_owners_also_when_these_change(world: World) -> None:
    world.create("one")
    world.create("two")
    registry = world.registry
    alice, bob = (security.sid_bytes(caller.sid) for caller in (ALICE, BOB))
    before = registry.owned_by(alice)
    assert before >= 2 and registry.owned_by(bob) == 0
    queue = world.queue("two")
    given = queue.properties._replace(security=SecurityDescriptor(owner=BOB.sid).pack())
    registry.update(queue, given)
    registry.update(queue, given._replace(label="still Bob's"))
    assert (registry.owned_by(alice), registry.owned_by(bob)) == (before - 1, 1)
    world.restart()
    assert (world.registry.owned_by(alice), world.registry.owned_by(bob)) == (before - 1, 1)


def test_what_the_audit_log_shows_of_a_change_is_what_differs_but_the_time() -> None:
    old = QueueProperties("m\\private$\\q", label="old", modify_time=1)
    assert _differing(old, old._replace(label="new", modify_time=2)) == ({"label": "old"}, {"label": "new"})
    assert _differing(old, old._replace(modify_time=2)) == ({}, {})
