"""Configuration of all tests.

The test process runs the sources; with TESTS=compiled in the environment, it runs the compiled modules, which accept no
test doubles. Daemons started by tests run like those of users: compiled, if the modules have been compiled.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import sources
import tallies
from seeds import SEED, VARIABLE

TESTS_OF_COMPILED = os.environ.get("TESTS") == "compiled"
if not TESTS_OF_COMPILED:
    sources.prefer()


FEW = 40  # files that workers may rewrite themselves


def pytest_configure(config: pytest.Config) -> None:
    """Stop if daemons would run native code of older sources."""
    specification = importlib.util.spec_from_file_location("native", Path(__file__).parents[1] / "tools" / "native.py")
    assert specification is not None and specification.loader is not None
    native = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(native)
    if native.present() and not native.is_current():
        pytest.exit("extension modules are older than their sources: `make compiled`, or `make interpreted`", 2)
    if TESTS_OF_COMPILED and not native.present():
        pytest.exit("no extension modules are here: `make compiled`", 2)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        _rewrite_new_tests()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without the garbage collector, which would walk through all modules and tests again and again, and exempt
    them from it afterwards: both would take as long as the collection itself."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once, and exempt the rest: pytest would do so five times, and pytest-xdist interrupts a worker
    that takes more than five seconds to end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add the tallies of the test to its JUnit properties."""
    if call.when == "call":
        item.user_properties += tallies.take()


def _rewrite_new_tests() -> None:
    """Collect tests whose bytecode is missing in two processes, because otherwise each worker would rewrite all of them
    at its start."""
    home = Path(__file__).parent
    new = [str(path) for path in sorted(home.rglob("test_*.py")) if not _is_rewritten(path)]
    if len(new) > FEW:
        collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
        started = [
            subprocess.Popen([*collect, *part], cwd=home.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for part in (new[::2], new[1::2])
        ]
        for process in started:  # the workers report failures
            process.wait()


def _is_rewritten(path: Path) -> bool:
    plain = Path(importlib.util.cache_from_source(str(path)))
    bytecode = plain.with_name(f"{plain.stem}-pytest-{pytest.__version__}.pyc")
    return bytecode.exists() and bytecode.stat().st_mtime > path.stat().st_mtime


# If the environment forbids bytecode next to the sources, each daemon would compile them again.
if sys.dont_write_bytecode:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode"))
    # Each worker would also compile the tests, whose assertions pytest rewrites first.
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

# A busy machine is slow at times; that is not a failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


# Seconds allowed on two cores for one test by day, and for all tests of a file; slower tests belong to the night.
BUDGET_OF_A_TEST, BUDGET_OF_A_FILE = 15, 60


@pytest.fixture(autouse=True, scope="module")
def disconnected() -> Iterator[None]:
    """Stop the pings for automation objects when the daemons of a module have ended."""
    yield
    if "openmsmq.com" in sys.modules:
        sys.modules["openmsmq.com"].close_all()


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Give plain texts, regardless of earlier tests: pytest also adds its handler to loggers that do not propagate, and
    PySpark makes some of those set a JSON formatter on each handler."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True
    caplog.handler.setFormatter(logging.Formatter())
    return caplog


def pytest_report_header() -> str:
    return f"seed {SEED}: repeat this run with `make test SEED={SEED}`, or {VARIABLE}={SEED} --hypothesis-seed={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed, which -q omits above, and the tests over their time budget, as a hint."""
    terminalreporter.write_line(f"seed {SEED}")
    if config.option.markexpr != "not slow":
        return
    tests: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                tests[report.nodeid] += report.duration
                files[report.nodeid.partition("::")[0]] += report.duration
    for what, seconds, budget in (
        *((name, spent, BUDGET_OF_A_TEST) for name, spent in tests.items()),
        *((name, spent, BUDGET_OF_A_FILE) for name, spent in files.items()),
    ):
        if seconds > budget:
            terminalreporter.write_line(f"over its budget of {budget} s: {what} took {seconds:.0f} s")


def _shares_a_daemon(path: str) -> bool:
    """Whether the tests of a file share a daemon, which each of their workers would have to start."""
    if path.startswith(("tests/console/", "tests/flight/")):  # with a child process, which takes a second to start
        return True
    text = Path(__file__).parents[1].joinpath(path).read_text(encoding="utf-8")
    return 'scope="module"' in text and "Daemon(" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests with the session of Spark in one worker, those that kill drivers in another, and those that share
    a daemon together.

    pytest-xdist 3.8 marks groups in an attribute of items that pytest 9.2 no longer reads, so `loadgroup` alone ignores
    `xdist_group`.
    """
    from xdist.scheduler import LoadGroupScheduling

    shares = cache(_shares_a_daemon)

    class SchedulingByDirectory(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if "tests/spark/" in nodeid:
                return "kills" if "test_kills.py" in nodeid else "spark"
            path = nodeid.partition("::")[0]
            return path if shares(path) else nodeid

    return SchedulingByDirectory(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that replace parts of compiled modules. Start the longest tests first, so that no worker ends
    long after the others: the Spark session in one worker, and documents with commands that run for seconds."""
    left_out = [item for item in items if TESTS_OF_COMPILED and item.get_closest_marker("sources") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    def order(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        if group is not None and group.args in (("kills",), ("spark",)):
            return 0
        return 1 if item.path.name == "test_operating_document.py" else 2

    items.sort(key=order)
