"""Overview and queues: lists, single ones, and changes of them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from shlex import quote
from typing import Annotated, Any, Final, Literal

import msgspec

from openmsmq import __version__
from openmsmq.actions.table import Input, Output
from openmsmq.admin.naming import path_of
from openmsmq.console.limits import LARGEST_PAGE, PAGE
from openmsmq.console.paging import Cursor, cut
from openmsmq.console.problems import Problem
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.constants import INFINITE, MOST_DELIVERIES, Access
from openmsmq.model.errors import AccessDenied, ReceiveTimeout
from openmsmq.model.roles import Role

Kind = Literal["queue", "subqueue", "journal", "deadletter", "outgoing", "connector"]
Kilobytes = Annotated[int, msgspec.Meta(ge=0, le=INFINITE - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)]
DeliveryLimit = Annotated[int, msgspec.Meta(ge=0, le=MOST_DELIVERIES)]
Text = Annotated[str, msgspec.Meta(max_length=1024)]


class QueueView(Output, frozen=True):
    """A queue. Quotas in kilobytes, null for none; `came` and `left` count messages since the daemon started,
    `grown` is how many messages more are there than five minutes ago;
    `exclusive`: somebody has it for themselves."""

    id: str
    kind: Kind
    name: str
    label: str
    transactional: bool
    journaling: bool
    messages: int
    bytes: int
    came: int
    left: int
    grown: int
    journal_messages: int
    journal_bytes: int
    quota: int | None
    handles: int
    readers: int
    waiting: int
    exclusive: bool
    state: str


class QueueDetails(Output, frozen=True):
    """A queue with what takes a look into it. `oldest`: when the first message came, in seconds since 1970; null where
    there is none, or the user may not look. `properties` is empty for queues that have none."""

    queue: QueueView
    format_name: str
    oldest: int | None
    properties: dict[str, str | int | bool | None]
    command: str


class QueueList(Output, frozen=True):
    """One page. `matching` queues fit the filter, of `all` that the user may see. `next` is a cursor for the rest."""

    queues: list[QueueView]
    matching: int
    all: int
    next: str | None
    command: str


class KindSum(Output, frozen=True):
    queues: int
    messages: int
    bytes: int


class Overview(Output, frozen=True):
    """The machine as the user sees it. `fullest` are the queues with most messages, `growing` those that have grown
    most in five minutes."""

    machine: str
    version: str
    user: str
    administrator: bool
    sums: dict[str, KindSum]
    fullest: list[QueueView]
    growing: list[QueueView]
    waiting: list[QueueView]
    command: str


class ListQuery(Input, frozen=True):
    """`filter` is text in the name, or a pattern with * and ?."""

    filter: Text | None = None
    kind: Kind | None = None
    nonempty: bool = False
    sort: Literal[
        "name", "-name", "messages", "-messages", "bytes", "-bytes", "waiting", "-waiting", "grown", "-grown"
    ] = "name"
    limit: Limit = PAGE
    cursor: Cursor | None = None


class NewQueue(Input, frozen=True):
    """`name` is short for a private queue, or a path name. After `delivery_limit` aborted receives (0: no limit) a
    message moves to the subqueue `poison`, or to the dead-letter queue with `poison_to_deadletter`."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    label: Annotated[str, msgspec.Meta(max_length=124)] = ""
    transactional: bool = False
    journal: bool = False
    quota: Kilobytes | None = None
    journal_quota: Kilobytes | None = None
    authenticate: bool = False
    priv_level: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    delivery_limit: DeliveryLimit = 0
    poison_to_deadletter: bool = False


class QueueChange(Input, frozen=True):
    """What is not given stays. A quota of null is none."""

    label: Annotated[str, msgspec.Meta(max_length=124)] | msgspec.UnsetType = msgspec.UNSET
    journal: bool | msgspec.UnsetType = msgspec.UNSET
    quota: Kilobytes | msgspec.UnsetType | None = msgspec.UNSET
    journal_quota: Kilobytes | msgspec.UnsetType | None = msgspec.UNSET
    authenticate: bool | msgspec.UnsetType = msgspec.UNSET
    priv_level: Annotated[int, msgspec.Meta(ge=0, le=2)] | msgspec.UnsetType = msgspec.UNSET
    delivery_limit: DeliveryLimit | msgspec.UnsetType = msgspec.UNSET
    poison_to_deadletter: bool | msgspec.UnsetType = msgspec.UNSET


