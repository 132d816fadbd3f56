"""A row of the table of actions, and how commands spell and show it. No I/O: `run` gets what it works with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from inspect import cleandoc
from shlex import quote
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from openmsmq.actions.site import ActionSite
from openmsmq.model.roles import Role

_IN_PATH: Final = re.compile(r"\{([a-z]+)\}")


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request may have, and nothing else."""


class Output(msgspec.Struct, frozen=True):
    """What an answer has."""


class Empty(Input, frozen=True):
    """No parameters."""


class ActionEffect(Enum):
    """What an action does to the daemon."""

    READS = "reads"
    CHANGES = "changes"
    DESTROYS = "destroys"


class Without(NamedTuple):
    """A flag that makes a field false, which is true without the flag."""

    option: str
    help: str


class CountOption(NamedTuple):
    """How a command spells the number of rows of an action with pages: the first ones of all pages, or all for 0."""

    option: str
    default: int
    help: str


class Flag(NamedTuple):
    """A flag of the command alone."""

    option: str
    help: str


@dataclass(frozen=True, slots=True)
class Rows:
    """How a command shows a list: a table, or with --json a document for each row. `rows` gets the output;
    `empty` is shown in place of a table without rows. `notes` are lines that follow it on standard error."""

    rows: Callable[[Any], Sequence[Any]]
    columns: tuple[str, ...]
    cells: Callable[[Any], list[Any]]
    document: Callable[[Any, Any], Mapping[str, Any]] = lambda row, output: msgspec.structs.asdict(row)
    empty: str = ""
    notes: Callable[[Any], Sequence[str]] = lambda output: ()


@dataclass(frozen=True, slots=True)
class LineView:
    """How a command shows the output: a line, or with --json a document, if there is one. `err`: on standard error."""

    text: Callable[[Any], str]
    document: Callable[[Any], Mapping[str, Any]] | None = None
    err: bool = False


class Pages(NamedTuple):
    """A list that is asked for in pages. An output has `rows`, at most as many as the field `limit` says, which is at
    most `largest`; the next page has those before the number of the last row. Numbers fall from row to row."""

    rows: str
    limit: str
    largest: int
    before: str
    number: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class ActionCommand:
    """A command of an action.

    `spelled` has the fields of the input that the command sets, in this order, and how: `NAME`, `USER...` and
    `[USER]...` are arguments, `--role` an option. `help` is the text of the action by default, `more` what the command
    says after its sentence. `views` are flags that show the output in another way. `as_user` is the help of --user: by
    HTTP, the command logs in with the password of that user, and in a data directory it acts for that user.
    """

    words: str
    spelled: Mapping[str, str | Without | CountOption] = field(default_factory=dict)
    show: Rows | LineView | None = None
    help: str = ""
    more: str = ""
    views: Mapping[Flag, Rows] = field(default_factory=dict)
    as_user: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """A row. `run` gets the site and the input, and returns the output.

    `http` is method and path; fields that are not in the path are in the query of GET and DELETE, else in the body.
    `role` is what the caller needs at least; `administrators`: it is for administrators of the queue manager only.
    `audit` are patterns of what it records; it can record nothing else. `refuses` are errors of `run` with their
    statuses, `statuses` those of ActionRefused. `founds`: it may make a data directory before the daemon's first start.
    `pages`: HTTP gives the list in pages; where `run` has the files, a limit of 0 is all of it.
    """

    name: str
    run: Callable[[ActionSite, Any], Any]
    input: type[Input]
    output: type[Output]
    http: str
    commands: tuple[ActionCommand, ...]
    status: int = 200
    effect: ActionEffect = ActionEffect.READS
    role: Role = Role.ADMINISTRATOR
    administrators: bool = False
    audit: tuple[str, ...] = ()
    refuses: Mapping[type[Exception], int] = field(default_factory=dict)
    statuses: tuple[int, ...] = ()
    founds: bool = False
    pages: Pages | None = None

    @property
    def summary(self) -> str:
        """The sentence that says what it does."""
        return cleandoc(self.run.__doc__ or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")

    @property
    def description(self) -> str:
        """What there is to say besides; may be empty."""
        return cleandoc(self.run.__doc__ or "").partition("\n\n")[2]

    @property
    def method(self) -> str:
        return self.http.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.http.partition(" ")[2]

    @property
    def in_path(self) -> list[str]:
        """The fields that are in the path."""
        return _IN_PATH.findall(self.path)

    def perform(self, site: ActionSite, given: Input) -> Any:
        """Do it. Raises MsmqError for a caller that may not, ActionRefused, and what `refuses` has."""
        if self.administrators:
            site.demand_administrator()
        return self.run(replace(site, record=self._recorder(site), command=self.command_for(site, given)), given)

    def _recorder(self, site: ActionSite) -> Callable[..., None]:
        """Records only what the row says."""

        def record(action: str, *arguments: Any, **named: Any) -> None:
            if not any(fnmatchcase(action, pattern) for pattern in self.audit):
                raise RuntimeError(f"the action {self.name} says that it records {self.audit}, not {action}")
            site.record(action, *arguments, **named)

        return record

    def command_for(self, site: ActionSite, given: Input) -> str:
        """The commands that do the same; secrets are asked for."""
        own = self.in_path
        defaults = {each.name: default_of(each) for each in msgspec.structs.fields(self.input)}
        set_ = {name for name in defaults if name not in own and getattr(given, name) != defaults[name]}
        wanted = [command for command in self.commands if set_ & command.spelled.keys()] or self.commands[:1]
        return "; ".join(" ".join(self._words(command, site, given, defaults)) for command in wanted)

    def _words(
        self, command: ActionCommand, site: ActionSite, given: Input, defaults: Mapping[str, Any]
    ) -> Iterator[str]:
        yield f"openmsmq {command.words}"
        if command.as_user:
            yield f"--user {quote(site.caller.name)}"
        for name, spelling in command.spelled.items():
            value = getattr(given, name)
            if isinstance(spelling, Without):
                yield from () if value else (spelling.option,)
            elif isinstance(spelling, CountOption):
                yield from () if value == spelling.default else (f"{spelling.option.split()[0]} {value}",)
            elif not spelling.startswith("-"):
                if value == defaults[name]:
                    continue
                yield from map(quote, value if isinstance(value, list) else [str(value)])
            elif value != defaults[name] and spelling != PASSWORD:
                yield spelling.split()[0] if value is True else f"{spelling.split()[0]} {quote(str(value))}"


#: How a command spells a field that is a secret: it is typed, or read from standard input.
PASSWORD: Final = "--password-stdin"


def default_of(each: msgspec.structs.FieldInfo) -> Any:
    """The default of a field of an input; NODEFAULT for one that has to be given."""
    return each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()


def action(name: str, **row: Any) -> Callable[[Callable[[ActionSite, Any], Any]], Action]:
    """Make a row of a function; its annotations are input and output. `row` has the other fields of `Action`."""

    def made(run: Callable[[ActionSite, Any], Any]) -> Action:
        hints = get_type_hints(run)
        return Action(name=name, run=run, input=hints["given"], output=hints["return"], **row)

    return made
