"""Definitions: queues, rights, users and settings as one document, to view, to compare, and to apply to another queue
manager.

A document has the member `queues` and, if the data directory is available, `machine`, `groups`, `users` and `settings`.
Rights are words with account names, because SIDs of users differ between machines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from openmsmq.accounts.users import UsersFile, UsersFileError
from openmsmq.admin import permissions
from openmsmq.admin.definitions_schema import FORMAT, DefinitionsError, parse, parse_entry
from openmsmq.admin.guards import Guard, QueueGuard
from openmsmq.client.calls import UNANSWERED
from openmsmq.client.sync import QueueManager
from openmsmq.files.private import PrivateFileError
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.errors import MsmqError
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.rights import MACHINE_RIGHTS, QUEUE_RIGHTS, NamedRight, mask_of
from openmsmq.model.roles import Role, role_of
from openmsmq.model.sddl import from_sddl, to_sddl
from openmsmq.model.security import SecurityDescriptor, allow, deny

logger = logging.getLogger(__name__)

#: Queue properties in a document.
DEFINED: Final = (
    "label", "transactional", "journal", "quota", "journal_quota", "authenticate", "priv_level", "type",
    "multicast_address", "delivery_limit", "poison_to_deadletter",
)  # fmt: skip
_FIXED: Final = ("transactional",)  # properties that cannot be changed after creation
_EVERYTHING: Final = SecurityInformation.OWNER | SecurityInformation.DACL

#: Errors for unusable files of the data directory.
UNREADABLE: Final = (UsersFileError, PrivateFileError, OSError)

SidOf = Callable[[str], str]  # returns the SID of a name; raises ValueError
Document = dict[str, Any]


class DefinitionChange(NamedTuple):
    """A difference between the current state and a document, and the step that removes it. `apply` is None if an import
    cannot or does not do it; `said` then says why."""

    said: str
    apply: Callable[[], object] | None


DONE: Final = "done"
LEFT: Final = "left"


def apply_all(steps: Iterable[DefinitionChange]) -> Iterator[str]:
    """Apply the steps and yield the result of each. After a step that the server did not answer, no others are tried,
    because each would wait for a new connection."""
    lost = ""
    for step in steps:
        try:
            yield apply(step) if step.apply is None or not lost else lost
        except UNANSWERED as error:
            yield f"failed: {error}"
            lost = "failed: not tried, because the server did not answer an earlier step"


def apply(step: DefinitionChange) -> str:
    """Apply a step. Returns `done`, `left` or an error text. Unexpected exceptions are also returned as text, so that
    the other steps can continue. Raises `UNANSWERED`."""
    if step.apply is None:
        return LEFT
    try:
        step.apply()
    except UNANSWERED:
        raise
    except (MsmqError, ValueError, *UNREADABLE) as error:
        return f"failed: {error}"
    except Exception as error:
        logger.exception("import of definitions: step failed: %s", step.said)
        return f"failed: {type(error).__name__}: {error}"
    return DONE


class Local(Protocol):
    """Local accounts of the data directory; see `cli.accounts`."""

    @property
    def users(self) -> UsersFile: ...

    @property
    def machine(self) -> Guard: ...

    @property
    def caller(self) -> str:
        """The name of the user who imports; empty for a command in the data directory."""


# -- export --------------------------------------------------------------------------------------------------------


def export(
    qm: QueueManager, names: Mapping[str, str], local: Local | None = None, settings: Mapping[str, Any] | None = None,
    *, secrets: bool = False, only: Container[str] | None = None,
) -> Document:  # fmt: skip
    """Return the document of a queue manager. `names`: SID -> name. Without `secrets`, password hashes, which are
    equivalent to passwords, are left out. `only`: names of queues in lower case; of the other queues, the document has
    only the names. Raises MsmqError, UsersFileError."""
    paths = _sorted(qm.queues())
    read = [path for path in paths if only is None or _short(path).lower() in only]
    found = dict(zip(read, definitions_of_queues(qm, read, names), strict=True))
    document: Document = {"format": FORMAT, "queues": [found.get(path, {"name": _short(path)}) for path in paths]}
    if local is not None:
        document["machine"] = _rights(local.machine.read(), names, MACHINE_RIGHTS)
        document["groups"] = [
            {"name": group.name, "members": sorted(names.get(sid, sid) for sid in group.members)}
            for group in local.users.groups()
        ]
        document["users"] = [
            {"name": user.name, "administrator": user.administrator, "role": user.role.word}
            | ({"nt_hash": user.nt_hash.hex()} if secrets else {})
            for user in local.users.list()
        ]
    if settings is not None:
        document["settings"] = dict(sorted(settings.items()))
    return document


def queues_in(document: Any) -> frozenset[str]:
    """Return the names of the queues in a document, in lower case. Raises DefinitionsError for an invalid document."""
    return frozenset(queue["name"].lower() for queue in parse(document).get("queues", []))


def _sorted(paths: list[str]) -> list[str]:
    return sorted(paths, key=lambda path: (_short(path).lower(), path))


def _short(path: str) -> str:
    """Return the name of a private queue without its computer, which differs between machines."""
    return path.partition("\\")[2].partition("\\")[2] or path


def definitions_of_queues(qm: QueueManager, paths: Sequence[str], names: Mapping[str, str]) -> list[Document]:
    """Return the definition of each of these queues.

    If the caller may not see a queue, or if it was deleted meanwhile: only its name and `unreadable`."""
    values = qm.properties_of_each(paths, *DEFINED)
    seen = [path for path, value in zip(paths, values, strict=True) if not isinstance(value, Exception)]
    rights: dict[bytes, Document] = {}  # many queues have the same descriptor
    security: dict[str, Document] = {}
    for path, descriptor in zip(seen, qm.security_of_each(seen), strict=True):
        if isinstance(descriptor, Exception):
            security[path] = _unreadable(path, descriptor)
        else:
            if descriptor not in rights:
                rights[descriptor] = _rights_in(path, descriptor, names)
            security[path] = rights[descriptor]
    return [
        {"name": _short(path)}
        | (_unreadable(path, value) if isinstance(value, Exception) else _plain(value) | security[path])
        for path, value in zip(paths, values, strict=True)
    ]


def _unreadable(path: str, error: Exception) -> Document:
    if isinstance(error, MsmqError):
        return {"unreadable": error.name}
    LEFT_OUT.note("exports of definitions", path, error)
    return {"unreadable": type(error).__name__}


def _rights_in(path: str, security: bytes, names: Mapping[str, str]) -> Document:
    try:
        return _rights(SecurityDescriptor.parse(security), names, QUEUE_RIGHTS)
    except Exception as error:
        return _unreadable(path, error)


def defined(
    name: str, values: Mapping[str, Any] | None, descriptor: SecurityDescriptor | None, names: Mapping[str, str]
) -> Document:
    """Return the definition of a queue from its properties and descriptor; None for unknown ones."""
    rights = {} if descriptor is None else _rights(descriptor, names, QUEUE_RIGHTS)
    return {"name": name, **_plain(values or {}), **rights}


def _plain(values: Mapping[str, Any]) -> Document:
    return {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}


def unreadable(document: Document) -> list[str]:
    """Return the names of queues that an export contains only partly."""
    return [queue["name"] for queue in document["queues"] if "unreadable" in queue]


def _rights(descriptor: SecurityDescriptor, names: Mapping[str, str], rights: tuple[NamedRight, ...]) -> Document:
    """Return rights as words, or as SDDL if words cannot express them."""
    simple = all(ace.type in (0, 1) and not ace.flags for ace in descriptor.dacl or ())
    if descriptor.sacl is not None or descriptor.dacl is None or not simple:
        return {"sddl": to_sddl(descriptor)}
    owner = permissions.name_for(descriptor.owner, names) if descriptor.owner else None
    entries = permissions.entries(descriptor, names, rights)
    return {"owner": owner, "permissions": [" ".join((e.kind, e.name, *e.rights)) for e in entries]}


# -- differences ---------------------------------------------------------------------------------------------------


def plan(
    qm: QueueManager, document: Any, here: Document, sid_of: SidOf, local: Local | None = None
) -> list[DefinitionChange]:
    """Return the steps from the current state `here` to a document in the required order: groups and users before
    rights that name them. Objects that are not in the document are kept. Raises DefinitionsError for an invalid
    document."""
    wanted = parse(document)
    _check_names(wanted, sid_of, local)
    steps: list[DefinitionChange] = []
    if local is not None:
        steps += _of_users(wanted, here, local)
    theirs = {queue["name"].lower(): queue for queue in here["queues"]}
    for queue in wanted.get("queues", []):
        steps += _of_queue(qm, queue, theirs.pop(queue["name"].lower(), None), sid_of)
    steps += [DefinitionChange(f"queue {left['name']} is here only: kept", None) for left in theirs.values()]
    if local is not None and "machine" in wanted:
        steps += _of_rights("the queue manager", local.machine, wanted["machine"], here.get("machine", {}), sid_of)
    for name, value in wanted.get("settings", {}).items():
        known = here.get("settings", {}).get(name)
        if "settings" in here and known != value:
            steps.append(
                DefinitionChange(
                    f"setting {name} is {_value(known)} and not {_value(value)}: the configuration says it", None
                )
            )
    return steps


def _check_names(wanted: Document, sid_of: SidOf, local: Local | None) -> None:
    """Check accounts. Raises DefinitionsError if an owner, entry or member is unknown and not added by a step."""
    users = {user["name"].casefold() for user in wanted.get("users", []) if "nt_hash" in user}
    added = users | {group["name"].casefold() for group in wanted.get("groups", [])} if local is not None else set()
    guarded: list[tuple[str, Document, tuple[NamedRight, ...]]] = [
        (f"queue {queue['name']}", queue, QUEUE_RIGHTS) for queue in wanted.get("queues", [])
    ]
    if local is not None:
        guarded += [("the queue manager", wanted.get("machine", {}), MACHINE_RIGHTS)]
        users |= {user.name.casefold() for user in local.users.list()}
        _check_kinds(wanted, local.users, users)
        for group in wanted.get("groups", []):
            for member in group.get("members", []):
                if member.casefold() not in users:
                    raise DefinitionsError(f"group {group['name']}: there is no user {member!r}, and no hash to add it")
    for said, part, rights in guarded:
        named = [part["owner"]] if part.get("owner") else []
        for name in [*named, *(parse_entry(text, rights)[1] for text in part.get("permissions", []))]:
            if name.casefold() not in added:
                try:
                    sid_of(name)
                except ValueError as error:
                    raise DefinitionsError(f"{said}: {error}") from None


def _check_kinds(wanted: Document, known: UsersFile, users: Container[str]) -> None:
    """Check that no name is of a user and of a group. `users`: those here and those that are added. Raises
    DefinitionsError."""
    groups = {group.name.casefold() for group in known.groups()}
    taken = [group["name"] for group in wanted.get("groups", []) if group["name"].casefold() in users]
    taken += [user["name"] for user in wanted.get("users", []) if user["name"].casefold() in groups]
    if taken:
        raise DefinitionsError(f"{taken[0]!r} would be a user and a group")


def _value(setting: Any) -> str:
    return f"{setting.get('value')!r}" if isinstance(setting, dict) else "unset"


def _of_queue(qm: QueueManager, wanted: Document, here: Document | None, sid_of: SidOf) -> list[DefinitionChange]:
    name, path = wanted["name"], f".\\private$\\{wanted['name']}"
    properties = {key: wanted[key] for key in DEFINED if key in wanted}
    guard = QueueGuard(qm, path)
    if here is None:
        given: dict[str, Any] = {key: UUID(value) if key == "type" else value for key, value in properties.items()
                 if not (key == "multicast_address" and not value)}  # fmt: skip
        if "unreadable" in wanted and not properties:
            return [
                DefinitionChange(f"queue {name} is missing, and who made the document could not read it: left", None)
            ]
        return [DefinitionChange(_created(name, wanted), lambda: _create(qm, path, given, wanted, sid_of))]
    if "unreadable" in here and not here.keys() & set(DEFINED):
        return [DefinitionChange(f"queue {name} can't be read by you ({here['unreadable']}): left", None)]
    steps = []
    differing = {key: value for key, value in properties.items() if here.get(key) != value}
    for key in [key for key in differing if key in _FIXED]:
        steps.append(
            DefinitionChange(
                f"queue {name}: {key} is {here[key]} and can't be changed; delete it, and import again", None
            )
        )
        del differing[key]
    if differing:
        difference = ", ".join(f"{key} {here.get(key)!r} -> {value!r}" for key, value in differing.items())
        changed: dict[str, Any] = {key: UUID(value) if key == "type" else value for key, value in differing.items()}
        steps.append(DefinitionChange(f"queue {name}: {difference}", lambda: qm.set_properties(path, **changed)))
    return steps + _of_rights(f"queue {name}", guard, wanted, here, sid_of)


def _created(name: str, wanted: Document) -> str:
    shown = [wanted["sddl"]] if "sddl" in wanted else []
    shown += [f"owner {wanted['owner']}"] if wanted.get("owner") else []
    shown += wanted.get("permissions", [])
    return f"create queue {name}" + (f": {'; '.join(shown)}" if shown else "")


def _create(qm: QueueManager, path: str, properties: Document, wanted: Document, sid_of: SidOf) -> None:
    """Create a queue with its security descriptor in one step: until it is set, the default would let others use the
    queue."""
    descriptor = None
    if wanted.keys() & {"owner", "permissions", "sddl"}:
        given = _descriptor(wanted, QUEUE_RIGHTS, sid_of)
        descriptor = (given if "permissions" in wanted or "sddl" in wanted else replace(given, dacl=None)).pack()
    qm.create_queue(path, security=descriptor, **properties)


def _of_rights(said: str, guard: Guard, wanted: Document, here: Document, sid_of: SidOf) -> list[DefinitionChange]:
    """Return the steps that change owner and entries, each only if different, because they need different rights."""
    parts = _differing(wanted, here, guard.rights, sid_of)
    if not parts:
        return []
    shown = [wanted["sddl"]] if "sddl" in wanted else []
    if parts & SecurityInformation.OWNER and "owner" in wanted:
        shown.append(f"owner {wanted['owner']}")
    if parts & SecurityInformation.DACL and "permissions" in wanted:
        shown += wanted["permissions"] or ["no permissions, so that only the owner can change them"]

    def change() -> None:
        given = _descriptor(wanted, guard.rights, sid_of)
        before = guard.read()
        owner_stays = given.owner is None or given.owner == before.owner
        guard.write(given, parts & ~SecurityInformation.OWNER if owner_stays else parts)

    return [DefinitionChange(f"{said}: {'; '.join(shown)}", change)]


def _differing(wanted: Document, here: Document, rights: tuple[NamedRight, ...], sid_of: SidOf) -> SecurityInformation:
    """Return the parts that differ. The case of names and the order of rights do not matter."""

    def meaning(part: Document, member: str) -> object:
        if "sddl" not in part and part.get(member) is None:
            return None
        found = _descriptor(part if "sddl" in part else {member: part[member]}, rights, sid_of)
        return found.owner if member == "owner" else found.dacl

    differing = SecurityInformation(0)
    for member, part in (("owner", SecurityInformation.OWNER), ("permissions", SecurityInformation.DACL)):
        given, known = wanted.get(member), here.get(member)
        if "sddl" not in wanted and (given is None or given == known):
            continue
        try:
            new = meaning(wanted, member)
            same = new == meaning(here, member) or (new is None and member == "owner")
        except ValueError:  # an account that an earlier step adds
            same = False
        differing |= SecurityInformation(0) if same else part
    return _EVERYTHING if differing and "sddl" in wanted else differing


def _descriptor(wanted: Document, rights: tuple[NamedRight, ...], sid_of: SidOf) -> SecurityDescriptor:
    """Convert rights to a security descriptor. Raises ValueError that names the invalid entry."""
    if "sddl" in wanted:
        return from_sddl(wanted["sddl"])
    aces = []
    for text in wanted.get("permissions", []):
        kind, who, words = parse_entry(text, rights)
        aces.append((deny if kind == "deny" else allow)(sid_of(who), mask_of(words, rights)))
    owner = wanted.get("owner")
    return SecurityDescriptor(owner=sid_of(owner) if owner else None, dacl=tuple(aces))


def _of_users(wanted: Document, here: Document, local: Local) -> list[DefinitionChange]:
    users = local.users
    known = {entry["name"].casefold(): entry for entry in here.get("users", [])}
    steps = []
    for entry in wanted.get("users", []):
        name, administrator, theirs = entry["name"], entry.get("administrator"), known.get(entry["name"].casefold())
        if theirs is None and "nt_hash" not in entry:
            steps.append(
                DefinitionChange(
                    f"user {name} is missing, and its password is not in the file: openmsmq user add", None
                )
            )
        elif theirs is None:
            steps.append(
                DefinitionChange(
                    f"add user {name}",
                    partial(
                        users.restore,
                        name,
                        bytes.fromhex(entry["nt_hash"]),
                        administrator=bool(administrator),
                        role=role_of(entry.get("role", Role.ADMINISTRATOR.word)),
                    ),
                )
            )
        else:
            changes: list[tuple[str, Callable[[], Any]]] = []
            if administrator not in (None, theirs["administrator"]):
                step = f"user {name}: administrator {theirs['administrator']} -> {administrator}"
                changes.append((step, partial(users.set_administrator, name, administrator)))
            role = entry.get("role", theirs["role"])
            if role != theirs["role"]:
                step = f"user {name}: role {theirs['role']} -> {role}"
                changes.append((step, partial(users.set_role, name, role_of(role))))
            is_own = name.casefold() == local.caller.casefold()
            steps += [
                DefinitionChange(f"{step}: left, because it is your own account", None) if is_own
                else DefinitionChange(step, change)
                for step, change in changes
            ]  # fmt: skip
    groups = {entry["name"].casefold(): {user.casefold(): user for user in entry["members"]}
              for entry in here.get("groups", [])}  # fmt: skip
    for entry in wanted.get("groups", []):
        theirs_ = groups.get(entry["name"].casefold())
        name, members = entry["name"], {user.casefold(): user for user in entry.get("members", theirs_ or ())}
        if theirs_ is None:
            named = sorted(members.values())
            steps.append(DefinitionChange(f"add group {name} with {', '.join(named) or 'no members'}",
                              partial(users.add_group, name, named)))  # fmt: skip
        elif theirs_.keys() != members.keys():
            joins = sorted(members[user] for user in members.keys() - theirs_.keys())
            leaves = sorted(theirs_[user] for user in theirs_.keys() - members.keys())
            step = f"group {name}: " + ", ".join([f"+{user}" for user in joins] + [f"-{user}" for user in leaves])
            steps.append(DefinitionChange(step, partial(users.change_members, name, joins, leaves)))
    return steps
