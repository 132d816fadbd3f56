"""The interface that users can rely on, as lines of text: the commands with their parameters, and the HTTP API.

`python tests/surface/facts.py` prints those of this version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from openmsmq.cli.commands import COMMANDS, load
from openmsmq.console.openapi import document
from openmsmq.console.resources import OPERATIONS

_LIMITS = ("choices", "min", "max", "exists", "dir_okay")  # attributes of click parameter types


def of_commands() -> Iterator[str]:
    """Describe each command with its first sentence, and its parameters with type, default and variable."""
    for name in COMMANDS:
        yield from _of_command(name, load(name))


def _of_command(path: str, command: click.Command) -> Iterator[str]:
    yield f"openmsmq {path} | {command.get_short_help_str(1000)}"
    for parameter in command.params:
        known = parameter.to_info_dict()
        kind = known["type"]
        limits = [f"{key}={kind[key]}" for key in _LIMITS if kind.get(key) is not None]
        shown = " ".join([kind["name"], *limits])
        words = ["required"] if known["required"] else []
        words += [f"nargs={known['nargs']}"] if known["nargs"] != 1 else []
        words += ["multiple"] if known["multiple"] else []
        if isinstance(parameter, click.Option):
            words += ["flag"] if parameter.is_flag else []
            default = known["default"]
            words += [f"default={default}"] if default not in (None, False) and "UNSET" not in repr(default) else []
            words += [f"variable={known['envvar']}"] if known["envvar"] else []
            names = "/".join(sorted([*parameter.opts, *parameter.secondary_opts]))
        else:
            names = parameter.make_metavar(click.Context(command))
        yield " ".join([f"openmsmq {path}", names, shown, *words])
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _of_command(f"{path} {name}", inner)


def of_api() -> Iterator[str]:
    """Describe each operation with its role, parameters, statuses, and the members of its request and response."""
    found = document(OPERATIONS)
    schemas = found["components"]["schemas"]
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            start = f"{method.upper()} {path.removeprefix('/api/v1')}"
            yield f"{start} operation={operation['operationId']} role={operation.get('x-role')}"
            for parameter in operation["parameters"]:
                word = " required" if parameter["required"] else ""
                yield f"{start} {parameter['in']} {parameter['name']}: {_kind(parameter['schema'], schemas)}{word}"
            if "requestBody" in operation:
                yield from _members(f"{start} body", operation["requestBody"]["content"], schemas)
            for status, answer in operation["responses"].items():
                yield f"{start} {status}"
                if status < "300":
                    yield from _members(f"{start} {status}", answer.get("content", {}), schemas)


def _members(start: str, content: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    for media_type, described in content.items():
        yield f"{start} {media_type}"
        yield from _properties(start, described["schema"], schemas)


def _properties(start: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    schema = _resolved(schema, schemas)
    for branch in schema.get("anyOf", ()):
        yield from _properties(start, branch, schemas)
    if "items" in schema:
        yield from _properties(f"{start}[]", schema["items"], schemas)
    for name, part in schema.get("properties", {}).items():
        word = " required" if name in schema.get("required", ()) else ""
        yield f"{start}.{name}: {_kind(part, schemas)}{word}"
        yield from _properties(f"{start}.{name}", part, schemas)


def _kind(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        return "|".join(sorted(_kind(branch, schemas) for branch in schema["anyOf"]))
    if "enum" in schema:
        return "|".join(sorted(map(str, schema["enum"])))
    return str(schema.get("type", "any"))


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def facts() -> list[str]:
    return sorted({*of_commands(), *of_api()})


if __name__ == "__main__":
    print("\n".join(facts()))
