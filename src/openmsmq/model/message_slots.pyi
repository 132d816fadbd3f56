from collections.abc import Callable

from openmsmq.model.message import Message

def describe(
    message: type[Message],
    all_names: tuple[str, ...],
    texts: tuple[str, ...],
    parts: tuple[str, ...],
    overhead: int,
    copy: Callable[[Message], Message],
    /,
) -> None: ...
def copy(message: Message, /) -> Message: ...
def size(message: Message, /) -> int: ...
