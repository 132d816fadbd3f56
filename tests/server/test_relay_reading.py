"""The end of a relay while messages are between both machines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msrpc.errors import BindError
from openmsmq.client.calls import ProtocolUnavailable
from openmsmq.client.open_queue import TakenMessage
from openmsmq.model.errors import RpcConnectionError
from openmsmq.model.message import Message
from openmsmq.relaying.records import RelayDefinition, RelayProgress
from openmsmq.relaying.relay import Relay
from openmsmq.server.relay_reading import RelayReader, RelaySource, _open
from queueing.world import World

QUEUE = ".\\private$\\q"


class OtherMachine:
    """The queue at the other machine and the connection to it: has one message and notes how it ends.

    Attributes:
        ended: for each end of a message, whether it was removed.
        is_reachable: whether it can be told to remove messages.
    """

    def __init__(self) -> None:
        self.ended: list[bool] = []
        self.is_reachable = True
        self._message = Message(b"x", identifier=b"i" * 20, delivery_guarantee=1)

    async def run(self, result: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    def take(self, timeout: int) -> TakenMessage:
        return TakenMessage(self._message, 1)

    def end(self, request: int, remove: bool) -> Exception | None:
        if not self.is_reachable:
            return RpcConnectionError("lost")
        self.ended.append(remove)
        return None


class Reading:
    """A reader whose messages become durable only when the test says so."""

    def __init__(self) -> None:
        self.world, self.other = World(), OtherMachine()
        self.world.create("q")
        self.relay = Relay(RelayDefinition(QUEUE, "old", "private$\\q", "shadow", 5, 5), RelayProgress())
        self.stored, self.synced = asyncio.Event(), asyncio.Event()
        self.reader = RelayReader(
            self.relay, lambda: self.world.queue("q"), self.world.manager, self._durable, RelaySource("old", 1, {}),
            lambda: 100,
        )  # fmt: skip
        self.round = asyncio.create_task(self.reader._round(self.other, self.other))  # type: ignore[arg-type]

    async def _durable(self) -> None:
        self.stored.set()
        await self.synced.wait()

    async def cancel(self) -> None:
        self.round.cancel()
        await asyncio.sleep(0)
        self.synced.set()
        await asyncio.wait({self.round})
        assert self.round.cancelled()


def test_a_relay_that_ends_removes_stored_messages_at_the_other_machine() -> None:
    async def ended() -> tuple[list[bool], int]:
        reading = Reading()
        await reading.stored.wait()
        await reading.cancel()
        assert len(reading.world.queue("q")) > 0
        return reading.other.ended, len(reading.relay.progress.taken)

    removed, in_doubt = asyncio.run(ended())
    assert (set(removed), in_doubt) == ({True}, 0)


def test_a_relay_that_ends_without_the_other_machine_keeps_the_identifiers() -> None:
    async def ended() -> set[bytes]:
        reading = Reading()
        await reading.stored.wait()
        reading.other.is_reachable = False
        await reading.cancel()
        return set(reading.relay.progress.taken)

    assert asyncio.run(ended()) == {b"i" * 20}


def test_a_relay_that_has_ended_stores_nothing_and_puts_messages_back() -> None:
    async def ended() -> tuple[list[bool], int]:
        reading = Reading()
        reading.relay.definition = reading.relay.definition._replace(state="done")
        await reading.round
        return reading.other.ended, len(reading.world.queue("q"))

    removed, stored = asyncio.run(ended())
    assert (set(removed), stored) == ({False}, 0)


class OlderMachine:
    """Answers to the calls that open a queue; those of MS-MQRR are not offered."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    async def run(self, steps: Any) -> Any:
        steps.close()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    "answers",
    [(None, "opened"), (BindError("not offered"), "opened"), (ProtocolUnavailable(detail="not offered"), "opened"),
     (None, ProtocolUnavailable(detail="not offered"), "opened")],
)  # fmt: skip
def test_a_queue_of_a_machine_without_ms_mqrr_is_opened_through_ms_mqqp(answers: tuple[Any, ...]) -> None:
    machine: Any = OlderMachine(*answers)
    assert asyncio.run(_open(machine, "DIRECT=OS:old\\private$\\q", bytes(16))) == "opened"  # type: ignore[comparison-overlap]
