"""The automation objects in the daemon: their exporter, their endpoints, and the removal of objects whose clients have
disconnected."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable, Coroutine
from typing import Any

from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.exporter import Exporter
from msrpc.dcom.orpc import interfaces_of
from msrpc.dcom.remote import IDLE, MOST_EXPORTERS, MOST_EXPORTERS_OF_HOST, RemoteProcesses
from msrpc.dcom.resolver import resolver_services
from msrpc.dcom.server import ComServer
from msrpc.rpc.call import InterfaceTable
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.classes import com_server
from openmsmq.server.background import start_background_task
from openmsmq.server.config import Configuration


class _Host:
    """The interface of the daemon for objects; see `dcom.server.Host`."""

    def __init__(self, environment: Environment) -> None:
        self._store = environment.store
        self.when_durable: Callable[[Callable[[], object]], None] = environment.when_durable
        self.spawn: Callable[[Coroutine[Any, Any, Any]], Any] = environment.spawn

    @property
    def position(self) -> int:
        return self._store.end


class AutomationObjects:
    """The DCOM part of the daemon; see `DaemonPart`."""

    def __init__(self, environment: Environment, configuration: Configuration, security: dict[str, Any]) -> None:
        """`security` has the login for calls to event sinks."""
        self._period = configuration.com_ping_seconds
        exporter = Exporter(
            time.monotonic,
            os.urandom,
            self._period,
            configuration.max_com_objects,
            configuration.max_com_objects_per_peer,
        )
        name = environment.manager.machine.computer_name
        self.server: ComServer = com_server(
            environment, exporter, _Host(environment), configuration.minimum_com_level, name
        )
        self.server.budgets.message_bytes = ObjectBudget(
            "bytes of messages in automation objects",
            configuration.max_com_megabytes << 20,
            configuration.max_com_megabytes_per_peer << 20,
            ("max_com_megabytes", "max_com_megabytes_per_peer"),
        )
        self.server.remote = _processes(configuration, security)
        self._collecting: asyncio.Task[None] | None = None

    def offer(self, resolver: InterfaceTable, objects: InterfaceTable) -> None:
        """Add the interfaces: of the object resolver, and of the objects."""
        for service in resolver_services(self.server):
            resolver.add(service)
        for interface in interfaces_of(self.server):
            objects.add(interface)

    def start(self, port: int, resolver_port: int) -> None:
        """Start to serve calls to objects and to the object resolver at these ports."""
        self.server.port, self.server.resolver_port = port, resolver_port
        self._collecting = start_background_task("ending abandoned automation objects", self._collect())

    def stop(self) -> None:
        """End all objects."""
        if self._collecting is not None:
            self._collecting.cancel()
        self.server.exporter.end_all()
        self.server.remote.close()

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self._period / 4)
            self.server.exporter.collect()


def _processes(configuration: Configuration, security: dict[str, Any]) -> RemoteProcesses:
    """Return the client processes with event sinks. They get at most an eighth of the descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_EXPORTERS if descriptors == resource.RLIM_INFINITY else min(MOST_EXPORTERS, max(descriptors // 8, 1))
    budget = ObjectBudget("connections to processes of clients", most, min(most, MOST_EXPORTERS_OF_HOST))
    period = configuration.com_ping_seconds
    return RemoteProcesses(security, period, configuration.callback_hosts, budget, min(period, IDLE))
