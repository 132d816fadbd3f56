"""Records which lines of the sources each test executes, and runs chosen tests: a plugin of pytest for tools/mutate.

    RECORD_LINES=DIRECTORY pytest -p line_recorder      record, also in the daemons that tests start
    ONLY_TESTS=FILE pytest -p line_recorder             only the tests whose names are lines of a file

A record is a data file of coverage.py with a context for each test. In a daemon, the context is the test that is
running, which may have started it or found it there; while a test file is imported, the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest

RECORD, ONLY = "RECORD_LINES", "ONLY_TESTS"
DAEMON, IMPORT = "daemon of ", "import of "  # beginnings of contexts
_LOOK_EVERY = 0.02  # seconds between a daemon's looks at the current test


def start(context: str | None = None) -> Any:
    """Record the lines that this process executes from now on. Returns an object of coverage.py."""
    import coverage

    import msrpc

    sources = Path(msrpc.__path__[0]).parent
    file = Path(os.environ[RECORD], f"lines-{os.getpid()}-{time.time_ns()}")
    recorded = coverage.Coverage(
        data_file=str(file), config_file=False, context=context, include=[f"{sources}/*"], messages=False
    )
    recorded.start()
    return recorded


def start_in_daemon() -> None:
    """Record lines for the current test until this daemon exits: daemons and their child processes do so by
    `os._exit`; uvicorn raises SIGTERM again after it has stopped."""
    recorded = start()
    current = _current_test()
    recorded.switch_context(DAEMON + current.read_text())
    leave, lock = os._exit, threading.Lock()

    def follow() -> None:
        known = ""
        while True:  # a file cannot wake another process
            time.sleep(_LOOK_EVERY)
            # The main thread adds lines meanwhile: the next look succeeds.
            with lock, contextlib.suppress(OSError, RuntimeError):
                if (found := current.read_text()) not in ("", known):
                    recorded.switch_context(DAEMON + found)
                    known = found

    def save() -> None:
        lock.acquire(timeout=1)  # never released; a signal may interrupt `save` itself
        recorded.stop()
        recorded.save()

    def save_and_leave(status: int) -> NoReturn:
        save()
        leave(status)

    def save_and_terminate(number: int, _: object) -> None:
        save()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    os._exit = save_and_leave  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, save_and_terminate)
    threading.Thread(target=follow, daemon=True).start()


def _current_test() -> Path:
    """The file in which a process of tests names its current test, for its daemons."""
    return Path(os.environ[RECORD], "current-" + os.environ.get("PYTEST_XDIST_WORKER", "main"))


class _Recorder:
    def __init__(self) -> None:
        self._coverage = start()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        if isinstance(collector, pytest.Module):
            self._coverage.switch_context(IMPORT + collector.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._coverage.switch_context(item.nodeid)
        _current_test().write_text(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        seconds = {name: round(spent, 3) for name, spent in self._seconds.items() if name not in self._failed}
        Path(os.environ[RECORD], f"seconds-{os.getpid()}.json").write_text(json.dumps(seconds))


def pytest_configure(config: pytest.Config) -> None:
    # With xdist, the workers record.
    if RECORD in os.environ and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(_Recorder())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ONLY in os.environ:
        names = {name: place for place, name in enumerate(Path(os.environ[ONLY]).read_text().splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in names), key=lambda item: names[item.nodeid])
