"""Commands that show and release what streams hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import add_user, invoke
from daemon import Daemon
from flight.plane import Plane
from openmsmq.model.errors import AccessDenied

Run = Callable[..., str]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    directory = tmp_path_factory.mktemp("holding") / "data"
    with Daemon(directory, "--flight", "--flight-port", "0") as daemon, Plane(daemon, "orders") as plane:
        yield plane


@pytest.fixture
def run(plane: Plane) -> Run:
    def call(*arguments: str, code: int = 0) -> str:
        done = invoke("pipeline", *arguments, "--flight-port", str(plane.port), OPENMSMQ_HOST="127.0.0.1")
        assert done.code == code, (arguments, *done)
        return done.stdout + done.stderr

    return call


def rows(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_claim_is_shown_and_released(run: Run, plane: Plane) -> None:
    plane.send("abc")
    claimed = plane.client.claim(plane.queue, "lake", 0)
    (group,) = rows(run("groups", "--json"))
    assert group["queue"].endswith("\\private$\\orders")
    assert (group["source"], group["group"], group["count"]) == ("queue", "lake", 3)
    assert (group["cursor"], group["end"]) == (0, claimed.end)
    assert "lake" in run("groups")
    assert run("release", "orders", "lake") == "3 messages were put back into orders\n"
    assert (rows(run("groups", "--json"))[0]["count"], plane.labels()) == (0, ["a", "b", "c"])
    assert rows(run("release", "orders", "lake", "--forget", "--json")) == [{"released": 0, "forgotten": True}]
    assert run("groups", "--json") == ""
    assert "has no consumer group 'lake'" in run("release", "orders", "lake", code=1)


def test_stages_are_shown_and_dropped(run: Run, plane: Plane) -> None:
    plane.stage(4, "xy", sink="copies")
    (stage,) = rows(run("stages", "--json"))
    assert (stage["sink"], stage["batch"], stage["rows"], stage["sealed"]) == ("copies", 4, 2, True)
    assert [queue.rpartition("\\")[2] for queue in stage["queues"]] == ["orders"]
    assert "copies" in run("stages")
    assert rows(run("forget", "copies", "--batch", "3", "--json")) == [{"dropped": 0, "sink_forgotten": False}]
    assert run("forget", "copies") == "1 stages dropped\n"
    assert run("stages", "--json") == ""


def test_users_neither_see_nor_drop_stages_of_others(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data", "--flight", "--flight-port", "0")
    with daemon:
        for user in ("alice", "bob"):
            add_user(tmp_path / "data", user, "Secret#1")
        with Plane(daemon, "orders") as plane:
            plane.connect(user="alice", password="Secret#1")
            plane.stage(1, "a", sink="hers")
            assert [stage.sink for stage in plane.client.stages()] == ["hers"]
            plane.connect(user="bob", password="Secret#1")
            assert plane.client.stages() == []
            with pytest.raises(AccessDenied):
                plane.client.forget("hers")
