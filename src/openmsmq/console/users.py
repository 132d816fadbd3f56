"""Users and groups of the users file: for administrators, as `openmsmq user` has it."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Annotated, Final, TypeVar

import msgspec

from openmsmq.console.problems import Problem
from openmsmq.console.recording import record
from openmsmq.console.table import ROLE_WORDS, HttpOperation, Input, Output, RoleWord, WebRequest
from openmsmq.model.roles import role_of
from openmsmq.rpc.users import MAX_NAME, NoSuchAccount, UsersFile, UsersFileError

T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Names = Annotated[list[Name], msgspec.Meta(max_length=1000)]
Password = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class UserView(Output, frozen=True):
    """`role` bounds what the user may do by HTTP; `groups` are names."""

    name: str
    sid: str
    administrator: bool
    role: RoleWord
    groups: list[str]


class UserGroupView(Output, frozen=True):
    """`members` are names of users, or SIDs of those that are gone."""

    name: str
    sid: str
    members: list[str]


class UserList(Output, frozen=True):
    users: list[UserView]
    groups: list[UserGroupView]
    command: str


class NewUser(Input, frozen=True):
    name: Name
    password: Password
    administrator: bool = False
    role: RoleWord = "administrator"


class UserChange(Input, frozen=True):
    """What is not given stays. A new password ends the sessions of the user, not the tokens."""

    password: Password | msgspec.UnsetType = msgspec.UNSET
    administrator: bool | msgspec.UnsetType = msgspec.UNSET
    role: RoleWord | msgspec.UnsetType = msgspec.UNSET


class NewGroup(Input, frozen=True):
    name: Name
    members: Names = msgspec.field(default_factory=list)


class GroupChange(Input, frozen=True):
    join: Names = msgspec.field(default_factory=list)
    leave: Names = msgspec.field(default_factory=list)


class CommandResultView(Output, frozen=True):
    """What was done, and the equal command."""

    done: str
    command: str


def list_users(asked: WebRequest) -> UserList:
    file = _file(asked)
    users, groups, names = _asked(lambda: (file.list(), file.groups(), file.names()))
    found = [
        UserView(user.name, user.sid, user.administrator, ROLE_WORDS[user.role],
             [group.name for group in groups if user.sid in group.members])
        for user in users
    ]  # fmt: skip
    return UserList(
        found,
        [
            UserGroupView(group.name, group.sid, sorted(names.get(sid, sid) for sid in group.members))
            for group in groups
        ],
        "openmsmq user list",
    )


def create_user(asked: WebRequest) -> CommandResultView:
    body: NewUser = asked.body
    file = _file(asked)
    role = role_of(body.role)
    _asked(lambda: file.add(body.name, body.password, administrator=body.administrator, role=role))
    options = (" --admin" if body.administrator else "") + (
        f" --role {role.word}" if body.role != "administrator" else ""
    )
    return CommandResultView(f"added user {body.name}", f"openmsmq user add {quote(body.name)}{options}")


def change_user(asked: WebRequest) -> CommandResultView:
    body: UserChange = asked.body
    file, name = _file(asked), asked.path["user"]
    commands: list[str] = []
    if body.administrator is not msgspec.UNSET or body.role is not msgspec.UNSET:
        _demand_other(asked, name)
    if body.password is not msgspec.UNSET:
        password = body.password
        _asked(lambda: file.set_password(name, password))
        commands.append(f"openmsmq user passwd {quote(name)}")
    if body.administrator is not msgspec.UNSET:
        administrator = body.administrator
        _asked(lambda: file.set_administrator(name, administrator))
        commands.append(f"openmsmq user admin {quote(name)}{'' if administrator else ' --revoke'}")
    if body.role is not msgspec.UNSET:
        role = role_of(body.role)
        _asked(lambda: file.set_role(name, role))
        commands.append(f"openmsmq user role {quote(name)} {role.word}")
    if not commands:
        raise Problem(422, f"nothing to change; allowed: {', '.join(UserChange.__struct_fields__)}")
    return CommandResultView(f"changed user {name}", "; ".join(commands))


def delete_user(asked: WebRequest) -> CommandResultView:
    name = asked.path["user"]
    _demand_other(asked, name)
    _asked(lambda: _file(asked).remove(name))
    return CommandResultView(f"removed user {name}", f"openmsmq user remove {quote(name)}")


def create_group(asked: WebRequest) -> CommandResultView:
    body: NewGroup = asked.body
    _asked(lambda: _file(asked).add_group(body.name, body.members))
    members = "".join(f" {quote(member)}" for member in body.members)
    return CommandResultView(f"added group {body.name}", f"openmsmq user group add {quote(body.name)}{members}")


def change_group(asked: WebRequest) -> CommandResultView:
    body: GroupChange = asked.body
    name = asked.path["group"]
    if not (body.join or body.leave):
        raise Problem(422, "nothing to change; allowed: join, leave")
    _asked(lambda: _file(asked).change_members(name, body.join, body.leave))
    commands = [
        f"openmsmq user group {verb} {quote(name)} {' '.join(map(quote, members))}"
        for verb, members in (("join", body.join), ("leave", body.leave))
        if members
    ]
    return CommandResultView(f"changed group {name}", "; ".join(commands))


def delete_group(asked: WebRequest) -> CommandResultView:
    name = asked.path["group"]
    _asked(lambda: _file(asked).remove_group(name))
    return CommandResultView(f"removed group {name}", f"openmsmq user group remove {quote(name)}")


def _file(asked: WebRequest) -> UsersFile:
    """Changes are recorded. Raises AccessDenied."""
    asked.services.demand_administrator(asked.caller)
    return recorded_users(asked)


def recorded_users(asked: WebRequest) -> UsersFile:
    """The users file, changes of which are recorded as those of the caller."""
    return UsersFile(
        asked.services.settings.users_path, on_change=lambda action, name: record(asked, action, "user", name)
    )


def _demand_other(asked: WebRequest, name: str) -> None:
    """An administrator must not lose the server with a click. Raises Problem."""
    if name.casefold() == asked.caller.name.casefold():
        raise Problem(
            409,
            "you can't remove yourself or take your own rights: another administrator can, or `openmsmq user` on the "
            "machine of the server",
        )


def _asked(work: Callable[[], T]) -> T:
    """Raises Problem for what can't be done with the file."""
    try:
        return work()
    except NoSuchAccount as error:
        raise Problem(404, str(error)) from None
    except UsersFileError as error:
        raise Problem(409, str(error)) from None


OPERATIONS: Final = (
    HttpOperation("GET", "/users", list_users, "Users and groups", UserList, statuses=(409,)),
    HttpOperation("POST", "/users", create_user, "Add a user", CommandResultView, body=NewUser, status=201,
                  statuses=(409, 507)),
    HttpOperation("PATCH", "/users/{user}", change_user, "Change password, role, or administrator rights of a user",
                  CommandResultView,
              body=UserChange, statuses=(404, 409, 507)),
    HttpOperation("DELETE", "/users/{user}", delete_user, "Remove a user", CommandResultView, statuses=(404, 409, 507)),
    HttpOperation("POST", "/groups", create_group, "Add a group", CommandResultView, body=NewGroup, status=201,
              statuses=(404, 409, 507)),
    HttpOperation("PATCH", "/groups/{group}", change_group, "Users join and leave a group", CommandResultView,
                  body=GroupChange,
              statuses=(404, 409, 507)),
    HttpOperation("DELETE", "/groups/{group}", delete_group, "Remove a group", CommandResultView, statuses=(404, 409,
                  507)),
)  # fmt: skip
