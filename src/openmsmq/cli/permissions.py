"""`openmsmq queue permissions|grant|revoke|owner` and `openmsmq machine permissions|grant|revoke`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from openmsmq.admin import permissions
from openmsmq.admin.guards import Guard, QueueGuard
from openmsmq.admin.naming import path_of
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.connection import Address, connect, level_option, server_options
from openmsmq.cli.output import echo, json_option, print_json, print_table, report
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.rights import mask_of, words_of
from openmsmq.model.sddl import from_sddl, to_sddl
from openmsmq.model.security import SecurityDescriptor

_dry_run = click.option("--dry-run", is_flag=True, help="Only show what the permissions would be.")
_yes = click.option("--yes", is_flag=True, help="Do not ask, even if somebody is locked out.")
_deny = click.option("--deny", is_flag=True, help="Deny the rights instead of granting them.")
_denials = click.option("--deny", is_flag=True, help="Remove denials instead of grants.")
_sddl = click.option("--sddl", is_flag=True, help="As SDDL, which --set takes.")
_set = click.option("--set", "new", metavar="SDDL", help="Replace owner, group and entries, as far as SDDL has them.")
_for = click.option("--for", "who", metavar="USER", help="Show what USER may do after all, with its groups.")
_RIGHTS = "RIGHT..."


# -- what is the same for queues and machines ----------------------------------------------------------------------


def _show(guard: Guard, accounts: Accounts, sddl: bool, who: str | None, as_json: bool) -> None:
    descriptor = guard.read()
    if who is not None:
        accounts.sid(who)  # or a mistyped name would be shown with the rights of everyone
        words = words_of(permissions.effective(descriptor, accounts.sids(who), guard.rights), guard.rights)
        report(as_json, " ".join(words) or "nothing", {"object": guard.name, "user": who, "rights": words})
        return
    if sddl:
        report(as_json, to_sddl(descriptor), {"object": guard.name, "sddl": to_sddl(descriptor)})
        return
    names = accounts.names()
    entries = list(permissions.entries(descriptor, names, guard.rights))
    owner = permissions.name_for(descriptor.owner, names) if descriptor.owner else None
    if as_json:
        rows = [entry._asdict() for entry in entries]
        print_json({"object": guard.name, "owner": descriptor.owner, "owner_name": owner,
                    "entries": None if descriptor.dacl is None else rows, "sddl": to_sddl(descriptor)})  # fmt: skip
        return
    echo(f"owner: {owner or 'none'}")
    if descriptor.dacl is None:
        echo("no access control list: everybody has full control")
        return
    print_table(
        ["", "who", "rights", ""],
        [[e.kind, e.name, " ".join(e.rights), "for objects within only" if e.inherit_only else ""] for e in entries],
    )


def _change(
    guard: Guard,
    accounts: Accounts,
    user: str | None,
    change: Callable[[SecurityDescriptor], SecurityDescriptor],
    parts: SecurityInformation,
    said: str,
    options: dict[str, bool],
) -> None:
    before = guard.read()
    after = change(before)
    warnings: list[str] = []
    if isinstance(guard, QueueGuard):
        warnings = permissions.lost(before, after, accounts.sids(user), accounts.names())
    document = {"object": guard.name, "before": to_sddl(before), "after": to_sddl(after), "warnings": warnings,
                "done": not options["dry_run"]}  # fmt: skip
    if options["dry_run"]:
        report(options["as_json"], f"would be changed: {said}", document)
        if not options["as_json"]:
            names = accounts.names()
            for when, descriptor in (("before", before), ("after", after)):
                for line in _words(descriptor, names, guard):
                    echo(f"{when + ':':8}{line}")
            for warning in warnings:
                echo(f"warning: {warning}")
        return
    if warnings and not options["yes"]:
        for warning in warnings:
            echo(f"warning: {warning}", err=True)
        click.confirm(f"Change the permissions of {guard.name}?", abort=True, err=True)
    guard.write(after, parts)
    report(options["as_json"], f"changed: {said}", document)


def _words(descriptor: SecurityDescriptor, names: Mapping[str, str], guard: Guard) -> list[str]:
    owner = permissions.name_for(descriptor.owner, names) if descriptor.owner else "none"
    if descriptor.dacl is None:
        return [f"owner {owner}", "no access control list: everybody has full control"]
    found = permissions.entries(descriptor, names, guard.rights)
    return [f"owner {owner}", *(" ".join((each.kind, each.name, *each.rights)) for each in found)]


def _grant(guard: Guard, accounts: Accounts, me: str | None, who: str, rights: tuple[str, ...], deny: bool,
           **options: bool) -> None:  # fmt: skip
    sid, mask = accounts.sid(who), _mask(rights, guard)
    change = permissions.denied if deny else permissions.granted
    said = f"{who} {'is denied' if deny else 'has'} {' '.join(words_of(mask, guard.rights))} on {guard.name}"
    _change(guard, accounts, me, lambda d: change(d, sid, mask), SecurityInformation.DACL, said, options)


def _revoke(guard: Guard, accounts: Accounts, me: str | None, who: str, rights: tuple[str, ...], deny: bool,
            **options: bool) -> None:  # fmt: skip
    sid = accounts.sid(who)
    mask = _mask(rights, guard) if rights else 0xFFFFFFFF
    what = " ".join(words_of(mask, guard.rights)) if rights else "all rights"
    said = f"{what} no longer {'denied' if deny else 'granted'} to {who} on {guard.name}"
    _change(
        guard, accounts, me, lambda d: permissions.revoked(d, sid, mask, denials=deny), SecurityInformation.DACL, said,
        options,
    )  # fmt: skip


def _replace(guard: Guard, accounts: Accounts, me: str | None, text: str, **options: bool) -> None:
    try:
        new = from_sddl(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--set") from None
    before, parts = guard.read(), SecurityInformation(0)
    for part, differs in (  # what stays as it is needs no right: a new owner needs TakeQueueOwnership
        (SecurityInformation.OWNER, new.owner not in (None, before.owner)),
        (SecurityInformation.GROUP, new.group not in (None, before.group)),
        (SecurityInformation.DACL, "D:" in text.upper() and new.dacl != before.dacl),
        (SecurityInformation.SACL, new.sacl is not None),
    ):
        parts |= part if differs else 0
    if not parts:
        report(options["as_json"], "nothing is different", {"object": guard.name, "done": False})
        return
    _change(guard, accounts, me, lambda d: d.merge(new, parts), parts, f"permissions of {guard.name}", options)


def _mask(rights: tuple[str, ...], guard: Guard) -> int:
    try:
        return mask_of(rights, guard.rights)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


# -- queues --------------------------------------------------------------------------------------------------------


def _of_queue(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `guard`, `accounts` and `me`, who calls."""

    @click.argument("queue")
    @server_options
    @level_option
    @accounts_options
    @functools.wraps(command)
    def wrapper(*args: Any, queue: str, address: Address, level: str | None, **kwargs: Any) -> Any:
        with connect(address, level) as qm:
            return command(QueueGuard(qm, path_of(queue)), *args, me=address.user, **kwargs)

    return wrapper


