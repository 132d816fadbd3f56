"""The file of users for NTLM authentication.

JSON with mode 0600, replaced atomically, and changed by one process at a time under the lock file `users.lock`. It
contains NT hashes, which are equivalent to passwords, so it is rejected if other users may read it. SIDs follow
[MS-DTYP] 2.4.2: a machine SID generated once, and a RID from 1000 that is never reused.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from msrpc.rpc.ntlm import nt_hash
from openmsmq.files.locks import locked
from openmsmq.files.private import CachedFile, PrivateFileError, write_private
from openmsmq.model.roles import Role, role_of
from openmsmq.model.security import WELL_KNOWN

logger = logging.getLogger(__name__)

# Lower RIDs are reserved for Windows.
FIRST_RID: Final = 1000
# [MS-SAMR] 3.1.1.8.4: a user name has at most 20 characters on Windows; domain accounts may have 256 as UPN.
MAX_NAME: Final = 256
_LOCK_TIMEOUT: Final = 10.0  # maximum wait for changes by other processes, in seconds
_FORBIDDEN: Final = re.compile(r'["/\\\[\]:;|=,+*?<>\x00-\x1f]')


class UsersFileError(Exception):
    """The file is unusable, or the change is invalid."""


class NoSuchAccount(UsersFileError):
    """There is no user or group with this name."""


@dataclass(frozen=True, slots=True)
class User:
    """An account. Names are case-insensitive. `role` limits what it may do by HTTP."""

    name: str
    sid: str
    nt_hash: bytes = field(repr=False)
    administrator: bool = False
    role: Role = Role.ADMINISTRATOR


@dataclass(frozen=True, slots=True)
class UserGroup:
    """A group of users, which can be granted rights. `members` are SIDs of users."""

    name: str
    sid: str
    members: frozenset[str] = frozenset()


class _Content(NamedTuple):
    """Contents of the file; keys are casefolded names."""

    users: Mapping[str, User]
    groups: Mapping[str, UserGroup]
    machine_sid: str  # empty if there is no file
    next_rid: int


class UsersFile:
    """Users and groups on disk. `lookup` rereads the file after a change, so that the daemon needs no notification."""

    def __init__(
        self,
        path: Path,
        *,
        random: Callable[[int], bytes] = os.urandom,
        on_change: Callable[[str, str], object] = lambda action, name: None,
    ) -> None:
        """`on_change` gets an action (`user.add`) and a name before each change is written; may raise to prevent it."""
        self._path = path
        self._on_change = on_change
        self._random = random
        self._file: Final = CachedFile(path, _parse, _Content({}, {}, "", FIRST_RID), kind="users")
        self._content: _Content | None = None
        self._machine_sid = ""
        self._next_rid = FIRST_RID
        self._users: dict[str, User] = {}
        self._groups: dict[str, UserGroup] = {}
        self._groups_of: dict[str, frozenset[str]] = {}
        self._administrators: frozenset[str] = frozenset()
        self._logged = ""

    def list(self) -> list[User]:
        """Return all users, sorted by name; none if the file does not exist. Raises `UsersFileError`."""
        self._load()
        return sorted(self._users.values(), key=lambda user: user.name.casefold())

    def add(self, name: str, password: str, *, administrator: bool = False, role: Role = Role.ADMINISTRATOR) -> User:
        """Add a user with a new SID. Raises `UsersFileError` if the name is taken or invalid, or if the password is
        empty."""
        _check_password(name, password)
        return self.restore(name, nt_hash(password), administrator=administrator, role=role)

    def restore(
        self, name: str, hashed: bytes, *, administrator: bool = False, role: Role = Role.ADMINISTRATOR
    ) -> User:
        """Add a user with a new SID and an NT hash from another file. Raises `UsersFileError` if the name is taken or
        invalid, or if the hash is not a password's."""
        if len(hashed) != 16 or hashed == nt_hash(""):
            raise UsersFileError(f"user {name}: not an NT hash of a password")
        with self._changing("user.add", name):
            user = User(name, self._new_sid(name), hashed, administrator, role)
            self._users[name.casefold()] = user
        return user

    def _new_sid(self, name: str) -> str:
        """Return a SID for a new user or group; they share names and RIDs. Raises `UsersFileError` if the name is taken
        or invalid."""
        check_account_name(name)
        for known, what in ((self._users, "user"), (self._groups, "group")):
            if name.casefold() in known:
                raise UsersFileError(f"{what} {name} already exists")
        sid = f"{self._machine_sid}-{self._next_rid}"
        self._next_rid += 1
        return sid

    def remove(self, name: str) -> str:
        """Remove a user, also from groups; returns the SID. Raises `UsersFileError` if there is no such user."""
        with self._changing("user.remove", name):
            sid = self._get(name).sid
            del self._users[name.casefold()]
            self._groups = {key: replace(group, members=group.members - {sid}) for key, group in self._groups.items()}
        return sid

    # -- groups ----------------------------------------------------------------------------------------------------

    def groups(self) -> tuple[UserGroup, ...]:
        """Return all groups, sorted by name. Raises `UsersFileError`."""
        self._load()
        return tuple(sorted(self._groups.values(), key=lambda group: group.name.casefold()))

    def add_group(self, name: str, members: Iterable[str] = ()) -> UserGroup:
        """Add a group with a new SID. Raises `UsersFileError` if the name is taken or invalid, or for an unknown
        member."""
        with self._changing("group.add", name):
            group = UserGroup(name, self._new_sid(name), frozenset(self._get(user).sid for user in members))
            self._groups[name.casefold()] = group
        return group

    def remove_group(self, name: str) -> None:
        """Remove a group. Its rights stay in descriptors, without effect. Raises `UsersFileError` if there is none."""
        with self._changing("group.remove", name):
            self._get_group(name)
            del self._groups[name.casefold()]

    def change_members(self, name: str, join: Iterable[str] = (), leave: Iterable[str] = ()) -> UserGroup:
        """Add and remove members of a group by name. Raises `UsersFileError` if there is no such group or user."""
        with self._changing("group.members", name):
            group = self._get_group(name)
            members = group.members | {self._get(user).sid for user in join}
            members -= {self._get(user).sid for user in leave}
            self._groups[name.casefold()] = changed = replace(group, members=members)
        return changed

    def groups_of(self, sid: str) -> frozenset[str]:
        """Return the SIDs of the groups of a user; none, and an error in the log, if the file cannot be read."""
        return self._groups_of.get(sid, frozenset()) if self._readable() else frozenset()

    def sid_of(self, name: str) -> str | None:
        """Return the SID of a user or group; None for an unknown name. Raises `UsersFileError`."""
        self._load()
        found = self._users.get(name.casefold()) or self._groups.get(name.casefold())
        return found.sid if found else None

    def names(self) -> dict[str, str]:
        """Return the names of users and groups: SID -> name. Raises `UsersFileError`."""
        self._load()
        users = {user.sid: user.name for user in self._users.values()}
        return users | {group.sid: group.name for group in self._groups.values()}

    # -- users -----------------------------------------------------------------------------------------------------

    def set_password(self, name: str, password: str) -> None:
        """Set the password of a user. Raises `UsersFileError` for an unknown user or an empty password."""
        _check_password(name, password)
        with self._changing("user.password", name):
            self._users[name.casefold()] = replace(self._get(name), nt_hash=nt_hash(password))

    def set_administrator(self, name: str, administrator: bool) -> None:
        """Grant or revoke the administrator right of a user. Raises `UsersFileError` if there is no such user."""
        with self._changing("user.administrator" if administrator else "user.no-administrator", name):
            self._users[name.casefold()] = replace(self._get(name), administrator=administrator)

    def set_role(self, name: str, role: Role) -> None:
        """Limit what a user may do by HTTP. Raises `UsersFileError` if there is no such user."""
        with self._changing(f"user.role.{role.word}", name):
            self._users[name.casefold()] = replace(self._get(name), role=role)

    def role_of(self, name: str) -> Role:
        """Return the role of a user for HTTP; the lowest role for an unknown user."""
        user = self._users.get(name.casefold()) if self._readable() else None
        return user.role if user is not None else Role.MONITOR

    def is_administrator(self, sid: str) -> bool:
        """Whether the user with a SID is an administrator; false if the file cannot be read."""
        return self._readable() and sid in self._administrators

    @property
    def machine_sid(self) -> str:
        """The machine SID of this file's accounts, generated when the file is first written."""
        self._load()
        return self._machine_sid

    def lookup(self, domain: str, user: str) -> tuple[bytes, str] | None:
        """Return the NT hash and SID of a user (for `ntlm.UserLookup`). The domain is ignored: the users are local.

        Returns None, and logs an error, if the file cannot be read.
        """
        if not self._readable():
            return None
        found = self._users.get(user.casefold())
        return (found.nt_hash, found.sid) if found else None

    def check(self) -> None:
        """Read the file; a missing file is valid. Raises `UsersFileError` if it is unusable."""
        self._load()

    def _readable(self) -> bool:
        """Load the file and return whether it is usable. An error is logged only once, not with each login."""
        try:
            self._load()
        except UsersFileError as error:
            if str(error) != self._logged:
                self._logged = str(error)
                logger.error("cannot authenticate users: %s", error)
            return False
        self._logged = ""
        return True

    def _get(self, name: str) -> User:
        user = self._users.get(name.casefold())
        if user is None:
            raise NoSuchAccount(f"there is no user {name}")
        return user

    def _get_group(self, name: str) -> UserGroup:
        group = self._groups.get(name.casefold())
        if group is None:
            raise NoSuchAccount(f"there is no group {name}; `openmsmq user group list` lists all groups")
        return group

    def _load(self) -> None:
        try:
            content = self._file.read()
        except PrivateFileError as error:
            raise UsersFileError(str(error)) from error
        if content is self._content:
            return
        self._content = content
        self._users, self._groups, self._next_rid = dict(content.users), dict(content.groups), content.next_rid
        self._machine_sid = content.machine_sid or self._machine_sid or self._new_machine_sid()
        self._groups_of = {
            user.sid: frozenset(group.sid for group in self._groups.values() if user.sid in group.members)
            for user in self._users.values()
        }
        self._administrators = frozenset(user.sid for user in self._users.values() if user.administrator)

    def is_own(self, sid: str) -> bool:
        """Whether a SID belongs to this machine and not to a domain, even if the account no longer exists."""
        return self._readable() and bool(self._machine_sid) and sid.startswith(f"{self._machine_sid}-")

    def _new_machine_sid(self) -> str:
        parts = (int.from_bytes(self._random(4), "little") for _ in range(3))
        return "S-1-5-21-" + "-".join(map(str, parts))

    @contextmanager
    def _changing(self, action: str, name: str) -> Iterator[None]:
        """Change the file: lock it, load it, and write it at the end."""
        try:
            with locked(self._path.with_suffix(".lock"), _LOCK_TIMEOUT):
                self._load()
                yield
                self._on_change(action, name)
                self._write()
        except OSError as error:
            raise UsersFileError(f"{self._path}: {error}") from error
        finally:
            self._content = None  # the file is authoritative: discard the attempted change

    def _write(self) -> None:
        content = {
            "machine_sid": self._machine_sid,
            "next_rid": self._next_rid,
            "users": [
                {"name": user.name, "sid": user.sid, "nt_hash": user.nt_hash.hex(), "administrator": user.administrator}
                | ({} if user.role is Role.ADMINISTRATOR else {"role": user.role.word})
                for _, user in sorted(self._users.items())
            ],
            "groups": [
                {"name": group.name, "sid": group.sid, "members": sorted(group.members)}
                for _, group in sorted(self._groups.items())
            ],
        }
        try:
            write_private(self._path, (json.dumps(content, indent=1) + "\n").encode())
        except PrivateFileError as error:
            raise UsersFileError(str(error)) from error


