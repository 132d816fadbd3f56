"""`/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from openmsmq.actions.fields import Text
from openmsmq.actions.queues import ListQuery, matches
from openmsmq.actions.table import Input
from openmsmq.admin import metrics
from openmsmq.console.application import Web
from openmsmq.console.problems import Problem
from openmsmq.console.services import Services
from openmsmq.console.table import parse_query
from openmsmq.model.errors import MsmqError
from openmsmq.model.histogram import Histogram
from openmsmq.model.left_out import LEFT_OUT

Figures: TypeAlias = metrics.Figure | Mapping[tuple[str, ...], metrics.Figure]
_PATIENCE: Final = 2.0  # maximum seconds to wait for the daemon
# Problems that do not make the daemon unready: while the disk is nearly full, it refuses messages, but readers must
# still reach it, because only they can empty its queues.
_READY_WITH: Final = ("disk",)


class QueueMetricsQuery(Input, frozen=True):
    """Parameters of the metrics of queues. `queue` is a pattern as in the list of queues."""

    queue: Text = "*"
    family: Literal["messages", "windows", "readers", "flow", "relays"] = "messages"


def routes(web: Web) -> list[Route]:
    """Return the routes of health checks and metrics."""
    services = web.services

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        checks = await web.work(partial(check, services))
        problems = [name for name, said in checks.items() if said != "ok"]
        ready = all(name in _READY_WITH for name in problems)
        verbose = "verbose" in request.query_params
        lines = [f"{name}: {said}" for name, said in checks.items()] if verbose or problems else ["ok"]
        age = services.history.age
        if verbose and age is not None:  # does not affect readiness: message traffic does not need figures
            lines.append(f"figures: {age:.0f} s old")
        return PlainTextResponse("\n".join(lines) + "\n", 200 if ready else 503)

    async def show(request: Request) -> Response:
        if not services.settings.open_metrics:
            await web.caller(request)
        return Response(await web.work(partial(aggregated, services)), media_type=metrics.CONTENT_TYPE)

    async def show_queues(request: Request) -> Response:
        query = parse_query(QueueMetricsQuery, request.query_params.multi_items())
        caller = await web.caller(request)
        text = await web.work(partial(by_queue, services, caller.ticket, query))
        return Response(text, media_type=metrics.CONTENT_TYPE)

    return [
        Route("/livez", web.endpoint(livez), methods=["GET"]),
        Route("/readyz", web.endpoint(readyz), methods=["GET"]),
        Route("/metrics", web.endpoint(show), methods=["GET"]),
        Route("/metrics/queues", web.endpoint(show_queues), methods=["GET"]),
    ]


def check(services: Services) -> dict[str, str]:
    """Return a mapping: precondition -> "ok" or a description of the problem."""
    try:
        found: dict[str, str] = services.link.ask("health").result(_PATIENCE)[0]
    except FutureTimeout:
        return {"daemon": f"no answer within {_PATIENCE:.0f} s"}
    except (MsmqError, ConnectionError) as error:
        return {"daemon": str(error)}
    return {"daemon": "ok", **found}


def aggregated(services: Services) -> str:
    """Return the metrics of the daemon and of this process, without queue names. Unavailable metrics are left out."""
    found: dict[str, Any] = services.link.call("figures")
    settings = services.settings
    sources: dict[str, Callable[[], Figures]] = {name: partial(_figure, name, value) for name, value in found.items()}
    sources |= {
        "disk_free_bytes": lambda: shutil.disk_usage(settings.directory).free,
        "store_size_bytes": lambda: {("all",): _size(Path(settings.store))},
        "process_resident_memory_bytes": lambda: {
            ("daemon",): _resident(os.getppid()), ("web",): _resident(os.getpid()),
        },
    }  # fmt: skip
    figures = dict(LEFT_OUT.each("metrics", sources.items(), lambda item: (item[0], item[1]()), lambda item: item[0]))
    return metrics.render(figures) + _deepest(services)


def _deepest(services: Services) -> str:
    """Return metrics of the `metrics_queues` (setting) queues with the most messages."""
    count = services.settings.metrics_queues
    if not count:
        return ""
    try:
        rows = services.link.call("deepest", count=str(count))
    except Exception as error:
        LEFT_OUT.note("metrics", "figures of single queues", error)
        return ""
    return "".join(metrics.render_queues(family, _figures_of(rows, family)) for family in ("messages", "flow"))


def _figure(name: str, value: Any) -> Figures:
    """Convert a figure of the daemon to the form of `admin.metrics`."""
    match name:
        case "logins_total" | "messages_refused_total":
            return {tuple(key.split(" ")): count for key, count in value.items()}
        case "build_info":
            return {tuple(value): 1}
        case "event_loop_delay_seconds" | "store_sync_duration_seconds":
            return _histogram(value)
        case "rpc_duration_seconds":
            return {(interface, operation): _histogram(numbers) for interface, operation, *numbers in value}
    return {(label,): each for label, each in value.items()} if isinstance(value, dict) else value


def _histogram(numbers: list[Any]) -> Histogram:
    histogram = Histogram()
    *histogram.counts, histogram.total = numbers
    return histogram


def by_queue(services: Services, ticket: str, query: QueueMetricsQuery) -> str:
    """Return metrics of the queues that a user may see. Raises Problem if there are too many, and AccessDenied for
    relays unless the user is an administrator."""
    wanted = ListQuery(filter=query.queue)
    if query.family == "relays":
        _, lines = services.link.ask("relays", ticket=ticket).result()
        known = map(json.loads, bytes(lines).splitlines())
        rows = [row for row in known if matches({"name": row["queue"]}, wanted)]
    else:
        rows = [row for row in services.rows.of(ticket) if matches(row, wanted)]
    try:
        return metrics.render_queues(query.family, _figures_of(rows, query.family))
    except ValueError as error:
        raise Problem(422, str(error)) from None


def _figures_of(rows: Iterable[Mapping[str, Any]], family: str) -> dict[str, dict[tuple[str, ...], metrics.Figure]]:
    figures: dict[str, dict[tuple[str, ...], metrics.Figure]] = {}
    for row in rows:
        for name, labels, value in _of(row, family):
            figures.setdefault(name, {})[labels] = value
    return figures


def _of(row: Mapping[str, Any], family: str) -> list[tuple[str, tuple[str, ...], int]]:
    if family == "relays":
        return _of_relay(row)
    labels = (row["name"], row["kind"])
    if family == "readers":
        return [
            ("queue_handles", labels, row["handles"]), ("queue_waiting_readers", labels, row["waiting"]),
            ("queue_exclusive", labels, int(row["exclusive"])), ("queue_quota_bytes", labels, row["quota"] * 1024),
        ]  # fmt: skip
    if family == "messages":
        names = ("messages", "bytes", "journal_messages", "journal_bytes")
        return [(f"queue_{name}", labels, row[name]) for name in names]
    if family == "flow":
        return [
            ("queue_messages_in_total", labels, row["came"]), ("queue_messages_out_total", labels, row["left"])
        ]  # fmt: skip
    if row["kind"] not in ("queue", "outgoing"):
        return []
    return [
        ("messages_in_queue", (row["name"],), row["messages"]), ("bytes_in_queue", (row["name"],), row["bytes"]),
        ("messages_in_journal_queue", (row["name"],), row["journal_messages"]),
        ("bytes_in_journal_queue", (row["name"],), row["journal_bytes"]),
    ]  # fmt: skip


def _of_relay(row: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], int]]:
    """Return the samples of a relay. Unknown figures are left out."""
    labels = (row["queue"], row["host"], row["state"])
    figures = {
        "messages_moved_total": row["moved"], "messages_left": row["waiting"],
        "messages_refused": len(row["refused"]), "lag_seconds": row["lag"], "working": int(not row["trouble"]),
    }  # fmt: skip
    return [(f"queue_relay_{name}", labels, value) for name, value in figures.items() if value is not None]


def _size(directory: Path) -> int:
    """Return the total size of the files in a directory in bytes. Files may disappear meanwhile."""
    total = 0
    for entry in os.scandir(directory):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
