from collections.abc import Callable
from typing import Any, final

from msrpc.ndr.tables import Members

@final
class Codec:
    interpreted: Callable[[Any], Any]
    def __call__(self, argument: Any, /) -> Any: ...
    def direct(self, argument: Any, /) -> Any | None: ...

def announce(kind: type, alignment: int, recursive: bool, has_pointers: bool, ndr64: bool, /) -> None: ...
def declare(kind: type, members: Members, absent: tuple[str, ...], ndr64: bool, /) -> None: ...
def codec(
    order: str,
    interpreted: Callable[[Any], Any],
    kind: type,
    members: Members,
    absent: tuple[str, ...],
    ndr64: bool = False,
    /,
) -> Callable[[Any], Any]: ...