@click.command("permissions")
@_of_queue
@_sddl
@_for
@_set
@_dry_run
@_yes
@json_option
def queue_permissions(
    guard: Guard, accounts: Accounts, me: str | None, sddl: bool, who: str | None, new: str | None, **options: bool
) -> None:
    """Show or replace the owner of a queue and who may do what with it."""
    _show_or_replace(guard, accounts, me, sddl, who, new, options)


def _show_or_replace(
    guard: Guard, accounts: Accounts, me: str | None, sddl: bool, who: str | None, new: str | None,
    options: dict[str, bool],
) -> None:  # fmt: skip
    if new is not None:
        _replace(guard, accounts, me, new, **options)
    else:
        _show(guard, accounts, sddl, who, options["as_json"])


@click.command("grant")
@_of_queue
@click.argument("who", metavar="USER")
@click.argument("rights", nargs=-1, required=True, metavar=_RIGHTS)
@_deny
@_dry_run
@_yes
@json_option
def queue_grant(guard: Guard, accounts: Accounts, me: str | None, **options: Any) -> None:
    """Give USER rights on a queue, or deny them.

    \b
    USER  a user or a group of the users file, or of the domain (DOMAIN\\name, name@domain), a SID, everyone,
          anonymous, authenticated, administrators
    RIGHT FullControl, ReceiveMessage, PeekMessage, WriteMessage (Send), ReceiveJournalMessage, DeleteMessage,
          DeleteJournalMessage, SetQueueProperties, GetQueueProperties, DeleteQueue, GetQueuePermissions,
          ChangeQueuePermissions, TakeQueueOwnership, GenericRead, GenericWrite, Look, or a mask such as 0x3

    A grant lifts a denial of the same rights to the same USER, and a denial a grant.
    """
    _grant(guard, accounts, me, **options)


