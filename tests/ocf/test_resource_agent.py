"""The resource agent, called like by Pacemaker: the action as argument, parameters in the environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest

import openmsmq
from daemon import eventually, free_port, meanwhile
from requirements import program

AGENT = Path(__file__).resolve().parents[2] / "packaging" / "ocf" / "openmsmq"
SUCCESS, GENERIC, UNIMPLEMENTED, PERM, INSTALLED, CONFIGURED, NOT_RUNNING = 0, 1, 3, 4, 5, 6, 7
QUEUE = ".\\private$\\orders"


class Node:
    """A cluster node, which stores the state of its resources in its own directory."""

    def __init__(self, directory: Path, name: str, data_dir: Path, *options: str) -> None:
        self.port = free_port("127.0.0.1")
        self.environment: dict[str, str] = {}  # additional variables
        self.temporary = directory / name
        self.log = directory / f"{name}.log"
        self.binary = directory / "openmsmq"
        self.binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m openmsmq.cli "$@"\n')
        self.binary.chmod(0o755)
        ports = f"--endpoint-mapper-port 0 --message-port 0 --rpc-port {self.port}"
        self.parameters = {
            "binary": str(self.binary), "config": "", "data_dir": str(data_dir), "computer_name": "CLUSTER",
            "user": subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip(),
            "logfile": str(self.log), "options": " ".join((ports, *options)), "CRM_meta_timeout": "60000",
        }  # fmt: skip

    def call(self, action: str, **changed: str) -> int:
        return self.said(action, **changed)[0]

    def said(self, action: str, **changed: str) -> tuple[int, str]:
        """Call an action; return the exit code and the output."""
        environment = {f"OCF_RESKEY_{name}": value for name, value in {**self.parameters, **changed}.items()}
        environment |= {"HA_RSCTMP": str(self.temporary), "OCF_RESOURCE_INSTANCE": "qm", "PATH": os.environ["PATH"]}
        environment |= self.environment
        done = subprocess.run([AGENT, action], env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    @property
    def pid(self) -> int:
        return int((self.temporary / "openmsmq-qm" / "pid").read_text())

    @property
    def parent(self) -> int:
        """The process ID of the shell that waits for the daemon and records its exit code."""
        return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[1])

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Two nodes that share a data directory."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    both = [Node(tmp_path, name, data_dir) for name in ("one", "two")]
    yield both
    for node in both:
        node.call("stop", CRM_meta_timeout="11000")


def epochs(node: Node) -> list[str]:
    return sorted(path.name for path in Path(node.parameters["data_dir"]).glob("store*"))


def failure(node: Node) -> tuple[int, str]:
    """Call the monitor until it fails; return the exit code and the output."""

    def look() -> tuple[int, str] | None:
        code, said = node.said("monitor")
        return None if code == SUCCESS else (code, said)

    found = eventually(look)
    assert found is not None
    return found


def test_a_resource_starts_answers_and_stops_and_each_action_may_be_repeated(nodes: list[Node]) -> None:
    node = nodes[0]
    assert node.call("monitor") == NOT_RUNNING
    assert node.call("stop") == SUCCESS
    assert [node.call("start"), node.call("start")] == [SUCCESS, SUCCESS]
    assert epochs(node) == ["store.epoch-1"]
    assert node.call("monitor") == SUCCESS
    with openmsmq.connect("127.0.0.1", node.port) as manager:
        manager.create_queue(QUEUE)
    assert [node.call("stop"), node.call("stop")] == [SUCCESS, SUCCESS]
    assert node.call("monitor") == NOT_RUNNING
    assert (Path(node.parameters["data_dir"]) / "store.epoch-1" / "checkpoint-0").exists(), "it ended in order"
    assert node.call("start") == SUCCESS
    with openmsmq.connect("127.0.0.1", node.port) as manager:
        manager.open(QUEUE, "send").close()


def test_a_daemon_that_was_killed_is_a_failure_and_starts_again(nodes: list[Node]) -> None:
    node = nodes[0]
    assert node.call("start") == SUCCESS
    node.signal(signal.SIGKILL)
    code, said = failure(node)
    assert (code, "exit code 137" in said, str(node.log) in said) == (GENERIC, True, True)
    assert [node.call("start"), node.call("monitor")] == [SUCCESS, SUCCESS]


def test_the_exit_status_of_a_daemon_may_be_recorded_slightly_later(nodes: list[Node]) -> None:
    node = nodes[0]
    assert node.call("start") == SUCCESS
    parent = node.parent
    os.kill(parent, signal.SIGSTOP)
    node.signal(signal.SIGKILL)
    with meanwhile(0.3, lambda: os.kill(parent, signal.SIGCONT)):
        code, said = failure(node)
    assert (code, "exit code 137" in said) == (GENERIC, True)


def test_a_node_that_resumes_after_a_takeover_does_not_take_the_store_back(nodes: list[Node]) -> None:
    one, two = nodes
    assert one.call("start") == SUCCESS
    with openmsmq.connect("127.0.0.1", one.port) as manager:
        manager.create_queue(QUEUE)
        with manager.open(QUEUE, "send") as queue:
            queue.send("kept", recoverable=True)
    one.signal(signal.SIGSTOP)
    assert two.call("start") == SUCCESS
    one.signal(signal.SIGCONT)
    code, said = failure(one)
    assert (code, "another node has taken over the store (exit code 75)" in said) == (PERM, True)
    assert one.call("stop") == SUCCESS
    assert one.call("monitor") == NOT_RUNNING
    assert two.call("monitor") == SUCCESS
    with openmsmq.connect("127.0.0.1", two.port) as manager, manager.open(QUEUE) as queue:
        assert queue.receive(0).decode() == "kept"
    assert epochs(two) == ["store.epoch-2"]


def test_a_daemon_that_hangs_is_a_failure_and_is_stopped_in_the_time_that_there_is(tmp_path: Path) -> None:
    program("curl", "make curl")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    node = Node(tmp_path, "one", data_dir, "--web --web-port", str(free_port("127.0.0.1")))
    assert [node.call("start"), node.call("monitor")] == [SUCCESS, SUCCESS]
    node.signal(signal.SIGSTOP)
    code, said = node.said("monitor")
    assert (code, "did not answer within" in said) == (GENERIC, True)
    started = time.monotonic()
    code, said = node.said("stop", CRM_meta_timeout="12000")
    assert (code, "sending SIGKILL" in said) == (SUCCESS, True)
    assert 2 <= time.monotonic() - started < 12
    assert node.call("monitor") == NOT_RUNNING


class Ready(BaseHTTPRequestHandler):
    """Answers as a web process does whose daemon is ready."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"daemon: ok\n")


