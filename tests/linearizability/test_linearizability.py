"""While the server is killed, stopped, cut off and replaced, clients of all entrances see only what one queue with
locks and transactions could show."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import seeds
from daemon import PROGRAM, eventually
from linearizability import clients
from linearizability.broken import BROKEN, DEFECTS, NEED_KILLS
from linearizability.checker import Undecided, is_linearizable
from linearizability.history import UNKNOWN
from linearizability.run import NEMESES, PLAIN, STEPPED, Recorder, Server, drain, run, verdicts
from openmsmq.model.errors import MsmqError

#: In the log of a daemon that finds a change impossible after it was written.
OWN_CHECK = "a change was written but could not be applied"
SECONDS = float(os.environ.get("LINEARIZABILITY_SECONDS", "120"))


def check(directory: Path, seconds: float, seed: str, harms: Sequence[str], program: Sequence[str]) -> None:
    recorder, done = run(directory, seconds, "c", seeds.chance(seed), harms, program=program)
    found = verdicts(recorder, done, directory / "history.jsonl")
    print(dict(done), len(recorder.history), "operations", recorder.errors.most_common(12))
    assert all(verdict.accepted for verdict in found), "\n".join(map(str, found))


def test_a_short_history_is_linearizable(tmp_path: Path) -> None:
    check(tmp_path, 4, "short history", [harm for harm in NEMESES if harm != "clock"], PROGRAM)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_long_histories_are_linearizable(tmp_path: Path, seed: int) -> None:
    check(tmp_path, SECONDS, f"long history {seed}", NEMESES, STEPPED)


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_histories_of_a_broken_daemon_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    """Some attempts: a defect that strikes one time in five may not show in a short history. A daemon that notices the
    defect itself, and ends, never answers again."""
    monkeypatch.setenv("BREAK", defect)
    harms = ["kill"] if defect in NEED_KILLS else ["cut"]
    for attempt in range(5):
        directory = tmp_path / str(attempt)
        try:
            recorder, done = run(directory, 20, "c", seeds.chance(f"{defect} {attempt}"), harms, program=BROKEN)
            if not all(verdict.accepted for verdict in verdicts(recorder, done, directory / "history.jsonl")):
                return
        except Undecided:
            continue  # as good as accepted
        except (ConnectionError, MsmqError):
            if OWN_CHECK in (directory / "node1.log").read_text():
                return
            raise
    pytest.fail(f"{defect} was not noticed")


@pytest.mark.slow
def test_a_removal_shows_before_its_sync_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 25: a client finds the queue empty while another client's receive waits for the disk. After a kill the
    message is there, once. The checker refuses the history: no order of the operations has all these answers."""
    monkeypatch.setenv("BREAK", "slow")
    monkeypatch.setenv("SLOW", "3")
    recorder = Recorder()
    with Server(tmp_path / "server", BROKEN) as server:
        taker, looker = clients.Qmcomm(server), clients.Qmcomm(server)
        for client in (taker, looker):
            client.prepare(PLAIN)
        call = time.monotonic_ns()
        taker.send(PLAIN, "only", 3)
        recorder.add("taker", "send", call, queue=PLAIN, argument=["only", 3])

        def finds_nothing() -> bool:
            looked = time.monotonic_ns()
            found = looker.peek(PLAIN)
            recorder.add("looker", "peek", looked, queue=PLAIN, result=found)
            return found is None

        call = time.monotonic_ns()
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(taker.receive, PLAIN)
            eventually(finds_nothing)
            server.active.kill()
            assert waiting.exception(30) is not None, "the receive was answered, so the disk was not slow enough"
        recorder.add("taker", "receive", call, UNKNOWN, queue=PLAIN)
        recorder.add("nemesis", "crash", time.monotonic_ns())
        server.active.start()
        drain(server, recorder)
    drained = [operation.result for operation in recorder.history if operation.client == "drain"]
    assert drained.count("only") == 1
    assert not is_linearizable(recorder.history)
