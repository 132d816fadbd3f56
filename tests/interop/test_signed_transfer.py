"""Messages that one queue manager signs for a user are authentic for another one that shares its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openmsmq
from command_line import add_user
from daemon import Daemon, free_port
from openmsmq.com import Dispatch, close_all

HOSTS = ("127.0.75.1", "127.0.75.2")
PORT = str(free_port(*HOSTS))


def test_a_signature_of_one_queue_manager_is_verified_by_another_with_the_same_directory(tmp_path: Path) -> None:
    common = ("--message-port", PORT, "--peer-message-port", PORT, "--directory-path", str(tmp_path / "directory"))
    add_user(tmp_path / "alpha", "alice", "secret")
    alpha = Daemon(tmp_path / "alpha", "--listen", HOSTS[0], "--computer-name", "ALPHA", *common)
    beta = Daemon(tmp_path / "beta", "--listen", HOSTS[1], "--computer-name", "BETA", *common)
    with alpha, beta, openmsmq.connect(HOSTS[0], alpha.port) as near, openmsmq.connect(HOSTS[1], beta.port) as far:
        far.create_queue(".\\private$\\signed", authenticate=True)
        near.create_queue(".\\private$\\answers")

        def new(name: str) -> Any:
            return Dispatch(f"MSMQ.{name}", HOSTS[0], alpha.mapper_port, user="alice", password="secret")

        try:
            new("MSMQApplication").RegisterCertificate()
            info, message = new("MSMQQueueInfo"), new("MSMQMessage")
            info.FormatName = f"DIRECT=TCP:{HOSTS[1]}\\private$\\signed"
            queue = info.Open(2, 0)
            message.AuthLevel, message.Delivery = 8, 1
            answers = new("MSMQQueueInfo")
            answers.FormatName = "DIRECT=OS:.\\private$\\answers"  # at BETA, this name is of another queue (D-108)
            message.AdminQueueInfo = message.ResponseQueueInfo = answers
            message.Ack = 1
            for number in range(5):
                message.Label = str(number)
                message.Send(queue)
        finally:
            close_all()
        with far.open(".\\private$\\signed", "receive") as reader:
            got = [reader.receive(timeout=20) for _ in range(5)]
        assert [(one.label, one.authentication_level) for one in got] == [(str(number), 3) for number in range(5)]
        assert all(one.sender_certificate for one in got)
        assert {one.response_queue_format_name for one in got} == {"DIRECT=OS:ALPHA\\private$\\answers"}
    assert "Traceback" not in beta.log
