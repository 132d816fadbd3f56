"""Batch reads: a snapshot of queues, divided into ranges of nearly equal numbers of messages."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, GreaterThanOrEqual, InputPartition
from pyspark.sql.types import StructType

from openmsmq.bulk.client import BulkClient, Claim, QueueInfo, Range
from openmsmq.bulk.texts import TEXT, with_text
from openmsmq.model.errors import MsmqError, QueueDeleted, QueueNotFound
from openmsmq.model.malloc import set_thresholds
from openmsmq.spark.filters import PushedFilters
from openmsmq.spark.hosts import FLIGHT, HostAway, ManyHosts, divided, joined
from openmsmq.spark.offsets import Offsets
from openmsmq.spark.options import DataSourceOptions, OptionError
from openmsmq.spark.plane import QueueBackend, by_flight, connect
from openmsmq.spark.schema import HOST, projection

logger = logging.getLogger(__name__)

T = TypeVar("T")
NO_QUEUE = (QueueNotFound, QueueDeleted)
_FEW = 10  # lookup identifiers that an error lists
_RECORDS = 100_000  # default maximum of messages per partition
_KEPT = 64 << 20  # bytes of free memory that a worker keeps for later record batches
_WORTHWHILE = 1_000  # fewer messages are not divided
_FIXED = ("journal", "deadletter", "xactdeadletter")  # sources that are independent of the queue's name


class DataLoss(RuntimeError):
    """Planned messages are gone: received by others, purged or expired; the text says how many."""


def queue_lost(queue: str, error: MsmqError) -> DataLoss:
    """Return the error for a deleted queue of a stream."""
    return DataLoss(
        f"queue {queue}, which this query reads, no longer exists ({error}); failOnDataLoss=false continues without it"
    )


@dataclass
class QueueRange(InputPartition):
    """A partition: messages with start < sequence <= end of one queue; of a claim with `group` and `token`."""

    queue: str
    start: int
    end: int
    count: int
    group: str | None = None
    token: str | None = None


class Fetching:
    """Base of batch and streaming readers: the columns, the connection, reading a range."""

    def __init__(self, options: DataSourceOptions, schema: StructType, uses_flight: bool | None = None) -> None:
        self.options = options
        self.names = projection(schema, options.decode, options.has_many_hosts)
        self._given_names = schema.names  # Spark ignores the case of names, but expects them unchanged in results
        self._names_are_checked = self._hosts_are_checked = False
        self._plane: QueueBackend | None = None
        self._uses_flight = uses_flight  # None until known; then fixed for all processes
        self._odd = 0  # bodies of the current partition that could not be decoded completely
        self._is_known = False  # whether the server has answered before
        self._away: set[str] = set()  # unreachable hosts that are skipped
        self._threads: ThreadPoolExecutor | None = None
        self.selection = PushedFilters()
        if options.startingTimestamp is not None:
            self.selection.take(GreaterThanOrEqual(("arrival_time",), options.startingTimestamp))

    def __getstate__(self) -> dict[str, Any]:
        # Each process makes its own connection. The server has answered the process that planned.
        return {**self.__dict__, "_plane": None, "_threads": None, "_is_known": True}

    @property
    def plane(self) -> QueueBackend:
        if self._plane is None:
            if self._uses_flight is None:
                self._uses_flight = by_flight(self.options)
            self._plane = connect(self.options, self._uses_flight, self._is_known)
        return self._plane

    # -- hosts -------------------------------------------------------------------------------------------------

    def host(self, queue: str) -> str:
        """Return the host of a queue for the column `host` and offsets; empty if there is only one host."""
        return divided(queue)[0] if self.options.has_many_hosts else ""

    def is_away(self, queue: str) -> bool:
        """Whether the host of the queue is unreachable and skipped."""
        return self.host(queue) in self._away

    def by_host(self, queues: Iterable[str], ask: Callable[[list[str]], T], *, is_needed: bool = False) -> list[T]:
        """Return the results of `ask` for the queues of each host; all hosts are asked at the same time.

        An unreachable host is skipped if failOnDataLoss is false and it is not `is_needed`. Raises HostAway.
        """
        groups: dict[str, list[str]] = {}
        for queue in queues:
            groups.setdefault(self.host(queue), []).append(queue)
        if not self.options.has_many_hosts:
            return [ask(names) for names in groups.values()]
        plane = self.plane  # connected by this thread
        assert isinstance(plane, ManyHosts)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self.options.hosts), "asks a queue manager")
        asked = {host: self._threads.submit(ask, names) for host, names in groups.items()}
        answers = []
        for host, answer in asked.items():
            try:
                answers.append(answer.result())
            except HostAway as error:
                if is_needed or self.options.failOnDataLoss is not False:
                    raise
                if host not in self._away:
                    logger.warning("%s (failOnDataLoss=false)", error)
                self._away.add(host)
            else:
                self._away.discard(host)
        return answers

    def each(self, queues: Iterable[str], ask: Callable[[str], T], *, is_needed: bool = False) -> dict[str, T]:
        """Return the results of `ask` for each queue, with the rules of `by_host`."""
        names = list(queues)
        found = self.by_host(names, lambda some: {name: ask(name) for name in some}, is_needed=is_needed)
        answers = {name: answer for some in found for name, answer in some.items()}
        return {name: answers[name] for name in names if name in answers}

    def incarnations(self, queues: Iterable[str], *, is_needed: bool = False) -> dict[str, str | None]:
        """Return host -> incarnation of its store."""

        def ask(names: list[str]) -> tuple[str, str | None]:
            host, plane = self.host(names[0]), self.plane
            if isinstance(plane, ManyHosts):
                return host, plane.incarnation_at(host)
            return host, plane.incarnation() if isinstance(plane, BulkClient) else None  # MS-MQRR does not report it

        return dict(self.by_host(queues, ask, is_needed=is_needed))

    def arrow_port(self, queue: str) -> int | None:
        """Return the port of Arrow streams on a queue's host; None if there is none."""
        plane = self.plane
        if isinstance(plane, ManyHosts):
            return plane.arrow_port_at(self.host(queue))
        return plane.arrow_port() if isinstance(plane, BulkClient) else None

    def _listed(self) -> list[QueueInfo]:
        """List the queues of the source on all hosts."""
        plane = self.plane
        if isinstance(plane, ManyHosts):
            found = self.each(self._everywhere([""]), lambda name: plane.queues_at(divided(name)[0]))
            listed = [
                replace(one, queue=joined(divided(name)[0], one.queue)) for name, some in found.items() for one in some
            ]
        else:
            listed = plane.queues()
        return [found for found in listed if found.source == self.options.source]

    def _everywhere(self, queues: Iterable[str]) -> list[str]:
        """Return the names of these queues on all hosts."""
        options = self.options
        if not options.has_many_hosts:
            return list(queues)
        names = list(queues)
        return [joined(host, queue) for host in options.hosts for queue in names]

    def plain(self, queue: str) -> str:
        """Return a queue's name on its host."""
        return divided(queue)[1] if self.options.has_many_hosts else queue

    # -- queues ------------------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        """Return the queues to read, named as in offsets. Raises OptionError if a pattern matches none, or if the
        options name a queue or a queue manager twice."""
        options = self.options
        self._check_hosts()
        if options.queue:
            names = self._everywhere(options.queue)
            self._check_names(names)
            return names
        if options.queuePattern is None:
            return self._everywhere([""])
        pattern = re.compile(options.queuePattern)
        found = [one.queue for one in self._listed() if pattern.fullmatch(self.plain(one.queue))]
        if not found:
            raise OptionError(f"queuePattern {options.queuePattern!r} matches no queue at {options.host}")
        return sorted(found)

    def _check_hosts(self) -> None:
        """Raise OptionError for a queue manager that has two of the hosts: its messages would be read twice."""
        if self._hosts_are_checked or not self.options.has_many_hosts:
            return
        hosts = [host for host in self.options.hosts if self.selection.admits(host=host)]
        known: dict[str, str] = {}
        found = self.incarnations([joined(host, "") for host in hosts])
        for host, store in found.items():
            if store in known:
                names = f"{known[store]!r} and {host!r}"
                raise OptionError(f"host names one queue manager twice, as {names}, allowed: each queue manager once")
            if store is not None:  # the version of the queue manager reports it
                known[store] = host
        self._hosts_are_checked = len(found) == len(hosts)

    def _check_names(self, names: Sequence[str]) -> None:
        """Raise OptionError for a queue named twice, in different forms: its messages would be read twice."""
        if self._names_are_checked or len(self.options.queue) == 1:
            return
        known: dict[str, str] = {}
        for name, path in self.each(names, self._path).items():
            if path in known:
                raise OptionError(
                    f"queue names {path} twice, as {known[path]!r} and {name!r}, allowed: each queue once"
                )
            if path is not None:
                known[path] = name
        self._names_are_checked = True

    def _path(self, name: str) -> str | None:
        """Return the path name of a queue; None for a missing queue, which its reader detects."""
        try:
            return self.plane.check(name, self.options.source)
        except NO_QUEUE:
            return None

    def queues_of(self, start: Offsets) -> list[str]:
        """Return the queues of a stream's batch that begins here. Raises OptionError if the checkpoint has queues that
        the options no longer name: they would be read, or even emptied."""
        pattern = self.options.queuePattern
        try:
            named = self.queues()
        except OptionError:  # all queues of the pattern were deleted; new ones may be created
            if pattern is None:
                raise
            named = []
        others = [queue for queue in start if queue not in named]
        if others and pattern is not None:  # deleted, or the pattern has changed
            there = {found.queue for found in self._listed()}
            hosts = self.options.hosts if self.options.has_many_hosts else ("",)
            others = [queue for queue in others if queue in there or self.host(queue) not in hosts]
        if others:
            wanted = pattern or ", ".join(named)
            raise OptionError(
                f"the checkpoint is of {', '.join(map(repr, start))}, the options name {wanted!r}: "
                "a stream continues with the queues that it began with. "
                f"Name {', '.join(map(repr, others))} too, or begin with a new checkpoint"
            )
        return list(dict.fromkeys([*start, *named]))

    def ranges(self, queue: str, start: int, end: int | None, claim: Claim | None = None) -> tuple[Range, ...]:
        """Split (start, end] according to the options; `claim` is its claim, if it was claimed."""
        options = self.options
        held = (None, None) if claim is None else (options.consumerGroup, claim.token)
        if claim is None:
            plan = self.plane.plan(queue, options.source, start, end)
            count, end = sum(part.count for part in plan.ranges), plan.end
        else:
            count = claim.count
        wanted = max(options.minPartitions, -(-count // (options.maxRecordsPerPartition or _RECORDS)))
        if options.maxRecordsPerPartition is None:
            wanted = min(wanted, max(1, count // _WORTHWHILE))
        if claim is None and (wanted == 1 or not count):
            return plan.ranges
        return self.plane.plan(queue, options.source, start, end, wanted, group=held[0], token=held[1]).ranges

    def columns(self) -> list[str]:
        """Return the columns that must be read for the requested ones."""
        needed = [name for name in self.names if name != TEXT.name]
        extra = ["body", "body_type"] if TEXT.name in self.names else []
        wanted = dict.fromkeys(needed + extra + self.selection.columns())
        return [name for name in wanted if name != HOST] or ["sequence"]

    def shaped(self, batch: pa.RecordBatch, queue: str) -> Iterator[pa.RecordBatch]:
        """Convert rows of a queue to the requested schema."""
        options = self.options
        if options.has_many_hosts:
            batch = batch.append_column(HOST, pa.repeat(pa.scalar(self.host(queue), pa.string()), batch.num_rows))
        batch = self.selection.rows(batch)
        if TEXT.name in self.names:
            batch, odd = with_text(batch, options.decode)
            self._odd += odd
        batch = batch.select(self.names).rename_columns(self._given_names)
        for at in range(0, batch.num_rows, options.fetchRows):
            yield batch.slice(at, options.fetchRows)

    def fetch(self, part: QueueRange, fail_on_loss: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Raises DataLoss."""
        damaged: list[int] = []
        batches = self.plane.read(
            part.queue, self.options.source, part.start, part.end, self.columns(), self.options.includeBody,
            part.group, part.token, damaged.extend,
        )  # fmt: skip
        which = f"of {part.queue or self.options.source} between {part.start} and {part.end}"
        return self.complete(part.queue, which, part.count, batches, fail_on_loss, damaged)

    def complete(
        self, queue: str, which: str, wanted: int, batches: Iterable[pa.RecordBatch], fail_on_loss: bool,
        damaged: Sequence[int] = (),
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Convert rows to the requested schema. Raises DataLoss if there are fewer messages than planned; `which`
        describes them, and `damaged` collects lookup identifiers of messages that cannot be decoded."""
        _settle_in()
        rows = self._odd = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                yield from self.shaped(batch, queue)
        except NO_QUEUE as error:
            if fail_on_loss:
                raise queue_lost(queue or self.options.source, error) from error
        if self._odd:
            logger.warning(
                "%d of %d messages %s: column text is null or has U+FFFD, because their bodies do not match decode=%s",
                self._odd, rows, which, self.options.decode,
            )  # fmt: skip
        keys = ", ".join(f"{key:#x}" for key in damaged[:_FEW])
        if rows >= wanted:
            if damaged:  # and as many unplanned messages arrived
                logger.warning("%d messages %s can't be decoded and are left out: %s", len(damaged), which, keys)
            return
        unreadable = f", {len(damaged)} of them can't be decoded (by lookup id: {keys})" if damaged else ""
        what = f"{wanted - rows} of {wanted} messages {which} are gone since the read was planned{unreadable}"
        self.lost(what, fail_on_loss)

    @staticmethod
    def lost(what: str, fail: bool) -> None:
        """Report planned messages that are missing: raise DataLoss, or log it."""
        if fail:
            raise DataLoss(f"{what}; with failOnDataLoss=false, the stream continues without them")
        logger.warning("%s; failOnDataLoss=false: going on without them", what)


@cache
def _settle_in() -> None:
    """Tune garbage collection and memory of a Spark worker. It collects garbage after every task, so exclude the
    modules imported so far; keep freed memory, because record batches of some MiB are allocated repeatedly."""
    gc.freeze()
    set_thresholds(_KEPT, _KEPT)


class MsmqReader(Fetching, DataSourceReader):
    """A snapshot: each queue up to its last stable position.

    Attributes:
        ends: ends of an earlier plan, whose queues alone are read. None for a first plan.
    """

    ends: dict[str, int] | None = None

    def last_positions(self) -> dict[str, int]:
        """Return the last stable position of each queue."""
        source = self.options.source
        return self.each(self.queues(), lambda queue: self.plane.position(queue, source).stable)

    def partitions(self) -> Sequence[InputPartition]:
        return [part for parts in self.each(self.queues(), self._parts).values() for part in parts]

    def _parts(self, queue: str) -> list[QueueRange]:
        bounds = self._bounds(queue)
        if bounds is None:
            return []
        found = [part for part in self.ranges(queue, *bounds) if part.count]
        return [QueueRange(queue, part.start, part.end, part.count) for part in found]

    def _bounds(self, queue: str) -> tuple[int, int | None] | None:
        """Return the range of a queue to read; None if it is empty."""
        options, selection = self.options, self.selection
        if not self._is_admitted(queue):
            return None
        start = named_offset("startingOffsets", options.startingOffsets, queue)
        if start == "latest":
            start = self.plane.position(queue, options.source).stable
        end = named_offset("endingOffsets", options.endingOffsets, queue)
        if end == "latest" and self.ends is not None:
            if queue not in self.ends:
                return None
            end = self.ends[queue]
        first, last = start if isinstance(start, int) else 0, end if isinstance(end, int) else None
        if selection.has_limits():
            # Never end after the unfiltered end, and never start after the server's last position.
            at = self.plane.position(queue, options.source)
            highest = max(at.stable, at.last)
            if first > highest:
                self.ranges(queue, first, last)  # raises if the offset is from another queue manager
                return None
            last = at.stable if last is None else last
            last = last if selection.until is None else min(last, selection.until)
            if selection.after >= highest:
                return None
            first = max(first, selection.after)
        if last is None or last > first:
            return first, last
        if first == start:
            self.ranges(queue, first, last)  # raises if the offset is from another queue manager
        return None

    def _is_admitted(self, queue: str) -> bool:
        """Whether the filters admit the queue, judged by its name and source."""
        source = self.options.source
        known = {HOST: self.host(queue)} if self.options.has_many_hosts else {}
        if not self.selection.admits(**known):
            return False  # before a request to the host
        if source in _FIXED or ";" not in queue:  # the name may belong to another source
            known["source"] = source
        if self.selection.concerns("queue") and (path := self._path_name(queue)) is not None:
            known["queue"] = path
        return self.selection.admits(**known)

    def _path_name(self, queue: str) -> str | None:
        """Return the value of the column `queue`; None for an older server that does not report it."""
        if not isinstance(self.plane, FLIGHT):
            return self.plane.check(queue, self.options.source)
        return self.plane.position(queue, self.options.source).queue or (None if self.plain(queue) else "")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueueRange):  # Spark creates one partition if there is none
            return iter(())
        return self.fetch(partition, self.options.failOnDataLoss is True)  # others may receive messages meanwhile


class FilteringReader(MsmqReader):
    """A reader with filter pushdown. A separate class, because Spark rejects it while pushdown is disabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [condition for condition in filters if not self.selection.take(condition)]


def named_offset(option: str, offsets: str | dict[str, int], queue: str) -> str | int:
    """Return the offset of a queue. Raises OptionError if the JSON object omits it."""
    if isinstance(offsets, str):
        return offsets
    if queue not in offsets:
        raise OptionError(f"{option} has no entry for {queue!r}, only for {', '.join(offsets) or 'nothing'}")
    return offsets[queue]
