"""Every gate is in the table of rights and in docs/security.md, and checked by one function."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from uuid import UUID

import pytest

import openmsmq
from openmsmq.admin.machine_guard import MACHINE_FILE, machine_file
from openmsmq.files.private import write_private
from openmsmq.model import security
from openmsmq.model.constants import MachineAccessMask, QueueAccessMask
from openmsmq.model.errors import AccessDenied
from openmsmq.model.names import parse_format_name
from openmsmq.model.sddl import from_sddl
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.authorization import (
    GATES,
    SYSTEM,
    AccessTarget,
    Authorization,
    Caller,
    DirectoryRecord,
    Owned,
    Right,
)
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.outgoing_queues import ForeignSite
from openmsmq.queueing.queue import Queue
from queueing.world import ALICE, BOB, MACHINE, World

PACKAGE = Path(openmsmq.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text()
    for name in ("gateways", "protocols", "queueing", "server")
    for path in (PACKAGE / name).glob("*.py")
}
SECURITY = (Path(__file__).parents[2] / "docs/security.md").read_text()
OF_THE_MACHINE = (
    AccessTarget.MACHINE,
    AccessTarget.MACHINE_JOURNAL,
    AccessTarget.DEAD_LETTERS,
    AccessTarget.OUTGOING,
    AccessTarget.OWNED,
)


def mask_of(target: AccessTarget, name: str) -> int:
    return int((MachineAccessMask if target in OF_THE_MACHINE else QueueAccessMask)[name])


def documented() -> dict[Right, tuple[set[str], dict[AccessTarget, int]]]:
    """Return the table of docs/security.md: where each right is checked, and what it requires."""
    found = {}
    for name, modules, demands in re.findall(r"^\| ([A-Z_]+) \| (.*?) \| (.*?) \|$", SECURITY, re.MULTILINE):
        masks: dict[AccessTarget, int] = {}
        for demand in demands.split("; "):
            mask, _, objects = demand.partition(": ")
            masks |= {AccessTarget(text): mask_of(AccessTarget(text), mask) for text in objects.split(", ")}
        found[Right[name]] = (set(re.findall(r"`(.*?)`", modules)), masks)
    return found


def test_the_document_matches_the_table() -> None:
    assert {right: masks for right, (_, masks) in documented().items()} == GATES
    assert set(GATES) == set(Right)


def test_the_document_names_where_each_right_is_checked() -> None:
    asked = {
        right: {
            name
            for name, text in SOURCES.items()
            if name != "queueing/authorization.py" and re.search(rf"\bRight\.{right.name}\b", text)
        }
        for right in Right
    }
    assert {right: modules for right, (modules, _) in documented().items()} == asked
    assert all(asked.values())


def test_only_authorization_reads_security_descriptors() -> None:
    assert [name for name, text in SOURCES.items() if ".grants(" in text] == ["queueing/authorization.py"]


def test_the_document_names_where_the_owner_of_a_handle_is_checked() -> None:
    asking = {
        name for name, text in SOURCES.items() if re.search(r"\.admits(?:_user)?\((call\.)?(holder|caller)\b", text)
    }
    (paragraph,) = re.findall(r"^What a context handle.*?\n\n", SECURITY, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(\w+/\w+\.py)`", paragraph))
    assert named == asking


# -- each cell ---------------------------------------------------------------------------------------------------

NAME = parse_format_name("DIRECT=OS:there\\private$\\q")
SITE = ForeignSite(UUID(int=7), "site", ("SAPHOST",))


def descriptor(mask: int) -> SecurityDescriptor:
    return SecurityDescriptor(owner=ALICE.sid, group=ALICE.sid, dacl=(security.allow(BOB.sid, mask),))


def an_object(world: World, target: AccessTarget, guard: SecurityDescriptor) -> Queue | Owned | None:
    """Return an object of a kind, on a machine and with a queue that have this descriptor."""
    queue = world.create()
    connector = next(iter(world.registry.connectors.values()))
    for one in (queue, connector):
        world.manager.administration.set_security(one, 4, guard.pack(), SYSTEM)
    return {
        AccessTarget.MACHINE: None,
        AccessTarget.MACHINE_JOURNAL: world.registry.system_journal,
        AccessTarget.DEAD_LETTERS: world.registry.dead_letters,
        AccessTarget.QUEUE: queue,
        AccessTarget.SUBQUEUE: world.registry.subqueue(queue, "s"),
        AccessTarget.JOURNAL: queue.journal,
        AccessTarget.CONNECTOR: connector,
        AccessTarget.OUTGOING: world.registry.create_outgoing(NAME),
        AccessTarget.OWNED: Owned(ALICE.sid, "sink 's'"),
    }[target]


@pytest.mark.parametrize(("right", "target"), [*product(Right, AccessTarget)])
def test_each_right_on_each_object_needs_exactly_what_the_table_says(right: Right, target: AccessTarget) -> None:
    wanted = GATES[right].get(target)
    for mask, allowed in ((wanted or 0, wanted is not None), (0xFFFFF & ~(wanted or 0), False)):
        machine = Machine("HERE", MACHINE.identifier, security=None, foreign_sites=(SITE,))
        world = World(machine)
        found = an_object(world, target, descriptor(mask))
        authorization = Authorization(descriptor(mask))
        assert authorization.allows(BOB, found, right) == allowed
        if allowed:
            authorization.authorize(BOB, found, right)
        else:
            with pytest.raises(AccessDenied):
                authorization.authorize(BOB, found, right)


def test_what_is_not_in_the_table_is_denied_to_everybody() -> None:
    world = World()
    with pytest.raises(AccessDenied, match="nobody"):
        world.manager.authorization.authorize(SYSTEM, None, Right.RECEIVE)
    with pytest.raises(AccessDenied, match="nobody"):
        world.manager.authorization.authorize(SYSTEM, world.registry.system_journal, Right.DELETE_QUEUE)


def test_an_owner_may_use_their_own_objects() -> None:
    authorization = Authorization(descriptor(0))
    authorization.authorize(ALICE, Owned(ALICE.sid, "sink"), Right.USE_OWN)
    assert not authorization.allows(Caller.anonymous(), Owned(ALICE.sid, "sink"), Right.USE_OWN)


def test_a_refusal_names_the_caller_by_name_or_by_sid() -> None:
    authorization = Authorization(SecurityDescriptor(owner="S-1-5-18", group="S-1-5-18", dacl=()))
    named, nameless = Caller.user("S-1-5-21-9", "carol"), Caller("S-1-5-21-9", frozenset())
    for caller, said in ((named, "carol"), (nameless, "S-1-5-21-9")):
        command = f"{said} may not create a queue .*: openmsmq machine grant {said} CreateQueue$"
        with pytest.raises(AccessDenied, match=command):
            authorization.authorize(caller, None, Right.CREATE_QUEUE)


@pytest.mark.parametrize(("generic", "mask"), [
    ("GA", MachineAccessMask.GENERIC_ALL), ("GR", MachineAccessMask.GENERIC_READ),
    ("GW", MachineAccessMask.GENERIC_WRITE),
])  # fmt: skip
def test_generic_rights_on_a_machine_are_those_of_machines(tmp_path: Path, generic: str, mask: int) -> None:
    """[MS-MQMQ] 2.2.23"""
    write_private(tmp_path / MACHINE_FILE, f"O:BAG:BAD:(A;;{generic};;;{BOB.sid})".encode())
    found = machine_file(tmp_path).value()
    assert found is not None and found.dacl is not None
    assert found.dacl[0].mask == mask
    authorization, registry = Authorization(found), World().registry
    reads = generic != "GW"
    assert authorization.allows(BOB, registry.system_journal, Right.RECEIVE) is reads
    assert authorization.allows(BOB, registry.dead_letters, Right.RECEIVE) is reads
    assert authorization.allows(BOB, None, Right.CREATE_QUEUE) is (generic != "GR")
    in_directory = DirectoryRecord(from_sddl(f"O:BAG:BAD:(A;;{generic};;;{BOB.sid})").pack(), "FAR", is_machine=True)
    assert authorization.allows(BOB, in_directory, Right.CREATE_QUEUE) is (generic != "GR")
