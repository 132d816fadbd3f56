"""`openmsmq quickstart` and `openmsmq health`, as used by new users and by scripts."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

import openmsmq
from command_line import command, invoke
from daemon import Daemon, free_offset
from one_answer import answering
from openmsmq.accounts.login_links import SECONDS, create_link, redeem_link
from openmsmq.admin.alarm_rules import ALARM_RULES_FILE, AlarmRulesFile
from openmsmq.admin.alarms import Alarms, document_of, write_alarms
from waiting import START


class Quickstart:
    """Runs the command in a process and reads its output up to the last line."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            command("quickstart", str(directory), *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if line.startswith("Ctrl-C"):
                return
        raise AssertionError(self.said + (self.process.stderr.read() if self.process.stderr else ""))

    @property
    def link(self) -> str:
        return re.search(r"Console: +(\S+)", self.said).group(1)  # type: ignore[union-attr]

    def port(self, name: str) -> int:
        return int(re.search(rf"\b{name} (\d+)", self.said).group(1))  # type: ignore[union-attr]

    def post(self, secret: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(urlsplit(self.link).netloc, timeout=START)
        connection.request(
            "POST", "/login-link", urlencode({"secret": secret}), {"Content-Type": "application/x-www-form-urlencoded"}
        )
        response = connection.getresponse()
        response.read()
        return response

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=START)
        assert self.process.returncode == 0, said
        return said


def test_one_command_sets_everything_up_and_its_link_logs_in_once(tmp_path: Path) -> None:
    started = Quickstart(tmp_path / "data", "--port-offset", str(free_offset()))
    secret = urlsplit(started.link).fragment
    assert len(secret) > 40 and secret not in urlsplit(started.link)._replace(fragment="").geturl()
    password = re.search(r"admin, password (\S+)", started.said).group(1)  # type: ignore[union-attr]
    with openmsmq.connect("127.0.0.1", started.port("qmcomm"), user="admin", password=password) as manager:
        manager.create_queue("orders")
    page = http.client.HTTPConnection(urlsplit(started.link).netloc, timeout=START)
    page.request("GET", "/login-link")
    assert b"login-link.js" in page.getresponse().read()
    assert started.post("wrong" + secret).status == 401
    first, second = started.post(secret), started.post(secret)
    assert first.status == 303 and first.headers["set-cookie"] and first.headers["location"] == "/"
    assert second.status == 401 and not second.headers["set-cookie"]
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert secret not in started.stop()
    again = Quickstart(tmp_path / "data", "--port-offset", str(free_offset()))
    assert "password" not in again.said, "the administrator is there already"
    assert again.post(urlsplit(again.link).fragment).status == 303
    with openmsmq.connect("127.0.0.1", again.port("qmcomm"), user="admin", password=password) as manager:
        assert len(manager.queues()) == 1
    again.stop()


def test_a_login_link_is_valid_for_15_minutes_and_only_the_latest_works(tmp_path: Path) -> None:
    now = 1000.0
    old, new = (create_link(tmp_path, "admin", lambda: now) for _ in range(2))
    assert redeem_link(tmp_path, old, lambda: now) is None
    assert redeem_link(tmp_path, new, lambda: now + SECONDS) is None
    assert redeem_link(tmp_path, "", lambda: now) is None
    assert redeem_link(tmp_path, new, lambda: now + SECONDS - 1) == "admin"
    assert redeem_link(tmp_path, new, lambda: now) is None
    secret = create_link(tmp_path, "admin")
    (file,) = tmp_path.iterdir()
    assert secret not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    file.write_text("damaged")
    assert redeem_link(tmp_path, secret) is None


