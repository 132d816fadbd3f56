"""The daemon: store, queue manager, RPC endpoints, timers, checkpoints, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

from openmsmq import __version__
from openmsmq.admin.audit import AuditEntry, AuditLog
from openmsmq.admin.settings import write_settings
from openmsmq.admin.web_address import forget_address
from openmsmq.compiled import how_it_runs
from openmsmq.doors.flight import Control
from openmsmq.model.constants import Access
from openmsmq.model.histogram import Histogram
from openmsmq.peering.arrival import SenderTrustPolicy
from openmsmq.peering.options import TransferOptions
from openmsmq.peering.pinging import PingListener
from openmsmq.peering.routing_table import RoutingTableError
from openmsmq.peering.routing_table import load as load_routing
from openmsmq.peering.service import MessageService
from openmsmq.processes import logs
from openmsmq.processes.child import ChildProcess, Program
from openmsmq.protection.keyring import KeyringError
from openmsmq.protocols.coordinator import Coordinator, Whereabouts
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.fast_path import FastPath
from openmsmq.protocols.message_security import MessageSecurity
from openmsmq.protocols.public_queues import PublicQueues
from openmsmq.queueing.auditing import NoAudit
from openmsmq.queueing.machine import Machine, MachineLimits
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import NoTransport, OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.rpc.call import InterfaceTable
from openmsmq.rpc.dispatcher import SecurityPolicy
from openmsmq.rpc.epm import Endpoint, EndpointMapper
from openmsmq.rpc.login_attempts import LoginAttempts
from openmsmq.rpc.mgmt import Management
from openmsmq.rpc.ntlm import ServerNames
from openmsmq.rpc.pdu import SyntaxId
from openmsmq.rpc.server import RpcServer, ServerLimits
from openmsmq.rpc.users import UsersFile
from openmsmq.server.addresses import local_addresses
from openmsmq.server.alarms import AlarmWatch
from openmsmq.server.auditing import Audit, Logins
from openmsmq.server.automation import AutomationObjects
from openmsmq.server.background import in_background
from openmsmq.server.config import LEVELS, Configuration, ConfigurationError
from openmsmq.server.directory import connect_to_directory, identifier_drawing, keep_in_step
from openmsmq.server.domain_names import domain_names, names_of_domain, resolve
from openmsmq.server.identity import (
    fully_qualified_name,
    identity_of,
    warn_of_own_outgoing_queues,
)
from openmsmq.server.interfaces import served
from openmsmq.server.listening import Ports
from openmsmq.server.logins import acceptor_of, login_at_peers, service_name
from openmsmq.server.machine_security import MachineSecurity, everyones_access, reader_names, readers_of
from openmsmq.server.maintenance import Maintenance, Thresholds
from openmsmq.server.memory import give_back_memory, no_collector, return_large_blocks
from openmsmq.server.protections import Protections
from openmsmq.server.remote import Peers
from openmsmq.server.supervision import FENCED, Supervision
from openmsmq.server.tracing import Traces
from openmsmq.server.web import WebServer
from openmsmq.store import Store, StoreError, StoreFailed, StoreFenced, StoreFull
from openmsmq.store.committer import Committer
from openmsmq.store.uring_sync import UringSync

logger = logging.getLogger(__name__)

IP_HANDSHAKE, IP_READ = 0, 1  # of R_QMGetRTQMServerPort: qmcomm and qmcomm2, and qm2qm
_FLIGHT = Program(
    "Arrow Flight", "openmsmq.flight.server", ("pyarrow", "numpy"), "flight",
    "its streams and uploads were cut off and can be repeated",
)  # fmt: skip


class Daemon:
    """One queue manager and its listeners; see `serve`."""

    def __init__(self, configuration: Configuration) -> None:
        """Open the store and recover. Raises what `Store.open` raises, KeyringError when keys can't be read."""
        self.configuration = configuration
        self.failure: BaseException | None = None
        started = time.monotonic()
        return_large_blocks()
        configuration.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._background = ThreadPoolExecutor(1, "segments")
        self.store = Store.open(
            configuration.data_dir / "store", background=self._background.submit, take_over=configuration.take_over
        )
        logger.info("%s: epoch %d", self.store.directory, self.store.epoch)
        self._serving = False
        self._qualified_name = fully_qualified_name()
        self._directory = connect_to_directory(configuration)
        self.protections = Protections(configuration.data_dir, configuration.security, self._directory)
        self._audit = _audit(configuration)
        self._machine_security = MachineSecurity(configuration.data_dir, readers_of(configuration))
        with no_collector():
            self.manager = self._recover()
        try:
            self._routing = load_routing(configuration.routing_file, self.manager.machine.identifier)
        except RoutingTableError as error:
            raise ConfigurationError(f"routing_file: {error}") from error
        self.restart_seconds = time.monotonic() - started
        self.stopping = asyncio.Event()
        self._tidy = asyncio.Event()  # an administrator wants the room that garbage takes
        self._ports = Ports(configuration)
        self.endpoints = self._ports.endpoints
        self._rpc: RpcServer | None = None
        self._flight: ChildProcess | None = None
        self._web: WebServer | None = None
        self._dropping: asyncio.Task[None] | None = None  # stages whose writers are gone
        self._automation: AutomationObjects | None = None
        self._messages: MessageService | None = None
        self._pings: PingListener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._syncer: UringSync | None = None
        self._syncs = Histogram()
        self._traces = Traces()
        self._resolving: asyncio.Task[None] | None = None  # of transactions in doubt
        self._watching: asyncio.Task[None] | None = None  # for alarms
        self._following: asyncio.Task[None] | None = None  # the directory
        self._naming: asyncio.Task[None] | None = None  # of accounts that settings name

    def _recover(self) -> QueueManager:
        configuration, store = self.configuration, self.store
        name = configuration.machine_name
        draw = identifier_drawing(configuration, self._directory)
        identity = identity_of(store, name, configuration.alias_names, configuration.name_change, draw)
        machine = Machine(
            name,
            identity.identifier,
            qualified_name=self._qualified_name,
            addresses=local_addresses(configuration.listen),
            own_loopback=configuration.on_loopback and configuration.listen != "localhost",
            aliases=identity.aliases,
            former=identity.former,
            quota=configuration.machine_quota,
            journal_quota=configuration.journal_quota,
            default_time_to_reach_queue=configuration.time_to_reach_queue,
            foreign_sites=configuration.foreign_site,
            security=self._machine_security.current(),
            everyones_access=everyones_access(configuration, UsersFile(configuration.users_path)),
            limits=MachineLimits(
                configuration.max_queues, configuration.max_queues_per_owner, configuration.max_outgoing_queues
            ),
        )
        recovered = store.recovered
        manager = QueueManager(
            machine, store, _milliseconds, os.urandom, recovered.queues, recovered.prepared, self, self,
            can_seal=self.protections.departure.can_seal, auditor=self._audit, monotonic=_monotonic_milliseconds,
        )  # fmt: skip
        recovered.queues.clear()  # the manager has its own index
        give_back_memory()
        logger.info(
            "%d queues with %d messages recovered%s",
            len(manager.registry.by_name),
            sum(len(queue) for queue in manager.registry.queues.values()),
            " from a checkpoint" if recovered.report.from_checkpoint else "",
        )
        if identity.is_copy:
            manager.outgoing.set_online(False)
        warn_of_own_outgoing_queues(manager)
        return manager

    # -- start and stop --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the endpoints. Raises OSError when a port can't be had, UsersFileError when users can't be read."""
        loop = asyncio.get_running_loop()
        self._syncer = _syncer(loop)
        configuration = self.configuration
        domain = domain_names(configuration)
        policy = SecurityPolicy(configuration.accepts_anonymous, LEVELS[configuration.minimum_level])
        users = UsersFile(configuration.users_path)
        users.check()
        names = ServerNames(configuration.machine_name.upper(), dns_computer=self._qualified_name)
        server_limits = ServerLimits(
            max_connections=configuration.max_connections,
            max_connections_per_peer=configuration.max_connections_per_peer,
        )
        self._rpc = rpc = RpcServer(
            policy=policy, acceptor=acceptor_of(configuration, users.lookup, names), server_limits=server_limits,
            dead_peer_seconds=configuration.dead_peer_seconds,
        )  # fmt: skip
        rpc.may_answer = self._is_owner
        reporter = None if self._audit is None else Logins(self._audit, users)
        rpc.logins = self._logins = LoginAttempts(rpc.failures, reporter)
        # What can share a sync does, and who has waited gets the answer before the loop looks for more to do.
        committer = Committer(
            self.store, loop, on_failure=self._store_failed, syncer=self._syncer,
            gather=rpc.read_sources, before=(rpc.calls.serve_gathered, self.manager.turn),
            answering=rpc.hold, answered=rpc.flush, calls=rpc.calls.calls_in, took=self._syncs.observe,
        )  # fmt: skip
        rpc.calls.turn = committer
        environment = Environment(
            self.manager,
            self.store,
            committer.when_durable,
            later=loop.call_later,
            may_hold_up=committer.may_hold_up,
            tidy=self._tidy.set,
            is_administrator=lambda sid: (
                configuration.anonymous_is_administrator if sid is None else users.is_administrator(sid)
            ),
            groups_of=users.groups_of,
            domain_administrators=configuration.domain_administrator_sids,
            policy=policy,
            remote_read_security=configuration.remote_read_security,
            directory=self._directory,
        )
        environment.message_security = MessageSecurity(
            self.manager.machine.identifier, self.protections.arrival, self.protections.internal
        )
        environment.public_queues.published_keys = self.protections.published_keys
        environment.public_queues.knows_keys = self.protections.peer_keys.is_fresh
        environment.remote = self._peers = Peers(
            self.manager.machine.identifier,
            configuration.hosts_of_peers,
            login_at_peers(configuration),
            environment.spawn,
        )
        served_here = [
            interface(environment, configuration.minimum_level_of(interface.description.name))
            for interface in served(configuration)
        ]
        table = InterfaceTable(served_here)
        if FastPath.are_served():
            rpc.calls.together = FastPath(environment, served_here)
        principal = service_name(configuration, self._qualified_name)
        table.add(Management(table, rpc.statistics, principal))
        mapper = EndpointMapper()
        mapper_table = InterfaceTable([mapper])
        mapper_table.add(Management(mapper_table, rpc.statistics, principal))
        await self._ports.listen(rpc, mapper_table, table)
        address, port = self.endpoints["qmcomm"]
        environment.ports |= {IP_HANDSHAKE: port, IP_READ: port}
        for interface in table:
            if interface.name != Management.name:
                host = "" if address == "0.0.0.0" or ":" in address else address  # towers have IPv4 only
                mapper.register(Endpoint(SyntaxId(interface.uuid, interface.version), port, "Message Queuing", host))
        # Only the object resolver says where objects are, so they are not in the endpoint map.
        # Event sinks are in processes of users, of whose services nothing is known.
        at_sinks = {} if configuration.peer_login == "kerberos" else login_at_peers(configuration)("")
        self._automation = AutomationObjects(environment, configuration, at_sinks)
        self._automation.offer(mapper_table, table)
        self._automation.start(port, self.endpoints["ept"][1])
        environment.coordinator = Coordinator(
            self.manager, self._peers, self._whereabouts(address, port), committer.when_durable
        )
        self._resolving = in_background("resolving transactions in doubt", environment.coordinator.run(loop.time))
        if configuration.flight:
            await self._start_flight(committer, users, environment)
        self._alarms = AlarmWatch(
            self.manager, configuration.data_dir, configuration.alarm_thresholds, self._syncs,
            configuration.alarm_queue_name, is_owner=self._is_owner,
        )  # fmt: skip
        if configuration.web:
            self._web = WebServer(configuration, environment, users, rpc, self._syncs, [
                configuration.machine_name, self._qualified_name, *configuration.alias_names
            ], self.store, self._audit or NoAudit(), self._alarms.alarms, self._logins, self._forget_sequence,
                domain)  # fmt: skip
            self.endpoints["web"] = await self._web.start(self._ports.number("web_port"))
        else:
            forget_address(configuration.data_dir)  # of a daemon that was killed
        await self._start_messages(committer, environment.public_queues, users)
        self._announce_security()
        try:
            write_settings(configuration.data_dir, configuration.described())
        except KeyringError as error:  # a full disk, which is to be emptied by receiving
            logger.warning("the settings in force could not be written down: %s", error)
        if self._audit is not None:
            self._audit.started(AuditEntry("daemon.start", "machine", configuration.machine_name, "system",
                                      after=configuration.changed()))  # fmt: skip
        self._committer = committer
        self._serving = True
        self.manager.turn()
        self._arm_timer()
        maintenance = Maintenance(
            self.store, self.manager, committer, self._machine_security.current, rpc.budget, self._tidy,
            Thresholds(configuration.checkpoint_megabytes << 20, configuration.minimum_free_megabytes << 20),
            configuration.data_dir, self._is_owner,
        )  # fmt: skip
        self._maintenance = in_background("maintenance of the store", maintenance.run())
        self._watching = in_background("watching for alarms", self._alarms.run())
        self._following = in_background("keeping public queues in step", keep_in_step(environment.public_queues))
        waiting = names_of_domain(configuration, reader_names(configuration))
        if domain is not None and waiting:
            add = self._machine_security.add_reader
            self._naming = in_background(
                "finding system_queue_readers", resolve("system_queue_readers", waiting, domain, add)
            )

    async def _start_messages(self, committer: Committer, public_queues: PublicQueues, users: UsersFile) -> None:
        """Take messages of other queue managers, and send those for them. Raises OSError when the port can't be had."""
        configuration = self.configuration
        options = TransferOptions(
            port=self._ports.number("peer_message_port"),
            source="" if configuration.listen in ("0.0.0.0", "::", "localhost") else configuration.listen,
            max_sessions=configuration.max_sessions,
            max_sessions_per_peer=configuration.max_sessions_per_peer,
            hosts=configuration.hosts_of_peers,
            routing=self._routing,
            directory=self._directory,
            policy=SenderTrustPolicy(
                configuration.trust_sender_identifiers,
                lambda sid: users.groups_of(sid) | self.protections.groups_of(sid),
            ),
            ping=configuration.ping,
            ping_port=self._ports.number("ping_port"),
            report_messages=configuration.report_messages,
            report_queue=configuration.report_queue_identifier,
            transfers=(
                self._traces.start(configuration.trace_endpoint, configuration.machine_name)
                if configuration.trace_endpoint
                else None
            ),
            locate=(lambda name: public_queues.resolve(name, Access.SEND)) if self._directory.exists else None,
            trust_queue_manager_identifiers=configuration.trust_queue_manager_identifiers,
        )
        service = MessageService(
            self.manager, committer.when_durable, self.protections, options, asyncio.get_running_loop(),
            self._is_owner,
        )  # fmt: skip
        port = self._ports.number("message_port")
        with self._ports.naming(port, "message_port"):
            self.endpoints["messages"] = await service.start(configuration.listen, port)
        self._messages = service
        if configuration.ping:
            self._pings = PingListener(self.manager.machine.identifier, service.accepts, asyncio.get_running_loop())
            with self._ports.naming(options.ping_port, "ping_port"):
                self.endpoints["pings"] = self._pings.start(self.endpoints["messages"][0], options.ping_port)

    def _forget_sequence(self, queue: Queue, source: bytes) -> bool:
        return self._messages is not None and self._messages.forget_sequence(queue, source)

    async def _start_flight(self, committer: Committer, users: UsersFile, environment: Environment) -> None:
        """Arrow Flight in a process of its own. Raises OSError when it does not come up."""
        configuration = self.configuration
        control = Control(
            self.manager, self.store, committer.when_durable, users,
            accepts_anonymous=configuration.accepts_anonymous, is_administrator=environment.is_administrator,
            stage_time_limit=configuration.stage_time_limit, logins=self._logins,
        )  # fmt: skip
        certificate, key = (str(path or "") for path in (configuration.flight_certificate, configuration.flight_key))
        port = self._ports.number("flight_port")
        host = f"[{configuration.listen}]" if ":" in configuration.listen else configuration.listen
        self._flight = ChildProcess(
            _FLIGHT, control.serve, host, port, certificate=certificate, key=key,
            log_level=configuration.log_level, log_format=configuration.log_format,
        )  # fmt: skip
        await self._flight.start()
        self._dropping = in_background("dropping abandoned stages", control.drop_abandoned())
        self.endpoints["flight"] = configuration.listen, self._flight.port

    def _whereabouts(self, address: str, port: int) -> Whereabouts:
        """How other queue managers reach this one, for transactions."""
        everywhere = address in ("0.0.0.0", "::")
        own = [a for a in self.manager.machine.addresses if ":" not in a] if everywhere else [address]
        return Whereabouts(self.configuration.machine_name, tuple(own), port)

    def _announce_security(self) -> None:
        configuration = self.configuration
        if configuration.accepts_anonymous:
            where = "loopback only" if configuration.on_loopback else "EVERYWHERE"
            logger.warning("anonymous callers are accepted from %s (listening on %s)", where, configuration.listen)
        else:
            logger.info("anonymous callers are refused; users come from %s", configuration.users_path)
        security = configuration.remote_read_security
        if security.serves_workgroups:
            logger.warning("clients in workgroups read by RemoteRead without authentication")
        if security.allow_none_security_client:
            logger.warning("RemoteRead needs no authentication for queues that Anonymous Logon may read")

    async def stop(self) -> None:
        """Stop taking calls, finish what is written, and leave a checkpoint."""
        # After a failed store no answer comes any more.
        grace = self.configuration.shutdown_grace_seconds if self.failure is None else 0
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._following is not None:
            self._following.cancel()
        if self._naming is not None:
            self._naming.cancel()
        if self._resolving is not None:
            self._resolving.cancel()
            self._peers.close()
        if self._web is not None:
            await self._web.stop(grace)
        if self._dropping is not None:
            self._dropping.cancel()
        if self._flight is not None:
            await self._flight.stop()
        if self._automation is not None:
            self._automation.stop()
        if self._pings is not None:
            self._pings.stop()
        if self._messages is not None:
            self._messages.stop()
        if self._rpc is not None:
            await self._rpc.shut_down(grace)
        if self._timer is not None:  # up to here, reads that wait may still end
            self._timer.cancel()
        await self._traces.stop()
        await asyncio.sleep(0)  # lets connections run their context handles down
        await self._directory.close()
        if self._maintenance is not None:
            with suppress(StoreFailed):
                await self._committer.drain()  # the store must not have a batch under way
        if self._syncer is not None:
            self._syncer.close()
        if self.failure is None:
            try:
                self.store.checkpoint(self.manager.capture())
            except (OSError, StoreFull) as error:  # nothing is lost by that
                logger.warning(
                    "no checkpoint was written at shutdown, so the next start reads the log from the last one: %s",
                    error,
                )
            except StoreFailed as error:
                self._store_failed(error)
            with suppress(StoreError, OSError) if self.failure is not None else nullcontext():
                self.store.close()
        self._background.shutdown()

    def _is_owner(self) -> bool:
        """Whether the store is still this daemon's. If another one has taken it over, this one ends."""
        try:
            self.store.check_owner()
        except (StoreFenced, OSError) as error:
            self._store_failed(error)
            return False
        return True

    def _store_failed(self, error: BaseException) -> None:
        if self.failure is not None:
            return
        if isinstance(error, StoreFenced):
            logger.critical("fenced: %s", error)
            logging.shutdown()
            # At once: an orderly end writes to the data directory, as SQLite does when it closes, and removes files.
            os._exit(FENCED)
        logger.critical(
            "the store has failed, nothing more is acknowledged and the daemon ends: %s. Start it again: all that was "
            "acknowledged is on the disk. If the disk is to blame, dmesg says more",
            error,
        )
        self.failure = error
        self.stopping.set()

    # -- time ------------------------------------------------------------------------------------------------

    def turn_wanted(self) -> None:
        """See `queueing.outbox.Outside`."""
        if self._serving:
            asyncio.get_running_loop().call_soon(self.manager.turn)

    def deadline_changed(self) -> None:
        """See `queueing.outbox.Outside`."""
        if self._serving:
            self._arm_timer()

    def failed(self, error: BaseException) -> None:
        """See `queueing.outbox.Outside`."""
        self._store_failed(error)

    def wake(self, queue: OutgoingQueue | None) -> None:
        """See `queueing.outgoing_queues.Transport`."""
        if self._messages is not None:
            self._messages.wake(queue)

    def resend(self, queue: OutgoingQueue) -> None:
        """See `queueing.outgoing_queues.Transport`."""
        (self._messages or NoTransport()).resend(queue)

    def _arm_timer(self) -> None:
        """Wake when the next read or message expires."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        milliseconds = self.manager.next_expiry()
        if milliseconds is not None:
            self._timer = asyncio.get_running_loop().call_later(milliseconds / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        before = self.store.end
        try:
            self.manager.expire()
        except StoreFailed as error:
            logger.error("message expiry has stopped: %s", error)  # the committer ends the daemon
        finally:
            if self.store.end != before:
                self._committer.request()
            self._arm_timer()


def _syncer(loop: asyncio.AbstractEventLoop) -> UringSync | None:
    """None where the kernel does not sync beside the loop, or `ring.c` is not compiled; the loop syncs then."""
    try:
        return UringSync(loop)
    except OSError as error:
        logger.info("io_uring is not available, so disk syncs block the event loop: %s", error)
        return None


def _audit(configuration: Configuration) -> Audit | None:
    if not configuration.audit:
        return None
    log = AuditLog(configuration.data_dir, size=configuration.audit_megabytes << 20)
    return Audit(log, required=configuration.audit_required)


def _milliseconds() -> int:
    """Since 1970 UTC; an administrator may set this clock."""
    return time.time_ns() // 1_000_000


def _monotonic_milliseconds() -> int:
    """Of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


