"""The action table: its rows, and that commands and HTTP operations are derived from it alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import click
import msgspec
import pytest

from openmsmq.actions.site import OPERATOR_OF_FILES, ActionCaller, ActionSite
from openmsmq.actions.table import (
    PASSWORD,
    Action,
    ActionCommand,
    Always,
    DryRunAt,
    Either,
    Empty,
    Input,
    Output,
    action,
    default_of,
)
from openmsmq.cli.commands import load
from openmsmq.cli.places import AdminTarget
from openmsmq.cli.queue_places import NamedPlace
from openmsmq.console.derived import ACTIONS
from openmsmq.console.derived import OPERATIONS as DERIVED
from openmsmq.console.openapi import document
from openmsmq.console.resources import OPERATIONS
from openmsmq.model.errors import MsmqError
from openmsmq.model.roles import Role

#: Commands of the table's nouns that are not actions, with the reason.
BY_HAND = {
    "adopt inventory": "it reads another queue manager, or a file",
    "adopt plan": "it reads at two queue managers",
    "adopt run": "it reads at two queue managers",
    "adopt verify": "it reads at two queue managers",
    "machine show": "it shows properties of any name that a queue manager has",
    "machine connect": "HTTP does not have it",
    "machine disconnect": "HTTP does not have it",
    "machine tidy": "HTTP does not have it",
    "outgoing peek": "it shows messages as they are read",
    "msg body": "it writes bytes",
    "msg reject": "HTTP does not have it",
    "dlq show": "it shows messages as they are read",
    "journal list": "it shows the data of the MSMQ protocols",
    "journal show": "it shows messages as they are read",
}
#: Operations that are not actions, with the reason.
OPERATIONS_BY_HAND = {
    "POST /session": "sets a cookie",
    "DELETE /session": "ends a session, which is the cookie's",
    "GET /queues/{queue}/messages/{lookup}/body": "answers with bytes",
    "GET /events": "goes on",
}
#: Fields that no command sets: only for HTTP, or not used by the row.
HTTP_ONLY = {"sequence.list": {"source"}, "job.start": {"ids"}} | {
    f"machine.permissions.{name}": {"queue"} for name in ("show", "change")
}  # fmt: skip
COMMANDS = [(row, command) for row in ACTIONS for command in row.commands]
DERIVED_COMMANDS = [(row, command) for row, command in COMMANDS if not command.by_hand]


def site(record: Any = None, **changes: Any) -> ActionSite:
    given: dict[str, Any] = {"caller": OPERATOR_OF_FILES, **changes}
    return ActionSite(Path("/nowhere"), Path("/nowhere/users.json"), record=record or mock.Mock(), **given)


def leaves(path: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(f"{path} {name}", inner)
    else:
        yield path


def test_names_routes_and_commands_are_in_one_row_each() -> None:
    names, routes, commands = (
        [row.name for row in ACTIONS], [row.http for row in ACTIONS if row.http],
        [command.words for _, command in DERIVED_COMMANDS],
    )  # fmt: skip
    for found in (names, routes, commands):
        assert len(found) == len(set(found))


def test_no_operation_is_written_by_hand_without_a_reason() -> None:
    found = {f"{each.method} {each.path}" for each in OPERATIONS}
    derived = {row.http for row in ACTIONS if row.http}
    derived |= {row.dry_run.http for row in ACTIONS if isinstance(row.dry_run, DryRunAt)}
    assert derived == {f"{each.method} {each.path}" for each in DERIVED}
    assert found - derived == OPERATIONS_BY_HAND.keys()


def test_no_command_of_a_noun_is_written_by_hand_without_a_reason() -> None:
    nouns = {command.words.split()[0] for _, command in COMMANDS}
    found = {path for noun in nouns for path in leaves(noun, load(noun))}
    assert found == {command.words for _, command in COMMANDS} | BY_HAND.keys()


@pytest.mark.parametrize("row", ACTIONS, ids=lambda row: str(row.name))
def test_a_row_is_complete(row: Action) -> None:
    assert row.summary and row.commands
    assert not row.audit or row.effect != "reads"
    assert bool(row.dry_run) <= (row.planned is not None)
    if row.http:
        assert (row.method == "GET" or row.path == "/dry-runs") is (row.effect == "reads")
        assert row.method != "DELETE" or row.effect == "destroys"
    fields = {each.name for each in msgspec.structs.fields(row.input)}
    assert set(row.in_path) <= fields
    derived = [command for command in row.commands if not command.by_hand]
    spelled = {name for command in derived for name in command.spelled}
    of_http = {row.pages.after} if row.pages is not None else set()
    assert spelled | of_http | HTTP_ONLY.get(row.name, set()) == fields or not derived
    assert all({*row.in_path} <= command.spelled.keys() for command in derived)


def test_every_parameter_and_member_is_described() -> None:
    found = document(DERIVED)
    for row in ACTIONS:
        if row.http:
            operation = found["paths"][f"/api/v1{row.path}"][row.method.lower()]
            assert operation["summary"] == row.summary
            undescribed = [each["name"] for each in operation["parameters"] if not each.get("description")]
            assert not undescribed, f"{row.name}: {undescribed}"
    for name, schema in found["components"]["schemas"].items():
        if name != "Problem":
            assert schema.get("description"), name
            missing = [member for member, part in schema["properties"].items() if not part.get("description")]
            assert not missing, f"{name}: {missing}"


@pytest.mark.parametrize(("row", "command"), DERIVED_COMMANDS, ids=lambda value: getattr(value, "words", ""))
def test_the_equal_command_is_read_as_the_same_input(
    row: Action, command: ActionCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command named in a reply is read as the input of the completed action."""
    wanted = example(row, command)
    text = row.command_for(site(caller=replace(OPERATOR_OF_FILES, name="alice o'hara")), wanted)
    found: list[Any] = []

    class Recorder:
        def perform(self, action: Action, given: Any) -> Any:
            found.append((action, given))
            raise click.Abort

        plan = perform

    users: list[str] = []

    def opened(place: Any, as_user: str = "", password: Any = None) -> Any:
        users.append(as_user)
        return nullcontext(Recorder())

    for kind in (AdminTarget, NamedPlace):
        monkeypatch.setattr(kind, "open", opened)
    monkeypatch.setattr(AdminTarget, "check_daemon", lambda place: None)
    for words in map(shlex.split, text.split("; ")):
        options = ["--password-stdin"] if PASSWORD in command.spelled.values() else []
        with mock.patch("sys.stdin", new=mock.Mock(readline=lambda: "secret\n")), pytest.raises(click.Abort):
            load(words[1]).main([*words[2:], *options], standalone_mode=False)
    assert found == [(row, wanted)] and users == ["alice o'hara" if command.as_user else ""]


