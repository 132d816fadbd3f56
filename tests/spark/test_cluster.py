"""Spark clusters: executors in separate processes under a Spark master."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyspark
import pytest

from daemon import Daemon, eventually, free_port
from spark import lake

pytestmark = pytest.mark.slow

ROWS = 5000

DRIVER = """
import sys
import openmsmq.spark
from pyspark.sql import SparkSession
master, port, directory, connector = sys.argv[1:]
builder = (SparkSession.builder.master(master).config("spark.ui.enabled", "false")
         .config("spark.executor.memory", "512m").config("spark.cores.max", "2"))
spark = (openmsmq.spark.configure(builder) if connector == "connector" else builder).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
read = {"flightPort": port, "queue": "in", "maxRecordsPerPartition": "250"}
print("rows", spark.read.format("msmq").options(**read).load().count(), flush=True)
def run(sink):
    stream = spark.readStream.format("msmq").options(**read, mode="receive", consumerGroup="lake")
    frame = stream.option("maxRecordsPerTrigger", "500").load()
    writer = sink(frame).option("checkpointLocation", directory + "/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
run(lambda frame: frame.selectExpr("body", "label").writeStream.format("msmq")
    .options(flightPort=port, defaultQueue="out", sinkId=directory))
print("done", flush=True)
"""


def run(master: str, service: Daemon, directory: Path, *, kill: bool = False, by: str = "python") -> str:
    """Copy the queue `in` to `out` on a cluster, reading with Python workers or the connector. With `kill`, kill an
    executor meanwhile."""
    (directory / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(directory / "driver.py"), master, str(lake.flight_port(service)), str(directory), by]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=directory
    ) as driver:
        if kill:
            eventually(lambda: 0 < lake.count(service, "out") < ROWS, 120)
            executors()[0].kill()
        out, errors = driver.communicate(timeout=240)
    assert driver.returncode == 0, errors[-3000:]
    return out


def executors() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any("CoarseGrainedExecutorBackend" in part for part in process.info["cmdline"] or []):
            found.append(process)
    return found


@pytest.fixture
def filled(service: Daemon) -> Iterator[list[str]]:
    lake.create(service, "in", "out")
    sent = [str(number) for number in range(ROWS)]
    lake.put(service, "in", sent)
    yield sent
    with service.connect() as manager:
        manager.delete_queue(".\\private$\\in")
        manager.delete_queue(".\\private$\\out")


def check(service: Daemon, sent: list[str], out: str) -> None:
    assert out.split() == ["rows", str(ROWS), "done"]
    assert sorted(lake.left(service, "out"), key=int) == sent
    assert lake.count(service, "in") == 0


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("by", ["python", "connector"])
def test_local_cluster(service: Daemon, filled: list[str], tmp_path: Path, kill: bool, by: str) -> None:
    check(service, filled, run("local-cluster[2,1,1024]", service, tmp_path, kill=kill, by=by))


def test_a_master_and_two_workers(service: Daemon, filled: list[str], tmp_path: Path) -> None:
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }  # fmt: skip
    port = free_port("127.0.0.1")
    master = f"spark://127.0.0.1:{port}"
    log = tmp_path / "log"

    def start(stack: ExitStack, *arguments: str) -> None:
        command = [str(home / "bin" / "spark-class"), *arguments]
        with log.open("ab") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=tmp_path)
        stack.callback(process.wait)
        stack.callback(process.terminate)

    with ExitStack() as stack:
        start(stack, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
              "--webui-port", str(free_port("127.0.0.1")))  # fmt: skip
        for _ in range(2):
            start(stack, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g", "--host",
                  "127.0.0.1", "--webui-port", str(free_port("127.0.0.1")), master)  # fmt: skip
        registered = re.compile("Successfully registered with master")
        eventually(lambda: len(registered.findall(log.read_text())) == 2, 60)
        check(service, filled, run(master, service, tmp_path))
