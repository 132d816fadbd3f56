"""`openmsmq domain join|leave`: create and delete the objects of this machine in the domain."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from msrpc.rpc.kerberos import check_keytab
from msrpc.rpc.keytab import computer_salt, keys_of, pack_keytab
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.asking import ask_password, confirm
from openmsmq.cli.output import dry_run_option, echo
from openmsmq.directory.active import joining
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.joining import DomainMember, JoinStep
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.provider import ActiveDirectory
from openmsmq.directory.active.session import LdapCredentials, LdapSession, LdapUnavailable, libraries
from openmsmq.directory.provider import DirectoryDenied, DirectoryError, DirectoryNotConnected, ObjectExists
from openmsmq.files.private import PrivateFileError, write_private
from openmsmq.model.errors import KerberosUnavailable
from openmsmq.protocols.certificates import certificates_in, certificates_to
from openmsmq.protocols.public_queues import record_of
from openmsmq.queueing.properties import QueueProperties
from openmsmq.server import domain_migration
from openmsmq.server.config import Configuration
from openmsmq.server.controllers import located
from openmsmq.server.identity import fully_qualified_name
from openmsmq.store import Store, StoreError, StoreInUse

SYSTEM_KEYTAB: Final = Path("/etc/krb5.keytab")  # that of a machine which is a member by winbind or realmd
_RECORD: Final = "domain.json"  # in the data directory: what `join` has made, which `leave` takes away


def _administrator_options(command: Callable[..., Any]) -> Callable[..., Any]:
    user = click.option(
        "--user",
        help="Administrator of the domain, as Administrator@EXAMPLE.COM; default: the owner of the Kerberos ticket.",
    )
    env = click.option(
        "--password-env", default="OPENMSMQ_PASSWORD", help="Environment variable that contains the password."
    )
    return user(env(command))


@dataclass(slots=True)
class _Record:
    """Local record of the steps done for the domain."""

    account: str = ""
    keytab: str = ""

    @classmethod
    def read(cls, data_dir: Path) -> _Record:
        """Raises UsageError."""
        try:
            return cls(**json.loads((data_dir / _RECORD).read_bytes()))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError) as error:
            raise click.UsageError(f"{data_dir / _RECORD} can't be read: {error}") from None

    def write(self, data_dir: Path) -> None:
        write_private(data_dir / _RECORD, json.dumps({"account": self.account, "keytab": self.keytab}).encode())


@dataclass(slots=True)
class _Join:
    """One run: what the steps know of each other."""

    configuration: Configuration
    session: LdapSession
    host: str  # the controller
    member: DomainMember
    keytab: Path
    record: _Record
    identifier: UUID | None = None
    renamed: list[str] = field(default_factory=list)

    def new_account(self, *, reset: bool) -> Iterator[JoinStep]:
        password = secrets.token_urlsafe(60) + "aA1!"  # what domains ask of passwords
        yield from joining.account_steps(self.session, self.member, password, reset=reset)
        yield JoinStep(f"write its keys to {self.keytab}", lambda: self._write_keytab(password))

    def _write_keytab(self, password: str) -> None:
        realm, account = joining.realm_of(self.session), self.member.account
        version = joining.key_version(self.session, account)
        keys = keys_of(password, computer_salt(realm, self.member.computer_name))
        principals = [account, *(service for service in self.member.services if service.startswith("host/"))]
        write_private(self.keytab, pack_keytab(principals, realm, version, keys, int(time.time())))
        self.record.keytab = str(self.keytab)
        self.record.write(self.configuration.data_dir)

    def keep_account(self) -> None:
        self.record.account = self.member.account
        self.record.write(self.configuration.data_dir)

    def enrol(self) -> None:
        """Enroll as the machine; an administrator makes the object if the machine may not."""
        name = self.configuration.machine_name
        try:
            self.identifier = self._as_machine().enrol(name)
        except DirectoryDenied:
            self.identifier = self._directory(lambda host: self.session).enrol(name)

    def _as_machine(self) -> ActiveDirectory:
        return self._directory(partial(LdapSession, login=LdapCredentials(self.member.account, self.keytab)))

    def _directory(self, connect: Callable[[str], LdapSession]) -> ActiveDirectory:
        controllers = Controllers(Named([self.host]), connect)
        return ActiveDirectory(controllers, self.member.account, certificates_in, certificates_to)

    def move(self, store: Store, contents: domain_migration.Contents, *, publish: bool) -> None:
        identifier = self.identifier
        assert identifier is not None
        made, provider = {}, self._as_machine()
        for name, queue in contents.public.items() if publish else ():
            made[name] = asyncio.run(_published(provider, queue, identifier))
            former = UUID(bytes_le=queue.instance)
            if former != made[name]:
                self.renamed.append(f"{queue.path_name}: PUBLIC={former} is PUBLIC={made[name]} now")
        domain_migration.move(store, contents, identifier, made)


async def _published(provider: ActiveDirectory, queue: QueueProperties, machine: UUID) -> UUID:
    """Return the identifier of the object of a queue, which an interrupted earlier run may have created."""
    wanted = record_of(queue, machine)
    try:
        return (await provider.create_queue(wanted)).identifier
    except ObjectExists:
        found = await provider.queue_at(wanted.path_name)
        if found.machine != machine:
            raise
        return found.identifier


@click.command()
@_administrator_options
@click.option("--keytab", type=click.Path(path_type=Path), help="Keytab of the machine's account (kerberos_keytab).")
@click.option(
    "--host-name", help="Fully qualified name to which clients connect (default: that of the host or account)."
)
@click.option("--container", default="", help="Distinguished name of the container for the account.")
@click.option("--reset-password", is_flag=True, help="Set a new password for an account that already exists.")
@click.option("--publish", is_flag=True, help="Create objects for the public queues in the data directory.")
@dry_run_option
@accounts_options
def join(
    accounts: Accounts, user: str | None, password_env: str, keytab: Path | None, host_name: str | None, container: str,
    reset_password: bool, publish: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Create this machine's account, its services and keys, and the object of its queue manager in the domain.

    If the machine is already a member, its keytab is used. The daemon must not be running. An existing data directory
    gets the identity of the queue manager's object in the domain.
    """
    configuration = accounts.configuration
    with _failures(), ExitStack() as stack:
        libraries()
        store = _opened(configuration, stack)
        contents = domain_migration.contents_of(store) if store is not None else None
        host, session = _administrator(configuration, user, password_env)
        stack.callback(session.close)
        name = configuration.machine_name
        own = host_name or fully_qualified_name()
        if "." not in own:
            own = f"{name}.{joining.realm_of(session)}".lower()
        member = DomainMember(name, own, container)
        moves = contents is not None and joining.identifier_of_object(session, member.account) != contents.identifier
        if contents is not None and contents.outgoing and moves:
            waiting = ", ".join(f"{count} for {name}" for name, count in contents.outgoing.items())
            raise click.ClickException(
                f"messages wait in outgoing queues ({waiting}), and peers that have already received them would not "
                "recognize them under another identifier: wait until they are sent, or purge these queues (`openmsmq "
                "outgoing`)"
            )
        run = _Join(
            configuration, session, host, member,
            keytab or configuration.kerberos_keytab or configuration.data_dir / "machine.keytab",
            _Record.read(configuration.data_dir),
        )  # fmt: skip
        _perform(_joining(run, store, contents, keytab, reset=reset_password, publish=publish), dry_run=dry_run)
    for line in run.renamed:
        echo(line)
    if contents is not None and contents.public and not publish:
        echo(f"{len(contents.public)} public queues have no object in the domain; --publish creates them")
    if not dry_run:
        where = "directory_controllers" if configuration.controllers else "directory_domain"
        echo("Settings of the daemon:")
        echo(f'directory_provider = "active-directory"\nlogins = "kerberos,ntlm"\nkerberos_keytab = "{run.keytab}"\n'
             f'computer_name = "{name}"\n{where} = "{getattr(configuration, where)}"',
             multiline=True)  # fmt: skip


