"""The HTTP server of the daemon: its process, and the two channels from it to the daemon: `gateways.console`, and RPC
over a Unix socket in the data directory, with a ticket of the logged-in user."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.dispatcher import SecurityPolicy
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.server import RpcServer
from msrpc.rpc.tickets import ticket_acceptor
from msrpc.rpc.timing import Timings
from msrpc.rpc.unix_sockets import bind_unix
from openmsmq.admin.alarms import Alarms
from openmsmq.admin.backup import files_outside
from openmsmq.admin.tokens import TokensFile, TokensFileError, TokenUses, write_uses
from openmsmq.admin.web_address import address_of, forget_address, write_address
from openmsmq.files.private import PrivateFileError
from openmsmq.gateways.connected import OpenSessions
from openmsmq.gateways.console import AccountLookup, WebGateway
from openmsmq.gateways.figures import Latency
from openmsmq.gateways.openid import OpenIdSettings
from openmsmq.gateways.relays import RelayRequests
from openmsmq.gateways.remedies import Forget
from openmsmq.gateways.transactions import DistributedTransactions
from openmsmq.model.exhaustion import shortage
from openmsmq.processes.child import ChildProcess, Program
from openmsmq.queueing.auditing import NoAudit
from openmsmq.server.background import start_background_task
from openmsmq.server.calls import Calls
from openmsmq.server.config import ConfigurationError
from openmsmq.server.context import DaemonContext
from openmsmq.server.interfaces import SERVED
from openmsmq.server.relays import RelayService

logger = logging.getLogger(__name__)

_SOCKET: Final = "web.sock"  # in the data directory
_PROGRAM: Final = Program(
    "web", "openmsmq.console.serving", ("jinja2", "msgspec", "starlette", "uvicorn"), "web",
    "its users have to log in again",
)  # fmt: skip


class WebServer:
    """Serves HTTP in a child process; see `DaemonPart`."""

    def __init__(
        self,
        context: DaemonContext,
        calls: Calls,
        alarms: Alarms,
        forget_sequence: Forget,
        relays: RelayService,
        domain: AccountLookup | None,
        open_sessions: OpenSessions,
    ) -> None:
        """`forget_sequence` and `open_sessions` are those of the service for other queue managers; `domain` looks up
        accounts that are not in the users file."""
        self._context: Final = context
        configuration, environment, rpc = context.configuration, calls.environment, calls.rpc
        data_dir = configuration.data_dir.resolve()
        latency = Latency({
            interface.description.name: [operation.name for operation in interface.description.operations]
            for interface in SERVED
        })  # fmt: skip
        rpc.calls.time_calls(Timings(latency.observe, time.perf_counter))
        self._tokens: Final = TokensFile(data_dir)
        self._uses: Final = TokenUses(data_dir)
        auditor = context.audit or NoAudit()
        transactions = DistributedTransactions(
            environment.manager, environment.coordinator.transaction_manager, auditor,
            is_on=environment.coordinator.is_on,
        )  # fmt: skip
        self._door: Final = WebGateway(
            environment.manager, calls.users, self._tokens, rpc, environment.is_administrator, context.syncs,
            context.store.epoch, auditor, self._uses, alarms, latency, calls.logins,
            forget_sequence, environment.when_durable, transactions,
            RelayRequests(relays.relays, relays.local_queue, environment.manager.machine.is_local, auditor), domain,
            open_sessions, configuration.openid,
        )  # fmt: skip
        # A Unix socket is as private as the level privacy, so a ticket satisfies all interfaces.
        table = InterfaceTable(interface(environment, AuthLevel.NONE) for interface in SERVED)
        self._rpc: Final = RpcServer(
            table, policy=SecurityPolicy(allow_anonymous=False), acceptor=ticket_acceptor(self._door.identity)
        )
        self._rpc.may_answer = rpc.may_answer
        self._rpc.calls.shortage = shortage
        self._process: ChildProcess | None = None
        self._watching: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the process. Raises OSError."""
        configuration = self._context.configuration
        if configuration.openid is not None:
            _check_openid(configuration.openid)
        data_dir = configuration.data_dir.resolve()
        path = data_dir / _SOCKET
        await self._rpc.listen_unix(bind_unix(path))
        self._watching = [
            start_background_task("measuring the loop's delay", self._door.delay.watch()),
            start_background_task("measuring the growth of queues", self._door.growth.watch()),
            start_background_task("writing when tokens were used", self._write_uses()),
        ]
        certificate, key = (str(path or "") for path in (configuration.web_certificate, configuration.web_key))
        self._process = ChildProcess(
            _PROGRAM, self._door.serve, configuration.web_address,
            self._context.ports.number("web_port"), certificate=certificate, key=key,
            socket=str(path), data_dir=str(data_dir), store=self._context.store.directory,
            users_file=str(configuration.users_path.resolve()), backups=str(configuration.backup_directory or ""),
            outside=files_outside(configuration.data_dir, (configuration.users_path, configuration.directory_file)),
            hosts=self._names(),
            webhook=configuration.alarm_webhook, webhook_key_file=str(configuration.alarm_webhook_key_file or ""),
            mail_to=configuration.alarm_mail_recipients, mail_from=configuration.alarm_mail_sender,
            mail_server=configuration.alarm_mail_server, mail_tls=configuration.alarm_mail_tls,
            mail_user=configuration.alarm_mail_user,
            mail_password_file=str(configuration.alarm_mail_password_file or ""),
            open_metrics=configuration.web_shows_sums, metrics_queues=configuration.metrics_queues,
            openid=urlsplit(configuration.oidc_issuer).hostname or "",
            audit=configuration.audit, audit_required=configuration.audit_required,
            audit_bytes=configuration.audit_megabytes << 20,
            log_level=configuration.log_level, log_format=configuration.log_format,
        )  # fmt: skip
        await self._process.start()
        try:
            write_address(
                data_dir, address_of(configuration.web_address, self._process.port, configuration.web_certificate)
            )
        except PrivateFileError as error:  # for example a full disk
            logger.warning("cannot save the HTTP address; commands on this machine need --url: %s", error)
        self._context.ports.endpoints["web"] = configuration.web_address, self._process.port

    def _names(self) -> list[str]:
        """Return the host names under which browsers may access the server."""
        configuration = self._context.configuration
        own = (configuration.machine_name, self._context.qualified_name, *configuration.alias_names)
        return [*own, *configuration.web_host_names]

    async def _write_uses(self) -> None:
        """Save the last-use times of tokens once a minute, until canceled; a thread writes the file."""
        while True:
            await asyncio.sleep(TokenUses.PERIOD)
            if self._rpc.may_answer():
                await asyncio.to_thread(self._write, self._uses_to_write())

    def _uses_to_write(self) -> dict[str, int] | None:
        try:
            return self._uses.to_write(token.id for token in self._tokens.list())
        except TokensFileError as error:
            logger.warning("cannot save last-use times of tokens: %s", error)
            return None

    def _write(self, uses: dict[str, int] | None) -> None:
        if uses is None:
            return
        try:
            write_uses(self._context.configuration.data_dir, uses)
        except PrivateFileError as error:
            logger.warning("cannot save last-use times of tokens: %s", error)

    async def stop(self, grace: float) -> None:
        """Stop the process. Running requests get `grace` seconds to end; then their connections are closed."""
        if self._process is not None:
            await self._process.stop(grace)
        for task in self._watching:
            task.cancel()
        self._write(self._uses_to_write())
        self._rpc.close()
        data_dir = self._context.configuration.data_dir.resolve()
        if self._rpc.may_answer():  # otherwise the file belongs to the daemon that has taken over
            forget_address(data_dir)
        (data_dir / _SOCKET).unlink(missing_ok=True)


def _check_openid(settings: OpenIdSettings) -> None:
    """Check the requirements of OpenID Connect. Raises ConfigurationError, and OSError if a library is missing."""
    if find_spec("joserfc") is None:
        raise OSError("oidc_issuer requires joserfc: pip install 'openmsmq[oidc]'")
    if settings.secret_file is None:
        return
    try:
        secret = settings.secret_file.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"oidc_client_secret_file: {settings.secret_file}: {error.strerror}") from error
    if not secret:
        raise ConfigurationError(f"oidc_client_secret_file: {settings.secret_file} is empty")
