"""Actions on many messages: a dry run finds them and returns a token, which the action requires."""

from __future__ import annotations

import time
from collections.abc import Mapping
from shlex import join
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from openmsmq.actions.errors import ActionRefused, InputError
from openmsmq.actions.fields import CommandText, RecordNumber, Text, doc
from openmsmq.actions.filters import criteria_of, options_of
from openmsmq.actions.limits import SCANNED
from openmsmq.actions.messages import Bytes, Lifetime, MessageId, Seconds
from openmsmq.actions.queues import QueueName, daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Input, Output, action
from openmsmq.admin import acting
from openmsmq.admin.acting import Act
from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.naming import path_of
from openmsmq.admin.queues import missing
from openmsmq.admin.selection import Chosen, Criteria, Selection, act, select, select_again
from openmsmq.model.reasons import reason_of
from openmsmq.model.roles import Role

MOST: Final = 1000  # maximum messages of one operation, which returns after the last of them
_SAMPLE: Final = 20
_FAILURES: Final = 100
_VALID: Final = 900.0  # lifetime of a dry run in seconds
_LINE_BY_LINE: Final = "it reports each message as it is processed, without a limit"
_COMMANDS: Final = (
    "msg move", "msg copy", "msg resend", "msg delete", "dlq return", "dlq resend", "dlq purge", "journal resend",
    "journal purge",
)  # fmt: skip
_OF_OPERATORS: Final[dict[str, Any]] = {"role": Role.OPERATOR, "place": "queue manager"}
ActWord = Annotated[Act, doc("The action: `return` is for dead letters, `resend` for any message.")]


ActDone = Annotated[str, doc("The action.", "return")]


#: Characters of a new body, and of a selection, which contains the body: up to 8 for each.
_TEXT: Final = 200_000
_SEALED: Final = 2_000_000


class MessageFilter(Input, frozen=True):
    """Selects messages that match all given conditions."""

    ids: Annotated[Annotated[list[Text], Meta(max_length=MOST)] | None, doc("Identifiers of messages.")] = None
    find: Annotated[Text | None, doc("Text in the label or body, or 8 characters or more of the identifier.")] = None
    label: Annotated[Text | None, doc("Text in the label, or a pattern with * and ?.")] = None
    correlation: Annotated[Text | None, doc("A correlation identifier.")] = None
    reason: Annotated[
        Text | None,
        doc("Reason of dead letters: a word, a name or a number.", "expired-unread"),
    ] = None
    destination: Annotated[Text | None, doc("Format name of the destination, or text in it.")] = None
    older: Annotated[Seconds | None, doc("Minimum time in the queue, in seconds.")] = None
    newer: Annotated[Seconds | None, doc("Maximum time in the queue, in seconds.")] = None
    larger: Annotated[Bytes | None, doc("Minimum size of the body, in bytes.")] = None
    smaller: Annotated[Bytes | None, doc("Maximum size of the body, in bytes.")] = None
    text: Annotated[Text | None, doc("Text in the body.")] = None


class Edits(Input, frozen=True):
    """Changes to messages that are resent."""

    label: Annotated[Annotated[str, Meta(max_length=249)] | None, doc("New label.")] = None
    text: Annotated[Annotated[str, Meta(max_length=_TEXT)] | None, doc("New body, as text.")] = None
    priority: Annotated[Annotated[int, Meta(ge=0, le=7)] | None, doc("New priority.")] = None
    time_to_reach_queue: Annotated[
        Lifetime | None, doc("New time limit to reach the queue, in seconds from the time of resending.")
    ] = None
    time_to_be_received: Annotated[
        Lifetime | None, doc("New time limit to be received, in seconds from the time of sending.")
    ] = None


class PlanRequest(Input, frozen=True):
    """A request for a dry run."""

    act: ActWord
    queue: Annotated[str, Meta(max_length=20, description="Identifier of the queue.", examples=["p7"])]
    where: Annotated[MessageFilter, doc("Selects the messages.")] = MessageFilter()
    all: Annotated[bool, doc("All messages; required if `where` is empty.")] = False
    limit: Annotated[int, Meta(ge=1, le=MOST, description="Maximum number of messages.")] = MOST
    to: Annotated[
        Annotated[str, Meta(max_length=1024)] | None,
        doc("Name of the target queue; required for `move` and `copy`.", "orders"),
    ] = None
    changes: Annotated[Edits, doc("Changes to messages that are resent.")] = Edits()
    transaction: Annotated[bool, doc("Treat the target queue as transactional (required if it is remote).")] = False


