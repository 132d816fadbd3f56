"""The daemon side of the bulk plane against a compromised Flight process."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frame_peer import FramePeer
from msrpc.rpc.throttle import Attempt, PeerFailures
from openmsmq.accounts.login_attempts import LoginAttempts
from openmsmq.accounts.users import UsersFile
from openmsmq.gateways.context import Context
from openmsmq.gateways.flight import Control
from openmsmq.model.errors import HResult
from openmsmq.model.security import sid_bytes
from openmsmq.processes.framing import HEADER, MAXIMUM_BYTES
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.consumer_group import BatchLimits
from openmsmq.queueing.queue import Queue
from queueing.pipeline import draft
from queueing.world import World

STAGE = {"sink": "s", "batch": 0, "partition": 0, "attempt": "0", "collect": True}


class Peer(FramePeer):
    """The Flight process: sends requests and receives replies."""

    def __init__(self, world: World, path: Path, **options: Any) -> None:
        self.world = world
        self.control = Control(
            world.manager, world.store, lambda done: done(), UsersFile(path),
            **{
                "accepts_anonymous": True, "is_administrator": lambda sid: False,
                "logins": LoginAttempts(PeerFailures(lambda: 0.0)), **options,
            },
        )  # fmt: skip

    async def __aenter__(self) -> Peer:
        await self.start(self.control.serve)
        return self


def with_peer(test: Callable[[Peer], Coroutine[Any, Any, None]], tmp_path: Path, **options: Any) -> World:
    world = World()
    world.create()

    async def run() -> None:
        async with Peer(world, tmp_path / "users.json", **options) as peer:
            await test(peer)

    asyncio.run(run())
    return world


@pytest.mark.parametrize(
    "caller",
    [["S-1-5-18", "system", "00"], ["S-1-5-18", "system"], ["S-1-5-18", "system", 5], "S-1-5-18", 5, {}, [[], [], []]],
    ids=range(7),
)
def test_a_user_who_has_not_logged_in_cannot_be_named(tmp_path: Path, caller: Any) -> None:
    async def test(peer: Peer) -> None:
        answer = await peer.ask({"op": "queues", "caller": caller})
        assert answer["hresult"] == HResult.MQ_ERROR_ACCESS_DENIED

    with_peer(test, tmp_path)


def test_where_anonymous_callers_are_refused_no_request_comes_without_a_caller(tmp_path: Path) -> None:
    async def test(peer: Peer) -> None:
        assert (await peer.ask({"op": "queues"}))["hresult"] == HResult.MQ_ERROR_ACCESS_DENIED
        assert (await peer.ask({"op": "describe", "caller": None}))["result"]["segment_size"]

    with_peer(test, tmp_path, accepts_anonymous=False)


@pytest.mark.parametrize(
    "values",
    [
        {}, [], 5, None, {"op": 5}, {"op": []}, {"op": "dance"}, {"op": "claim"}, {"op": "__init__"},
        {"op": "claim", "queue": "q", "group": "g", "start": 0, "wait_seconds": float("nan")},
        {"op": "claim", "queue": "q", "group": "\ud800", "start": 0},
        {"op": "plan", "queue": "q", "start": -1}, {"op": "plan", "queue": "q", "self": 1},
        {"op": "stage", "stage": "x", "count": -1, "last": True}, {"op": "read", "queue": "q"},
    ],
    ids=range(15),
)  # fmt: skip
def test_each_malformed_request_is_answered(tmp_path: Path, values: Any) -> None:
    async def test(peer: Peer) -> None:
        answer = await peer.ask(values)
        assert answer["hresult"] == HResult.MQ_ERROR_INVALID_PARAMETER
        assert (await peer.ask({"op": "position", "queue": "q"}))["result"]["count"] == 0

    assert not list(with_peer(test, tmp_path).manager.consumer_groups.by_queue())


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(1, 0xFFFFFFFF, 0), HEADER.pack(1, 2, MAXIMUM_BYTES + 1) + b"{}", HEADER.pack(1, 3, 0) + b"{x}",
        HEADER.pack(1, 100_000, 0) + b"[" * 100_000,
    ],
    ids=["long JSON", "many bytes", "no JSON", "deep JSON"],
)  # fmt: skip
def test_bytes_that_are_not_a_frame_end_the_connection(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(peer: Peer) -> None:
        assert await peer.raw(data) == b""

    with_peer(test, tmp_path)
    assert "closing the connection to it" in caplog.text


def test_a_request_that_fails_in_an_unexpected_way_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(peer: Peer) -> None:
        answer = await peer.ask({"op": "last_batch", "sink": "s"})
        assert answer["hresult"] == HResult.MQ_ERROR and "log" in answer["detail"]
        assert "result" in await peer.ask({"op": "queues"})

    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr("openmsmq.queueing.sinks.Sinks.last_batch", fail)
    with_peer(test, tmp_path)
    assert "last_batch failed" in caplog.text and "unexpected" in caplog.text


async def begun(peer: Peer) -> str:
    handle: str = (await peer.ask({"op": "begin_stage", **STAGE}))["result"]["handle"]
    assert (await peer.ask({"op": "target", "stage": handle, "queue": "q"}))["result"]["index"] == 0
    return handle


def packed(records: list[bytes], targets: list[int] | None = None, sizes: list[int] | None = None) -> bytes:
    given = targets or [0] * len(records)
    return b"".join([
        array("I", given).tobytes(), array("I", sizes or [len(one) for one in records]).tobytes(), *records,
    ])  # fmt: skip


@pytest.mark.parametrize("wrong", ["sizes", "target", "more bytes", "fewer rows", "no bytes"])
def test_invalid_rows_drop_their_stage(tmp_path: Path, wrong: str) -> None:
    async def test(peer: Peer) -> None:
        handle = await begun(peer)
        upload = peer.world.manager.staged_writes.target("q", False, peer.control._caller(None))
        row = bytes(draft(upload).record)
        data = {
            "sizes": packed([row], sizes=[len(row) + 1]), "target": packed([row], targets=[5]),
            "more bytes": packed([row]) + b"x", "fewer rows": packed([row]), "no bytes": b"",
        }[wrong]  # fmt: skip
        count = 2 if wrong == "fewer rows" else 1
        answer = await peer.ask({"op": "stage", "stage": handle, "count": count, "last": True}, data)
        assert answer["hresult"] == HResult.MQ_ERROR_INVALID_PARAMETER
        assert not peer.world.manager.staged_writes.stages()

    with_peer(test, tmp_path)


def test_a_row_that_claims_another_sender_is_refused(tmp_path: Path) -> None:
    async def test(peer: Peer) -> None:
        handle = await begun(peer)
        target = peer.world.manager.staged_writes.target("q", False, peer.control._caller(None))
        honest = bytes(draft(target, label="honest").record)
        system = sid_bytes("S-1-5-18")
        form = target.form._replace(sender=system)
        forged = bytes(draft(type(target)(target.queue, target.name, False, form)).record)
        data = packed([honest, forged, b"", b"short"])
        answer = await peer.ask({"op": "stage", "stage": handle, "count": 4, "last": True}, data)
        assert [place for place, _, _ in answer["result"]["refused"]] == [1, 2, 3]
        await peer.ask({"op": "finalize", "sink": "s", "batch": 0, "stages": [handle]})

    assert with_peer(test, tmp_path).labels() == ["honest"]


class LoginRecorder:
    """Records the logins that the audit log would have."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str) -> None:
        self.told.append(("ok", door, user, peer))

    def failed(self, door: str, user: str, peer: str) -> None:
        self.told.append(("refused", door, user, peer))


