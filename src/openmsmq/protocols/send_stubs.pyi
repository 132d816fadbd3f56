from array import array

Found = tuple[bool, bytes, array[int], array[int], array[int], array[int], array[int]]

def records(
    stubs: list[bytes], forms: list[tuple[bytes, bytes, bytes, int, int]], layout: bytes, sequence: int, seconds: int,
    milliseconds: int, /,
) -> tuple[Found, list[bytes]]: ...  # fmt: skip
