"""Who may do what with a queue, in words; and changes of it."""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Any, Final, Literal

import msgspec

from openmsmq.actions.table import Input, Output
from openmsmq.admin import permissions
from openmsmq.admin.guards import QueueGuard
from openmsmq.console.problems import Problem
from openmsmq.console.queues import Text
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.rights import mask_of, words_of
from openmsmq.model.roles import Role
from openmsmq.model.sddl import to_sddl

WELL_KNOWN: Final = ("everyone", "anonymous", "authenticated", "administrators", "system")


class AceView(Output, frozen=True):
    """`kind` is allow, deny or the number of another type; `inherit_only` counts for nothing."""

    kind: str
    sid: str
    name: str
    rights: list[str]
    mask: int
    inherit_only: bool


class Permissions(Output, frozen=True):
    """`entries` is null where there is no list, so everybody has full control. `effective` is of the user that was
    asked for, null if none was."""

    queue: str
    owner: str | None
    owner_name: str | None
    entries: list[AceView] | None
    sddl: str
    effective: list[str] | None
    command: str


class PermissionsQuery(Input, frozen=True):
    """`for`: a user of whom is said what all of that comes to."""

    user: Text | None = msgspec.field(name="for", default=None)


class PermissionsChange(Input, frozen=True):
    """`revoke` without rights takes all that were granted. `confirm` is needed where somebody is locked out."""

    change: Literal["grant", "deny", "revoke", "undeny"]
    user: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    rights: Annotated[list[Annotated[str, msgspec.Meta(max_length=40)]], msgspec.Meta(max_length=40)] = msgspec.field(
        default_factory=list
    )
    dry_run: bool = False
    confirm: bool = False


class PermissionsChanged(Output, frozen=True):
    before: str
    after: str
    warnings: list[str]
    done: bool
    command: str


def get_permissions(asked: WebRequest) -> Permissions:
    row, ticket = _row(asked), asked.caller.ticket
    with asked.queue_manager() as manager:
        descriptor = QueueGuard(manager, row["open"]).read()
    names = asked.services.link.call("accounts", ticket=ticket)
    sids = {descriptor.owner or "", *(ace.sid for ace in descriptor.dacl or ())} - {""} - names.keys()
    names |= asked.services.link.call("names", ticket=ticket, sids=sorted(sids))
    entries = None
    if descriptor.dacl is not None:
        entries = [
            AceView(e.kind, e.sid, e.name, list(e.rights), e.mask, e.inherit_only)
            for e in permissions.entries(descriptor, names)
        ]
    effective = None
    if asked.query.user is not None:
        sids = asked.services.link.call("sids", ticket=ticket, name=asked.query.user)
        effective = list(words_of(permissions.effective(descriptor, sids)))
    owner = permissions.name_for(descriptor.owner, names) if descriptor.owner else None
    return Permissions(
        row["name"], descriptor.owner, owner, entries, to_sddl(descriptor), effective,
        f"openmsmq queue permissions {quote(row['name'])}",
    )  # fmt: skip


def change_permissions(asked: WebRequest) -> PermissionsChanged:
    body: PermissionsChange = asked.body
    row, ticket = _row(asked), asked.caller.ticket
    sid = asked.services.link.call("sid", ticket=ticket, name=body.user)["sid"] or _local(asked, body.user)
    mask = _mask(body)
    with asked.queue_manager() as manager:
        guard = QueueGuard(manager, row["open"])
        before = guard.read()
        after = {
            "grant": lambda: permissions.granted(before, sid, mask),
            "deny": lambda: permissions.denied(before, sid, mask),
            "revoke": lambda: permissions.revoked(before, sid, mask),
            "undeny": lambda: permissions.revoked(before, sid, mask, denials=True),
        }[body.change]()
        mine = asked.services.link.call("sids", ticket=ticket, name=asked.caller.name)
        warnings = permissions.lost(before, after, mine, asked.services.link.call("accounts", ticket=ticket))
        if warnings and not (body.dry_run or body.confirm):
            raise Problem(412, "; ".join(warnings), errors={"/confirm": "needed for this"})
        if not body.dry_run:
            guard.write(after, SecurityInformation.DACL)
    return PermissionsChanged(to_sddl(before), to_sddl(after), warnings, not body.dry_run, _command(body, row))


def _local(asked: WebRequest, user: str) -> str:
    """The SID of a user or group of this machine, or of a well-known one."""
    accounts = asked.services.link.call("accounts", ticket=asked.caller.ticket)
    sids = {name.casefold(): sid for sid, name in accounts.items()}
    try:
        return permissions.sid_for(user, lambda name: sids.get(name.casefold()))
    except ValueError as error:
        raise Problem(422, str(error), errors={"/user": str(error)}) from None


def _mask(body: PermissionsChange) -> int:
    if not body.rights:
        if body.change in ("revoke", "undeny"):
            return 0xFFFFFFFF
        raise Problem(422, f"{body.change} needs rights", errors={"/rights": "one or more"})
    try:
        return mask_of(body.rights)
    except ValueError as error:
        raise Problem(422, str(error), errors={"/rights": str(error)}) from None


def _row(asked: WebRequest) -> dict[str, Any]:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    if row["kind"] != "queue":
        raise Problem(409, f"{row['name']} has no permissions of its own")
    return row


def _command(body: PermissionsChange, row: dict[str, Any]) -> str:
    verb = "grant" if body.change in ("grant", "deny") else "revoke"
    deny = " --deny" if body.change in ("deny", "undeny") else ""
    rights = "".join(f" {quote(right)}" for right in body.rights)
    return f"openmsmq queue {verb} {quote(row['name'])} {quote(body.user)}{rights}{deny}"


OPERATIONS: Final = (
    HttpOperation("GET", "/queues/{queue}/permissions", get_permissions, "Who may do what, in words", Permissions,
              PermissionsQuery, statuses=(404, 409), role=Role.MONITOR),
    HttpOperation("POST", "/queues/{queue}/permissions", change_permissions, "Grant, deny or revoke",
                  PermissionsChanged,
              body=PermissionsChange, statuses=(404, 409, 412, 507)),
)  # fmt: skip
