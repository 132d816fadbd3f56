"""The types of the table of actions: rows, and how commands spell and show them. No I/O: `run` gets a site."""

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
    """Fields of a request; unknown fields are refused."""


class Output(msgspec.Struct, frozen=True):
    """Fields of a response."""


class Empty(Input, frozen=True):
    """No parameters."""


#: Effect of an action on the daemon.
Effect = Literal["reads", "changes", "destroys"]
#: Where commands perform an action. files: in the data directory of a daemon, or through its HTTP API. accounts: in the
#: data directory, including users of its domain. queue manager: through the MSMQ protocols. queue manager and accounts:
#: the same, with users and groups by name. daemon: through the HTTP API of a daemon.
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
    """The HTTP operation for a dry run: method and path, name, summary and statuses."""

    http: str
    name: str
    summary: str
    statuses: tuple[int, ...] = ()


class Without(NamedTuple):
    """A flag that sets a field to false; without the flag, it is true."""

    option: str
    help: str


class Either(NamedTuple):
    """A flag that sets a field to one of two values: `on` with the flag, `off` without it."""

    option: str
    on: str
    off: str
    help: str


class Always(NamedTuple):
    """A fixed value that the command sets. `only`: the command is only for this value."""

    value: Any
    only: bool = False


class CountOption(NamedTuple):
    """The option for the number of rows of an action with pages, counted over all pages; 0 for all rows."""

    option: str
    default: int
    help: str


Spelling = str | Without | Either | Always | CountOption


class Flag(NamedTuple):
    """A flag that only the command has."""

    option: str
    help: str


@dataclass(frozen=True, slots=True)
class Rows:
    """How a command shows a list: a table, or with --json a document for each row.

    `rows` gets the output, and may return None for no table. `empty` is shown instead of a table without rows; `head`
    returns lines before the table, `note` lines on standard error after it. `single` returns one document instead of
    one per row.
    """

    rows: Callable[[Any], Sequence[Any] | None]
    columns: tuple[str, ...]
    cells: Callable[[Any], list[Any]]
    document: Callable[[Any, Any], Mapping[str, Any]] = lambda row, output: msgspec.structs.asdict(row)
    empty: str = ""
    note: Callable[[Any], str | list[str]] | None = None
    head: Callable[[Any], Sequence[str]] | None = None
    single: Callable[[Any], Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class LineView:
    """How a command shows the output: as one or more lines, or with --json as a document, if there is one. `err`: on
    standard error."""

    text: Callable[[Any], str | list[str]]
    document: Callable[[Any], Mapping[str, Any]] | None = None
    err: bool = False


View = Rows | LineView


class Pages(NamedTuple):
    """A list that is returned in pages. `rows` is the field of the output with the rows, and `limit` the field of the
    input with their maximum number, which is at most `largest`. `after` is the field of the input with the start of the
    page: if numbers decrease from row to row, the `number` of the last row; otherwise the cursor in `next` of the
    output.
    """

    rows: str
    limit: str
    largest: int
    after: str
    number: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True)
class ActionCommand:
    """A command of an action.

    `spelled` maps the fields of the input that the command sets, in this order, to their spelling: `NAME`, `USER...`
    and `[USER]...` are arguments, `--role` and `--for USER` options. `help` defaults to the text of the action; `more`
    is appended to it. `views` are flags that show the output in another form. `as_user` is the help of --user: by HTTP,
    the command logs in with the password of that user; in a data directory, it acts for that user.

    With `show_plan`, which shows the output of a dry run, the command has --dry-run. With `question`, the command has
    --yes; `question` returns the question to ask before the change from the output of a dry run, empty for none. `yes`
    and `dry_run` are the help texts of these options. `instead` is the action that the command performs if it is given
    a field that its own action does not have. `by_hand` is the reason why the command is not generated.
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
    """A row of the table.

    Attributes:
        run: gets the site and the input; returns the output, or an ActionPlan if there is a dry run.
        http: method and path, empty if there is only a command. Fields that are not in the path are in the query for
            GET and DELETE, else in the body, except those in `queries`.
        place: where commands perform the action.
        role: the minimum role of the caller; `administrators`: only for administrators of the queue manager.
        audit: patterns of its audit records; it can record nothing else.
        refuses: errors of `run` and their statuses; `statuses` are those of ActionRefused.
        founds: it may create a data directory before the daemon's first start.
        planned: the output of a dry run; the role `looking`, if set, is sufficient for it.
        dry_run: how HTTP requests a dry run: a separate operation, or a parameter `dry_run` in `body` or `query`.
        bound: a dry run returns a token in the field `token` of its output. The change requires the token, which is
            valid only for this plan.
        partial: what an output leaves out if `is_partial` is true; its status is 207.
        pages: HTTP returns the list in pages; if `run` reads files, a limit of 0 means all rows.
        job: the action continues after the HTTP response.
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
        """The sentence that describes the action."""
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
        """Names of the fields in the path."""
        return _IN_PATH.findall(self.path)

    def perform(self, site: ActionSite, given: Input) -> Any:
        """Perform the action. Raises MsmqError if the caller lacks the right, ActionRefused, and the errors in
        `refuses`."""
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
        """Return a recorder that accepts only the records in `audit`."""

        def record(action: str, *arguments: Any, **named: Any) -> int | None:
            if not any(fnmatchcase(action, pattern) for pattern in self.audit):
                raise RuntimeError(f"the action {self.name} says that it records {self.audit}, not {action}")
            return site.record(action, *arguments, **named)

        return record

    def command_for(self, site: ActionSite, given: Input) -> str:
        """Return the equivalent commands; they prompt for secrets."""
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
    """Performs actions in this process on a site."""

    site: ActionSite

    def perform(self, action: Action, given: Input) -> Any:
        return action.perform(self.site, given)

    def plan(self, action: Action, given: Input) -> ActionPlan[Any, Any]:
        return action.plan(self.site, given)


#: Spelling of a secret field: it is prompted for, or read from standard input.
PASSWORD: Final = "--password-stdin"


def default_of(each: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a field of an input; NODEFAULT if it is required."""
    return each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()


def action(name: str, **row: Any) -> Callable[[Callable[[ActionSite, Any], Any]], Action]:
    """Create a row from a function, whose annotations are input and output. `row` has the other fields of `Action`."""

    def made(run: Callable[[ActionSite, Any], Any]) -> Action:
        hints = get_type_hints(run)
        output, planned = hints["return"], None
        if get_origin(output) is ActionPlan:
            planned, output = get_args(output)
        return Action(name=name, run=run, input=hints["given"], output=output, planned=planned, **row)

    return made
