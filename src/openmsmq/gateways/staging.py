"""Operations of the bulk plane: store messages in stages, and make them visible together."""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from openmsmq.gateways.context import Context
from openmsmq.model.errors import MessageStorageFailed, MsmqError, OperationCancelled
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.security import ANONYMOUS, sid_bytes
from openmsmq.processes.flight_requests import invalid, shown
from openmsmq.queueing.authorization import Caller, Owned, Right
from openmsmq.queueing.stages import Draft, Stage, StageTarget

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StagedUpload:
    """A stage that is being written. With `collect`, refused rows are skipped; otherwise, the stage is dropped."""

    stage: Stage
    transactional: bool
    collect: bool
    targets: list[StageTarget] = field(default_factory=list)


class Staging:
    """The stages of one Flight process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._manager = context.manager
        self._staged, self._sinks = context.manager.staged_writes, context.manager.sinks
        self._uploads: dict[str, StagedUpload] = {}

    def drop_all(self) -> None:
        """Drop all stages: their writer has disconnected."""
        for _ in LEFT_OUT.each("stages whose writer has disconnected", list(self._uploads), self._drop):
            pass  # consume the generator

    async def do_begin_stage(
        self,
        caller: Caller,
        sink: str,
        batch: int,
        partition: int,
        attempt: str,
        transactional: bool = False,
        collect: bool = False,
        query: str = "",
    ) -> dict[str, Any]:
        stage = self._staged.begin(sink, batch, partition, attempt, caller, query)
        self._uploads[stage.handle] = StagedUpload(stage, transactional, collect)
        sender = "" if caller.sid == ANONYMOUS else sid_bytes(caller.sid).hex()
        return {"handle": stage.handle, "sender": sender}

    async def do_target(self, caller: Caller, stage: str, queue: str) -> dict[str, Any]:
        """Look up a target queue. Returns its index for `stage` and the format name for records, or why its rows are
        refused."""
        upload = self._upload(caller, stage)
        try:
            target = self._staged.target(queue, upload.transactional, caller)
        except MessageStorageFailed:  # an outgoing queue cannot be created now, which is not an error of the rows
            raise
        except MsmqError as error:
            return {"refused": _shown_error(error)}
        upload.targets.append(target)
        return {"index": len(upload.targets) - 1, "name": target.name}

    async def do_stage(self, caller: Caller, stage: str, count: int, last: bool, data: bytearray) -> dict[str, Any]:
        """Add rows to a stage: indices of their targets, sizes, records. Returns the refused rows by position. The
        stage is dropped after an error and, without `collect`, if a row is refused."""
        upload = self._upload(caller, stage)
        targets, sizes = array("I", data[: 4 * count]), array("I", data[4 * count : 8 * count])
        if len(sizes) != count or 8 * count + sum(sizes) != len(data):
            self._drop(stage)
            raise invalid(f"stage: {len(data)} bytes for {count} rows, allowed: targets, sizes and {count} records")
        if count and max(targets) >= len(upload.targets):
            self._drop(stage)
            raise invalid(f"stage: target {max(targets)}, allowed: those of {len(upload.targets)} queues")
        self._sinks.saw_writer(upload.stage.sink)
        options = {"last": last, "collect": upload.collect}
        try:
            if len(set(targets)) == 1:
                target = upload.targets[targets[0]]
                refused = self._staged.stage_rows(upload.stage, target, data, 8 * count, sizes, **options)
            else:
                bounds = pairwise(accumulate(sizes, initial=8 * count))
                drafts = [
                    Draft(upload.targets[target], data[start:end])
                    for target, (start, end) in zip(targets, bounds, strict=True)
                ]
                refused = self._staged.stage(upload.stage, drafts, **options)
            if refused and not upload.collect:
                self._drop(stage)
            elif last:
                self._staged.seal(upload.stage)
                del self._uploads[stage]
        except Exception:
            self._drop(stage)
            raise
        await self._context.durable()  # for each part, so that the last sync is short
        shown = [(place, *_shown_error(error)) for place, error in refused]
        return {"handle": stage, "rows": upload.stage.rows, "refused": shown}

    def _upload(self, caller: Caller, stage: str) -> StagedUpload:
        upload = self._uploads.get(stage)
        if upload is None or upload.stage.owner != caller.sid:
            raise OperationCancelled(detail=f"stage {shown(stage)} was dropped")
        return upload

    async def do_drop_stage(self, caller: Caller, stage: str) -> None:
        """Drop a stage: its client has disconnected, or a row could not be encoded."""
        self._drop(stage)

    def _drop(self, handle: str) -> None:
        upload = self._uploads.pop(handle, None)
        if upload is not None:
            try:
                self._staged.drop(upload.stage)
            except MsmqError as error:  # the next start drops unsealed stages
                logger.warning("stage %s: %s", handle, error)

    async def do_finalize(
        self, caller: Caller, sink: str, batch: int, stages: list[str], query: str = "", once: bool = False
    ) -> None:
        self._staged.finalize(sink, batch, stages, caller, query, once)
        await self._context.durable()

    async def do_renew(self, caller: Caller, sink: str) -> None:
        """Accept a keep-alive from a writer that has open stages."""
        if any(stage.sink == sink and stage.owner == caller.sid for stage in self._staged.stages()):
            self._sinks.saw_writer(sink)

    async def do_stages(self, caller: Caller) -> list[dict[str, Any]]:
        authorization = self._manager.authorization
        queues = self._manager.registry.queues  # a queue may have been deleted meanwhile

        def shown(stage: Stage) -> dict[str, Any] | None:
            if not authorization.allows(caller, Owned(stage.owner, f"stage {stage.handle}"), Right.USE_OWN):
                return None
            return {
                "handle": stage.handle, "sink": stage.sink, "batch": stage.batch, "partition": stage.partition,
                "owner": stage.owner, "rows": stage.rows, "sealed": stage.sealed, "query": stage.query,
                "idle_seconds": self._sinks.writer_idle(stage.sink) // 1000,
                "queues": [
                    self._context.name_of(queues[number])[0] for number in stage.messages if number in queues
                ],
            }  # fmt: skip

        found = LEFT_OUT.each("stages", self._staged.stages(), shown, lambda stage: stage.handle)
        return [one for one in found if one is not None]

    async def do_last_batch(self, caller: Caller, sink: str) -> dict[str, int | None]:
        return {"batch": self._sinks.last_batch(sink)}

    async def do_forget(
        self, caller: Caller, sink: str, batch: int | None = None, stages: list[str] | None = None,
        memory: bool = False,
    ) -> dict[str, int]:  # fmt: skip
        count = self._staged.forget(sink, batch, stages, caller)
        if memory:
            self._sinks.forget(sink, caller)
        await self._context.durable()
        return {"count": count}


def _shown_error(error: MsmqError) -> tuple[int, str]:
    return error.hresult, error.detail
