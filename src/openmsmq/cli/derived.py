"""Commands that follow from the table of actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import click
import msgspec
from msgspec import inspect

from openmsmq.actions.table import PASSWORD, Action, ActionCommand, CountOption, LineView, Rows, Without, default_of
from openmsmq.cli.output import echo, json_option, print_json, print_table, report
from openmsmq.cli.places import AdminTarget, new_password, password_stdin_option, place_options

_AS_USER = "as_user"


def add_commands(group: click.Group, actions: Iterable[Action]) -> None:
    """Give a group the commands of actions whose words lead to it."""
    for action in actions:
        for spec in action.commands:
            where = group
            for word in spec.words.split()[1:-1]:
                found = where.commands[word]
                assert isinstance(found, click.Group), spec.words
                where = found
            where.add_command(command_of(action, spec))


def command_of(action: Action, spec: ActionCommand | None = None) -> click.Command:
    """The command with its parameters, made of the fields of the input; the first command of the action by default."""
    spec = spec or action.commands[0]
    as_user, asks = bool(spec.as_user), spec.as_user or PASSWORD in spec.spelled.values()
    views = {_name(view.option): rows for view, rows in spec.views.items()}

    def run(
        place: AdminTarget, as_json: bool = False, password_stdin: bool = False, as_user: str = "", **typed: Any
    ) -> None:
        if as_user and password_stdin:
            place.demand_http(PASSWORD)
        wanted = [rows for name, rows in views.items() if typed.pop(name)]

        def given() -> msgspec.Struct:
            secret = None if as_user or not asks else new_password(password_stdin)
            return action.input(**_values(action, spec, typed, secret))

        password = partial(new_password, password_stdin, f"Password of {as_user}", confirm=False)
        output = place.perform(action, given, as_user, password)
        _show(wanted[0] if wanted else spec.show, output, as_json)

    known = {each.name: each for each in msgspec.structs.fields(action.input)}
    kinds = {each.name: each.type for each in _fields(action)}
    decorators: list[Callable[..., Any]] = [
        _parameter(known[name], spelling, kinds[name])
        for name, spelling in spec.spelled.items()
        if spelling != PASSWORD
    ]
    decorators += [click.option(view.option, _name(view.option), is_flag=True, help=view.help) for view in spec.views]
    decorators += [click.option("--user", _AS_USER, required=True, help=spec.as_user)] if as_user else []
    decorators += [password_stdin_option] if asks else []
    decorators += [json_option] if isinstance(spec.show, Rows) or (spec.show and spec.show.document) else []
    callback = place_options(run)
    for decorate in reversed(decorators):
        callback = decorate(callback)
    text = spec.help or f"{action.summary}.\n\n{spec.more or action.description}"
    return click.command(spec.words.rpartition(" ")[2], help=text)(callback)


def _fields(action: Action) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(action.input)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _name(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _parameter(field: Any, spelling: str | Without | CountOption, kind: inspect.Type) -> Callable[..., Any]:
    """An argument or option for a field."""
    if isinstance(spelling, Without):
        return click.option(spelling.option, field.name, is_flag=True, help=spelling.help)
    if isinstance(spelling, CountOption):
        return click.option(
            *spelling.option.split(), field.name, type=click.IntRange(min=0), default=spelling.default,
            show_default=True, help=spelling.help,
        )  # fmt: skip
    described = ""
    if isinstance(kind, inspect.Metadata):
        described, kind = str((kind.extra_json_schema or {}).get("description", "")), kind.type
    default = None if field.required or default_of(field) is msgspec.UNSET else default_of(field)
    if not spelling.startswith("-"):
        many, optional = spelling.endswith("..."), spelling.startswith("[")
        return click.argument(
            field.name, metavar=spelling if many or optional else None if spelling == field.name.upper() else spelling,
            nargs=-1 if many else 1, required=not optional, type=_type(field, kind),
        )  # fmt: skip
    if isinstance(kind, inspect.BoolType):
        return click.option(*spelling.split(), field.name, is_flag=True, help=described)
    return click.option(
        *spelling.split(), field.name, type=_type(field, kind), default=default, required=field.required,
        show_default=default not in (None, "", "*"), help=described,
    )  # fmt: skip


def _type(field: Any, kind: inspect.Type) -> click.ParamType[Any]:
    """The schema of a field as a type of click, which checks words and ranges; the rest is checked where it is done."""
    if isinstance(kind, inspect.UnionType):
        (kind,) = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    if isinstance(kind, inspect.LiteralType):
        return click.Choice(words_of(field.type))
    if isinstance(kind, inspect.IntType):
        return click.IntRange(kind.ge, kind.le)
    return click.STRING


def words_of(kind: Any) -> list[str]:
    """The words of the Literal in a type, in their order, which msgspec does not keep."""
    parts = getattr(kind, "__args__", ())
    if all(isinstance(part, str) for part in parts):
        return list(parts)
    return next(words for part in parts if (words := words_of(part)))


def _values(action: Action, spec: ActionCommand, typed: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
    """The fields that the command sets."""
    given = {}
    for name, spelling in spec.spelled.items():
        value = secret if spelling == PASSWORD else typed[name]
        if value is not None:
            given[name] = not value if isinstance(spelling, Without) else list(value) if type(value) is tuple else value
    return given


def _show(shown: Rows | LineView | None, output: Any, as_json: bool) -> None:
    if isinstance(shown, LineView):
        document = shown.document(output) if shown.document is not None else {}
        report(as_json, shown.text(output), document, err=shown.err)
    elif isinstance(shown, Rows):
        rows = shown.rows(output)
        if as_json:
            for row in rows:
                print_json(shown.document(row, output))
        elif rows or not shown.empty:
            print_table(shown.columns, map(shown.cells, rows))
        else:
            echo(shown.empty)
        for note in shown.notes(output):
            echo(note, err=True)
