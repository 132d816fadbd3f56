"""A queue manager with a directory that the test makes unavailable or slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.provider import DirectoryNotConnected, MachineRecord, QueueRecord
from openmsmq.model import names
from openmsmq.model.constants import Access
from openmsmq.model.default_descriptors import default_machine_security
from openmsmq.protocols.public_queues import PublicQueues
from protocols.clients import Client, Pending, Server, queue_format
from queueing.world import MACHINE, World

OWN = UUID(bytes_le=MACHINE.identifier)
ELSEWHERE = MachineRecord(
    UUID(int=99), "ELSEWHERE", ("elsewhere.example.com",), security=default_machine_security().pack()
)
RECEIVE, SEND = Access.RECEIVE, Access.SEND


class UnreliableDirectory:
    """A directory that the test makes unavailable or slow."""

    def __init__(self, path: Path) -> None:
        self._real = EmbeddedDirectory(path)
        self.away, self.seconds = False, 0.0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._real, name)

        async def call(*arguments: Any) -> Any:
            await asyncio.sleep(self.seconds)
            if self.away and name != "close":
                raise DirectoryNotConnected("pulled")
            return await operation(*arguments)

        return call


class ServerWithDirectory:
    """A queue manager with a directory, in which another machine is registered."""

    def __init__(self, path: Path) -> None:
        self.server = Server()
        self.world: World = self.server.world
        self.provider = UnreliableDirectory(path)
        self.connection = DirectoryConnection(self.provider, time_limit=5.0)  # type: ignore[arg-type]
        self.public = PublicQueues(self.world.manager, self.connection)
        self.server.environment.directory = self.connection
        self.server.environment.public_queues = self.public
        self.registry = self.world.registry

    async def ready(self) -> ServerWithDirectory:
        await self.public.synchronize()
        await self.provider.register_machine(ELSEWHERE)
        return self

    async def elsewhere(self, name: str = "far", **more: Any) -> QueueRecord:
        found: QueueRecord = await self.provider.create_queue(
            QueueRecord(uuid4(), ELSEWHERE.identifier, f"ELSEWHERE\\{name}", **more)
        )
        return found

    def start_open(self, client: Client, name: object, access: int = RECEIVE, **more: Any) -> Pending:
        given = {"hRemoteQueue": 0, "lplpRemoteQueueName": None, "dwpQueue": 0, "dwpRemoteContext": 0, **more}
        return client.start(
            "rpc_QMOpenQueueInternal", pQueueFormat=queue_format(str(name)), dwDesiredAccess=access, dwShareMode=0,
            lpClientName="", pLicGuid=bytes(16), dwRemoteProtocol=0, **given,
        )  # fmt: skip


async def answered(here: ServerWithDirectory, pending: Pending) -> Any:
    """Return the response once its change is durable."""
    for _ in range(2000):
        here.server.sync()
        if pending.over:
            return pending.response
        await asyncio.sleep(0.002)
    raise TimeoutError


Run = Callable[[Callable[[ServerWithDirectory], Coroutine[Any, Any, None]]], None]


def public(record: QueueRecord) -> names.PublicFormatName:
    return names.PublicFormatName(record.identifier)
