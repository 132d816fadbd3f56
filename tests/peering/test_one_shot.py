"""One session without a queue manager, on the simulated network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openmsmq.model import names
from openmsmq.model.message import Message
from openmsmq.peering.one_shot import ACCEPTED, PORT, SAVED, SendProgress, SendReport, deliver
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
