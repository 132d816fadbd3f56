"""Overview of the machine; list, show and change queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from shlex import quote
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from openmsmq import __version__
from openmsmq.actions import by_http
from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, EpochSeconds, QueueText, Text, doc
from openmsmq.actions.limits import LARGEST_PAGE, PAGE
from openmsmq.actions.paging import Cursor, Next, cut
from openmsmq.actions.site import ActionSite, DaemonCalls
from openmsmq.actions.table import ActionCommand, ActionPlan, Always, Empty, Input, LineView, Output, Pages, action
from openmsmq.admin.http_requests import ApiNotFound, HttpRequests
from openmsmq.admin.naming import path_of, public_path_of, shown
from openmsmq.model.constants import INFINITE, MOST_DELIVERIES, Access
from openmsmq.model.errors import AccessDenied, IllegalQueuePathName, QueueNotFound, ReceiveTimeout
from openmsmq.model.names import parse_path_name
from openmsmq.model.roles import Role
from openmsmq.model.text import counted

ANY_COUNT: Final = -1  # for commands, which ask for confirmation instead
_MOST_ROWS: Final = 10_000  # in a page: each page sorts all queues
_HERE: Final = ".\\"  # prefix of path names on the machine of the server

Kind = Literal["queue", "subqueue", "journal", "deadletter", "outgoing", "connector"]
Kilobytes = Annotated[int, Meta(ge=0, le=INFINITE - 1)]
QueueName = Annotated[str, doc("Name of the queue.", r"mq1\private$\orders")]
Limit = Annotated[int, Meta(ge=1, le=LARGEST_PAGE, description="Maximum number of rows.")]
Believed = Annotated[int, Meta(ge=0, description="Expected number of messages; any other number is refused.")]
Label = Annotated[str, Meta(max_length=124), doc("Text for people, at most 124 characters.")]
Quota = Annotated[Kilobytes | None, doc("Quota of the queue in kilobytes, if there is one.")]
JournalQuota = Annotated[Kilobytes | None, doc("Quota of the journal in kilobytes, if there is one.")]
Journaling = Annotated[bool, doc("Keep copies of received messages in the queue's journal.")]
Authenticated = Annotated[bool, doc("Accept messages of authenticated senders only.")]
PrivLevel = Annotated[int, Meta(ge=0, le=2), doc("Bodies: 0 clear only, 1 both (default), 2 encrypted only.")]
DeliveryLimit = Annotated[
    int, Meta(ge=0, le=MOST_DELIVERIES),
    doc("Aborted receives after which a message moves to the subqueue poison (0: no limit, the default)."),
]  # fmt: skip
PoisonToDeadLetter = Annotated[
    bool, doc("At the delivery limit, move messages to the dead-letter queue instead of the subqueue poison.")
]


class QueueView(Output, frozen=True):
    """A queue."""

    id: Annotated[str, doc("Its identifier, by which other operations name it.", "p7")]
    kind: Annotated[Kind, doc("Kind of the queue.")]
    name: QueueName
    label: Annotated[str, doc("Text for people.")]
    transactional: Annotated[bool, doc("Whether it is transactional.")]
    journaling: Annotated[bool, doc("Whether copies of received messages are kept.")]
    messages: Annotated[int, doc("Number of messages.")]
    bytes: Annotated[int, doc("Total size in bytes.")]
    came: Annotated[int, doc("Messages enqueued since the daemon started.")]
    left: Annotated[int, doc("Messages removed since the daemon started.")]
    grown: Annotated[int, doc("Growth in messages over the last five minutes.")]
    journal_messages: Annotated[int, doc("Number of messages in its journal.")]
    journal_bytes: Annotated[int, doc("Total size in bytes.")]
    quota: Annotated[int | None, doc("Quota in kilobytes, if there is one.")]
    handles: Annotated[int, doc("Number of open handles.")]
    readers: Annotated[int, doc("Number of handles open for receiving.")]
    waiting: Annotated[int, doc("Number of waiting reads.")]
    exclusive: Annotated[bool, doc("Whether a client has it open exclusively.")]
    state: Annotated[str, doc("State of an outgoing queue; empty for others.")]


class QueueDetails(Output, frozen=True):
    """A queue with details that require reading it."""

    queue: Annotated[QueueView, doc("The queue.")]
    format_name: Annotated[str, doc("Its format name, or path name.")]
    oldest: Annotated[
        EpochSeconds | None,
        doc("When the first message arrived, in seconds since 1970; null if there is none or it may not be read."),
    ]
    properties: Annotated[dict[str, str | int | bool | None], doc("Properties; empty for queues that have none.")]
    command: CommandText


class QueueList(Output, frozen=True):
    """One page of queues."""

    queues: Annotated[list[QueueView], doc("The queues.")]
    matching: Annotated[int, doc("Number of matching queues.")]
    all: Annotated[int, doc("Number of queues that the user may see.")]
    next: Next
    command: CommandText


class KindSum(Output, frozen=True):
    """Queues of one kind."""

    queues: Annotated[int, doc("Number of queues.")]
    messages: Annotated[int, doc("Number of messages.")]
    bytes: Annotated[int, doc("Total size in bytes.")]


class Overview(Output, frozen=True):
    """The machine as the user sees it."""

    machine: Annotated[str, doc("Name of the machine.", "mq1")]
    version: Annotated[str, doc("Version of the daemon.")]
    user: Annotated[str, doc("Name of the user.")]
    administrator: Annotated[bool, doc("Whether the user is an administrator of the queue manager.")]
    sums: Annotated[dict[str, KindSum], doc("Sums by kind of queue.")]
    fullest: Annotated[list[QueueView], doc("Queues with most messages.")]
    growing: Annotated[list[QueueView], doc("Queues that have grown most in five minutes.")]
    waiting: Annotated[list[QueueView], doc("Outgoing queues with most messages.")]
    command: CommandText


class ListQuery(Input, frozen=True):
    """Selects queues."""

    filter: Annotated[Text | None, doc("Text in the name, or a pattern with * and ?.", "*orders*")] = None
    kind: Annotated[Kind | None, doc("Only queues of this kind.")] = None
    nonempty: Annotated[bool, doc("Only queues with messages.")] = False
    sort: Annotated[
        Literal["name", "-name", "messages", "-messages", "bytes", "-bytes", "waiting", "-waiting", "grown", "-grown"],
        doc("Order; with a minus sign, the largest first."),
    ] = "name"
    limit: Annotated[int, Meta(ge=1, le=_MOST_ROWS, description="Maximum number of rows.")] = PAGE
    cursor: Cursor = None


class NamedQueue(Input, frozen=True):
    """A queue."""

    queue: QueueText


class NewQueue(Input, frozen=True):
    """A queue to create."""

    name: Annotated[str, Meta(min_length=1, max_length=400), doc("Name of a private queue, or a path name.", "orders")]
    public: Annotated[bool, doc("A public queue, which the directory keeps; NAME is orders or .\\orders.")] = False
    label: Label = ""
    transactional: Annotated[bool, doc("Create a transactional queue.")] = False
    journal: Journaling = False
    quota: Quota = None
    journal_quota: JournalQuota = None
    multicast_address: Annotated[str, Meta(max_length=100), doc("address:port")] = ""
    authenticate: Authenticated = False
    priv_level: PrivLevel | UnsetType = UNSET
    delivery_limit: DeliveryLimit | UnsetType = UNSET
    poison_to_deadletter: PoisonToDeadLetter = False


class PlannedQueue(Output, frozen=True):
    """A queue that would be created."""

    path_name: Annotated[str, doc("Its path name.", r".\private$\orders")]
    exists: Annotated[bool, doc("Whether the queue already exists.")]


class CreatedQueue(Output, frozen=True):
    """A created queue, as reported by the MSMQ protocols."""

    path_name: str
    format_name: str
    public: bool


class QueueChange(Input, frozen=True):
    """Changes of a queue. Omitted properties do not change."""

    queue: QueueText
    label: Label | UnsetType = UNSET
    journal: Journaling | UnsetType = UNSET
    quota: Quota | UnsetType = UNSET
    journal_quota: JournalQuota | UnsetType = UNSET
    authenticate: Authenticated | UnsetType = UNSET
    priv_level: PrivLevel | UnsetType = UNSET
    delivery_limit: DeliveryLimit | UnsetType = UNSET
    poison_to_deadletter: PoisonToDeadLetter | UnsetType = UNSET


class QueueRemoval(Input, frozen=True):
    """A queue to delete or purge."""

    queue: QueueText
    count: Believed


class Deleted(Output, frozen=True):
    """Deleted messages, or those that would be deleted."""

    queue: QueueName
    messages: Annotated[int, doc("Number of messages.")]
    journal: Annotated[int, doc("Number of messages in its journal.")]
    done: Annotated[bool, doc("Whether it was done.")]
    command: CommandText


Removal = ActionPlan[Deleted, Deleted]
#: Properties of application queues that lists do not include.
_PROPERTIES: Final = (
    "label", "journal", "quota", "journal_quota", "base_priority", "authenticate", "priv_level", "transactional",
    "multicast_address", "delivery_limit", "poison_to_deadletter", "create_time", "modify_time", "instance", "type",
)  # fmt: skip
_SHOWN_FIRST: Final = 5
_BY_RPC: Final = "it shows the data of the MSMQ protocols, for any queue manager"


def daemon_of(site: ActionSite) -> DaemonCalls:
    """Return the daemon for an action that only its HTTP process can do."""
    assert site.daemon is not None
    return site.daemon


def queue_of(row: Mapping[str, Any]) -> QueueView:
    values = {name: row[name] for name in QueueView.__struct_fields__}
    return QueueView(**values | {"quota": None if row["quota"] == INFINITE else row["quota"]})


# -- queries ---------------------------------------------------------------------------------------------------------


@action(
    "overview", http="GET /overview", role=Role.MONITOR, place="daemon",
    commands=(ActionCommand("top", by_hand="it runs continuously and shows other values"),),
)  # fmt: skip
def overview(site: ActionSite, given: Empty) -> Overview:
    """Show an overview of the machine."""
    rows = daemon_of(site).queues()
    sums: dict[str, list[int]] = {}
    for row in rows:
        total = sums.setdefault(row["kind"], [0, 0, 0])
        for index, value in enumerate((1, row["messages"], row["bytes"])):
            total[index] += value

    def first(by: str, kind: str | None = None) -> list[QueueView]:
        found = (row for row in rows if row[by] > 0 and kind in (None, row["kind"]))
        return [queue_of(row) for row in sorted(found, key=lambda row: -row[by])[:_SHOWN_FIRST]]

    return Overview(
        site.machine, __version__, site.caller.name, site.caller.administrator,
        {kind: KindSum(*values) for kind, values in sorted(sums.items())}, first("messages"), first("grown"),
        first("messages", "outgoing"), "openmsmq top",
    )  # fmt: skip


@action(
    "queue.list", http="GET /queues", role=Role.MONITOR, statuses=(400,), place="daemon",
    pages=Pages("queues", "limit", _MOST_ROWS, "cursor"), commands=(ActionCommand("queue list", by_hand=_BY_RPC),),
)  # fmt: skip
def list_queues(site: ActionSite, given: ListQuery) -> QueueList:
    """List queues with filter, order and pages."""
    daemon = daemon_of(site)
    rows = daemon.queues()
    found = [row for row in rows if matches(row, given)]
    if given.filter and not _has_named(found, given.filter.casefold()):  # perhaps the queue is new
        rows = daemon.queues(newest=True)
        found = [row for row in rows if matches(row, given)]
    field, descending = given.sort.lstrip("-"), given.sort.startswith("-")

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the sort key. Names that differ only in case are ordered by identifier."""
        name = (row["name"].casefold(), row["id"])
        return name if field == "name" else (-row[field] if descending else row[field], *name)

    page, following = cut(
        daemon, found, key, given.sort, given.limit, given.cursor, backwards=descending and field == "name"
    )
    return QueueList([queue_of(row) for row in page], len(found), len(rows), following, "openmsmq queue list")


