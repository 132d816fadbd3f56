"""`openmsmq adopt status`: progress of queues that are being moved, once or repeatedly."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import click
import msgspec

from openmsmq.actions.by_http import perform
from openmsmq.actions.relays import RELAY_TABLE, RelayList, RelayQuery, RelayView, change_line, list_relays
from openmsmq.admin.http_requests import ApiTimeout, ApiUnreachable, HttpRequests
from openmsmq.cli.derived import show
from openmsmq.cli.numbers import INTERVAL
from openmsmq.cli.output import echo, json_option, live_table, print_json
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.model.text import time_text

# Fields of a relay whose change is worth a new line. Rate, lag and remaining time change all the time.
_NEWS: Final = ("state", "moved", "waiting", "trouble", "refused", "unconfirmed")


@click.command()
@click.argument("queue", required=False)
@click.option("--watch", is_flag=True, help="Continue until Ctrl-C; in a pipe, print a line for each change.")
@click.option("--interval", type=INTERVAL, default=2.0, show_default=True, help="Seconds between updates.")
@json_option
@api_options
def status(queue: str | None, watch: bool, interval: float, as_json: bool, api: ApiOptions) -> None:
    """Show the progress of queues that are being moved from or to another machine.

    For each queue: the number of messages moved, the rate, the number left, the lag, the remaining time at this rate,
    and the reason if nothing moves. For administrators of the queue manager; a token of the role monitor is sufficient.
    """
    with api.client() as http:
        if not watch:
            show(RELAY_TABLE, perform(http, list_relays, RelayQuery(queue)), as_json)
        elif as_json or not sys.stdout.isatty():
            _follow(http, queue, interval, as_json)
        else:
            _watch(http, queue, interval)


def _watch(http: HttpRequests, queue: str | None, interval: float) -> None:
    with live_table(RELAY_TABLE.columns, False) as shown:
        _look(http, queue, interval, lambda found: shown(map(RELAY_TABLE.cells, found), time_text(int(time.time()))))


def _follow(http: HttpRequests, queue: str | None, interval: float, as_json: bool) -> None:
    """Print a line, or a document, for each relay first, then for each relay that has changed."""
    known: dict[str, RelayView] = {}

    def said(found: Iterable[RelayView]) -> None:
        now = {each.queue: each for each in found}
        for name, each in now.items():
            if name not in known or _news(each) != _news(known[name]):
                _say(change_line(each), msgspec.to_builtins(each), as_json)
        for name in known.keys() - now.keys():
            _say(f"{name}: forgotten", {"queue": name, "state": "forgotten"}, as_json)
        known.clear()
        known.update(now)
        sys.stdout.flush()

    _look(http, queue, interval, said)


def _news(each: RelayView) -> tuple[Any, ...]:
    return tuple(getattr(each, name) for name in _NEWS)


def _say(line: str, document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"time": int(time.time()), **document})
    else:
        echo(f"{time_text(int(time.time()))} {line}")


def _look(http: HttpRequests, queue: str | None, interval: float, shown: Callable[[Iterable[RelayView]], None]) -> None:
    """Show changes until interrupted. If a daemon stops answering, ask it again. A queue whose relay was deleted is no
    longer shown.
    """
    found = perform(http, list_relays, RelayQuery(queue)).relays
    wanted = None if queue is None else found[0].queue
    is_away = False
    while True:
        if not is_away:
            shown(found)
        time.sleep(interval)
        try:
            everything: RelayList = perform(http, list_relays, RelayQuery())
        except (ApiUnreachable, ApiTimeout) as error:
            if not is_away:
                echo(f"no answer; retrying every {interval:g} s: {error}", err=True)
            is_away = True
        else:
            found, is_away = [each for each in everything.relays if wanted in (None, each.queue)], False
