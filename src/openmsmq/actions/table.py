"""A row of the table of actions, and how commands spell and show it. No I/O: `run` gets what it works with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from inspect import cleandoc
from shlex import quote
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from openmsmq.actions.site import ActionSite
from openmsmq.model.roles import Role

_IN_PATH: Final = re.compile(r"\{([a-z]+)\}")
Planned = TypeVar("Planned")
Done = TypeVar("Done")


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields that a request may have; others are refused."""


class Output(msgspec.Struct, frozen=True):
    """Fields of an answer."""


class Empty(Input, frozen=True):
    """No parameters."""


#: What an action does to the daemon.
Effect = Literal["reads", "changes", "destroys"]
#: Where commands do an action: in the data directory of a daemon, or by its HTTP API; in the data directory, also with
#: users of its domain; at a queue manager, by the protocols of MSMQ; the same, with users and groups by name; by the
#: HTTP API of a daemon.
WorkPlace = Literal["files", "accounts", "queue manager", "queue manager and accounts", "daemon"]


@dataclass(frozen=True, slots=True)
class ActionPlan(Generic[Planned, Done]):
    """A planned change. Everything was checked; nothing is changed until `carry_out` is called.

    `would` gives the output of a dry run. `binds` is what must be the same when a plan is made again to be carried out,
    for rows with `bound`.
    """

    would: Callable[[], Planned]
    carry_out: Callable[[], Done]
    binds: Any = None


class Job(NamedTuple):
    """A change that continues after its HTTP response. `look` returns its progress. From the response and the progress,
    `ended` makes the output of a command, or None while the change is running. `ended` raises ActionRefused if the
    change failed.
    """

    look: Action
    ended: Callable[[Any, Any], Any]


class DryRunAt(NamedTuple):
    """The operation of HTTP that makes a dry run: method and path, its name, summary and statuses."""

    http: str
    name: str
    summary: str
    statuses: tuple[int, ...] = ()


class Without(NamedTuple):
    """A flag that makes a field false, which is true without the flag."""

    option: str
    help: str


class Either(NamedTuple):
    """A flag that gives a field one of two values: `on` with the flag, `off` without it."""

    option: str
    on: str
    off: str
    help: str


class Always(NamedTuple):
    """A value that the command gives without an option. `only`: the command is for this value, and not for others."""

    value: Any
    only: bool = False


class CountOption(NamedTuple):
    """How a command spells the number of rows of an action with pages: the first ones of all pages, or all for 0."""

    option: str
    default: int
    help: str


Spelling = str | Without | Either | Always | CountOption


class Flag(NamedTuple):
    """A flag of the command alone."""

    option: str
    help: str


@dataclass(frozen=True, slots=True)
class Rows:
    """How a command shows a list: a table, or with --json a document for each row.

    `rows` gets the output, and may return None for no table. `empty` is shown in place of a table without rows; `head`
    are lines before the table, `note` a line on standard error after it. `single` is one document in place of those of
    the rows.
    """

    rows: Callable[[Any], Sequence[Any] | None]
    columns: tuple[str, ...]
    cells: Callable[[Any], list[Any]]
    document: Callable[[Any, Any], Mapping[str, Any]] = lambda row, output: msgspec.structs.asdict(row)
    empty: str = ""
    note: Callable[[Any], str] | None = None
    head: Callable[[Any], Sequence[str]] | None = None
    single: Callable[[Any], Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class LineView:
    """How a command shows the output: a line or several, or with --json a document, if there is one. `err`: on standard
    error."""

    text: Callable[[Any], str | list[str]]
    document: Callable[[Any], Mapping[str, Any]] | None = None
    err: bool = False


View = Rows | LineView


class Pages(NamedTuple):
    """A list that is returned in pages. An output has `rows`, at most the value of the field `limit`, which is at most
    `largest`. The field `after` is where the next page begins: before the `number` of the last row, if numbers decrease
    from row to row; otherwise at the cursor in `next` of the output.
    """

    rows: str
    limit: str
    largest: int
    after: str
    number: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True)
