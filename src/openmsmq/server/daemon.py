"""The daemon: store, queue manager, RPC endpoints, timers, checkpoints, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from openmsmq import __version__
from openmsmq.accounts.users import UsersFile
from openmsmq.admin.alarms import parse_thresholds
from openmsmq.admin.audit import AuditEntry, AuditLog
from openmsmq.admin.settings import write_settings
from openmsmq.admin.web_address import forget_address
from openmsmq.compiled import how_it_runs
from openmsmq.files.private import PrivateFileError
from openmsmq.model.histogram import Histogram
from openmsmq.peering.routing_table import RoutingTableError
from openmsmq.peering.routing_table import load as load_routing
from openmsmq.processes import logs
from openmsmq.queueing.machine import Machine, MachineLimits
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import NoTransport, OutgoingQueue
from openmsmq.server.addresses import local_addresses
from openmsmq.server.alarms import AlarmWatch
from openmsmq.server.auditing import Audit
from openmsmq.server.background import BackgroundWork
from openmsmq.server.calls import Calls
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.context import DaemonContext, DaemonPart, Parts
from openmsmq.server.directory import connect_to_directory, identifier_drawing, synchronize
from openmsmq.server.domain_names import DomainNames, domain_names, names_of_domain, resolve
from openmsmq.server.flight import FlightProcess
from openmsmq.server.identity import (
    fully_qualified_name,
    identity_of,
    warn_of_own_outgoing_queues,
)
from openmsmq.server.listening import Ports
from openmsmq.server.logins import login_at_peers
from openmsmq.server.machine_security import MachineSecurity, everyones_access, reader_names, readers_of
from openmsmq.server.maintenance import Maintenance, Thresholds
from openmsmq.server.memory import no_collector, set_malloc_thresholds, trim_heap
from openmsmq.server.messages import PeerMessages
from openmsmq.server.protections import Protections
from openmsmq.server.relays import RelayService
from openmsmq.server.supervision import FENCED, Supervision
from openmsmq.server.tracing import Traces
from openmsmq.server.web import WebServer
from openmsmq.store import Store, StoreError, StoreFailed, StoreFenced, StoreFull
from openmsmq.store.incarnation import RESTORING
from openmsmq.store.uring_sync import UringSync

logger = logging.getLogger(__name__)


class Daemon:
    """One queue manager and its listeners; see `serve`."""

    def __init__(self, configuration: Configuration) -> None:
        """Open the store and recover. Raises as `Store.open`, KeyringError if keys can't be read, and
        ConfigurationError."""
        self.configuration = configuration
        self.failure: BaseException | None = None
        started = time.monotonic()
        set_malloc_thresholds()
        configuration.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (configuration.data_dir / RESTORING).exists():
            raise ConfigurationError(
                f"{configuration.data_dir}: the restore of a backup was interrupted: empty the directory, and restore "
                "again"
            )
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
        self._tidy = asyncio.Event()  # an administrator requests the disk space of deleted messages
        self._ports = Ports(configuration)
        self.endpoints = self._ports.endpoints
        self._parts: Final = Parts()
        self._messages: PeerMessages | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._syncer: UringSync | None = None
        self._syncs = Histogram()
        self._traces = Traces()

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
        trim_heap()
        logger.info(
            "%d queues with %d messages recovered%s",
            len(manager.registry.by_name),
            sum(len(queue) for queue in manager.registry.queues.values()),
            " from a checkpoint" if recovered.report.from_checkpoint else "",
        )
        warn_of_own_outgoing_queues(manager)
        return manager

    # -- start and stop --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the endpoints. Raises OSError when a port can't be opened, UsersFileError when users can't be read."""
        self._syncer = _syncer(asyncio.get_running_loop())
        context = self._context()
        calls = Calls(context, self._syncer)
        self._messages = PeerMessages(context, calls, self._routing, self._traces)
        domain = domain_names(self.configuration)
        relays = RelayService(
            self.manager, calls.committer.when_durable, self.configuration.hosts_of_peers,
            login_at_peers(self.configuration), self._messages.fetched,
        )  # fmt: skip
        alarms = AlarmWatch(
            self.manager, self.configuration.data_dir, self.configuration.alarm_thresholds, self._syncs,
            self.configuration.alarm_queue_name, is_owner=self._is_owner,
            transactions=calls.environment.coordinator.transaction_manager.rows,
            by_queue=parse_thresholds(self.configuration.alarm_by_queue), relays=lambda: relays.relays,
            resolve=calls.environment.public_queues.resolve,
        )  # fmt: skip
        for part in self._parts_of(context, calls, alarms, domain, self._messages, relays):
            await self._parts.start(part)
        self._announce()
        self._committer = calls.committer
        self._serving = True
        self.manager.turn()
        self._arm_timer()
        await self._parts.start(self._background_work(calls, alarms, domain))

    def _context(self) -> DaemonContext:
        return DaemonContext(
            self.configuration, self.store, self.manager, self._directory, self.protections, self._ports,
            self._qualified_name, self._audit, self._syncs, self._tidy, self._is_owner, self._store_failed,
        )  # fmt: skip

    def _parts_of(
        self,
        context: DaemonContext,
        calls: Calls,
        alarms: AlarmWatch,
        domain: DomainNames | None,
        messages: PeerMessages,
        relays: RelayService,
    ) -> Iterator[DaemonPart]:
        """Return the parts in the order in which they start."""
        yield calls
        if self.configuration.flight:
            yield FlightProcess(context, calls)
        if self.configuration.web:
            yield WebServer(context, calls, alarms.alarms, messages.forget_sequence, relays, domain,
                            messages.open_sessions)  # fmt: skip
        else:
            forget_address(self.configuration.data_dir)  # left by a daemon that was killed
        yield messages
        yield relays

    def _background_work(self, calls: Calls, alarms: AlarmWatch, domain: DomainNames | None) -> BackgroundWork:
        configuration = self.configuration
        maintenance = Maintenance(
            self.store, self.manager, calls.committer, self._machine_security.current, calls.rpc.budget, self._tidy,
            Thresholds(configuration.checkpoint_megabytes << 20, configuration.minimum_free_megabytes << 20),
            configuration.data_dir, self._is_owner,
        )  # fmt: skip
        work: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "maintenance of the store": maintenance.run,
            "watching for alarms": alarms.run,
            "keeping public queues in step": partial(synchronize, calls.environment.public_queues),
        }
        waiting = names_of_domain(configuration, reader_names(configuration))
        if domain is not None and waiting:
            add = self._machine_security.add_reader
            work["finding system_queue_readers"] = partial(resolve, "system_queue_readers", waiting, domain, add)
        return BackgroundWork(work)

    def _announce(self) -> None:
        """Announce the endpoints in the log, to commands, and in the audit log."""
        configuration = self.configuration
        self._announce_security()
        try:
            write_settings(configuration.data_dir, configuration.described())
        except PrivateFileError as error:  # the disk is full, but receives may free space
            logger.warning("cannot save the settings in force: %s", error)
        if self._audit is not None:
            self._audit.started(AuditEntry("daemon.start", "machine", configuration.machine_name, "system",
                                      after=configuration.changed()))  # fmt: skip

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
        """Stop accepting calls, finish pending writes, and write a checkpoint."""
        # A store that has failed sends no replies.
        grace = self.configuration.shutdown_grace_seconds if self.failure is None else 0
        await self._parts.stop(grace)
        if self._timer is not None:  # waiting reads may still end before this point
            self._timer.cancel()
        await self._traces.stop()
        await asyncio.sleep(0)  # connections run their context handles down
        await self._directory.close()
        if self._serving:
            with suppress(StoreFailed):
                await self._committer.drain()  # the store must not have a batch in progress
        if self._syncer is not None:
            self._syncer.close()
        if self.failure is None:
            try:
                self.store.checkpoint(self.manager.capture())
            except (OSError, StoreFull) as error:  # no data is lost
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
        """Whether the store still belongs to this daemon. If another daemon has taken it over, this one ends."""
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
            # Exit immediately: an orderly shutdown would write to the data directory, which another daemon now owns.
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
        """See `queueing.outbox.QueueManagerHost`."""
        if self._serving:
            asyncio.get_running_loop().call_soon(self.manager.turn)

    def deadline_changed(self) -> None:
        """See `queueing.outbox.QueueManagerHost`."""
        if self._serving:
            self._arm_timer()

    def failed(self, error: BaseException) -> None:
        """See `queueing.outbox.QueueManagerHost`."""
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
    """Return a syncer, or None if the kernel can't sync off the event loop or `ring.c` is not compiled; then the loop
    syncs."""
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
    """Return milliseconds since 1970 UTC; an administrator may set this clock."""
    return time.time_ns() // 1_000_000