def _has_named(found: Sequence[Mapping[str, Any]], wanted: str) -> bool:
    """Whether the rows have a queue of this name, or any queue if `wanted` is a pattern."""
    return any("*" in wanted or "?" in wanted or row["name"].casefold().endswith(wanted) for row in found)


def matches(row: Mapping[str, Any], query: ListQuery) -> bool:
    if query.kind is not None and row["kind"] != query.kind:
        return False
    if query.nonempty and not row["messages"]:
        return False
    if not query.filter:
        return True
    name, wanted = row["name"].casefold(), query.filter.casefold()
    if "*" in wanted or "?" in wanted:
        return fnmatchcase(name, wanted.replace("[", "[[]"))
    return wanted in name


_LIST_AGE: Final = 1.1  # maximum age of a list of the HTTP process in seconds


def queue_named(http: HttpRequests, name: str) -> QueueView:
    """Return the queue with a name as users type it. Raises ApiNotFound."""
    queue = _listed(http, name)
    if queue is None:
        time.sleep(_LIST_AGE)  # it may have been created after the list was read
        queue = _listed(http, name)
    if queue is None:
        raise ApiNotFound(f"{http.url}: there is no queue {name}, or the user of the token may not see it")
    return queue


def absent_queues(http: HttpRequests, names: Sequence[str]) -> list[str]:
    """Return the names for which `queue_named` would raise ApiNotFound."""
    absent = [name for name in names if _listed(http, name) is None]
    if absent:
        time.sleep(_LIST_AGE)
    return [name for name in absent if _listed(http, name) is None]


