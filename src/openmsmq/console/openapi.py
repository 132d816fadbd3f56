"""The OpenAPI document (3.1), generated from the table of operations: `python -m openmsmq.console.openapi` prints
it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from openmsmq import __version__
from openmsmq.actions.table import Input
from openmsmq.console.examples import example_of
from openmsmq.console.problems import MEDIA_TYPE, explained
from openmsmq.console.table import HttpOperation

PREFIX: Final = "/api/v1"
_REFERENCE: Final = "#/components/schemas/{name}"
_OF_ALL: Final = (400, 401, 403, 421, 422, 429, 500, 503, 504)
_OF_CHANGES: Final = (413, 415)
_PARAMETER: Final = re.compile(r"\{([a-z]+)\}")
#: First part of the path of operations -> name and description of their tag.
_TAGS: Final = {
    "alarms": ("Alarms", "Figures that are over their threshold, and what to do."),
    "audit": ("Audit log", "Who changed what, and from where."),
    "backups": ("Backups", "Copies of the data directory, made while the daemon runs."),
    "connections": ("Open queues", "Who has which queue open."),
    "deadletters": ("Dead letters", "Messages that could not be delivered or were not received, by reason."),
    "definitions": ("Definitions", "Queues, rights, users and settings as one document, to compare and to apply."),
    "dry-runs": ("Operations on messages", "Select messages, see what would be done, and do it."),
    "events": ("Figures", "Figures of now and of the last day."),
    "groups": ("Users and groups", "Accounts of the users file."),
    "handles": ("Open queues", "Who has which queue open."),
    "jobs": ("Jobs", "Background jobs on many messages."),
    "operations": ("Operations on messages", "Select messages, see what would be done, and do it."),
    "outgoing": ("Outgoing queues", "Messages for other machines."),
    "overview": ("Figures", "Figures of now and of the last day."),
    "queues": ("Queues", "Queues, their messages and their permissions."),
    "relays": ("Relays", "Queues that move from or to another machine, and bridges that stay."),
    "sequences": ("Sequences", "How far other queue managers are with transactional messages."),
    "series": ("Figures", "Figures of now and of the last day."),
    "session": ("Login", "Sessions of browsers; programs log in with each request."),
    "settings": ("Settings", "What the daemon runs with, and where each value comes from."),
    "tokens": ("Tokens", "By which scripts log in."),
    "transactions": ("Transactions", "Distributed transactions, and why one does not end."),
    "users": ("Users and groups", "Accounts of the users file."),
}  # fmt: skip
_PROBLEM_EXAMPLE: Final = {
    "type": "/problems/404", "title": "Not found", "status": 404,
    "detail": "MQ_ERROR_QUEUE_NOT_FOUND: there is no queue 7", "request_id": "1f0c",
    "hresult": "0xC00E0003",
}  # fmt: skip
_BYTES: Final = {"type": "string", "format": "binary"}
_PROBLEM: Final = {
    "type": "object",
    "description": "Why a request was refused (RFC 9457).",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "Path of a page about the status."},
        "title": {"type": "string", "description": "What the status means."},
        "status": {"type": "integer", "description": "The status."},
        "detail": {"type": "string", "description": "What was wrong, and what to do."},
        "request_id": {"type": "string", "description": "Identifier of the request."},
        "hresult": {"type": "string", "pattern": "^0x[0-9A-F]{8}$", "description": "Error of the queue manager."},
        "errors": {
            "type": "array", "description": "Which members or parameters were wrong.",
            "items": {
                "type": "object", "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer of a member, or name of a parameter."},
                    "detail": {"type": "string", "description": "What was wrong with it."},
                },
            },
        },
    },
}  # fmt: skip


_EVENT: Final = "event: figures\ndata: {}\n\n"


def document(operations: Iterable[HttpOperation]) -> dict[str, Any]:
    """Return the document; it depends only on the operations."""
    table = list(operations)
    types = [
        kind
        for operation in table
        for kind in (operation.answer, operation.planned, operation.body)
        if kind is not None
    ]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(types), ref_template=_REFERENCE)
    for schema in schemas.values():
        if "description" in schema:  # from a docstring, which Python before 3.13 does not dedent
            schema["description"] = inspect.cleandoc(schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for operation in table:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "openmsmq", "version": __version__,
            "description": "A queue manager. Numbers of 64 bits are strings. See docs/web.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": said} for name, said in dict(sorted(_TAGS.values())).items()],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted({**schemas, "Problem": _PROBLEM}.items())),
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"basic": []}, {"bearer": []}],
    }  # fmt: skip


def _described(operation: HttpOperation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        answer["content"] = _content(operation.answer)
    elif operation.status != 204:
        is_text = operation.media_type.startswith("text/")
        schema, example = ({"type": "string"}, _EVENT) if is_text else (_BYTES, "hello")
        answer["content"] = {operation.media_type: {"schema": schema, "example": example}}
    answers = {str(operation.status): answer}
    if operation.planned is not None and operation.planned is not operation.answer:
        answers["200"] = {"description": "What a dry run says", "content": _content(operation.planned)}
    if operation.partial:
        answers["207"] = answer | {"description": operation.partial}
    problem = {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(name="Problem")}, "example": _PROBLEM_EXAMPLE}}
    statuses = {*_OF_ALL, *operation.statuses, *(_OF_CHANGES if operation.changes else ())}
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {
            **answers,
            **{str(status): {"description": explained(status), "content": problem} for status in sorted(statuses)},
        },
    }
    found["tags"] = [_TAGS[operation.path.split("/")[1]][0]]
    found["description"] = "\n\n".join(filter(None, (operation.description, _conditions(operation))))
    found |= operation.extensions
    if operation.needs_login:
        found["x-role"] = operation.role.word
    if operation.looking is not None:
        found["x-role-of-dry-runs"] = operation.looking.word
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _conditions(operation: HttpOperation) -> str:
    """Describe the required role, the audit record, and the equivalent command."""
    more = operation.extensions
    sentences = [f"Needs the role {operation.role.word}." if operation.needs_login else "Needs no login."]
    if more.get("x-effect") == "destroys":
        sentences.append("What it removes is gone.")
    if recorded := more.get("x-audit"):
        sentences.append(f"The audit log has it as {', '.join(recorded)}.")
    if commands := more.get("x-commands"):
        sentences.append("Command: " + ", ".join(f"`openmsmq {words}`" for words in commands) + ".")
    return " ".join(sentences)


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(kind), "example": example_of(kind)}}


def _reference(kind: Any) -> Any:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return schema


def _path_parameters(operation: HttpOperation) -> list[dict[str, Any]]:
    known = _properties(operation.path_fields)
    return [
        _parameter(name, "path", True, known.get(name, {"type": "string"}))
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: HttpOperation) -> list[dict[str, Any]]:
    required = [each.name for each in msgspec.structs.fields(operation.query) if each.required]
    return [
        _parameter(name, "query", name in required, schema) for name, schema in _properties(operation.query).items()
    ]


def _properties(kind: type[Input]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return found


def _parameter(name: str, place: str, required: bool, schema: dict[str, Any]) -> dict[str, Any]:
    described = {"description": schema.pop("description")} if "description" in schema else {}
    given = schema.pop("examples", None)
    example = given[0] if given else _example(schema)
    return {"name": name, "in": place, "required": required, **described, "schema": schema, "example": example}


def _example(schema: dict[str, Any]) -> Any:
    """Return an example of a parameter from its schema."""
    for part in (schema, *schema.get("anyOf", ())):
        if "enum" in part:
            return part["enum"][0]
        match part.get("type"):
            case "boolean":
                return True
            case "integer":
                return schema.get("default") or max(part.get("minimum", 0), min(3, part.get("maximum", 3)))
            case "string":
                return schema.get("default") or "text"
    raise AssertionError(f"a parameter of no simple type: {schema}")


def text(operations: Iterable[HttpOperation]) -> str:
    """Return the document as the text of the file in the repository."""
    return json.dumps(document(operations), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    from openmsmq.console.resources import OPERATIONS

    sys.stdout.write(text(OPERATIONS))
