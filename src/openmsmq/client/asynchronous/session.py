"""The session of a client: connections and knowledge of the server that its queues and transactions share."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from functools import partial
from typing import Self

from openmsmq.client import operations as o
from openmsmq.client import qmcomm, remote_read, transaction_calls
from openmsmq.client.calls import CallerRefused, ProtocolUnavailable, ServerResource, answered, holding, opening
from openmsmq.client.reopening import ReopeningQueue, open_handle
from openmsmq.client.runner import Runner
from openmsmq.model.constants import Access
from openmsmq.model.errors import BindError, MsmqError, RpcConnectionError


class Closing(ABC):
    """A context manager that closes at the end of the block."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ServerSession:
    """The connections of one `connect`.

    Attributes:
        runner: the pool for most calls.
        private: the pool for calls that servers accept only at PKT_PRIVACY; it may be the same.
        license: LicenceGuid, [MS-MQMP] 3.2.1.1, 16 bytes.
        remote_read_refused: why the server refused reads through MS-MQRR; None if it did not, or was not asked yet.
    """

    def __init__(self, runner: Runner, private: Runner) -> None:
        self.runner, self.private = runner, private
        self.license = os.urandom(16)
        self.remote_read_refused: MsmqError | None = None
        self._remote_read_checked = False
        self._has_own_transactions: bool | None = None
        self._client = socket.gethostname()

    def close(self) -> None:
        self.runner.close()
        self.private.close()

    async def check_accepted(self) -> None:
        """Check that the server is reachable and that one of its interfaces accepts this caller: Windows may refuse all
        remote calls of MS-MQMP, but not those of MS-MQMR and MS-MQRR."""
        try:
            await self.runner.run(o.query(4))
        except (CallerRefused, ProtocolUnavailable, BindError) as refused:
            try:
                await self.runner.run(o.management(None, "type"))
            except (MsmqError, RpcConnectionError):
                raise refused from None

    async def check_remote_read(self) -> None:
        """Check once. Raises CallerRefused or ProtocolUnavailable, also if an earlier open was refused."""
        if self.remote_read_refused is not None:
            raise self.remote_read_refused
        if not self._remote_read_checked:
            try:
                await self.private.run(remote_read.check_offered())
            except BindError as error:
                if error.reason is not None:  # the server refused the connection, for example because it is busy
                    raise
                raise ProtocolUnavailable(detail=f"RemoteRead: {error}") from error
            self._remote_read_checked = True

    async def open_qmcomm(self, name: str, access: Access, exclusive: bool, reconnect: bool) -> ReopeningQueue:
        """Open a queue through MS-MQMP."""
        steps = partial(qmcomm.open_queue, name, access, exclusive, self._client, self.license)
        return await self.runner.open(open_handle(name, steps, reconnect))

    async def enlist(self, uow: bytes | None = None) -> tuple[o.Enlisted, ServerResource]:
        """Begin an internal transaction, with a unit of work of 16 bytes or a random one."""
        held = ServerResource("transaction", "")
        enlisted = await self.runner.run(opening(o.enlist(uow), held))
        held.name = enlisted.uow.hex()
        return enlisted, held

    async def keeps_order(self) -> bool:
        """Whether the server serves concurrent calls of one connection in order. openmsmq does; RPC does not require it
        ([MS-RPCE] 3.3.1.5.8)."""
        if self._has_own_transactions is None:
            probe, held = await self.enlist()
            try:
                return await self.serves_own_transactions(probe.uow, held)
            finally:
                await self.runner.run(holding(o.abort(probe), held))
        return self._has_own_transactions

    async def serves_own_transactions(self, uow: bytes, held: ServerResource) -> bool:
        """Whether MS-MQRR of this queue manager receives in its internal transactions, of which `uow` is one, as
        openmsmq does (D-70). Any other queue manager would receive in a transaction that nobody commits ([MS-MQRR]
        3.1.4.13)."""
        if self._has_own_transactions is None:
            try:
                await self.private.run(holding(transaction_calls.enlist_remote(uow, b""), held))
                self._has_own_transactions = True
            except MsmqError as error:
                if not answered(error):
                    raise
                self._has_own_transactions = False
        return self._has_own_transactions
