"""Conversion of page forms to action inputs."""

from __future__ import annotations

import re

import pytest

from openmsmq.actions.queues import create_queue, purge_queue
from openmsmq.actions.tokens import create_token
from openmsmq.actions.users import change_user
from openmsmq.console.forms import FORMS, PageForm, changed_fields, inputs
from openmsmq.console.problems import Problem


def test_a_box_that_is_not_ticked_is_false_and_a_field_that_is_empty_is_not_given() -> None:
    body = inputs(create_queue, {"name": "orders", "label": "", "transactional": "true"})["body"]
    assert (body.name, body.label, body.transactional, body.journal) == ("orders", "", True, False)
    change = inputs(change_user, {"role": "monitor", "password": ""})["body"]
    assert change == type(change)(role="monitor")


def test_only_fields_with_changed_values_are_changes() -> None:
    shown = {"was_label": "a\r\nb", "was_quota": "100", "was_journal": "true"}
    assert changed_fields({"label": "ab", "quota": "100", "journal": "false", **shown}) == {"journal": "false"}
    assert changed_fields({"label": "", "quota": "", **shown}) == {"label": "", "quota": ""}
    assert changed_fields({"label": "a"}) == {"label": "a"}, "without a shown value, each value counts"


def test_numbers_may_have_thousands() -> None:
    assert inputs(purge_queue, {"count": "1,234"})["query"].count == 1234
    assert inputs(create_token, {"name": "x", "days": "7"})["body"].days == 7


@pytest.mark.parametrize("count", ["", "x", "1.5", "-1", "9" * 30])
def test_text_that_is_not_a_number_is_refused(count: str) -> None:
    with pytest.raises(Problem, match="count"):
        inputs(purge_queue, {"count": count})


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.path))
def test_a_form_leads_to_a_page_that_its_path_and_its_answer_can_name(form: PageForm) -> None:
    steps = set(re.findall(r"\{(\w+)\}", form.path))
    assert steps == set(form.row.in_path)
    if isinstance(form.after, str):
        assert set(re.findall(r"\{(\w+)\}", form.after)) <= steps | {"id"}
    if form.question is not None:  # its page leads back to `after`
        assert isinstance(form.after, str) and "{" not in form.after and "{about}" in form.question.text
