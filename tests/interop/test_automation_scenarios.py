"""The scenarios of [MC-MQAC] section 4, each by impacket's client and by ours, with two
limits: multicast is not supported (4.6), and no messages arrive from other machines here (4.2)."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from daemon import Daemon
from interop.automation_scripts import Impacket, OwnClient
from openmsmq.com import WithEvents
from openmsmq.interfaces import mc_mqac as m

RECEIVE, SEND = 1, 2
OUTGOING = "DIRECT=OS:elsewhere\\private$\\q"
PATIENCE = 20.0  # maximum seconds until an event
numbers = count()


@pytest.fixture(scope="module")
def administered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data", "--anonymous-is-administrator") as running:
        yield running
    assert "Traceback" not in running.log, running.log


@pytest.fixture(params=[Impacket, OwnClient])
def com(administered: Daemon, request: pytest.FixtureRequest) -> Iterator[Any]:
    script = request.param(administered)
    yield script
    script.close()


def queue_info(com: Any, *transactional: bool) -> tuple[Any, str]:
    """Create a queue and return it with its path name."""
    path = f".\\private$\\scenario{next(numbers)}"
    info = com.new("QueueInfo")
    com.put(info, "PathName", path)
    com.call(info, "Create", *transactional)
    return info, path


def written(com: Any, body: str) -> Any:
    message = com.new("Message")
    com.put(message, "Label", "scenario")
    com.put(message, "Body", body)
    return message


def bodies(com: Any, info: Any) -> list[str]:
    """Receive all messages of a queue."""
    opened, found = com.call(info, "Open", RECEIVE, 0), []
    try:
        while True:
            found.append(com.get(com.call(opened, "Receive", ReceiveTimeout=0), "Body"))
    except com.refused:
        com.call(opened, "Close")
        return found


def test_section_4_1_the_count_of_messages_in_a_queue(com: Any) -> None:
    info, path = queue_info(com)
    opened = com.call(info, "Open", SEND, 0)
    for body in ("a", "b", "c"):
        com.call(written(com, body), "Send", opened)
    management = com.new("Management")
    com.call(management, "Init", Pathname=path)
    assert com.get(management, "MessageCount") == 3


def test_section_4_2_a_queue_without_transfers_lists_none(com: Any) -> None:
    _, path = queue_info(com, True)
    management = com.new("Management")
    com.call(management, "Init", Pathname=path)
    faced = com.cast(management, "IMSMQQueueManagement")
    assert not com.get(faced, "JournalMessageCount")
    assert list(com.array(faced, "EodGetReceiveInfo")) == []


def test_section_4_3_an_outgoing_queue_is_paused(com: Any, administered: Daemon) -> None:
    with administered.connect() as manager, manager.open(OUTGOING, "send"):
        management = com.new("Management")
        com.call(management, "Init", FormatName=OUTGOING)
        faced = com.cast(management, "IMSMQOutgoingQueueManagement")
        com.call(faced, "Pause")
        assert com.get(faced, "State") == m.MQ_QUEUE_STATE_ONHOLD
        com.call(faced, "Resume")
        assert com.get(faced, "State") != m.MQ_QUEUE_STATE_ONHOLD


def test_section_4_4_public_queues_are_discovered_in_the_directory(com: Any) -> None:
    label = f"discovered{next(numbers)}"
    for name in ("a", "b"):
        info = com.new("QueueInfo")
        com.put(info, "PathName", f".\\{label}{name}")
        com.put(info, "Label", label)
        com.call(info, "Create")
    infos = com.call(com.new("Query"), "LookupQueue", Label=label)
    paths = []
    while (found := com.call(infos, "Next")) is not None:
        paths.append(com.get(found, "PathName"))
        assert com.get(found, "Label") == label
    assert [path[-1] for path in paths] == ["a", "b"]
    com.call(infos, "Reset")
    assert com.get(com.call(infos, "Next"), "PathName") == paths[0]


def test_section_4_5_a_message_is_received_in_an_event(administered: Daemon) -> None:
    """Only with our client: impacket has no objects that a server could call."""
    com, came = OwnClient(administered), queue.SimpleQueue[str]()

    class Handler:
        def Arrived(self, arrived: Any, cursor: int) -> None:
            came.put(arrived.Receive(ReceiveTimeout=0).Body)

    try:
        made, _ = queue_info(com)
        info = com.new("QueueInfo")
        info.FormatName = made.FormatName
        opened, event = info.Open(RECEIVE, 0), com.new("Event")
        with WithEvents(event, Handler):
            opened.EnableNotification(event)
            written(com, "in the event").Send(info.Open(SEND, 0))
            assert came.get(timeout=PATIENCE) == "in the event"
        assert bodies(com, info) == []
    finally:
        com.close()


def test_section_4_6_a_message_is_sent_to_a_destination_that_is_not_open(com: Any) -> None:
    info, _ = queue_info(com)
    destination = com.new("Destination")
    com.put(destination, "FormatName", com.get(info, "FormatName"))
    com.call(written(com, "to one"), "Send", destination)
    assert com.get(destination, "IsOpen")
    com.call(destination, "Close")
    assert bodies(com, info) == ["to one"]


def test_section_4_6_a_multicast_address_is_refused_when_it_is_sent_to(com: Any) -> None:
    destination = com.new("Destination")
    com.put(destination, "FormatName", "MULTICAST=234.1.1.1:8001")
    with pytest.raises(com.refused) as caught:
        com.call(written(com, "to many"), "Send", destination)
    assert com.hresult(caught.value) == 0xC00E0020  # MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION


@pytest.mark.parametrize("dispenser", ["TransactionDispenser", "CoordinatedTransactionDispenser"])
def test_sections_4_7_and_4_8_a_message_is_sent_in_a_transaction(com: Any, dispenser: str) -> None:
    """Both dispensers begin transactions that the queue manager coordinates."""
    info, _ = queue_info(com, True)
    opened = com.call(info, "Open", SEND, 0)
    for body, end in (("kept", "Commit"), ("dropped", "Abort")):
        unit = com.call(com.new(dispenser), "BeginTransaction")
        com.call(written(com, body), "Send", opened, unit)
        com.call(unit, end)
    com.call(opened, "Close")
    assert bodies(com, info) == ["kept"]


def test_section_4_9_a_message_is_sent_to_a_queue(com: Any) -> None:
    made, _ = queue_info(com)
    info = com.new("QueueInfo")
    com.put(info, "FormatName", com.get(made, "FormatName"))
    com.call(written(com, "hello"), "Send", com.call(info, "Open", SEND, 0))
    assert bodies(com, info) == ["hello"]