@click.command("revoke")
@_of_queue
@click.argument("who", metavar="USER")
@click.argument("rights", nargs=-1, metavar=f"[{_RIGHTS}]")
@_denials
@_dry_run
@_yes
@json_option
def queue_revoke(guard: Guard, accounts: Accounts, me: str | None, **options: Any) -> None:
    """Take rights that were granted to USER; all of them if none is named. What its groups have, it keeps."""
    _revoke(guard, accounts, me, **options)


@click.command("owner")
@_of_queue
@click.argument("who", required=False, metavar="[USER]")
@_dry_run
@_yes
@json_option
def queue_owner(guard: Guard, accounts: Accounts, me: str | None, who: str | None, **options: bool) -> None:
    """Show the owner of a queue, who may always change its permissions, or make USER the owner."""
    if who is None:
        owner = guard.read().owner
        name = permissions.name_for(owner, accounts.names()) if owner else "none"
        report(options["as_json"], name, {"object": guard.name, "owner": owner, "owner_name": name})
        return
    sid = accounts.sid(who)
    said = f"{who} owns {guard.name}"
    _change(guard, accounts, me, lambda d: replace(d, owner=sid), SecurityInformation.OWNER, said, options)


# -- the machine ---------------------------------------------------------------------------------------------------


def _of_machine(command: Callable[..., Any]) -> Callable[..., Any]:
    @accounts_options
    @functools.wraps(command)
    def wrapper(*args: Any, accounts: Accounts, **kwargs: Any) -> Any:
        return command(accounts.machine(), *args, accounts=accounts, me=None, **kwargs)

    return wrapper


@click.command("permissions")
@_of_machine
@_sddl
@_for
@_set
@_dry_run
@_yes
@json_option
def machine_permissions(
    guard: Guard, accounts: Accounts, me: str | None, sddl: bool, who: str | None, new: str | None, **options: bool
) -> None:
    """Show or replace who may do what with the queue manager itself.

    No interface of MSMQ carries these permissions, so this works on the data directory of the daemon, which notices a
    change within a second. `system_queue_readers` of the daemon is added to what stands there.
    """
    _show_or_replace(guard, accounts, me, sddl, who, new, options)


@click.command("grant")
@_of_machine
@click.argument("who", metavar="USER")
@click.argument("rights", nargs=-1, required=True, metavar=_RIGHTS)
@_deny
@_dry_run
@_yes
@json_option
def machine_grant(guard: Guard, accounts: Accounts, me: str | None, **options: Any) -> None:
    """Give USER rights on the queue manager, or deny them.

    \b
    RIGHT FullControl, CreateQueue, SetProperties, GetProperties, PeekDeadLetter, ReceiveDeadLetter,
          PeekComputerJournal, ReceiveComputerJournal, DeleteDeadLetter, DeleteComputerJournal, Delete,
          GetPermissions, ChangePermissions, TakeOwnership, or a mask such as 0x3
    """
    _grant(guard, accounts, me, **options)


@click.command("revoke")
@_of_machine
@click.argument("who", metavar="USER")
@click.argument("rights", nargs=-1, metavar=f"[{_RIGHTS}]")
@_denials
@_dry_run
@_yes
@json_option
def machine_revoke(guard: Guard, accounts: Accounts, me: str | None, **options: Any) -> None:
    """Take rights on the queue manager that were granted to USER; all of them if none is named."""
    _revoke(guard, accounts, me, **options)


OF_QUEUE = (queue_permissions, queue_grant, queue_revoke, queue_owner)
OF_MACHINE = (machine_permissions, machine_grant, machine_revoke)
