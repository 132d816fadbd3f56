"""Dead letters by reason."""

from __future__ import annotations

import time
from shlex import quote
from typing import Annotated, Final, Literal

from openmsmq.actions.fields import CommandText, EpochSeconds, doc
from openmsmq.actions.limits import SCANNED
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Input, Output, action
from openmsmq.admin import dead_letters
from openmsmq.admin.naming import DEAD_LETTER_QUEUES, path_of
from openmsmq.admin.selection import Criteria, select
from openmsmq.model.errors import AccessDenied, MsmqError
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import Role

DeadLetterQueue = Literal["deadletter", "xactdeadletter"]


class DeadLetterReasonView(Output, frozen=True):
    """The reason of dead letters."""

    slug: Annotated[str, doc("The reason as one word.", "expired-unread")]
    name: Annotated[str, doc("Name of the message class.", "RECEIVE_TIMEOUT")]
    sentence: Annotated[str, doc("What happened.")]
    remedy: Annotated[str, doc("What to do about it.")]
    fails_again: Annotated[bool, doc("Whether the message, sent unchanged, would become a dead letter again.")]


class DeadLetterGroupView(Output, frozen=True):
    """Dead letters with the same reason and destination."""

    queue: Annotated[str, doc("The dead-letter queue that they are in.", "deadletter")]
    reason: Annotated[str, doc("The reason as one word.", "expired-unread")]
    name: Annotated[str, doc("Name of the message class.", "RECEIVE_TIMEOUT")]
    sentence: Annotated[str, doc("What happened.")]
    remedy: Annotated[str, doc("What to do about it.")]
    fails_again: Annotated[bool, doc("Whether they would become dead letters again if sent unchanged.")]
    destination: Annotated[str, doc("Format name of the destination queue.")]
    messages: Annotated[int, doc("Number of messages.")]
    bytes: Annotated[int, doc("Total size in bytes.")]
    first_sent: Annotated[EpochSeconds, doc("When the first was sent, in seconds since 1970.")]
    last_sent: Annotated[EpochSeconds, doc("When the last was sent, in seconds since 1970.")]
    command: CommandText


class DeadLetterGroups(Output, frozen=True):
    """Dead letters by reason and destination."""

    groups: Annotated[list[DeadLetterGroupView], doc("The groups, the largest first.")]
    scanned: Annotated[int, doc("Number of messages examined.")]
    complete: Annotated[bool, doc("Whether all messages were examined, or only the first ones.")]
    command: CommandText


class GroupsQuery(Input, frozen=True):
    """Selects dead letters."""

    queue: Annotated[DeadLetterQueue | None, doc("Only this queue; both by default.")] = None


@action(
    "deadletters.groups", http="GET /deadletters/groups", role=Role.MONITOR, statuses=(409,),
    place="queue manager",
    commands=(ActionCommand("dlq list", {"queue": "--queue"}, by_hand="it takes criteria and examines all messages"),),
)  # fmt: skip
def list_groups(site: ActionSite, given: GroupsQuery) -> DeadLetterGroups:
    """Show dead letters by reason and destination."""
    found: list[DeadLetterGroupView] = []
    scanned, complete = 0, True
    failed: list[str] = []
    names = DEAD_LETTER_QUEUES if given.queue is None else (given.queue,)
    for name in names:
        try:
            selection = select(site.manager, [path_of(name)], Criteria(), time.time(), scan=SCANNED, previews=False)
        except MsmqError as error:
            if len(failed) == len(names) - 1:  # no queue could be read
                raise
            failed.append(name)
            if not isinstance(error, AccessDenied):
                LEFT_OUT.note("lists of dead letters", name, error)
            complete = False
            continue
        scanned += selection.scanned
        complete = complete and selection.complete
        found += [_group(name, group) for group in dead_letters.groups(selection.chosen)]
    found.sort(key=lambda group: -group.messages)
    return DeadLetterGroups(found, scanned, complete, "openmsmq dlq list")


def _group(queue: str, group: dead_letters.DeadLetterGroup) -> DeadLetterGroupView:
    reason = group.reason
    command = f"openmsmq dlq return --queue {queue} --reason {reason.slug} --meant-for {quote(group.destination)}"
    return DeadLetterGroupView(
        queue, reason.slug, reason.name, reason.sentence, reason.remedy, reason.fails_again, group.destination,
        group.messages, group.bytes, group.first, group.last, f"{command} --dry-run",
    )  # fmt: skip


ACTIONS: Final = (list_groups,)
