"""Operations of the bulk plane: contents of queues, and their locations on the disk."""

from __future__ import annotations

import asyncio
import sys
from array import array
from typing import Any

from openmsmq.gateways.context import Context, limits, run, sliced
from openmsmq.model.constants import Access
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.lookup_id import sequence_of
from openmsmq.model.text import json_line
from openmsmq.processes.flight_requests import invalid
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.consumer_group import ConsumerGroup
from openmsmq.queueing.queue import Queue
from openmsmq.store.incarnation import incarnation

_MOST_RANGES = 100_000  # maximum ranges of a plan, because one response contains all of them
PIECE_ROWS = 1024  # positions of a slice collected per event-loop iteration
_SLICE_ROWS = 4096
_SLICE_BYTES = 8 << 20
_SLICE_RECORDS = 256  # maximum records in a slice, which the event loop has to encode


class Slice:
    """Positions of messages for a reader in another process. The size is limited, so that building it is fast.

    Attributes:
        keys: lookup identifiers.
    """

    def __init__(self) -> None:
        self.keys: list[int] = []
        self._places: list[bytes] = []
        self._sizes: list[bytes] = []
        self._records: list[bytes] = []  # of express messages, which are only in memory
        self._volume = 0

    def is_full(self) -> bool:
        """Whether the slice is full."""
        return len(self.keys) >= _SLICE_ROWS or self._volume >= _SLICE_BYTES or len(self._records) >= _SLICE_RECORDS

    def take(self, queue: Queue, keys: list[int]) -> None:
        """Add positions of a queue until the slice is full."""
        at = 0
        while at < len(keys) and not self.is_full():
            most, room = _SLICE_ROWS - len(self.keys), _SLICE_BYTES - self._volume
            places, sizes, volume = queue.entries.places(keys, at, most, room)
            if not places:
                record = queue.held_record(keys[at])
                assert record is not None  # it is available and not in the store
                places, sizes, volume = bytes(8), len(record).to_bytes(4, sys.byteorder), len(record)
                self._records.append(record + bytes(-volume % 8))
            self._places.append(places)
            self._sizes.append(sizes)
            self._volume += volume
            end = at + len(places) // 8
            self.keys += keys[at:end]
            at = end

    def data(self) -> bytes:
        """Encode lookup identifiers, locations (0: the record is included, padded to a multiple of 8 bytes), sizes and
        records."""
        return b"".join([array("Q", self.keys).tobytes(), *self._places, *self._sizes, *self._records])


