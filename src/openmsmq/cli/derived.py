"""Commands that are generated from the table of actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, get_type_hints

import click
import msgspec
from msgspec import inspect

from openmsmq.actions.errors import InputError
from openmsmq.actions.table import (
    PASSWORD,
    Action,
    ActionCommand,
    Always,
    CountOption,
    Either,
    LineView,
    Rows,
    Spelling,
    View,
    Without,
    WorkPlace,
    default_of,
)
from openmsmq.cli.asking import confirm
from openmsmq.cli.numbers import COUNT, Amount, amount
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.places import Place, new_password, password_stdin_option, place_options

_AS_USER = "as_user"
_FIELD = "field_"  # prefix of parameter names, which keeps them distinct from other options


def add_commands(group: click.Group, actions: Iterable[Action]) -> None:
    """Add to a group the commands of the actions whose words lead to it."""
    for action in actions:
        for spec in action.commands:
            where: click.Command = group
            *words, name = spec.words.split()
            for word in words[1:]:
                assert isinstance(where, click.Group), spec.words
                where = where.commands[word]
            if not spec.by_hand and words[:1] == [group.name]:
                assert isinstance(where, click.Group), spec.words
                where.add_command(command_of(action, spec), name)


def command_of(action: Action, spec: ActionCommand | None = None) -> click.Command:
    """Return the command, with parameters from the fields of the input (default: the first command of the action)."""
    spec = spec or action.commands[0]
    as_user, asks = bool(spec.as_user), spec.as_user or PASSWORD in spec.spelled.values()
    views = {_name(view.option): shown for view, shown in spec.views.items()}
    other, change = spec.instead, spec.instead.commands[0] if spec.instead is not None else spec

    def run(
        place: Place, as_json: bool = False, password_stdin: bool = False, as_user: str = "", dry_run: bool = False,
        yes: bool = False, **typed: Any,
    ) -> None:  # fmt: skip
        if as_user and password_stdin:
            place.demand_http(PASSWORD)
        wanted = [shown for name, shown in views.items() if typed.pop(name)]
        if place.is_here and action.founds:
            place.check_daemon()
        row, said = action, spec
        if other is not None and any(
            typed[_FIELD + name] is not None for name in change.spelled.keys() - spec.spelled.keys()
        ):
            row, said = other, change
        password = partial(new_password, password_stdin, f"Password of {as_user}", confirm=False)
        with place.open(as_user, password) as side, usage_errors(said):
            secret = None if as_user or not asks else new_password(password_stdin)
            values = _values(said, typed, secret)
            _check_texts(row, said, values)
            given = row.input(**values)
            if not said.show_plan:
                show(wanted[0] if wanted else said.show, side.perform(row, given), as_json)
                return
            plan = side.plan(row, given)
            if dry_run:
                show(said.show_plan, plan.would(), as_json)
                return
            question = "" if yes or said.question is None else said.question(plan.would())
            if question:
                confirm(question)
            show(said.show, plan.carry_out(), as_json)

    decorators = [*_parameters(action, spec.spelled)]
    if other is not None:
        more = {name: spelling for name, spelling in change.spelled.items() if name not in spec.spelled}
        decorators += _parameters(other, more, demanded=False)
    decorators += [click.option(view.option, _name(view.option), is_flag=True, help=view.help) for view in spec.views]
    decorators += [click.option("--user", _AS_USER, required=True, help=spec.as_user)] if as_user else []
    decorators += [password_stdin_option] if asks else []
    decorators += [click.option("--yes", is_flag=True, help=change.yes)] if change.question else []
    decorators += [click.option("--dry-run", is_flag=True, help=change.dry_run)] if change.show_plan else []
    decorators += [json_option] if isinstance(spec.show, Rows) or (spec.show and spec.show.document) else []
    callback = _place_options(action.place)(run)
    for decorate in reversed(decorators):
        callback = decorate(callback)
    text = spec.help or f"{action.summary}.\n\n{spec.more or action.description}"
    return click.command(spec.words.rpartition(" ")[2], help=text)(callback)


def _place_options(place: WorkPlace) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if place == "files":
        return place_options
    # imported with the client, which takes longer to load than all the others
    from openmsmq.cli.queue_places import OPTIONS

    return OPTIONS[place]


def _parameters(
    action: Action, spelled: Mapping[str, Spelling], *, demanded: bool = True
) -> Iterator[Callable[..., Any]]:
    known = {each.name: each for each in msgspec.structs.fields(action.input)}
    kinds = {each.name: each.type for each in _fields(action)}
    for name, spelling in spelled.items():
        if spelling != PASSWORD and not isinstance(spelling, Always):
            yield _parameter(known[name], spelling, kinds[name], demanded)


@contextmanager
def usage_errors(spec: ActionCommand) -> Iterator[None]:
    """Convert errors in the input into usage errors, unless a server reported them."""
    try:
        yield
    except InputError as error:
        spelling = spec.spelled.get(error.pointer.lstrip("/"))
        if isinstance(spelling, str) and spelling.startswith("-"):
            raise click.BadParameter(str(error), param_hint=spelling.split()[0]) from None
        raise click.UsageError(str(error)) from None


def _fields(action: Action) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(action.input)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _name(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _parameter(field: Any, spelling: Spelling, kind: inspect.Type, demanded: bool) -> Callable[..., Any]:
    """Return an argument or option for a field. `demanded`: the command requires a value, which has no default."""
    assert not isinstance(spelling, Always)
    name = _FIELD + field.name
    if isinstance(spelling, Without | Either):
        return click.option(spelling.option, name, is_flag=True, help=spelling.help)
    if isinstance(spelling, CountOption):
        return click.option(
            *spelling.option.split(), name, type=COUNT, default=spelling.default, show_default=True,
            help=spelling.help,
        )  # fmt: skip
    described = ""
    if isinstance(kind, inspect.Metadata):
        described, kind = str((kind.extra_json_schema or {}).get("description", "")), kind.type
    default = None if field.required or default_of(field) in (msgspec.UNSET, "") else default_of(field)
    if not spelling.startswith("-"):
        many, optional = "..." in spelling, spelling.startswith("[")
        type_ = _type(field, kind)
        shown = None if isinstance(type_, click.Choice) else spelling
        return click.argument(name, metavar=shown, nargs=-1 if many else 1, required=not optional, type=type_)
    words = spelling.split()
    options = [word for word in words if word.startswith("-")]
    if isinstance(kind, inspect.BoolType):
        return click.option(*options, name, is_flag=True, help=described)
    metavar, type_ = words[-1] if words[-1] not in options else None, _type(field, kind)
    if isinstance(type_, Amount):
        described = f"{described.rstrip('.')}: {type_.examples}."
    if field.required and demanded:  # `default=None` would be a value for click
        return click.option(*options, name, metavar=metavar, type=type_, required=True, help=described)
    return click.option(
        *options, name, metavar=metavar, type=type_, default=default,
        show_default=default not in (None, "*"), help=described,
    )  # fmt: skip


def _type(field: Any, kind: inspect.Type) -> click.ParamType[Any]:
    """Return the click type for the schema of a field. It checks words and ranges; the action checks the rest."""
    if isinstance(kind, inspect.UnionType):
        (kind,) = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    amount_of = ""
    while isinstance(kind, inspect.Metadata):
        amount_of, kind = (kind.extra or {}).get("amount", amount_of), kind.type
    if isinstance(kind, inspect.LiteralType):
        return click.Choice(words_of(field.type))
    if isinstance(kind, inspect.IntType):
        if amount_of:
            assert kind.ge is not None and kind.le is not None, field.name
            return amount(amount_of, kind.ge, kind.le)
        return click.IntRange(kind.ge, kind.le)
    return click.UUID if isinstance(kind, inspect.UUIDType) else click.STRING


def words_of(kind: Any) -> list[str]:
    """Return the words of the Literal in a type, in their order, which msgspec does not keep."""
    parts = getattr(kind, "__args__", ())
    if all(isinstance(part, str) for part in parts):
        return list(parts)
    return next(words for part in parts if (words := words_of(part)))


def _values(spec: ActionCommand, typed: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
    """Return the fields that the command sets itself."""
    given = {}
    for name, spelling in spec.spelled.items():
        value = secret if spelling == PASSWORD else typed.get(_FIELD + name)
        if isinstance(spelling, Either):
            value = spelling.on if value else spelling.off
        elif isinstance(spelling, Always):
            value = spelling.value
        if value is not None:
            given[name] = not value if isinstance(spelling, Without) else list(value) if type(value) is tuple else value
    return given


def _check_texts(action: Action, spec: ActionCommand, values: Mapping[str, Any]) -> None:
    """Check lengths and patterns of the texts of options; click checks words and ranges. Raises InputError."""
    kinds = get_type_hints(action.input, include_extras=True)
    for name, spelling in spec.spelled.items():
        is_option = isinstance(spelling, str) and spelling.startswith("-") and spelling != PASSWORD
        if is_option and isinstance(values.get(name), str):
            try:
                msgspec.convert(values[name], kinds[name])
            except msgspec.ValidationError as error:
                raise InputError(str(error), f"/{name}") from None


def show(shown: View | None, output: Any, as_json: bool) -> None:
    """Show an output as its row in the table specifies."""
    if isinstance(shown, LineView):
        if as_json:
            print_json(shown.document(output) if shown.document is not None else {})
        else:
            text = shown.text(output)
            for line in [text] if isinstance(text, str) else text:
                echo(line, err=shown.err)
    elif isinstance(shown, Rows):
        rows = shown.rows(output)
        if not as_json and shown.head is not None:
            for line in shown.head(output):
                echo(line)
        if as_json and shown.single is not None:
            print_json(shown.single(output))
        elif as_json:
            for row in rows or ():
                print_json(shown.document(row, output))
        elif rows is None:
            pass
        elif rows or not shown.empty:
            print_table(shown.columns, map(shown.cells, rows))
        else:
            echo(shown.empty)
        note = shown.note(output) if shown.note else []
        for line in [note] if isinstance(note, str) else note:
            if line:
                echo(line, err=True)
