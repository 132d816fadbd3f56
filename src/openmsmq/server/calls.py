"""The RPC endpoints of the daemon, and the parts between them and the queue manager."""

from __future__ import annotations

import asyncio
from typing import Final

from msrpc.rpc.call import InterfaceTable, transfer_syntaxes
from msrpc.rpc.dispatcher import SecurityPolicy
from msrpc.rpc.epm import Endpoint, EndpointMapper
from msrpc.rpc.mgmt import Management
from msrpc.rpc.ntlm import ServerNames
from msrpc.rpc.pdu import SyntaxId
from msrpc.rpc.server import RpcServer, ServerLimits
from openmsmq.accounts.login_attempts import LoginAttempts
from openmsmq.accounts.users import UsersFile
from openmsmq.model.exhaustion import shortage
from openmsmq.protocols.coordinator import Coordinator, OldTransactions
from openmsmq.protocols.environment import CallTasks, Environment
from openmsmq.protocols.fast_path import FastPath
from openmsmq.protocols.message_security import MessageSecurity
from openmsmq.protocols.public_queues import PublicQueues
from openmsmq.protocols.xnremote import XnRemote
from openmsmq.server.allowed_values import LEVELS, ConfigurationError
from openmsmq.server.auditing import Logins
from openmsmq.server.automation import AutomationObjects
from openmsmq.server.context import DaemonContext
from openmsmq.server.interfaces import served
from openmsmq.server.logins import acceptor_of, login_at_peers, service_name
from openmsmq.server.oletx_link import OleTxLink
from openmsmq.server.remote import Peers
from openmsmq.store.committer import Committer
from openmsmq.store.uring_sync import UringSync

IP_HANDSHAKE, IP_READ = 0, 1  # of R_QMGetRTQMServerPort: qmcomm and qmcomm2, and qm2qm