@pytest.mark.parametrize("given", [("quickstart",), ("serve", "--data-dir")], ids=["quickstart", "serve"])
def test_a_python_without_its_lock_is_refused_before_anything_changes(
    given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    refused = invoke(*given, str(tmp_path / "data"))
    assert refused.code == 2 and "set PYTHON_GIL=1" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_a_user_who_is_not_an_administrator_does_not_become_one(tmp_path: Path) -> None:
    invoke("user", "--data-dir", str(tmp_path), "add", "bob", "--password-stdin", stdin="x\n")
    refused = invoke("quickstart", str(tmp_path), "--user", "bob")
    assert refused.code == 2 and "bob is not an administrator" in refused.stderr


# -- health ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    directory = tmp_path_factory.mktemp("health") / "data"
    with Daemon(directory, "--web", "--web-port", "0", "--no-allow-anonymous") as running:
        yield running


def asked(service: Daemon, *options: str, **environment: str):  # type: ignore[no-untyped-def]
    at = ("--host", "127.0.0.1", "--port", str(service.port), "--data-dir", str(service.directory))
    return invoke("health", *at, *options, **environment)


def test_a_daemon_that_works_is_healthy_without_a_login(service: Daemon) -> None:
    ended = asked(service)
    assert ended.code == 0 and {"rpc: ok", "daemon: ok"} <= set(ended.stdout.splitlines()), ended
    assert all('"ok": true' in line for line in asked(service, "--json").stdout.splitlines())


def test_a_failed_login_and_an_active_alarm_are_unhealthy(service: Daemon, tmp_path: Path) -> None:
    ended = asked(service, "--user", "nobody", OPENMSMQ_PASSWORD="x")
    assert ended.code == 1 and "refused the login of user nobody" in ended.stdout
    assert asked(service, "--alarms").code == 0
    alarms = Alarms()
    alarms.update({("oldest", "orders"): 7322.0}, {"oldest": 60}, 1)
    write_alarms(tmp_path, document_of(alarms))
    at = ("--host", "127.0.0.1", "--port", str(service.port), "--data-dir", str(tmp_path))
    ended = invoke("health", *at, "--alarms")
    assert ended.code == 1 and "alarm oldest: The first message of orders has waited for 2 h 2 min" in ended.stdout


def test_a_silenced_alarm_is_counted_and_is_not_unhealthy(service: Daemon, tmp_path: Path) -> None:
    alarms = Alarms()
    alarms.update({("oldest", "orders"): 7322.0, ("oldest", "bills"): 7322.0}, {"oldest": 60}, 1)
    write_alarms(tmp_path, document_of(alarms))
    at = ("--host", "127.0.0.1", "--port", str(service.port), "--data-dir", str(tmp_path))
    rules = AlarmRulesFile(tmp_path)
    rules.silence("oldest", "orders", 3600, "", "known", list)
    ended = invoke("health", *at, "--alarms")
    assert ended.code == 1 and "alarms: 1 silenced" in ended.stdout.splitlines()
    assert "bills has waited" in ended.stdout and "orders has waited" not in ended.stdout
    rules.silence("oldest", "", 3600, "", "known", list)
    ended = invoke("health", *at, "--alarms")
    assert ended.code == 0 and "alarms: ok, 2 silenced" in ended.stdout.splitlines()
    (tmp_path / ALARM_RULES_FILE).write_text("damaged")
    ended = invoke("health", *at, "--alarms")
    assert ended.code == 1 and "alarms: cannot read silences" in ended.stdout and "bills has waited" in ended.stdout


def test_an_unreachable_server_has_its_own_exit_code(service: Daemon, tmp_path: Path) -> None:
    ended = invoke("health", "--port", "1", "--data-dir", str(tmp_path))
    assert ended.code == 6 and ended.stdout.startswith("rpc: ")
    ended = asked(service, "--url", "http://127.0.0.1:1")
    assert ended.code == 6 and "rpc: ok" in ended.stdout
    assert "http: http://127.0.0.1:1: Connection refused" in ended.stdout


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"nonsense\r\n\r\n", "nonsense"), (b"", "Remote end closed connection without response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nok", "IncompleteRead"),
    ],
)  # fmt: skip
def test_a_server_that_is_not_of_http_is_unreachable(service: Daemon, answer: bytes, said: str) -> None:
    with answering(answer) as port:
        ended = asked(service, "--url", f"http://127.0.0.1:{port}")
    assert ended.code == 6 and "rpc: ok" in ended.stdout and said in ended.stdout, ended
