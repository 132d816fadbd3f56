"""Table of all requests of the bulk interface. The Flight process checks client requests against it, and the daemon
checks the requests of the Flight process again. Not part of the specifications; docs/bulk.md describes the actions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from openmsmq.model.constants import MAXIMUM_GROUP_NAME
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.model.names import MAXIMUM_FORMAT_NAME

MAXIMUM_REQUEST: Final = 16 << 20  # bytes of JSON: `finalize` with the handles of about 400,000 tasks
_MOST_ITEMS = 1_000_000
_MOST_TEXT = 1024  # maximum length of texts other than names: passwords, attempts, certificate paths
_LARGEST = (1 << 63) - 1
_MOST_ROWS = 1 << 20  # per chunk of an upload
_MOST_SECONDS = 86_400
LONGEST_WAIT: Final = 60.0  # seconds for which a claim waits at most
_SHOWN = 60  # maximum characters of an invalid value in an error


@dataclass(frozen=True, slots=True)
class RequestArgument:
    """One field of a request.

    Attributes:
        accepts: returns whether a value is valid.
        allowed: description of valid values.
        is_required: False for a field that may be omitted or null, which is the same.
    """

    accepts: Callable[[Any], bool]
    allowed: str
    is_required: bool = True

    def optional(self) -> RequestArgument:
        return RequestArgument(self.accepts, self.allowed, is_required=False)


@dataclass(frozen=True, slots=True)
class RequestRule:
    """Arguments of one operation.

    Attributes:
        fields: arguments by name.
        meaning: one-line description of an action for clients; empty for a request of the Flight process only.
        has_bytes: whether the request includes bytes.
    """

    fields: Mapping[str, RequestArgument]
    meaning: str = ""
    has_bytes: bool = False


def _is_whole(value: object) -> bool:
    return type(value) is int  # bool is not accepted


def _whole(lowest: int, highest: int) -> RequestArgument:
    return RequestArgument(lambda v: _is_whole(v) and lowest <= v <= highest, f"a whole number, {lowest} to {highest}")


def _number(lowest: float, highest: float) -> RequestArgument:
    def accepts(value: Any) -> bool:
        return (_is_whole(value) or type(value) is float) and lowest <= value <= highest  # excludes NaN

    return RequestArgument(accepts, f"a number, {lowest} to {highest}")


def _is_text(value: object, shortest: int, longest: int) -> bool:
    return isinstance(value, str) and shortest <= len(value) <= longest and not _has_surrogates(value)


def _has_surrogates(text: str) -> bool:
    """Whether a text has unpaired surrogates, which JSON can express but which cannot be encoded."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _text(shortest: int, longest: int) -> RequestArgument:
    return RequestArgument(
        lambda v: _is_text(v, shortest, longest), f"a string of {shortest} to {longest} Unicode characters"
    )


def _names(longest: int) -> RequestArgument:
    return RequestArgument(
        lambda v: isinstance(v, list) and len(v) <= _MOST_ITEMS and all(_is_text(one, 1, longest) for one in v),
        f"a list of strings of 1 to {longest} Unicode characters",
    )


_FLAG = RequestArgument(lambda v: isinstance(v, bool), "true or false")
_POSITION = _whole(0, LAST_SEQUENCE)
_SECONDS = _whole(0, 1 << 32)  # since 1970; the maximum is later than any time in a message
_LIMIT = _whole(1, _LARGEST).optional()
_QUEUE = _text(0, MAXIMUM_FORMAT_NAME)
_NAME = _text(1, MAXIMUM_GROUP_NAME)
_SOURCE = _text(1, 20).optional()  # the queue manager checks the value
_WHICH = {"queue": _QUEUE, "source": _SOURCE}
_GROUP = {**_WHICH, "group": _NAME}
_TOKEN = _text(0, 32).optional()
_CLAIM = {"group": _NAME.optional(), "token": _TOKEN}
_RANGE = {"start": _POSITION.optional(), "end": _POSITION.optional()}
_DECODING = RequestArgument(lambda v: v in ("text", "json"), "text or json")
_HANDLE = _text(1, 64)
_HANDLES = _names(64)
_BATCH = _whole(0, _LARGEST)
_QUERY = _text(0, MAXIMUM_GROUP_NAME).optional()  # identity of the query that writes to a sink
_LIMITS = {"max_messages": _LIMIT, "max_bytes": _LIMIT}
_STAGE = {
    "sink": _NAME, "batch": _BATCH, "partition": _whole(0, (1 << 31) - 1), "attempt": _text(0, _MOST_TEXT),
    "transactional": _FLAG.optional(), "collect": _FLAG.optional(), "query": _QUERY,
}  # fmt: skip

