"""Operations of the API, generated from the table of actions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta

from openmsmq.actions import (
    alarms,
    audit,
    backups,
    connections,
    dead_letters,
    definitions,
    handles,
    jobs,
    messages,
    outgoing,
    permissions,
    queues,
    relays,
    resending,
    selections,
    sequences,
    series,
    sessions,
    settings,
    tokens,
    transactions,
    users,
)
from openmsmq.actions.errors import ActionIncomplete, ActionRefused, InputError, UnknownAccount
from openmsmq.actions.site import ActionCaller, ActionSite
from openmsmq.actions.table import Action, DryRunAt, Empty, Input
from openmsmq.admin.permissions import sid_for
from openmsmq.admin.series import Range, Rates
from openmsmq.console.problems import Problem
from openmsmq.console.recording import record
from openmsmq.console.table import HttpOperation, WebRequest, json_response
from openmsmq.model.errors import AccessDenied
from openmsmq.model.exhaustion import exhausted
from openmsmq.model.roles import missing_administrator

_NOUNS: Final = (
    sessions, queues, messages, selections, resending, dead_letters, outgoing, permissions, handles, connections,
    sequences, transactions, relays, alarms, audit, settings, tokens, users, definitions, backups, series, jobs,
)  # fmt: skip
ACTIONS: Final[tuple[Action, ...]] = tuple(action for noun in _NOUNS for action in noun.ACTIONS)
PlanToken = Annotated[str, Meta(max_length=1024, description="The token of a dry run of the same.")]
DryRun = Annotated[bool, Meta(description="Only say what would be done.")]
_TOKEN: Final = ("token", PlanToken)
_DRY_RUN: Final = ("dry_run", DryRun, False)


def operations_of(action: Action) -> Iterator[HttpOperation]:
    """Yield the HTTP operations of an action: the action, and its dry run if that has its own path."""
    kept = {each.name: _declared(each) for each in msgspec.structs.fields(action.input)}
    rest = {name: declared for name, declared in kept.items() if name not in action.in_path}
    queries = set(rest) if action.method in ("GET", "DELETE") else set(action.queries)
    query = [declared for name, declared in rest.items() if name in queries]
    body = [declared for name, declared in rest.items() if name not in queries]
    statuses = {*action.statuses, *action.refuses.values()}
    statuses |= {404} if action.in_path else set()
    statuses |= {507} if action.audit else set()
    planned, part = None, ""
    if isinstance(action.dry_run, DryRunAt):
        method, _, path = action.dry_run.http.partition(" ")
        yield HttpOperation(
            method, path, _handler(action, action.dry_run.name), action.dry_run.summary, action.planned,
            query=_struct(action, query), body=_struct(action, body) if body else None,
            statuses=action.dry_run.statuses, role=action.role, path_fields=action.input,
            extensions={"x-action": action.name, "x-effect": "reads",
                        "x-commands": [f"{each.words} --dry-run" for each in action.commands]},
        )  # fmt: skip
    elif action.dry_run:
        (body if action.dry_run == "body" else query).append(_DRY_RUN)
        planned = action.planned
    if action.bound:
        body.append(_TOKEN)
        part = "Order"
        statuses |= {400, 412}
    yield HttpOperation(
        action.method, action.path, _handler(action), action.summary, action.output,
        planned=planned, looking=action.looking,
        query=_struct(action, query, "Query"), body=_struct(action, body, part) if body else None, status=action.status,
        statuses=tuple(statuses), role=action.role, partial=action.partial, description=action.description,
        path_fields=action.input,
        extensions={
            "x-action": action.name, "x-effect": action.effect, "x-commands": [each.words for each in action.commands]
        } | (
            {"x-audit": list(action.audit)} if action.effect != "reads" else {}
        ),
    )  # fmt: skip


def _struct(action: Action, fields: list[Any], part: str = "") -> type[Input]:
    """Return a struct type with only these fields of the input."""
    if not fields:
        return Empty
    if [field[0] for field in fields] == [each.name for each in msgspec.structs.fields(action.input)]:
        return action.input
    fields = sorted(fields, key=len)  # fields without a default first
    made = msgspec.defstruct(
        action.input.__name__ + part, fields, bases=(Input,), frozen=True, forbid_unknown_fields=True,
        namespace={"__doc__": action.input.__doc__},
    )  # fmt: skip
    return cast("type[Input]", made)


def _declared(each: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    named = {} if each.encode_name == each.name else {"name": each.encode_name}
    if each.required:
        return (each.name, each.type, msgspec.field(**named)) if named else (each.name, each.type)
    if each.default_factory is msgspec.NODEFAULT:
        return each.name, each.type, msgspec.field(default=each.default, **named)
    return each.name, each.type, msgspec.field(default_factory=each.default_factory, **named)


def _handler(action: Action, dry_run: str = "") -> Callable[[WebRequest], Any]:
    in_path = msgspec.defstruct(
        f"{action.input.__name__}Path",
        [(each.name, each.type) for each in msgspec.structs.fields(action.input) if each.name in action.in_path],
        frozen=True,
    )

    def handler(asked: WebRequest) -> Any:
        try:
            given = msgspec.structs.asdict(msgspec.convert(asked.path, in_path, strict=False))
        except msgspec.ValidationError as error:
            raise Problem(404, str(error)) from None
        for part in (asked.query, asked.body):
            given |= msgspec.structs.asdict(part) if part is not None else {}
        wanted = bool(given.pop("dry_run", dry_run))
        token = given.pop("token", "") if action.bound else ""
        output = perform(action, asked, action.input(**given), dry_run=wanted, token=token)
        if action.partial and action.is_partial(output):
            return json_response(output, 207)
        return json_response(output) if wanted and action.status != 200 else output

    handler.__name__ = dry_run or action.run.__name__
    return handler


def perform(action: Action, asked: WebRequest, given: Input, *, dry_run: bool = False, token: str = "") -> Any:
    """Run an action, or its dry run, for the caller of a request; return its output. Raises Problem, MsmqError."""
    with action_errors(action), site_of(action, asked) as site:
        if action.planned is None:
            return action.perform(site, given)
        plan = action.plan(site, given)
        known = {"sid": asked.caller.sid, "plan": _digest(plan.binds)}
        if dry_run:
            sealed = {"token": asked.services.seals.seal(known)} if action.bound else {}
            return msgspec.structs.replace(plan.would(), **sealed)
        if action.bound and asked.services.seals.open(token, "token") != known:
            raise Problem(412, "the operation differs from its dry run: run the dry run again")
        return plan.carry_out()


@contextmanager
def action_errors(action: Action) -> Iterator[None]:
    """Convert the errors of an action into a Problem; an MsmqError passes unchanged."""
    try:
        yield
    except ActionRefused as refused:
        errors = {refused.pointer: str(refused)} if refused.pointer else None
        raise Problem(refused.status, str(refused), errors=errors, **refused.more) from None
    except ActionIncomplete as incomplete:
        members = msgspec.to_builtins(incomplete.output)
        members.pop("command", None)
        raise Problem(409, incomplete.detail, **members) from None
    except InputError as error:
        raise Problem(422, str(error), errors=error.errors) from None
    except tuple(action.refuses) as error:
        status = next(status for kind, status in action.refuses.items() if isinstance(error, kind))
        raise Problem(507 if exhausted(error) is not None else status, str(error)) from None


def _digest(binds: Any) -> str:
    return hashlib.sha256(json.dumps(binds, sort_keys=True).encode()).hexdigest()


@contextmanager
def site_of(action: Action, asked: WebRequest) -> Iterator[ActionSite]:
    """Yield the environment of an action, for the caller of a request. Raises MsmqError."""
    settings, caller = asked.services.settings, asked.caller
    daemon = ConsoleDaemon(asked)
    csrf = caller.session.csrf if caller.session is not None else None
    site = ActionSite(
        settings.directory, settings.users_path,
        ActionCaller(caller.name, caller.sid, caller.administrator, caller.role, caller.token, csrf),
        partial(record, asked), settings.hosts[0],
        None if caller.administrator else lambda: {row["name"] for row in daemon.queues()},
        accounts=ConsoleAccounts(daemon), daemon=daemon, backups=asked.services.backups,
        jobs=asked.services.jobs, connect=asked.queue_manager, origin=f"http {caller.peer}",
        queue=daemon.queue(asked.path["queue"]) if "queue" in action.in_path else {},
    )  # fmt: skip
    if action.place not in ("queue manager", "queue manager and accounts"):
        yield site
        return
    with asked.queue_manager() as manager:
        yield replace(site, manager=manager)


@dataclass(frozen=True, slots=True)
class ConsoleDaemon:
    """The daemon, accessed as the caller of a request."""

    asked: WebRequest

    def queues(self, *, newest: bool = False) -> list[dict[str, Any]]:
        return self.asked.services.rows.of(self.asked.caller.ticket, newest=newest)

    def queue(self, identifier: str) -> dict[str, Any]:
        return self.asked.services.queue(self.asked.caller.ticket, identifier)

    def call(self, operation: str, **given: Any) -> Any:
        return self.asked.services.link.call(operation, ticket=self.asked.caller.ticket, **given)

    def change(self, operation: str, **given: Any) -> Any:
        return self.call(operation, peer=self.asked.caller.peer, **given)

    def lines(self, operation: str) -> bytes:
        _, data = self.asked.services.link.ask(operation, ticket=self.asked.caller.ticket).result()
        return bytes(data)

    def changed(self) -> None:
        self.asked.services.rows.forget(self.asked.caller.ticket)

    def rates(self, span: Range) -> list[Rates]:
        demand_figures(self.asked)
        return self.asked.services.history.rates(span)

    def seal(self, document: Any) -> str:
        return self.asked.services.seals.seal(document)

    def unseal(self, text: str, what: str) -> Any:
        return self.asked.services.seals.open(text, what)


def may_see_figures(asked: WebRequest) -> bool:
    """Whether the caller may see sums over all queues: administrators may, and everyone if open metrics are enabled."""
    return asked.caller.administrator or asked.services.settings.open_metrics


def demand_figures(asked: WebRequest) -> None:
    """Check that the caller may see sums over all queues. Raises AccessDenied."""
    if not may_see_figures(asked):
        raise AccessDenied(detail=f"figures of all queues: {missing_administrator(asked.caller.name)}")


class ConsoleAccounts:
    """Users and groups of the machine and of its domain."""

    def __init__(self, daemon: ConsoleDaemon) -> None:
        self._daemon: Final = daemon
        self._known: dict[str, str] | None = None

    def names(self) -> dict[str, str]:
        if self._known is None:
            self._known = self._daemon.call("accounts")
        return self._known

    def named(self, sids: Collection[str]) -> Mapping[str, str]:
        missing = sorted({*sids} - self.names().keys())
        return self.names() | (self._daemon.call("names", sids=missing) if missing else {})

    def sid(self, who: str) -> str:
        if ("\\" in who or "@" in who) and (found := self._daemon.call("sid", name=who)["sid"]):
            return str(found)
        known = {name.casefold(): sid for sid, name in self.names().items()}
        try:
            return sid_for(who, lambda name: known.get(name.casefold()))
        except ValueError as error:
            raise UnknownAccount(str(error)) from None

    def sids(self, who: str | None) -> Collection[str]:
        found: Collection[str] = self._daemon.call("sids", name=who)
        return found


OPERATIONS: Final = tuple(operation for action in ACTIONS if action.http for operation in operations_of(action))
_BY_NAME: Final = {derived.name: derived for derived in OPERATIONS}


def operation_of(action: Action) -> HttpOperation:
    """Return the operation of an action."""
    return _BY_NAME[action.run.__name__]


def handler_of(action: Action) -> Callable[[WebRequest], Any]:
    """Return the handler of the operation of an action."""
    return operation_of(action).handler


def body_of(action: Action) -> type[Input]:
    """Return the type of the request body of an action."""
    return operation_of(action).body or Empty