def _monotonic_milliseconds() -> int:
    """Return milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


async def serve(configuration: Configuration, ready: Callable[[Daemon], None] | None = None) -> int:
    """Run until SIGTERM, SIGINT or, unless nohup ignores it, SIGHUP. Return the exit code: 1 if the store failed. If
    another daemon takes over the store, the process exits with FENCED."""
    daemon = Daemon(configuration)
    loop = asyncio.get_running_loop()
    supervision = Supervision(loop)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
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
    """Print the endpoints as one line of JSON on standard output, for the process that started the daemon."""
    line = {
        "event": "ready",
        "pid": os.getpid(),
        "endpoints": {name: {"address": a, "port": p} for name, (a, p) in daemon.endpoints.items()},
        "computer_name": daemon.configuration.machine_name,
        "data_dir": str(Path(daemon.configuration.data_dir).resolve()),
        "restart_seconds": round(daemon.restart_seconds, 3),
    }
    print(json.dumps(line), flush=True)


def check_interpreter() -> None:
    """Raise ConfigurationError if Python runs threads in parallel: those of the daemon rely on the lock."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ConfigurationError(
            "the queue manager does not run on a Python without the global interpreter lock; "
            "set PYTHON_GIL=1 in the environment, or use the usual build of Python, which is also faster"
        )


def allow_connections() -> None:
    """Raise the limit of open files to the hard limit: the usual soft limit of 1024 is lower than the number of
    connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(configuration: Configuration, ready: Callable[[Daemon], None] | None = None) -> int:
    """Configure logging and serve, on uvloop where it is installed. `ready` is called in place of `announce`."""
    allow_connections()
    logs.configure(configuration.log_level, configuration.log_format)
    logger.info("openmsmq %s, %s", __version__, how_it_runs())
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(configuration, ready))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(configuration, ready))
