"""CPU time of the server's protocol core for a single-fragment call: request bytes in, response bytes out; no I/O.

python benchmarks/rpc_core.py
"""

from __future__ import annotations

import os
import statistics
import time
from uuid import UUID

from msrpc.rpc.association import AssociationTable
from msrpc.rpc.call import Call, InterfaceTable
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.credentials import Credentials, choose_security, filetime
from msrpc.rpc.ntlm import ServerNames, nt_hash
from msrpc.rpc.pdu import AuthLevel, SyntaxId
from msrpc.rpc.server_connection import ServerConnection
from msrpc.rpc.spnego import acceptor as acceptor_of
from msrpc.rpc.spnego import ntlm_login

ECHO = SyntaxId(UUID("0b5c9a52-6f0c-4c5e-9d7e-6c1d3b1f0a01"), (1, 0))
CALLS = 5000
ROUNDS = 7


class Null:
    """An interface that returns an empty response to every call."""

    name = "null"
    uuid, version = ECHO.uuid, ECHO.version
    minimum_level = AuthLevel.NONE
    open_opnums: frozenset[int] = frozenset()

    def accepts(self, opnum: int) -> bool:
        return opnum == 0

    def call(self, call: Call) -> None:
        call.reply(b"")


def acceptor() -> object:
    users = {"bench": (nt_hash("bench"), "S-1-5-21-1-2-3-1000")}
    names = ServerNames("BENCH")
    return acceptor_of(ntlm_login(lambda domain, user: users.get(user), names, random=os.urandom, now=filetime))


def bound(level: AuthLevel) -> tuple[ClientConnection, ServerConnection]:
    server = ServerConnection(InterfaceTable([Null()]), AssociationTable(os.urandom), acceptor=acceptor())
    client = ClientConnection()
    credentials = Credentials("bench", "bench") if level > AuthLevel.NONE else None
    auth_type, level, context, _ = choose_security(credentials, level)
    client.bind([ECHO], auth_type=auth_type, level=level, security=context)
    while data := client.data_to_send():
        server.receive_data(data)
        client.receive_data(server.data_to_send())
    return client, server


def measure(level: AuthLevel, request_size: int, reply: bytes) -> float:
    """Return the median of the rounds in microseconds per call."""
    client, server = bound(level)
    figures = []
    for _ in range(ROUNDS):
        requests = []
        for _ in range(CALLS):
            client.request(ECHO, 0, bytes(request_size))
            requests.append(client.data_to_send())
        begin = time.process_time()
        for request in requests:
            (call,) = server.receive_data(request)
            call.reply(reply)
            server.data_to_send()
        figures.append((time.process_time() - begin) / CALLS * 1e6)
    return statistics.median(figures)


def main() -> None:
    for level in (AuthLevel.NONE, AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY):
        small, large = measure(level, 64, bytes(32)), measure(level, 1400, bytes(32))
        print(f"{level.name:14} 64-byte request {small:6.2f} us, 1400-byte request {large:6.2f} us")


if __name__ == "__main__":
    main()