def _listed(http: HttpRequests, name: str) -> QueueView | None:
    wanted = shown(path_of(name)).casefold()
    text = wanted.removeprefix(_HERE)
    query = ListQuery(filter=f"*{text}" if "*" in text or "?" in text else text, limit=0)
    found: list[QueueView] = by_http.perform(http, list_queues, query).queues
    return next((queue for queue in found if _is_called(queue, wanted)), None)


def _is_called(queue: QueueView, wanted: str) -> bool:
    """Whether a name, in lower case, is that of a queue. Outgoing queues have the name of their destination."""
    name = queue.name.casefold()
    if wanted.startswith(_HERE) and queue.kind not in ("outgoing", "connector"):
        return name.partition("\\")[2] == wanted.removeprefix(_HERE)
    return name == wanted


@action(
    "queue.show", http="GET /queues/{queue}", role=Role.MONITOR, place="queue manager",
    commands=(ActionCommand("queue show", {"queue": "NAME"}, by_hand=_BY_RPC),),
)  # fmt: skip
def get_queue(site: ActionSite, given: NamedQueue) -> QueueDetails:
    """Show a queue."""
    row = site.queue
    properties: dict[str, Any] = {}
    oldest = None
    if row["kind"] == "queue":
        try:
            found = site.manager.properties(row["open"], *_PROPERTIES)
            properties = {name: _jsonable(value) for name, value in found.items()}
        except AccessDenied:
            properties = {}
    if row["messages"] and row["kind"] != "outgoing":
        try:
            with site.manager.open(row["open"], "peek") as opened:
                first = opened.peek(0)
            oldest = first.arrival_time or first.sent_time
        except (AccessDenied, ReceiveTimeout):
            oldest = None
    group = "outgoing" if row["kind"] == "outgoing" else "queue"
    return QueueDetails(
        queue_of(row), row["open"], oldest, properties, f"openmsmq {group} show {quote(row['name'])}"
    )  # fmt: skip


