from collections.abc import Callable

from openmsmq.model.message import Message

#: Attribute of a message; offset and width in bytes in the fixed part, 0 for others; whether it is bytes.
Attribute = tuple[str, int, int, bool]

def describe(
    message: type[Message],
    fields: tuple[Attribute, ...],
    parts: tuple[Attribute, ...],
    bits: tuple[Attribute, ...],
    flags_at: int,
    tail_at: int,
    description: bytes,
    encode: Callable[[Message], bytes],
    decode: Callable[[bytes, int], Message],
    /,
) -> None: ...
def encode(message: Message, /) -> bytes: ...
def decode(record: bytes, lookup_identifier: int, /) -> Message: ...
