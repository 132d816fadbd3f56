"""MS-MQMR over TCP: our client, and impacket with its own NDR; the example of section 4.1 from end to end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

import openmsmq
import openmsmq.aio
from command_line import add_user
from daemon import Daemon, eventually, open_files
from interop import impacket_msmq as calls
from interop.impacket_client import MQ_ERROR_ACCESS_DENIED, MQ_OK, PASSWORD, PRIVACY, USER, connect
from openmsmq.accounts.users import UsersFile
from openmsmq.model.constants import Access

OPERATOR = "operator"
WAITS = ("WAITING", "NEED VALIDATION")  # the name is resolved first, which fails
THERE = "DIRECT=OS:there\\private$\\q"
MACHINE = {"type": 1, "u": {"Reserved1": 0}}


@pytest.fixture(scope="module", autouse=True)
def operator(daemon: Daemon) -> None:
    add_user(daemon.directory, OPERATOR, PASSWORD, "--admin")


@pytest.fixture
def administrator(daemon: Daemon) -> Iterator[openmsmq.QueueManager]:
    with daemon.connect(user=OPERATOR, password=PASSWORD) as manager:
        yield manager
        manager.connect_machine()
        for queue in manager.outgoing():
            with manager.open(queue["format_name"], Access.RECEIVE_ADMIN) as opened:
                opened.purge()


def of_queue(name: str = THERE) -> dict[str, Any]:
    return {"type": 2, "u": {"pQueueFormat": {"m_qft": 3, "u": {"m_pDirectID": name.partition("=")[2] + "\0"}}}}


def impacket(daemon: Daemon, user: str) -> Any:
    dce = connect(daemon.port, PRIVACY, user=user)
    dce.bind(calls.QMMGMT)
    return dce


def told(dce: Any, target: dict[str, Any], *propids: int) -> list[Any]:
    blank = [{"vt": 1, "u": {"null": None}} for _ in propids]
    request = calls.request("R_QMMgmtGetInfo", pObjectFormat=target, cp=len(propids), aProp=list(propids), apVar=blank)
    response = dce.request(request, checkError=False)
    assert response["result"] == MQ_OK
    return list(response["apVar"])


def test_section_4_1_private_queues_are_listed_and_an_outgoing_queue_is_paused(
    daemon: Daemon, administrator: openmsmq.QueueManager
) -> None:
    administrator.create_queue(".\\private$\\one", label="first")
    assert [path.partition("\\")[2] for path in administrator.queues()] == ["private$\\one"]
    with daemon.connect() as manager, manager.open(THERE, "send") as queue:
        assert queue.format_name == THERE
        for number in range(3):
            queue.send(f"message {number}", recoverable=True)
        with manager.transaction() as transaction:
            queue.send("in a transaction", transaction=transaction)
        assert manager.management(THERE)["state"] in WAITS
        administrator.pause(THERE)
        assert manager.management(THERE)["state"] == "ONHOLD"
        queue.send("held")
        assert manager.management(THERE)["message_count"] == 5
        administrator.resume(THERE)
        assert manager.management(THERE)["state"] in WAITS


def test_only_administrators_read_outgoing_messages(daemon: Daemon, administrator: openmsmq.QueueManager) -> None:
    with daemon.connect() as anonymous, daemon.connect(user=USER, password=PASSWORD) as user:
        with anonymous.open(THERE, "send") as queue:
            queue.send("a")
            queue.send("b")
        for stranger in (anonymous, user):
            for attempt in (lambda s=stranger: s.open(THERE, Access.PEEK_ADMIN), stranger.disconnect_machine,
                            stranger.tidy, lambda s=stranger: s.pause(THERE)):  # fmt: skip
                with pytest.raises(openmsmq.AccessDenied):
                    attempt()
    with administrator.open(THERE, Access.RECEIVE_ADMIN) as queue:
        assert [message.decode() for message in queue] == ["a", "b"]
        assert queue.receive(0).decode() == "a"
        queue.purge()
    assert administrator.management(THERE)["message_count"] == 0


def test_a_user_is_an_administrator_as_soon_as_the_file_says_so(daemon: Daemon) -> None:
    add_user(daemon.directory, "later", PASSWORD)
    with daemon.connect(user="later", password=PASSWORD) as manager:
        with pytest.raises(openmsmq.AccessDenied):
            manager.connect_machine()
        users = UsersFile(daemon.directory / "users.json")
        users.set_administrator("later", True)
        manager.connect_machine()
        users.set_administrator("later", False)
        with pytest.raises(openmsmq.AccessDenied):
            manager.connect_machine()


def test_outgoing_queues_are_listed_with_their_properties(administrator: openmsmq.QueueManager) -> None:
    far = "DIRECT=TCP:192.0.2.9\\private$\\q"
    with (
        administrator.open(THERE, "send") as queue,
        administrator.open(far, "send"),
        administrator.open("MACHINE=" + administrator.machine_id + ";DEADLETTER", "peek"),
    ):
        queue.send("x")
        found = {row["format_name"]: row for row in administrator.outgoing()}
    assert set(found) == {THERE, far}
    assert (found[far]["next_hops"], found[far]["message_count"]) == (None, 0)
    machine = administrator.management()
    assert machine["connected"] == "CONNECTED" and machine["ds_server"] is None
    assert machine["active_queues"] == [THERE], "the other one is empty and closed"


def test_the_asyncio_client_manages_queues_too(daemon: Daemon, administrator: openmsmq.QueueManager) -> None:
    async def program() -> None:
        async with await openmsmq.aio.connect("127.0.0.1", daemon.port, user=OPERATOR, password=PASSWORD) as manager:
            async with await manager.open(THERE, "send") as queue:
                await queue.send("x")
            await manager.pause(THERE)
            assert [row["state"] for row in await manager.outgoing()] == ["ONHOLD"]
            await manager.resume(THERE)
            await manager.disconnect_machine()
            assert (await manager.management())["connected"] == "DISCONNECTED"
            assert (await manager.management(THERE))["state"] == "DISCONNECTED"
            await manager.connect_machine()
            await manager.tidy()

    asyncio.run(program())


def test_impacket_reads_every_property_at_level_privacy(daemon: Daemon, administrator: openmsmq.QueueManager) -> None:
    with administrator.open("DIRECT=TCP:192.0.2.9\\private$\\q", "send") as queue:
        queue.send("x")
    dce = impacket(daemon, USER)
    state, hops, count, acknowledged, resend = told(
        dce, of_queue("DIRECT=TCP:192.0.2.9\\private$\\q"), 11, 12, 7, 13, 21
    )
    assert state["u"]["pwszVal"] == "WAITING\0"
    assert [element["Data"] for element in hops["u"]["calpwstr"]["pElems"]] == ["IP=192.0.2.9\0"]
    assert (count["u"]["ulVal"], acknowledged["vt"], resend["u"]["lVal"]) == (1, 1, 0)
    connected, total = told(dce, MACHINE, 4, 6)
    assert connected["u"]["pwszVal"] == "CONNECTED\0" and total["u"]["hVal"] > 0
    dce.disconnect()


def test_impacket_acts_at_level_privacy_if_it_is_an_administrator(
    daemon: Daemon, administrator: openmsmq.QueueManager
) -> None:
    with administrator.open(THERE, "send") as queue:
        queue.send("x")
    for user, result, states in ((USER, MQ_ERROR_ACCESS_DENIED, WAITS), (OPERATOR, MQ_OK, ("ONHOLD",))):
        dce = impacket(daemon, user)
        action = calls.request("R_QMMgmtAction", pObjectFormat=of_queue(), lpwszAction="pause\0")
        assert dce.request(action, checkError=False)["result"] == result
        assert told(dce, of_queue(), 11)[0]["u"]["pwszVal"].rstrip("\0") in states
        dce.disconnect()
    administrator.resume(THERE)


def test_tidying_frees_space_and_keeps_messages(daemon: Daemon, administrator: openmsmq.QueueManager) -> None:
    def segments() -> int:
        return sum(os.fstat(file.fileno()).st_size >= 1 << 24 for _, file in open_files(daemon.directory / "store"))

    administrator.create_queue(".\\private$\\heap")
    with administrator.open(".\\private$\\heap", "send") as queue:
        queue.send("kept", recoverable=True)
        for _ in range(24):
            queue.send(bytes(3 << 20), recoverable=True, priority=4)
    before = segments()
    with administrator.open(".\\private$\\heap") as queue:
        for _ in range(24):
            queue.receive(0)
        administrator.tidy()
        eventually(lambda: segments() < before)
        assert [message.decode() for message in queue] == ["kept"]


def test_messages_for_others_survive_the_end_of_the_daemon(daemon: Daemon) -> None:
    with daemon.connect() as manager, manager.open(THERE, "send") as queue:
        queue.send("kept", recoverable=True)
        queue.send("express")
    daemon.kill()
    daemon.start()
    with daemon.connect(user=OPERATOR, password=PASSWORD) as again, again.open(THERE, Access.PEEK_ADMIN) as opened:
        assert [message.decode() for message in opened] == ["kept"]
