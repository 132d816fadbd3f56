"""Forms of pages; each runs one action, and its fields are those of the action's input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from openmsmq.actions import alarms, backups, handles, jobs, messages, outgoing, queues, tokens, transactions, users
from openmsmq.actions.table import Action
from openmsmq.console.derived import operation_of
from openmsmq.console.problems import Problem
from openmsmq.model.text import as_unicode, counted, time_text


class FormQuestion(NamedTuple):
    """A question that is asked before an action that cannot be undone. `text` has the field `about` of the form in
    braces; `answer` is the label of the button that runs the action."""

    text: str
    answer: str


class PageForm(NamedTuple):
    """A form posted to `path` that runs the action `row`. `after` is the page shown next, with fields of the path and
    of the output in braces; or a function that returns a sentence about the output for a page with the result. With a
    `question`, the action runs only if the form has the field `sure`."""

    path: str
    row: Action
    after: str | Callable[[Any], str]
    question: FormQuestion | None = None


def _gone(verb: str, link: str) -> Callable[[Any], str]:
    return lambda gone: f"{verb} {gone.queue}{link}{counted(gone.messages, 'message')}"


def _ended(done: transactions.ResolvedTransaction) -> str:
    return f"Done: {done.does}. Its state now: {done.state}."


def _silenced(done: alarms.ChangedSilence) -> str:
    it = done.silence
    return f"{it.alarm}{f' of {it.subject}' if it.subject else ''} is silenced until {time_text(it.until)}."


def _heard(done: alarms.ChangedSilence) -> str:
    it = done.silence
    return f"The silence of {it.alarm}{f' of {it.subject}' if it.subject else ''} has ended."


SHOWN: Final = "was_"  # prefix of hidden fields with the values that a form showed
FORMS: Final = (
    PageForm("/alarms/silences", alarms.silence_alarm, _silenced),
    PageForm("/alarms/silences/{alarm}/end", alarms.unsilence_alarm, _heard),
    PageForm("/alarms/thresholds/{alarm}", alarms.set_threshold, "/alarms#thresholds"),
    PageForm("/alarms/thresholds/{alarm}/reset", alarms.reset_threshold, "/alarms#thresholds"),
    PageForm("/queues", queues.create_queue, "/queues/{id}"),
    PageForm("/queues/{queue}/send", messages.send_message, "/queues/{queue}"),
    PageForm("/queues/{queue}/settings", queues.change_queue, "/queues/{queue}/settings"),
    PageForm("/queues/{queue}/purge", queues.purge_queue, _gone("Purged", ": ")),
    PageForm("/queues/{queue}/delete", queues.delete_queue, _gone("Deleted", " with ")),
    PageForm("/outgoing/{queue}/delete", outgoing.delete_outgoing, _gone("Deleted", " with ")),
    PageForm("/outgoing/{queue}/pause", outgoing.pause_queue, "/outgoing"),
    PageForm("/outgoing/{queue}/resume", outgoing.resume_queue, "/outgoing"),
    PageForm("/handles/{handle}/close", handles.close_handle, "/handles", FormQuestion(
        "Close the queue for {about}? The next call of this client fails; the client can open the queue again.",
        "Close",
    )),
    PageForm("/transactions/{transaction}/resolve", transactions.resolve_transaction, _ended),
    PageForm("/backups", backups.start_backup, "/backups"),
    PageForm("/backups/{backup}/verify", backups.verify_backup, "/backups"),
    PageForm("/users", users.create_user, "/users"),
    PageForm("/password", users.change_own_password, "/login"),
    PageForm("/users/{user}", users.change_user, "/users"),
    PageForm("/users/{user}/remove", users.delete_user, "/users", FormQuestion(
        "Remove the user {about} and revoke the user's tokens? Programs that log in as {about} no longer can.",
        "Remove",
    )),
    PageForm("/groups", users.create_group, "/users"),
    PageForm("/groups/{group}/remove", users.delete_group, "/users", FormQuestion(
        "Remove the group {about}? Its members lose the rights that queues give to the group.", "Remove",
    )),
    PageForm("/jobs/{job}/pause", jobs.pause_job, "/jobs/{job}"),
    PageForm("/jobs/{job}/resume", jobs.resume_job, "/jobs/{job}"),
    PageForm("/jobs/{job}/cancel", jobs.cancel_job, "/jobs/{job}"),
    PageForm("/tokens/{token}/revoke", tokens.revoke_token, "/tokens", FormQuestion(
        "Revoke the token {about}? Scripts that use it can no longer log in.", "Revoke",
    )),
)  # fmt: skip


def inputs(row: Action, form: Mapping[str, str]) -> dict[str, Any]:
    """Convert the fields of a form to `query` and `body` of a request. Raises Problem that names the field."""
    wanted = operation_of(row)
    return {"query": _input(wanted.query, form), "body": None if wanted.body is None else _input(wanted.body, form)}


def _input(wanted: type, form: Mapping[str, str]) -> Any:
    described = inspect.type_info(wanted)
    assert isinstance(described, inspect.StructType)
    values: dict[str, Any] = {}
    for field in described.fields:
        if field.name not in form and not field.required:
            continue
        given, kinds = form.get(field.name, ""), {type(each): each for each in _kinds(field.type)}
        text = kinds.get(inspect.StrType)
        if inspect.BoolType in kinds:
            values[field.name] = given != "false"
        elif inspect.IntType in kinds and (given.strip() or field.required):
            values[field.name] = _number(field.name, given)
        elif inspect.IntType in kinds:  # an empty field means None where None is allowed
            values |= {field.name: None} if inspect.NoneType in kinds else {}
        elif given or field.required or (isinstance(text, inspect.StrType) and not text.min_length):
            values[field.name] = given
    return converted(values, wanted)


def _kinds(described: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types that a field accepts."""
    if isinstance(described, inspect.Metadata):
        yield from _kinds(described.type)
    elif isinstance(described, inspect.UnionType):
        for each in described.types:
            yield from _kinds(each)
    else:
        yield described


def _number(name: str, given: str) -> int:
    """Parse a whole number. Raises Problem that names the field."""
    number = whole(given)
    if number is None:
        raise Problem(422, f"{name.replace('_', ' ')} must be a whole number, not {given[:40] or 'empty'}")
    return number


def converted(values: Mapping[str, Any], wanted: type) -> Any:
    """Convert the values of a form to a struct. Raises Problem that names the field."""
    try:
        return msgspec.convert(values, wanted)
    except msgspec.ValidationError as error:
        raise Problem(422, str(error)) from None


def changed_fields(form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a form without those whose values are the shown ones. Otherwise, a form with many fields
    would undo changes that others made to the other fields since it was shown."""
    return {
        name: value for name, value in form.items()
        if not name.startswith(SHOWN) and not (f"{SHOWN}{name}" in form and is_unchanged(value, form[f"{SHOWN}{name}"]))
    }  # fmt: skip


def is_unchanged(given: str, shown: str, *, multiline: bool = False) -> bool:
    """Whether a browser sends `given` for a field with the value `shown` that the user did not change. Browsers change
    line ends, remove them unless the field is `multiline`, and replace characters that HTML cannot represent."""
    return _normalized(given, multiline) == _normalized(shown, multiline)


def _normalized(text: str, multiline: bool) -> str:
    lines = as_unicode(text).replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")
    return lines if multiline else lines.replace("\n", "")


def whole(text: str) -> int | None:
    """Parse a typed number, which may have commas; None for anything else."""
    text = text.replace(",", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
