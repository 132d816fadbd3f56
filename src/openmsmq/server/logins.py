"""Create login mechanisms from the settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from msrpc.rpc.credentials import Credentials, filetime
from msrpc.rpc.kerberos import KERBEROS_OIDS, KerberosCredentials, KerberosKeys
from msrpc.rpc.ntlm import ServerNames, UserLookup
from msrpc.rpc.pdu import AuthLevel, AuthType
from msrpc.rpc.security import AcceptorFactory
from msrpc.rpc.spnego import LoginMechanism, acceptor, ntlm_login
from msrpc.rpc.winbind import Winbind
from openmsmq.model.errors import KerberosUnavailable, WinbindUnavailable
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.remote import SecurityAt

_BY_NTLM: Final = ("ntlm", "winbind")  # one mechanism, for local users and domain users
REPLAY_CACHE = "kerberos.replay"  # in the data directory, so that no other process holds its lock


def acceptor_of(configuration: Configuration, lookup: UserLookup, names: ServerNames) -> AcceptorFactory:
    """Return an acceptor for the mechanisms of the setting `logins`, in order. Raises ConfigurationError if one is not
    available."""

    order = configuration.logins_in_order

    def ntlm() -> LoginMechanism:
        by_ntlm = [name for name in order if name in _BY_NTLM]
        try:
            domain = Winbind(first=by_ntlm[0] == "winbind") if "winbind" in by_ntlm else None
        except WinbindUnavailable as error:
            raise ConfigurationError(f"logins: {error}") from None
        users = lookup if "ntlm" in by_ntlm else _no_local_users
        anonymous = configuration.accepts_anonymous
        return ntlm_login(users, names, random=os.urandom, now=filetime, allow_anonymous=anonymous, domain=domain)

    def kerberos() -> LoginMechanism:
        keytab = configuration.kerberos_keytab
        assert keytab is not None
        try:
            keys = KerberosKeys(keytab, configuration.kerberos_principal, configuration.data_dir / REPLAY_CACHE)
        except KerberosUnavailable as error:
            raise ConfigurationError(f"logins: {error}") from None
        return LoginMechanism("kerberos", KERBEROS_OIDS, AuthType.GSS_KERBEROS, keys.acceptor)

    made: dict[str, Callable[[], LoginMechanism]] = {"ntlm": ntlm, "winbind": ntlm, "kerberos": kerberos}
    return acceptor(*(make() for make in dict.fromkeys(made[name] for name in order)))


def login_at_peers(configuration: Configuration) -> SecurityAt:
    """Return how this queue manager logs in at others: arguments of `rpc.aio.connect` for a machine. Raises OSError if
    the password can't be read."""
    if configuration.peer_login == "kerberos":
        keytab, account = str(configuration.kerberos_keytab), configuration.account_name

        def with_ticket(machine: str) -> dict[str, Any]:
            return _private(KerberosCredentials(f"host/{machine}", keytab=keytab, principal=account))

        return with_ticket
    if configuration.peer_password_file is None:
        return lambda machine: {}
    password = configuration.peer_password_file.read_text(encoding="utf-8").rstrip("\r\n")
    user = _private(Credentials(configuration.peer_user, password, configuration.peer_domain))
    return lambda machine: user


def _private(credentials: Credentials | KerberosCredentials) -> dict[str, Any]:
    return {"credentials": credentials, "level": AuthLevel.PKT_PRIVACY}


def service_name(configuration: Configuration, host_name: str) -> str:
    """Return the service principal for which clients request a ticket; empty if Kerberos is not enabled. `host_name` is
    the name that clients use for this machine."""
    if "kerberos" not in configuration.logins_in_order:
        return ""
    return configuration.kerberos_principal or f"host/{host_name}"


def _no_local_users(domain: str, user: str) -> None:
    """Lookup without any local user."""
