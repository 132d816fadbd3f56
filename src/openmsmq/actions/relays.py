"""Relays: move the messages of a queue from or to another machine. For administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, EpochSeconds, QueueText, Text, doc
from openmsmq.actions.queues import daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Always, Input, LineView, Output, Rows, Spelling, action
from openmsmq.admin.naming import SYSTEM_QUEUES, path_of
from openmsmq.model.relay_states import RelayState, RelayStep
from openmsmq.model.roles import Role
from openmsmq.model.text import counted, duration_text, time_text

_OVER: Final = ("done", "returned")  # states in which no messages are moved
_QUEUE: Final = "Path name of the local queue; also NAME;journal, deadletter or xactdeadletter."


class RefusedMessageView(Output, frozen=True):
    """A message that was refused by the machine it goes to; it stays at the source."""

    message: Annotated[str, doc("Its identifier.")]
    reason: Annotated[str, doc("The reason.")]
    since: Annotated[EpochSeconds, doc("Since when, in seconds since 1970.")]


class RelayView(Output, frozen=True):
    """The relay of a queue."""

    queue: Annotated[str, doc("Path name of the queue here.", ".\\private$\\orders")]
    id: Annotated[str, doc("Identifier of the queue here; empty if it is not there.", "p7")]
    host: Annotated[str, doc("The other machine.", "oldserver")]
    remote: Annotated[str, doc("Path name of the queue there.", "private$\\orders")]
    state: Annotated[
        RelayState,
        doc(
            "shadow: programs send to the other machine, and messages are fetched from it; switched: programs send "
            "here, and the remaining messages are fetched; done: no message is left there; returning: messages are "
            "sent back; returned: no message is left here; receiving, sending: a permanent bridge."
        ),
    ]
    replies: Annotated[
        bool,
        doc(
            "Whether unsigned messages that come from the other machine, and name the queue there as their response "
            "queue, get the name of the queue here."
        ),
    ]
    since: Annotated[EpochSeconds, doc("When it entered this state, in seconds since 1970.")]
    began: Annotated[EpochSeconds, doc("Time of creation, in seconds since 1970.")]
    moved: Annotated[int, doc("Messages moved in both directions.")]
    bytes: Annotated[int, doc("Bytes of these messages.")]
    last: Annotated[EpochSeconds, doc("When the last message was moved, in seconds since 1970; 0 for never.")]
    rate: Annotated[float, doc("Messages per second over the last minute.")]
    waiting: Annotated[int | None, doc("Messages still to be moved; null if unknown.")]
    lag: Annotated[
        int | None,
        doc("Lag behind the arrivals at the source, in seconds; null if unknown."),
    ]
    empty_since: Annotated[
        EpochSeconds,
        doc("Since when the source has been empty, in seconds since 1970; 0 if it is not empty."),
    ]
    seconds_left: Annotated[int | None, doc("Time until all are moved at the current rate; null if unknown.")]
    trouble: Annotated[str, doc("Why nothing moves; empty while it works.")]
    trouble_since: Annotated[EpochSeconds, doc("Since when, in seconds since 1970; 0 without trouble.")]
    refused: Annotated[list[RefusedMessageView], doc("Messages refused by the machine they go to.")]
    unconfirmed: Annotated[
        int,
        doc(
            "Messages of which it is not known whether the other machine has removed them; when they go there, whether "
            "they have arrived."
        ),
    ]
    steps: Annotated[list[RelayStep], doc("Steps that are possible now.")]


class RelayList(Output, frozen=True):
    """Relays."""

    relays: Annotated[list[RelayView], doc("Relays, sorted by queue.")]
    command: CommandText


class RelayQuery(Input, frozen=True):
    """Selects relays."""

    relay: Annotated[Text | None, doc(_QUEUE, ".\\private$\\orders")] = None


class NewRelay(Input, frozen=True):
    """A relay to create."""

    queue: QueueText
    host: Annotated[Text, doc("The other machine: computer name or address.", "oldserver")]
    remote: Annotated[Text | None, doc("Path name of the queue there; the same as here if left out.")] = None
    state: Annotated[
        Literal["shadow", "receiving", "sending"],
        doc("shadow to move a queue here; receiving or sending for a bridge that stays."),
    ] = "shadow"  # fmt: skip


class RelayStepInput(Input, frozen=True):
    """A step of a relay."""

    relay: Annotated[Text, doc(_QUEUE, ".\\private$\\orders")]
    step: Annotated[
        RelayStep,
        doc(
            "switch: programs send here from now on; done: end it when no message is left; back: send everything "
            "back; shadow: fetch messages again; forget: delete its record; end: end a bridge."
        ),
    ]  # fmt: skip
    force: Annotated[bool, doc("End the relay even if messages are left.")] = False
    replies: Annotated[
        bool,
        doc(
            "With the step switch: unsigned messages that relays fetch from now on, and that name the queue there as "
            "their response queue, get the name of the queue here."
        ),
    ] = False


class ChangedRelay(Output, frozen=True):
    """A relay after a change."""

    relay: Annotated[RelayView, doc("The current state.")]
    command: CommandText
    senders: Annotated[
        list[str], doc("After the step switch: what to change for each kind of sender of this queue, a sentence each.")
    ]


def _path_of(name: str) -> str:
    """Return a queue's name for relays: its path name without the name of this computer, which may change."""
    if name.lower() in SYSTEM_QUEUES:
        return relay_queue(name)
    kept = name.partition("\\")[2]
    return f".\\{kept.lower() if kept.lower().startswith('system$') else kept}"


