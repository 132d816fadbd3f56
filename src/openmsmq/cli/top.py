"""`openmsmq top`: a live view of queues."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

import click

from openmsmq.actions.by_http import perform
from openmsmq.actions.queues import ListQuery, NamedQueue, QueueDetails, get_queue, list_queues
from openmsmq.admin.http_requests import ApiNotFound, ApiUnreachable, HttpRequests
from openmsmq.admin.overview import ByProtocols, Depth, DepthSource, Order, QueueRates, rows, with_age
from openmsmq.cli.connection import Address, connect, is_here, level_option, server_options
from openmsmq.cli.numbers import COUNT, INTERVAL
from openmsmq.cli.output import echo, json_option, live_table, print_json
from openmsmq.cli.web_api import ApiOptions, Missing, api_options
from openmsmq.client.retrying import RECONNECT
from openmsmq.model.text import counted, duration_text, some_of

_COLUMNS = ("queue", "messages", "change/s", "in/s", "out/s", "in 5 min", "waiting", "bytes", "journal", "first is",
            "state")  # fmt: skip
_HIDDEN = ("journal",)  # kinds in lists of the HTTP API: a row has the depth of its journal


class _HttpDepths:
    """All queues that the user of the token may see but journals."""

    counts = True
    seconds: float = 1.0  # for which the server keeps the rows of a user
    left_out: Mapping[str, str] = MappingProxyType({})  # the server lists what the user may see

    def __init__(self, http: HttpRequests) -> None:
        self._http = http

    def sample(self) -> dict[str, Depth]:
        return {
            queue.id: Depth(queue.name, queue.messages, queue.bytes, queue.journal_messages, queue.state, queue.came,
                            queue.left, queue.waiting, queue.grown)
            for queue in perform(self._http, list_queues, ListQuery(sort="-messages", limit=0)).queues
            if queue.kind not in _HIDDEN
        }  # fmt: skip

    def oldest(self, key: str, depth: Depth) -> int | None:
        try:
            found: QueueDetails = perform(self._http, get_queue, NamedQueue(key))
            return found.oldest
        except ApiNotFound:  # deleted meanwhile
            return None


@click.command()
@click.option("--interval", type=INTERVAL, default=2.0, show_default=True, help="Seconds.")
@click.option("--count", "-n", type=COUNT, default=0, help="Refreshes before exiting (0: until ^C).")
@click.option(
    "--rows", "number", type=click.IntRange(min=1), default=20, show_default=True, help="Number of queues to show."
)
@click.option("--filter", "pattern", default="*", help="Only queues whose names match, such as *orders*.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(["messages", "grown"]),
    default="messages",
    show_default=True,
    help="Order: the longest queues first, or those that grew most in five minutes.",
)
@click.option("--empty", is_flag=True, help="Include queues that are empty and do not change.")
@json_option
@server_options
@level_option
@api_options
def top(
    api: ApiOptions, address: Address, level: str | None, interval: float, count: int, number: int, pattern: str,
    order: str, empty: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show a live view of the longest queues: messages, rate of change, age of the first message.

    With a token of the HTTP API (role monitor), it also shows the messages that arrive and leave per second, the growth
    over five minutes and the number of waiting readers, at most once a second. The protocols of MSMQ do not offer
    these: without a token, change/s is the net change of the depth. --url takes precedence over --host.
    """
    before, then, looks, lost = None, 0.0, 0, 0.0
    with _source(api, address, level) as source, live_table(_COLUMNS, as_json) as show:
        if order == "grown" and not source.counts:
            raise click.UsageError("--sort grown requires the HTTP API and a token")
        while True:
            now = time.monotonic()
            try:
                found = source.sample()
                everything = rows(found, before, now - then, cast("Order", order))
                shown = (
                    (key, row)
                    for key, row in everything.items()
                    if fnmatch.fnmatch(row.depth.name.lower(), pattern.lower()) and (empty or _is_used(row))
                )
                lines = with_age(source, islice(shown, number))
            except ApiUnreachable as error:
                if not looks or (lost and now - lost >= RECONNECT):
                    raise
                if not lost:
                    echo(f"openmsmq: {error}; trying again for {RECONNECT:.0f} s", err=True)
                    lost = now
                time.sleep(1)
                continue
            lost = 0.0
            if as_json:
                for row in lines:
                    print_json(_document(row))
                sys.stdout.flush()
            else:
                show([_cells(row, time.time()) for row in lines], _footer(len(lines), len(everything), source.left_out))
            if source.left_out and not looks and not sys.stdout.isatty():  # a terminal has it below the table
                echo(_left_out(source.left_out), err=True)
            before, then, looks = found, now, looks + 1
            if count and looks >= count:
                return
            time.sleep(max(interval, source.seconds))


@contextmanager
def _source(api: ApiOptions, address: Address, level: str | None) -> Iterator[DepthSource]:
    """Return the HTTP API if the options suffice, otherwise the protocols and a line that names what is missing."""
    client = api.client_or_missing(here=is_here(address))
    if isinstance(client, Missing):
        echo(f"in/s, out/s, growth and waiting are not shown: {client.sentence}", err=True)
        with connect(address, level) as qm:
            yield ByProtocols(qm)
    else:
        with client:
            yield _HttpDepths(client)


def _footer(shown: int, known: int, left_out: Mapping[str, str]) -> str:
    text = f"{shown} of {known} queues"
    return f"{text}; {_left_out(left_out)}" if left_out else text


def _left_out(queues: Mapping[str, str]) -> str:
    reasons = ", ".join(sorted(set(queues.values())))
    return f"{counted(len(queues), 'queue')} not shown to this user ({reasons}): {some_of(sorted(queues), 3)}"


def _is_used(row: QueueRates) -> bool:
    return bool(row.depth.messages or row.change or row.came or row.left)


def _document(row: QueueRates) -> dict[str, Any]:
    """Return the JSON document of one row; unknown values are null."""
    depth = row.depth
    return {
        "queue": depth.name, "messages": depth.messages, "bytes": depth.bytes, "journal": depth.journal,
        "state": depth.state, "change": row.change, "in": row.came, "out": row.left, "waiting": depth.waiting,
        "grown": depth.grown, "oldest": row.oldest,
    }  # fmt: skip


def _cells(row: QueueRates, now: float) -> list[Any]:
    depth = row.depth
    change = "" if row.change is None else f"{row.change:+,.1f}"
    came, left = ("" if rate is None else f"{rate:,.1f}" for rate in (row.came, row.left))
    waiting = "" if depth.waiting is None else f"{depth.waiting:,}"
    grown = "" if depth.grown is None else f"{depth.grown:+,}"
    age = "" if row.oldest is None else f"{duration_text(now - row.oldest)} old"
    return [depth.name, f"{depth.messages:,}", change, came, left, grown, waiting, f"{depth.bytes:,}",
            f"{depth.journal:,}", age, depth.state]  # fmt: skip