class SelectedMessageView(Output, frozen=True):
    """A message that a dry run has found."""

    id: MessageId
    label: Annotated[str, doc("Its label.")]
    reason: Annotated[str | None, doc("Why it is a dead letter, as one word; null if it is none.")]
    to: Annotated[str, doc("Target queue; empty for none.")]
    size: Annotated[int, doc("Bytes of its body.")]
    fails_again: Annotated[bool, doc("Whether the message, sent unchanged, would become a dead letter again.")]


class DryRun(Output, frozen=True):
    """Result of a dry run."""

    act: ActDone
    queue: QueueName
    count: Annotated[int, doc("Number of selected messages.")]
    bytes: Annotated[int, doc("Bytes of their bodies.")]
    scanned: Annotated[int, doc("Number of messages examined.")]
    complete: Annotated[bool, doc("Whether all messages were examined, that is, no limit was reached.")]
    sample: Annotated[list[SelectedMessageView], doc("The first of the messages.")]
    warnings: Annotated[list[str], doc("Warnings.")]
    selection: Annotated[str, doc("Token for `/operations`: exactly these messages, and none that arrive later.")]
    seconds: Annotated[int, doc("Validity of `selection` in seconds.")]
    command: CommandText


class Order(Input, frozen=True):
    """A dry run to carry out."""

    selection: Annotated[str, Meta(max_length=_SEALED, description="`selection` of the dry run.")]
    count: Annotated[int, Meta(ge=0, description="`count` of the dry run, as confirmation.")]


class FailedMessage(Output, frozen=True):
    """A message that could not be processed; it was not moved."""

    id: MessageId
    detail: Annotated[str, doc("The reason.")]
    hresult: Annotated[str, doc("The error.", "0xC00E0025")]


class Result(Output, frozen=True):
    """Result of an action."""

    act: ActDone
    done: Annotated[int, doc("Processed messages.")]
    failed: Annotated[int, doc("Messages that could not be processed and remain where they were.")]
    gone: Annotated[int, doc("Messages that another reader had received or locked.")]
    ways: Annotated[dict[str, int], doc("Number of messages by method: in one transaction, or sent and then removed.")]
    failures: Annotated[list[FailedMessage], doc("The first that failed.")]
    record: RecordNumber
    command: CommandText


@action(
    "messages.plan", http="POST /dry-runs", statuses=(404, 409), **_OF_OPERATORS,
    commands=tuple(ActionCommand(words, dict.fromkeys(PlanRequest.__struct_fields__, ""), by_hand=_LINE_BY_LINE)
                   for words in _COMMANDS),
)  # fmt: skip
def dry_run(site: ActionSite, given: PlanRequest) -> DryRun:
    """Return the result of an operation without doing it, and the token for doing it."""
    plan, manager, daemon = given, site.manager, daemon_of(site)
    row = daemon.queue(plan.queue)
    check_act(plan.act, plan.to, plan.where, plan.all, row)
    criteria, now = _criteria(plan), time.time()
    if plan.to is not None and missing(manager, [path_of(plan.to)]):
        raise InputError(f"there is no queue {plan.to}", "/to")
    found = select(manager, [row["open"]], criteria, now, limit=plan.limit, scan=SCANNED, previews=False)
    absent = [] if plan.to is not None or plan.act == "delete" else missing(
        manager, (chosen.destination for chosen in found.chosen)
    )  # fmt: skip
    warnings = [f"there is no queue {name}: its messages stay where they are" for name in absent]
    if any(reason_of(chosen.message_class).fails_again for chosen in found.chosen) and plan.act != "delete":
        warnings.append("some of the messages would become dead letters again for the same reason")
    if found.chosen and not found.token:
        raise ActionRefused(409, "messages of this queue have no sequence numbers, so they cannot be selected")
    lookups = [chosen.lookup for chosen in found.chosen]
    sealed = daemon.seal({"sid": site.caller.sid, "plan": msgspec.to_builtins(plan), "lookups": lookups, "now": now})
    return DryRun(
        plan.act, row["name"], len(found.chosen), sum(chosen.size for chosen in found.chosen), found.scanned,
        found.complete, [_shown(plan, chosen) for chosen in found.chosen[:_SAMPLE]], warnings, sealed, int(_VALID),
        command_of(plan, row),
    )  # fmt: skip


