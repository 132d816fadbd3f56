from typing import Any

def pack(
    entries: dict[int, Any], left_out: set[int], deadlines: dict[int, int], /
) -> tuple[bytes, bytes, bytes, bytes]: ...
def places(
    entries: dict[int, Any], keys: list[int], start: int, most: int, volume: int, /
) -> tuple[bytes, bytes, int]: ...
def stamp(
    records: bytearray, bounds: Any, patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int, /
) -> bytes: ...
def odd(
    records: bytes | bytearray,
    bounds: Any,
    mask: bytes,
    template: bytes,
    sender: bytes,
    destination: bytes,
    longest_label: int,
    /,
) -> list[int]: ...