def _joining(
    run: _Join,
    store: Store | None,
    contents: domain_migration.Contents | None,
    given: Path | None,
    *,
    reset: bool,
    publish: bool,
) -> Iterator[JoinStep]:  # fmt: skip
    member = run.member
    found = next((path for path in (run.keytab, SYSTEM_KEYTAB) if _logs_in(run.host, member.account, path)), None)
    if found is not None and not reset:
        run.keytab = found
        echo(f"{found} has the keys of {member.account}: this machine is a member")
        yield from joining.service_steps(run.session, member)
    elif given is not None and given.exists() and not reset:
        raise click.ClickException(f"{given} has no key of {member.account} that is good: `klist -k {given}`")
    else:
        is_new = joining.find_account(run.session, member.account) is None
        first, *others = run.new_account(reset=reset)
        yield first
        if is_new:
            yield JoinStep("note in the data directory that the account was made for it", run.keep_account)
        yield from others
    yield JoinStep(f"create the object CN=msmq of {member.account}, or find it", run.enrol)
    if store is not None and contents is not None:
        queues = f", and {len(contents.public)} public queues get objects" if publish and contents.public else ""
        step = f"let {contents.identifier}, the queue manager of the data directory, be the one of this object{queues}"
        yield JoinStep(step, lambda: run.move(store, contents, publish=publish))


