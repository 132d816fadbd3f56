"""`openmsmq certificates|keys`: certificates of senders, and keys of machines that messages are encrypted for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from uuid import UUID

import click

from openmsmq.accounts.users import UsersFile
from openmsmq.admin.data_directories import demand
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.directory.active.accounts import DomainAccounts
from openmsmq.directory.active.provider import ActiveDirectory
from openmsmq.directory.active.session import LdapCredentials, LdapUnavailable, libraries
from openmsmq.directory.provider import Certificate, DirectoryError
from openmsmq.packet.errors import BadPacket
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import UserCertificate, certificate_of, describe, pem_of
from openmsmq.protection.faults import ProtectionError
from openmsmq.protection.keyring import CertificatesFile, KeyFiles, PeerKeysFile
from openmsmq.protection.keys import DirectoryKey, pack_directory_keys, unpack_directory_keys
from openmsmq.protocols.certificates import certificates_in, certificates_to
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.controllers import controllers, located
from openmsmq.server.loading import load

_config = click.option("--config", type=click.Path(path_type=Path), help="TOML file of the daemon.")
_data_dir = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Data directory of the daemon; default: that of --config."
)


def _configuration(config: Path | None, data_dir: Path | None) -> Configuration:
    """Raises UsageError."""
    try:
        return load(config, options={"data_dir": data_dir})
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None


# `certificates register`, `keys register` and `keys export` may prepare a data directory for the first start of its
# daemon, as `openmsmq user add` may. With --domain, a command needs none. The others require one.


@click.group()
@_config
@_data_dir
@click.pass_context
def certificates(context: click.Context, config: Path | None, data_dir: Path | None) -> None:
    """Manage the certificates that identify the senders of signed messages.

    A signed message counts as authentic if its certificate is registered for its sender. OWNER is a user of
    `openmsmq user`, a SID, or the GUID of a queue manager. A running daemon notices changes.
    """
    context.obj = _configuration(config, data_dir)


@certificates.command("list")
@json_option
@click.pass_obj
def certificates_list(configuration: Configuration, as_json: bool) -> None:
    """List registered certificates with their owners."""
    rows = []
    for owner, entries in sorted(CertificatesFile(demand(configuration.data_dir)).all().items()):
        for entry in entries:
            subject, bits, until = describe(entry.certificate)
            rows.append({"owner": owner, "digest": entry.digest.hex(), "subject": subject, "rsa_bits": bits,
                         "not_after": until})  # fmt: skip
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(["owner", "digest", "subject", "bits", "not after"], [list(row.values()) for row in rows])


_in_domain = click.option(
    "--domain",
    is_flag=True,
    help="Register in Active Directory, for its queue managers, with OWNER's own ticket (kinit).",
)


@certificates.command("register")
@click.argument("owner")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_in_domain
@click.pass_obj
def certificates_register(configuration: Configuration, owner: str, file: Path, domain: bool) -> None:
    """Register the certificate in FILE (X.509 with an RSA key, PEM or DER); prints its digest."""
    try:
        certificate = certificate_of(file.read_bytes())
    except ProtectionError as error:
        raise click.ClickException(f"{file}: {error.detail}") from None
    entry = UserCertificate(os.urandom(16), certificate)
    if domain:
        made = Certificate(entry.digest, UUID(bytes_le=entry.identifier), certificate)
        _change_in_domain(configuration, owner, lambda directory, sid: directory.add_certificate(sid, made))
    else:
        CertificatesFile(configuration.data_dir).register(_owner(configuration, owner), entry)
    echo(entry.digest.hex())


@certificates.command("export")
@click.argument("owner")
@click.argument("digest")
@click.pass_obj
def certificates_export(configuration: Configuration, owner: str, digest: str) -> None:
    """Write a registered certificate to standard output, PEM."""
    wanted = _digest(digest)
    for entry in CertificatesFile(demand(configuration.data_dir)).all().get(_owner(configuration, owner), ()):
        if entry.digest == wanted:
            echo(pem_of(entry.certificate).rstrip("\n"), multiline=True)
            return
    raise click.ClickException(f"{owner} has no certificate {digest}; `openmsmq certificates list` lists all")


@certificates.command("remove")
@click.argument("owner")
@click.argument("digest")
@_in_domain
@click.pass_obj
def certificates_remove(configuration: Configuration, owner: str, digest: str, domain: bool) -> None:
    """Remove a certificate. Messages signed with it are then refused."""
    if domain:
        wanted = _digest(digest)
        _change_in_domain(configuration, owner, lambda directory, sid: directory.remove_certificate(sid, wanted))
    elif not CertificatesFile(demand(configuration.data_dir)).remove(_owner(configuration, owner), _digest(digest)):
        raise click.ClickException(f"{owner} has no certificate {digest}; `openmsmq certificates list` lists all")


@click.group()
@_config
@_data_dir
@click.pass_context
def keys(context: click.Context, config: Path | None, data_dir: Path | None) -> None:
    """Manage the keys that encrypt message bodies.

    Other queue managers encrypt messages to this one with its public keys; it encrypts messages to them with theirs.
    QUEUE-MANAGER is a GUID, as `openmsmq machine` shows it. A running daemon notices changes.
    """
    context.obj = _configuration(config, data_dir)


@keys.command("list")
@json_option
@click.pass_obj
def keys_list(configuration: Configuration, as_json: bool) -> None:
    """List the keys of this queue manager and the known keys of others."""
    found = [("this queue manager", key) for key in KeyFiles(demand(configuration.data_dir)).public_keys()]
    for identifier, entries in sorted(PeerKeysFile(configuration.data_dir).all().items()):
        found += [(str(UUID(bytes_le=identifier)), key) for key in entries]
    rows = [_key_row(owner, key) for owner, key in found]
    if as_json:
        for owner, level, provider, bits in rows:
            print_json({"queue_manager": owner, "privacy_level": level, "provider": provider, "rsa_bits": bits})
    else:
        print_table(["queue manager", "level", "provider", "bits"], rows)


def _key_row(owner: str, key: DirectoryKey) -> list[str | int | None]:
    return [owner, algorithms.level_of(key.provider), key.provider, key.key.bits]


@keys.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def keys_export(configuration: Configuration, file: Path) -> None:
    """Write the public keys of this queue manager to FILE, for other queue managers; create missing keys.

    The format is MQDSPUBLICKEYS, as in directories. Private keys stay in the data directory.
    """
    file.write_bytes(pack_directory_keys(KeyFiles(configuration.data_dir).ensure(configuration.security)))


@keys.command("register")
@click.argument("queue_manager")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def keys_register(configuration: Configuration, queue_manager: str, file: Path) -> None:
    """Use the public keys in FILE to encrypt message bodies for QUEUE-MANAGER."""
    try:
        entries = unpack_directory_keys(file.read_bytes())
    except BadPacket as error:
        raise click.ClickException(f"{file}: {error}") from None
    PeerKeysFile(configuration.data_dir).register(_guid(queue_manager), entries)


@keys.command("remove")
@click.argument("queue_manager")
@click.pass_obj
def keys_remove(configuration: Configuration, queue_manager: str) -> None:
    """Delete the public keys of QUEUE-MANAGER."""
    if not PeerKeysFile(demand(configuration.data_dir)).remove(_guid(queue_manager)):
        raise click.ClickException(f"no key of {queue_manager} is known; `openmsmq keys list` has them all")


def _change_in_domain(
    configuration: Configuration, owner: str, change: Callable[[ActiveDirectory, str], Coroutine[None, None, None]]
) -> None:
    """Change certificates in the domain with the ticket of the caller: users may write their own certificates."""
    try:
        locate = located(configuration)
        if locate is None:
            raise click.UsageError("--domain requires the setting directory_controllers or directory_domain")
        libraries()
        asked, catalog = controllers(locate, LdapCredentials())
        sid = owner.upper()
        if not sid.startswith("S-1-"):
            sid = DomainAccounts(asked, time.monotonic, catalog).sid_of(owner)
        asyncio.run(change(ActiveDirectory(asked, "", certificates_in, certificates_to, catalog), sid))
    except (ConfigurationError, LdapUnavailable, DirectoryError) as error:
        raise click.ClickException(str(error)) from None


def _owner(configuration: Configuration, text: str) -> str:
    """Return the SID or GUID of an owner, as text."""
    if text.upper().startswith("S-1-"):
        return text.upper()
    try:
        return str(UUID(text))
    except ValueError:
        pass
    user = UsersFile(configuration.users_path).lookup("", text)
    if user is None:
        raise click.ClickException(f"{text!r} is not a user of {configuration.users_path}, a SID or a GUID")
    return user[1]


def _guid(text: str) -> bytes:
    try:
        return UUID(text).bytes_le
    except ValueError:
        raise click.UsageError(f"{text!r} is not a GUID; `openmsmq machine` shows that of a queue manager") from None


def _digest(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a digest; `openmsmq certificates list` shows them") from None
