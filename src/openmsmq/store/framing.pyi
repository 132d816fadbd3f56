from typing import Any

def frames(
    data: Any, bounds: Any, keys: Any, extras: Any, first: int, kind: int, flags: int, queue: int, transaction: int,
    tag: int, seed: int, position: int, origin: int, room: int, /,
) -> tuple[bytes, bytes]: ...  # fmt: skip
