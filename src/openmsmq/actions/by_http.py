"""Perform actions through the HTTP API of a daemon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from openmsmq.actions.errors import ActionIncomplete, ActionRefused
from openmsmq.actions.table import Action, ActionPlan, DryRunAt, Empty, Input, Job, Pages, default_of
from openmsmq.admin.http_requests import MOST_PAGES, ApiError, HttpRequests, step

_LOOK: Final = 1.0  # seconds between checks whether a job has ended


def perform(http: HttpRequests, action: Action, given: Input) -> Any:
    """Return the output of an action, with all pages and, for a job, after it has ended. Raises ApiError;
    ApiUnreachable for a response that is not such an output.
    """
    if action.pages is not None:
        return _all_pages(http, action, action.pages, given)
    answer = _ask(http, action, given)
    return answer if action.job is None else _followed(http, action.job, answer)


def _followed(http: HttpRequests, job: Job, started: Any) -> Any:
    """Wait until a job has ended, and return the output of the action. Raises ApiError if the job failed."""
    try:
        while (found := job.ended(started, _ask(http, job.look, Empty()))) is None:
            time.sleep(_LOOK)
    except ActionRefused as error:
        raise ApiError(f"{http.url}: {error}") from None
    return found


def _all_pages(http: HttpRequests, action: Action, pages: Pages, given: Input) -> Any:
    """Combine pages into one output with at most `limit` rows (0: all). Raises ApiError for a list without end."""
    count, after = getattr(given, pages.limit), getattr(given, pages.after)
    rows: list[Any] = []
    for _ in range(MOST_PAGES):
        size = min(count - len(rows), pages.largest) if count else pages.largest
        page = _ask(http, action, msgspec.structs.replace(given, **{pages.limit: size, pages.after: after}))
        found = getattr(page, pages.rows)
        rows += found
        ended = len(found) < size if pages.number is not None else page.next is None
        if ended or 0 < count == len(rows):
            return msgspec.structs.replace(page, **{pages.rows: rows})
        after = page.next if pages.number is None else _number(http, pages.number(found[-1]), after)
    raise ApiError(f"{http.url}: more than {len(rows):,} rows: ask for fewer")


def _number(http: HttpRequests, text: str, before: int | None) -> int:
    """Return the number of the last row of a page, where the next page continues. Raises ApiError unless numbers
    decrease: the list might be endless."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if number < 1 or (before is not None and number >= before):
        raise ApiError(f"{http.url}: the numbers of rows do not fall from page to page")
    return number


def plan(http: HttpRequests, action: Action, given: Input) -> ActionPlan[Any, Any]:
    """Plan an action by a dry run. Raises the errors of `perform`; carrying it out also raises ActionIncomplete."""
    at = action.dry_run
    if isinstance(at, DryRunAt):
        would = _ask(http, replace(action, http=at.http, output=action.planned), given)
    else:
        would = _ask(http, replace(action, output=action.planned), given, {at: {"dry_run": True}})

    def carry_out() -> Any:
        try:
            return _ask(http, action, given, {"body": {"token": would.token}} if action.bound else {})
        except ApiError as error:
            with suppress(msgspec.ValidationError):
                output = msgspec.convert({**error.problem, "command": ""}, action.output)
                raise ActionIncomplete(str(error), output) from None
            raise

    return ActionPlan(lambda: would, carry_out)


def _ask(http: HttpRequests, action: Action, given: Input, more: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """Send the request of an action. `more` has further parameters in `query` and `body`."""
    own = action.in_path
    path = action.path.format(**{name: step(str(getattr(given, name))) for name in own})
    query, body = dict((more or {}).get("query", {})), dict((more or {}).get("body", {}))
    fields = [each for each in msgspec.structs.fields(action.input) if each.name not in own]
    has_body = action.method not in ("GET", "DELETE") and (len(fields) > len(action.queries) or body)
    for each in fields:
        value = getattr(given, each.name)
        if has_body and each.name not in action.queries:
            body |= {} if value is msgspec.UNSET else {each.encode_name: value}
        elif each.required or value != default_of(each):
            query[each.encode_name] = value
    words = {name: "true" if value is True else str(value) for name, value in query.items()}
    answer = http.ask(action.method, path, words, msgspec.to_builtins(body) if has_body else None)
    return http.struct(answer, action.output)


@dataclass(frozen=True, slots=True)
class ActionsByHttp:
    """Performs actions through a daemon, as the user of a token or password."""

    http: HttpRequests

    def perform(self, action: Action, given: Input) -> Any:
        return perform(self.http, action, given)

    def plan(self, action: Action, given: Input) -> ActionPlan[Any, Any]:
        return plan(self.http, action, given)
