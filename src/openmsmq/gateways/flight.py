"""Daemon side of the bulk plane: requests of the Flight process to the queue manager.

It runs on the event loop, so every operation is short or divided into steps.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msrpc.rpc.ntlm import nt_hash
from openmsmq.accounts.login_attempts import LoginAttempts
from openmsmq.accounts.users import UsersFile
from openmsmq.gateways.claiming import Claiming
from openmsmq.gateways.context import Context
from openmsmq.gateways.slicing import Slicing
from openmsmq.gateways.staging import Staging
from openmsmq.model.errors import AccessDenied, HResult, MsmqError
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.processes.answering import Answering
from openmsmq.processes.flight_requests import REQUESTS, check, invalid, shown
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.manager import QueueManager
from openmsmq.store import DamagedRecord, Store

logger = logging.getLogger(__name__)

_TIDY = 60  # seconds between two checks for stages whose writers are gone
_DOOR = "flight"
_BEFORE_LOGIN = ("authenticate", "describe")


class Control:
    """Answers the requests of the Flight process, one connection at a time."""

    def __init__(
        self,
        manager: QueueManager,
        store: Store,
        when_durable: Callable[[Callable[[], object]], None],
        users: UsersFile,
        *,
        accepts_anonymous: bool,
        is_administrator: Callable[[str | None], bool],
        stage_time_limit: int = 3600,
        logins: LoginAttempts,
    ) -> None:
        """`stage_time_limit`: seconds without a keep-alive from the writer after which a stage is dropped."""
        context = Context(manager, store, when_durable)
        self._store = store
        self._users = users
        self._accepts_anonymous = accepts_anonymous
        self._is_administrator = is_administrator
        self._manager = manager
        self._stage_time_limit = stage_time_limit
        self._logins = logins
        self._secret = secrets.token_bytes(32)
        self._staging = Staging(context)
        self._operations = {
            name.removeprefix("do_"): getattr(part, name)
            for part in (self, Slicing(context), Claiming(context), self._staging)
            for name in dir(part)
            if name.startswith("do_")
        }

    async def serve(self, connection: socket.socket) -> None:
        """Answer requests until the peer closes the connection or this is canceled."""
        try:
            await Answering("Arrow Flight", self._answer, _operation_of).serve(connection)
        finally:
            self._staging.drop_all()

    async def drop_abandoned(self) -> None:
        """Periodically drop stages whose writers are gone, until canceled."""
        while True:
            try:
                self._manager.staged_writes.drop_abandoned(self._stage_time_limit * 1000)
            except Exception as error:  # a full disk or any other error: retry later
                LEFT_OUT.note("sinks that are not being written", f"the rest, next attempt in {_TIDY} s,", error)
            await asyncio.sleep(_TIDY)

    async def _answer(self, values: Any, data: bytearray) -> Any:
        try:
            return await self._perform(values, data)
        except (DamagedRecord, OSError) as error:
            if isinstance(error, MsmqError):
                raise
            logger.error("bulk plane: %s: %s", _operation_of(values), error)
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, str(error)) from error

    async def _perform(self, values: Any, data: bytearray) -> Any:
        """Check and run a request of the Flight process. That process has already checked it by the same table, but may
        have been compromised by a malformed request."""
        if not isinstance(values, dict):
            raise invalid(f"{shown(values)}, allowed: a JSON object")
        name = values.get("op")
        if not isinstance(name, str) or (operation := self._operations.get(name)) is None:
            raise invalid(f"no operation {shown(name)}; allowed: {', '.join(sorted(self._operations))}")
        ticket = values.pop("caller", None)
        caller = Caller.anonymous() if name in _BEFORE_LOGIN else self._caller(ticket)
        arguments = check(name, {key: value for key, value in values.items() if key != "op"})
        if REQUESTS[name].has_bytes:
            arguments["data"] = data
        elif data:
            raise invalid(f"{name}: {len(data)} bytes of data attached, allowed: none")
        return await operation(caller, **arguments)

    # -- callers ---------------------------------------------------------------------------------------------------

    def _caller(self, ticket: Any) -> Caller:
        """Return the caller of a ticket that `do_authenticate` issued; anonymous without one. Raises AccessDenied."""
        if ticket is None:
            self._demand_anonymous()
            return self._as_known(Caller.anonymous(), None)
        try:
            sid, name, signature = ticket
            genuine = hmac.compare_digest(signature, self._signature(sid, name))
        except (TypeError, ValueError):
            genuine = False
        if not genuine:
            logger.warning("bulk plane: the Flight process named an unauthenticated caller: %s", shown(ticket))
            raise AccessDenied(detail="this caller is not authenticated")
        return self._as_known(Caller.user(sid, name, self._users.groups_of(sid)), sid)

    def _demand_anonymous(self) -> None:
        if not self._accepts_anonymous:
            raise AccessDenied(detail="anonymous callers are refused: log in as a user")

    def _as_known(self, caller: Caller, sid: str | None) -> Caller:
        caller = replace(caller, origin="flight")
        return caller.as_administrator() if self._is_administrator(sid) else caller

    def _signature(self, sid: str, name: str) -> str:
        return hmac.digest(self._secret, json.dumps([sid, name]).encode(), "sha256").hex()

    async def do_authenticate(
        self, _: Caller, user: str | None = None, password: str = "", peer: str = ""
    ) -> list[str] | None:
        """Authenticate a user and return the ticket for further requests: SID, name and a signature, so that the Flight
        process cannot claim to be another user. None for an anonymous caller. `peer` is the client host. Raises
        AccessDenied."""
        if user is None:
            self._demand_anonymous()
            return None
        seconds = self._logins.wait(_DOOR, user, peer)
        if seconds:
            raise AccessDenied(detail=f"too many failed logins: user {user} may try again in {seconds:.0f} s")
        known = self._users.lookup("", user)
        given = nt_hash(password)
        if known is None or not hmac.compare_digest(known[0], given):
            self._logins.failed(_DOOR, user, peer)
            raise AccessDenied(detail=f"user {user} is unknown, or the password is wrong")
        self._logins.succeeded(_DOOR, known[1], user, peer)
        return [known[1], user, self._signature(known[1], user)]

    async def do_describe(self, _: Caller) -> dict[str, Any]:
        """Return the parameters of the store that the Flight process needs."""
        return {"directory": self._store.directory, **self._store.layout}


def _operation_of(values: Any) -> str:
    """Return the name of the requested operation for the log, if it is readable."""
    name = values.get("op") if isinstance(values, dict) else None
    return name if isinstance(name, str) and name in REQUESTS else "a request"
