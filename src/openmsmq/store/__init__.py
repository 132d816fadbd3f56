"""The durable log of a queue manager: docs/store-format.md describes it."""

from openmsmq.store.columns import PackedColumns, QueueColumns
from openmsmq.store.errors import (
    DamagedRecord,
    DamagedStore,
    RecordTooLarge,
    StoreError,
    StoreFailed,
    StoreFenced,
    StoreFull,
    StoreInUse,
    UnknownFormat,
)
from openmsmq.store.log import Store
from openmsmq.store.opening import Prepared, Recovered, RecoveryReport
from openmsmq.store.operations import Drop, Insert, Move, Operation, Put, Remove, RemoveMany
from openmsmq.store.row_frames import MessageRows
from openmsmq.store.vfs import OsVfs, Vfs

__all__ = [
    "DamagedRecord",
    "DamagedStore",
    "Drop",
    "Insert",
    "MessageRows",
    "Move",
    "Operation",
    "OsVfs",
    "PackedColumns",
    "Prepared",
    "Put",
    "QueueColumns",
    "RecordTooLarge",
    "Recovered",
    "RecoveryReport",
    "Remove",
    "RemoveMany",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreFenced",
    "StoreFull",
    "StoreInUse",
    "UnknownFormat",
    "Vfs",
]
