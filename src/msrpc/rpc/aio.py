"""Client for asyncio, with concurrent calls on one connection.

    connection = await connect("host", 2103)
    await connection.bind(interface_uuid, (1, 0))
    answer = await connection.call(31, stub)

A canceled call sends co_cancel; a late response to it is dropped, unless it was made with `patience`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Self, cast
from uuid import UUID

from msrpc.errors import AnswerTimeout, AuthenticationError, BindError, LocalProtocolError, RpcConnectionError
from msrpc.rpc.client_connection import (
    BindRefused,
    Bound,
    ClientConnection,
    ClientConnectionEnded,
    FaultReceived,
    ResponseReceived,
)
from msrpc.rpc.credentials import Credentials, Login, SecurityChoice, choose_security, login_of
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.kerberos import KerberosCredentials
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import NDR, AuthLevel, SyntaxId
from msrpc.rpc.sockets import DEAD_PEER, peer_has_closed, set_options, without_brackets
from msrpc.text import reason_of
from msrpc.waiting import answered_within, outcome_of


class AnsweredLate(asyncio.CancelledError):
    """The task was canceled, but the server had carried out its call; `response` is the answer."""

    def __init__(self, response: ResponseReceived) -> None:
        super().__init__()
        self.response = response


class AsyncConnection(asyncio.Protocol):
    """A connection to one endpoint; see `connect`."""

    def __init__(
        self, core: ClientConnection, security: SecurityChoice, login: Login, dead_peer_seconds: int = DEAD_PEER,
        patience: float | None = None,
    ) -> None:  # fmt: skip
        """`patience` is the number of seconds after which a bind fails."""
        self._core = core
        self._patience = patience
        self._heard = time.monotonic()  # when the server sent something
        self._dead_peer_seconds = dead_peer_seconds
        self._security: SecurityChoice | None = security
        self._login = login
        self._binds: SyntaxId | None = None
        self._interface: SyntaxId | None = None
        self._calls: dict[int, asyncio.Future[ResponseReceived]] = {}
        self._binding: asyncio.Future[None] | None = None
        self._bind_lock = asyncio.Lock()
        self._transport: asyncio.Transport | None = None
        self._lost: str | None = None
        self._untrusted = False
        self._flush_scheduled = False

    @property
    def core(self) -> ClientConnection:
        """The protocol state, for features that this class does not offer."""
        return self._core

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent: as far as is known, neither side has closed the connection."""
        if self._lost is not None or self._transport is None or self._transport.is_closing():
            return False
        sock = self._transport.get_extra_info("socket")
        return sock is None or not peer_has_closed(sock.fileno())

    @property
    def silence(self) -> float:
        """Seconds since the server sent something."""
        return time.monotonic() - self._heard

    @property
    def local_host(self) -> str:
        """The address of this end; empty once the connection is closed."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(name[0]) if name else ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; pending calls raise `RpcConnectionError`."""
        if self._transport is not None:
            self._transport.close()

    async def bind(
        self, uuid: UUID, version: tuple[int, int], transfer_syntaxes: Sequence[SyntaxId] = (NDR,)
    ) -> SyntaxId:
        """Bind the interface, and authenticate with the first bind; see `client.Connection.bind`."""
        interface = SyntaxId(uuid, version)
        async with self._bind_lock:
            if self._binding is not None and not self._binding.done():
                # started by a task that was canceled; only one can be in progress
                await self._in_time(asyncio.wait([self._binding]))
            if interface not in self._core.contexts:
                self._check_connected()
                choice = self._security or SecurityChoice(0, AuthLevel.NONE, None)
                self._security, self._binds = None, interface
                auth_type, level, context, _ = choice
                self._core.bind(
                    [interface],
                    auth_type=auth_type,
                    level=level,
                    security=context,
                    transfer_syntaxes=transfer_syntaxes,
                )
                binding = self._binding = asyncio.get_running_loop().create_future()
                self._flush()
                await self._in_time(outcome_of(binding))
                if interface not in self._core.contexts:
                    raise BindError(f"the server does not offer {interface}")
        self._interface = interface
        return interface

    async def _in_time(self, bound: Coroutine[Any, Any, Any]) -> None:
        """Wait for the end of a bind. Raises AnswerTimeout."""
        try:
            async with asyncio.timeout(self._patience):
                await bound
        except TimeoutError as error:
            self.close()
            raise AnswerTimeout("the server did not answer in time") from error

    async def call(
        self, opnum: int, stub: bytes, object_uuid: UUID | None = None, *, interface: SyntaxId | None = None
    ) -> bytes:
        """Call an operation of `interface` (default: the one bound last) and return the stub of its response.

        Raises `RpcFault` for a fault, `LoginRefused` at the first call if the login has failed, `RpcConnectionError`
        if the connection is lost.
        """
        return (await self.exchange(opnum, stub, object_uuid, interface=interface)).stub

    async def exchange(
        self, opnum: int, stub: bytes, object_uuid: UUID | None = None, *, interface: SyntaxId | None = None,
        patience: float = 0.0,
    ) -> ResponseReceived:  # fmt: skip
        """Make a call; return the response, which includes its byte order. If the task is canceled, wait up to
        `patience` seconds for the answer to the canceled call, and raise `AnsweredLate` if it is a response."""
        target = interface or self._interface
        if target is None:
            raise LocalProtocolError("no interface is bound")
        self._check_connected()
        call_id = self._core.request(target, opnum, stub, object_uuid)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResponseReceived] = loop.create_future()
        self._calls[call_id] = future
        if not self._flush_scheduled:
            # Calls made in the same event-loop iteration are sent in one write.
            self._flush_scheduled = True
            loop.call_soon(self._flush)
        try:
            return await (outcome_of(future) if patience else future)
        except asyncio.CancelledError:
            if call_id in self._calls:
                self._core.cancel(call_id)
                self._flush()
                if patience:
                    await asyncio.wait([future], timeout=patience)
            if patience and future.done() and future.exception() is None:
                raise AnsweredLate(future.result()) from None
            raise
        finally:
            self._calls.pop(call_id, None)

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_options(sock, self._dead_peer_seconds)

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        for event in self._core.receive_data(data):
            if isinstance(event, ResponseReceived):
                future = self._calls.pop(event.call_id, None)
                if future is not None and not future.done():
                    future.set_result(event)
            elif isinstance(event, FaultReceived):
                future = self._calls.pop(event.call_id, None)
                if future is not None and not future.done():
                    refused = self._login.is_refused(self._core, event.status)
                    future.set_exception(self._login.refused() if refused else RpcFault(event.status))
            elif isinstance(event, Bound | BindRefused):
                self._bound(event)
            elif isinstance(event, ClientConnectionEnded):
                self._lost, self._untrusted = event.reason, event.untrusted
                self.close()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._lost = self._lost or (str(exc) if exc else "the connection was closed")
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(self._failure(reason))
        if self._binding is not None and not self._binding.done():
            self._binding.set_exception(self._failure(reason))

    def _failure(self, reason: str) -> RpcConnectionError | AuthenticationError:
        return (AuthenticationError if self._untrusted else RpcConnectionError)(reason)

    def _bound(self, event: Bound | BindRefused) -> None:
        binding, self._binding = self._binding, None
        if binding is None or binding.done():
            return
        if isinstance(event, BindRefused):
            binding.set_exception(self._login.bind_refused(event.status, self._binds))
        else:
            binding.set_result(None)

    def _flush(self) -> None:
        self._flush_scheduled = False
        data = self._core.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _check_connected(self) -> None:
        if self._lost is not None or self._transport is None:
            raise self._failure(self._lost or "not connected")


async def connect(
    host: str,
    port: int,
    *,
    credentials: Credentials | KerberosCredentials | None = None,
    level: AuthLevel | None = None,
    spnego: bool = False,
    timeout: float | None = 10.0,
    max_fragment: int | None = None,
    limits: RpcLimits | None = None,
    assoc_group_id: int = 0,
    dead_peer_seconds: int = DEAD_PEER,
) -> AsyncConnection:
    """Do what `client.connect` does, for asyncio."""
    security = choose_security(credentials, level, spnego=spnego)
    login = login_of(f"{host}:{port}", credentials, security.level)
    loop = asyncio.get_running_loop()
    core = ClientConnection(max_fragment=max_fragment, limits=limits, assoc_group_id=assoc_group_id)
    try:
        async with answered_within(timeout):
            if isinstance(credentials, KerberosCredentials):
                await asyncio.to_thread(security.prepare)
            _, protocol = await loop.create_connection(
                lambda: AsyncConnection(core, security, login, dead_peer_seconds, timeout), without_brackets(host), port
            )
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError; the other one is of a name that can't be one
        raise RpcConnectionError(f"{host}:{port}: {reason_of(error)}") from error
    return protocol