def _jsonable(value: Any) -> str | int | bool | None:
    if value == INFINITE and not isinstance(value, bool):
        return None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


# -- changing --------------------------------------------------------------------------------------------------------


def _created(made: CreatedQueue) -> str:
    return f"created {made.path_name}, {made.format_name}" if made.public else f"created {made.path_name}"


@action(
    "queue.create", http="POST /queues", status=201, effect="changes", statuses=(409, 507), dry_run="query",
    place="queue manager",
    commands=(
        ActionCommand(
            "queue create",
            {
                "name": "NAME", "public": "--public", "label": "--label", "transactional": "--transactional",
                "journal": "--journal", "quota": "--quota INTEGER", "journal_quota": "--journal-quota INTEGER",
                "multicast_address": "--multicast-address", "authenticate": "--authenticate",
                "priv_level": "--priv-level", "delivery_limit": "--delivery-limit",
                "poison_to_deadletter": "--poison-to-deadletter",
            },
            LineView(_created, lambda made: {"path_name": made.path_name, "format_name": made.format_name}),
            show_plan=LineView(
                lambda would: f"{would.path_name} exists" if would.exists else f"would be created: {would.path_name}",
                lambda would: {"path_name": would.path_name, "exists": would.exists, "done": False},
            ),
            help="Create a private queue, or a public one.",
        ),
    ),
)  # fmt: skip
def create_queue(site: ActionSite, given: NewQueue) -> ActionPlan[PlannedQueue, QueueView]:
    """Create a queue."""
    manager = site.manager
    path = public_path_of(given.name) if given.public else path_of(given.name)
    if parse_path_name(path).subqueue:
        raise IllegalQueuePathName(
            detail=f"{path}: a name has no semicolon; subqueues exist when messages move to them"
        )
    properties = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if name not in ("name", "public") and value != "" and not any(value is none for none in (None, False, UNSET))
    }

    def carry_out() -> Any:
        format_name = manager.create_queue(path, **properties)
        if site.daemon is None:
            return CreatedQueue(path, manager.format_name(path) if given.public else format_name, given.public)
        site.daemon.changed()
        wanted = path.partition("\\")[2].casefold()
        for row in site.daemon.queues():
            if row["kind"] == "queue" and row["name"].partition("\\")[2].casefold() == wanted:
                return queue_of(row)
        raise ActionRefused(500, f"{path} was created, but has already been deleted")

    def exists() -> bool:
        if not given.public:
            return any(there.lower().endswith(path.lower().lstrip(".")) for there in manager.queues())
        try:
            manager.format_name(path)
        except QueueNotFound:
            return False
        return True

    return ActionPlan(lambda: PlannedQueue(path, exists()), carry_out)


