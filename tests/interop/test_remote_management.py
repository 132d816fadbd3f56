"""MSMQManagement and MSMQApplication for another machine: requests are forwarded by MS-MQMR."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import openmsmq
from daemon import Daemon
from openmsmq.com import CastTo, ComError, Dispatch, close_all
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import HResult, MsmqError

NEAR, FAR = "127.0.77.1", "127.0.77.2"
QUEUE, OUTGOING = "DIRECT=OS:BETA\\private$\\q", "DIRECT=TCP:192.0.2.9\\private$\\away"


class World:
    """Objects at ALPHA, and BETA, which they manage."""

    def __init__(self, alpha: Daemon, beta: Daemon) -> None:
        self.alpha, self.beta = alpha, beta

    def new(self, name: str) -> Any:
        return Dispatch(f"MSMQ.{name}", NEAR, self.alpha.mapper_port)

    def managed(self, name: str, machine: str = "BETA") -> Any:
        management = self.new("MSMQManagement")
        management.Init(machine, ..., name)
        return management

    def application(self, machine: str = "BETA") -> Any:
        application = self.new("MSMQApplication")
        application.Machine = machine
        return application


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("remote")
    anonymous = ("--allow-anonymous", "--anonymous-is-administrator")
    beta = Daemon(directory / "beta", "--listen", FAR, "--computer-name", "BETA", *anonymous)
    with beta:
        peers = ("--peers", f"BETA={FAR}:{beta.port},NOWHERE=127.0.77.3:9")
        alpha = Daemon(directory / "alpha", "--listen", NEAR, "--computer-name", "ALPHA", *peers, *anonymous)
        with alpha:
            with openmsmq.connect(FAR, beta.port) as manager:
                manager.create_queue(".\\private$\\q", journal=True)
                with manager.open(".\\private$\\q", "send") as queue:
                    for _ in range(3):
                        queue.send(b"x" * 100)
                with manager.open(".\\private$\\q") as queue:
                    queue.receive(timeout=5)
                with manager.open(OUTGOING, "send") as queue:
                    queue.send(b"y")
            yield World(alpha, beta)
            close_all()
    assert "Traceback" not in alpha.log, alpha.log
    assert "Traceback" not in beta.log, beta.log


def refused(hresult: int) -> Any:
    return pytest.raises((MsmqError, ComError), check=lambda error: error.hresult & 0xFFFFFFFF == hresult)


def test_the_properties_of_a_remote_queue_are_read(world: World) -> None:
    management = world.managed(QUEUE)
    found = [management.MessageCount, management.IsLocal, management.QueueType, management.ForeignStatus]
    assert found == [2, True, m.MQ_TYPE_PRIVATE, m.MQ_STATUS_NOT_FOREIGN]
    assert (management.Machine, management.FormatName, management.TransactionalStatus) == (
        "BETA",
        QUEUE,
        m.MQ_XACT_STATUS_NOT_XACT,
    )
    assert management.BytesInQueue > 200
    face = CastTo(management, "IMSMQQueueManagement")
    assert face.JournalMessageCount == 1 and face.BytesInJournal > 100
    assert list(face.EodGetReceiveInfo()) == []
    with pytest.raises(ComError):
        CastTo(management, "IMSMQOutgoingQueueManagement")


def test_an_outgoing_queue_of_another_machine_is_paused_and_resumed(world: World) -> None:
    management = world.managed(OUTGOING)
    assert management.IsLocal is False
    face = CastTo(management, "IMSMQOutgoingQueueManagement")
    face.Pause()
    paused = face.State
    with openmsmq.connect(FAR, world.beta.port) as manager:
        assert manager.management(OUTGOING)["state"].upper() == "ONHOLD"
    face.Resume()
    assert (paused, face.State) != (face.State, paused)
    assert isinstance(face.NextHops, list | tuple)
    info = face.EodGetSendInfo()
    assert info.Item("EodNoAckCount") == 0 and info.Item("EodNextSeq").Item("SeqNo") == 0
    with pytest.raises(ComError):
        CastTo(management, "IMSMQQueueManagement")


def test_the_properties_of_another_machine_are_read_and_it_is_taken_offline(world: World) -> None:
    application = world.application()
    assert any(name.lower().endswith("private$\\q") for name in application.PrivateQueues)
    assert OUTGOING.lower() in [name.lower() for name in application.ActiveQueues()]
    assert application.BytesInAllQueues > 300 and application.Machine == "BETA"
    application.Disconnect()
    assert application.IsConnected is False and world.new("MSMQApplication").IsConnected is True
    application.Connect()
    application.Tidy()
    assert application.IsConnected is True
    with refused(HResult.MQ_ERROR_NO_DS):
        application.DirectoryServiceServer  # noqa: B018


def test_missing_objects_give_the_error_of_the_other_machine(world: World) -> None:
    with refused(HResult.MQ_ERROR_QUEUE_NOT_FOUND):
        world.managed("DIRECT=OS:BETA\\private$\\none")


def test_a_machine_that_does_not_answer_is_not_available(world: World) -> None:
    with refused(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE):
        world.managed(QUEUE, "NOWHERE")
    application = world.application("NOWHERE")
    with refused(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE):
        application.PrivateQueues  # noqa: B018
    with refused(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE):
        application.Connect()


def test_this_queue_manager_forwards_no_requests_of_users_who_may_not_administer_it(
    world: World, tmp_path: Path
) -> None:
    peers = ("--peers", f"BETA={FAR}:{world.beta.port}")
    with Daemon(tmp_path / "data", "--listen", "127.0.77.4", "--allow-anonymous", *peers) as gamma:
        application = Dispatch("MSMQ.MSMQApplication", "127.0.77.4", gamma.mapper_port)
        application.Machine = "BETA"
        assert application.PrivateQueues
        with refused(HResult.MQ_ERROR_ACCESS_DENIED):
            application.Disconnect()
    assert world.application().IsConnected is True
