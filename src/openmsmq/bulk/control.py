"""The daemon's half of the bulk plane: what its Flight process asks of the queue manager.

Runs on the event loop, so everything here is small: positions are handed out in slices, long operations go step by
step. Records stay on the disk; the Flight process reads them there.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from array import array
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from openmsmq.bulk.channel import Channel
from openmsmq.bulk.framing import frame
from openmsmq.model.constants import Access
from openmsmq.model.errors import (
    AccessDenied,
    HResult,
    IllegalPropertyValue,
    MessageStorageFailed,
    MsmqError,
    OperationCancelled,
    TransactionSequence,
)
from openmsmq.model.security import ANONYMOUS, sid_bytes
from openmsmq.queueing.access import Caller
from openmsmq.queueing.consuming import Slice
from openmsmq.queueing.groups import Group, Limits
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import Queue, QueueKind, sequence_of
from openmsmq.queueing.stages import Draft, Stage, Target
from openmsmq.rpc.ntlm import nt_hash
from openmsmq.rpc.users import UsersFile
from openmsmq.store import DamagedRecord, Store

logger = logging.getLogger(__name__)
T = TypeVar("T")

PIECE_ROWS = 1024  # positions of a slice that are gathered in one turn of the loop
_POLL = 0.02  # seconds between looks for something to claim: what becomes stable tells nobody
_LONGEST_WAIT = 60.0


@dataclass(slots=True)
class Upload:
    """A stage that is being written; with `collect` it goes on without the rows that are refused."""

    stage: Stage
    transactional: bool
    collect: bool
    targets: list[Target] = field(default_factory=list)


class Control:
    """Answers one Flight process at a time."""

    def __init__(
        self,
        manager: QueueManager,
        store: Store,
        when_durable: Callable[[Callable[[], object]], None],
        users: UsersFile,
        *,
        accepts_anonymous: bool,
        is_administrator: Callable[[str | None], bool],
    ) -> None:
        self._manager = manager
        self._store = store
        self._when_durable = when_durable
        self._users = users
        self._accepts_anonymous = accepts_anonymous
        self._is_administrator = is_administrator
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)  # by queue number
        self._slicing = asyncio.Lock()  # one piece of one slice in a turn of the loop
        self._uploads: dict[str, Upload] = {}
        self._operations = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    async def serve(self, connection: socket.socket) -> None:
        """Answer requests until the other side has gone, or this is cancelled."""
        tasks: set[asyncio.Task[None]] = set()

        def receive(channel: Channel, number: int, values: dict[str, Any], data: bytearray) -> None:
            task = asyncio.create_task(self._answer(channel, number, values, data))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        channel = await Channel.open(connection, receive)
        try:
            await channel.closed.wait()
        finally:
            channel.close()
            for task in list(tasks):
                task.cancel()
            for handle in list(self._uploads):
                self._drop(handle)

    async def _answer(self, channel: Channel, number: int, values: dict[str, Any], data: bytearray) -> None:
        try:
            answer = await self._perform(values, data)
            reply = frame(number, *answer) if isinstance(answer, tuple) else frame(number, {"result": answer})
        except MsmqError as error:
            reply = frame(number, {"hresult": error.hresult, "detail": error.detail})
        except (DamagedRecord, OSError) as error:
            logger.error("bulk: %s", error)
            reply = frame(number, {"hresult": HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, "detail": str(error)})
        except (KeyError, TypeError, ValueError) as error:  # the client's JSON, or a mistake of ours
            logger.warning("bulk: %s: %r", values.get("op"), error)
            detail = f"{values.get('op')}: arguments are wrong: {error!r}"
            reply = frame(number, {"hresult": HResult.MQ_ERROR_INVALID_PARAMETER, "detail": detail})
        await channel.send(reply)

    async def _perform(self, values: dict[str, Any], data: bytearray) -> Any:
        operation = self._operations.get(values.pop("op"))
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"no such action; allowed: {allowed}")
        caller = self._caller(values.pop("caller", None))
        if data:
            values["data"] = data
        return await operation(caller, **values)

    def _caller(self, caller: list[str | None] | None) -> Caller:
        sid, name = caller or (None, None)
        found = Caller.anonymous() if sid is None else Caller.user(sid, name or "")
        return found.as_administrator() if self._is_administrator(sid) else found

    # -- who ---------------------------------------------------------------------------------------------------

    async def do_authenticate(self, _: Caller, user: str | None, password: str = "") -> list[str | None]:
        """SID and name of a user; None for an anonymous caller. Raises AccessDenied."""
        if user is None:
            if not self._accepts_anonymous:
                raise AccessDenied(detail="anonymous callers are refused: name a user")
            return [None, None]
        known = self._users.lookup("", user)
        given = nt_hash(password)
        if known is None or not hmac.compare_digest(known[0], given):
            raise AccessDenied(detail=f"user {user} is unknown, or the password is wrong")
        return [known[1], user]

    async def do_describe(self, _: Caller) -> dict[str, Any]:
        """What the Flight process has to know of the store."""
        return {"directory": self._store.directory, **self._store.layout}

    # -- looking -----------------------------------------------------------------------------------------------

    async def do_queues(self, caller: Caller) -> list[dict[str, Any]]:
        found = []
        for queue in list(self._manager.state.queues.values()):
            text, source = self._name_of(queue)
            try:
                self._manager.source(text, source, caller)
            except MsmqError:
                continue
            found.append(
                {
                    "queue": text, "source": source, "transactional": bool(queue.properties.transactional),
                    "count": len(queue.available), "bytes": queue.total_bytes,
                    "stable": self._manager.last_stable(queue),
                }
            )  # fmt: skip
        return found

    def _name_of(self, queue: Queue) -> tuple[str, str]:
        """How clients name a queue."""
        state = self._manager.state
        if queue.kind is QueueKind.OUTGOING:
            return queue.properties.label, "outgoing"
        if queue.kind is QueueKind.JOURNAL:
            return state.owner_of(queue).properties.path_name, "journal"
        if queue.kind is QueueKind.SYSTEM:
            names = {state.system_journal.number: "journal", state.dead_letters.number: "deadletter"}
            return "", names.get(queue.number, "xactdeadletter")
        return queue.properties.path_name, "queue"

    async def do_position(
        self, caller: Caller, queue: str, source: str = "queue", group: str | None = None
    ) -> dict[str, int]:
        found = self._manager.source(queue, source, caller)
        stable = self._manager.last_stable(found, self._manager.group(found, group) if group else None)
        ends = [sequence_of(key) for key in found.ends()]
        return {
            "first": min(ends, default=0), "last": max(ends, default=0),
            "stable": stable, "count": len(found.available),
        }  # fmt: skip

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
        found, holder = self._readable(caller, queue, source, group, token)
        if end is None:
            end = self._manager.last_stable(found) if holder is None else holder.end
        end, ranges = await _run(
            self._manager.divide(found, start, end, partitions, _limits(max_messages, max_bytes), holder)
        )
        return {"end": end, "ranges": [dict(zip(("start", "end", "count", "bytes"), r, strict=True)) for r in ranges]}

    def _readable(
        self, caller: Caller, queue: str, source: str, group: str | None, token: str | None
    ) -> tuple[Queue, Group | None]:
        """The queue, and the group whose claim is read."""
        if group is None:
            return self._manager.source(queue, source, caller), None
        found = self._manager.source(queue, source, caller, Access.RECEIVE)
        holder = self._manager.group(found, group, token or "")
        assert holder is not None  # a token that is wrong is refused
        return found, holder

    # -- reading -----------------------------------------------------------------------------------------------

    async def do_slice(
        self,
        caller: Caller,
        queue: str,
        source: str,
        start: int,
        end: int | None,
        group: str | None = None,
        token: str | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """Positions from `start` on, in pieces between which others have their turn, as `Slice.data`. The value has
        `aborts`, lookup identifiers with the counts that are not in their records."""
        found, holder = self._readable(caller, queue, source, group, token)
        if end is None:
            end = self._manager.last_stable(found) if holder is None else holder.end
        slice = Slice()
        async with self._slicing:
            while not slice.is_full():
                keys = self._manager.within(found, start, end, PIECE_ROWS, holder)
                slice.take(found, keys)
                if len(keys) < PIECE_ROWS:
                    break
                start = sequence_of(keys[-1])
                await asyncio.sleep(0)
        if self._store.position != self._store.durable_position:
            await self._durable()
        text, kind = self._name_of(found)
        counts = found.aborts  # of few messages, or none
        aborts = [(key, counts[key]) for key in slice.keys if key in counts] if counts else []
        values = {"count": len(slice.keys), "end": end, "path": text, "source": kind, "aborts": aborts}
        return {"result": values}, slice.data()

    async def do_locate(self, caller: Caller, queue: str, source: str, data: bytearray) -> tuple[dict[str, Any], bytes]:
        """Where messages are now that were not where a slice said; 0 for one that has gone."""
        found = self._manager.source(queue, source, caller)
        keys = array("Q", data)
        places = array("Q", [(found.location(key) or 0) if key in found.entries else 0 for key in keys])
        await self._durable()
        return {"result": {}}, places.tobytes()

    # -- consumer groups ---------------------------------------------------------------------------------------

    def _claimable(self, caller: Caller, queue: str, source: str) -> Queue:
        return self._manager.source(queue, source, caller, Access.RECEIVE)

    async def do_groups(self, caller: Caller) -> list[dict[str, Any]]:
        state, found = self._manager.state, []
        for number, groups in list(self._manager.groups.items()):
            text, source = self._name_of(state.queues[number])
            try:
                self._claimable(caller, text, source)
            except MsmqError:
                continue
            found += [
                {
                    "queue": text, "source": source, "group": group.name,
                    "cursor": group.cursor, "end": group.end, "count": len(group.keys),
                }
                for group in groups.values()
            ]  # fmt: skip
        return found

    async def do_cursor(self, caller: Caller, queue: str, group: str, source: str = "queue") -> dict[str, int | None]:
        found = self._manager.group(self._claimable(caller, queue, source), group)
        return {"cursor": None if found is None else found.cursor}

    async def do_claim(
        self,
        caller: Caller,
        queue: str,
        group: str,
        start: int,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        wait_seconds: float = 0,
        source: str = "queue",
    ) -> dict[str, Any]:
        found = self._claimable(caller, queue, source)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(wait_seconds, _LONGEST_WAIT)
        while True:
            async with self._locks[found.number]:
                made = await _run(self._manager.claim(found, group, start, _limits(max_messages, max_bytes)))
                answer = {"start": start, "end": made.end, "count": len(made.keys), "token": made.token}
            if answer["count"] or loop.time() >= deadline:
                break
            await self._wait_for_something(found, made, deadline)
        await self._durable()
        return answer

    async def _wait_for_something(self, queue: Queue, group: Group, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < deadline and not queue.deleted:
            await asyncio.sleep(_POLL)
            if queue.within(group.cursor, self._manager.last_stable(queue, group), 1):
                return

    async def do_commit(
        self, caller: Caller, queue: str, group: str, end: int, source: str = "queue"
    ) -> dict[str, int]:
        found = self._claimable(caller, queue, source)
        async with self._locks[found.number]:
            holder = self._known(found, group)
            await _run(self._manager.commit_claim(holder, end))
        await self._durable()
        return {"cursor": holder.cursor}

    async def do_release(
        self, caller: Caller, queue: str, group: str, source: str = "queue", forget: bool = False
    ) -> dict[str, int]:
        found = self._claimable(caller, queue, source)
        async with self._locks[found.number]:
            count = await _run(self._manager.release_claim(self._known(found, group), forget))
        await self._durable()
        return {"count": count}

    def _known(self, queue: Queue, name: str) -> Group:
        group = self._manager.group(queue, name)
        if group is None:
            raise TransactionSequence(detail=f"{queue.properties.path_name} has no consumer group {name!r}")
        return group

    # -- staged sends ------------------------------------------------------------------------------------------

    async def do_begin_stage(
        self,
        caller: Caller,
        sink: str,
        batch: int,
        partition: int,
        attempt: str,
        transactional: bool,
        collect: bool = False,
    ) -> dict[str, Any]:
        stage = self._manager.begin_stage(sink, batch, partition, attempt, caller)
        self._uploads[stage.handle] = Upload(stage, transactional, collect)
        sender = "" if caller.sid == ANONYMOUS else sid_bytes(caller.sid).hex()
        return {"handle": stage.handle, "sender": sender}

    async def do_target(self, caller: Caller, stage: str, queue: str) -> dict[str, Any]:
        """Where rows go that name this queue: an index for `stage`, and the format name for their records; or why they
        are refused."""
        upload = self._upload(stage)
        try:
            target = self._manager.stage_target(queue, upload.transactional, caller)
        except MessageStorageFailed:  # an outgoing queue can't be made now; the rows are not to blame
            raise
        except MsmqError as error:
            return {"refused": _told(error)}
        upload.targets.append(target)
        return {"index": len(upload.targets) - 1, "name": target.name}

    async def do_stage(
        self, caller: Caller, stage: str, count: int, last: bool, data: bytearray | None = None
    ) -> dict[str, Any]:
        """Rows: indices of their targets, sizes, records. The answer has those that are refused, by their place. The
        stage is dropped when it fails, or a row is refused that was not to be."""
        upload = self._upload(stage)
        data = data or bytearray()
        targets, sizes = array("I", data[: 4 * count]), array("I", data[4 * count : 8 * count])
        options = {"last": last, "collect": upload.collect}
        try:
            if len(set(targets)) == 1:
                target = upload.targets[targets[0]]
                refused = self._manager.stage_rows(upload.stage, target, data, 8 * count, sizes, **options)
            else:
                bounds = pairwise(accumulate(sizes, initial=8 * count))
                drafts = [
                    Draft(upload.targets[target], data[start:end])
                    for target, (start, end) in zip(targets, bounds, strict=True)
                ]
                refused = self._manager.stage(upload.stage, drafts, **options)
            if refused and not upload.collect:
                self._drop(stage)
            elif last:
                self._manager.seal(upload.stage)
                del self._uploads[stage]
        except Exception:
            self._drop(stage)
            raise
        await self._durable()  # also in between, or the last sync would have to write everything at once
        told = [(place, *_told(error)) for place, error in refused]
        return {"handle": stage, "rows": upload.stage.rows, "refused": told}

    def _upload(self, stage: str) -> Upload:
        if stage not in self._uploads:
            raise OperationCancelled(detail=f"stage {stage} was dropped")
        return self._uploads[stage]

    async def do_drop_stage(self, caller: Caller, stage: str) -> None:
        """The client went, or one of its rows can't be encoded."""
        self._drop(stage)

    def _drop(self, handle: str) -> None:
        upload = self._uploads.pop(handle, None)
        if upload is not None:
            try:
                self._manager.drop_stage(upload.stage)
            except MsmqError as error:  # what was not sealed goes at the next start all the same
                logger.warning("stage %s: %s", handle, error)

    async def do_finalize(self, caller: Caller, sink: str, batch: int, stages: list[str]) -> None:
        self._manager.finalize(sink, batch, stages, caller)
        await self._durable()

    async def do_stages(self, caller: Caller) -> list[dict[str, Any]]:
        try:
            self._manager.demand_administrator(caller, "the stages of others")
            sees_all = True
        except AccessDenied:
            sees_all = False
        return [
            {
                "handle": stage.handle, "sink": stage.sink, "batch": stage.batch, "partition": stage.partition,
                "owner": stage.owner, "rows": stage.rows, "sealed": stage.sealed,
                "queues": [self._name_of(self._manager.state.queues[number])[0] for number in stage.messages],
            }
            for stage in self._manager.stages.values()
            if sees_all or stage.owner == caller.sid
        ]  # fmt: skip

    async def do_last_batch(self, caller: Caller, sink: str) -> dict[str, int | None]:
        return {"batch": self._manager.last_batch(sink)}

    async def do_forget(
        self, caller: Caller, sink: str, batch: int | None = None, stages: list[str] | None = None
    ) -> dict[str, int]:
        count = self._manager.forget_stages(sink, batch, stages, caller)
        await self._durable()
        return {"count": count}

    async def _durable(self) -> None:
        """Everything that was appended is on the disk."""
        durable = asyncio.Event()
        self._when_durable(durable.set)
        await durable.wait()


def _told(error: MsmqError) -> tuple[int, str]:
    return error.hresult, error.detail


async def _run(steps: Generator[None, None, T]) -> T:
    """An operation step by step, with turns for everybody else in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def _limits(messages: int | None, volume: int | None) -> Limits:
    for name, value in (("max_messages", messages), ("max_bytes", volume)):
        if value is not None and value < 1:
            raise IllegalPropertyValue(detail=f"{name} {value}: 1 or more")
    defaults = Limits()
    return Limits(defaults.messages if messages is None else messages, defaults.bytes if volume is None else volume)
