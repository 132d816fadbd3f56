"""Relays without I/O: their steps, their state, and the definitions in the store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message
from openmsmq.model.relay_states import RELAY_STATES, RELAY_STEPS
from openmsmq.relaying.records import RelayDefinition, RelayProgress, put_progress, put_relay, relays_of
from openmsmq.relaying.relay import DOUBT, MOST_IN_DOUBT, MOST_REFUSED, Relay
from openmsmq.relaying.relays import MOST, Relays
from openmsmq.relaying.replies import redirect_reply
from openmsmq.relaying.states import DIRECTIONS, STEPS, Direction, following
from openmsmq.store import Drop, Operation, Put

QUEUE = ".\\private$\\orders"


def relay(state: str = "shadow") -> Relay:
    return Relay(RelayDefinition(QUEUE, "old", "private$\\orders", state, 5, 5), RelayProgress())  # type: ignore[arg-type]


def message(number: int, **properties: Any) -> Message:
    return Message(b"x" * 10, identifier=bytes(16) + number.to_bytes(4, "little"), **properties)


class FakeStore:
    """A fake store that keeps definitions."""

    def __init__(self) -> None:
        self.definitions: dict[bytes, bytes] = {}
        self.changed: list[str] = []

    def write(self, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Put):
                self.definitions[operation.name] = operation.value
            elif isinstance(operation, Drop):
                self.definitions.pop(operation.name, None)

    def relays(self) -> Relays:
        made = Relays(self.write, lambda each: self.changed.append(each.definition.state), lambda: 100)  # type: ignore[arg-type]
        made.recover(self.definitions)
        return made


def test_each_state_of_a_relay_has_a_direction_and_a_next_step() -> None:
    assert set(DIRECTIONS) == set(RELAY_STATES)
    assert {state for state, _ in STEPS} == set(RELAY_STATES)
    for state in RELAY_STATES:
        reached = {state}
        for _ in RELAY_STATES:
            reached |= {to for (at, _), to in STEPS.items() if at in reached and to is not None}
        assert any(to is None for (at, _), to in STEPS.items() if at in reached), f"{state} can never be forgotten"


@pytest.mark.parametrize(("state", "step"), list(itertools.product(RELAY_STATES, RELAY_STEPS)))
def test_a_step_that_is_not_in_the_table_names_those_that_are(state: str, step: str) -> None:
    if (state, step) in STEPS:
        assert following(QUEUE, state, step).state == STEPS[state, step]  # type: ignore[arg-type,index]
        return
    with pytest.raises(MsmqError) as refused:
        following(QUEUE, state, step)  # type: ignore[arg-type]
    possible = [known for at, known in STEPS if at == state]
    assert f"is {state}: {step} is not possible; allowed: {', '.join(possible)}" in str(refused.value)


def test_relays_are_as_they_were_after_a_restart() -> None:
    kept = FakeStore()
    relays = kept.relays()
    made = relays.add(QUEUE, "old", "private$\\orders", "shadow")
    progress = made.taking([message(1, delivery_guarantee=1), message(2, delivery_guarantee=1)], 77)
    kept.write([put_progress(QUEUE, progress)])
    relays.step(made, "switch")
    again = kept.relays().get(QUEUE.upper())
    assert again is not None
    assert again.definition == RelayDefinition(QUEUE, "old", "private$\\orders", "switched", 100, 100)
    assert again.progress == RelayProgress(
        2, progress.volume, 77, {message(1).identifier: 77, message(2).identifier: 77}
    )
    assert kept.changed == ["shadow", "switched"]


def test_a_restart_forgets_the_identifiers_of_express_messages_with_the_messages() -> None:
    """The other machine puts them back, and has the only copies."""
    kept = FakeStore()
    made = kept.relays().add(QUEUE, "old", "private$\\orders", "shadow")
    made.progress = made.taking([message(1), message(2, delivery_guarantee=1), message(3)], 77)
    made.removed([message(3).identifier])
    kept.write([put_progress(QUEUE, made.progress)])
    assert (made.is_taken(message(1)), made.progress.express) == (True, frozenset([message(1).identifier]))
    again = kept.relays().get(QUEUE)
    assert again is not None
    assert (again.is_taken(message(1)), again.is_taken(message(2)), again.progress.moved) == (False, True, 3)


def test_a_relay_that_is_forgotten_leaves_nothing() -> None:
    kept = FakeStore()
    relays = kept.relays()
    made = relays.add(QUEUE, "old", "private$\\orders", "sending")
    kept.write([put_progress(QUEUE, made.handing_on([message(1)], 7))])
    relays.step(made, "end")
    assert (kept.definitions, list(relays), made.direction) == ({}, [], Direction.NONE)


def test_a_relay_recognizes_messages_that_a_deleted_one_had_stored() -> None:
    """The deleted one could not remove them at the other machine; see `Relays.release`."""
    kept = FakeStore()
    relays = kept.relays()
    made = relays.add(QUEUE, "old", "private$\\orders", "receiving")
    made.progress = made.taking([message(1, delivery_guarantee=1), message(2, delivery_guarantee=1)], 77)
    relays.step(made, "end")
    made.removed([message(1).identifier])
    relays.release(made)
    for known in (kept.relays(), relays):
        assert list(known) == []
        again = known.add(QUEUE, "old", "private$\\orders", "receiving")
        assert (again.is_taken(message(1)), again.is_taken(message(2)), again.progress.moved) == (False, True, 0)


def test_a_deleted_relay_leaves_nothing_once_its_last_messages_are_removed() -> None:
    kept = FakeStore()
    relays = kept.relays()
    made = relays.add(QUEUE, "old", "private$\\orders", "receiving")
    made.progress = made.taking([message(1, delivery_guarantee=1)], 77)
    relays.step(made, "end")
    assert len(kept.definitions) == 1
    made.removed([message(1).identifier])
    relays.release(made)
    assert kept.definitions == {}
    later = relays.add(QUEUE, "old", "private$\\orders", "receiving")
    relays.release(made)
    assert (later.progress, next(iter(kept.relays())).definition.queue) == (RelayProgress(), QUEUE)


def test_a_relay_of_a_later_version_is_ignored_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    kept = FakeStore()
    kept.write([put_relay(relay().definition._replace(state="levitating"))])  # type: ignore[arg-type]
    assert list(relays_of(kept.definitions)) == []
    assert "levitating" in caplog.text
    assert len(kept.definitions) == 1


def test_a_queue_has_one_relay_and_there_are_not_more_than_the_limit() -> None:
    relays = FakeStore().relays()
    relays.add(QUEUE, "old", "private$\\orders", "shadow")
    with pytest.raises(MsmqError, match="already has a relay"):
        relays.add(QUEUE.upper(), "other", "private$\\orders", "shadow")
    for number in range(MOST - 1):
        relays.add(f"{QUEUE}{number}", "old", "private$\\orders", "shadow")
    with pytest.raises(MsmqError, match=str(MOST)):
        relays.add(f"{QUEUE}x", "old", "private$\\orders", "shadow")


def test_an_invalid_name_creates_no_relay() -> None:
    kept = FakeStore()
    with pytest.raises(MsmqError):
        kept.relays().add(QUEUE, "old", "", "shadow")
    assert kept.definitions == {}


def test_identifiers_are_kept_until_the_other_machine_confirms_and_not_for_ever() -> None:
    known = relay()
    known.progress = known.taking([message(1), message(2)], 1000)
    assert known.is_taken(message(1))
    known.removed([message(1).identifier])
    assert (known.is_taken(message(1)), known.is_taken(message(2))) == (False, True)
    known.progress = known.taking([message(3)], 1000 + DOUBT)
    assert (known.is_taken(message(2)), known.is_taken(message(3))) == (False, True)


def test_the_oldest_identifiers_are_dropped_above_the_limit() -> None:
    known = relay()
    known.progress = known.taking([message(number) for number in range(MOST_IN_DOUBT)], 1000)
    known.progress = known.taking([message(MOST_IN_DOUBT)], 1000)
    assert len(known.progress.taken) == MOST_IN_DOUBT
    assert (known.is_taken(message(0)), known.is_taken(message(1)), known.is_taken(message(MOST_IN_DOUBT))) == (
        False, True, True,
    )  # fmt: skip


def test_why_messages_are_refused_is_kept_for_a_bounded_number_with_its_first_time() -> None:
    known = relay()
    known.refuse(message(0), "no room", 1)
    known.refuse(message(0), "still no room", 2)
    assert known.refused[message(0).id] == ("still no room", 1)
    for number in range(1, MOST_REFUSED + 1):
        known.refuse(message(number), "no room", 3)
    assert len(known.refused) == MOST_REFUSED
    assert message(0).id not in known.refused


def test_a_new_state_begins_without_the_refusals_of_the_one_before() -> None:
    made = relay()
    made.refuse(message(1), "too large", 5)
    made.begin(made.enter("switched", 9))
    assert made.definition.state == "switched" and not made.refused


def test_an_error_and_its_end_are_reported_once() -> None:
    known = relay()
    assert [known.works(), known.fails("away", 5), known.fails("away still", 6)] == [False, True, False]
    assert (known.trouble, known.trouble_since) == ("away still", 5)
    assert [known.works(), known.works()] == [True, False]
    assert (known.trouble, known.trouble_since) == ("", 0)


def test_a_silent_machine_is_unreachable_and_a_refusing_one_is_not() -> None:
    known = relay()
    known.fails("no route", 5, is_away=True)
    known.fails("no route", 6, is_away=True)
    assert known.away_since == 5
    known.fails("access denied", 7)
    assert known.away_since == 0
    known.fails("no route", 8, is_away=True)
    known.works()
    assert known.away_since == 0


def test_the_lag_is_the_age_of_what_was_carried_last_and_grows_while_nothing_moves() -> None:
    known = relay()
    assert known.lag(1000) is None
    known.progress = known.taking([message(1, arrival_time=400)], 1000)
    assert (known.lag(1000), known.lag(1060)) == (600, 660)
    known.found_nothing(1100)
    assert known.lag(1500) == 0
    known.found_something(1500)
    assert (known.lag(1500), known.lag(1510)) == (0, 10), "nothing waited before"
    known.fails("no route", 1520, is_away=True)
    assert known.lag(1530) is None


def test_an_outdated_count_is_not_shown_if_nothing_is_left() -> None:
    known = relay()
    known.waiting = 50
    known.found_nothing(5)
    assert (known.waiting, known.empty_since) == (0, 5)
    known.waiting = 2  # counted since then, and locked by a reader there
    known.found_nothing(9)
    assert (known.waiting, known.empty_since) == (2, 5)


@pytest.mark.parametrize(
    ("state", "waiting", "refused", "unacknowledged", "trouble", "away", "left"),
    [
        ("shadow", 5, 0, 0, "", False, 5),
        ("shadow", 5, 2, 0, "", False, 3),
        ("shadow", 1, 2, 0, "", False, 0),
        ("sending", 0, 0, 4, "", False, 4),
        ("shadow", None, 0, 0, "", False, 0),
        ("shadow", None, 0, 0, "access denied", False, 1),
        ("shadow", None, 0, 0, "no route", True, 0),
        ("done", 5, 0, 0, "", False, 0),
    ],
)
def test_what_is_left_does_not_count_what_is_refused(
    state: str, waiting: int | None, refused: int, unacknowledged: int, trouble: str, away: bool, left: int
) -> None:
    known = relay(state)
    known.waiting, known.unacknowledged = waiting, unacknowledged
    for number in range(refused):
        known.refuse(message(number), "no room", 1)
    if trouble:
        known.fails(trouble, 1, is_away=away)
    assert known.left == left


def test_messages_are_counted_from_the_start_and_those_of_relays_that_are_gone_stay_counted() -> None:
    kept = FakeStore()
    relays = kept.relays()
    made = relays.add(QUEUE, "old", "private$\\orders", "receiving")
    made.progress = made.taking([message(1), message(2)], 7)
    kept.write([put_progress(QUEUE, made.progress)])
    assert relays.moved == 2
    relays.step(made, "end")
    assert relays.moved == 2
    kept.write([put_relay(made.definition._replace(state="receiving")), put_progress(QUEUE, made.progress)])
    assert kept.relays().moved == 0, "after a restart, counts begin with 0"


def test_the_rate_is_that_of_the_last_minute() -> None:
    known = relay()
    assert known.rate == 0
    for second in range(0, 200, 5):
        known.progress = known.progress._replace(moved=0 if second < 100 else 10 * (second - 100))
        known.sample(second)
    assert known.rate == pytest.approx(10, rel=0.1)


def test_after_the_clock_was_set_back_the_rate_is_measured_again() -> None:
    known = relay()
    for second in (7200, 7205, 0, 5):
        known.progress = known.progress._replace(moved=known.progress.moved + 50)
        known.sample(second)
    assert known.rate == 10


@pytest.mark.parametrize(("count", "said"), [(1, "1 message is"), (2, "2 messages are")])
def test_messages_that_are_not_acknowledged_are_left_although_none_waits(count: int, said: str) -> None:
    known = relay("sending")
    known.waiting, known.unacknowledged = 0, count
    assert FakeStore().relays().unfinished(known, "end") == f"{said} still here or in transit"


@pytest.mark.parametrize(
    ("state", "step", "empty", "trouble", "said"),
    [
        ("switched", "done", 0, "", "3 messages are still at the other machine"),
        ("returning", "done", 0, "", "3 messages are still here or in transit"),
        ("switched", "done", 0, "away", "nothing moves: away"),
        ("switched", "done", 9, "", ""),
        ("switched", "back", 0, "", ""),
        ("sending", "end", 0, "", "3 messages are still here or in transit"),
        ("done", "forget", 0, "", ""),
    ],
)
def test_a_step_that_would_end_the_work_too_early_says_what_is_left(
    state: str, step: str, empty: int, trouble: str, said: str
) -> None:
    known = relay(state)
    known.waiting, known.empty_since, known.trouble = 3, empty, trouble
    assert FakeStore().relays().unfinished(known, step) == said


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("DIRECT=OS:OLD\\private$\\Orders", "DIRECT=OS:NEW\\private$\\orders"),
        ("direct=tcp:old\\PRIVATE$\\orders", "DIRECT=OS:NEW\\private$\\orders"),
        ("DIRECT=OS:other\\private$\\orders", None),
        ("DIRECT=OS:old\\private$\\others", None),
        ("DIRECT=OS:old\\private$\\orders;sub", None),
        ("DIRECT=OS:old\\private$\\orders;journal", None),
        ("PRIVATE=01020304-0506-0708-090a-0b0c0d0e0f10\\0000002a", None),
        ("no name", None),
        ("", None),
    ],
)
def test_a_request_gets_the_name_of_the_response_queue_that_has_moved(name: str, becomes: str | None) -> None:
    moved = relay("switched")
    moved.definition = moved.definition._replace(replies=True)
    request = message(1, response_queue_format_name=name)
    assert redirect_reply(request, "old", [relay("switched"), moved], "NEW") == (becomes is not None)
    assert request.response_queue_format_name == (becomes or name)


@pytest.mark.parametrize("state", RELAY_STATES)
def test_response_queues_are_renamed_while_programs_use_the_queue_here(state: str) -> None:
    moved = relay(state)
    moved.definition = moved.definition._replace(replies=True)
    name = "DIRECT=OS:old\\private$\\orders"
    changed = redirect_reply(message(1, response_queue_format_name=name), "old", [moved], "NEW")
    assert changed == (state in ("switched", "done"))
    for signed in ({"signature": b"s"}, {"multiple_destination_signature": b"s"}):
        assert not redirect_reply(message(1, response_queue_format_name=name, **signed), "old", [moved], "NEW")
    assert not redirect_reply(message(1, response_queue_format_name=name), "another", [moved], "NEW")


def test_the_setting_for_replies_is_kept_until_the_direction_is_reversed() -> None:
    kept = FakeStore()
    relays = kept.relays()
    added = relays.add(QUEUE, "old", "private$\\orders", "shadow")
    assert b"replies" not in kept.definitions[next(iter(kept.definitions))]
    with pytest.raises(MsmqError, match="is an option of the step switch, not of back"):
        relays.step(added, "back", replies=True)
    relays.step(added, "switch", replies=True)
    relays.step(added, "done")
    again = kept.relays().get(QUEUE)
    assert again is not None
    assert (again.definition.state, again.definition.replies) == ("done", True)
    relays.step(added, "back")
    assert not added.definition.replies
    relays.step(added, "shadow")
    relays.step(added, "switch")
    assert not added.definition.replies
