from typing import Any

def frames(
    data: Any, bounds: Any, keys: Any, extras: Any, queues: Any, first: int, kind: int, flags: int, transaction: int,
    tag: int, seed: int, position: int, origin: int, room: int, /,
) -> tuple[bytes, bytes]: ...  # fmt: skip
