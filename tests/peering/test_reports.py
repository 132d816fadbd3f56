"""Reports of traced messages: contents, senders and destinations."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.conversion.packets import user_message_of
from openmsmq.model import names
from openmsmq.model.constants import Delivery, MessageClass, PropId
from openmsmq.model.errors import QueueNotFound
from openmsmq.model.message import Message
from openmsmq.packet import UserMessage
from openmsmq.packet.headers import DebugHeader
from openmsmq.peering import reports
from openmsmq.peering.arrival import ArrivalOrigin
from openmsmq.peering.durable import Route
from openmsmq.peering.reports import MOST_ASKED, MOST_WAITING, REPORTS_PER_SECOND, label, received_body, sent_body
from openmsmq.peering.sender import MessageSender
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.records import route_definition
from peering.conftest import Pair
from peering.network import Node
from peering.test_outcomes import PLAIN, TX, message, messages, settled
from peering.test_routes import GUIDS, FourMachines

REPORTS = UUID("11111111-2222-3333-4444-555555555555")
NAME = names.PublicFormatName(REPORTS)
SOURCE = UUID("c626ea11-e6b6-9749-9595-9150557358d1")


def packet(**values: object) -> UserMessage:
    traced = Message(
        identifier=SOURCE.bytes_le + (0x8EE).to_bytes(4, "little"), source_machine_identifier=SOURCE.bytes_le,
        destination_queue_format_name="DIRECT=OS:host\\private$\\q", tracing_requested=1,
    )  # fmt: skip
    made = user_message_of(replace(traced, **values))  # type: ignore[arg-type]
    made.debug = DebugHeader(REPORTS.bytes_le)
    return made


@pytest.mark.parametrize(
    ("seconds", "time"),
    [
        (1_700_000_000, "10:13:20 PM Tue,Nov 14 23"),
        (1_700_006_399, "11:59:59 PM Tue,Nov 14 23"),
        (1_700_006_400, "12:00:00 AM Wed,Nov 15 23"),
        (1_700_049_600, "12:00:00 PM Wed,Nov 15 23"),
        (4_102_444_800 - 1, "11:59:59 PM Thu,Dec 31 99"),
    ],
)
def test_the_label_follows_the_grammar(seconds: int, time: str) -> None:
    """3.1.5.8.9: hour SP AM/PM SP day "," month SP day SP year of two digits."""
    said = label(packet(), 3, seconds)
    assert said == f"C626:000008EE:03 received by C626EA11-E6B6-9749-9595-9150557358D1 at {time}"


def test_the_bodies_follow_the_grammars() -> None:
    sent = packet()
    sent.user.routing_count = 0x1A
    received = "<MESSAGE ID>000008EE</MESSAGE ID>\r\n<TARGET QUEUE>DIRECT=OS:host\\private$\\q</TARGET QUEUE>\r\n"
    assert received_body(sent) == received
    assert sent_body(sent, "192.0.2.7") == (
        received + "<NEXT HOP>192.0.2.7</NEXT HOP>\r\n<HOP COUNT>1A </HOP COUNT>\r\n"
    )


@pytest.mark.parametrize("kind", [kind for kind in MessageClass if kind is not MessageClass.NORMAL])
def test_there_are_no_reports_of_reports_and_acknowledgments(kind: MessageClass) -> None:
    assert reports.report_queue_of(packet()) == NAME
    assert reports.report_queue_of(packet(message_class=int(kind))) is None


def test_untraced_messages_and_those_without_report_queue_are_not_reported() -> None:
    assert reports.report_queue_of(packet(tracing_requested=0)) is None
    nameless = packet()
    nameless.debug = DebugHeader()
    assert reports.report_queue_of(nameless) is None


# -- on the network ------------------------------------------------------------------------------------------------


def make_queue(node: Node, **values: int) -> Queue:
    """The report queue as a public queue of a node."""
    path = names.parse_path_name(f"{node.name}\\reports")
    given = {PropId[f"PROPID_Q_{name}"]: value for name, value in values.items()}
    properties = node.manager.administration.public_properties(path, given, None, SYSTEM)
    node.manager.administration.keep_public(properties._replace(instance=REPORTS.bytes_le))
    return node.manager.registry.public[REPORTS]


def tell(node: Node, where: Node) -> None:
    node.manager.registry.remember_place(REPORTS, QueueLocation(f"{where.name}\\reports", 0, where.machine.identifier))


async def switch_on(*nodes: Node, **options: object) -> None:
    for node in nodes:
        node.options = {"report_messages": True, "report_queue": REPORTS.bytes_le, **options}
        node.crash()
        await node.start()


def said(queue: Queue) -> list[tuple[str, str]]:
    return [(m.label, m.body.decode("utf-16-le")) for m in messages(queue)]


def test_sender_and_receiver_report_a_traced_message_and_no_other(pair: Pair) -> None:
    async def story() -> None:
        await switch_on(pair.alpha, pair.beta)
        queue = make_queue(pair.alpha)
        await pair.beta.committer.drain()
        # ALPHA has no session with a directory: BETA knows where the queue is, and how to reach ALPHA by its session.
        tell(pair.beta, pair.alpha)
        await pair.alpha.send(PLAIN, [message("traced", tracing_requested=1), message("not traced")])
        await settled()
        assert pair.beta.labels("plain") == ["traced", "not traced"]
        arrived = pair.beta.manager.registry.by_name["plain"]
        number = int.from_bytes(arrived.message(next(iter(arrived.available))).identifier[16:], "little")
        identifier = str(UUID(bytes_le=pair.alpha.machine.identifier)).upper()
        labels, bodies = zip(*said(queue), strict=True)
        assert [text.partition(" at ")[0] for text in labels] == [
            f"{identifier[:4]}:{number:08X}:00 received by {identifier}"
        ] * 2
        received = f"<MESSAGE ID>{number:08X}</MESSAGE ID>\r\n<TARGET QUEUE>{PLAIN}</TARGET QUEUE>\r\n"
        assert bodies == (
            f"{received}<NEXT HOP>127.0.0.12</NEXT HOP>\r\n<HOP COUNT>00 </HOP COUNT>\r\n", received,
        )  # fmt: skip
        kinds = {(m.message_class, m.delivery_guarantee, m.tracing_requested) for m in messages(queue)}
        assert kinds == {(MessageClass.REPORT, Delivery.EXPRESS, 0)}
        assert queue.message(next(iter(queue.available))).destination_queue_format_name == str(NAME)

    pair.run(story)


def test_a_report_is_sent_once_even_if_its_message_is_resent(pair: Pair) -> None:
    async def story() -> None:
        await switch_on(pair.beta)
        queue = make_queue(pair.beta)
        await switch_on(pair.alpha, report_messages=False)
        again = message("again", tracing_requested=1)
        await pair.alpha.send(PLAIN, [again])
        await settled()
        sent = pair.alpha.service._sender._packet(pair.alpha.manager.registry.outgoing[PLAIN.lower()], again)
        arrival = pair.beta.service._arrival
        origin = ArrivalOrigin(pair.alpha.machine.identifier, pair.alpha.address)
        verdict = arrival.receive(sent, origin, arrival.begin(origin))
        assert verdict.fate.name == "DUPLICATE" and len(said(queue)) == 1
        await pair.alpha.send(TX, [message("refused", tracing_requested=1)])
        await settled()
        assert len(said(queue)) == 1, "a message that is refused is not reported"

    pair.run(story)


def test_nothing_is_reported_unless_it_is_switched_on(pair: Pair) -> None:
    async def story() -> None:
        await switch_on(pair.alpha, pair.beta, report_messages=False)
        queue = make_queue(pair.beta)
        tell(pair.alpha, pair.beta)
        await pair.alpha.send(PLAIN, [message("traced", tracing_requested=1)])
        await settled()
        assert pair.beta.labels("plain") == ["traced"] and not said(queue)

    pair.run(story)


def test_a_transactional_queue_takes_no_reports(pair: Pair) -> None:
    async def story() -> None:
        await switch_on(pair.beta)
        queue = make_queue(pair.beta, TRANSACTION=1)
        await switch_on(pair.alpha, report_messages=False)
        await pair.alpha.send(PLAIN, [message("traced", tracing_requested=1)])
        await settled()
        assert pair.beta.labels("plain") == ["traced"] and not said(queue)

    pair.run(story)


class SlowDirectory:
    """A directory that answers after a second, or never."""

    def __init__(self, node: Node, where: Node, *, knows: bool) -> None:
        self.node, self.where, self.knows = node, where, knows
        self.questions: list[names.PublicFormatName] = []

    async def __call__(self, name: names.PublicFormatName) -> None:
        self.questions.append(name)
        await asyncio.sleep(1)
        if not self.knows:
            raise QueueNotFound(detail=str(name))
        tell(self.node, self.where)


@pytest.mark.parametrize("knows", [True, False])
def test_an_unknown_queue_is_looked_up_once(pair: Pair, knows: bool) -> None:
    async def story() -> None:
        asked = SlowDirectory(pair.beta, pair.alpha, knows=knows)
        await switch_on(pair.alpha, report_messages=False)
        queue = make_queue(pair.alpha)
        await switch_on(pair.beta, locate=asked)
        await pair.alpha.send(PLAIN, [message(str(n), tracing_requested=1) for n in range(5)])
        await settled()
        assert pair.beta.labels("plain") == ["0", "1", "2", "3", "4"]
        assert asked.questions == [NAME]
        assert len(said(queue)) == (5 if knows else 0)
        await asyncio.sleep(61)
        await pair.alpha.send(PLAIN, [message("later", tracing_requested=1)])
        await settled()
        assert len(asked.questions) == (1 if knows else 2), "after a minute it is asked again"

    pair.run(story)


def test_lookups_and_reports_caused_by_unknown_peers_are_bounded(pair: Pair) -> None:
    async def story() -> None:
        asked = SlowDirectory(pair.beta, pair.alpha, knows=False)
        await switch_on(pair.beta, locate=asked)
        told = pair.beta.service._reports
        assert told is not None
        for number in range(MOST_ASKED + 10):
            named = packet()
            named.debug = DebugHeader(UUID(int=number + 1).bytes_le)
            told.received(named)
        await asyncio.sleep(0.5)
        assert len(asked.questions) == MOST_ASKED
        await asyncio.sleep(2)
        queue = make_queue(pair.beta)
        for _ in range(REPORTS_PER_SECOND + 50):
            told.received(packet())
        assert len(queue) == REPORTS_PER_SECOND
        await asyncio.sleep(1.1)
        told.received(packet())
        assert len(queue) == REPORTS_PER_SECOND + 1

    pair.run(story)


def test_the_number_of_reports_waiting_for_a_lookup_is_bounded(pair: Pair) -> None:
    async def story() -> None:
        asked = SlowDirectory(pair.beta, pair.beta, knows=True)
        await switch_on(pair.beta, locate=asked)
        told = pair.beta.service._reports
        assert told is not None
        for _ in range(MOST_WAITING + 50):
            told.received(packet())
        await asyncio.sleep(0.5)
        queue = make_queue(pair.beta)  # the reply: the queue is here
        await asyncio.sleep(1)
        assert len(queue) == MOST_WAITING

    pair.run(story)


@pytest.mark.parametrize("transactional", [False, True])
def test_each_hop_reports_what_it_receives_and_passes_on(transactional: bool) -> None:
    line = FourMachines()

    async def story() -> None:
        await line.start()
        await switch_on(*line.nodes.values())
        queues = {name: make_queue(node) for name, node in line.nodes.items()}
        name = line.name("tx" if transactional else "plain")
        alpha = line.nodes["ALPHA"]
        await alpha.send(name, [message("traced", tracing_requested=1)], transactional=transactional)
        await settled(60)
        assert line.nodes["OMEGA"].labels("tx" if transactional else "plain") == ["traced"]
        found = {
            node: [(text[14:16], "".join(re.findall("<NEXT HOP>(.*)</NEXT", body))) for text, body in said(queue)]
            for node, queue in queues.items()
        }
        assert found == {
            "ALPHA": [("00", "127.0.0.21")],
            "ROUTER": [("01", ""), ("01", "127.0.0.22")],
            "GATE": [("02", ""), ("02", "127.0.0.23")],
            "OMEGA": [("02", "")],
        }
        everything = [report for queue in queues.values() for report in said(queue)]
        assert {"".join(re.findall("QUEUE>(.*)</TARGET", body)) for _, body in everything} == {name}
        assert {text[:4] for text, _ in everything} == {str(UUID(bytes_le=GUIDS["ALPHA"])).upper()[:4]}

    line.run(story)


@pytest.mark.sources
def test_a_traced_message_that_names_no_report_queue_is_passed_on_without_one() -> None:
    sender: Any = MessageSender.__new__(MessageSender)
    definitions: dict[bytes, bytes] = {}
    sender._manager = SimpleNamespace(store=SimpleNamespace(definitions=definitions))
    traced = Message(destination_queue_format_name="DIRECT=OS:host\\private$\\q", tracing_requested=1,
                     lookup_identifier=5)  # fmt: skip
    for queue, found in ((b"", None), (REPORTS.bytes_le, REPORTS.bytes_le)):
        definitions[route_definition(5)] = Route(2, False, 0, 0, 0, 0, queue).pack()
        packet = sender._passed_on(traced)
        assert (packet.debug.queue, packet.user.routing_count) == (found, 2)