@action(
    "queue.change", http="PATCH /queues/{queue}", effect="changes", statuses=(409, 507), place="queue manager",
    commands=(
        ActionCommand(
            "queue set", dict.fromkeys(QueueChange.__struct_fields__, "PROPERTY=VALUE..."),
            by_hand="it changes any property, also of other queue managers",
        ),
    ),
)  # fmt: skip
def change_queue(site: ActionSite, given: QueueChange) -> QueueDetails:
    """Change properties of a queue."""
    row = _application_queue(site)
    known = msgspec.structs.asdict(given)
    del known["queue"]
    given_values = {name: value for name, value in known.items() if value is not UNSET}
    changes: dict[str, Any] = {name: INFINITE if value is None else value for name, value in given_values.items()}
    if not changes:
        raise ActionRefused(422, f"nothing to change; allowed: {', '.join(known)}")
    site.manager.set_properties(row["open"], **changes)
    daemon = daemon_of(site)
    daemon.changed()
    changed: QueueDetails = get_queue.run(replace(site, queue=daemon.queue(row["id"])), NamedQueue(row["id"]))
    return changed


def removal(site: ActionSite, given: QueueRemoval, remove: Callable[[], object], command: str) -> Removal:
    """Raise ActionRefused if the number of messages in the queue differs from the expected one."""
    row = site.queue
    if site.daemon is None:
        counts = site.manager.counts(row["open"])
        messages, journal = counts["message_count"], counts["journal_message_count"]
    else:
        messages, journal = row["messages"], row["journal_messages"]
        if messages != given.count:
            mismatch = f"{row['name']} holds {messages} messages, not {given.count}: check the queue and try again"
            raise ActionRefused(412, mismatch, messages=messages)
    would = Deleted(row["name"], messages, journal, False, f"openmsmq {command} {quote(row['name'])}")

    def carry_out() -> Deleted:
        gone = remove()
        if site.daemon is not None:
            site.daemon.changed()
        return msgspec.structs.replace(would, done=True, messages=gone if isinstance(gone, int) else messages)

    return ActionPlan(lambda: would, carry_out)


