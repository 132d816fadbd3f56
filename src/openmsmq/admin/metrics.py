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
    Family("messages", "gauge", "Messages in the queue.", *_by("kind", *KINDS)),
    Family("bytes", "gauge", "Bytes of the messages in the queue.", *_by("kind", *KINDS)),
    Family("queues", "gauge", "Queues.", *_by("kind", *KINDS)),
    Family("oldest_message_timestamp_seconds", "gauge", "When the oldest message came.", ("kind",)),
    Family("messages_in_total", "counter", "Messages that came into queues.", *_by("kind", *KINDS)),
    Family("messages_out_total", "counter", "Messages that left queues.", *_by("kind", *KINDS)),
    Family("message_bytes_in_total", "counter", "Bytes of messages that came."),
    Family("message_bytes_out_total", "counter", "Bytes of messages that left."),
    Family(
        "messages_dead_total", "counter", "Messages that were never received, by reason.",
        *_by("reason", *(reason.slug for reason in REASONS), OTHER_REASON),
    ),
    Family(
        "messages_refused_total", "counter", "Messages that other queue managers sent and that were refused.",
        ("reason", "source"),
    ),
    Family("messages_poisoned_total", "counter", "Messages moved away at the delivery limit of their queue."),
    Family("copies_discarded_total", "counter", "Copies and acknowledgments for which there was no room."),
    Family("list_items_failed_total", "counter", "Items left out of a list because they failed.", ("list",)),
    Family("rpc_requests_total", "counter", "Calls by RPC that came."),
    Family("rpc_faults_total", "counter", "Calls by RPC that ended in a fault."),
    Family("rpc_connections_total", "counter", "Connections by RPC that were made."),
    Family("rpc_calls_total", "counter", "Calls by their end.", ("interface", "operation", "result")),
    Family("errors_total", "counter", "Errors that callers got.", ("name",)),
    Family("logins_total", "counter", "Logins.", ("door", "result")),
    Family("limit_refusals_total", "counter", "What a limit has refused.", ("limit",)),
    Family("log_records_suppressed_total", "counter", "Log records that were left out."),
    Family("transactions_total", "counter", "Transactions by their end.", *_by("outcome", "committed", "aborted")),
    Family("transfer_retries_total", "counter", "Messages that were sent to another machine once more."),
    Family("store_sync_duration_seconds", "histogram", "Time to make the log durable."),
    Family(
        "rpc_duration_seconds", "histogram",
        "Time of calls that do not wait for others; one of sixteen is timed, and counts for sixteen.",
        ("interface", "operation"),
    ),
    Family("event_loop_delay_seconds", "histogram", "How late the event loop is."),
    Family("transfer_duration_seconds", "histogram", "Time to hand a message to another machine."),
    Family("outgoing_queues", "gauge", "Outgoing queues by state.", ("state",)),
    Family("sessions", "gauge", "Sessions.", ("protocol",)),
    Family("handles", "gauge", "Open queues."),
    Family("cursors", "gauge", "Cursors."),
    Family("waiting_readers", "gauge", "Receives and peeks that wait."),
    Family("open_transactions", "gauge", "Transactions that have not ended.", ("state",)),
    Family(
        "distributed_transactions", "gauge", "Transactions over several transaction managers by state.",
        *_by("state", *(state.replace(" ", "_") for state in DISTRIBUTED_STATES)),
    ),
    Family("store_size_bytes", "gauge", "Size of the store.", ("part",)),
    Family("disk_free_bytes", "gauge", "Free room on the disk of the store."),
    Family("quota_bytes", "gauge", "Quota of the machine."),
    Family("throttled", "gauge", "1 while the disk is nearly full and no messages are accepted."),
    Family("store_epoch", "gauge", "How often the store was taken over."),
    Family("relays", "gauge", "Relays by state.", *_by("state", *RELAY_STATES)),
    Family("relay_messages_moved_total", "counter", "Messages that relays have carried."),
    Family("relay_messages_left", "gauge", "Messages that relays have still to carry, where that is known."),
    Family("relay_messages_refused", "gauge", "Messages of relays that the machine they go to refuses."),
    Family("relay_lag_seconds", "gauge", "How far the relay that is furthest behind is behind its source."),
    Family("alarm_active", "gauge", "1 while an alarm is on.", ("alarm",), tuple((one.name,) for one in CONDITIONS)),
    Family("process_resident_memory_bytes", "gauge", "Memory of a process.", *_by("process", "daemon", "web")),
    Family("build_info", "gauge", "1, with what runs.", ("version", "python", "compiled")),
)  # fmt: skip
_RELAY: Final = ("queue", "host", "state")
#: Figures of single queues, by requested family. Labels are queue and kind; for windows_exporter, name; for relays,
#: also the other machine and the state.
QUEUE_FAMILIES: Final = {
    "messages": (
        Family("queue_messages", "gauge", "Messages in a queue.", ("queue", "kind")),
        Family("queue_bytes", "gauge", "Bytes in a queue.", ("queue", "kind")),
        Family("queue_journal_messages", "gauge", "Messages in the journal of a queue.", ("queue", "kind")),
        Family("queue_journal_bytes", "gauge", "Bytes in the journal of a queue.", ("queue", "kind")),
    ),
    "flow": (
        Family("queue_messages_in_total", "counter", "Messages that came into a queue.", ("queue", "kind")),
        Family("queue_messages_out_total", "counter", "Messages that left a queue.", ("queue", "kind")),
    ),
    "age": (
        Family("queue_oldest_message_timestamp_seconds", "gauge", "When the oldest came.", ("queue", "kind")),
    ),
    "readers": (
        Family("queue_handles", "gauge", "How often a queue is open.", ("queue", "kind")),
        Family("queue_waiting_readers", "gauge", "Receives and peeks that wait.", ("queue", "kind")),
        Family("queue_exclusive", "gauge", "1 while a queue is open exclusively.", ("queue", "kind")),
        Family("queue_quota_bytes", "gauge", "Quota of a queue.", ("queue", "kind")),
    ),
    "relays": (
        Family("queue_relay_messages_moved_total", "counter", "Messages that a relay has carried.", _RELAY),
        Family("queue_relay_messages_left", "gauge", "Messages that a relay has still to carry.", _RELAY),
        Family("queue_relay_messages_refused", "gauge", "Messages of a relay that are refused.", _RELAY),
        Family("queue_relay_lag_seconds", "gauge", "How far a relay is behind its source.", _RELAY),
        Family("queue_relay_working", "gauge", "0 while nothing moves.", _RELAY),
    ),
    "windows": (
        Family("messages_in_queue", "gauge", "As windows_exporter has it.", ("name",)),
        Family("bytes_in_queue", "gauge", "As windows_exporter has it.", ("name",)),
        Family("messages_in_journal_queue", "gauge", "As windows_exporter has it.", ("name",)),
        Family("bytes_in_journal_queue", "gauge", "As windows_exporter has it.", ("name",)),
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
