"""A queue, with the operations of applications and pipelines on it."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import pyarrow as pa

import openmsmq
from daemon import Daemon
from openmsmq.bulk.client import BulkClient
from openmsmq.bulk.row_stream import Staged


class Plane:
    def __init__(self, daemon: Daemon, queue: str, **properties: Any) -> None:
        self.daemon = daemon
        self.queue = queue
        self.connect()
        self.create(queue, **properties)

    def connect(self, **security: Any) -> None:
        self.client = BulkClient(port=self.port, **security)
        self.manager = self.daemon.connect()

    @property
    def port(self) -> int:
        return int(self.daemon.ready["endpoints"]["flight"]["port"])

    def create(self, queue: str, **properties: Any) -> None:
        self.manager.create_queue(f".\\private$\\{queue}", **properties)

    def send(self, labels: Iterable[str], queue: str | None = None, recoverable: bool = True, **values: Any) -> None:
        with self.manager.open(f".\\private$\\{queue or self.queue}", "send") as opened:
            for label in labels:
                values.setdefault("body", label.encode())
                opened.send(openmsmq.Message(label=label, delivery_guarantee=int(recoverable), **values))

    def labels(self, queue: str | None = None, source: str = "queue", **options: Any) -> list[str]:
        table = self.table(queue, source, columns=["label"], **options)
        found: list[str] = table.column("label").to_pylist()
        return found

    def table(self, queue: str | None = None, source: str = "queue", **options: Any) -> pa.Table:
        options.setdefault("end", (1 << 56) - 1)
        batches = list(self.client.read(self.queue if queue is None else queue, source, **options))
        return pa.Table.from_batches(batches) if batches else pa.table({"label": pa.array([], pa.string())})

    def stage(self, batch: int, labels: str, sink: str = "", **options: Any) -> Staged:
        rows = pa.record_batch({"body": pa.array([b""] * len(labels), pa.binary()), "label": pa.array(list(labels))})
        options = {"default_queue": self.queue, **options}
        return self.client.stage(sink or self.queue, batch, 0, 0, [rows], **options)

    def restart(self) -> None:
        """Kill the daemon with SIGKILL and start it again."""
        self.daemon.kill()
        self.daemon.start()
        self.client.close()
        self.connect()

    def __enter__(self) -> Plane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()
        self.manager.close()
