"""Users and groups of the users file, for administrators."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from openmsmq.accounts.users import MAX_NAME, NoSuchAccount, UsersFile, UsersFileError
from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import ROLE_WORDS, CommandText, RoleWord, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import (
    PASSWORD,
    ActionCommand,
    Empty,
    Input,
    LineView,
    Output,
    Rows,
    Without,
    action,
)
from openmsmq.actions.tokens import revoke_all
from openmsmq.admin import data_directories
from openmsmq.admin.tokens import TokensFileError
from openmsmq.model.roles import Role, role_of

_REFUSES: Final = {NoSuchAccount: 404, UsersFileError: 409, TokensFileError: 409}
_ROLE: Final = "Highest role of the user in the HTTP API and the console; rights of queues apply as well."

AccountName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
AccountNames = Annotated[list[AccountName], Meta(max_length=1000)]
NewPassword = Annotated[str, Meta(min_length=1, max_length=1024)]
UserName = Annotated[str, doc("Name of the user.", "alice")]
GroupName = Annotated[str, doc("Name of the group.", "clerks")]


class KnownUser(Output, frozen=True):
    """A user who can log in by NTLM and by HTTP."""

    name: UserName
    sid: Annotated[str, doc("SID of the user.", "S-1-5-21-1-2-3-1000")]
    administrator: Annotated[bool, doc("Whether the user is an administrator of the queue manager.")]
    role: Annotated[RoleWord, doc(_ROLE)]
    groups: Annotated[list[str], doc("Names of the groups that the user is a member of.")]


class KnownGroup(Output, frozen=True):
    """A group of users, which can be granted rights."""

    name: GroupName
    sid: Annotated[str, doc("SID of the group.", "S-1-5-21-1-2-3-1001")]
    members: Annotated[list[str], doc("Names of users, or SIDs of users that were removed.")]


class UserList(Output, frozen=True):
    """All users and groups."""

    users: Annotated[list[KnownUser], doc("The users, by name.")]
    groups: Annotated[list[KnownGroup], doc("The groups, by name.")]
    command: CommandText


class NewUser(Input, frozen=True):
    """A user to add."""

    name: Annotated[AccountName, doc("Name of the user.", "carol")]
    password: Annotated[NewPassword, doc("Password of the user.")]
    administrator: Annotated[
        bool,
        doc("Make the user an administrator: it may pause outgoing queues, read them, disconnect the machine, ..."),
    ] = False
    role: Annotated[RoleWord, doc(_ROLE)] = "administrator"


class UserChange(Input, frozen=True):
    """Changes of a user. Omitted values do not change. A new password ends the sessions of the user, not the tokens."""

    user: UserName
    password: Annotated[NewPassword, doc("The new password.")] | UnsetType = UNSET
    administrator: Annotated[bool, doc("Whether the user is an administrator of the queue manager.")] | UnsetType = (
        UNSET
    )
    role: Annotated[RoleWord, doc(_ROLE)] | UnsetType = UNSET


class OwnPassword(Input, frozen=True):
    """A new password of the caller."""

    current: Annotated[str, Meta(max_length=1024), doc("The current password.", "old secret")]
    password: Annotated[NewPassword, doc("The new password.", "new secret")]


class NamedUser(Input, frozen=True):
    """A user."""

    user: UserName


class NewGroup(Input, frozen=True):
    """A group to add."""

    name: Annotated[AccountName, doc("Name of the group.", "clerks")]
    members: Annotated[AccountNames, doc("Names of the first members.", ["alice"])] = msgspec.field(
        default_factory=list
    )


class GroupChange(Input, frozen=True):
    """Users to add to and remove from a group."""

    group: GroupName
    join: Annotated[AccountNames, doc("Names of users to add.")] = msgspec.field(default_factory=list)
    leave: Annotated[AccountNames, doc("Names of users to remove.")] = msgspec.field(default_factory=list)


class NamedGroup(Input, frozen=True):
    """A group."""

    group: GroupName


class CommandResultView(Output, frozen=True):
    """A change that was made."""

    done: Annotated[str, doc("What was done.", "changed user carol")]
    command: CommandText


class AddedAccount(CommandResultView, frozen=True):
    """A user or group that was added."""

    sid: Annotated[str, doc("Its SID.", "S-1-5-21-1-2-3-1000")]


def _user_cells(each: KnownUser) -> list[str]:
    return [each.name, each.sid, "yes" if each.administrator else "", each.role, ", ".join(each.groups)]


def _group_cells(each: KnownGroup) -> list[str]:
    return [each.name, each.sid, ", ".join(each.members)]


@action(
    "user.list", http="GET /users", administrators=True, refuses={UsersFileError: 409},
    commands=(
        ActionCommand(
            "user list", help="List users with their SIDs and groups.",
            show=Rows(
                lambda found: found.users, ("user", "SID", "administrator", "role by HTTP", "groups"), _user_cells
            ),
        ),
        ActionCommand(
            "user group list", help="List groups with their SIDs and members.",
            show=Rows(lambda found: found.groups, ("group", "SID", "members"), _group_cells),
        ),
    ),
)  # fmt: skip
def list_users(site: ActionSite, given: Empty) -> UserList:
    """List users and groups with their SIDs."""
    file = _file(site)
    groups, names = file.groups(), file.names()
    users = [
        KnownUser(user.name, user.sid, user.administrator, ROLE_WORDS[user.role],
                  [group.name for group in groups if user.sid in group.members])
        for user in file.list()
    ]  # fmt: skip
    known = [KnownGroup(each.name, each.sid, sorted(names.get(sid, sid) for sid in each.members)) for each in groups]
    return UserList(users, known, site.command)


@action(
    "user.add", http="POST /users", status=201, effect="changes", administrators=True, audit=("user.add",),
    refuses={UsersFileError: 409}, founds=True,
    commands=(
        ActionCommand(
            "user add", {"name": "NAME", "password": PASSWORD, "administrator": "--admin", "role": "--role"},
            LineView(lambda made: made.sid), help="Add a user; prints its SID.",
        ),
    ),
)  # fmt: skip
def create_user(site: ActionSite, given: NewUser) -> AddedAccount:
    """Add a user."""
    made = _new_file(site).add(
        given.name, given.password, administrator=given.administrator, role=role_of(given.role)
    )  # fmt: skip
    return AddedAccount(f"added user {given.name}", site.command, made.sid)


@action(
    "user.change", http="PATCH /users/{user}", effect="changes", administrators=True,
    audit=("user.password", "user.administrator", "user.no-administrator", "user.role.*"), refuses=_REFUSES,
    commands=(
        ActionCommand(
            "user passwd", {"user": "NAME", "password": PASSWORD}, help="Change the password of a user."
        ),
        ActionCommand(
            "user admin", {"user": "NAME", "administrator": Without("--revoke", "Revoke administrator rights.")},
            help="Make a user an administrator of the queue manager.",
        ),
        ActionCommand(
            "user role", {"user": "NAME", "role": "ROLE"},
            help="Limit what a user may do through HTTP and the console. The role `monitor` sees figures, names and "
            "states; `operator` also reads, sends, moves and deletes messages; `administrator` may do everything that "
            "the user's rights allow.",
        ),
    ),
)  # fmt: skip
def change_user(site: ActionSite, given: UserChange) -> CommandResultView:
    """Change the password, the role or the administrator rights of a user.

    A new password ends the sessions of the user, not the tokens.
    """
    file, name = _file(site), given.user
    if given.administrator is not UNSET or given.role is not UNSET:
        _demand_other(site, name)
    if given.password is not UNSET and _is_own(site, name):
        raise ActionRefused(
            409, "this is your own password: `openmsmq user own-password` and the page Tokens change it, and ask for "
            "the current one",
        )  # fmt: skip
    if given.password is not UNSET:
        file.set_password(name, given.password)
    if given.administrator is not UNSET:
        file.set_administrator(name, given.administrator)
    if given.role is not UNSET:
        file.set_role(name, role_of(given.role))
    if given == UserChange(name):
        raise ActionRefused(422, "nothing to change; allowed: password, administrator, role")
    return CommandResultView(f"changed user {name}", site.command)


@action(
    "user.own-password", http="PUT /session/password", effect="changes", role=Role.MONITOR,
    audit=("user.password",), refuses=_REFUSES, statuses=(429,), place="daemon",
    commands=(
        ActionCommand(
            "user own-password", {"current": PASSWORD, "password": PASSWORD}, by_hand="it asks for two passwords"
        ),
    ),
)  # fmt: skip
def change_own_password(site: ActionSite, given: OwnPassword) -> CommandResultView:
    """Change the caller's own password.

    This ends the sessions of the user, including this one, but no tokens. Callers with a token are refused.
    """
    assert site.daemon is not None
    checked = site.daemon.change("check_password", password=given.current)
    if checked["wait"]:
        raise ActionRefused(429, f"too many failed logins: wait {int(checked['wait']) + 1} s")
    if not checked["good"]:
        raise ActionRefused(422, "the current password is wrong", pointer="/current")
    _file(site).set_password(site.caller.name, given.password)
    return CommandResultView(f"changed the password of {site.caller.name}", site.command)


@action(
    "user.remove", http="DELETE /users/{user}", effect="destroys", administrators=True,
    audit=("user.remove", "token.revoke"),
    refuses=_REFUSES, commands=(ActionCommand("user remove", {"user": "NAME"}),),
)  # fmt: skip
def delete_user(site: ActionSite, given: NamedUser) -> CommandResultView:
    """Remove a user, and revoke the tokens of the user."""
    _demand_other(site, given.user)
    revoke_all(site, _file(site).remove(given.user))
    return CommandResultView(f"removed user {given.user}", site.command)


@action(
    "group.add", http="POST /groups", status=201, effect="changes", administrators=True,
    audit=("group.add",),
    refuses=_REFUSES, founds=True,
    commands=(
        ActionCommand(
            "user group add", {"name": "NAME", "members": "[USER]..."}, LineView(lambda made: made.sid),
            help="Add a group, with members if any are named; prints its SID.",
        ),
    ),
)  # fmt: skip
def create_group(site: ActionSite, given: NewGroup) -> AddedAccount:
    """Add a group, with members if any are named."""
    made = _new_file(site).add_group(given.name, given.members)
    return AddedAccount(f"added group {given.name}", site.command, made.sid)


@action(
    "group.change", http="PATCH /groups/{group}", effect="changes", administrators=True,
    audit=("group.members",),
    refuses=_REFUSES,
    commands=(
        ActionCommand(
            "user group join", {"group": "NAME", "join": "USER..."},
            help="Make users members of a group, from their next call on.",
        ),
        ActionCommand(
            "user group leave", {"group": "NAME", "leave": "USER..."}, help="Make users members of a group no longer."
        ),
    ),
)  # fmt: skip
def change_group(site: ActionSite, given: GroupChange) -> CommandResultView:
    """Add users to a group or remove them, effective from their next call."""
    if not (given.join or given.leave):
        raise ActionRefused(422, "nothing to change; allowed: join, leave")
    _file(site).change_members(given.group, given.join, given.leave)
    return CommandResultView(f"changed group {given.group}", site.command)


@action(
    "group.remove", http="DELETE /groups/{group}", effect="destroys", administrators=True,
    audit=("group.remove",),
    refuses=_REFUSES, commands=(ActionCommand("user group remove", {"group": "NAME"}),),
)  # fmt: skip
def delete_group(site: ActionSite, given: NamedGroup) -> CommandResultView:
    """Remove a group. Rights that were granted to it stay in the descriptors of queues, without effect."""
    _file(site).remove_group(given.group)
    return CommandResultView(f"removed group {given.group}", site.command)


def _file(site: ActionSite) -> UsersFile:
    """Return the users file. Raises NoDataDirectory if neither the file nor the data directory exists."""
    if not site.users_file.exists():
        data_directories.demand(site.directory)
    return UsersFile(site.users_file, on_change=lambda name, user: site.record(name, "user", user))


def _new_file(site: ActionSite) -> UsersFile:
    """Return the users file, which is created if needed: users can be added before the daemon's first start."""
    site.users_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return UsersFile(site.users_file, on_change=lambda name, user: site.record(name, "user", user))


def _demand_other(site: ActionSite, name: str) -> None:
    """Refuse changes of the caller's own account, which could lock out the last administrator. Raises ActionRefused."""
    if _is_own(site, name):
        raise ActionRefused(
            409,
            "you cannot remove yourself or your own rights: ask another administrator, or use `openmsmq user` on the "
            "machine of the server",
        )


def _is_own(site: ActionSite, name: str) -> bool:
    return bool(site.caller.name) and name.casefold() == site.caller.name.casefold()


ACTIONS: Final = (
    list_users, create_user, change_user, change_own_password, delete_user, create_group, change_group, delete_group
)  # fmt: skip
