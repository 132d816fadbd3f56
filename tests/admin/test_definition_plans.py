"""Plans: the steps from the queues of a queue manager to a document, on queues in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.accounts.users import UsersFile
from openmsmq.admin.definitions import (
    DONE,
    LEFT,
    DefinitionChange,
    Document,
    apply,
    apply_all,
    definitions_of_queues,
    plan,
)
from openmsmq.admin.definitions_schema import DefinitionsError
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.errors import AccessDenied, RpcConnectionError
from openmsmq.model.sddl import from_sddl, to_sddl
from openmsmq.model.security import SecurityDescriptor

ALICE, BOB = "S-1-5-21-1-2-3-1105", "S-1-5-21-1-2-3-1106"
NAMES = {ALICE: "alice", BOB: "bob"}
SIDS = {name: sid for sid, name in NAMES.items()} | {"BOB": BOB, "Alice": ALICE}
OWNER, DACL = SecurityInformation.OWNER, SecurityInformation.DACL
INHERITED = f"O:{ALICE}D:(A;CI;CC;;;{BOB})"  # words cannot express this


def sid_of(name: str) -> str:
    if name not in SIDS:
        raise ValueError(f"there is no account {name}")
    return SIDS[name]


class MemoryQueues:
    """A queue manager with the queue `q`; records changes."""

    def __init__(self, sddl: str = f"O:{ALICE}D:(A;;CC;;;{BOB})", **properties: Any) -> None:
        self.descriptor = from_sddl(sddl).pack()
        self.values = {"label": "l", "transactional": False, "type": UUID(int=1), **properties}
        self.changes: list[Any] = []

    def properties_of_each(self, paths: list[str], *wanted: str) -> list[dict[str, Any] | Exception]:
        return [self.values for _ in paths]

    def security(self, path: str) -> bytes:
        return self.descriptor

    def security_of_each(self, paths: list[str]) -> list[bytes]:
        return [self.descriptor for _ in paths]

    def set_security(self, path: str, descriptor: bytes, parts: int) -> None:
        self.changes.append((path, to_sddl(SecurityDescriptor.parse(descriptor)), SecurityInformation(parts)))

    def set_properties(self, path: str, **properties: Any) -> None:
        self.changes.append((path, properties))

    def create_queue(self, path: str, *, security: bytes | None, **properties: Any) -> None:
        shown = None if security is None else to_sddl(SecurityDescriptor.parse(security))
        self.changes.append((path, shown, properties))


def definition_of(qm: Any) -> Document:
    [found] = definitions_of_queues(qm, [".\\private$\\q"], NAMES)
    return found


def planned(qm: MemoryQueues, *, exists: bool = True, **wanted: Any) -> list[str]:
    """Make a plan for the queue `q` and carry it out; return what it says. Steps that are left begin with `left: `."""
    client: Any = qm
    here = {"queues": [definition_of(client)] if exists else []}
    steps = plan(client, {"format": 1, "queues": [{"name": "q", **wanted}]}, here, sid_of)
    return [f"left: {step.said}" if apply(step) == LEFT else step.said for step in steps]


def entries_of(sddl: str) -> list[str]:
    client: Any = MemoryQueues(sddl)
    found: list[str] = definition_of(client)["permissions"]
    return found


def test_a_queue_that_is_as_wanted_needs_no_step() -> None:
    qm: Any = MemoryQueues()
    wanted = definition_of(qm)
    assert wanted["owner"] == "alice" and len(wanted["permissions"]) == 1
    assert planned(qm, **{key: value for key, value in wanted.items() if key != "name"}) == []
    assert planned(qm) == [] and planned(qm, owner=None) == [] and qm.changes == []


def test_owner_and_entries_are_changed_each_only_if_different() -> None:
    entries = entries_of(f"D:(A;;CC;;;{BOB})")
    other = entries_of(f"D:(A;;CCDC;;;{BOB})")
    cases: list[tuple[dict[str, Any], list[str], SecurityInformation]] = [
        ({"owner": "bob", "permissions": entries}, ["queue q: owner bob"], OWNER),
        ({"owner": "alice", "permissions": other}, [f"queue q: {other[0]}"], DACL),
        ({"permissions": other}, [f"queue q: {other[0]}"], DACL),
        ({"owner": "bob", "permissions": other}, [f"queue q: owner bob; {other[0]}"], OWNER | DACL),
    ]
    for wanted, said, parts in cases:
        qm = MemoryQueues()
        assert planned(qm, **wanted) == said
        ((path, _, changed),) = qm.changes
        assert (path, changed) == (".\\private$\\q", parts)


def test_a_descriptor_that_words_cannot_express_is_changed_only_if_different() -> None:
    qm = MemoryQueues(INHERITED)
    assert planned(qm, sddl=to_sddl(from_sddl(INHERITED))) == [] and qm.changes == []
    other = to_sddl(from_sddl(INHERITED.replace("CC", "DC")))
    assert planned(qm, sddl=other) == [f"queue q: {other}"]
    assert qm.changes == [(".\\private$\\q", other, DACL)], "the owner stays: to set it needs another right"
    qm = MemoryQueues(INHERITED)
    other = to_sddl(from_sddl(INHERITED.replace(ALICE, BOB)))
    assert planned(qm, sddl=other) == [f"queue q: {other}"]
    assert qm.changes == [(".\\private$\\q", other, OWNER | DACL)]


def test_properties_are_changed_together_and_those_that_cannot_be_changed_are_left() -> None:
    qm = MemoryQueues()
    assert planned(qm, label="new", type=str(UUID(int=2)), transactional=True) == [
        "left: queue q: transactional is False and can't be changed; delete it, and import again",
        f"queue q: label 'l' -> 'new', type '{UUID(int=1)}' -> '{UUID(int=2)}'",
    ]
    assert qm.changes == [(".\\private$\\q", {"label": "new", "type": UUID(int=2)})]


def test_a_missing_queue_is_created_with_its_rights_at_once() -> None:
    entries = entries_of(f"D:(A;;CC;;;{BOB})")
    path = ".\\private$\\q"
    cases: list[tuple[dict[str, Any], str, str | None, dict[str, Any]]] = [
        ({}, "create queue q", None, {}),
        ({"label": "a", "multicast_address": "", "type": str(UUID(int=2))}, "create queue q", None,
         {"label": "a", "type": UUID(int=2)}),
        ({"multicast_address": "234.1.1.1:80"}, "create queue q", None, {"multicast_address": "234.1.1.1:80"}),
        ({"owner": "bob"}, "create queue q: owner bob", f"O:{BOB}", {}),
        ({"permissions": entries}, f"create queue q: {entries[0]}", f"D:(A;;CC;;;{BOB})", {}),
        ({"sddl": INHERITED}, f"create queue q: {INHERITED}", to_sddl(from_sddl(INHERITED)), {}),
    ]  # fmt: skip
    for wanted, said, security, properties in cases:
        qm = MemoryQueues()
        assert planned(qm, exists=False, **wanted) == [said]
        assert qm.changes == [(path, security, properties)]


def test_what_could_not_be_read_here_or_there_is_left() -> None:
    qm = MemoryQueues()
    assert planned(qm, exists=False, unreadable="MQ_ERROR_ACCESS_DENIED") == [
        "left: queue q is missing, and who made the document could not read it: left"
    ]
    assert planned(qm, exists=False, unreadable="MQ_ERROR_ACCESS_DENIED", label="a") == ["create queue q"]

    class Hidden(MemoryQueues):
        def properties_of_each(self, paths: list[str], *wanted: str) -> list[dict[str, Any] | Exception]:
            return [AccessDenied(detail="no")]

    assert planned(Hidden(), label="a") == ["left: queue q can't be read by you (MQ_ERROR_ACCESS_DENIED): left"]


def test_queues_that_are_not_in_the_document_are_kept_and_names_ignore_case() -> None:
    client: Any = MemoryQueues()
    here = {"queues": [{"name": "Orders", "label": "a"}, {"name": "bills"}]}
    steps = plan(client, {"format": 1, "queues": [{"name": "orders", "label": "a"}]}, here, sid_of)
    assert [(step.said, step.apply) for step in steps] == [("queue bills is here only: kept", None)]


def test_users_and_groups_become_those_of_the_document(tmp_path: Path) -> None:
    users = UsersFile(tmp_path / "users.json")
    for name, administrator in (("kept", True), ("raised", False), ("lowered", True), ("named", True), ("own", True)):
        users.add(name, "Passw0rd!", administrator=administrator)
    users.add_group("team", ["kept", "raised"])
    document = {
        "format": 1,
        "users": [
            {"name": "kept", "administrator": True}, {"name": "raised", "administrator": True, "role": "operator"},
            {"name": "lowered", "administrator": False}, {"name": "new", "nt_hash": "0a" * 16, "role": "monitor"},
            {"name": "unknown"}, {"name": "named"}, {"name": "OWN", "administrator": False, "role": "monitor"},
        ],
        "groups": [{"name": "team", "members": ["kept", "lowered"]}, {"name": "empty"}, {"name": "others"}],
    }  # fmt: skip
    here = {
        "queues": [],
        "users": [
            {"name": user.name, "administrator": user.administrator, "role": user.role.word} for user in users.list()
        ],
        "groups": [{"name": "team", "members": ["kept", "raised"]}, {"name": "others", "members": ["kept"]}],
    }
    client: Any = MemoryQueues()
    local: Any = SimpleNamespace(users=users, machine=None, caller="own")
    done = {step.said: apply(step) for step in plan(client, document, here, sid_of, local)}
    assert done == {
        "user raised: administrator False -> True": "done",
        "user raised: role administrator -> operator": "done",
        "user lowered: administrator True -> False": "done",
        "add user new": "done",
        "user unknown is missing, and its password is not in the file: openmsmq user add": LEFT,
        "user OWN: administrator True -> False: left, because it is your own account": LEFT,
        "user OWN: role administrator -> monitor: left, because it is your own account": LEFT,
        "group team: +lowered, -raised": "done",
        "add group empty with no members": "done",
    }
    found = {user.name: (user.administrator, user.role.word) for user in UsersFile(tmp_path / "users.json").list()}
    assert found == {
        "kept": (True, "administrator"), "raised": (True, "operator"), "lowered": (False, "administrator"),
        "new": (False, "monitor"), "named": (True, "administrator"), "own": (True, "administrator"),
    }  # fmt: skip
    groups = {group.name: len(group.members) for group in UsersFile(tmp_path / "users.json").groups()}
    assert groups == {"team": 2, "empty": 0}


@pytest.mark.parametrize("wanted", [{"owner": "nobody"}, {"permissions": ["allow nobody PeekMessage"]}])
def test_an_unknown_account_is_an_error_before_any_step(wanted: dict[str, Any]) -> None:
    qm = MemoryQueues()
    with pytest.raises(DefinitionsError, match="queue q: there is no account nobody"):
        planned(qm, **wanted)
    assert qm.changes == []


def test_no_step_is_tried_after_one_that_the_server_did_not_answer() -> None:
    tried: list[str] = []

    def step(name: str, error: Exception | None = None) -> DefinitionChange:
        def change() -> None:
            tried.append(name)
            if error is not None:
                raise error

        return DefinitionChange(name, change)

    steps = [step("a"), step("b", AccessDenied(detail="no")), step("c", RpcConnectionError("gone")), step("d")]
    results = list(apply_all([*steps, DefinitionChange("e", None)]))
    assert tried == ["a", "b", "c"] and results[0] == DONE and results[4] == LEFT
    assert "gone" in results[2] and results[3].startswith("failed: not tried")


def test_names_in_other_letters_and_rights_in_another_order_are_no_difference() -> None:
    [entry] = entries_of(f"D:(A;;LCRP;;;{BOB})")
    kind, name, *rights = entry.split(" ")
    qm = MemoryQueues(f"O:{ALICE}D:(A;;LCRP;;;{BOB})")
    assert len(rights) == 2 and planned(qm, permissions=[" ".join([kind, name, *reversed(rights)])]) == []
    assert planned(qm, permissions=[" ".join([kind, "BOB", *map(str.upper, rights)])], owner="Alice") == []
    assert planned(qm, sddl=f"O:{ALICE}D:(A;;RPLC;;;{BOB})") == [] and planned(qm, sddl=f"D:(A;;LCRP;;;{BOB})") == []
    assert planned(qm, permissions=[f"deny bob {' '.join(rights)}"]) != []


def test_members_in_other_letters_stay_in_their_group(tmp_path: Path) -> None:
    qm: Any = MemoryQueues()
    users = UsersFile(tmp_path / "users.json")
    for name in ("alice", "bob", "carol"):
        users.add(name, "secret")
    users.add_group("clerks", ["alice", "bob"])
    here = {"queues": [], "groups": [{"name": "clerks", "members": ["alice", "bob"]}]}
    local: Any = SimpleNamespace(users=users, machine=None, caller="")

    def carried_out(*members: str) -> list[str]:
        document = {"format": 1, "groups": [{"name": "CLERKS", "members": members}]}
        return [step.said for step in plan(qm, document, here, sid_of, local) if apply(step) == DONE]

    assert carried_out("Alice", "BOB") == []
    assert carried_out("ALICE", "Carol") == ["group CLERKS: +Carol, -bob"]
    names = users.names()
    assert [{names[sid] for sid in group.members} for group in users.groups()] == [{"alice", "carol"}]


@pytest.mark.parametrize(
    "wanted",
    [
        {"groups": [{"name": "Alice", "members": []}]},
        {"users": [{"name": "CLERKS", "nt_hash": "1" * 32}]},
        {"users": [{"name": "new", "nt_hash": "1" * 32}], "groups": [{"name": "New", "members": []}]},
    ],
)
def test_a_name_of_both_a_user_and_a_group_is_an_error_before_any_step(tmp_path: Path, wanted: dict[str, Any]) -> None:
    qm: Any = MemoryQueues()
    users = UsersFile(tmp_path / "users.json")
    users.add("alice", "secret")
    users.add_group("clerks")
    local: Any = SimpleNamespace(users=users, machine=None, caller="")
    with pytest.raises(DefinitionsError, match="would be a user and a group"):
        plan(qm, {"format": 1, **wanted}, {"queues": []}, sid_of, local)