def test_passwords_are_guessed_no_faster_by_flight_than_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    UsersFile(tmp_path / "users.json").add("alice", "right")
    reports, failures, now = LoginRecorder(), PeerFailures(lambda: 0.0), 0.0
    logins = LoginAttempts(failures, reports, lambda: now)

    async def login(peer: Peer, password: str, user: str = "alice", host: str = "10.0.0.7") -> Any:
        answer = await peer.ask({"op": "authenticate", "user": user, "password": password, "peer": host})
        return answer.get("detail", "ok")

    async def test(peer: Peer) -> None:
        nonlocal now
        assert await login(peer, "right") == "ok"
        for _ in range(3):
            assert "password is wrong" in await login(peer, "wrong")
        for _ in range(1000):  # the password is not checked
            assert "may try again in" in await login(peer, "right")
        assert await login(peer, "right", host="10.0.0.8") == "ok", "another host is not to blame"
        now = 2.0
        assert await login(peer, "right") == "ok"
        for number in range(200):  # one failure per user: the host is limited
            await login(peer, "wrong", f"user{number}")
        assert failures.refuses("10.0.0.7", Attempt.LOGIN), "at all other entry points as well"
        assert "too many failed logins" in await login(peer, "right")

    with_peer(test, tmp_path, logins=logins)
    assert logins.counts["flight", "ok"] == 3 and logins.counts["flight", "refused"] == 100
    assert logins.counts["flight", "delayed"] == 1104
    assert reports.told[0] == ("ok", "flight", "alice", "10.0.0.7") and len(reports.told) == 103
    assert caplog.text.count("login by flight from 10.0.0.7 refused") == 100


