"""How callers log in: what the settings say, as an acceptor of security contexts."""

from __future__ import annotations

import os
from collections.abc import Callable

from openmsmq.rpc.credentials import filetime
from openmsmq.rpc.kerberos import KERBEROS_OIDS, KerberosKeys, KerberosUnavailable
from openmsmq.rpc.ntlm import ServerNames, UserLookup
from openmsmq.rpc.pdu import AuthType
from openmsmq.rpc.security import AcceptorFactory
from openmsmq.rpc.spnego import Login, acceptor, ntlm_login
from openmsmq.server.config import Configuration, ConfigurationError

REPLAY_CACHE = "kerberos.replay"  # in the data directory: no other process waits for its lock


def acceptor_of(configuration: Configuration, lookup: UserLookup, names: ServerNames) -> AcceptorFactory:
    """Each of `logins`, in this order. Raises ConfigurationError if one can't be served."""

    def ntlm() -> Login:
        anonymous = configuration.accepts_anonymous
        return ntlm_login(lookup, names, random=os.urandom, now=filetime, allow_anonymous=anonymous)

    def kerberos() -> Login:
        keytab = configuration.kerberos_keytab
        assert keytab is not None
        try:
            keys = KerberosKeys(keytab, configuration.kerberos_principal, configuration.data_dir / REPLAY_CACHE)
        except KerberosUnavailable as error:
            raise ConfigurationError(f"logins: {error}") from None
        return Login("kerberos", KERBEROS_OIDS, AuthType.GSS_KERBEROS, keys.acceptor)

    made: dict[str, Callable[[], Login]] = {"ntlm": ntlm, "kerberos": kerberos}
    return acceptor(*(made[name]() for name in configuration.logins_in_order))
