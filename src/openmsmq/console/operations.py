"""Doing something to many messages: a dry run finds them and gives a token, without which nothing is done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from shlex import join
from typing import Annotated, Any, Final

import msgspec

from openmsmq.actions.table import Input, Output
from openmsmq.admin.acting import HAS_NO_TARGET, NEEDS_TARGET, Act, MessageAction, action
from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.naming import path_of
from openmsmq.admin.queues import missing
from openmsmq.admin.selection import Chosen, Criteria, Selection, act, parse_token, select
from openmsmq.console.limits import SCANNED
from openmsmq.console.problems import Problem
from openmsmq.console.queues import Text
from openmsmq.console.recording import record
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.constants import INFINITE
from openmsmq.model.reasons import find_reason, reason_of
from openmsmq.model.roles import Role

_MOST: Final = 1000  # messages of one operation: it is answered when all of it is done
_SAMPLE: Final = 20
_FAILURES: Final = 100
_VALID: Final = 900.0  # seconds that a dry run counts
Seconds = Annotated[int, msgspec.Meta(ge=0, le=INFINITE - 1)]


class MessageFilter(Input, frozen=True):
    """Which messages: all that is given has to hold. Ages in seconds, sizes of bodies in bytes; `reason` as in dead
    letters."""

    ids: Annotated[list[Text], msgspec.Meta(max_length=_MOST)] | None = None
    label: Text | None = None
    correlation: Text | None = None
    reason: Text | None = None
    destination: Text | None = None
    older: Seconds | None = None
    newer: Seconds | None = None
    larger: Seconds | None = None
    smaller: Seconds | None = None
    text: Text | None = None


class Edits(Input, frozen=True):
    """What is changed of messages that are sent again. Times in seconds from then on."""

    label: Annotated[str, msgspec.Meta(max_length=249)] | None = None
    text: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=7)] | None = None
    time_to_reach_queue: Annotated[int, msgspec.Meta(ge=1, le=INFINITE - 1)] | None = None
    time_to_be_received: Annotated[int, msgspec.Meta(ge=1, le=INFINITE - 1)] | None = None


class PlanRequest(Input, frozen=True):
    """What is to be done. `to` is a queue as people name it, which move and copy need; `all` where `where` is empty."""

    act: Act
    queue: Annotated[str, msgspec.Meta(max_length=20)]
    where: MessageFilter = MessageFilter()
    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = _MOST
    to: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    changes: Edits = Edits()
    transaction: bool = False


class SelectedMessageView(Output, frozen=True):
    id: str
    label: str
    reason: str | None
    to: str
    size: int
    fails_again: bool


class DryRun(Output, frozen=True):
    """What would be done to `count` messages, some of which are shown. `complete`: no limit has ended the look.
    `selection` is for `/operations`; whatever comes later is not meant by it."""

    act: str
    queue: str
    count: int
    bytes: int
    scanned: int
    complete: bool
    sample: list[SelectedMessageView]
    warnings: list[str]
    selection: str
    seconds: int
    command: str


class Order(Input, frozen=True):
    """`count` is that of the dry run, so that it was read."""

    selection: Annotated[str, msgspec.Meta(max_length=200_000)]
    count: Annotated[int, msgspec.Meta(ge=0)]


class Failure(Output, frozen=True):
    id: str
    detail: str
    hresult: str


class Result(Output, frozen=True):
    """How many were dealt with, could not be and are where they were, and had been taken by somebody else; how the
    first ones failed. `ways`: in one transaction, or sent and then removed."""

    act: str
    done: int
    failed: int
    gone: int
    ways: dict[str, int]
    failures: list[Failure]
    command: str


def dry_run(asked: WebRequest) -> DryRun:
    plan: PlanRequest = asked.body
    row = asked.services.queue(asked.caller.ticket, plan.queue)
    _check(plan, row)
    criteria, now = _criteria(plan), time.time()
    with asked.queue_manager() as manager:
        if plan.to is not None and missing(manager, [path_of(plan.to)]):
            raise Problem(422, f"there is no queue {plan.to}", errors={"/to": "not there"})
        found = select(manager, [row["open"]], criteria, now, limit=plan.limit, scan=SCANNED, previews=False)
        absent = [] if plan.to is not None or plan.act == "delete" else missing(
            manager, (chosen.destination for chosen in found.chosen)
        )  # fmt: skip
    warnings = [f"there is no queue {name}: what is for it stays where it is" for name in absent]
    if any(reason_of(chosen.message_class).fails_again for chosen in found.chosen) and plan.act != "delete":
        warnings.append("some of them would die again as they are, for the same reason")
    if found.chosen and not found.token:
        raise Problem(409, "this queue gives no sequence numbers, so nothing can be selected in it")
    sealed = asked.services.seals.seal(
        {"sid": asked.caller.sid, "plan": msgspec.to_builtins(plan), "token": found.token, "now": now}
    )
    return DryRun(
        plan.act, row["name"], len(found.chosen), sum(chosen.size for chosen in found.chosen), found.scanned,
        found.complete, [_shown(plan, chosen) for chosen in found.chosen[:_SAMPLE]], warnings, sealed, int(_VALID),
        _command(plan, row),
    )  # fmt: skip


def operate(asked: WebRequest) -> Result:
    order: Order = asked.body
    known = asked.services.seals.open(order.selection, "selection")
    if known.get("sid") != asked.caller.sid or time.time() - known["now"] > _VALID:
        raise Problem(409, "this dry run is not yours, or too old: make it again")
    plan = msgspec.convert(known["plan"], PlanRequest)
    token = parse_token(known["token"])
    if token.found != order.count:
        raise Problem(412, f"the dry run has found {token.found} messages, not {order.count}")
    row = asked.services.queue(asked.caller.ticket, plan.queue)
    with asked.queue_manager() as manager:
        found = select(
            manager, [row["open"]], _criteria(plan), known["now"], limit=plan.limit, scan=SCANNED, token=token,
            previews=False,
        )  # fmt: skip
        if len(found.chosen) > token.found:
            raise Problem(409, f"the dry run has found {token.found} messages, and there are {len(found.chosen)} now: "
                          "a transaction has ended meanwhile; make it again")  # fmt: skip
        after = {"to": plan.to} if plan.to is not None else None
        record(asked, f"messages.{plan.act}", "queue", row["name"], count=len(found.chosen), after=after)
        result = _carried_out(manager, plan, row, found, token.found, _command(plan, row))
    asked.services.rows.forget(asked.caller.ticket)
    return result


def _carried_out(
    manager: Any, plan: PlanRequest, row: Mapping[str, Any], found: Selection, expected: int, command: str
) -> Result:
    changes = MessageEdits(
        plan.changes.label, plan.changes.text, plan.changes.priority, plan.changes.time_to_reach_queue,
        plan.changes.time_to_be_received,
    )  # fmt: skip
    to = path_of(plan.to) if plan.to is not None else None
    deed = MessageAction(plan.act, (row["open"],), to, changes, plan.transaction)
    ways: dict[str, int] = {}
    failures: list[Failure] = []
    failed, gone = 0, expected - len(found.chosen)
    with action(manager, deed) as does:
        for done in act(manager, found, does):
            if done.error is not None:
                failed += 1
                if len(failures) < _FAILURES:
                    failures.append(Failure(done.chosen.id, str(done.error), f"0x{done.error.hresult:08X}"))
            elif done.how is None:
                gone += 1
            else:
                ways[done.how] = ways.get(done.how, 0) + 1
    return Result(plan.act, sum(ways.values()), failed, gone, ways, failures, command)


def _check(plan: PlanRequest, row: Mapping[str, Any]) -> None:
    """Raises Problem naming what does not fit."""
    wrong: dict[str, str] = {}
    if (plan.where == MessageFilter()) != plan.all:
        wrong["/all"] = "say which messages: conditions in `where`, or `all`, not both"
    if plan.act in NEEDS_TARGET and not plan.to:
        wrong["/to"] = f"{plan.act} needs a queue to go to"
    if plan.act in HAS_NO_TARGET and plan.to is not None:
        wrong["/to"] = f"{plan.act} has no other queue to go to"
    if plan.act == "return" and row["kind"] != "deadletter":
        wrong["/act"] = "only dead letters are returned"
    if row["kind"] == "outgoing":
        wrong["/queue"] = "messages on their way to other machines can be purged only"
    if wrong:
        raise Problem(422, "; ".join(wrong.values()), errors=wrong)


def _criteria(plan: PlanRequest) -> Criteria:
    where = plan.where
    try:
        classes = frozenset([find_reason(where.reason).code]) if where.reason is not None else None
    except ValueError as error:
        raise Problem(422, str(error), errors={"/where/reason": str(error)}) from None
    return Criteria(
        ids=None if where.ids is None else frozenset(where.ids), label=where.label, correlation=where.correlation,
        classes=classes, destination=where.destination, older=where.older, newer=where.newer, larger=where.larger,
        smaller=where.smaller, text=where.text,
    )  # fmt: skip


def _shown(plan: PlanRequest, chosen: Chosen) -> SelectedMessageView:
    reason = reason_of(chosen.message_class) if chosen.message_class & 0x8000 else None
    to = "" if plan.act == "delete" else plan.to or chosen.destination
    again = reason is not None and reason.fails_again
    return SelectedMessageView(chosen.id, chosen.label, reason.slug if reason else None, to, chosen.size, again)


def _command(plan: PlanRequest, row: Mapping[str, Any]) -> str:
    """The equal command, for a shell."""
    where = plan.where
    words = ["openmsmq"]
    if row["kind"] == "deadletter" and plan.act in ("return", "resend", "delete"):
        words += ["dlq", "purge" if plan.act == "delete" else plan.act, "--queue", row["name"]]
    else:
        words += ["msg", plan.act, row["name"]]
    for identifier in where.ids or ():
        words += ["--id", identifier]
    for option, value in (
        ("--label", where.label), ("--correlation", where.correlation), ("--reason", where.reason),
        ("--meant-for", where.destination), ("--older", where.older), ("--newer", where.newer),
        ("--larger", where.larger), ("--smaller", where.smaller), ("--text", where.text),
        ("--to" if words[1] == "dlq" else "--to-queue", plan.to), ("--set-label", plan.changes.label),
        ("--ttl", plan.changes.time_to_be_received), ("--reach-ttl", plan.changes.time_to_reach_queue),
    ):  # fmt: skip
        if value is not None:
            words += [option, str(value)]
    words += ["--all"] if plan.all else []
    words += ["--transaction"] if plan.transaction else []
    return join([*words, "--limit", str(plan.limit)])


OPERATIONS: Final = (
    HttpOperation("POST", "/dry-runs", dry_run, "What an operation would do, and the token for doing it", DryRun,
                  body=PlanRequest,
              statuses=(404, 409), role=Role.OPERATOR),
    HttpOperation("POST", "/operations", operate, "Do what a dry run has found", Result, body=Order,
              statuses=(400, 404, 409, 412, 507), role=Role.OPERATOR),
)  # fmt: skip
