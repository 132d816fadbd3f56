"""One Spark session and one daemon for all pipeline tests, which run in one pytest-xdist worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import fork_server
import openmsmq.spark
from daemon import Daemon
from requirements import missing
from spark import lake

# Written by tools/share-classes; drivers that tests start inherit it. SPARK_CONF_DIR cannot be used: it is on Java's
# class path, and Java shares no classes if the class path contains a directory.
PROPERTIES = Path(sys.prefix, "spark", "properties")
if PROPERTIES.exists():
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--properties-file {PROPERTIES} pyspark-shell")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the test to the group before pytest-xdist reads the groups."""
    if Path(__file__).parent in item.path.parents and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group("spark"))


#: Spark gives a Python worker 10 s to start and connect; no setting changes that (PythonWorkerFactory).
NO_WORKER = "Python worker failed to connect back"
WORKER_SECONDS = 10.0


def _worker_start() -> float:
    """Return the seconds that the imports of a Spark worker currently take."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import pyspark.sql.streaming.python_streaming_source_runner"], check=True)
    return time.monotonic() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Skip a test that failed because Spark could not start a worker in time, if this machine is really that slow."""
    report = yield
    if report.failed and NO_WORKER in str(report.longrepr):
        seconds = _worker_start()
        if seconds > WORKER_SECONDS / 2:
            report.outcome = "skipped"
            reason = f"Skipped: Spark gives its workers 10 s to start, and the imports alone took {seconds:.0f} s"
            report.longrepr = (str(item.path), 0, reason)
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = fork_server.python()
    directory = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2,3]")  # local[2] would never retry a task
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.openmsmq.connector", "false")  # tests of the connector enable it
    )
    session = openmsmq.spark.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["python", "connector"])
def either(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The session, once with the Python source and sink and once with the connector."""
    if request.param == "connector":
        if not openmsmq.spark.CONNECTOR.exists():
            missing("the connector is not built: make jdk connector")
        spark.conf.set("spark.openmsmq.connector", "true")
    yield spark
    spark.conf.set("spark.openmsmq.connector", "false")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("pipeline") / "data", "--flight", "--flight-port", "0") as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def qm(service: Daemon) -> Iterator[Any]:
    with service.connect() as manager:
        yield manager


@pytest.fixture
def queue(service: Daemon, request: pytest.FixtureRequest) -> str:
    """A queue for this test."""
    name: str = request.node.name.replace("[", "-").replace("]", "")[:80]
    lake.create(service, name)
    return name