def check_account_name(name: str) -> None:
    """Check the name of a user or group. Raises `UsersFileError` if it is invalid."""
    if not name or len(name) > MAX_NAME or _FORBIDDEN.search(name) or name.upper().startswith("S-1-"):
        raise UsersFileError(
            f"{name[:60]!r} is not a valid name of a user or group: 1 to {MAX_NAME} characters are needed, none a "
            'control character or one of "/\\[]:;|=,+*?<>, and must not look like a SID'
        )
    if name.lower() in WELL_KNOWN:
        raise UsersFileError(f"{name} is the name of an account that exists on every machine: choose another name")


def _check_password(name: str, password: str) -> None:
    if not password:
        raise UsersFileError(f"the password of {name} is empty; it must have at least one character")


def _parse(data: bytes) -> _Content:
    content = json.loads(data)
    users = {}
    for entry in content["users"]:
        administrator = entry.get("administrator", False) is True
        role = role_of(entry.get("role", Role.ADMINISTRATOR.word))
        user = User(str(entry["name"]), str(entry["sid"]), bytes.fromhex(entry["nt_hash"]), administrator, role)
        if len(user.nt_hash) != 16 or not user.sid.startswith("S-1-"):
            raise ValueError(f"entry of {user.name} is malformed")
        users[user.name.casefold()] = user
    groups = {}
    for entry in content.get("groups", []):  # missing in old files
        group = UserGroup(str(entry["name"]), str(entry["sid"]), frozenset(map(str, entry["members"])))
        if not group.sid.startswith("S-1-"):
            raise ValueError(f"group {group.name} is malformed")
        groups[group.name.casefold()] = group
    return _Content(users, groups, str(content["machine_sid"]), int(content["next_rid"]))
