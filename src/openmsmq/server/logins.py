"""How callers log in: what the settings say, as an acceptor of security contexts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from openmsmq.rpc.credentials import filetime
from openmsmq.rpc.kerberos import KERBEROS_OIDS, KerberosKeys, KerberosUnavailable
from openmsmq.rpc.ntlm import ServerNames, UserLookup
from openmsmq.rpc.pdu import AuthType
from openmsmq.rpc.security import AcceptorFactory
from openmsmq.rpc.spnego import Login, acceptor, ntlm_login
from openmsmq.rpc.winbind import Winbind, WinbindUnavailable
from openmsmq.server.config import Configuration, ConfigurationError

_BY_NTLM: Final = ("ntlm", "winbind")  # one mechanism, with local users and those of the domain
REPLAY_CACHE = "kerberos.replay"  # in the data directory: no other process waits for its lock


def acceptor_of(configuration: Configuration, lookup: UserLookup, names: ServerNames) -> AcceptorFactory:
    """Each of `logins`, in this order. Raises ConfigurationError if one can't be served."""

    order = configuration.logins_in_order

    def ntlm() -> Login:
        by_ntlm = [name for name in order if name in _BY_NTLM]
        try:
            domain = Winbind(first=by_ntlm[0] == "winbind") if "winbind" in by_ntlm else None
        except WinbindUnavailable as error:
            raise ConfigurationError(f"logins: {error}") from None
        users = lookup if "ntlm" in by_ntlm else _nobody
        anonymous = configuration.accepts_anonymous
        return ntlm_login(users, names, random=os.urandom, now=filetime, allow_anonymous=anonymous, domain=domain)

    def kerberos() -> Login:
        keytab = configuration.kerberos_keytab
        assert keytab is not None
        try:
            keys = KerberosKeys(keytab, configuration.kerberos_principal, configuration.data_dir / REPLAY_CACHE)
        except KerberosUnavailable as error:
            raise ConfigurationError(f"logins: {error}") from None
        return Login("kerberos", KERBEROS_OIDS, AuthType.GSS_KERBEROS, keys.acceptor)

    made: dict[str, Callable[[], Login]] = {"ntlm": ntlm, "winbind": ntlm, "kerberos": kerberos}
    return acceptor(*(make() for make in dict.fromkeys(made[name] for name in order)))


def _nobody(domain: str, user: str) -> None:
    """There are no local users."""
