"""Remedies as data: their commands and pages exist."""

from __future__ import annotations

import shlex

import click
import pytest

from openmsmq.admin.alarms import CONDITIONS
from openmsmq.cli.root import cli
from openmsmq.model.reasons import REASONS
from openmsmq.model.remedies import STEPS, RemedyStep, for_terminal

USED = [step for condition in CONDITIONS for step in condition.steps] + [s for r in REASONS for s in r.steps]


@pytest.mark.parametrize("step", USED, ids=lambda step: step.action)
def test_the_command_of_a_step_exists(step: RemedyStep) -> None:
    words = shlex.split(step.about("mq1\\private$\\a b").command)[1:]
    command: click.Command = cli
    context = click.Context(command)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, step.command
        command = found
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_every_form_is_used_and_every_step_has_one() -> None:
    assert {step.action for step in USED} == set(STEPS)


def test_a_queue_is_a_name_in_a_command_and_an_identifier_in_a_page() -> None:
    step = RemedyStep("queue.quota").about("DIRECT=OS:.\\private$\\orders")
    assert step.command == "openmsmq queue set orders quota=KILOBYTES"
    assert step.page("7/8") == "/queues/7%2F8/settings" and step.page(None) == ""
    assert RemedyStep("outgoing.list").about("x").arguments == {}


def test_arguments_without_a_position_are_options() -> None:
    step = RemedyStep("deadletters.return", {"reason": "expired-unread", "transaction": ""})
    assert for_terminal("Return it.", (step,)) == (
        "Return it. openmsmq dlq return --reason expired-unread --transaction"
    )
    assert for_terminal("Wait.", ()) == "Wait."
