"""Which properties of a message a request to send it again changes, and of which queues journals can be moved."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.actions.errors import InputError
from openmsmq.actions.relays import has_journal
from openmsmq.actions.resending import ChangedMessage, _changed
from openmsmq.model.constants import INFINITE, Delivery, Journal
from openmsmq.model.message import Message, encode_body

IDENTIFIER = "{00112233-4455-6677-8899-aabbccddeeff}\\2049"


def sent(**values: Any) -> Message:
    body, kind = encode_body("old")
    return Message(body, body_type=kind, **{"label": "old", "correlation_identifier": b"\1" * 20, **values})


def changed(message: Message, **values: Any) -> Message:
    return _changed(message, ChangedMessage("q", "7", **values))


def test_what_is_not_given_stays() -> None:
    message = sent(journaling_requested=int(Journal.JOURNAL), priority=5)
    made = changed(message)
    for name in ("label", "body", "priority", "correlation_identifier", "journaling_requested", "delivery_guarantee"):
        assert getattr(made, name) == getattr(message, name), name


def test_what_is_given_is_changed() -> None:
    made = changed(
        sent(), text="new", label="", priority=0, recoverable=True, correlation=IDENTIFIER, response_queue="answers",
        administration_queue="", time_to_reach_queue=0, time_to_be_received=60,
    )  # fmt: skip
    assert (made.label, made.priority, made.delivery_guarantee) == ("", 0, Delivery.RECOVERABLE)
    assert made.body == encode_body("new")[0]
    expected = bytes.fromhex("33221100554477668899aabbccddeeff") + (2049).to_bytes(4, "little")
    assert made.correlation_identifier == expected
    assert changed(sent(), correlation="").correlation_identifier == bytes(20)
    assert made.response_queue_format_name.endswith("private$\\answers")
    assert (made.time_to_reach_queue, made.time_to_be_received) == (INFINITE, 60)


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("deadletter", [None, False, True])
@pytest.mark.parametrize("journal", [None, False, True])
def test_each_kind_of_copy_is_changed_alone(before: int, deadletter: bool | None, journal: bool | None) -> None:
    made = changed(sent(journaling_requested=before), deadletter=deadletter, journal=journal)
    wanted = [bool(before & 1) if deadletter is None else deadletter, bool(before & 2) if journal is None else journal]
    assert [bool(made.journaling_requested & bit) for bit in (1, 2)] == wanted


def test_a_correlation_that_is_no_identifier_is_named() -> None:
    with pytest.raises(InputError) as refused:
        changed(sent(), correlation="seven")
    assert refused.value.pointer == "/correlation"


@pytest.mark.parametrize(
    ("name", "has"),
    [("orders", True), (".\\private$\\orders", True), ("orders;journal", False), ("deadletter", False)],
)
def test_application_queues_have_a_journal(name: str, has: bool) -> None:
    assert has_journal(name) is has
