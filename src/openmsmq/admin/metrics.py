"""Figures of a queue manager as text for Prometheus (exposition format 0.0.4). It does no I/O and reads no clock: the
caller passes the figures.

Names and labels are a table, so that dashboards and alerts can be checked against it. The number of series of
aggregated figures does not depend on the number of queues. Figures of single queues are rendered separately, because
queries that sum over series would otherwise count both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from openmsmq.admin.alarms import CONDITIONS
from openmsmq.model.distributed_states import DISTRIBUTED_STATES
from openmsmq.model.histogram import BUCKETS, Histogram
from openmsmq.model.reasons import REASONS
from openmsmq.model.relay_states import RELAY_STATES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES: Final = 50_000  # per response; more series are an error, the response is never truncated

KINDS: Final = ("queue", "journal", "deadletter", "outgoing", "connector")
OTHER_REASON: Final = "other"  # for classes that are not specified


class Family(NamedTuple):
    """A metric. `known` are the label values that are always present, initially 0; None if they are not known in
    advance."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] | None = None


def _by(label: str, *values: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return (label,), tuple((value,) for value in values)


#: Aggregated figures, without their prefix.
FAMILIES: Final = (
    Family("messages", "gauge", "Messages in queues, by kind of queue.", *_by("kind", *KINDS)),
    Family("bytes", "gauge", "Size of the messages in queues.", *_by("kind", *KINDS)),
    Family("queues", "gauge", "Number of queues.", *_by("kind", *KINDS)),
    Family("messages_in_total", "counter", "Messages added to queues.", *_by("kind", *KINDS)),
    Family("messages_out_total", "counter", "Messages removed from queues.", *_by("kind", *KINDS)),
    Family(
        "messages_dead_total", "counter", "Messages removed without being received, by reason.",
        *_by("reason", *(reason.slug for reason in REASONS), OTHER_REASON),
    ),
    Family(
        "messages_refused_total", "counter", "Messages of other queue managers that were refused.",
        ("reason", "source"),
    ),
    Family("messages_poisoned_total", "counter", "Messages moved to the subqueue poison at the delivery limit."),
    Family("copies_discarded_total", "counter", "Copies and acknowledgments discarded because of a quota."),
    Family("list_items_failed_total", "counter", "List items that were omitted because of an error.", ("list",)),
    Family("rpc_requests_total", "counter", "RPC calls."),
    Family("rpc_faults_total", "counter", "RPC calls that ended with a fault."),
    Family("rpc_connections_total", "counter", "RPC connections accepted."),
    Family("logins_total", "counter", "Login attempts, by entry point and result.", ("door", "result")),
    Family("transactions_total", "counter", "Transactions, by outcome.", *_by("outcome", "committed", "aborted")),
    Family("store_sync_duration_seconds", "histogram", "Duration of a sync of the log."),
    Family(
        "rpc_duration_seconds", "histogram",
        "Duration of calls that do not wait; 1 of 16 is timed, and counts for 16.",
        ("interface", "operation"),
    ),
    Family("event_loop_delay_seconds", "histogram", "Delay of the event loop."),
    Family("outgoing_queues", "gauge", "Outgoing queues, by state.", ("state",)),
    Family("sessions", "gauge", "Open connections.", ("protocol",)),
    Family("handles", "gauge", "Open queue handles."),
    Family("waiting_readers", "gauge", "Receives and peeks that are waiting."),
    Family(
        "distributed_transactions", "gauge", "Distributed transactions, by state.",
        *_by("state", *(state.replace(" ", "_") for state in DISTRIBUTED_STATES)),
    ),
    Family("store_size_bytes", "gauge", "Size of the store on disk.", ("part",)),
    Family("disk_free_bytes", "gauge", "Free space on the disk of the data directory."),
    Family("quota_bytes", "gauge", "Quota of the queue manager."),
    Family("throttled", "gauge", "1 while messages are refused because the disk is nearly full."),
    Family("store_epoch", "gauge", "Number of takeovers of the store."),
    Family("relays", "gauge", "Relays, by state.", *_by("state", *RELAY_STATES)),
    Family("relay_messages_moved_total", "counter", "Messages moved by relays."),
    Family("relay_messages_left", "gauge", "Messages that relays still have to move, as far as known."),
    Family("relay_messages_refused", "gauge", "Messages of relays that the destination refuses."),
    Family("relay_lag_seconds", "gauge", "Largest lag of a relay behind its source."),
    Family(
        "alarm_active", "gauge", "1 while an alarm is active, also if it is silenced.",
        *_by("alarm", *(condition.name for condition in CONDITIONS)),
    ),
    Family("process_resident_memory_bytes", "gauge", "Resident memory of a process.", *_by("process", "daemon", "web")),
    Family("build_info", "gauge", "Always 1; the labels describe the program.", ("version", "python", "compiled")),
)  # fmt: skip
_RELAY: Final = ("queue", "host", "state")
#: Figures of single queues, by requested family. Labels are queue and kind; for windows_exporter, name; for relays,
#: also the other machine and the state.
QUEUE_FAMILIES: Final = {
    "messages": (
        Family("queue_messages", "gauge", "Messages in a queue.", ("queue", "kind")),
        Family("queue_bytes", "gauge", "Size of the messages in a queue.", ("queue", "kind")),
        Family("queue_journal_messages", "gauge", "Messages in the journal of a queue.", ("queue", "kind")),
        Family("queue_journal_bytes", "gauge", "Size of the messages in the journal of a queue.", ("queue", "kind")),
    ),
    "flow": (
        Family("queue_messages_in_total", "counter", "Messages added to a queue.", ("queue", "kind")),
        Family("queue_messages_out_total", "counter", "Messages removed from a queue.", ("queue", "kind")),
    ),
    "readers": (
        Family("queue_handles", "gauge", "Open handles of a queue.", ("queue", "kind")),
        Family("queue_waiting_readers", "gauge", "Receives and peeks that are waiting.", ("queue", "kind")),
        Family("queue_exclusive", "gauge", "1 while a queue is open exclusively.", ("queue", "kind")),
        Family("queue_quota_bytes", "gauge", "Quota of a queue.", ("queue", "kind")),
    ),
    "relays": (
        Family("queue_relay_messages_moved_total", "counter", "Messages moved by a relay.", _RELAY),
        Family("queue_relay_messages_left", "gauge", "Messages that a relay still has to move.", _RELAY),
        Family("queue_relay_messages_refused", "gauge", "Messages of a relay that the destination refuses.", _RELAY),
        Family("queue_relay_lag_seconds", "gauge", "Lag of a relay behind its source.", _RELAY),
        Family("queue_relay_working", "gauge", "0 while a failure stops the relay.", _RELAY),
    ),
    "windows": (
        Family("messages_in_queue", "gauge", "The same as in windows_exporter.", ("name",)),
        Family("bytes_in_queue", "gauge", "The same as in windows_exporter.", ("name",)),
        Family("messages_in_journal_queue", "gauge", "The same as in windows_exporter.", ("name",)),
        Family("bytes_in_journal_queue", "gauge", "The same as in windows_exporter.", ("name",)),
    ),
}  # fmt: skip
_PREFIX: Final = "openmsmq_"
_WINDOWS_PREFIX: Final = "windows_msmq_"


Figure = int | float | Histogram
#: Label values -> figure; only the figure for a family without labels.
Figures = Mapping[str, Figure | Mapping[tuple[str, ...], Figure]]


def render(figures: Figures) -> str:
    """Render aggregated figures, keyed by the names of `FAMILIES`. A family without a figure is omitted, because a 0
    would be false. A family with a figure has all its known labels, with 0 for those not given.

    Raises ValueError for a name, number of labels or kind of figure that does not match the table, and for too many
    series.
    """
    return _text(_PREFIX, FAMILIES, figures)


def render_queues(family: str, figures: Figures) -> str:
    """Render figures of single queues, keyed by the names of `QUEUE_FAMILIES[family]`. Raises as `render`, and
    ValueError for an unknown family."""
    if family not in QUEUE_FAMILIES:
        raise ValueError(f"unknown family {family!r}; allowed: {', '.join(QUEUE_FAMILIES)}")
    return _text(_WINDOWS_PREFIX if family == "windows" else _PREFIX, QUEUE_FAMILIES[family], figures)


def _text(prefix: str, families: Iterable[Family], figures: Figures) -> str:
    known = {family.name: family for family in families}
    unknown = next((name for name in figures if name not in known), None)
    if unknown is not None:
        raise ValueError(f"unknown metric {unknown!r}")
    lines: list[str] = []
    series = 0
    for name, family in known.items():
        rows = list(_rows(family, figures.get(name)))
        if not rows:
            continue
        lines += [f"# HELP {prefix}{name} {family.help}", f"# TYPE {prefix}{name} {family.kind}"]
        for labels, figure in rows:
            before = len(lines)
            lines += _samples(prefix + name, family, labels, figure)
            series += len(lines) - before
        if series > MOST_SERIES:
            raise ValueError(f"more than {MOST_SERIES} series; ask for fewer queues or one family")
    return "\n".join(lines) + "\n" if lines else ""


def _rows(
    family: Family, given: Figure | Mapping[tuple[str, ...], Figure] | None
) -> Iterator[tuple[tuple[str, ...], Figure]]:
    if given is None:
        return
    rows: dict[tuple[str, ...], Figure] = dict.fromkeys(family.known or (), 0)
    if isinstance(given, Mapping):
        rows.update(given)
    else:
        rows[()] = given
    for labels, figure in rows.items():
        if len(labels) != len(family.labels):
            raise ValueError(f"{family.name}: the labels are {', '.join(family.labels) or 'none'}, not {labels}")
        if isinstance(figure, Histogram) != (family.kind == "histogram"):
            raise ValueError(f"{family.name} is a {family.kind}")
        yield labels, figure


def _samples(name: str, family: Family, labels: tuple[str, ...], figure: Figure) -> Iterator[str]:
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(family.labels, labels, strict=True)]
    if not isinstance(figure, Histogram):
        yield f"{name}{_braces(pairs)} {_number(figure)}"
        return
    within = 0
    for bound, count in zip((*map(_number, BUCKETS), "+Inf"), figure.counts, strict=True):
        within += count
        yield f"{name}_bucket{_braces([*pairs, f'le={chr(34)}{bound}{chr(34)}'])} {within}"
    yield f"{name}_sum{_braces(pairs)} {_number(figure.total)}"
    yield f"{name}_count{_braces(pairs)} {within}"


def _braces(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
