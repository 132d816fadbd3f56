"""Interface of the queue manager to its store, and translation of store failures. `openmsmq.store.Store` implements the
protocol; tests may use a dictionary."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Protocol

from openmsmq.model.errors import MessageStorageFailed
from openmsmq.model.exhaustion import exhausted
from openmsmq.record.compact_record import COMPACT_HEAD, expand_head
from openmsmq.store import DamagedRecord, Insert, MessageRows, Operation, StoreFailed, StoreFull

# Errors of reading and decoding a stored record.
UNREADABLE = (DamagedRecord, ValueError, OSError, struct.error)


class MessageStore(Protocol):
    """Store of messages and definitions. Each batch is atomic; nothing is durable before the owner of the store has
    synced it."""

    @property
    def definitions(self) -> Mapping[bytes, bytes]: ...

    @property
    def high_key(self) -> int: ...

    @property
    def durable_end(self) -> int: ...

    @property
    def largest_payload(self) -> int: ...

    def append(self, operations: Sequence[Operation]) -> list[int]: ...

    def reserve(self, high: int) -> None: ...

    def append_pending(self, transaction: int, inserts: Sequence[Insert]) -> list[int]: ...

    def insert_rows(self, rows: MessageRows, also: Sequence[Operation] = ()) -> array[int]: ...

    def append_rows(self, transaction: int, rows: MessageRows) -> array[int]: ...

    def prepare(self, transaction: int, note: bytes, inserts: Sequence[Insert] = ()) -> list[int]: ...

    def commit(self, transaction: int, operations: Sequence[Operation] = ()) -> list[int]: ...

    def settle(
        self, commits: Sequence[int], aborts: Sequence[int], operations: Sequence[Operation] = ()
    ) -> list[int]: ...

    def abort(self, transaction: int) -> None: ...

    def read(self, location: int) -> bytes: ...

    def read_all(self, locations: Sequence[int]) -> list[bytes]: ...

    def heads(self, locations: Sequence[int], length: int) -> list[bytes]: ...

    def fail(self, error: BaseException) -> NoReturn: ...


def plain_heads(store: MessageStore, locations: Sequence[int], length: int) -> list[bytes]:
    """Return the first `length` bytes of stored records in plain form; they end with a field. Raises `UNREADABLE`."""
    return [expand_head(head, length) for head in store.heads(locations, length + COMPACT_HEAD)]


class fetching:
    """Context manager for reads of the store. If the system is out of a resource, the record is not damaged: raises
    OutOfResources, which is not in `UNREADABLE`."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and (shortage := exhausted(error)) is not None:
            raise shortage from error


class storing:
    """Context manager for writes: raises MessageStorageFailed for a full disk or a failed store. After a full disk,
    nothing has changed. A failed store ends the process, and until then every operation fails."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, StoreFull | StoreFailed):
            raise exhausted(error) or MessageStorageFailed(detail=str(error)) from error
