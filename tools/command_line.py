"""Write the tables of docs/command-line.md: the operations of the HTTP API with their commands, and all commands.

With --check, exit with status 1 if the tables are out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from openmsmq.actions.table import Action, DryRunAt
from openmsmq.cli.commands import COMMANDS, load
from openmsmq.console.derived import ACTIONS
from openmsmq.console.resources import OPERATIONS

DOCUMENT = Path(__file__).parents[1] / "docs" / "command-line.md"
#: Place of an action -> how commands perform it.
WAYS = {
    "files": "files or HTTP", "accounts": "files", "queue manager": "RPC",
    "queue manager and accounts": "RPC", "daemon": "HTTP",
}  # fmt: skip
#: Operations that are not actions, or that commands perform in another way.
COMMANDS_BY_HAND = {
    "POST /session": ("none: sessions are for browsers, commands log in with each request", ""),
    "DELETE /session": ("none, as with `POST /session`", ""),
    "GET /events": ("`openmsmq top`, which asks again and again", "HTTP or RPC"),
    "GET /queues/{queue}/messages/{lookup}/body": ("`openmsmq msg body QUEUE ID`", "RPC"),
}
WAYS_BY_HAND = {"definitions": "HTTP or RPC; `--local` HTTP or files", "top": "HTTP or RPC", "queue list": "RPC"}
#: Maximum commands in a table cell, to limit its width.
COMMANDS_PER_ROW = 4


def usage(words: str) -> str:
    """Return a command with its required arguments."""
    first, *rest = words.split()
    command = load(first)
    for word in rest:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    needed = [each for each in command.params if each.required]
    return " ".join(["openmsmq", words, *(needs(command, each) for each in needed)])


def needs(command: click.Command, each: click.Parameter) -> str:
    """Return an argument, or an option with its value."""
    if isinstance(each.type, click.Choice):
        return str(each.type.choices[0])
    if isinstance(each, click.Argument):
        return each.make_metavar(click.Context(command))
    return f"{each.opts[0]} {each.opts[0].lstrip('-').upper()}"


def operations() -> Iterator[str]:
    """Yield the rows of operations, in the order of their paths; an operation with many commands has several rows."""
    by_route: dict[str, Action] = {action.http: action for action in ACTIONS if action.http}
    by_route |= {action.dry_run.http: action for action in ACTIONS if isinstance(action.dry_run, DryRunAt)}
    for each in sorted(OPERATIONS, key=lambda each: each.path):
        route = f"{each.method} {each.path}"
        if route in COMMANDS_BY_HAND:
            commands, way = COMMANDS_BY_HAND[route]
            yield f"| `{route}` | {commands} | {way} |"
        else:
            words = list(dict.fromkeys(command.words for command in by_route[route].commands))
            found = {WAYS_BY_HAND.get(each) or WAYS_BY_HAND.get(each.split()[0]) for each in words}
            way = next(iter(found - {None}), None) or WAYS[by_route[route].place]
            for start in range(0, len(words), COMMANDS_PER_ROW):
                commands = ", ".join(f"`{usage(each)}`" for each in words[start : start + COMMANDS_PER_ROW])
                yield f"| `{route}` | {commands} | {way} |"


def commands() -> Iterator[str]:
    """Yield a row for each command that is not just a group."""
    for name in COMMANDS:
        for words, command in leaves(name, load(name)):
            said = command.get_short_help_str(1000).replace("|", "\\|")
            yield f"| `{usage(words)}` | {said} |"


def leaves(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield words, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(f"{words} {name}", inner)


def with_table(text: str, name: str, head: str, rows: Iterable[str]) -> str:
    """Return the document with a table between its markers. Raises ValueError if they are missing."""
    columns = head.count("|") - 1
    table = "\n".join([head, "|" + "---|" * columns, *rows])
    begin, end = f"<!-- {name}: made by tools/command_line.py -->", f"<!-- end of {name} -->"
    pattern = f"(?s){re.escape(begin)}.*?{re.escape(end)}"
    if not re.search(pattern, text):
        raise ValueError(f"{DOCUMENT.name} has no {begin}")
    return re.sub(pattern, lambda _: f"{begin}\n{table}\n{end}", text)


def main() -> int:
    before = DOCUMENT.read_text(encoding="utf-8")
    made = with_table(before, "operations", "| operation | commands | by |", operations())
    made = with_table(made, "commands", "| command | what it does |", commands())
    if "--check" in sys.argv:
        if made != before:
            print(f"{DOCUMENT} is not of this version: run tools/command_line.py", file=sys.stderr)
        return int(made != before)
    DOCUMENT.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
