"""Errors of the store, one exception for each thing a caller can do about it."""

from __future__ import annotations


class StoreError(Exception):
    """Base of every error that the store raises on purpose."""


class NoStore(StoreError):
    """A directory holds neither a segment nor a checkpoint."""


class StoreInUse(StoreError):
    """Another process holds the lock of this directory."""


class StoreFull(StoreError):
    """There is no room for a batch. Nothing of it was applied; the store stays usable, removals still work."""


class RecordTooLarge(StoreError, ValueError):
    """One payload exceeds what a segment can hold. Nothing was applied."""


class StoreFailed(StoreError):
    """A write or a sync of the log failed. What is on disk is unknown, so the store accepts nothing any more."""


class StoreFenced(StoreFailed):
    """Another process has taken the store over. What was not acknowledged may be in it or not."""


class UnknownFormat(StoreError):
    """A file was written by a version of the format that this program does not know."""


class DamagedRecord(StoreError):
    """The record at a location does not pass its check.

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
    """Durable bytes of the log are damaged; opening would lose messages without a word.

    Attributes:
        path: file with the damage.
        offset: byte offset of the first damaged byte that is known.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at offset {offset}: {reason}; run `openmsmq fsck --repair`")
        self.path = path
        self.offset = offset