def test_a_restart_of_the_web_process_is_not_a_failure(nodes: list[Node]) -> None:
    """Another server, which accepts connections only after some time, takes the place of the web process."""
    program("curl", "make curl")
    node = nodes[0]
    assert node.call("start") == SUCCESS
    port = free_port("127.0.0.1")
    ready = node.temporary / "openmsmq-qm" / "ready"
    ready.write_text(f'{{"endpoints": {{"web": {{"address": "127.0.0.1", "port": {port}}}}}}}')

    def answer() -> None:
        with HTTPServer(("127.0.0.1", port), Ready) as server:
            server.timeout = 10
            server.handle_request()

    with meanwhile(1.5, answer):
        assert node.said("monitor") == (SUCCESS, "")


def test_the_monitor_uses_neither_a_proxy_nor_a_configuration_of_curl(tmp_path: Path) -> None:
    program("curl", "make curl")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (tmp_path / ".curlrc").write_text("max-filesize = 1\n")
    node = Node(tmp_path, "one", data_dir, "--web --web-port", str(free_port("127.0.0.1")))
    closed = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    node.environment = {"http_proxy": closed, "https_proxy": closed, "HOME": str(tmp_path)}
    assert node.call("start") == SUCCESS
    try:
        assert node.said("monitor") == (SUCCESS, "")
    finally:
        assert node.call("stop") == SUCCESS