def relay_queue(text: str) -> str:
    """Return the path name of a queue as used by relays."""
    system = SYSTEM_QUEUES.get(text.lower())
    if system is not None:
        return f".\\{system.rpartition(chr(92))[2].lower()}"
    return path_of(text)


def _remote_of(queue: str, given: str | None) -> str:
    """Return the path name at the other machine, without computer name."""
    name = relay_queue(given or queue)
    computer, separator, rest = name.partition("\\")
    return rest if separator and (computer == "." or rest.lower().startswith(("private$", "system$"))) else name


def _rows(site: ActionSite) -> list[RelayView]:
    return msgspec.json.Decoder(RelayView).decode_lines(daemon_of(site).lines("relays"))


def _state(each: RelayView) -> str:
    if each.trouble:
        return f"{each.state}, nothing moves: {each.trouble}"
    if each.refused:
        first = each.refused[0]
        count = counted(len(each.refused), "message")
        return f"{each.state}, {count} not taken; {first.message}: {first.reason}"
    if each.empty_since and each.state not in _OVER:
        return f"{each.state}, nothing left since {time_text(each.empty_since)}"
    return each.state


def _duration(seconds: int | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _cells(each: RelayView) -> list[Any]:
    direction = "to" if each.state in ("returning", "returned", "sending") else "from"
    return [
        each.queue, f"{direction} {each.host}\\{each.remote}", f"{each.moved:,}", f"{each.rate:,.1f}/s",
        "?" if each.waiting is None else f"{each.waiting:,}", *(_durations(each)), _state(each),
    ]  # fmt: skip


def _durations(each: RelayView) -> tuple[str, str]:
    """Return the lag and the remaining time as text; empty once the relay has ended."""
    return ("", "") if each.state in _OVER else (_duration(each.lag), _duration(each.seconds_left))


def change_line(each: RelayView) -> str:
    """Describe a relay in one line."""
    behind, remaining = _durations(each)
    figures = [f"{each.moved:,} moved", f"{each.rate:,.1f}/s"]
    figures += [f"{'?' if each.waiting is None else f'{each.waiting:,}'} left"] if each.state not in _OVER else []
    figures += [f"{behind} behind", f"{remaining} to go"] if behind else []
    return f"{each.queue}: {_state(each)}: {', '.join(figures)}"


def _lines(found: ChangedRelay) -> list[str]:
    return [f"{found.relay.queue}: {_state(found.relay)}", *found.senders]


RELAY_TABLE: Final = Rows(
    lambda found: found.relays, ("queue", "other queue", "moved", "rate", "left", "behind", "to go", "state"),
    _cells,
    lambda each, _: msgspec.to_builtins(each), empty="no queue has a relay",
)  # fmt: skip
_OTHER: Final[dict[str, Spelling]] = {"queue": "QUEUE", "host": "", "remote": "--remote NAME"}
_SHOWN: Final = LineView(
    _lines,
    lambda found: msgspec.to_builtins(found.relay) | ({"senders": found.senders} if found.senders else {}),
)


@action(
    "relay.list", http="GET /relays", role=Role.MONITOR, statuses=(404,), place="daemon",
    commands=(
        ActionCommand(
            "adopt status", {"relay": "[QUEUE]"}, RELAY_TABLE, by_hand="with --watch it runs continuously",
        ),
    ),
)  # fmt: skip
def list_relays(site: ActionSite, given: RelayQuery) -> RelayList:
    """Show the relays of queues from and to other machines."""
    if given.relay is None:
        return RelayList(_rows(site), site.command)
    wanted = relay_queue(given.relay).lower()
    found = [row for row in _rows(site) if row.queue.lower() == wanted]
    if not found:
        raise _missing(given.relay)
    return RelayList(found, site.command)


def _missing(queue: str) -> ActionRefused:
    return ActionRefused(404, f"{queue[:80]} has no relay; openmsmq adopt run begins one")


@action(
    "relay.begin", http="POST /queues/{queue}/relay", effect="changes", statuses=(404, 409, 507), place="daemon",
    status=201,
    commands=(
        ActionCommand(
            "adopt shadow",
            {**_OTHER, "host": "--from HOST", "state": Always("shadow", only=True)}, _SHOWN,
            help="Fetch the messages of a queue of another machine into QUEUE, which already exists here, and those "
            "that arrive there later.\n\n"
            "Messages keep their identifiers, times and order. openmsmq adopt run also makes the queue. For "
            "administrators, with a token of the role administrator.",
        ),
        ActionCommand(
            "forward from",
            {**_OTHER, "host": "--from HOST", "state": Always("receiving", only=True)}, _SHOWN,
            help="Fetch the messages of a queue of another machine into QUEUE for good: a bridge that stays until "
            "openmsmq forward end.\n\nFor administrators, with a token of the role administrator.",
        ),
        ActionCommand(
            "forward to",
            {**_OTHER, "host": "--to HOST", "state": Always("sending", only=True)}, _SHOWN,
            help="Send the messages of QUEUE to a queue of another machine permanently: the bridge stays until "
            "openmsmq forward end.\n\nEach message is kept in the subqueue `relay` until the other machine confirms "
            "its arrival; a refused transactional message becomes a dead letter here. For administrators, with "
            "a token of the role administrator.",
        ),
    ),
)  # fmt: skip
def begin_relay(site: ActionSite, given: NewRelay) -> ChangedRelay:
    """Create a relay that moves messages from or to a queue of another machine."""
    queue = _path_of(site.queue["name"])
    row = daemon_of(site).change(
        "begin_relay", queue=queue, host=given.host, remote=_remote_of(queue, given.remote), state=given.state
    )
    daemon_of(site).changed()
    return ChangedRelay(msgspec.convert(row, RelayView), site.command, [])


def _step_command(
    words: str, step: RelayStep, text: str, *, forced: bool = False, redirects: bool = False
) -> ActionCommand:
    spelled: dict[str, Any] = {"relay": "QUEUE", "step": Always(step, only=True)}
    return ActionCommand(
        words, spelled | ({"force": "--force"} if forced else {}) | ({"replies": "--replies"} if redirects else {}),
        _SHOWN,
        help=f"{text}\n\nFor administrators, with a token of the role administrator.",
    )  # fmt: skip


@action(
    "relay.step", http="POST /relays/step", effect="changes", statuses=(404, 409, 507), place="daemon",
    commands=(
        _step_command(
            "adopt switch", "switch",
            "Record that programs now send to QUEUE on this machine. Messages that remain on the other machine, and "
            "those that late senders send there, are still fetched. If QUEUE receives replies, --replies changes the "
            "response queue of fetched requests, so that replies come to QUEUE directly. Signed requests keep it.",
            redirects=True,
        ),
        _step_command(
            "adopt done", "done",
            "End the move of QUEUE, when nothing is left at the other machine, or after adopt back when nothing is "
            "left here.", forced=True,
        ),
        _step_command(
            "adopt back", "back",
            "Move QUEUE back: send its messages, and those that arrive later, to the queue of the other machine. "
            "Messages get identifiers of this machine.",
        ),
        _step_command("adopt again", "shadow", "Fetch messages of the other machine into QUEUE again."),
        _step_command("adopt forget", "forget", "Delete the record of a finished move.", forced=True),
        _step_command("forward end", "end", "End a bridge. Messages stay where they are.", forced=True),
    ),
)  # fmt: skip
def step_relay(site: ActionSite, given: RelayStepInput) -> ChangedRelay:
    """Perform the next step of a relay."""
    row = daemon_of(site).change(
        "step_relay", queue=relay_queue(given.relay), step=given.step, force=given.force, replies=given.replies
    )
    if row is None:
        raise _missing(given.relay)
    relay = msgspec.convert(row, RelayView)
    senders = _senders(relay, site.machine) if given.step == "switch" else []
    return ChangedRelay(relay, site.command, senders)


def has_journal(name: str) -> bool:
    """Whether a queue is an application queue: neither a journal nor a system queue."""
    local = relay_queue(name).rpartition(".\\")[2]
    return ";" not in local and not local.lower().startswith("system$")


def _senders(relay: RelayView, here: str) -> list[str]:
    """Return instructions for the senders of a moved queue, by the kind of name they use; none for journals and dead
    letters, which have no senders."""
    local = relay.queue.removeprefix(".\\")
    if not has_journal(relay.queue):
        return []
    there = relay.host
    if not local.lower().startswith("private$\\"):
        return [f"directory: create {here}\\{local}, and delete {there}\\{relay.remote}; senders find it by its name"]
    alias = f'and add {there} to aliases here (aliases = "{there}"); this moves all queues of {there} at once'
    return [
        f"programs with the name DIRECT=OS:{there}\\{relay.remote}: change it to DIRECT=OS:{here}\\{local}",
        f"DNS: let the name {there} lead to {here} (a CNAME record), {alias}",
        f'queue managers of openmsmq: set peers = "{there}={here}" there, {alias}',
        f"programs with a name PRIVATE=...: it has the identifier of {there} and cannot lead here; change it to "
        f"DIRECT=OS:{here}\\{local}",
        f"replies to {there}\\{relay.remote}, for requests that name it as response queue: they go to {there} and come "
        f"here while this queue is switched; keep it switched until such requests have been answered, or until {there} "
        "is in aliases here; adopt switch --replies changes that name in the unsigned requests that relays fetch",
    ]


ACTIONS: Final = (list_relays, begin_relay, step_relay)
