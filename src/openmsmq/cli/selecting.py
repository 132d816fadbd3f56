"""Options that select messages, and the output of commands that act on them."""

from __future__ import annotations

import functools
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import click

from openmsmq.admin.acting import Edit, MessageAction, action
from openmsmq.admin.naming import shown
from openmsmq.admin.queues import missing
from openmsmq.admin.selection import (
    Action,
    ActionResult,
    Chosen,
    Criteria,
    Selection,
    SelectionToken,
    act,
    parse_token,
    select,
)
from openmsmq.cli.interrupting import between_messages
from openmsmq.cli.numbers import AGE, COUNT, SIZE
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.client.sync import QueueManager
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageNotFound, QueueNotFound
from openmsmq.model.reasons import class_name, find_reason
from openmsmq.model.text import counted, time_text

T = TypeVar("T")


def _parsed(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """Return a callback for an option, which reports errors of `parse` as errors of the option."""

    def callback(_: click.Context, __: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _class_of(text: str) -> int:
    """Parse a class: the name or number of a message class, or a reason of dead letters."""
    known = {kind.name: int(kind) for kind in MessageClass}
    return known[text.upper()] if text.upper() in known else find_reason(text).code


_CRITERIA = (
    click.option("--id", "ids", multiple=True, help="Message identifier, as peek shows it; may be repeated."),
    click.option("--find", help="Text in the label or the body, or at least 8 characters of the identifier."),
    click.option("--label", help="Text in the label, or a pattern with * and ?."),
    click.option("--correlation", metavar="ID", help="Correlation identifier."),
    click.option("--class", "class_", callback=_parsed(_class_of), help="Class: NORMAL, ACK_RECEIVE, 0x4000, ..."),
    click.option(
        "--reason",
        callback=_parsed(lambda text: find_reason(text).code),
        help="Reason of dead letters: a word (expired-unread), a name (RECEIVE_TIMEOUT) or a number (0xC002).",
    ),
    click.option("--meant-for", help="Format name of the destination, or text in it."),
    click.option("--older", type=AGE, help="Minimum time in the queue: 90 (seconds), 10m, 2h, 3d."),
    click.option("--newer", type=AGE, help="Maximum time in the queue."),
    click.option("--larger", type=SIZE, help="Minimum body size in bytes: 4096, 64k, 2m."),
    click.option("--smaller", type=SIZE, help="Maximum body size in bytes: 4096, 64k, 2m."),
    click.option("--text", help="Text in the body."),
)
_BOUNDS = (
    click.option("--limit", type=COUNT, default=0, help="Maximum number of messages (0: no limit)."),
    click.option(
        "--selection",
        "token",
        callback=_parsed(parse_token),
        metavar="TOKEN",
        help="Exactly the messages that a dry run found (the token that it printed).",
    ),
    click.option("--all", "everything", is_flag=True, help="All messages."),
    click.option("--dry-run", is_flag=True, help="Only show the effect, and a token for --selection."),
)


def criteria_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `criteria`."""

    @functools.wraps(command)
    def wrapper(
        *args: Any,
        ids: tuple[str, ...],
        class_: int | None,
        reason: int | None,
        meant_for: str | None,
        **kwargs: Any,
    ) -> Any:
        values = {name: kwargs.pop(name) for name in
                  ("find", "label", "correlation", "older", "newer", "larger", "smaller", "text")}  # fmt: skip
        classes = frozenset(kind for kind in (class_, reason) if kind is not None)
        criteria = Criteria(
            ids=frozenset(ids) or None, classes=classes or None, destination=meant_for or None, **values
        )
        return command(*args, criteria=criteria, **kwargs)

    for option in reversed(_CRITERIA):
        wrapper = option(wrapper)
    return wrapper


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that changes something `wanted`, which selects, `dry_run` and `as_json`."""

    @criteria_options
    @json_option
    @functools.wraps(command)
    def wrapper(
        *args: Any,
        criteria: Criteria,
        limit: int,
        token: SelectionToken | None,
        everything: bool,
        dry_run: bool,
        **kwargs: Any,
    ) -> Any:
        if criteria == Criteria() and not everything:
            raise click.UsageError("select messages by --id, --reason, --label, ..., or give --all for all of them")
        if criteria != Criteria() and everything:
            raise click.UsageError("--all cannot be combined with --id, --reason, --label, ...")
        return command(*args, wanted=SelectionOptions(criteria, limit, token), dry_run=dry_run, **kwargs)

    for option in reversed(_BOUNDS):
        wrapper = option(wrapper)
    return wrapper


class SelectionOptions:
    """Return which messages the options select."""

    def __init__(self, criteria: Criteria, limit: int, token: SelectionToken | None) -> None:
        self._criteria, self._limit, self._token = criteria, limit, token

    def select(self, qm: QueueManager, queues: Iterable[str]) -> Selection:
        """Raise MessageNotFound for an identifier that does not exist, and UsageError if other messages are selected
        than those that the dry run found."""
        found = select(qm, queues, self._criteria, time.time(), limit=self._limit, token=self._token)
        missing = (self._criteria.ids or frozenset()) - {chosen.id for chosen in found.chosen}
        if missing:
            raise MessageNotFound(detail=f"no such message: {', '.join(sorted(missing))}")
        if self._token is not None and found.digest != self._token.digest:
            raise click.UsageError(
                f"the dry run found {self._token.found} messages, and the options now select {len(found.chosen)}, not "
                "just these: some were received or became visible in the meantime, or the options differ; repeat the "
                "dry run"
            )
        return found


def carry_out(
    qm: QueueManager,
    wanted: SelectionOptions,
    queues: Iterable[str],
    does: Action,
    *,
    verb: str,
    to: Callable[[Chosen], str],
    dry_run: bool,
    as_json: bool,
    confirm: Callable[[int], None] = lambda count: None,
    target: Callable[[Chosen], str] | None = None,
) -> None:
    """Select messages, act on them and show the result. `confirm` gets the number of messages and may abort. Exit code
    1 if the action failed for a message, or, in a dry run, if the queue of `target` does not exist.
    """
    found = wanted.select(qm, queues)
    if dry_run:
        _show((ActionResult(chosen, "dry run", None) for chosen in found.chosen), to, as_json, False)
        if not as_json:
            size = sum(chosen.size for chosen in found.chosen)
            echo(f"would be {verb}: {len(found.chosen)} ({size:,} bytes)")
            if found.chosen and found.token:
                echo(f"just these: --selection {found.token}")
            elif found.chosen:
                echo(
                    "this server does not return sequence numbers through MS-MQMP: a later run may find more messages",
                    err=True,
                )
        elif found.chosen:
            print_json({"selection": found.token, "count": len(found.chosen)})
        if target is not None:
            _check_targets(qm, found.chosen, target, verb)
        return
    confirm(len(found.chosen))
    done: list[ActionResult] = []
    try:
        with between_messages() as end, closing(act(qm, found, does)) as results:
            _show(_kept(results, done, end), to, as_json, True)
    except BrokenPipeError:
        if len(done) == len(found.chosen):
            raise
        sys.stdout = io.StringIO()  # when Python ends, it would try to write the rest of the output
        raise click.ClickException(
            f"the output was closed, so only {len(done)} of {counted(len(found.chosen), 'message')} were processed"
        ) from None
    finally:
        count = sum(entry.how is not None for entry in done)
        if not as_json:
            echo(f"{verb}: {count}")
    failed = [entry for entry in done if entry.error is not None]
    if not as_json:
        gone = len(done) - count - len(failed)
        if gone:
            echo(f"{counted(gone, 'message')} had been received, or locked, by another reader", err=True)
    if failed:
        stay = "stays where it is" if len(failed) == 1 else "stay where they are"
        raise click.ClickException(
            f"{counted(len(failed), 'message')} of {len(done)} could not be {verb} and {stay}: {failed[0].error}"
        )


def _kept(results: Iterable[ActionResult], done: list[ActionResult], end: Callable[[], None]) -> Iterator[ActionResult]:
    for result in results:
        done.append(result)
        yield result
        end()


def _check_targets(qm: QueueManager, chosen: Sequence[Chosen], target: Callable[[Chosen], str], verb: str) -> None:
    """Raise ClickException naming the queues that do not exist."""
    wanted = [target(each) for each in chosen]
    absent = missing(qm, wanted)
    count = sum(name in absent for name in wanted)
    if count:
        raise click.ClickException(
            f"{counted(count, 'message')} of {len(wanted)} could not be {verb}: there is no queue {', '.join(absent)}"
        )


def perform(
    qm: QueueManager, wanted: SelectionOptions, deed: MessageAction, *, edit: Edit | None = None, verb: str, to:
    Callable[[Chosen], str],
    dry_run: bool, as_json: bool, confirm: Callable[[int], None] = lambda count: None,
) -> None:  # fmt: skip
    """Run `carry_out` for an action, including its target queues. Raises QueueNotFound if a target queue does not
    exist."""
    if deed.to is not None and missing(qm, [deed.to]):
        raise QueueNotFound(detail=f"there is no queue {deed.to} to which messages could be {verb}")
    target = None if deed.act == "delete" or deed.to is not None else lambda chosen: chosen.destination
    with action(qm, deed, edit) as does:
        carry_out(
            qm, wanted, deed.queues, does, verb=verb, to=to, dry_run=dry_run, as_json=as_json, confirm=confirm,
            target=target,
        )  # fmt: skip


def _show(entries: Iterable[ActionResult], to: Callable[[Chosen], str], as_json: bool, done: bool) -> None:
    """Print a line per message: as JSON while messages are processed, or as a table at the end, also if an exception
    ends the work."""
    rows = []
    try:
        for entry in entries:
            chosen = entry.chosen
            row = {
                "id": chosen.id,
                "queue": shown(chosen.queue),
                "sent": time_text(chosen.sent),
                "reason": class_name(chosen.message_class),
                "label": chosen.label,
                "to": to(chosen),
                "body": chosen.preview,
            }
            result = str(entry.error) if entry.error is not None else entry.how or "gone"
            if as_json:
                print_json({**row, "result": result, "done": done and entry.how is not None})
            else:
                rows.append([*row.values(), *([result] if done else [])])
    finally:
        if rows:
            columns = ["id", "queue", "sent", "class", "label", "to", "body", *(["result"] if done else [])]
            print_table(columns, rows)
