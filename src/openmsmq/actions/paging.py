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
#: It has a name in it, of up to a thousand characters.
Cursor = Annotated[
    Annotated[str, msgspec.Meta(max_length=16384)] | None,
    doc("`next` of the page before; null for the first page."),
]
Next = Annotated[str | None, doc("Cursor of the next page; null at the end.")]


def cut(
    daemon: DaemonCalls, found: list[Row], key: Callable[[Row], tuple[Any, ...]], order: str, limit: int,
    cursor: str | None, *, backwards: bool = False,
) -> tuple[list[Row], str | None]:  # fmt: skip
    """Sort `found`, which is changed; the page behind a cursor, and the cursor of the next one, None at the end.

    Args:
        key: the place of a row, different for each, of numbers, bools and texts.
        order: names this order; a cursor belongs to one.

    Raises:
        ActionRefused: the cursor is none, or of another order.
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
