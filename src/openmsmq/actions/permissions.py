"""Permissions of queues and of the queue manager itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from openmsmq.actions.errors import ActionRefused, InputError
from openmsmq.actions.fields import CommandText, QueueText, Text, doc
from openmsmq.actions.machine import machine_guard
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import (
    ActionCommand,
    ActionPlan,
    Always,
    Either,
    Flag,
    Input,
    LineView,
    Output,
    Rows,
    action,
)
from openmsmq.admin import permissions
from openmsmq.admin.guards import Guard, QueueGuard
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.rights import mask_of, words_of
from openmsmq.model.roles import Role
from openmsmq.model.sddl import from_sddl, to_sddl
from openmsmq.model.security import SecurityDescriptor

WELL_KNOWN: Final = ("everyone", "anonymous", "authenticated", "administrators", "system")
_ALL: Final = 0xFFFFFFFF
_EVERYBODY: Final = "no access control list: everybody has full control"
_ACCOUNT: Final = "A user or a group: name, DOMAIN\\name, name@domain, SID or well-known name."

Sddl = Annotated[str, doc("The descriptor as SDDL.", "O:S-1-5-21-1-2-3-1000D:(A;;3;;;WD)")]
AccountText = Annotated[str, Meta(min_length=1, max_length=256)]
RightWord = Annotated[str, Meta(max_length=40)]


class AceView(Output, frozen=True):
    """An entry of an access control list."""

    kind: Annotated[str, doc("`allow`, `deny`, or the number of another type.", "allow")]
    sid: Annotated[str, doc("SID of the user or group.", "S-1-1-0")]
    name: Annotated[str, doc("Its name, or its SID if the name is unknown.", "Everyone")]
    rights: Annotated[list[str], doc("The rights in words.", ["WriteMessage"])]
    mask: Annotated[int, doc("The rights as an access mask.")]
    inherit_only: Annotated[bool, doc("Whether it applies only to child objects.")]


class Permissions(Output, frozen=True):
    """Owner and access control list of a queue or of the queue manager."""

    queue: Annotated[str, doc("Name of the queue.", r"mq1\private$\orders")]
    owner: Annotated[str | None, doc("SID of the owner, who may always change the permissions.")]
    owner_name: Annotated[str | None, doc("Name of the owner.")]
    entries: Annotated[
        list[AceView] | None,
        doc("Entries in the order in which they are checked; null: everybody has full control."),
    ]
    sddl: Sddl
    effective: Annotated[
        list[str] | None, doc("Effective rights of the requested user, in words; null if no user was requested.")
    ]
    user: Annotated[str | None, doc("The requested user; null if none.")]
    command: CommandText


class PermissionsQuery(Input, frozen=True):
    """Object whose permissions are shown."""

    queue: QueueText = ""
    user: Annotated[Text | None, doc("Show the effective rights of this user and its groups.")] = msgspec.field(
        name="for", default=None
    )


class PermissionsChange(Input, frozen=True, kw_only=True):
    """A change of the rights of a user or group."""

    queue: QueueText = ""
    change: Annotated[
        Literal["grant", "deny", "revoke", "undeny"],
        doc("`revoke` removes granted rights, `undeny` denied ones."),
    ]
    user: Annotated[AccountText, doc(_ACCOUNT, "alice")]
    rights: Annotated[
        Annotated[list[RightWord], Meta(max_length=40)],
        doc("Rights as words or masks; for `revoke` and `undeny`, all by default.", ["WriteMessage", "PeekMessage"]),
    ] = msgspec.field(default_factory=list)
    confirm: Annotated[bool, doc("Required if the change locks out a user.")] = False


class NewSddl(Input, frozen=True):
    """A descriptor that replaces the current one."""

    new: Annotated[str, doc("Owner, group and entries, as far as the SDDL contains them.")]
    queue: QueueText = ""


class QueueOwner(Input, frozen=True):
    """A new owner of a queue."""

    queue: QueueText
    who: Annotated[AccountText, doc(_ACCOUNT)]


class PermissionsChanged(Output, frozen=True):
    """A change of permissions that was, or would be, made."""

    queue: Annotated[str, doc("Name of the queue.", r"mq1\private$\orders")]
    said: Annotated[str, doc("The difference, as a sentence; empty if there is none.")]
    before: Annotated[str, doc("The descriptor before the change, as SDDL.")]
    after: Annotated[str, doc("The descriptor after the change, as SDDL.")]
    words_before: Annotated[list[str], doc("Owner and entries before the change, in words.")]
    words_after: Annotated[list[str], doc("Owner and entries after the change, in words.")]
    warnings: Annotated[list[str], doc("Who is locked out by the change.")]
    done: Annotated[bool, doc("Whether the change was made.")]
    command: CommandText


# -- output of commands ----------------------------------------------------------------------------------------------


def _shown(found: Permissions) -> list[str]:
    if found.effective is not None:
        return [" ".join(found.effective) or "nothing"]
    return [f"owner: {found.owner_name or 'none'}", *([] if found.entries is not None else [_EVERYBODY])]


def _entries(found: Permissions) -> list[AceView] | None:
    return None if found.effective is not None else found.entries


def _ace_cells(ace: AceView) -> list[str]:
    return [ace.kind, ace.name, " ".join(ace.rights), "for objects within only" if ace.inherit_only else ""]


def _document(found: Permissions) -> dict[str, Any]:
    if found.effective is not None:
        return {"object": found.queue, "user": found.user, "rights": found.effective}
    known = msgspec.to_builtins(found)
    return {"object": found.queue, **{name: known[name] for name in ("owner", "owner_name", "entries", "sddl")}}


def _change_document(found: PermissionsChanged) -> dict[str, Any]:
    if not found.said:
        return {"object": found.queue, "done": False}
    return {"object": found.queue, "before": found.before, "after": found.after, "warnings": found.warnings,
            "done": found.done}  # fmt: skip


def _planned_lines(found: PermissionsChanged) -> list[str]:
    if not found.said:
        return ["nothing is different"]
    return [
        f"would be changed: {found.said}", *(f"before: {line}" for line in found.words_before),
        *(f"after:  {line}" for line in found.words_after), *(f"warning: {text}" for text in found.warnings),
    ]  # fmt: skip


def _question(found: PermissionsChanged) -> str:
    lines = [f"warning: {text}" for text in found.warnings]
    return "\n".join([*lines, f"Change the permissions of {found.queue}?"]) if lines else ""


_SHOW_CHANGED: Final = LineView(
    lambda found: f"changed: {found.said}" if found.said else "nothing is different", _change_document
)
_SHOW_PLAN: Final = LineView(_planned_lines, _change_document)


def _changing(words: str, spelled: Mapping[str, Any], text: str = "", *, part: bool = False) -> ActionCommand:
    """Return a command that changes permissions or, with `part`, the part of a command that also shows them."""
    return ActionCommand(
        words, {**spelled, "confirm": Always(True)} if "change" in spelled else spelled, _SHOW_CHANGED, help=text,
        show_plan=_SHOW_PLAN, question=_question, yes="Do not ask for confirmation.",
        dry_run="Only show what the permissions would be.", by_hand="it is a part of the command" if part else "",
    )  # fmt: skip


# -- changes ----------------------------------------------------------------------------------------------------


def _guard(site: ActionSite) -> Guard:
    """Return the guard of the queue or queue manager. Raises ActionRefused for a system queue."""
    if not site.queue:
        return machine_guard(site)
    if site.queue["kind"] not in ("queue", ""):
        raise ActionRefused(409, f"{site.queue['name']} has no permissions of its own")
    return QueueGuard(site.manager, site.queue["open"])


def _name(site: ActionSite) -> str:
    return site.queue["name"] if site.queue else "the queue manager"


Change = Callable[[SecurityDescriptor], SecurityDescriptor]
ChangePlan = ActionPlan[PermissionsChanged, PermissionsChanged]


def _plan(
    site: ActionSite, change: Change, parts: SecurityInformation, said: str, *, confirmed: bool = True
) -> ChangePlan:
    """Plan a change of a descriptor. If `said` is empty, nothing changes."""
    guard = _guard(site)
    before = guard.read()
    after = change(before)
    names = site.accounts.names()
    own = site.accounts.sids(site.caller.name or None) if site.queue else ()
    warnings = permissions.lost(before, after, own, names) if site.queue else []
    would = PermissionsChanged(
        _name(site), said, to_sddl(before), to_sddl(after), _words(before, names, guard),
        _words(after, names, guard), warnings, False, site.command,
    )  # fmt: skip

    def carry_out() -> PermissionsChanged:
        if warnings and not confirmed:
            raise ActionRefused(412, "; ".join(warnings), "/confirm")
        if said:
            guard.write(after, parts)
        return msgspec.structs.replace(would, done=bool(said))

    return ActionPlan(lambda: would, carry_out)


def _words(descriptor: SecurityDescriptor, names: Mapping[str, str], guard: Guard) -> list[str]:
    owner = permissions.name_for(descriptor.owner, names) if descriptor.owner else "none"
    if descriptor.dacl is None:
        return [f"owner {owner}", _EVERYBODY]
    found = permissions.entries(descriptor, names, guard.rights)
    return [f"owner {owner}", *(" ".join((each.kind, each.name, *each.rights)) for each in found)]


# -- the rows --------------------------------------------------------------------------------------------------------

_VIEWS: Final = {
    Flag("--sddl", "As SDDL, which --set takes."): LineView(
        lambda found: found.sddl, lambda found: {"object": found.queue, "sddl": found.sddl}
    )
}
_SHOW: Final = Rows(_entries, ("", "who", "rights", ""), _ace_cells, head=_shown, single=_document)
_OWNER: Final = LineView(
    lambda found: found.owner_name or "none",
    lambda found: {"object": found.queue, "owner": found.owner, "owner_name": found.owner_name or "none"},
)
_GRANT: Final = """Give USER rights on a queue, or deny them.