class ActionCommand:
    """A command of an action.

    `spelled` has the fields of the input that the command sets, in this order, and how: `NAME`, `USER...` and
    `[USER]...` are arguments, `--role` and `--for USER` options. `help` is the text of the action by default, `more`
    what the command says after its sentence. `views` are flags that show the output in another way. `as_user` is the
    help of --user: by HTTP, the command logs in with the password of that user, and in a data directory it acts for
    that user.

    `show_plan` shows the output of a dry run; the command has --dry-run then. `question` makes of that output what is
    asked before the change, empty for nothing; the command has --yes then. `yes` and `dry_run` are the help of these.
    `instead` is the action that the command does where it is given a field that its own action does not have.
    `by_hand` is why the command is written by hand.
    """

    words: str
    spelled: Mapping[str, Spelling] = field(default_factory=dict)
    show: View | None = None
    show_plan: View | None = None
    question: Callable[[Any], str] | None = None
    help: str = ""
    more: str = ""
    views: Mapping[Flag, View] = field(default_factory=dict)
    as_user: str = ""
    by_hand: str = ""
    yes: str = "Do not ask for confirmation."
    dry_run: str = "Only show what would be done."
    instead: Action | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """A row. `run` gets the site and the input, and returns the output; or an ActionPlan, where there is a dry run.

    `http` is method and path, empty for an action that is a command only; fields that are not in the path are in the
    query of GET and DELETE, else in the body, but for those of `queries`.
    `role` is what the caller needs at least; `administrators`: it is for administrators of the queue manager only.
    `audit` are patterns of what it records; it can record nothing else. `refuses` are errors of `run` with their
    statuses, `statuses` those of ActionRefused. `founds`: it may make a data directory before the daemon's first start.
    `pages`: HTTP gives the list in pages; where `run` has the files, a limit of 0 is all of it.
    `job`: it goes on after the answer by HTTP. `place` is where commands do it.
    `planned` is the output of a dry run, for which the role `looking` is enough, if there is one. `dry_run` is how HTTP
    asks for one: an operation of its own, or a parameter `dry_run` in `body` or `query`. `bound`: a dry run gives a
    token, in the field `token` of its output, without which nothing is done and which holds for this plan only.
    `partial`: what an output leaves out for which `is_partial` is true; its status is 207.
    """

    name: str
    run: Callable[[ActionSite, Any], Any]
    input: type[Input]
    output: Any
    http: str
    commands: tuple[ActionCommand, ...]
    status: int = 200
    effect: Effect = "reads"
    role: Role = Role.ADMINISTRATOR
    administrators: bool = False
    audit: tuple[str, ...] = ()
    refuses: Mapping[type[Exception], int] = field(default_factory=dict)
    statuses: tuple[int, ...] = ()
    founds: bool = False
    pages: Pages | None = None
    job: Job | None = None
    place: WorkPlace = "files"
    planned: Any = None
    dry_run: DryRunAt | Literal["", "body", "query"] = ""
    bound: bool = False
    looking: Role | None = None
    queries: tuple[str, ...] = ()
    partial: str = ""
    is_partial: Callable[[Any], bool] = lambda output: False

    @property
    def summary(self) -> str:
        """The sentence that says what it does."""
        return cleandoc(self.run.__doc__ or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")

    @property
    def description(self) -> str:
        """Further explanation; may be empty."""
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
        found = self._run(site, given)
        return found.carry_out() if isinstance(found, ActionPlan) else found

    def plan(self, site: ActionSite, given: Input) -> ActionPlan[Any, Any]:
        """Plan the action, for a row with `planned`. Raises the errors of `perform`."""
        found = self._run(site, given)
        assert isinstance(found, ActionPlan), self.name
        return found

    def _run(self, site: ActionSite, given: Input) -> Any:
        if self.administrators:
            site.demand_administrator()
        return self.run(replace(site, record=self._recorder(site), command=self.command_for(site, given)), given)

    def _recorder(self, site: ActionSite) -> Callable[..., int | None]:
        """Records only what the row says."""

        def record(action: str, *arguments: Any, **named: Any) -> int | None:
            if not any(fnmatchcase(action, pattern) for pattern in self.audit):
                raise RuntimeError(f"the action {self.name} says that it records {self.audit}, not {action}")
            return site.record(action, *arguments, **named)

        return record

    def command_for(self, site: ActionSite, given: Input) -> str:
        """The commands that do the same; secrets are asked for."""
        own = self.in_path
        defaults = {each.name: default_of(each) for each in msgspec.structs.fields(self.input)}
        set_ = {name for name in defaults if name not in own and getattr(given, name) != defaults[name]}
        able = [command for command in self.commands if _can_say(command, given)]
        wanted = [command for command in able if set_ & command.spelled.keys()] or able[:1]
        return "; ".join(" ".join(self._words(command, site, given, defaults)) for command in wanted)

    def _words(
        self, command: ActionCommand, site: ActionSite, given: Input, defaults: Mapping[str, Any]
    ) -> Iterator[str]:
        yield f"openmsmq {command.words}"
        if command.as_user:
            yield f"--user {quote(site.caller.name)}"
        for name, spelling in command.spelled.items():
            value = site.queue["name"] if name == "queue" and site.queue else getattr(given, name)
            if isinstance(spelling, Without):
                yield from () if value else (spelling.option,)
            elif isinstance(spelling, Always):
                continue
            elif isinstance(spelling, Either):
                yield from (spelling.option,) if value == spelling.on else ()
            elif isinstance(spelling, CountOption):
                yield from () if value == spelling.default else (f"{spelling.option.split()[0]} {value}",)
            elif not spelling.startswith("-"):
                if value == defaults[name]:
                    continue
                yield from map(quote, value if isinstance(value, list) else [str(value)])
            elif value != defaults[name] and spelling != PASSWORD:
                yield spelling.split()[0] if value is True else f"{spelling.split()[0]} {quote(str(value))}"


def _can_say(command: ActionCommand, given: Input) -> bool:
    for name, each in command.spelled.items():
        if isinstance(each, Either) and getattr(given, name) not in each[1:3]:
            return False
        if isinstance(each, Always) and each.only and getattr(given, name) != each.value:
            return False
    return True


@dataclass(frozen=True, slots=True)
class ActionsHere:
    """Actions that this process does on a site."""

    site: ActionSite

    def perform(self, action: Action, given: Input) -> Any:
        return action.perform(self.site, given)

    def plan(self, action: Action, given: Input) -> ActionPlan[Any, Any]:
        return action.plan(self.site, given)


#: How a command spells a field that is a secret: it is typed, or read from standard input.
PASSWORD: Final = "--password-stdin"


def default_of(each: msgspec.structs.FieldInfo) -> Any:
    """The default of a field of an input; NODEFAULT for one that has to be given."""
    return each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()


def action(name: str, **row: Any) -> Callable[[Callable[[ActionSite, Any], Any]], Action]:
    """Make a row of a function; its annotations are input and output. `row` has the other fields of `Action`."""

    def made(run: Callable[[ActionSite, Any], Any]) -> Action:
        hints = get_type_hints(run)
        output, planned = hints["return"], None
        if get_origin(output) is ActionPlan:
            planned, output = get_args(output)
        return Action(name=name, run=run, input=hints["given"], output=output, planned=planned, **row)

    return made
