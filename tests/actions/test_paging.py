"""Pages of lists, and their cursors."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.paging import cut


class NoSealing:
    """Seals nothing: a cursor is its content."""

    def seal(self, document: Any) -> Any:
        return document

    def unseal(self, text: Any, what: str) -> Any:
        return text


@pytest.mark.parametrize("backwards", [False, True])
def test_pages_follow_each_other_in_their_order_to_the_end(backwards: bool) -> None:
    daemon: Any = NoSealing()
    rows, cursor = [], None
    for _ in range(3):
        page, cursor = cut(daemon, [3, 1, 5, 2, 4], lambda row: (row,), "number", 2, cursor, backwards=backwards)
        rows.append(page)
    assert rows == ([[5, 4], [3, 2], [1]] if backwards else [[1, 2], [3, 4], [5]]) and cursor is None


def test_a_cursor_is_of_one_order() -> None:
    daemon: Any = NoSealing()
    _, cursor = cut(daemon, [1, 2], lambda row: (row,), "number", 1, None)
    with pytest.raises(ActionRefused, match="belongs to another order"):
        cut(daemon, [1, 2], lambda row: (row,), "name", 1, cursor)