\b
USER  a user or a group of the users file, or of the domain (DOMAIN\\name, name@domain), a SID, everyone,
      anonymous, authenticated, administrators
RIGHT FullControl, ReceiveMessage, PeekMessage, WriteMessage (Send), ReceiveJournalMessage, DeleteMessage,
      DeleteJournalMessage, SetQueueProperties, GetQueueProperties, DeleteQueue, GetQueuePermissions,
      ChangeQueuePermissions, TakeQueueOwnership, GenericRead, GenericWrite, Look, or a mask such as 0x3

A grant lifts a denial of the same rights to the same USER, and a denial a grant.
"""
_GRANT_MACHINE: Final = """Give USER rights on the queue manager, or deny them.

\b
RIGHT FullControl, CreateQueue, SetProperties, GetProperties, PeekDeadLetter, ReceiveDeadLetter,
      PeekComputerJournal, ReceiveComputerJournal, DeleteDeadLetter, DeleteComputerJournal, Delete,
      GetPermissions, ChangePermissions, TakeOwnership, or a mask such as 0x3
"""
_MACHINE: Final = """Show or replace who may do what with the queue manager itself.

No interface of MSMQ carries these permissions, so this works on the data directory of the daemon, which notices a
change within a second. `system_queue_readers` of the daemon is added to what stands there.
"""
_REVOKE: Final = "were granted to USER; all of them if none is named."
_DENY: Final = Either("--deny", "deny", "grant", "Deny the rights instead of granting them.")
_UNDENY: Final = Either("--deny", "undeny", "revoke", "Remove denials instead of grants.")
_QUEUE: Final = {"queue": "QUEUE"}
_GRANTING: Final = {"user": "USER", "rights": "RIGHT...", "change": _DENY}
_REVOKING: Final = {"user": "USER", "rights": "[RIGHT...]", "change": _UNDENY}
_OF_QUEUE: Final[dict[str, Any]] = {"place": "queue manager and accounts"}


@action("permissions.owner", http="", effect="changes", **_OF_QUEUE,
        commands=(_changing("queue owner", {**_QUEUE, "who": "[USER]"}, part=True),))  # fmt: skip
def set_owner(site: ActionSite, given: QueueOwner) -> ChangePlan:
    """Make a user the owner of a queue."""
    sid = site.accounts.sid(given.who)
    sentence = f"{given.who} owns {_name(site)}"
    return _plan(site, lambda before: replace(before, owner=sid), SecurityInformation.OWNER, sentence)


@action("permissions.replace", http="", effect="changes", **_OF_QUEUE,
        commands=(_changing("queue permissions", {**_QUEUE, "new": "--set SDDL"}, part=True),))  # fmt: skip
def replace_permissions(site: ActionSite, given: NewSddl) -> ChangePlan:
    """Replace owner, group and entries."""
    try:
        new = from_sddl(given.new)
    except ValueError as error:
        raise InputError(str(error), "/new") from None
    before, parts = _guard(site).read(), SecurityInformation(0)
    for part, differs in (  # omit unchanged parts: a new owner, for example, requires TakeQueueOwnership
        (SecurityInformation.OWNER, new.owner not in (None, before.owner)),
        (SecurityInformation.GROUP, new.group not in (None, before.group)),
        (SecurityInformation.DACL, "D:" in given.new.upper() and new.dacl != before.dacl),
        (SecurityInformation.SACL, new.sacl is not None),
    ):
        parts |= part if differs else 0
    return _plan(site, lambda d: d.merge(new, parts), parts, f"permissions of {_name(site)}" if parts else "")


@action(
    "permissions.show", http="GET /queues/{queue}/permissions", role=Role.MONITOR, statuses=(409,), **_OF_QUEUE,
    commands=(
        ActionCommand(
            "queue permissions", {**_QUEUE, "user": "--for USER"}, _SHOW, views=_VIEWS, instead=replace_permissions,
            help="Show or replace the owner of a queue and who may do what with it.",
        ),
        ActionCommand(
            "queue owner", _QUEUE, _OWNER, instead=set_owner,
            help="Show the owner of a queue, who may always change its permissions, or make USER the owner.",
        ),
    ),
)  # fmt: skip
def get_permissions(site: ActionSite, given: PermissionsQuery) -> Permissions:
    """Show the permissions in words."""
    guard = _guard(site)
    descriptor = guard.read()
    names = site.accounts.named({descriptor.owner or "", *(ace.sid for ace in descriptor.dacl or ())} - {""})
    entries = effective = None
    if descriptor.dacl is not None:
        entries = [
            AceView(each.kind, each.sid, each.name, list(each.rights), each.mask, each.inherit_only)
            for each in permissions.entries(descriptor, names, guard.rights)
        ]
    if given.user is not None:
        if site.daemon is None:
            site.accounts.sid(given.user)  # raises for a mistyped name, which would get the rights of everyone
        effective = list(
            words_of(permissions.effective(descriptor, site.accounts.sids(given.user), guard.rights), guard.rights)
        )
    owner = permissions.name_for(descriptor.owner, names) if descriptor.owner else None
    return Permissions(
        _name(site), descriptor.owner, owner, entries, to_sddl(descriptor), effective, given.user, site.command
    )  # fmt: skip


@action(
    "permissions.change", http="POST /queues/{queue}/permissions", effect="changes",
    statuses=(409, 412, 507), dry_run="body", **_OF_QUEUE,
    commands=(
        _changing("queue grant", {**_QUEUE, **_GRANTING}, _GRANT),
        _changing(
            "queue revoke", {**_QUEUE, **_REVOKING}, f"Take rights that {_REVOKE} Rights of its groups do not change."
        ),
    ),
)  # fmt: skip
def change_permissions(site: ActionSite, given: PermissionsChange) -> ChangePlan:
    """Grant, deny or revoke rights."""
    rights = _guard(site).rights
    sid, mask, takes = site.accounts.sid(given.user), _ALL, given.change in ("revoke", "undeny")
    if given.rights:
        try:
            mask = mask_of(given.rights, rights)
        except ValueError as error:
            raise InputError(str(error), "/rights") from None
    elif not takes:
        raise InputError(f"{given.change} needs rights", "/rights")
    changes: dict[str, Change] = {
        "grant": lambda before: permissions.granted(before, sid, mask),
        "deny": lambda before: permissions.denied(before, sid, mask),
        "revoke": lambda before: permissions.revoked(before, sid, mask),
        "undeny": lambda before: permissions.revoked(before, sid, mask, denials=True),
    }
    words, who = " ".join(words_of(mask, rights)) if given.rights else "all rights", given.user
    sentence = {
        "grant": f"{who} has {words}", "deny": f"{who} is denied {words}",
        "revoke": f"{words} no longer granted to {who}", "undeny": f"{words} no longer denied to {who}",
    }[given.change]  # fmt: skip
    sentence += f" on {_name(site)}"
    return _plan(site, changes[given.change], SecurityInformation.DACL, sentence, confirmed=given.confirm)


_OF_MACHINE: Final[dict[str, Any]] = {"http": "", "place": "accounts"}
_MACHINE_CHANGES: Final[dict[str, Any]] = {**_OF_MACHINE, "dry_run": "", "audit": ("machine.permissions",)}

replace_machine_permissions: Final = replace(
    replace_permissions, name="machine.permissions.replace", **_MACHINE_CHANGES,
    commands=(_changing("machine permissions", {"new": "--set SDDL"}, part=True),),
)  # fmt: skip
get_machine_permissions: Final = replace(
    get_permissions, name="machine.permissions.show", **_OF_MACHINE,
    commands=(
        ActionCommand(
            "machine permissions", {"user": "--for USER"}, _SHOW, views=_VIEWS, instead=replace_machine_permissions,
            help=_MACHINE,
        ),
    ),
)  # fmt: skip
change_machine_permissions: Final = replace(
    change_permissions, name="machine.permissions.change", **_MACHINE_CHANGES,
    commands=(
        _changing("machine grant", _GRANTING, _GRANT_MACHINE),
        _changing("machine revoke", _REVOKING, f"Take rights on the queue manager that {_REVOKE}"),
    ),
)  # fmt: skip

ACTIONS: Final = (
    get_permissions, change_permissions, set_owner, replace_permissions, get_machine_permissions,
    change_machine_permissions, replace_machine_permissions,
)  # fmt: skip
