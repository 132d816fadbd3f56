"""The user account of the servers in these tests."""

from __future__ import annotations

from typing import Any

from msrpc.rpc import spnego
from msrpc.rpc.credentials import Credentials
from msrpc.rpc.ntlm import ServerNames, nt_hash

NOW = 0x01DC0731F1746000
SID = "S-1-5-21-1-2-3-1000"
TESTER = Credentials("tester", "Passw0rd!", "WORKGROUP")


def lookup(domain: str, user: str) -> tuple[bytes, str] | None:
    return (nt_hash("Passw0rd!"), SID) if user.lower() == "tester" else None


def acceptor(random: Any, now: Any = lambda: NOW, **arguments: Any) -> Any:
    return spnego.acceptor(spnego.ntlm_login(lookup, ServerNames("RIG"), random=random, now=now, **arguments))