@click.command()
@_administrator_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@accounts_options
def leave(accounts: Accounts, user: str | None, password_env: str, yes: bool, dry_run: bool) -> None:
    """Delete this machine's queue manager and public queues from the domain, and its account and keys if `join` created
    them. The data directory keeps queues and messages.
    """
    configuration = accounts.configuration
    record = _Record.read(configuration.data_dir)
    account = configuration.account_name.partition("@")[0]
    with _failures(), ExitStack() as stack:
        libraries()
        _opened(configuration, stack)
        _, session = _administrator(configuration, user, password_env)
        stack.callback(session.close)
        steps = joining.leaving_steps(session, account, with_account=record.account == account)
        if record.keytab:
            keytab = Path(record.keytab)
            steps.append(JoinStep(f"remove {keytab}", lambda: keytab.unlink(missing_ok=True)))
        if record != _Record():
            path = configuration.data_dir / _RECORD
            steps.append(JoinStep(f"remove {path}", lambda: path.unlink(missing_ok=True)))
        if not steps:
            echo(f"the domain has no objects of {account}")
        elif not dry_run and not yes:
            for step in steps:
                echo(step.said)
            confirm("Do that?")
        _perform(steps, dry_run=dry_run)
    echo('Before the daemon starts again, set directory_provider = "sqlite" or "none" .')


def _perform(steps: Any, *, dry_run: bool) -> None:
    for step in steps:
        echo(f"would {step.said}" if dry_run else step.said)
        if not dry_run:
            step.do()


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (DirectoryError, LdapUnavailable, KerberosUnavailable, StoreError, PrivateFileError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _opened(configuration: Configuration, stack: ExitStack) -> Store | None:
    """Open the store, so that no daemon runs meanwhile; return None if there is none. Raises StoreInUse, StoreError,
    OSError."""
    if not domain_migration.is_used(configuration.data_dir):
        return None
    try:
        store = Store.open(configuration.data_dir / "store")
    except StoreInUse as error:
        raise click.ClickException(f"stop the daemon first: {error}") from None
    stack.callback(domain_migration.give_to_owner, configuration.data_dir)
    stack.callback(store.close)
    return store


def _administrator(configuration: Configuration, user: str | None, password_env: str) -> tuple[str, LdapSession]:
    """Return the first available controller and a session with it. Raises DirectoryError, UsageError."""
    locate = located(configuration)
    if locate is None:
        raise click.UsageError("no domain controller configured: give --directory-controllers or --directory-domain")
    login = LdapCredentials()
    if user is not None:
        password = os.environ.get(password_env) or ask_password(f"Password of {user}", f"set {password_env}")
        login = LdapCredentials(user, password=password)
    reasons = []
    for host in locate.hosts():
        try:
            return host, LdapSession(host, login)
        except DirectoryNotConnected as error:
            reasons.append(f"{host}: {error}")
    raise DirectoryNotConnected("; ".join(reasons))


def _logs_in(host: str, account: str, keytab: Path) -> bool:
    try:
        check_keytab(keytab)
        LdapSession(host, LdapCredentials(account, keytab)).close()
    except (KerberosUnavailable, DirectoryNotConnected):
        return False
    return True
