"""Owners of new queues, rights of others, and entries that deny."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from openmsmq.accounts.users import UsersFile
from openmsmq.model import security
from openmsmq.model.constants import QueueAccessMask as Q
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.default_descriptors import SEES, SEES_AND_SENDS
from openmsmq.model.errors import AccessDenied, HResult, InsufficientResources
from openmsmq.model.security import Ace, SecurityDescriptor
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.machine import MachineLimits
from openmsmq.queueing.queue import Queue
from openmsmq.server.config import Configuration
from openmsmq.server.machine_security import everyones_access
from queueing.world import ALICE, BOB, MACHINE, World, refused

GROUP = "S-1-5-21-1-2-3-2000"
ADMINISTRATOR = Caller.user("S-1-5-21-1-2-3-500", "root").as_administrator()
INVALID_OWNER = HResult.ERROR_INVALID_OWNER


def create(world: World, owner: str | None, caller: Caller, name: str = "q") -> Queue:
    given = SecurityDescriptor(owner=owner).pack() if owner else None
    return world.manager.administration.create_queue(f".\\private$\\{name}", {}, given, caller)


def owner_of(queue: Queue) -> str | None:
    return SecurityDescriptor.parse(queue.properties.security).owner


def test_only_the_creator_and_their_groups_can_own_new_queues() -> None:
    world = World()
    member = Caller.user(ALICE.sid, "alice", frozenset([GROUP]))
    assert owner_of(create(world, None, ALICE, "own")) == ALICE.sid
    assert owner_of(create(world, GROUP, member, "group")) == GROUP
    assert owner_of(create(world, BOB.sid, ADMINISTRATOR, "any")) == BOB.sid
    for owner, caller in (
        (BOB.sid, ALICE), (GROUP, ALICE), (security.ADMINISTRATORS, ALICE), (security.EVERYONE, ALICE),
        (security.AUTHENTICATED_USERS, ALICE), (BOB.sid, Caller.anonymous()),
    ):  # fmt: skip
        with refused(INVALID_OWNER):
            create(world, owner, caller, "refused")
    assert "refused" not in world.registry.by_name


def test_no_owner_can_use_the_share_of_another() -> None:
    world = World(replace(MACHINE, limits=MachineLimits(max_queues_per_owner=2)))
    member = Caller.user(ALICE.sid, "alice", frozenset([GROUP]))
    for name in ("a", "b"):
        create(world, None, ALICE, name)
    with pytest.raises(InsufficientResources, match="max_queues_per_owner"):
        create(world, None, ALICE, "c")
    for name in ("g1", "g2"):
        create(world, GROUP, member, name)
    with pytest.raises(InsufficientResources, match=GROUP):
        create(world, GROUP, member, "g3")
    create(world, None, BOB, "bob's")
    create(world, None, ADMINISTRATOR, "any")


def test_a_queue_is_not_given_away_later() -> None:
    world = World()
    queue, change = create(world, None, ALICE), world.manager.administration.set_security
    given = SecurityDescriptor(owner=BOB.sid).pack()
    with refused(INVALID_OWNER):
        change(queue, int(SecurityInformation.OWNER), given, ALICE)
    change(queue, int(SecurityInformation.OWNER), SecurityDescriptor(owner=ALICE.sid).pack(), ALICE)
    change(queue, int(SecurityInformation.OWNER), given, ADMINISTRATOR)
    assert owner_of(queue) == BOB.sid


def test_a_group_is_not_erased_and_a_request_for_no_part_returns_none() -> None:
    world = World()
    queue, administration = create(world, None, ALICE), world.manager.administration
    with refused(HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR):
        administration.set_security(queue, int(SecurityInformation.GROUP), SecurityDescriptor().pack(), ALICE)
    assert SecurityDescriptor.parse(queue.properties.security).group == ALICE.sid
    assert SecurityDescriptor.parse(administration.get_security(queue, 0, ALICE)) == SecurityDescriptor()
    with refused(HResult.MQ_ERROR_INVALID_PARAMETER):
        administration.get_security(queue, 0x10, ALICE)


@pytest.mark.parametrize("everyone", [SEES, SEES_AND_SENDS])
def test_new_queues_are_as_narrow_as_the_machine_says(everyone: int) -> None:
    world = World(
        replace(MACHINE, everyones_access=lambda owner: everyone if owner == ALICE.sid else int(Q.GENERIC_ALL))
    )
    hers, his = create(world, None, ALICE, "hers"), create(world, None, BOB, "his")
    descriptor = SecurityDescriptor.parse(hers.properties.security)
    assert descriptor.grants(ALICE.sids, int(Q.GENERIC_ALL)) and descriptor.grants(
        ADMINISTRATOR.sids, int(Q.GENERIC_ALL)
    )
    for wanted in Q:
        single = int(wanted) & int(Q.GENERIC_ALL)
        if single and not single & (single - 1):
            assert descriptor.grants(BOB.sids, single) == bool(single & everyone), wanted
    with pytest.raises(AccessDenied):
        world.open("hers", caller=BOB)
    assert SecurityDescriptor.parse(his.properties.security).grants(ALICE.sids, int(Q.GENERIC_ALL))


@pytest.mark.parametrize(
    ("setting", "listen", "domain", "local"),
    [
        ("auto", "127.0.0.1", SEES, int(Q.GENERIC_ALL)), ("auto", "0.0.0.0", SEES, SEES_AND_SENDS),
        ("owner", "127.0.0.1", SEES, SEES_AND_SENDS), ("everyone", "0.0.0.0", int(Q.GENERIC_ALL), int(Q.GENERIC_ALL)),
    ],
)  # fmt: skip
def test_the_setting_tells_users_of_a_domain_from_others(
    tmp_path: Path, setting: str, listen: str, domain: int, local: int
) -> None:
    users = UsersFile(tmp_path / "users.json")
    users.add("carol", "a password that is long")
    found = users.lookup("", "carol")
    assert found is not None
    of = everyones_access(Configuration(data_dir=tmp_path, new_queue_access=setting, listen=listen), users)
    assert of("S-1-5-21-9-9-9-1104") == domain
    assert of(found[1]) == of(security.ANONYMOUS) == local


@pytest.mark.parametrize("kind", range(0x20))
def test_only_entries_that_allow_or_deny_decide(kind: int) -> None:
    """[MS-DTYP] 2.4.4.1: all types of the table, and undefined types."""
    expected = {0x00: "allows", 0x01: "denies", 0x06: "denies", 0x0A: "denies", 0x0C: "denies"}
    entry = Ace(kind, 0, int(Q.RECEIVE_MESSAGE), BOB.sid)  # in any form that names an account
    before = SecurityDescriptor(owner=ALICE.sid, dacl=(entry, security.allow(security.EVERYONE, Q.GENERIC_ALL)))
    alone = SecurityDescriptor(owner=ALICE.sid, dacl=(entry,))
    allowed = before.grants(BOB.sids, int(Q.RECEIVE_MESSAGE)), alone.grants(BOB.sids, int(Q.RECEIVE_MESSAGE))
    assert allowed == {"allows": (True, True), "denies": (False, False), "": (True, False)}[expected.get(kind, "")]


CONDITION = b"artx" + bytes(12)


@pytest.mark.parametrize(
    ("kind", "head", "tail"),
    [
        (0x06, bytes(4), b""), (0x06, (1).to_bytes(4, "little") + bytes(16), b""),
        (0x06, (3).to_bytes(4, "little") + bytes(32), b""), (0x0A, b"", CONDITION), (0x0C, bytes(4), CONDITION),
    ],
)  # fmt: skip
def test_entries_deny_whose_condition_or_part_is_not_understood(kind: int, head: bytes, tail: bytes) -> None:
    """[MS-DTYP] 2.4.4.17.3: conditions that cannot be evaluated deny."""
    sid = security.sid_bytes(BOB.sid)
    mask = int(Q.RECEIVE_MESSAGE)
    raw = bytes([kind, 0]) + (8 + len(head + sid + tail)).to_bytes(2, "little") + mask.to_bytes(4, "little")
    entry = Ace(kind, 0, mask, "", raw + head + sid + tail)
    made = SecurityDescriptor(owner=ALICE.sid, dacl=(entry, security.allow(security.EVERYONE, Q.GENERIC_ALL)))
    parsed = SecurityDescriptor.parse(made.pack())
    assert parsed.dacl == made.dacl
    assert not parsed.grants(BOB.sids, int(Q.RECEIVE_MESSAGE)) and parsed.grants(BOB.sids, int(Q.WRITE_MESSAGE))
    assert parsed.grants(ALICE.sids, int(Q.RECEIVE_MESSAGE))
