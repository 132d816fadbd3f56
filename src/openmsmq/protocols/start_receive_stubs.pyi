from collections.abc import Mapping

def answers(
    records: list[bytes],
    layout: bytes,
    names: Mapping[bytes, bytes | None],
    identifiers: list[int],
    sizes: list[int],
    /,
) -> list[bytes]: ...
def starts(stubs: list[bytes]) -> tuple[list[int], list[int]]: ...
def acknowledgments(stubs: list[bytes]) -> list[int]: ...
