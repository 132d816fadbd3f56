from array import array
from typing import Any

def frames(
    data: Any, bounds: Any, keys: Any, extras: Any, queues: Any, first: int, kind: int, flags: int, ending: int,
    transaction: int, tag: int, seed: int, position: int, origin: int, room: int, /,
) -> tuple[bytes, array[int]]: ...  # fmt: skip
def header(
    payload: Any, kind: int, flags: int, position: int, group: int, key: int, extra: int, queue: int, transaction: int,
    tag: int, seed: int, /,
) -> bytes: ...  # fmt: skip
def payloads(data: Any, locations: Any, base: int, first: int, kinds: int, tag: int, seed: int, /) -> list[bytes]: ...
def inserts(
    data: Any, offset: int, base: int, kind: int, flags: int, tag: int, seed: int, /
) -> tuple[list[tuple[int, bytes]], int, int, int, int, int]: ...
