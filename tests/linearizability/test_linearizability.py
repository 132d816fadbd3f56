"""What clients of all entrances see while the server is killed, stopped, cut off and replaced is what one queue with
locks and transactions could have shown them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import seeds
from daemon import PROGRAM
from linearizability.broken import BROKEN, DEFECTS, NEED_KILLS
from linearizability.run import NEMESES, STEPPED, run, verdicts

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
    """Some attempts: a defect that strikes one time in five may not show in a short history."""
    monkeypatch.setenv("BREAK", defect)
    harms = ["kill"] if defect in NEED_KILLS else ["cut"]
    for attempt in range(5):
        directory = tmp_path / str(attempt)
        recorder, done = run(directory, 20, "c", seeds.chance(f"{defect} {attempt}"), harms, program=BROKEN)
        if not all(verdict.accepted for verdict in verdicts(recorder, done, directory / "history.jsonl")):
            return
    pytest.fail(f"{defect} was not noticed")


@pytest.mark.slow
def test_histories_of_a_slow_disk_are_linearizable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not written yet must not be shown to anybody: much of it is lost by a kill."""
    monkeypatch.setenv("BREAK", "slow")
    check(tmp_path, SECONDS, "slow disk", ["kill"], BROKEN)
