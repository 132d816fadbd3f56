"""Operations of the bulk plane on consumer groups: claim messages for reading, commit and release claims."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from openmsmq.gateways.context import Context, limits, run
from openmsmq.model.constants import Access
from openmsmq.model.errors import TransactionSequence
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.processes.flight_requests import LONGEST_WAIT
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.consumer_group import ConsumerGroup
from openmsmq.queueing.queue import Queue

_POLL = 0.02  # seconds between checks for messages to claim: there is no notification when messages become stable


class Claiming:
    """Runs one operation at a time on the groups of a queue; long operations yield to the event loop between steps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups = context.manager.consumer_groups
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)  # by queue number

    def _claimable(self, caller: Caller, queue: str, source: str) -> Queue:
        return self._context.source(caller, queue, source, Access.RECEIVE)

    async def do_groups(self, caller: Caller) -> list[dict[str, Any]]:
        def shown(of_queue: tuple[Queue, list[ConsumerGroup]]) -> list[dict[str, Any]]:
            held, groups = of_queue
            text, source = self._context.name_of(held)
            if not self._context.may_open(caller, text, source, Access.RECEIVE):
                return []
            return [
                {
                    "queue": text, "source": source, "group": group.name,
                    "cursor": group.cursor, "end": group.end, "count": len(group.keys),
                }
                for group in groups
            ]  # fmt: skip

        def named(of_queue: tuple[Queue, list[ConsumerGroup]]) -> str | None:
            return of_queue[0].properties.path_name

        found = LEFT_OUT.each("queues with consumer groups", self._groups.by_queue(), shown, named)
        return [group for groups in found for group in groups]

    async def do_cursor(self, caller: Caller, queue: str, group: str, source: str = "queue") -> dict[str, int | None]:
        found = self._groups.group(self._claimable(caller, queue, source), group)
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
        token: str | None = None,
    ) -> dict[str, Any]:
        found = self._claimable(caller, queue, source)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(wait_seconds, LONGEST_WAIT)
        may_wait = True
        while True:
            async with self._locks[found.number]:
                made = await run(self._groups.claim(found, group, start, limits(max_messages, max_bytes), token))
                token = made.token  # a claim that took over the group meanwhile ends the wait
                answer = {"start": start, "end": made.end, "count": len(made.keys), "token": made.token}
            if answer["count"] or not may_wait:
                break
            may_wait = await self._wait_for_something(found, made, deadline)
        await self._context.durable()
        return answer

    async def _wait_for_something(self, queue: Queue, group: ConsumerGroup, deadline: float) -> bool:
        """Return whether there were messages to claim before the deadline."""
        loop = asyncio.get_running_loop()
        while loop.time() < deadline and not queue.deleted:
            await asyncio.sleep(_POLL)
            if queue.within(group.cursor, self._groups.last_stable(queue, group), 1):
                return True
        return False

    async def do_commit(
        self, caller: Caller, queue: str, group: str, end: int, source: str = "queue", token: str | None = None
    ) -> dict[str, int]:
        found = self._claimable(caller, queue, source)
        async with self._locks[found.number]:
            holder = self._known(found, group, token)
            await run(self._groups.commit_claim(holder, end))
        await self._context.durable()
        return {"cursor": holder.cursor}

    async def do_release(
        self, caller: Caller, queue: str, group: str, source: str = "queue", forget: bool = False
    ) -> dict[str, int]:
        found = self._claimable(caller, queue, source)
        async with self._locks[found.number]:
            count = await run(self._groups.release_claim(self._known(found, group), forget))
        await self._context.durable()
        return {"count": count}

    def _known(self, queue: Queue, name: str, token: str | None = None) -> ConsumerGroup:
        group = self._groups.group(queue, name, token)
        if group is None:
            raise TransactionSequence(detail=f"{queue.properties.path_name} has no consumer group {name!r}")
        return group
