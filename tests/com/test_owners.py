"""Two users of one server: neither can use the other's objects, even if their identifiers were seen on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import add_user
from daemon import Daemon
from msrpc.hresults import ComResult
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED
from msrpc.rpc.pdu import AuthLevel
from openmsmq.com import ComError, Dispatch, close_all
from openmsmq.com.apartment import RemoteObject
from openmsmq.com.proxies import wrap

PASSWORD = "correct horse 7"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        for name in ("alice", "bob"):
            add_user(Path(running.directory), name, PASSWORD)
        yield running
        close_all()
    assert "Traceback" not in running.log, running.log


def new(daemon: Daemon, name: str, user: str | None, level: AuthLevel = AuthLevel.PKT_PRIVACY) -> Any:
    login = {"user": user, "password": PASSWORD, "level": level} if user else {}
    return Dispatch(name, host="127.0.0.1", port=daemon.mapper_port, **login)


STRANGERS = [("bob", AuthLevel.PKT_PRIVACY), (None, AuthLevel.NONE), ("alice", AuthLevel.CONNECT)]


@pytest.mark.parametrize(("user", "level"), STRANGERS, ids=str)
def test_nobody_else_receives_through_an_open_queue_or_sends_to_it(
    daemon: Daemon, user: str | None, level: AuthLevel
) -> None:
    info = new(daemon, "MSMQQueueInfo", "alice")
    info.PathName = f".\\private$\\of-alice-{user}-{level}"
    info.Create()
    queue, draft = info.Open(1, 0), new(daemon, "MSMQMessage", "alice")
    draft.Body = "secret"
    draft.Send(info.Open(2, 0))
    mine = new(daemon, "MSMQMessage", user, level)

    def seen(target: Any) -> Any:
        """Return the object as used by an attacker who read its reference on the wire."""
        reference = target._oleobj_.reference
        found = RemoteObject(mine._apartment, mine._oleobj_.exporter, reference)
        found._references = 0  # the attacker was given none
        return wrap(mine._apartment, found, "IMSMQQueue4" if target is queue else "IMSMQMessage4")

    for use in (
        lambda: seen(queue).Receive(ReceiveTimeout=0),
        lambda: seen(draft).Body,
        lambda: setattr(seen(draft), "Body", "other"),
        lambda: mine.Send(seen(queue)),
    ):
        with pytest.raises(ComError) as refused:
            use()
        assert refused.value.hresult in (RPC_S_ACCESS_DENIED, ComResult.E_ACCESSDENIED)
    assert draft.Body == "secret" and queue.Receive(ReceiveTimeout=0).Body == "secret"
    assert "was refused to" in daemon.log


def test_another_program_of_the_same_user_may_use_it(daemon: Daemon) -> None:
    draft = new(daemon, "MSMQMessage", "alice")
    draft.Body = "mine"
    other = new(daemon, "MSMQMessage", "alice", AuthLevel.PKT_INTEGRITY)
    assert other._apartment is not draft._apartment
    found = RemoteObject(other._apartment, other._oleobj_.exporter, draft._oleobj_.reference)
    found._references = 0
    assert wrap(other._apartment, found, "IMSMQMessage4").Body == "mine"