REQUESTS: Final[Mapping[str, RequestRule]] = MappingProxyType({
    # Actions of clients.
    "queues": RequestRule({}, "queues that the caller may read, with counts and last stable sequences"),
    "position": RequestRule(
        {**_WHICH, "group": _NAME.optional()}, "first, last and stable sequence of a queue, and its count"
    ),
    "lag": RequestRule(
        {**_WHICH, "start": _POSITION, "group": _NAME.optional()},
        "number of messages available after a position, and the last stable sequence",
    ),
    "arrow_port": RequestRule({}, "port of the Arrow streams, or null if there are none; docs/bulk.md"),
    "incarnation": RequestRule({}, "text that changes when the store is restored from a backup"),
    "plan": RequestRule(
        {**_WHICH, **_RANGE, **_CLAIM, **_LIMITS, "partitions": _whole(1, _LARGEST).optional()},
        "a range divided into parts of equal count",
    ),
    "cursor": RequestRule(_GROUP, "position up to which a consumer group has removed messages"),
    "groups": RequestRule({}, "consumer groups of the queues that the caller may receive from"),
    "claim": RequestRule(
        {
            **_GROUP, **_LIMITS, "start": _POSITION, "wait_seconds": _number(0, _MOST_SECONDS).optional(),
            "token": _TOKEN,
        },
        "claim messages for a consumer group",
    ),
    "commit": RequestRule({**_GROUP, "end": _POSITION, "token": _TOKEN}, "receive messages that a group has claimed"),
    "release": RequestRule({**_GROUP, "forget": _FLAG.optional()}, "put back messages that a group has claimed"),
    "finalize": RequestRule(
        {"sink": _NAME, "batch": _BATCH, "stages": _HANDLES, "query": _QUERY, "once": _FLAG.optional()},
        "make the stages of a batch visible",
    ),
    "stages": RequestRule({}, "rows staged and not finalized by the caller; for administrators, by all users"),
    "last_batch": RequestRule({"sink": _NAME}, "the last batch of a sink"),
    "forget": RequestRule(
        {
            "sink": _NAME, "batch": _BATCH.optional(), "stages": _HANDLES.optional(), "memory": _FLAG.optional()
        },
        "drop stages, and the last batch recorded for their sink",
    ),
    "renew": RequestRule({"sink": _NAME}, "keep the stages of a sink: reset their idle time"),
    # Ticket of a read and command of an upload, which the Flight process executes.
    "read": RequestRule(
        {
            **_WHICH, **_RANGE, **_CLAIM, "columns": _names(64).optional(), "include_body": _FLAG.optional(),
            "arrived_from": _SECONDS.optional(), "arrived_until": _SECONDS.optional(), "decode": _DECODING.optional(),
        }
    ),
    "write": RequestRule({**_STAGE, "default_queue": _QUEUE.optional()}),
    # Requests of the Flight process on behalf of clients.
    "slice": RequestRule({**_WHICH, **_RANGE, **_CLAIM}),
    "locate": RequestRule(_WHICH, has_bytes=True),
    "begin_stage": RequestRule(_STAGE),
    "target": RequestRule({"stage": _HANDLE, "queue": _QUEUE}),
    "stage": RequestRule({"stage": _HANDLE, "count": _whole(0, _MOST_ROWS), "last": _FLAG}, has_bytes=True),
    "drop_stage": RequestRule({"stage": _HANDLE}),
    "authenticate": RequestRule({
        "user": _text(0, _MOST_TEXT).optional(), "password": _text(0, _MOST_TEXT).optional(),
        "peer": _text(0, _MOST_TEXT).optional(),
    }),
    "describe": RequestRule({}),
})  # fmt: skip

ACTIONS: Final = {name: request.meaning for name, request in REQUESTS.items() if request.meaning}


def parse(text: bytes) -> dict[str, Any]:
    """Parse the JSON object of a request. Raises MsmqError (MQ_ERROR_INVALID_PARAMETER)."""
    if len(text) > MAXIMUM_REQUEST:
        raise invalid(f"a request of {len(text)} bytes, allowed: at most {MAXIMUM_REQUEST}")
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # also invalid UTF-8, and integers of thousands of digits
        raise invalid(f"not JSON: {error}") from error
    if not isinstance(values, dict):
        raise invalid(f"{shown(values)}, allowed: a JSON object of arguments")
    return values


def check(operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check the values of a request; return them without null values.

    Raises MsmqError (MQ_ERROR_INVALID_PARAMETER) with the field, its value and the allowed values.
    """
    fields = REQUESTS[operation].fields
    for name in values:
        if name not in fields:
            raise invalid(f"{operation}: no argument {shown(name)}; allowed: {', '.join(fields) or 'none'}")
    for name, field in fields.items():
        if values.get(name) is None:
            if field.is_required:
                raise invalid(f"{operation}: {name} is missing, allowed: {field.allowed}")
        elif not field.accepts(values[name]):
            raise invalid(f"{operation}: {name} is {shown(values[name])}, allowed: {field.allowed}")
    return {name: value for name, value in values.items() if value is not None}


def shown(value: object) -> str:
    """Return an untrusted value for an error message, shortened, in printable ASCII."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = ascii(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _SHOWN else text[: 2 * _SHOWN] + "..."


def invalid(detail: str) -> MsmqError:
    """Return the error for an invalid request."""
    return MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, detail)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
