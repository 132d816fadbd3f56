"""Security level for partners in distributed transactions."""

from __future__ import annotations

from enum import Enum

from msrpc.rpc.call import Call
from msrpc.rpc.pdu import AuthLevel


class TransactionSecurity(Enum):
    """The security level of a transaction manager ([MS-CMPO] 2.1.3, 3.2.1.1; [MS-DTCO] 2.1.2.1)."""

    NONE = "none"
    INCOMING = "incoming"
    MUTUAL = "mutual"

    def admits(self, call: Call, host: str) -> bool:
        """Whether a caller is accepted as the transaction manager of a computer."""
        if self is TransactionSecurity.NONE:
            return True
        caller = call.caller
        if not caller.authenticated or caller.level < AuthLevel.PKT_PRIVACY:
            return False
        return self is TransactionSecurity.INCOMING or caller.user.upper() == f"{host.upper()}$"
