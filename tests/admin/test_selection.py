"""Selection of messages."""

from __future__ import annotations

import pytest

from openmsmq.admin.dead_letters import groups
from openmsmq.admin.selection import (
    Chosen,
    Criteria,
    Selection,
    SelectionToken,
    parse_token,
)
from openmsmq.model.amounts import parse_age, parse_size
from openmsmq.model.message import Message

MESSAGE = Message.of(
    "The quick brown fox",
    label="Animals/[fox]",
    message_class=0xC002,
    destination_queue_format_name="DIRECT=OS:.\\private$\\Orders",
    correlation_identifier=bytes(16) + b"\x07\0\0\0",
    arrival_time=1000,
)


@pytest.mark.parametrize(
    ("criteria", "meant"),
    [
        (Criteria(), True),
        (Criteria(ids=frozenset([MESSAGE.id])), True),
        (Criteria(ids=frozenset(["{x}\\1"])), False),
        (Criteria(label="animals"), True),
        (Criteria(label="animals/[fox]"), True),
        (Criteria(label="animals/[*"), True),
        (Criteria(label="fox*"), False),
        (Criteria(label="?nimals*"), True),
        (Criteria(correlation="{00000000-0000-0000-0000-000000000000}\\7"), True),
        (Criteria(correlation="{00000000-0000-0000-0000-000000000000}\\8"), False),
        (Criteria(classes=frozenset([0xC002])), True),
        (Criteria(classes=frozenset([0x8000])), False),
        (Criteria(destination="$\\orders"), True),
        (Criteria(destination="$\\ord"), True),
        (Criteria(destination="DIRECT=OS:.\\"), True),
        (Criteria(destination="direct=os:.\\private$\\ORDERS"), True),
        (Criteria(destination="DIRECT=OS:.\\private$\\ord"), False),
        (Criteria(older=100), True),
        (Criteria(older=101), False),
        (Criteria(newer=100), True),
        (Criteria(newer=99), False),
        (Criteria(larger=38, smaller=38), True),
        (Criteria(larger=39), False),
        (Criteria(smaller=37), False),
        (Criteria(text="QUICK"), True),
        (Criteria(text="slow"), False),
        (Criteria(label="animals", text="slow"), False),
    ],
)
def test_all_criteria_must_match(criteria: Criteria, meant: bool) -> None:
    assert criteria.matches(MESSAGE, now=1100.0) is meant


def test_times_and_sizes_have_units() -> None:
    assert [parse_age(text) for text in ("90", "10m", "2h", "1.5d")] == [90, 600, 7200, 129600]
    assert [parse_size(text) for text in ("4096", "64k", "2M")] == [4096, 65536, 2097152]
    for parse, text in ((parse_age, "soon"), (parse_age, "5y"), (parse_size, "-1"), (parse_size, "3d")):
        with pytest.raises(ValueError, match="such as"):
            parse(text)


def test_a_token_encodes_the_position_and_the_selected_messages() -> None:
    chosen = [Chosen("{x}\\1", "q", number, 0, 0, "", "", 0, "") for number in (0x1F1, 0x1F2, 0x1F3)]
    token = Selection(chosen, scanned=9, bound=0x1F3).token
    digest = Selection(chosen[::-1]).digest
    assert token == f"1f3-3-{digest}" and parse_token(token) == SelectionToken(0x1F3, 3, digest)
    assert Selection(chosen[:2]).digest != digest != Selection([chosen[0]._replace(queue="r"), *chosen[1:]]).digest
    assert Selection(chosen, scanned=9).token == "", "a protocol without sequence numbers has no token"
    with pytest.raises(ValueError, match="dry run"):
        parse_token("all")


def test_dead_letters_for_a_queue_in_other_letters_are_one_group() -> None:
    letters = [
        Chosen("", "deadletter", 1, 1, 0xC002, "", f"DIRECT=OS:.\\private$\\{name}", 1, "")
        for name in ("orders", "Orders", "orders2")
    ]
    assert [(group.destination, group.messages) for group in groups(letters)] == [
        ("DIRECT=OS:.\\private$\\orders", 2),
        ("DIRECT=OS:.\\private$\\orders2", 1),
    ]
