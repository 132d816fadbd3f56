"""`openmsmq user …`"""

from __future__ import annotations

import click

from openmsmq.admin.administration.interface import UserInfo
from openmsmq.cli.output import echo, json_option, print_rows
from openmsmq.cli.places import AdminTarget, new_password, password_stdin_option, place_of_group, place_options
from openmsmq.model.roles import WORDS, Role, role_of

_ROLE = "What the user may do by HTTP at most; rights say what of it."


@click.group()
@place_of_group
def user() -> None:
    """Manage the users that NTLM authenticates. A running daemon notices changes.

    They are in the data directory of a daemon. With --url, the HTTP API of a daemon is asked, with a token of the role
    administrator, of an administrator of the queue manager.
    """


@user.command("add")
@click.argument("name")
@password_stdin_option
@click.option(
    "--admin",
    is_flag=True,
    help="Make the user an administrator: it may pause outgoing queues, read them, disconnect the machine, ...",
)
@click.option("--role", type=click.Choice(WORDS), default=Role.ADMINISTRATOR.word, show_default=True, help=_ROLE)
@place_options
def user_add(place: AdminTarget, name: str, password_stdin: bool, admin: bool, role: str) -> None:
    """Add a user; prints its SID."""
    with place.open_new() as daemon:
        echo(daemon.add_user(name, new_password(password_stdin), administrator=admin, role=role_of(role)))


@user.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice(WORDS))
@place_options
def user_role(place: AdminTarget, name: str, role: str) -> None:
    """Bound what a user may do by HTTP and in the console: `monitor` sees figures, names and states; `operator` also
    reads, sends, moves and deletes messages; `administrator` does whatever the user's rights allow."""
    with place.open() as daemon:
        daemon.set_role(name, role_of(role))


@user.command("admin")
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Revoke administrator rights.")
@place_options
def user_admin(place: AdminTarget, name: str, revoke: bool) -> None:
    """Make a user an administrator of the queue manager."""
    with place.open() as daemon:
        daemon.set_administrator(name, not revoke)


@user.command("list")
@json_option
@place_options
def user_list(place: AdminTarget, as_json: bool) -> None:
    """List users with their SIDs and groups."""
    with place.open() as daemon:
        found = daemon.users()
    print_rows(found, as_json, ("user", "SID", "administrator", "role by HTTP", "groups"), _cells)


def _cells(each: UserInfo) -> list[str]:
    return [each.name, each.sid, "yes" if each.administrator else "", each.role, ", ".join(each.groups)]


@user.command("remove")
@click.argument("name")
@place_options
def user_remove(place: AdminTarget, name: str) -> None:
    """Remove a user."""
    with place.open() as daemon:
        daemon.remove_user(name)


@user.command("passwd")
@click.argument("name")
@password_stdin_option
@place_options
def user_passwd(place: AdminTarget, name: str, password_stdin: bool) -> None:
    """Change the password of a user."""
    with place.open() as daemon:
        daemon.set_password(name, new_password(password_stdin))


@user.group("group")
def user_group() -> None:
    """Manage groups of users: a right that is given to a group counts for each member."""


@user_group.command("add")
@click.argument("name")
@click.argument("members", nargs=-1, metavar="[USER]...")
@place_options
def group_add(place: AdminTarget, name: str, members: tuple[str, ...]) -> None:
    """Add a group, with members if any are named; prints its SID."""
    with place.open_new() as daemon:
        echo(daemon.add_group(name, members))


@user_group.command("remove")
@click.argument("name")
@place_options
def group_remove(place: AdminTarget, name: str) -> None:
    """Remove a group. Rights that were granted to it stay in the descriptors of queues, without effect."""
    with place.open() as daemon:
        daemon.remove_group(name)


@user_group.command("join")
@click.argument("name")
@click.argument("members", nargs=-1, required=True, metavar="USER...")
@place_options
def group_join(place: AdminTarget, name: str, members: tuple[str, ...]) -> None:
    """Make users members of a group, from their next call on."""
    with place.open() as daemon:
        daemon.change_members(name, join=members)


@user_group.command("leave")
@click.argument("name")
@click.argument("members", nargs=-1, required=True, metavar="USER...")
@place_options
def group_leave(place: AdminTarget, name: str, members: tuple[str, ...]) -> None:
    """Make users members of a group no longer."""
    with place.open() as daemon:
        daemon.change_members(name, leave=members)


@user_group.command("list")
@json_option
@place_options
def group_list(place: AdminTarget, as_json: bool) -> None:
    """List groups with their SIDs and members."""
    with place.open() as daemon:
        found = daemon.groups()
    print_rows(found, as_json, ("group", "SID", "members"), lambda each: [each.name, each.sid, ", ".join(each.members)])