class CountQuery(Input, frozen=True):
    """`count` is how many messages the caller believes to delete: another number is refused."""

    count: Annotated[int, msgspec.Meta(ge=0)]


class Deleted(Output, frozen=True):
    """What is gone: `messages` were in it."""

    queue: str
    messages: int
    command: str


#: What a queue of applications has that its list does not show.
_PROPERTIES: Final = (
    "label", "journal", "quota", "journal_quota", "base_priority", "authenticate", "priv_level", "transactional",
    "multicast_address", "delivery_limit", "poison_to_deadletter", "create_time", "modify_time", "instance", "type",
)  # fmt: skip
_SHOWN_FIRST: Final = 5


def queue_of(row: Mapping[str, Any]) -> QueueView:
    values = {name: row[name] for name in QueueView.__struct_fields__}
    return QueueView(**values | {"quota": None if row["quota"] == INFINITE else row["quota"]})


def overview(asked: WebRequest) -> Overview:
    caller = asked.caller
    rows = asked.services.rows.of(caller.ticket)
    sums: dict[str, list[int]] = {}
    for row in rows:
        total = sums.setdefault(row["kind"], [0, 0, 0])
        for index, value in enumerate((1, row["messages"], row["bytes"])):
            total[index] += value
    fullest = sorted((row for row in rows if row["messages"]), key=lambda row: -row["messages"])[:_SHOWN_FIRST]
    growing = [row for row in rows if row["grown"] > 0]
    waiting = [row for row in rows if row["kind"] == "outgoing" and row["messages"]]
    return Overview(
        asked.services.settings.hosts[0], __version__, caller.name, caller.administrator,
        {kind: KindSum(*values) for kind, values in sorted(sums.items())},
        [queue_of(row) for row in fullest],
        [queue_of(row) for row in sorted(growing, key=lambda row: -row["grown"])[:_SHOWN_FIRST]],
        [queue_of(row) for row in sorted(waiting, key=lambda row: -row["messages"])[:_SHOWN_FIRST]],
        "openmsmq top",
    )  # fmt: skip


