Found = tuple[bool, bytes, bytes, bytes, bytes, bytes, bytes]

def records(
    stubs: list[bytes], forms: list[tuple[bytes, bytes, bytes, int]], layout: bytes, sequence: int, seconds: int,
    milliseconds: int, /,
) -> tuple[Found, list[bytes]]: ...  # fmt: skip
