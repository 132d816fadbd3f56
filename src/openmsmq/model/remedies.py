"""Remedies as data: steps that consist of an action and its arguments. A terminal shows a step as a command, the
console as a link.

`STEPS` has both forms. `{queue}` stands for a queue: in a command for its name, in the path of a page for its
identifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Final, NamedTuple
from urllib.parse import quote as quoted

from openmsmq.model.rights import short_name


class StepForms(NamedTuple):
    """`words` is the text of a link or button, `command` the command for a terminal, `page` the path of the console
    page."""

    words: str
    command: str
    page: str


STEPS: Final[Mapping[str, StepForms]] = {
    "queue.show": StepForms("Open the queue", "openmsmq queue show {queue}", "/queues/{queue}"),
    "queue.readers": StepForms("See its readers", "openmsmq handle list {queue}", "/queues/{queue}/readers"),
    "queue.quota": StepForms(
        "Raise the quota", "openmsmq queue set {queue} quota=KILOBYTES", "/queues/{queue}/settings"
    ),
    "queues.list": StepForms("Find the largest queues", "openmsmq top", "/queues"),
    "deadletters.groups": StepForms("See why", "openmsmq dlq list", "/deadletters"),
    "deadletters.return": StepForms("Return them", "openmsmq dlq return", "/deadletters"),
    "outgoing.show": StepForms("See why", "openmsmq outgoing show {queue}", "/outgoing"),
    "outgoing.list": StepForms("See why it waited", "openmsmq outgoing list", "/outgoing"),
    "transaction.list": StepForms("See which and why", "openmsmq transaction list", "/transactions"),
    "relay.list": StepForms("See the moves", "openmsmq adopt status", "/moves"),
    "relay.show": StepForms("See why", "openmsmq adopt status {queue}", "/moves"),
    "peer.test": StepForms("Test the way there", "openmsmq connect-test {queue}", ""),
    "audit.list": StepForms("See who", "openmsmq audit", "/audit"),
    "setting.show": StepForms("See the limit", "openmsmq settings {name}", "/settings"),
    "message.resend": StepForms("Edit and send again", "openmsmq dlq resend --reason rejected --edit", "/deadletters"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemedyStep:
    """A step: the name of an action in `STEPS`, and its arguments."""

    action: str
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return STEPS[self.action].words

    def about(self, queue: str) -> RemedyStep:
        """Return the step with a queue filled in, if it refers to one."""
        return RemedyStep(self.action, {**self.arguments, "queue": queue}) if "{queue}" in self._template else self

    @property
    def command(self) -> str:
        """The command of the step; words in capitals are placeholders for the user. Arguments that are not in the form
        of the step become options, or flags if they have no value."""
        given = {name: quote(short_name(value)) if value else "" for name, value in self.arguments.items()}
        options = [f"--{name} {value}".strip() for name, value in given.items() if f"{{{name}}}" not in self._template]
        return " ".join([self._template.format(**given), *options])

    def page(self, queue: str | None) -> str:
        """Return the path of the console page of the step for a queue identifier; empty if the queue has no page."""
        page = STEPS[self.action].page
        if "{queue}" in page and queue is None:
            return ""
        return page.format(queue=quoted(queue or "", safe=""))

    @property
    def _template(self) -> str:
        return STEPS[self.action].command


def for_terminal(text: str, steps: tuple[RemedyStep, ...]) -> str:
    """Return a remedy as one line: its text, then the commands."""
    commands = "; ".join(step.command for step in steps)
    return f"{text} {commands}" if commands else text
