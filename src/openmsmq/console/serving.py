"""The web process: `python -m openmsmq.console.serving FD`, started by the daemon (`server.web`)."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread

import uvicorn
from starlette.types import ASGIApp

from openmsmq.actions.background import Jobs
from openmsmq.actions.backup_job import BackupJob
from openmsmq.admin.jobs_file import JOBS_FILE
from openmsmq.console import health
from openmsmq.console.accounts_pages import AccountPages
from openmsmq.console.alarm_pages import AlarmPages
from openmsmq.console.application import Web
from openmsmq.console.bounded import BoundedProtocol, BoundedServer
from openmsmq.console.history import record
from openmsmq.console.limits import CONNECTIONS, HEADERS, HEADERS_SECONDS
from openmsmq.console.machine_pages import MachinePages
from openmsmq.console.mailing import AlarmMailer, sending
from openmsmq.console.managers import Managers
from openmsmq.console.openid_pages import OpenIdPages
from openmsmq.console.pages import Console
from openmsmq.console.queue_history import record_queues
from openmsmq.console.queue_pages import QueuePages
from openmsmq.console.recording import record_interrupted
from openmsmq.console.resources import OPERATIONS
from openmsmq.console.services import QueueRows, Services, WebSettings
from openmsmq.console.upkeep_pages import UpkeepPages
from openmsmq.console.webhook import Webhook, posting
from openmsmq.model.errors import MsmqError
from openmsmq.processes import logs
from openmsmq.processes.link import DaemonLink

_PATIENCE = 5.0  # seconds that the daemon may take to answer


def main() -> None:
    """Serve on the address that the daemon gives, which is at the other end of the socket with file descriptor
    `argv[1]`. The settings are a line of JSON."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    settings = WebSettings(**json.loads(sys.stdin.readline()))
    logs.configure(settings.log_level, settings.log_format)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        sys.exit(f"HTTP on {settings.host}:{settings.port}: {error}")
    settings = replace(settings, port=listener.getsockname()[1])
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a second write is delayed by 40 ms
    link = DaemonLink(connection)
    services = Services(settings, link, Managers(settings.socket), QueueRows(link),
                        backups=BackupJob(settings.backups, settings.outside),
                        jobs=Jobs(settings.directory / JOBS_FILE))  # fmt: skip
    record_interrupted(settings, services.jobs.interrupted)
    Thread(target=record, args=(link, services.history, settings.directory), name="history", daemon=True).start()
    Thread(target=record_queues, args=(link, services.queue_history), name="queue history", daemon=True).start()
    if settings.webhook:
        _tell_alarms(settings, link)
    if settings.mail_to:
        _mail_alarms(settings, link)
    config = uvicorn.Config(
        application(services),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(HEADERS_SECONDS),
        h11_max_incomplete_event_size=HEADERS,
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.key or None,
    )
    gc.freeze()  # excludes loaded modules from garbage collection
    asyncio.run(_serve(BoundedServer(config), listener))


def application(services: Services) -> ASGIApp:
    """Return the application: the API, the console and the health checks."""
    web = Web(services, OPERATIONS)
    console = Console(web)
    pages: list[Console | QueuePages | AccountPages | AlarmPages | MachinePages | UpkeepPages] = [
        console, QueuePages(console), AccountPages(console), AlarmPages(console), MachinePages(console),
        UpkeepPages(console),
    ]  # fmt: skip
    forms = console.forms({path: page for each in pages for path, page in each.behind.items()})
    return web.application(
        [
            *health.routes(web),
            *OpenIdPages(console).routes,
            *(route for each in pages for route in each.routes),
            *forms,
        ],
        console.missing,
    )


def _tell_alarms(settings: WebSettings, link: DaemonLink) -> None:
    """Start a thread that delivers alarms by webhook. If the key cannot be read, exit: events must not be sent
    unsigned."""
    try:
        key = Path(settings.webhook_key_file).read_bytes().strip() if settings.webhook_key_file else b""
    except OSError as error:
        sys.exit(f"alarm_webhook_key_file: {error}")
    if settings.webhook_key_file and not key:
        sys.exit(f"alarm_webhook_key_file: {settings.webhook_key_file} is empty")
    webhook = Webhook(
        settings.directory, settings.hosts[0], settings.webhook, key, posting(), partial(_is_served, link)
    )
    Thread(target=webhook.delivery.run, name="webhook", daemon=True).start()


def _mail_alarms(settings: WebSettings, link: DaemonLink) -> None:
    """Start a thread that delivers alarms by e-mail. If the password cannot be read or sent, exit."""
    try:
        password = Path(settings.mail_password_file).read_text().strip() if settings.mail_password_file else ""
        send = sending(settings.mail_server, settings.mail_tls, settings.mail_user, password)
    except (OSError, ValueError) as error:
        sys.exit(f"alarm_mail_password_file: {error}")
    mailer = AlarmMailer(
        settings.directory, settings.hosts[0], settings.mail_from, tuple(settings.mail_to),
        send, partial(_is_served, link),
    )  # fmt: skip
    Thread(target=mailer.delivery.run, name="mail", daemon=True).start()


def _is_served(link: DaemonLink) -> bool:
    try:
        link.ask("figures").result(_PATIENCE)
    except (MsmqError, ConnectionError, TimeoutError):
        return False
    return True


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        print(listener.getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    main()