def test_locations_are_those_of_stored_messages_and_0_for_others(tmp_path: Path) -> None:
    async def test(peer: Peer) -> None:
        world = peer.world
        stored = [world.send(label=label, delivery_guarantee=1) for label in "ab"]
        world.send(label="c", delivery_guarantee=0)
        queue = world.queue()
        first, second, express = queue.available
        assert len(stored) == 2 and queue.location(first) and queue.location(second) != queue.location(first)
        keys = array("Q", [second, express, 1 << 60, first])
        answer, data = await peer.exchange({"op": "locate", "queue": "q"}, keys.tobytes())
        assert answer == {"result": {}}
        assert list(array("Q", data)) == [queue.location(second), 0, 0, queue.location(first)]
        assert (await peer.exchange({"op": "locate", "queue": "q"})) == ({"result": {}}, b"")
        answer = await peer.ask({"op": "locate", "queue": "q"}, bytes(9))
        assert answer["hresult"] == HResult.MQ_ERROR_INVALID_PARAMETER and "9 bytes" in answer["detail"]

    with_peer(test, tmp_path)


def test_a_writer_with_open_stages_keeps_them_alive(tmp_path: Path) -> None:
    async def test(peer: Peer) -> None:
        async def idle() -> int:
            (stage,) = (await peer.ask({"op": "stages"}))["result"]
            assert (stage["handle"], stage["sink"], stage["rows"], stage["sealed"]) == (handle, "s", 0, False)
            return int(stage["idle_seconds"])

        handle = await begun(peer)
        assert await idle() == 0
        peer.world.advance(5_000)
        assert await idle() == 5
        assert (await peer.ask({"op": "renew", "sink": "other"})) == {"result": None}
        assert await idle() == 5
        assert (await peer.ask({"op": "renew", "sink": "s"})) == {"result": None}
        assert await idle() == 0
        peer.world.advance(2_000)
        await peer.control._staging.do_renew(Caller.user("S-1-5-21-1-2-3-1001", "alice", frozenset()), "s")
        assert await idle() == 2  # these stages belong to another user

    with_peer(test, tmp_path)


def test_a_list_of_many_queues_leaves_the_event_loop_to_others(tmp_path: Path) -> None:
    """With 99,000 queues, the daemon served nobody else for 11 s."""

    async def test(peer: Peer) -> None:
        for number in range(500):
            peer.world.create(f"q{number}")
        listing, turns = asyncio.ensure_future(peer.control._operations["queues"](Caller.anonymous())), 0
        while not listing.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(json.loads(listing.result()[1])) > 500 and turns > 5

    with_peer(test, tmp_path)


# -- a bad item does not fail a list -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["queues", "groups", "stages"])
def test_a_queue_that_cannot_be_shown_is_left_out_and_in_the_log(
    tmp_path: Path, operation: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    named = Context.name_of

    def odd(self: Context, queue: Queue) -> tuple[str, str]:
        if queue.properties.path_name.endswith("\\bad"):
            raise KeyError(queue.number)
        return named(self, queue)

    async def test(peer: Peer) -> None:
        manager = peer.world.manager
        peer.world.create("bad")
        for name in ("q", "bad"):
            queue = peer.world.queue(name)
            for _ in manager.consumer_groups.claim(queue, "g", 0, BatchLimits()):
                pass
            peer.world.send(name, label="x")
            for _ in manager.consumer_groups.claim(queue, "g", 0, BatchLimits()):
                pass
        for number, name in enumerate(("q", "bad")):
            made = manager.staged_writes.begin("s", 0, number, "0", Caller.anonymous())
            target = manager.staged_writes.target(name, False, Caller.anonymous())
            manager.staged_writes.stage(made, [draft(target)], last=True)

        async def number_shown() -> int:
            found: int | list[Any] = (await peer.ask({"op": operation}))["result"]
            return found if isinstance(found, int) else len(found)

        before = await number_shown()
        monkeypatch.setattr(Context, "name_of", odd)
        assert await number_shown() == before - 1 > 0

    with_peer(test, tmp_path)
    assert "is left out (" in caplog.text and "KeyError" in caplog.text


def test_the_search_for_abandoned_stages_continues_after_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def fail(limit: int) -> int:
        looks.append(limit)
        raise RuntimeError("a mistake")

    async def test(peer: Peer) -> None:
        monkeypatch.setattr(peer.world.manager, "staged_writes", SimpleNamespace(drop_abandoned=fail))
        monkeypatch.setattr("openmsmq.gateways.flight._TIDY", 0.001)
        task = asyncio.create_task(peer.control.drop_abandoned())
        while len(looks) < 3 and not task.done():
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()

    with_peer(test, tmp_path)