class Slicing:
    """Positions are returned in slices. Records stay on the disk; the Flight process reads them there."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry, self._groups = context.manager.registry, context.manager.consumer_groups
        self._incarnation = incarnation(context.store)
        self._slicing = asyncio.Lock()  # only one slice is collected at a time

    async def do_queues(self, caller: Caller) -> tuple[dict[str, Any], bytes]:
        """Return the number of queues, and their list in JSON."""

        def shown(queue: Queue) -> dict[str, Any] | None:
            text, source = self._context.name_of(queue)
            if not self._context.may_open(caller, text, source):
                return None
            return {
                "queue": text, "source": source, "transactional": bool(queue.properties.transactional),
                "count": len(queue.available), "bytes": queue.total_bytes,
                "stable": self._groups.last_stable(queue),
            }  # fmt: skip

        queues = list(self._registry.queues.values())
        found = LEFT_OUT.each("queues of the bulk plane", queues, shown, lambda queue: queue.properties.path_name)
        lines = [json_line(one) async for one in sliced(found) if one is not None]
        return {"result": len(lines)}, b"[" + b",".join(lines) + b"]"

    async def do_position(
        self, caller: Caller, queue: str, source: str = "queue", group: str | None = None
    ) -> dict[str, Any]:
        found = self._context.source(caller, queue, source)
        stable = self._groups.last_stable(found, self._groups.group(found, group) if group else None)
        ends = [sequence_of(key) for key in found.ends()]
        return {
            "first": min(ends, default=0), "last": max(ends, default=0),
            "stable": stable, "count": len(found.available), "queue": self._context.name_of(found)[0],
        }  # fmt: skip

    async def do_lag(
        self, caller: Caller, queue: str, start: int, source: str = "queue", group: str | None = None
    ) -> dict[str, int]:
        """Return the position of the group, including its claims: its next read continues there."""
        found = self._context.source(caller, queue, source)
        holder = self._groups.group(found, group) if group else None
        stable = self._groups.last_stable(found, holder)
        held = 0 if holder is None else len(holder.keys) - holder.until(start)
        return {"count": held + found.count_within(start, stable), "stable": stable}

    async def do_incarnation(self, _: Caller) -> dict[str, str]:
        return {"incarnation": self._incarnation}

    async def do_plan(
        self,
        caller: Caller,
        queue: str,
        source: str = "queue",
        start: int = 0,
        end: int | None = None,
        partitions: int = 1,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        group: str | None = None,
        token: str | None = None,
    ) -> dict[str, Any]:
        found, holder, end = self._readable(caller, queue, source, group, token, end)
        end, ranges = await run(
            self._groups.divide(
                found, start, end, min(partitions, _MOST_RANGES), limits(max_messages, max_bytes), holder
            )
        )
        return {"end": end, "ranges": [dict(zip(("start", "end", "count", "bytes"), r, strict=True)) for r in ranges]}

    def _readable(
        self, caller: Caller, queue: str, source: str, group: str | None, token: str | None, end: int | None
    ) -> tuple[Queue, ConsumerGroup | None, int]:
        """Return the queue, the group whose claim is read (or None), and the end position, which is `end` if given."""
        if group is None:
            found = self._context.source(caller, queue, source)
            return found, None, self._groups.last_stable(found) if end is None else end
        found = self._context.source(caller, queue, source, Access.RECEIVE)
        holder = self._groups.group(found, group, token or "")
        assert holder is not None  # an invalid token has been refused
        return found, holder, holder.end if end is None else end

    async def do_slice(
        self,
        caller: Caller,
        queue: str,
        source: str = "queue",
        start: int = 0,
        end: int | None = None,
        group: str | None = None,
        token: str | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """Return positions from `start` as `Slice.data`. They are collected in pieces, with other tasks in between.
        `aborts` in the result has lookup identifiers with abort counts that are not in their records."""
        found, holder, end = self._readable(caller, queue, source, group, token, end)
        slice = Slice()
        async with self._slicing:
            while not slice.is_full():
                keys = self._groups.within(found, start, end, PIECE_ROWS, holder)
                slice.take(found, keys)
                if len(keys) < PIECE_ROWS:
                    break
                start = sequence_of(keys[-1])
                await asyncio.sleep(0)
        if self._context.store.end != self._context.store.durable_end:
            await self._context.durable()
        text, kind = self._context.name_of(found)
        counts = found.aborts  # few messages have any
        aborts = [(key, counts[key]) for key in slice.keys if key in counts] if counts else []
        values = {"count": len(slice.keys), "end": end, "path": text, "source": kind, "aborts": aborts}
        return {"result": values}, slice.data()

    async def do_locate(
        self, caller: Caller, queue: str, data: bytearray, source: str = "queue"
    ) -> tuple[dict[str, Any], bytes]:
        """Return the current locations of messages that have moved since a slice was made; 0 if a message is gone."""
        if len(data) % 8:
            raise invalid(f"locate: {len(data)} bytes, allowed: lookup identifiers of 8 bytes each")
        found = self._context.source(caller, queue, source)
        keys = array("Q", data)
        places = array("Q", [(found.location(key) or 0) if key in found.entries else 0 for key in keys])
        await self._context.durable()
        return {"result": {}}, places.tobytes()
