"""Actions that another process does: as requests of the HTTP API of a daemon."""

from __future__ import annotations

from typing import Any

import msgspec

from openmsmq.actions.table import Action, Input, Pages, default_of
from openmsmq.admin.http_requests import MOST_PAGES, ApiError, HttpRequests, step


def perform(http: HttpRequests, action: Action, given: Input) -> Any:
    """The output of an action, of all pages if it has pages. Raises ApiError; ApiUnreachable for an answer that is no
    such output."""
    return _ask(http, action, given) if action.pages is None else _all_pages(http, action, action.pages, given)


def _all_pages(http: HttpRequests, action: Action, pages: Pages, given: Input) -> Any:
    """As one output, with as many rows as the limit says; all for 0. Raises ApiError for a list without end."""
    count, before = getattr(given, pages.limit), getattr(given, pages.before)
    rows: list[Any] = []
    for _ in range(MOST_PAGES):
        size = min(count - len(rows), pages.largest) if count else pages.largest
        page = _ask(http, action, msgspec.structs.replace(given, **{pages.limit: size, pages.before: before}))
        found = getattr(page, pages.rows)
        rows += found
        if len(found) < size or len(rows) == count:
            return msgspec.structs.replace(page, **{pages.rows: rows})
        before = _number(http, pages.number(found[-1]), before)
    raise ApiError(f"{http.url}: more than {len(rows):,} rows: ask for fewer")


def _number(http: HttpRequests, text: str, before: int | None) -> int:
    """Of the last row of a page, from which the next page goes on: they fall, or there would be no end."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if number < 1 or (before is not None and number >= before):
        raise ApiError(f"{http.url}: the numbers of rows do not fall from page to page")
    return number


def _ask(http: HttpRequests, action: Action, given: Input) -> Any:
    own = action.in_path
    path = action.path.format(**{name: step(str(getattr(given, name))) for name in own})
    rest = [each for each in msgspec.structs.fields(action.input) if each.name not in own]
    values = {each.name: getattr(given, each.name) for each in rest}
    if action.method in ("GET", "DELETE"):
        changed = {each.name: values[each.name] for each in rest if values[each.name] != default_of(each)}
        query = {name: "true" if value is True else str(value) for name, value in changed.items()}
        answer = http.ask(action.method, path, query)
    else:
        body = {name: value for name, value in values.items() if value is not msgspec.UNSET}
        answer = http.ask(action.method, path, body=body if rest else None)
    return http.struct(answer, action.output)