class Calls:
    """The RPC server with its interfaces; see `DaemonPart`.

    Attributes:
        users: local users and groups.
        rpc: the server.
        logins: failed and successful logins of all entry points.
        committer: syncs the store, then answers.
        environment: shared objects of the interfaces.
    """

    def __init__(self, context: DaemonContext, syncer: UringSync | None) -> None:
        """`syncer` syncs off the event loop, if there is one. Raises UsersFileError when users can't be read."""
        self._context: Final = context
        self.users: Final = UsersFile(context.configuration.users_path)
        self.users.check()
        self._policy: Final = SecurityPolicy(
            context.configuration.accepts_anonymous, LEVELS[context.configuration.minimum_level]
        )
        self.rpc: Final = self._server()
        reporter = None if context.audit is None else Logins(context.audit, self.users)
        self.rpc.logins = self.logins = LoginAttempts(self.rpc.failures, reporter)
        self.committer: Final = self._committer(syncer)
        self.rpc.calls.turn = self.committer
        tasks = CallTasks()
        self._peers: Final = Peers(
            context.manager.machine.identifier, context.configuration.hosts_of_peers,
            login_at_peers(context.configuration), tasks.spawn,
        )  # fmt: skip
        self._oletx: Final = OleTxLink(
            context.configuration.transaction_security, context.configuration.hosts_of_peers,
            login_at_peers(context.configuration),
        )  # fmt: skip
        try:
            self._coordinator: Final = Coordinator(
                context.manager, self._oletx, context.configuration.machine_name,
                context.configuration.transaction_security, self.committer.when_durable,
            )  # fmt: skip
        except OldTransactions as error:
            raise ConfigurationError(str(error)) from error
        self.environment: Final = self._environment(tasks)
        self._automation: AutomationObjects | None = None

    def _server(self) -> RpcServer:
        configuration = self._context.configuration
        names = ServerNames(configuration.machine_name.upper(), dns_computer=self._context.qualified_name)
        limits = ServerLimits(
            max_connections=configuration.max_connections,
            max_connections_per_peer=configuration.max_connections_per_peer,
        )
        rpc = RpcServer(
            policy=self._policy, acceptor=acceptor_of(configuration, self.users.lookup, names), server_limits=limits,
            dead_peer_seconds=configuration.dead_peer_seconds,
        )  # fmt: skip
        rpc.may_answer = self._context.is_owner
        rpc.calls.shortage = shortage
        return rpc

    def _committer(self, syncer: UringSync | None) -> Committer:
        """Return the committer. Calls share syncs as far as possible. Waiting clients get their replies before the
        event loop polls again."""
        rpc = self.rpc
        return Committer(
            self._context.store, asyncio.get_running_loop(), on_failure=self._context.store_failed, syncer=syncer,
            gather=rpc.read_sources, before=(rpc.calls.serve_gathered, self._context.manager.turn),
            answering=rpc.hold, answered=rpc.flush, calls=rpc.calls.calls_in, took=self._context.syncs.observe,
        )  # fmt: skip

    def _environment(self, tasks: CallTasks) -> Environment:
        context, configuration, users = self._context, self._context.configuration, self.users
        protections = context.protections
        return Environment(
            context.manager,
            context.store,
            self.committer.when_durable,
            later=asyncio.get_running_loop().call_later,
            may_hold_up=self.committer.may_hold_up,
            tidy=context.tidy.set,
            is_administrator=lambda sid: (
                configuration.anonymous_is_administrator if sid is None else users.is_administrator(sid)
            ),
            groups_of=users.groups_of,
            domain_administrators=configuration.domain_administrator_sids,
            policy=self._policy,
            remote_read_security=configuration.remote_read_security,
            directory=context.directory,
            message_security=MessageSecurity(
                context.manager.machine.identifier,
                protections.arrival,
                protections.internal,
                context.manager.machine.computer_name,
            ),
            public_queues=PublicQueues(
                context.manager, context.directory, protections.published_keys, protections.peer_keys.is_fresh
            ),
            coordinator=self._coordinator,
            tasks=tasks,
            remote=self._peers,
        )

    async def start(self) -> None:
        """Open the endpoints. Raises OSError when a port can't be opened."""
        configuration, ports, rpc = self._context.configuration, self._context.ports, self.rpc
        served_here = [
            interface(self.environment, configuration.minimum_level_of(interface.description.name))
            for interface in served(configuration)
        ]
        table = InterfaceTable(served_here)
        if FastPath.are_served():
            rpc.calls.together = FastPath(self.environment, served_here)
        principal = service_name(configuration, self._context.qualified_name)
        table.add(Management(table, rpc.statistics, principal))
        mapper = EndpointMapper()
        mapper_table = InterfaceTable([mapper])
        mapper_table.add(Management(mapper_table, rpc.statistics, principal))
        await ports.listen(rpc, mapper_table, table)
        address, port = ports.endpoints["qmcomm"]
        self.environment.ports |= {IP_HANDSHAKE: port, IP_READ: port}
        for interface in table:
            if interface.name != Management.name:
                host = "" if address == "0.0.0.0" or ":" in address else address  # towers have IPv4 only
                about = self._coordinator.partners.local.cid if interface.name == XnRemote.description.name else None
                syntax = SyntaxId(interface.uuid, interface.version)
                syntaxes = transfer_syntaxes(interface)
                mapper.register(Endpoint(syntax, port, "Message Queuing", host, about, transfer_syntaxes=syntaxes))
        self._offer_objects(mapper_table, table)
        self._coordinator.start()

    def _offer_objects(self, mapper_table: InterfaceTable, table: InterfaceTable) -> None:
        """Offer the objects. They are not in the endpoint map, because only the object resolver returns their ports."""
        configuration, endpoints = self._context.configuration, self._context.ports.endpoints
        # Event sinks are in processes of users, whose services are not known.
        at_sinks = {} if configuration.peer_login == "kerberos" else login_at_peers(configuration)("")
        self._automation = AutomationObjects(self.environment, configuration, at_sinks)
        self._automation.offer(mapper_table, table)
        self._automation.start(endpoints["qmcomm"][1], endpoints["ept"][1])

    async def stop(self, grace: float) -> None:
        self._coordinator.stop()
        self._oletx.close()
        self._peers.close()
        if self._automation is not None:
            self._automation.stop()
        await self.rpc.shut_down(grace)
