"""One session without a queue manager, on the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from openmsmq.model import names
from openmsmq.model.message import Message
from openmsmq.packet.internal import PingPacket
from openmsmq.peering.one_shot import ACCEPTED, PORT, SAVED, SendProgress, SendReport, deliver, ping, port_is_open
from openmsmq.peering.pinging import answer_to
from peering.conftest import Pair

HOST = "DIRECT=TCP:127.0.0.12\\private$\\"


def name(text: str) -> names.DirectFormatName:
    parsed = names.parse_format_name(text)
    assert isinstance(parsed, names.DirectFormatName)
    return parsed


def delivered(pair: Pair, queue: str, message: Message | None, **options: Any) -> SendReport:
    pair.network.resolver["127.0.0.12"] = "127.0.0.12"
    found: list[SendReport] = []

    async def story() -> None:
        found.append(await deliver(name(HOST + queue), message, **options))

    pair.run(story)
    return found[0]


@pytest.mark.parametrize(("queue", "transactional", "fate"), [("plain", False, SAVED), ("tx", True, ACCEPTED)])
def test_a_message_is_sent_and_its_outcome_reported(pair: Pair, queue: str, transactional: bool, fate: str) -> None:
    report = delivered(pair, queue, Message(label="m", body=bytes(200_000)), transactional=transactional)
    assert (report.step, report.failure, report.fate) == (SendProgress.DONE, "", fate)
    assert report.peer == pair.beta.machine.identifier and report.identifier and report.address == "127.0.0.12"
    assert pair.beta.labels(queue) == ["m"]


def test_a_session_alone_can_be_tried(pair: Pair) -> None:
    report = delivered(pair, "plain", None)
    assert (report.step, report.failure, report.peer) == (SendProgress.DONE, "", pair.beta.machine.identifier)
    assert pair.beta.labels("plain") == []


def test_a_refusal_of_the_queue_is_the_failure(pair: Pair) -> None:
    report = delivered(pair, "plain", Message(label="m"), transactional=True)
    assert report.step is not SendProgress.DONE and pair.beta.labels("plain") == []
    assert report.failure.startswith("the queue did not take the message: NACK_")


def test_an_unreachable_or_silent_host_is_named(pair: Pair) -> None:
    unknown: list[SendReport] = []

    async def nobody() -> None:
        unknown.append(await deliver(name("DIRECT=OS:nobody\\private$\\q"), None))

    pair.run(nobody)
    assert unknown[0].step is SendProgress.RESOLVE and "nobody" in unknown[0].failure
    pair.network.partition = frozenset(["127.0.0.12"])
    report = delivered(pair, "plain", None, timeout=5)
    assert report.step is SendProgress.CONNECT and "within 5 s" in report.failure
    pair.network.partition = frozenset()
    pair.beta.crash()
    assert "refused" in delivered(pair, "plain", None).failure


def test_a_session_that_breaks_before_the_acknowledgment_is_reported(pair: Pair) -> None:
    found: list[SendReport] = []

    async def story() -> None:
        pair.network.resolver["127.0.0.12"] = "127.0.0.12"
        handing = asyncio.ensure_future(deliver(name(HOST + "plain"), Message(label="m", body=bytes(100_000))))
        while not pair.network.sockets:
            await asyncio.sleep(0.001)
        pair.beta.crash()
        found.append(await handing)

    pair.run(story)
    assert "broke" in found[0].failure and found[0].fate == ""


def test_a_peer_that_accepts_a_connection_and_says_nothing_is_given_up_by_the_session(pair: Pair) -> None:
    """At any clock value: the machine may have been up for a long time."""
    pair.beta.crash()
    pair.network.listen(asyncio.Protocol, "127.0.0.12", PORT)
    pair.network.loop.passed += 1e6
    began = pair.network.loop.time()
    report = delivered(pair, "plain", None, timeout=1e6)
    assert report.step is SendProgress.ESTABLISH and "the session ended" in report.failure
    assert 10 < pair.network.loop.time() - began < 500


def answered(pair: Pair, work: Callable[[], Coroutine[Any, Any, str]]) -> str:
    found: list[str] = []

    async def story() -> None:
        found.append(await work())

    pair.run(story)
    return found[0]


def test_a_ping_reports_what_the_other_side_replies(pair: Pair) -> None:
    asked: list[PingPacket] = []

    def reply(data: bytes, source: str) -> list[bytes]:
        asked.append(PingPacket.parse(data))
        answer = answer_to(data, pair.beta.machine.identifier, accepts=len(asked) == 1)
        assert answer is not None
        return [answer]

    pair.network.answering["127.0.0.12"] = reply
    assert answered(pair, lambda: ping("127.0.0.12")) == "accepted"
    assert answered(pair, lambda: ping("127.0.0.12")) == "refused"
    first, second = asked
    assert len(first.queue_manager) == 16 and first.queue_manager != second.queue_manager and any(first.queue_manager)


def test_a_name_that_no_host_can_have_is_a_result() -> None:
    said = "no host can have this name"
    assert asyncio.run(ping("a..b")) == asyncio.run(port_is_open("a..b", PORT, 5)) == said
    assert said in asyncio.run(deliver(name("DIRECT=OS:a..b\\private$\\q"), None)).failure


def test_a_ping_without_reply_ends_in_time(pair: Pair) -> None:
    began = pair.network.loop.time()
    assert answered(pair, lambda: ping("127.0.0.12", timeout=2.5)) == "no answer"
    assert 2.5 <= pair.network.loop.time() - began < 3


def test_an_open_port_is_told_from_a_closed_and_a_silent_one(pair: Pair) -> None:
    assert answered(pair, lambda: port_is_open("127.0.0.12", PORT, 5)) == "open"
    pair.network.partition = frozenset(["127.0.0.12"])
    silent = answered(pair, lambda: port_is_open("127.0.0.12", PORT, 5))
    assert silent == "no answer within 5 s: a firewall drops what is sent there, or the machine is off"
    pair.network.partition = frozenset()
    pair.beta.crash()
    assert "refused" in answered(pair, lambda: port_is_open("127.0.0.12", PORT, 5))
