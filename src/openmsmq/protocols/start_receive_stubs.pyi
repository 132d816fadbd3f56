from collections.abc import Mapping

def answers(
    records: list[bytes], layout: bytes, names: Mapping[bytes, bytes | None], sequences: list[int], sizes: list[int], /
) -> list[bytes]: ...
