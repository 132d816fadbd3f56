"""`openmsmq health`"""

from __future__ import annotations

import http.client
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import click

from openmsmq.cli.connection import Address, connect, is_here, server_options
from openmsmq.cli.output import echo, json_option, print_json
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.model.text import reason_of

_PATIENCE = 10.0  # seconds to wait for an HTTP response
_OK = "ok"
_HEALTHY, _UNHEALTHY, _UNREACHABLE = 0, 1, 6


class _Check(NamedTuple):
    """Result of a check. `said` is "ok" or the problem; `code` is the exit code for it."""

    name: str
    said: str
    code: int = _HEALTHY


@click.command()
@click.option(
    "--alarms", is_flag=True, help="Count active alarms that are not silenced as unhealthy; needs --data-dir."
)
@json_option
@server_options
@api_options
def health(api: ApiOptions, address: Address, alarms: bool, as_json: bool) -> None:
    """Check whether a queue manager works; scripts can use the exit code.

    The check uses RPC and, if --url or --data-dir names an HTTP server, also HTTP (/readyz). Neither needs a login. A
    queue manager that refuses anonymous callers counts as working.

    \b Exit codes: 0 it works; 1 it answers but has a problem, which the output names; 6 it could not be reached.
    """
    checks = [_by_rpc(address), *_by_http(api, is_here(address))]
    if alarms:
        checks += _alarms(api)
    for check in checks:
        if as_json:
            print_json({"check": check.name, "ok": check.code == _HEALTHY, "said": check.said})
        else:
            echo(f"{check.name}: {check.said}")
    sys.exit(max(check.code for check in checks))


def _by_rpc(address: Address) -> _Check:
    from openmsmq.client.calls import CallerRefused
    from openmsmq.model.errors import LoginRefused, MsmqError

    try:
        with connect(address, None) as qm:
            return _Check("rpc", _OK if qm.machine_id else "no identifier", _HEALTHY)
    except LoginRefused as error:
        return _Check("rpc", str(error), _UNHEALTHY)
    except CallerRefused:
        return _Check("rpc", _OK)
    except ConnectionError as error:
        return _Check("rpc", str(error), _UNREACHABLE)
    except MsmqError as error:
        return _Check("rpc", str(error), _UNHEALTHY)


def _by_http(api: ApiOptions, here: bool) -> Iterator[_Check]:
    """Yield the checks of /readyz; none if no HTTP server is known."""
    url, trust = api.server(here=here)
    if url is None:
        return
    try:
        status, text = _readiness(url, trust)
    except (OSError, ValueError, http.client.HTTPException) as error:
        yield _Check("http", f"{url}: {reason_of(error)}", _UNREACHABLE)
        return
    if status not in (200, 503):
        yield _Check("http", f"{url} answers {status}", _UNHEALTHY)
        return
    for line in text.splitlines():
        name, _, said = line.partition(": ")
        yield _Check(name, said, _HEALTHY if said == _OK or name == "figures" else _UNHEALTHY)


def _readiness(url: str, trust: ssl.SSLContext | None) -> tuple[int, str]:
    """Return the status and the text of /readyz. Raises OSError, ValueError, HTTPException."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    try:
        answer = urllib.request.build_opener(*handlers).open(f"{url}/readyz?verbose", timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.read(1 << 16).decode("utf-8", "replace")


def _alarms(api: ApiOptions) -> Iterator[_Check]:
    """Yield a check for each active alarm that is not silenced, and one with the number of silenced alarms."""
    from openmsmq.admin.alarm_rules import NO_RULES, AlarmRuleError, AlarmRulesFile
    from openmsmq.admin.alarms import read_alarms

    if not api.data_dir.is_dir():
        raise click.UsageError(f"--alarms reads the data directory: there is no {api.data_dir}; --data-dir names it")
    active, now = read_alarms(api.data_dir).active.values(), time.time()
    try:
        rules = AlarmRulesFile(api.data_dir).read()
    except AlarmRuleError as error:
        yield _Check("alarms", f"cannot read silences, so every alarm counts: {error}", _UNHEALTHY)
        rules = NO_RULES
    loud = [alarm for alarm in active if rules.silence_of(alarm.name, alarm.queue, now) is None]
    yield from (_Check(f"alarm {alarm.name}", alarm.sentence, _UNHEALTHY) for alarm in loud)
    silenced = f"{count} silenced" if (count := len(active) - len(loud)) else ""
    if silenced or not loud:
        yield _Check("alarms", ", ".join(filter(None, ("" if loud else _OK, silenced))))