def test_a_daemon_whose_exit_code_was_not_recorded_is_a_failure_with_a_description(nodes: list[Node]) -> None:
    node = nodes[0]
    assert node.call("start") == SUCCESS
    os.kill(node.parent, signal.SIGKILL)
    node.signal(signal.SIGKILL)
    code, said = failure(node)
    expected = f"openmsmq(qm): the daemon ended with an unknown exit code; see {node.log}\n"
    assert (code, said) == (GENERIC, expected)


def test_a_node_without_curl_says_that_it_cannot_notice_a_daemon_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, data_dir = tmp_path / "bin", tmp_path / "data"
    data_dir.mkdir()
    node = Node(tmp_path, "one", data_dir, "--web --web-port", str(free_port("127.0.0.1")))
    programs.mkdir()
    for name in ("cat", "grep", "id", "mkdir", "rm", "sed", "setsid", "sh", "sleep", "tail", "tr"):
        (programs / name).symlink_to(program(name, "coreutils"))
    monkeypatch.setenv("PATH", str(programs))
    try:
        code, said = node.said("start")
        assert (code, "install curl" in said) == (SUCCESS, True), said
        assert node.said("monitor") == (SUCCESS, "")
    finally:
        assert node.call("stop") == SUCCESS


def test_a_failed_start_tells_whether_another_node_may_try(nodes: list[Node], tmp_path: Path) -> None:
    node = nodes[0]
    expected = [
        ("monitor", {"data_dir": str(tmp_path / "not-mounted")}, NOT_RUNNING, ""),
        ("stop", {"data_dir": str(tmp_path / "not-mounted"), "binary": "/nowhere"}, SUCCESS, ""),
        ("start", {"data_dir": str(tmp_path / "not-mounted")}, GENERIC, "is the file system mounted?"),
        ("start", {"options": "--port-offset x"}, CONFIGURED, "exit code 2"),
        ("start", {"options": "--listen 192.0.2.1"}, GENERIC, "exit code 1"),
        ("start", {"logfile": str(tmp_path / "nowhere" / "log")}, INSTALLED, "cannot write the log file"),
        ("validate-all", {}, SUCCESS, ""),
        ("validate-all", {"binary": "/nowhere"}, INSTALLED, "/nowhere"),
        ("validate-all", {"config": "/nowhere.toml"}, INSTALLED, "/nowhere.toml"),
        ("validate-all", {"user": "nobody-has-this-name"}, INSTALLED, "nobody-has-this-name"),
        ("validate-all", {"data_dir": "relative"}, CONFIGURED, "absolute"),
        ("promote", {}, UNIMPLEMENTED, ""),
    ]  # fmt: skip
    for action, changed, code, words in expected:
        got, said = node.said(action, **changed)
        assert (got, words in said) == (code, True), (action, changed, said)
        assert not (node.temporary / "openmsmq-qm" / "pid").exists()


def test_the_metadata_name_all_parameters_and_actions() -> None:
    done = subprocess.run([AGENT, "meta-data"], capture_output=True, text=True, check=True)
    root = ElementTree.fromstring(done.stdout)
    assert (root.tag, root.get("name"), root.findtext("version")) == ("resource-agent", "openmsmq", "1.1")
    parameters = {parameter.get("name"): parameter for parameter in root.iter("parameter")}
    used = {line.split("OCF_RESKEY_")[1].split("=")[0] for line in AGENT.read_text().splitlines() if line[:3] == ': "'}
    assert parameters.keys() == used
    assert [name for name, parameter in parameters.items() if parameter.get("unique") == "1"] == ["data_dir"]
    for parameter in parameters.values():
        assert parameter.findtext("longdesc")
        assert parameter.findtext("shortdesc")
        assert parameter.find("content") is not None
    assert {action.get("name") for action in root.iter("action")} == {
        "start", "stop", "monitor", "meta-data", "validate-all"
    }  # fmt: skip
