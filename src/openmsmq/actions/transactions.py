"""Distributed transactions: list, explain and manually resolve them. For administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, EpochSeconds, Text, doc
from openmsmq.actions.queues import Limit, QueueName, daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, ActionPlan, Input, LineView, Output, Rows, action
from openmsmq.admin.distributed import with_host
from openmsmq.model.distributed_states import DistributedState, Resolution, refusal
from openmsmq.model.roles import Role
from openmsmq.model.text import counted, time_text

_ID: Final = "0123456789abcdef0123456789abcdef"


class PartnerView(Output, frozen=True):
    """A transaction manager that takes part."""

    host: Annotated[str, doc("Name of its computer.", "MQ2")]
    contact: Annotated[str, doc("Its contact identifier, a GUID.")]
    role: Annotated[Literal["superior", "subordinate"], doc("Superior decides; subordinate follows this one.")]
    state: Annotated[str, doc("State of the enlistment.", "in doubt")]
    trying: Annotated[str, doc("The request that is repeated; empty if none.", "asking it for the outcome")]
    failure: Annotated[str, doc("Why the last attempt failed, or the state was entered; may be empty.")]


class HeldMessages(Output, frozen=True):
    """Messages of a queue that a transaction holds."""

    queue: QueueName
    locked: Annotated[int, doc("Number of messages that are received or moved in it: locked for others.")]
    sent: Annotated[int, doc("Number of messages that are sent in it: invisible until it commits.")]


class PossibleResolution(Output, frozen=True):
    """A possible manual resolution of a transaction."""

    resolution: Annotated[Resolution, doc("The decision.")]
    does: Annotated[str, doc("Effect of the decision here.")]
    warning: Annotated[str, doc("Risk of the decision.")]


class DistributedTransactionView(Output, frozen=True):
    """A transaction in which other transaction managers take part."""

    id: Annotated[str, doc("Its unit of work: 32 hexadecimal digits, as in the log.", _ID)]
    guid: Annotated[str, doc("The same as a GUID, as Windows shows it.")]
    role: Annotated[
        Literal["began here", "branch"],
        doc("Whether it began here or has a superior. If only the confirmation is missing, a restart forgets the "
            "superior."),
    ]  # fmt: skip
    state: Annotated[DistributedState, doc("Its state.", "in doubt")]
    since: Annotated[EpochSeconds, doc("When it began, or was restored after a restart, in seconds since 1970.")]
    partners: Annotated[list[PartnerView], doc("The transaction managers that take part.")]
    held: Annotated[list[HeldMessages], doc("The messages that it holds, by queue.")]
    explanation: Annotated[list[str], doc("What it waits for, which machine decides, and what to do.")]
    resolutions: Annotated[list[PossibleResolution], doc("Possible resolutions; empty if it ends automatically.")]


class DistributedTransactionList(Output, frozen=True):
    """Distributed transactions."""

    transactions: Annotated[
        list[DistributedTransactionView], doc("Transactions that wait for another machine first, then by age.")
    ]
    matching: Annotated[int, doc("Total number.")]
    command: CommandText


class DistributedTransactionQuery(Input, frozen=True):
    """Limits the number of transactions."""

    limit: Annotated[Limit, doc("Show at most this many.")] = 100


class NamedTransaction(Input, frozen=True):
    """A distributed transaction."""

    transaction: Annotated[Text, doc("Its identifier: 32 hexadecimal digits, or a GUID.", _ID)]


class DistributedTransactionDetails(Output, frozen=True):
    """A distributed transaction."""

    transaction: Annotated[DistributedTransactionView, doc("The transaction.")]
    command: CommandText


class TransactionEnd(Input, frozen=True):
    """A resolution of a distributed transaction."""

    transaction: Annotated[Text, doc("Its identifier: 32 hexadecimal digits, or a GUID.", _ID)]
    resolution: Annotated[
        Resolution,
        doc("commit or abort if it is in doubt; forget if it is committed here but unconfirmed."),
    ]  # fmt: skip


class ResolvedTransaction(Output, frozen=True):
    """A transaction that was, or would be, resolved manually."""

    transaction: Annotated[DistributedTransactionView, doc("State before the resolution.")]
    resolution: Annotated[Resolution, doc("The decision.")]
    does: Annotated[str, doc("Effect of the decision here.")]
    warning: Annotated[str, doc("Risk of the decision.")]
    state: Annotated[str, doc("Its state afterwards: `ended`, or what is left to do.", "ended")]
    done: Annotated[bool, doc("Whether it was done.")]
    command: CommandText


def _partners(each: DistributedTransactionView) -> str:
    return ", ".join(f"{one.role} {one.host}: {one.state}" for one in each.partners)


def _trying(each: DistributedTransactionView) -> str:
    attempts = [with_host(one.host, one.failure or one.trying) for one in each.partners if one.trying or one.failure]
    return "; ".join(attempts)


def _messages(each: DistributedTransactionView) -> int:
    return sum(one.locked + one.sent for one in each.held)


def _cells(each: DistributedTransactionView) -> list[Any]:
    return [each.id, each.role, each.state, time_text(each.since), _messages(each), _partners(each), _trying(each)]


def _note(found: DistributedTransactionList) -> str:
    shown, every = len(found.transactions), found.matching
    return f"{shown:,} of {counted(every, 'transaction')} are shown (--limit)" if every > shown else ""


def _shown(found: DistributedTransactionDetails) -> list[str]:
    it = found.transaction
    lines = [f"transaction {it.id} (GUID {it.guid})", f"{it.role}, {it.state}, since {time_text(it.since)}"]
    for one in it.partners:
        doing = "".join(f"; {text}" for text in (one.trying, one.failure) if text)
        lines.append(f"{one.role} {one.host} ({one.contact}): {one.state}{doing}")
    lines += [f"{one.queue}: {one.locked:,} locked, {one.sent:,} sent" for one in it.held]
    return [*lines, *it.explanation]


def _document(found: ResolvedTransaction) -> dict[str, Any]:
    return {
        "transaction": found.transaction.id, "guid": found.transaction.guid, "before": found.transaction.state,
        "resolution": found.resolution, "does": found.does, "warning": found.warning, "state": found.state,
        "done": found.done,
    }  # fmt: skip


def _all(site: ActionSite) -> list[DistributedTransactionView]:
    return msgspec.json.Decoder(DistributedTransactionView).decode_lines(daemon_of(site).lines("transactions"))


def _identifier(text: str) -> str:
    """Return the hexadecimal digits of a unit of work; a GUID has the bytes of its first three parts in reverse
    order."""
    try:
        return (UUID(text).bytes_le if "-" in text else bytes.fromhex(text)).hex()
    except ValueError:
        return text


def _find(site: ActionSite, text: str) -> DistributedTransactionView:
    wanted = _identifier(text)
    found = next((each for each in _all(site) if each.id == wanted), None)
    if found is None:
        raise _missing(text)
    return found


def _missing(text: str) -> ActionRefused:
    return ActionRefused(404, f"there is no distributed transaction {text[:40]}: it has ended, or was never here")


@action(
    "transaction.list", http="GET /transactions", role=Role.MONITOR, place="daemon",
    commands=(
        ActionCommand(
            "transaction list", {"limit": "--limit"},
            Rows(
                lambda found: found.transactions,
                ("transaction", "here", "state", "since", "messages", "partners", "trying"), _cells,
                lambda each, _: msgspec.to_builtins(each),
                empty="no transaction spans several queue managers now", note=_note,
            ),
            help="Show the transactions in which other queue managers or transaction managers take part. Those that "
            "wait for another machine come first, then the oldest.\n\n"
            "For administrators of the queue manager; the role monitor is enough for the token.",
        ),
    ),
)  # fmt: skip
def list_transactions(site: ActionSite, given: DistributedTransactionQuery) -> DistributedTransactionList:
    """Show distributed transactions."""
    found = _all(site)
    return DistributedTransactionList(found[: given.limit], len(found), site.command)


@action(
    "transaction.show", http="GET /transactions/{transaction}", role=Role.MONITOR, place="daemon",
    commands=(
        ActionCommand(
            "transaction show", {"transaction": "ID"},
            LineView(_shown, lambda found: msgspec.to_builtins(found.transaction)),
            help="Show one distributed transaction: its partners, the messages that it holds, what it waits for, who "
            "decides, and what to do.\n\n"
            "ID has 32 hexadecimal digits, as in the log, or is a GUID. For administrators of the queue manager; the "
            "role monitor is enough for the token. Exit code 3 if there is no such transaction.",
        ),
    ),
)  # fmt: skip
def get_transaction(site: ActionSite, given: NamedTransaction) -> DistributedTransactionDetails:
    """Explain a distributed transaction."""
    return DistributedTransactionDetails(_find(site, given.transaction), site.command)


@action(
    "transaction.resolve", http="POST /transactions/{transaction}/resolve", effect="destroys",
    statuses=(404, 409, 507), place="daemon", dry_run="query", looking=Role.MONITOR,
    commands=(
        ActionCommand(
            "transaction resolve", {"transaction": "ID", "resolution": "RESOLUTION"},
            LineView(lambda found: [f"done: {found.does}", f"its state now: {found.state}"], _document),
            show_plan=LineView(lambda found: [f"would {found.does}", found.warning], _document),
            question=lambda found: f"{found.warning}\nReally {found.does}?",
            help="End a distributed transaction by hand, where the machine that it waits for is lost for good.\n\n"
            "commit and abort are for one that is in doubt. Its superior decides, and may have decided otherwise: then "
            "the machines differ for good. Find out first what was decided elsewhere. forget is for one that is "
            "committed here and that subordinates do not confirm: they are no longer told to commit. ID is that of "
            "openmsmq transaction list. For administrators of the queue manager, with a token of the role "
            "administrator; the audit log has it. Exit code 3 if there is no such transaction.",
        ),
    ),
)  # fmt: skip
def resolve_transaction(
    site: ActionSite, given: TransactionEnd
) -> ActionPlan[ResolvedTransaction, ResolvedTransaction]:
    """Resolve a distributed transaction manually.

    This is a heuristic decision: the superior of a transaction in doubt may have decided otherwise, and then the
    machines differ permanently. The role monitor is sufficient for a dry run.
    """
    found = _find(site, given.transaction)
    chosen = next((each for each in found.resolutions if each.resolution == given.resolution), None)
    if chosen is None:
        raise ActionRefused(409, refusal(found.id, found.state, given.resolution))
    would = ResolvedTransaction(
        found, chosen.resolution, chosen.does, chosen.warning, found.state, False, site.command
    )  # fmt: skip

    def carry_out() -> ResolvedTransaction:
        state = daemon_of(site).change("resolve_transaction", id=found.id, resolution=given.resolution)
        if state is None:
            raise _missing(found.id)
        return msgspec.structs.replace(would, state=state, done=True)

    return ActionPlan(lambda: would, carry_out)


ACTIONS: Final = (list_transactions, get_transaction, resolve_transaction)
