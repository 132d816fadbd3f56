"""Blocking client: a socket and a `ClientConnection`.

    with connect("host", 2103) as connection:
        connection.bind(interface_uuid, (1, 0))
        answer = connection.call(31, stub)

A connection belongs to one thread. For concurrent calls, use `aio`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self
from uuid import UUID

from msrpc.errors import (
    AnswerTimeout,
    AuthenticationError,
    BindError,
    LocalProtocolError,
    LoginRefused,
    RpcConnectionError,
)
from msrpc.rpc.client_connection import (
    BindRefused,
    Bound,
    ClientConnection,
    ClientConnectionEnded,
    Event,
    FaultReceived,
    ResponseReceived,
)
from msrpc.rpc.credentials import Credentials, Login, SecurityChoice, choose_security, login_of
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.kerberos import KerberosCredentials
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import NDR, AuthLevel, SyntaxId
from msrpc.rpc.sockets import DEAD_PEER, peer_has_closed, set_options, without_brackets
from msrpc.rpc.tickets import Ticket
from msrpc.rpc.unix_sockets import connect_unix
from msrpc.text import reason_of

RECEIVE_SIZE = 65536


class Connection:
    """A connection to one endpoint; see `connect`."""

    def __init__(
        self, sock: socket.socket, core: ClientConnection, security: SecurityChoice, login: Login,
        patience: float | None = None,
    ) -> None:  # fmt: skip
        """`patience` is the number of seconds after which a bind fails."""
        self._socket = sock
        self._patience = patience
        self._core = core
        self._security: SecurityChoice | None = security
        self._login = login
        self._interface: SyntaxId | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def core(self) -> ClientConnection:
        """The protocol state, for features that this class does not offer."""
        return self._core

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent: as far as is known, neither side has closed the connection."""
        return self._socket.fileno() >= 0 and not peer_has_closed(self._socket.fileno())

    @property
    def transfer_syntax(self) -> SyntaxId:
        """Transfer syntax of the interface bound last. Raises LocalProtocolError if none is."""
        if self._interface is None:
            raise LocalProtocolError("no interface is bound")
        return self._core.transfer_syntaxes[self._interface]

    def close(self) -> None:
        """Close the connection; the server runs context handles down with the last one of an association. A call that
        waits in another thread raises `RpcConnectionError`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # close() alone would not wake that thread
        self._socket.close()

    def release(self) -> None:
        """Close the connection in a forked child; it stays open in the parent."""
        self._socket.close()

    def abandon(self, patience: float) -> None:
        """Close the connection after an interrupted call, once the server has processed everything that was sent.

        Waits at most `patience` seconds for each part of the responses, which are dropped.
        """
        with suppress(OSError):
            self._socket.settimeout(patience)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(RECEIVE_SIZE):
                pass
        self.close()

    def bind(self, uuid: UUID, version: tuple[int, int], transfer_syntaxes: Sequence[SyntaxId] = (NDR,)) -> SyntaxId:
        """Bind the interface, and authenticate with the first bind. `call` uses the interface bound last. The server
        chooses one of the offered transfer syntaxes, `transfer_syntax`, in which stubs must be encoded.

        Raises `BindError` if the server does not offer it, `LoginRefused`, `AuthenticationError` if the server cannot
        be trusted, and `AnswerTimeout` after the time limit of `connect`.
        """
        interface = SyntaxId(uuid, version)
        if interface not in self._core.contexts:
            if self._security is not None:
                auth_type, level, context, _ = self._security
                self._core.bind(
                    [interface],
                    auth_type=auth_type,
                    level=level,
                    security=context,
                    transfer_syntaxes=transfer_syntaxes,
                )
                self._security = None
            else:
                self._core.bind([interface], transfer_syntaxes=transfer_syntaxes)
            event = self._exchange(lambda e: isinstance(e, Bound | BindRefused), self._patience)
            if isinstance(event, BindRefused):
                raise self._login.bind_refused(event.status, interface)
            if interface not in self._core.contexts:
                raise BindError(f"the server does not offer {interface}")
        self._interface = interface
        return interface

    def call(
        self,
        opnum: int,
        stub: bytes,
        object_uuid: UUID | None = None,
        *,
        interface: SyntaxId | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """Call an operation and return the stub of its response.

        After `timeout` seconds the connection is closed, because a late response may arrive. Raises `RpcFault` for a
        fault, `LoginRefused` at the first call if the login has failed, `RpcConnectionError` if the connection is lost,
        `AnswerTimeout` after `timeout`.
        """
        return self.exchange(opnum, stub, object_uuid, interface=interface, timeout=timeout).stub

    def exchange(
        self,
        opnum: int,
        stub: bytes,
        object_uuid: UUID | None = None,
        *,
        interface: SyntaxId | None = None,
        timeout: float | None = None,
    ) -> ResponseReceived:
        """Make a call; return the response, which includes its byte order."""
        target = interface or self._interface
        if target is None:
            raise LocalProtocolError("no interface is bound")
        call_id = self._core.request(target, opnum, stub, object_uuid)
        event = self._exchange(lambda e: getattr(e, "call_id", None) == call_id, timeout)
        if isinstance(event, FaultReceived):
            raise self.error_of(event)
        assert isinstance(event, ResponseReceived)
        return event

    def submit(self, opnum: int, stub: bytes, *, interface: SyntaxId | None = None) -> int:
        """Start a call without waiting; `answers` sends it. Returns its call id."""
        target = interface or self._interface
        if target is None:
            raise LocalProtocolError("no interface is bound")
        return self._core.request(target, opnum, stub)

    def answers(self, timeout: float | None = None) -> list[ResponseReceived | FaultReceived]:
        """Send submitted calls, and wait for responses to any calls. Raises the errors of `call`, except RpcFault."""
        found: list[ResponseReceived | FaultReceived] = []

        def is_answer(event: Event) -> bool:
            if isinstance(event, ResponseReceived | FaultReceived):
                found.append(event)
                return True
            return False

        self._exchange(is_answer, timeout)
        return found

    def error_of(self, fault: FaultReceived) -> RpcFault | LoginRefused:
        """Return the error that `call` raises for a fault."""
        if self._login.is_refused(self._core, fault.status):
            return self._login.refused()
        return RpcFault(fault.status)

    def _exchange(self, wanted: Callable[[Event], bool], timeout: float | None = None) -> Event:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                data = self._core.data_to_send()
                if data:
                    self._socket.sendall(data)
                if deadline is not None:
                    self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                received = self._socket.recv(RECEIVE_SIZE)
                if not received:
                    raise RpcConnectionError("the server closed the connection")
                found = None
                for event in self._core.receive_data(received):
                    if isinstance(event, ClientConnectionEnded):
                        raise (AuthenticationError if event.untrusted else RpcConnectionError)(event.reason)
                    if wanted(event):
                        found = event
                if found is not None:
                    data = self._core.data_to_send()
                    if data:
                        self._socket.sendall(data)
                    return found
        except TimeoutError as error:
            self.close()
            raise AnswerTimeout("the server did not answer in time") from error
        except (RpcConnectionError, AuthenticationError):
            self.close()
            raise
        except OSError as error:
            self.close()
            raise RpcConnectionError(str(error)) from error
        finally:
            if deadline is not None and self._socket.fileno() >= 0:
                self._socket.settimeout(None)


def connect(
    host: str,
    port: int,
    *,
    credentials: Credentials | KerberosCredentials | Ticket | None = None,
    level: AuthLevel | None = None,
    spnego: bool = False,
    timeout: float | None = 10.0,
    max_fragment: int | None = None,
    limits: RpcLimits | None = None,
    assoc_group_id: int = 0,
    dead_peer_seconds: int = DEAD_PEER,
) -> Connection:
    """Connect to an endpoint. Nothing is sent before the first `bind`. A `host` that begins with a slash is the path of
    a Unix socket, which has no port.

    `timeout` limits the connect, and each bind. `level` defaults to PKT_INTEGRITY with credentials and to NONE without.
    `spnego` negotiates the mechanism instead of using NTLM directly. `assoc_group_id` joins the association of another
    connection to the same server (its `core.assoc_group_id`), and so shares its context handles. The connection is
    closed if the server acknowledges no TCP data for `dead_peer_seconds`. Raises `RpcConnectionError`, with Kerberos
    also AuthenticationError and KerberosUnavailable, because it contacts a domain controller first.
    """
    security = choose_security(credentials, level, spnego=spnego)
    security.prepare()
    try:
        sock = connect_unix(host, timeout) if host.startswith("/") else _connect_tcp(host, port, timeout)
        sock.settimeout(None)
        set_options(sock, dead_peer_seconds)
    except (OSError, UnicodeError) as error:  # the second for a name that can't be one
        raise RpcConnectionError(f"{host}:{port}: {reason_of(error)}") from error
    core = ClientConnection(max_fragment=max_fragment, limits=limits, assoc_group_id=assoc_group_id)
    return Connection(sock, core, security, login_of(f"{host}:{port}", credentials, security.level), timeout)


def _connect_tcp(host: str, port: int, timeout: float | None) -> socket.socket:
    return socket.create_connection((without_brackets(host), port), timeout)