@action(
    "queue.delete", http="DELETE /queues/{queue}", effect="destroys", statuses=(409, 412, 507),
    dry_run="query", place="queue manager",
    commands=(
        ActionCommand(
            "queue delete", {"queue": "NAME", "count": Always(ANY_COUNT)},
            LineView(
                lambda gone: f"deleted {gone.queue}", lambda gone: {"deleted": gone.queue, "messages": gone.messages}
            ),
            show_plan=LineView(
                lambda would: f"would be deleted: {would.queue} with {counted(would.messages, 'message')}, and "
                f"{would.journal:,} in its journal",
                lambda would: {"queue": would.queue, "messages": would.messages, "journal": would.journal,
                               "done": False},
            ),
            question=lambda would: f"{would.queue} holds {would.messages} messages. Delete?" if would.messages else "",
        ),
    ),
)  # fmt: skip
def delete_queue(site: ActionSite, given: QueueRemoval) -> Removal:
    """Delete a queue with its messages."""
    row = _application_queue(site)
    return removal(site, given, lambda: site.manager.delete_queue(row["open"]), "queue delete")


def _purging(words: str, text: str) -> ActionCommand:
    return ActionCommand(
        words, {"queue": "NAME", "count": Always(ANY_COUNT)},
        LineView(
            lambda gone: f"purged {gone.queue}: {counted(gone.messages, 'message')}",
            lambda gone: {"purged": gone.queue, "messages": gone.messages},
        ),
        show_plan=LineView(
            lambda would: f"would be purged: {would.queue}, {counted(would.messages, 'message')}",
            lambda would: {"queue": would.queue, "messages": would.messages, "done": False},
        ),
        question=lambda would: (
            f"Delete {counted(would.messages, 'message')} of {would.queue}?" if would.messages else ""
        ),
        help=text,
    )  # fmt: skip


def _purge(site: ActionSite, given: QueueRemoval, access: Access) -> Removal:
    def purge() -> None:
        with site.manager.open(site.queue["open"], access) as opened:
            opened.purge()

    return removal(site, given, purge, "queue purge")


@action(
    "queue.purge", http="POST /queues/{queue}/purge", effect="destroys", role=Role.OPERATOR,
    statuses=(409, 412, 507), dry_run="query", queries=("count",), place="queue manager",
    commands=(
        _purging(
            "queue purge",
            "Delete all messages of a queue. Messages that arrive in the meantime may be deleted, too; `msg delete` "
            "deletes only messages that it has selected.",
        ),
    ),
)  # fmt: skip
def purge_queue(site: ActionSite, given: QueueRemoval) -> Removal:
    """Delete all messages of a queue."""
    return _purge(site, given, Access.RECEIVE_ADMIN if site.queue["kind"] == "outgoing" else Access.RECEIVE)


@action(
    "outgoing.purge", http="", effect="destroys", place="queue manager",
    commands=(_purging("outgoing purge", "Delete the messages that wait for transfer. For administrators."),),
)  # fmt: skip
def purge_outgoing(site: ActionSite, given: QueueRemoval) -> Removal:
    """Delete the messages that wait for transfer."""
    return _purge(site, given, Access.RECEIVE_ADMIN)


def _application_queue(site: ActionSite) -> Mapping[str, Any]:
    if site.queue["kind"] not in ("queue", ""):
        raise ActionRefused(409, f"{site.queue['name']} is not an application queue and cannot be changed or deleted")
    return site.queue


ACTIONS: Final = (
    overview, list_queues, get_queue, create_queue, change_queue, delete_queue, purge_queue, purge_outgoing
)  # fmt: skip