@action(
    "messages.act", http="POST /operations", effect="destroys", audit=("messages.*",),
    statuses=(400, 404, 409, 412), **_OF_OPERATORS,
    commands=tuple(ActionCommand(words, dict.fromkeys(Order.__struct_fields__, ""), by_hand=_LINE_BY_LINE)
                   for words in _COMMANDS),
)  # fmt: skip
def operate(site: ActionSite, given: Order) -> Result:
    """Carry out a dry run."""
    daemon = daemon_of(site)
    known = daemon.unseal(given.selection, "selection")
    if known.get("sid") != site.caller.sid or time.time() - known["now"] > _VALID:
        raise ActionRefused(409, "this dry run has expired or belongs to another user: run it again")
    plan = msgspec.convert(known["plan"], PlanRequest)
    lookups = frozenset(known["lookups"])
    if len(lookups) != given.count:
        raise ActionRefused(412, f"the dry run found {len(lookups)} messages, not {given.count}")
    row = daemon.queue(plan.queue)
    found = select_again(site.manager, row["open"], lookups)
    after = {"to": plan.to} if plan.to is not None else None
    number = site.record(f"messages.{plan.act}", "queue", row["name"], count=len(found.chosen), after=after)
    result = _carried_out(site.manager, plan, row, found, len(lookups), number)
    daemon.changed()
    return result


def _carried_out(
    manager: Any, plan: PlanRequest, row: Mapping[str, Any], found: Selection, expected: int, record: int | None
) -> Result:
    changes = MessageEdits(
        plan.changes.label, plan.changes.text, plan.changes.priority, plan.changes.time_to_reach_queue,
        plan.changes.time_to_be_received,
    )  # fmt: skip
    to = path_of(plan.to) if plan.to is not None else None
    work = acting.MessageAction(plan.act, (row["open"],), to, changes, plan.transaction)
    ways: dict[str, int] = {}
    failures: list[FailedMessage] = []
    failed, gone = 0, expected - len(found.chosen)
    with acting.action(manager, work) as does:
        for done in act(manager, found, does):
            if done.error is not None:
                failed += 1
                if len(failures) < _FAILURES:
                    failures.append(FailedMessage(done.chosen.id, str(done.error), f"0x{done.error.hresult:08X}"))
            elif done.how is None:
                gone += 1
            else:
                ways[done.how] = ways.get(done.how, 0) + 1
    audited = str(record) if record is not None else None
    return Result(plan.act, sum(ways.values()), failed, gone, ways, failures, audited, command_of(plan, row))


def check_act(act_: Act, to: str | None, where: MessageFilter, all_: bool, row: Mapping[str, Any]) -> None:
    """Check an action and its target. Raises InputError that names invalid fields."""
    wrong: dict[str, str] = {}
    if (where == MessageFilter()) != all_:
        wrong["/all"] = "select messages: conditions in `where`, or `all`, not both"
    if act_ in acting.NEEDS_TARGET and not to:
        wrong["/to"] = f"{act_} requires a target queue"
    if act_ in acting.HAS_NO_TARGET and to is not None:
        wrong["/to"] = f"{act_} accepts no target queue"
    if act_ == "return" and row["kind"] != "deadletter":
        wrong["/act"] = "return is for dead letters only"
    if row["kind"] == "outgoing":
        wrong["/queue"] = "messages in outgoing queues can only be purged"
    if wrong:
        raise InputError("; ".join(wrong.values()), errors=wrong)


def _criteria(plan: PlanRequest) -> Criteria:
    return criteria_of(plan.where, "/where")


def _shown(plan: PlanRequest, chosen: Chosen) -> SelectedMessageView:
    reason = reason_of(chosen.message_class) if chosen.message_class & 0x8000 else None
    to = "" if plan.act == "delete" else plan.to or chosen.destination
    again = reason is not None and reason.fails_again
    return SelectedMessageView(chosen.id, chosen.label, reason.slug if reason else None, to, chosen.size, again)


def command_of(plan: PlanRequest, row: Mapping[str, Any]) -> str:
    """Return the equivalent shell command."""
    words = ["openmsmq"]
    if row["kind"] == "deadletter" and plan.act in ("return", "resend", "delete"):
        words += ["dlq", "purge" if plan.act == "delete" else plan.act, "--queue", row["name"]]
    elif row["kind"] == "journal" and plan.act == "resend":
        words += ["journal", "resend", row["name"], "--remove"]
    else:
        words += ["msg", plan.act, row["name"]]
    words += options_of(plan.where)
    for option, value in (
        ("--to-queue" if words[1] == "msg" else "--to", plan.to), ("--set-label", plan.changes.label),
        ("--ttl", plan.changes.time_to_be_received), ("--reach-ttl", plan.changes.time_to_reach_queue),
    ):  # fmt: skip
        if value is not None:
            words += [option, str(value)]
    words += ["--all"] if plan.all else []
    words += ["--transaction"] if plan.transaction else []
    return join([*words, "--limit", str(plan.limit)])


ACTIONS: Final = (dry_run, operate)
