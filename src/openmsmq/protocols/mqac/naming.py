"""Format names of path names ([MC-MQAC] 3.1.6.2), immediately or after a directory lookup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from msrpc.dcom.server import is_awaitable
from openmsmq.model import names
from openmsmq.model.errors import QueueNotFound
from openmsmq.protocols.environment import Environment

T = TypeVar("T")


def format_name_of(environment: Environment, path_name: str) -> names.FormatName:
    """Get Queue Format Name from Pathname, 3.1.6.2: DIRECT=OS for a private queue (D-116) or a subqueue, PUBLIC= for a
    public queue of this machine. A computer "." becomes the name of this machine (3.10.6.1), because the name may be
    used on another one. Raises IllegalQueuePathName, and QueueNotFound for any other public queue."""
    path = names.parse_path_name(path_name)
    if path.kind == "public" and not path.subqueue:
        registry = environment.manager.registry
        queue = registry.queue_for_path_name(path)
        if queue is None:
            raise QueueNotFound(detail=f"{path}: public queues need a directory")
        return registry.format_name(queue)
    if path.computer == ".":
        path = replace(path, computer=environment.manager.machine.computer_name)
    return names.parse_format_name(f"DIRECT=OS:{path}")


def is_public_path(path_name: str) -> bool:
    """Whether a path name is that of a public queue. Raises IllegalQueuePathName."""
    path = names.parse_path_name(path_name)
    return path.kind == "public" and not path.subqueue


def needs_lookup(environment: Environment, path_name: str) -> bool:
    """Whether only the directory knows the format name for a path name. Raises IllegalQueuePathName."""
    if not environment.directory.exists or not is_public_path(path_name):
        return False
    return environment.manager.registry.queue_for_path_name(names.parse_path_name(path_name)) is None


async def format_name_in_directory(environment: Environment, path_name: str) -> str:
    """Look up the format name of a public queue in the directory."""
    return f"PUBLIC={await environment.public_queues.identifier_of(names.parse_path_name(path_name))}"


def after(work: Awaitable[Any] | None, then: Callable[[], T]) -> T | Awaitable[T]:
    """Return the result of `then`, called immediately or, if `work` is not None, after that has finished."""
    return then() if work is None else _later(work, then)


async def _later(work: Awaitable[Any], then: Callable[[], Any]) -> Any:
    await work
    result = then()
    return await result if is_awaitable(result) else result
