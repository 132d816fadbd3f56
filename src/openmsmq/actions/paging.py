"""Pages of a list whose rows may change between two requests: a cursor identifies the last row shown."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import doc
from openmsmq.actions.site import DaemonCalls

Row = TypeVar("Row")
#: It contains a name of up to 1000 characters.
Cursor = Annotated[
    Annotated[str, msgspec.Meta(max_length=16384)] | None,
    doc("`next` of the page before; null for the first page."),
]
Next = Annotated[str | None, doc("Cursor of the next page; null at the end.")]


def cut(
    daemon: DaemonCalls, found: list[Row], key: Callable[[Row], tuple[Any, ...]], order: str, limit: int,
    cursor: str | None, *, backwards: bool = False,
) -> tuple[list[Row], str | None]:  # fmt: skip
    """Sort `found` in place. Return the page after a cursor, and the cursor of the next page, None at the end.

    Args:
        key: returns the sort key of a row, which is unique and consists of numbers, bools and texts.
        order: name of this order; a cursor is only valid for its order.

    Raises:
        ActionRefused: the cursor is invalid or belongs to another order.
    """
    found.sort(key=key, reverse=backwards)
    start = 0
    if cursor is not None:
        last = daemon.unseal(cursor, "cursor")
        if last.get("sort") != order:
            raise ActionRefused(400, "this cursor belongs to another order", "cursor")
        keys = [key(row) for row in found]
        after = tuple(last["key"])
        start = len(keys) - bisect.bisect_left(keys[::-1], after) if backwards else bisect.bisect_right(keys, after)
    page = found[start : start + limit]
    more = start + len(page) < len(found)
    return page, daemon.seal({"sort": order, "key": key(page[-1])}) if page and more else None
