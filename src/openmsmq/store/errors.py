"""Errors of the store, one class per way in which a caller can react."""

from __future__ import annotations


class StoreError(Exception):
    """Base class of all errors that the store raises."""


class NoStore(StoreError):
    """A directory holds neither a segment nor a checkpoint."""


class StoreInUse(StoreError):
    """Another process holds the lock of this directory."""


class StoreFull(StoreError):
    """The disk is full. Nothing of the batch was applied; the store stays usable, and removals still work."""


class RecordTooLarge(StoreError, ValueError):
    """One payload exceeds what a segment can hold. Nothing was applied."""


class StoreFailed(StoreError):
    """A write or a sync of the log failed. The state on disk is unknown, so the store accepts no more operations."""


class StoreFenced(StoreFailed):
    """Another process has taken over the store. Unacknowledged data may or may not be in it."""


class UnknownFormat(StoreError):
    """A file was written in a format version that this program does not support."""


class DamagedRecord(StoreError):
    """The record at a location is invalid.

    Attributes:
        location: the location that was read.
        path: file that holds it, empty if the segment is gone.
        offset: byte offset in that file.
    """

    def __init__(self, location: int, path: str, offset: int, reason: str) -> None:
        super().__init__(f"damaged record in {path or '(no file)'} at offset {offset}: {reason}")
        self.location = location
        self.path = path
        self.offset = offset


class DamagedStore(StoreError):
    """Durable bytes of the log are damaged; opening the store would silently lose messages.

    Attributes:
        path: file with the damage.
        offset: offset of the first byte known to be damaged.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at offset {offset}: {reason}; run `openmsmq fsck --repair`")
        self.path = path
        self.offset = offset