def list_queues(asked: WebRequest) -> QueueList:
    query: ListQuery = asked.query
    rows = asked.services.rows.of(asked.caller.ticket)
    found = [row for row in rows if matches(row, query)]
    field, descending = query.sort.lstrip("-"), query.sort.startswith("-")

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Names that are equal but for their case stand in the order of their identifiers."""
        name = (row["name"].casefold(), row["id"])
        return name if field == "name" else (-row[field] if descending else row[field], *name)

    page, following = cut(
        asked.services.seals, found, key, query.sort, query.limit, query.cursor,
        backwards=descending and field == "name",
    )  # fmt: skip
    return QueueList([queue_of(row) for row in page], len(found), len(rows), following, "openmsmq queue list")


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


def get_queue(asked: WebRequest) -> QueueDetails:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    properties: dict[str, Any] = {}
    oldest = None
    with asked.queue_manager() as manager:
        if row["kind"] == "queue":
            try:
                properties = {name: _jsonable(value) for name, value in
                              manager.properties(row["open"], *_PROPERTIES).items()}  # fmt: skip
            except AccessDenied:
                properties = {}
        if row["messages"] and row["kind"] != "outgoing":
            try:
                with manager.open(row["open"], "peek") as opened:
                    first = opened.peek(0)
                oldest = first.arrival_time or first.sent_time
            except (AccessDenied, ReceiveTimeout):
                oldest = None
    command = f"openmsmq outgoing show {quote(row['name'])}" if row["kind"] == "outgoing" else (
        f"openmsmq queue show {quote(row['name'])}"
    )  # fmt: skip
    return QueueDetails(queue_of(row), row["open"], oldest, properties, command)


def _jsonable(value: Any) -> str | int | bool | None:
    if value == INFINITE and not isinstance(value, bool):
        return None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def create_queue(asked: WebRequest) -> QueueView:
    body: NewQueue = asked.body
    path = path_of(body.name)
    properties: dict[str, Any] = {
        "label": body.label, "transactional": body.transactional, "journal": body.journal, "quota": body.quota,
        "journal_quota": body.journal_quota, "authenticate": body.authenticate, "priv_level": body.priv_level,
        "delivery_limit": body.delivery_limit or None, "poison_to_deadletter": body.poison_to_deadletter or None,
    }  # fmt: skip
    with asked.queue_manager() as manager:
        manager.create_queue(path, **{name: value for name, value in properties.items() if value is not None})
    asked.services.rows.forget(asked.caller.ticket)
    wanted = path.partition("\\")[2].casefold()
    for row in asked.services.rows.of(asked.caller.ticket):
        if row["kind"] == "queue" and row["name"].partition("\\")[2].casefold() == wanted:
            return queue_of(row)
    raise Problem(500, f"{path} was created, and is not there any more")


def change_queue(asked: WebRequest) -> QueueDetails:
    body: QueueChange = asked.body
    row = _application_queue(asked)
    changes = {
        name: INFINITE if value is None else value
        for name in QueueChange.__struct_fields__
        if (value := getattr(body, name)) is not msgspec.UNSET
    }
    if not changes:
        raise Problem(422, f"nothing to change; allowed: {', '.join(QueueChange.__struct_fields__)}")
    with asked.queue_manager() as manager:
        manager.set_properties(row["open"], **changes)
    asked.services.rows.forget(asked.caller.ticket)
    return get_queue(asked)


def delete_queue(asked: WebRequest) -> Deleted:
    row = _application_queue(asked)
    demand_count(row, asked.query.count)
    with asked.queue_manager() as manager:
        manager.delete_queue(row["open"])
    asked.services.rows.forget(asked.caller.ticket)
    return Deleted(row["name"], row["messages"], f"openmsmq queue delete {quote(row['name'])}")


def purge_queue(asked: WebRequest) -> Deleted:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    demand_count(row, asked.query.count)
    with asked.queue_manager() as manager:
        access = Access.RECEIVE_ADMIN if row["kind"] == "outgoing" else Access.RECEIVE
        with manager.open(row["open"], access) as opened:
            opened.purge()
    asked.services.rows.forget(asked.caller.ticket)
    return Deleted(row["name"], row["messages"], f"openmsmq queue purge {quote(row['name'])}")


def demand_count(row: Mapping[str, Any], count: int) -> None:
    """Raises Problem where another number of messages is in the queue than somebody believes."""
    if row["messages"] != count:
        raise Problem(
            412, f"{row['name']} holds {row['messages']} messages, not {count}: look again", messages=row["messages"]
        )


def _application_queue(asked: WebRequest) -> dict[str, Any]:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    if row["kind"] != "queue":
        raise Problem(409, f"{row['name']} is a queue of the system: it can't be changed or deleted")
    return row


OPERATIONS: Final = (
    HttpOperation("GET", "/overview", overview, "The machine at a glance", Overview, role=Role.MONITOR),
    HttpOperation("GET", "/queues", list_queues, "Queues: filter, sort, page", QueueList, ListQuery,
              statuses=(400,), role=Role.MONITOR),
    HttpOperation("POST", "/queues", create_queue, "Create a private queue", QueueView, body=NewQueue, status=201,
              statuses=(409, 507)),
    HttpOperation("GET", "/queues/{queue}", get_queue, "One queue", QueueDetails, statuses=(404,), role=Role.MONITOR),
    HttpOperation("PATCH", "/queues/{queue}", change_queue, "Change properties of a queue", QueueDetails,
              body=QueueChange, statuses=(404, 409, 507)),
    HttpOperation("DELETE", "/queues/{queue}", delete_queue, "Delete a queue with its messages", Deleted, CountQuery,
              statuses=(404, 409, 412, 507)),
    HttpOperation("POST", "/queues/{queue}/purge", purge_queue, "Delete all messages of a queue", Deleted, CountQuery,
              statuses=(404, 409, 412, 507), role=Role.OPERATOR),
)  # fmt: skip
