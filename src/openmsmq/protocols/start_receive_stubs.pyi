from collections.abc import Mapping

def answer(
    record: bytes, layout: bytes, names: Mapping[bytes, bytes | None], sequence: int, maximum: int, /
) -> bytes | None: ...
