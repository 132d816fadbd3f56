"""Alert rules and the dashboard use only metrics that a daemon exports."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from console.browser import ADMINISTRATOR, PASSWORD, Client, ask
from console.conftest import OPTIONS, users
from daemon import Daemon
from openmsmq.queueing.outgoing_queues import OutgoingState
from requirements import program

FILES = Path(__file__).parents[2] / "packaging" / "prometheus"


def expressions() -> list[str]:
    rules = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    found = [rule["expr"] for rule in rules]
    return found + [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that exports metrics per queue, with one queue that holds a message."""
    directory = tmp_path_factory.mktemp("metrics") / "data"
    users(directory)
    with Daemon(directory, *OPTIONS, "--metrics-queues", "2") as daemon:
        client = Client(daemon)
        for name, count in (("deep", 3), ("less", 2), ("least", 1), ("empty", 0)):
            client.send(client.post("/queues", name=name)["id"], *"abc"[:count])
        yield daemon


def test_figures_by_queue_are_those_of_the_deepest_as_many_as_the_setting_says(daemon: Daemon) -> None:
    families = text_string_to_metric_families(ask(daemon, "GET", "/metrics").text)
    found = [sample for family in families for sample in family.samples if sample.name == "openmsmq_queue_messages"]
    by_name = {sample.labels["queue"].rpartition("\\")[2]: sample.value for sample in found}
    assert by_name == {"deep": 3, "less": 2}


@pytest.fixture(autouse=True)
def called(daemon: Daemon) -> None:
    """Make enough calls for some of them to be timed."""
    with daemon.connect() as manager:
        for _ in range(200):
            manager.queues()


def test_every_metric_in_the_rules_exists(daemon: Daemon) -> None:
    families = text_string_to_metric_families(ask(daemon, "GET", "/metrics").text)
    shown = {sample.name for family in families for sample in family.samples}
    wanted = {name for expression in expressions() for name in re.findall(r"openmsmq_\w+", expression)}
    assert wanted and wanted <= shown


def test_every_label_in_the_rules_exists(daemon: Daemon) -> None:
    samples = [s for f in text_string_to_metric_families(ask(daemon, "GET", "/metrics").text) for s in f.samples]
    for expression in expressions():
        for name, matchers in re.findall(r"(openmsmq_\w+)\{(.*?)\}", expression):
            for label, value in re.findall(r'(\w+)=~?"(.*?)"', matchers):
                if label != "instance":  # added by Prometheus
                    known = {sample.labels.get(label) for sample in samples if sample.name == name}
                    assert set(value.split("|")) <= known, (expression, known)


def test_each_state_of_an_outgoing_queue_is_shown(daemon: Daemon) -> None:
    families = text_string_to_metric_families(ask(daemon, "GET", "/metrics").text)
    (family,) = (family for family in families if family.name == "openmsmq_outgoing_queues")
    assert {sample.labels["state"] for sample in family.samples} == {state.value for state in OutgoingState}


def test_promtool_accepts_the_rules_and_their_tests_pass() -> None:
    promtool = program("promtool", "make prometheus")
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run([promtool, *command], cwd=FILES, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_metrics(client: Client, queue: str) -> None:
    promtool = program("promtool", "make prometheus")
    client.send(queue, "a")
    texts = [ask(client.daemon, "GET", "/metrics").text]
    assert "openmsmq_rpc_duration_seconds_bucket" in texts[0]
    login = base64.b64encode(f"{ADMINISTRATOR}:{PASSWORD}".encode()).decode()
    for family in ("messages", "flow", "readers"):
        path = f"/metrics/queues?family={family}"
        texts.append(ask(client.daemon, "GET", path, None, {"Authorization": f"Basic {login}"}).text)
    for text in texts:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_says_what_is_wrong() -> None:
    for rule in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"][0]["rules"]:
        assert rule["annotations"]["summary"].endswith(".") and rule["labels"]["severity"] in ("warning", "critical")