def example(row: Action, command: ActionCommand) -> Any:
    """Return an input with a non-default value in each field that the command sets."""
    values = {}
    for each in msgspec.structs.fields(row.input):
        if each.name in command.spelled:
            values[each.name] = _value(each, command.spelled[each.name])
    return row.input(**values)


def _value(each: msgspec.structs.FieldInfo, spelling: Any) -> Any:
    default = None if each.required else default_of(each)
    if isinstance(spelling, Always):
        return spelling.value
    if isinstance(spelling, Either):
        return spelling.on
    text = "secret" if spelling == PASSWORD else "it's two words"
    words = [text, "monitor", "operator", "commit", "move", "oldest"]
    candidates: list[Any] = [*words, 7, True, False, ["a b"], 2, UUID(int=1)]
    for candidate in candidates:
        if candidate != default:
            try:
                return msgspec.convert(candidate, each.type)
            except msgspec.ValidationError:
                continue
    raise AssertionError(each)


class Nothing(Output, frozen=True):
    """Nothing."""


def test_an_action_records_only_what_its_row_says() -> None:
    @action("x.change", http="POST /x", effect="changes", audit=("x.change", "x.role.*"), commands=())
    def change(site: ActionSite, given: Named) -> Nothing:
        """Change it."""
        site.record(given.name, "x", "y")
        return Nothing()

    record = mock.Mock()
    for name in ("x.change", "x.role.monitor"):
        change.perform(site(record), Named(name))
    with pytest.raises(RuntimeError, match=r"says that it records .*, not x\.remove"):
        change.perform(site(record), Named("x.remove"))
    assert [call.args[0] for call in record.call_args_list] == ["x.change", "x.role.monitor"]


class Named(Input, frozen=True):
    """A name."""

    name: str


def test_what_is_for_administrators_runs_for_nobody_else() -> None:
    ran = mock.Mock(return_value=Nothing())
    row = Action("x.see", lambda site, given: ran(), Empty, Nothing, "GET /x", (), administrators=True)
    for administrator, role in ((False, Role.ADMINISTRATOR), (True, Role.OPERATOR)):
        caller = ActionCaller("x", "S-1", administrator, role)
        with pytest.raises(MsmqError, match=r"for administrators|the role administrator"):
            row.perform(site(caller=caller), Empty())
    assert not ran.called
    row.perform(site(), Empty())
    assert ran.called
