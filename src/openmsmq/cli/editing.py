"""Options that change messages before they are sent again, and an editor for one."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from openmsmq.admin.editing import MessageEdits, document, edited
from openmsmq.cli.numbers import LIFETIME
from openmsmq.model.message import Message
from openmsmq.model.text import printable_json

_OPTIONS = (
    click.option("--edit", is_flag=True, help="Edit each message in $EDITOR first, as JSON."),
    click.option("--set-label", help="New label."),
    click.option("--set-text", help="New body (text)."),
    click.option(
        "--set-body", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="New body from a file."
    ),
    click.option("--priority", type=click.IntRange(0, 7), help="New priority."),
    click.option("--ttl", type=LIFETIME, help="New time limit to be received, in seconds from now."),
    click.option("--reach-ttl", type=LIFETIME, help="New time limit to reach the queue, in seconds from now."),
)


def changes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `changes` and `edit`."""

    @functools.wraps(command)
    def wrapper(
        *args: Any, set_label: str | None, set_text: str | None, set_body: Path | None, priority: int | None,
        ttl: int | None, reach_ttl: int | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        if set_text is not None and set_body is not None:
            raise click.UsageError("give --set-text or --set-body, not both")
        body = set_text if set_body is None else set_body.read_bytes()
        return command(*args, changes=MessageEdits(set_label, body, priority, reach_ttl, ttl), **kwargs)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


def edit_in_editor(message: Message) -> Message:
    """Return the message as the user saved it in an editor. Raises Abort if it was not saved."""
    text = click.edit(printable_json(document(message), indent=1), extension=".json")
    if text is None:
        raise click.Abort()
    try:
        return edited(message, json.loads(text))
    except ValueError as error:
        raise click.ClickException(f"{message.id} was not sent: {error}") from None
