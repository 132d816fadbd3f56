"""One Spark session and one daemon for all tests of the pipeline; they run in one worker of pytest-xdist."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon

# By tools/share-classes; the drivers that tests start inherit it. Not by SPARK_CONF_DIR, which is in Java's class path:
# with a directory there, Java shares no classes.
PROPERTIES = Path(sys.prefix, "spark", "properties")
if PROPERTIES.exists():
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--properties-file {PROPERTIES} pyspark-shell")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put it into the group, before pytest-xdist reads the groups."""
    if Path(__file__).parent in item.path.parents and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,3]")  # local[2] would never try a task again
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("pipeline") / "data", "--flight", "--flight-port", "0") as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def qm(service: Daemon) -> Iterator[Any]:
    with service.connect() as manager:
        yield manager
