"""Operations of the API: one table is used to route and check requests and to generate the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from openmsmq.actions.table import Empty, Input
from openmsmq.admin.checked_json import RepeatedMember, strict
from openmsmq.admin.json_bytes import json_bytes
from openmsmq.client.sync import QueueManager
from openmsmq.console.callers import WebCaller
from openmsmq.console.problems import Problem
from openmsmq.model.roles import Role

if TYPE_CHECKING:
    from openmsmq.console.services import Services

_AT: Final = re.compile(r"(?s)(.*?)(?: - at `(?:key in )?\$(.*)`)?")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A checked request. `caller` is set if the operation requires a login; `secure`: the browser uses HTTPS."""

    services: Services
    caller: WebCaller
    path: Mapping[str, str] = field(default_factory=dict)
    query: Any = None
    body: Any = None
    secure: bool = False

    @contextmanager
    def queue_manager(self) -> Iterator[QueueManager]:
        """Yield a client of the queue manager for the caller."""
        with self.services.managers.of(self.caller.ticket, self.caller.peer) as manager:
            yield manager


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """One method of one path. `answer` is the type of what `handler` returns; None if the response is not JSON.

    `statuses` are possible error statuses in addition to those common to all operations. `role` is the minimum role of
    the caller; the daemon also checks rights. `planned` is the response type of a dry run (status 200), and `looking`
    the role that it requires, if not `role`. `partial` describes what a response with status 207 leaves out; empty if
    there is none. `path_fields` describes the parameters in the path. `extensions` are added to the OpenAPI document.
    """

    method: str
    path: str
    handler: Callable[[WebRequest], Any]
    summary: str
    answer: Any = None
    query: type[Input] = Empty
    body: type[Input] | None = None
    status: int = 200
    statuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    needs_login: bool = True
    role: Role = Role.ADMINISTRATOR
    partial: str = ""
    description: str = ""
    path_fields: type[Input] = Empty
    extensions: Mapping[str, Any] = field(default_factory=dict)
    planned: Any = None
    looking: Role | None = None

    def role_for(self, query: Any) -> Role:
        """Return the role that a request with this query requires."""
        return self.looking if self.looking is not None and getattr(query, "dry_run", False) else self.role

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def name(self) -> str:
        return self.handler.__name__


def parse_query(wanted: type[Input], pairs: Iterable[tuple[str, str]]) -> Any:
    """Parse and check query parameters. Raises Problem that names the parameter."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise Problem(400, f"{name} is given twice", errors={name: "given twice"})
        given[name] = value
    try:
        answer = msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        at, said = _taken_apart(str(error))
        raise Problem(400, f"{at.lstrip('/') or 'the query'}: {said}", errors={at.lstrip("/"): said}) from None
    for each in msgspec.structs.fields(wanted):
        if each.encode_name in given and getattr(answer, each.name) is None:  # msgspec takes the text "null" for None
            detail = f"{given[each.encode_name]!r} is not allowed"
            raise Problem(400, f"{each.encode_name}: {detail}", errors={each.encode_name: detail})
    return answer


def parse_body(wanted: type[Input], data: bytes) -> Any:
    """Parse and check a JSON body; types are not converted. Raises Problem with a JSON pointer."""
    try:
        answer = msgspec.json.decode(data, type=wanted)
        strict(data)  # raises for duplicate members, of which msgspec takes the last
        return answer
    except msgspec.ValidationError as error:
        at, said = _taken_apart(str(error))
        raise Problem(422, f"{at or 'the document'}: {said}", errors={at: said}) from None
    except RepeatedMember as error:
        raise Problem(422, str(error), errors={"": str(error)}) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise Problem(400, "the document is nested too deeply") from None


def _taken_apart(text: str) -> tuple[str, str]:
    """Split an error of msgspec into JSON pointer and sentence."""
    found = _AT.fullmatch(text)
    assert found is not None
    steps = [name or index for name, index in _STEP.findall(found.group(2) or "")]
    named = re.search(r"(?:unknown|required) field `(.*)`", found.group(1))
    if named:
        steps.append(named.group(1))
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps), found.group(1)


def json_response(document: Any, status: int = 200) -> Response:
    return Response(json_bytes(document), status, media_type="application/json")