async def serve(configuration: Configuration, ready: Callable[[Daemon], None] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code, 1 if the store failed. If another daemon has taken the
    store over, the process ends with FENCED."""
    daemon = Daemon(configuration)
    loop = asyncio.get_running_loop()
    supervision = Supervision(loop)
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, daemon.stopping.set)
    try:
        await daemon.start()
        (ready or announce)(daemon)
        supervision.started()
        await daemon.stopping.wait()
        supervision.stopping()
    finally:
        await daemon.stop()
    return 1 if daemon.failure is not None else 0


def announce(daemon: Daemon) -> None:
    """One line of JSON on standard output: the endpoints, for whoever started the daemon."""
    line = {
        "event": "ready",
        "pid": os.getpid(),
        "endpoints": {name: {"address": a, "port": p} for name, (a, p) in daemon.endpoints.items()},
        "computer_name": daemon.configuration.machine_name,
        "data_dir": str(Path(daemon.configuration.data_dir).resolve()),
        "restart_seconds": round(daemon.restart_seconds, 3),
    }
    print(json.dumps(line), flush=True)


def allow_connections() -> None:
    """Let the process open as many files as it may: the usual soft limit of 1024 is fewer than our connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(configuration: Configuration) -> int:
    """Configure logging and serve, on uvloop where it is installed."""
    allow_connections()
    logs.configure(configuration.log_level, configuration.log_format)
    logger.info("openmsmq %s, %s", __version__, how_it_runs())
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(configuration))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(configuration))
