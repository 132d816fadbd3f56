"""Exhausted resources: their detection, HRESULTs and remedies.

The message or caller did not cause the failure: the object is unchanged, and works again when the resource is
available.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msrpc.rpc.faults import NCA_S_FAULT_REMOTE_NO_MEMORY
from openmsmq.model.errors import HResult, MessageStorageFailed


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the system. `hresult` is the result of failed operations; `limit` returns the current limit,
    `remedy` tells how to raise it."""

    name: str
    hresult: int
    limit: Callable[[], str]
    remedy: str


def _files_of_process() -> str:
    return f"at most {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"


def _files_of_system() -> str:
    try:
        return f"at most {Path('/proc/sys/fs/file-max').read_text(encoding='ascii').strip()}"
    except OSError:  # no descriptor for this file
        return "the limit is fs.file-max"


def _memory() -> str:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "no limit of the process" if limit == resource.RLIM_INFINITY else f"at most {limit >> 20} MiB"


def _disk() -> str:
    return "the file system of data_dir"


MEMORY: Final = Resource(
    "memory", HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, _memory,
    "give the daemon more memory, or let it keep less: max_connections, quotas of queues with express messages",
)  # fmt: skip
RESOURCES: Final = {
    errno.ENOMEM: MEMORY,
    errno.EMFILE: Resource(
        "file descriptors of the process", HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, _files_of_process,
        "raise LimitNOFILE of the service, or lower max_connections and max_sessions",
    ),
    errno.ENFILE: Resource(
        "file descriptors of the system", HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, _files_of_system,
        "raise the sysctl fs.file-max, or close what else holds files open",
    ),
    errno.ENOSPC: Resource(
        "disk space", HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, _disk, "free space, or receive and purge messages"
    ),
    errno.EDQUOT: Resource(
        "disk quota of the daemon's user", HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, _disk,
        "raise the disk quota, or receive and purge messages",
    ),
}  # fmt: skip


class OutOfResources(MessageStorageFailed):
    """A resource is exhausted; nothing has changed. `hresult` is that of the resource; the text contains its name, its
    limit and the remedy."""

    def __init__(self, ran_out: Resource, error: BaseException) -> None:
        self.ran_out = ran_out
        reason = str(error) or type(error).__name__
        super().__init__(ran_out.hresult, f"out of {ran_out.name} ({ran_out.limit()}): {reason}; {ran_out.remedy}")


def shortage(error: BaseException) -> tuple[int, str] | None:
    """Return the fault status and the log text for a call that failed because a resource is exhausted; None for other
    errors. For `msrpc.rpc.dispatcher.Dispatcher.shortage`."""
    found = exhausted(error)
    if found is None:
        return None
    return NCA_S_FAULT_REMOTE_NO_MEMORY if found.ran_out is MEMORY else found.hresult, str(found)


def exhausted(error: BaseException | None) -> OutOfResources | None:
    """Return the resource that an error, or its cause, reports as exhausted; None if it reports none."""
    while error is not None:
        if isinstance(error, OutOfResources):
            return error
        if isinstance(error, MemoryError):
            return OutOfResources(MEMORY, error)
        if isinstance(error, OSError) and error.errno in RESOURCES:
            return OutOfResources(RESOURCES[error.errno], error)
        error = error.__cause__
    return None
