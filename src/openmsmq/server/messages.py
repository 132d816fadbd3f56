"""Messages from and to other queue managers: the service, its answers to pings, and its spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from openmsmq.model.constants import Access
from openmsmq.model.message import Message
from openmsmq.peering.arrival import SenderTrustPolicy
from openmsmq.peering.options import TransferOptions
from openmsmq.peering.pinging import PingListener
from openmsmq.peering.routing_table import Routing
from openmsmq.peering.service import MessageService
from openmsmq.queueing.outgoing_queues import NoTransport, OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.server.calls import Calls
from openmsmq.server.context import DaemonContext
from openmsmq.server.tracing import Traces
from openmsmq.store import Operation


class PeerMessages:
    """Exchanges messages with other queue managers; see `DaemonPart`. While it is not running, outgoing queues keep
    their messages."""

    def __init__(self, context: DaemonContext, calls: Calls, routing: Routing, traces: Traces) -> None:
        self._context: Final = context
        self._calls: Final = calls
        self._routing: Final = routing
        self._traces: Final = traces
        self._service: MessageService | None = None
        self._pings: PingListener | None = None

    async def start(self) -> None:
        """Open the ports. Raises OSError."""
        configuration, ports, manager = self._context.configuration, self._context.ports, self._context.manager
        loop = asyncio.get_running_loop()
        options = self._options()
        service = MessageService(
            manager, self._calls.committer.when_durable, self._context.protections, options, loop,
            self._context.is_owner,
        )  # fmt: skip
        port = ports.number("message_port")
        with ports.naming(port, "message_port"):
            ports.endpoints["messages"] = await service.start(configuration.listen, port)
        self._service = service
        if configuration.ping:
            self._pings = PingListener(manager.machine.identifier, service.accepts, loop)
            with ports.naming(options.ping_port, "ping_port"):
                ports.endpoints["pings"] = self._pings.start(ports.endpoints["messages"][0], options.ping_port)

    def _options(self) -> TransferOptions:
        configuration, ports, directory = self._context.configuration, self._context.ports, self._context.directory
        public_queues = self._calls.environment.public_queues
        return TransferOptions(
            port=ports.number("peer_message_port"),
            source="" if configuration.listen in ("0.0.0.0", "::", "localhost") else configuration.listen,
            max_sessions=configuration.max_sessions,
            max_sessions_per_peer=configuration.max_sessions_per_peer,
            hosts=configuration.hosts_of_peers,
            routing=self._routing,
            directory=directory,
            policy=SenderTrustPolicy(
                configuration.trust_sender_identifiers,
                lambda sid: self._calls.users.groups_of(sid) | self._context.protections.groups_of(sid),
            ),
            ping=configuration.ping,
            ping_port=ports.number("ping_port"),
            report_messages=configuration.report_messages,
            report_queue=configuration.report_queue_identifier,
            transfers=(
                self._traces.start(configuration.trace_endpoint, configuration.machine_name)
                if configuration.trace_endpoint
                else None
            ),
            find=public_queues.find if directory.exists else None,
            knows_keys=self._context.protections.peer_keys.is_fresh,
            locate=(lambda name: public_queues.resolve(name, Access.SEND)) if directory.exists else None,
            trust_queue_manager_identifiers=configuration.trust_queue_manager_identifiers,
        )

    async def stop(self, grace: float) -> None:
        if self._pings is not None:
            self._pings.stop()
        if self._service is not None:
            self._service.stop()

    def fetched(self, messages: Iterable[Message]) -> tuple[list[Operation], Callable[[], None]]:
        """See `MessageService.fetched`."""
        return ([], lambda: None) if self._service is None else self._service.fetched(messages)

    def forget_sequence(self, queue: Queue, source: bytes) -> bool:
        """See `gateways.remedies.Forget`."""
        return self._service is not None and self._service.forget_sequence(queue, source)

    def open_sessions(self) -> list[tuple[str, str, float]]:
        """See `MessageService.open_sessions`."""
        return [] if self._service is None else self._service.open_sessions()

    def wake(self, queue: OutgoingQueue | None) -> None:
        """See `queueing.outgoing_queues.Transport`."""
        if self._service is not None:
            self._service.wake(queue)

    def resend(self, queue: OutgoingQueue) -> None:
        """See `queueing.outgoing_queues.Transport`."""
        (self._service or NoTransport()).resend(queue)
