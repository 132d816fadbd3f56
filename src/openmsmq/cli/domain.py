"""`openmsmq domain …`: this machine in its domain."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from typing import Final

import click

from msrpc.rpc.kerberos import check_keytab
from msrpc.rpc.winbind import Winbind
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.membership import SYSTEM_KEYTAB, join, leave
from openmsmq.cli.output import json_option, print_json, print_table
from openmsmq.directory.active.examining import ExaminationFinding, examine
from openmsmq.directory.active.session import LdapCredentials, LdapSession, LdapUnavailable, libraries
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected
from openmsmq.model.errors import KerberosUnavailable, LogonUnavailable, WinbindUnavailable
from openmsmq.server.config import Configuration
from openmsmq.server.controllers import located

_SSSD: Final = "/var/lib/sss/pipes/nss"  # path of sssd's socket for user names


@click.group()
def domain() -> None:
    """Join or leave a domain, and check what is configured and what is missing."""


domain.add_command(join)
domain.add_command(leave)


@domain.command()
@json_option
@accounts_options
def status(accounts: Accounts, as_json: bool) -> None:
    """Check the requirements of the daemon for Kerberos and Active Directory. For each missing one, print what to do.
    Exit code 1 if one is missing.

    The command reads the settings and the keytab of the daemon, so run it as the daemon's user or root.
    """
    missing = False
    rows = []
    for finding in _findings(accounts.configuration):
        missing = missing or bool(finding.advice)
        rows.append([finding.thing, "missing" if finding.advice else "ok", finding.said, finding.advice])
    if as_json:
        for thing, _, said, advice in rows:
            print_json({"thing": thing, "ok": not advice, "said": said, "advice": advice})
    else:
        print_table(["", "", "", "what to do"], rows)
    if missing:
        sys.exit(1)


def _findings(configuration: Configuration) -> Iterator[ExaminationFinding]:
    """Yield the checks, each after those that it depends on. A check whose requirement is missing is skipped."""
    keytab, account = configuration.kerberos_keytab, configuration.account_name
    try:
        libraries()
        yield ExaminationFinding("libraries", "python-ldap and gssapi")
    except LdapUnavailable as error:
        yield ExaminationFinding("libraries", "not there", str(error))
        return
    by_sssd = _sssd_answers()
    if "winbind" in configuration.logins_in_order:
        yield _winbind(configuration, by_sssd=by_sssd)
    elif by_sssd:
        yield ExaminationFinding(
            "sssd", "is there; users of the domain log in with tickets, sssd has no NTLM for those without one"
        )
    locate = located(configuration)
    if keytab is None or locate is None:
        name = "kerberos_keytab" if keytab is None else "directory_controllers, or directory_domain"
        there = f" (this machine has {SYSTEM_KEYTAB})" if keytab is None and SYSTEM_KEYTAB.exists() else ""
        yield ExaminationFinding("settings", f"no {name}", f"set {name}{there}; docs/domain.md says how")
        return
    try:
        check_keytab(keytab)
        yield ExaminationFinding("keytab", str(keytab))
    except KerberosUnavailable as error:
        yield ExaminationFinding("keytab", str(keytab), str(error))
        return
    examined = False
    try:
        hosts = locate.hosts()
    except DirectoryNotConnected as error:
        yield ExaminationFinding("controllers", f"of {configuration.directory_domain}", str(error))
        return
    for host in hosts:
        try:
            session = LdapSession(host, LdapCredentials(account, keytab))
        except DirectoryNotConnected as error:
            yield ExaminationFinding("controller", host, str(error))
            continue
        yield ExaminationFinding("controller", f"{host} lets {account} log in")
        if not examined:
            examined = True
            try:
                yield from examine(session, account.partition("@")[0], configuration.machine_name, time.time())
            except DirectoryError as error:
                yield ExaminationFinding("directory", f"{host} does not say what it has", str(error))
        session.close()


def _winbind(configuration: Configuration, *, by_sssd: bool) -> ExaminationFinding:
    try:
        computer, domain_name = Winbind(first=False).membership()
    except (WinbindUnavailable, LogonUnavailable) as error:
        note = "; sssd has no NTLM of domain accounts: without winbind, take it out of logins" if by_sssd else ""
        advice = f"{error}{note}"
        return ExaminationFinding("winbind", "does not answer", advice)
    same = computer.casefold() == configuration.machine_name.casefold()
    advice = f"set computer_name to {computer}: controllers compare it with the name in logins"
    return ExaminationFinding("winbind", f"{computer} is a member of {domain_name}", "" if same else advice)


def _sssd_answers() -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(1)
        try:
            asked.connect(_SSSD)
        except OSError:
            return False
    return True
