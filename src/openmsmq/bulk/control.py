"""The daemon's half of the bulk plane: what its Flight process asks of the queue manager.

Runs on the event loop, so every operation is small, or goes in steps.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable
from typing import Any

from openmsmq.bulk.channel import Channel
from openmsmq.bulk.claiming import Claiming
from openmsmq.bulk.framing import frame
from openmsmq.bulk.reading import Reading
from openmsmq.bulk.served import Served
from openmsmq.bulk.staging import Staging
from openmsmq.model.errors import AccessDenied, HResult, MsmqError
from openmsmq.queueing.access import Caller
from openmsmq.queueing.manager import QueueManager
from openmsmq.rpc.ntlm import nt_hash
from openmsmq.rpc.users import UsersFile
from openmsmq.store import DamagedRecord, Store

logger = logging.getLogger(__name__)


class Control:
    """Answers one Flight process at a time."""

    def __init__(
        self,
        manager: QueueManager,
        store: Store,
        when_durable: Callable[[Callable[[], object]], None],
        users: UsersFile,
        *,
        accepts_anonymous: bool,
        is_administrator: Callable[[str | None], bool],
    ) -> None:
        served = Served(manager, store, when_durable)
        self._store = store
        self._users = users
        self._accepts_anonymous = accepts_anonymous
        self._is_administrator = is_administrator
        self._staging = Staging(served)
        self._operations = {
            name.removeprefix("do_"): getattr(part, name)
            for part in (self, Reading(served), Claiming(served), self._staging)
            for name in dir(part)
            if name.startswith("do_")
        }

    async def serve(self, connection: socket.socket) -> None:
        """Answer requests until the other side has gone, or this is cancelled."""
        tasks: set[asyncio.Task[None]] = set()

        def receive(channel: Channel, number: int, values: dict[str, Any], data: bytearray) -> None:
            task = asyncio.create_task(self._answer(channel, number, values, data))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        channel = await Channel.open(connection, receive)
        try:
            await channel.closed.wait()
        finally:
            channel.close()
            for task in list(tasks):
                task.cancel()
            self._staging.drop_all()

    async def _answer(self, channel: Channel, number: int, values: dict[str, Any], data: bytearray) -> None:
        try:
            answer = await self._perform(values, data)
            reply = frame(number, *answer) if isinstance(answer, tuple) else frame(number, {"result": answer})
        except MsmqError as error:
            reply = frame(number, {"hresult": error.hresult, "detail": error.detail})
        except (DamagedRecord, OSError) as error:
            logger.error("bulk: %s", error)
            reply = frame(number, {"hresult": HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, "detail": str(error)})
        except (KeyError, TypeError, ValueError) as error:  # the client's JSON, or a mistake of ours
            logger.warning("bulk: %s: %r", values.get("op"), error)
            detail = f"{values.get('op')}: arguments are wrong: {error!r}"
            reply = frame(number, {"hresult": HResult.MQ_ERROR_INVALID_PARAMETER, "detail": detail})
        await channel.send(reply)

    async def _perform(self, values: dict[str, Any], data: bytearray) -> Any:
        operation = self._operations.get(values.pop("op"))
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"no such action; allowed: {allowed}")
        caller = self._caller(values.pop("caller", None))
        if data:
            values["data"] = data
        return await operation(caller, **values)

    def _caller(self, caller: list[str | None] | None) -> Caller:
        sid, name = caller or (None, None)
        found = Caller.anonymous() if sid is None else Caller.user(sid, name or "")
        return found.as_administrator() if self._is_administrator(sid) else found

    async def do_authenticate(self, _: Caller, user: str | None, password: str = "") -> list[str | None]:
        """SID and name of a user; None for an anonymous caller. Raises AccessDenied."""
        if user is None:
            if not self._accepts_anonymous:
                raise AccessDenied(detail="anonymous callers are refused: name a user")
            return [None, None]
        known = self._users.lookup("", user)
        given = nt_hash(password)
        if known is None or not hmac.compare_digest(known[0], given):
            raise AccessDenied(detail=f"user {user} is unknown, or the password is wrong")
        return [known[1], user]

    async def do_describe(self, _: Caller) -> dict[str, Any]:
        """What the Flight process has to know of the store."""
        return {"directory": self._store.directory, **self._store.layout}
