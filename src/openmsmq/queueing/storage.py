"""What the queue manager asks of its store. `openmsmq.store.Store` fulfils it; tests may use a dictionary."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

from openmsmq.store import Insert, Operation, Rows


class MessageStore(Protocol):
    """Append-only and atomic by batch; nothing is durable before the owner of the store has synced it."""

    @property
    def definitions(self) -> Mapping[bytes, bytes]: ...

    @property
    def high_key(self) -> int: ...

    @property
    def largest_payload(self) -> int: ...

    def append(self, operations: Sequence[Operation]) -> list[int]: ...

    def reserve(self, high: int) -> None: ...

    def append_pending(self, transaction: int, inserts: Sequence[Insert]) -> list[int]: ...

    def append_rows(self, transaction: int, rows: Rows) -> array[int]: ...

    def prepare(self, transaction: int, note: bytes, inserts: Sequence[Insert] = ()) -> list[int]: ...

    def commit(self, transaction: int, operations: Sequence[Operation] = ()) -> list[int]: ...

    def settle(
        self, commits: Sequence[int], aborts: Sequence[int], operations: Sequence[Operation] = ()
    ) -> list[int]: ...

    def abort(self, transaction: int) -> None: ...

    def read(self, location: int) -> bytes: ...

    def heads(self, locations: Sequence[int], length: int) -> list[bytes]: ...
