"""Incoming transactional sequences from other queue managers. For administrators."""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, EpochSeconds, QueueText, Text, doc
from openmsmq.actions.queues import Limit, QueueName, daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, ActionPlan, Input, LineView, Output, Rows, action
from openmsmq.model.roles import Role
from openmsmq.model.text import counted, time_text

_SOURCE: Final = "Identifier of the queue manager that sends."


class SequenceView(Output, frozen=True):
    """The position of a queue manager that sends transactional messages to a queue."""

    queue: Annotated[str, doc("Identifier of the queue.", "p7")]
    name: QueueName
    source: Annotated[str, doc(_SOURCE)]
    sequence: Annotated[str, doc("Identifier of the sequence: a number of 64 bits.", "17")]
    number: Annotated[int, doc("Number of the last message that was accepted.")]
    rejected: Annotated[int, doc("Number of rejected messages.")]
    accessed: Annotated[EpochSeconds, doc("When the last message arrived, in seconds since 1970.")]


class SequenceList(Output, frozen=True):
    """Transactional sequences."""

    sequences: Annotated[list[SequenceView], doc("Matching sequences, latest first.")]
    matching: Annotated[int, doc("Number of matches.")]
    command: CommandText


class SequenceQuery(Input, frozen=True):
    """Selects sequences."""

    queue: Annotated[Text | None, doc("Identifier of a queue.", "p7")] = None
    source: Annotated[Text | None, doc(_SOURCE)] = None
    limit: Annotated[Limit, doc("Show at most this many.")] = 100


class SequenceName(Input, frozen=True):
    """A sequence."""

    queue: QueueText
    source: Annotated[UUID, doc(_SOURCE)]


class ForgottenSequence(Output, frozen=True):
    """A sequence that was, or would be, forgotten."""

    queue: QueueName
    source: Annotated[str, doc(_SOURCE)]
    sequence: Annotated[SequenceView, doc("The sequence before it was forgotten.")]
    done: Annotated[bool, doc("Whether it was forgotten.")]
    command: CommandText


def _cells(each: SequenceView) -> list[Any]:
    return [each.name, each.source, each.number, each.rejected, time_text(each.accessed), each.sequence]


def _note(found: SequenceList) -> str:
    shown = len(found.sequences)
    return f"{shown:,} of {counted(found.matching, 'sequence')} are shown (--limit)" if found.matching > shown else ""


def _said(found: ForgottenSequence) -> str:
    return f"the sequence of {found.source} into {found.queue}, last number {found.sequence.number:,}"


def _document(found: ForgottenSequence) -> dict[str, Any]:
    return {**msgspec.structs.asdict(found.sequence), "done": found.done}


def _sequences(site: ActionSite, queue: str | None, source: str | None) -> list[SequenceView]:
    rows = [
        row
        for row in msgspec.json.Decoder(dict).decode_lines(daemon_of(site).lines("sequences"))
        if queue in (None, row["queue"]) and source in (None, row["source"])
    ]
    rows.sort(key=lambda row: (-row["accessed"], row["name"].casefold(), row["source"]))
    return [msgspec.convert({**row, "sequence": str(row["sequence"])}, SequenceView) for row in rows]


@action(
    "sequence.list", http="GET /sequences", role=Role.MONITOR, place="daemon",
    commands=(
        ActionCommand(
            "sequence list", {"queue": "[QUEUE]", "limit": "--limit"},
            Rows(
                lambda found: found.sequences,
                ("queue", "source", "last number", "rejected", "last message", "sequence"), _cells,
                empty="no other queue manager has sent transactional messages here", note=_note,
            ),
            help="Show the transactional sequences that arrive in QUEUE, or in any queue, the latest first.\n\n"
            "SOURCE is the identifier of the queue manager that sends them. For administrators of the queue manager; "
            "a token of the role monitor is sufficient.",
        ),
    ),
)  # fmt: skip
def list_sequences(site: ActionSite, given: SequenceQuery) -> SequenceList:
    """Show transactional sequences from other queue managers."""
    found = _sequences(site, given.queue, given.source)
    name = f" {quote(found[0].name)}" if given.queue is not None and found else ""
    return SequenceList(found[: given.limit], len(found), f"openmsmq sequence list{name}")


@action(
    "sequence.forget", http="DELETE /sequences/{queue}/{source}", effect="destroys", statuses=(404, 507),
    place="daemon", dry_run="query", looking=Role.MONITOR,
    commands=(
        ActionCommand(
            "sequence forget", {"queue": "QUEUE", "source": "SOURCE"},
            LineView(lambda found: f"forgotten: {_said(found)}", _document),
            show_plan=LineView(lambda found: f"would be forgotten: {_said(found)}", _document),
            question=lambda found: f"Forget {_said(found)}? What it sends again is accepted once more.",
            help="Delete the position of the queue manager SOURCE in QUEUE: its next message begins a new sequence.\n\n"
            "Use this for a queue manager that no longer exists, or whose messages are refused because another "
            "machine has sent in its name. Messages whose acknowledgment SOURCE has not received arrive a second "
            "time. For administrators of the queue "
            "manager, with a token of the role administrator. The audit log records it. Exit code 3 if there is no "
            "such "
            "sequence.",
        ),
    ),
)  # fmt: skip
def forget_sequence(site: ActionSite, given: SequenceName) -> ActionPlan[ForgottenSequence, ForgottenSequence]:
    """Forget a sequence: the next message begins a new one.

    Messages that the source resends are accepted again and may be duplicates.
    """
    name, source = site.queue["name"], str(given.source)
    missing = f"{name} has no sequence of the queue manager {source[:40]}"
    found = _sequences(site, site.queue["id"], source)
    if not found:
        raise ActionRefused(404, missing)
    command = f"openmsmq sequence forget {quote(name)} {quote(source)}"
    would = ForgottenSequence(name, source, found[0], False, command)

    def carry_out() -> ForgottenSequence:
        if not daemon_of(site).change("forget_sequence", id=site.queue["id"], source=source):
            raise ActionRefused(404, missing)
        return msgspec.structs.replace(would, done=True)

    return ActionPlan(lambda: would, carry_out)


ACTIONS: Final = (list_sequences, forget_sequence)
