"""Alarms by HTTP, in metrics, in the console and by webhook, with receivers that are slow, hostile or unavailable."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from command_line import checked
from console.browser import USER, Browser, Client, Refused, ask
from console.certificate import self_signed
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually, open_files
from openmsmq.admin.alarms import EVENTS, Alarms, document_of, read_delivered, write_alarms, write_delivered
from openmsmq.console import webhook
from openmsmq.console.delivery import TRIES, AlarmDelivery
from openmsmq.console.webhook import SIGNATURE, Webhook, posting, signature
from openmsmq.files.private import PrivateFileError

THRESHOLDS = {"disk": 1000, "quota": 90, "sync": 1000, "deadletters": 100, "oldest": 3600, "outgoing": 900}
ALWAYS = ("--alarm-disk-megabytes", str(1 << 30))  # a petabyte, more than any disk has free


class Receiver:
    """An HTTP server that records posts and answers as configured by the test."""

    def __init__(self, *answers: int) -> None:
        """`answers` are the statuses of the first replies; all others are 200."""
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.answers = list(answers)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                receiver.paths.append(self.path)
                status = receiver.answers.pop(0) if receiver.answers else 200
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alarms"

    @contextmanager
    def running(self) -> Iterator[Receiver]:
        thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def happened(directory: Path, *values: int, alarms: Alarms | None = None) -> Alarms:
    """Raise and clear a disk alarm for each step below and above the threshold."""
    alarms = alarms or Alarms()
    for value in values:
        alarms.update({("disk", ""): value}, THRESHOLDS, 1000)
    write_alarms(directory, document_of(alarms))
    return alarms


def hook(directory: Path, url: str, clock: Clock, key: bytes = b"") -> AlarmDelivery:
    return Webhook(directory, "mq1", url, key, posting(), wait=clock.wait, clock=clock).delivery


def test_each_event_is_sent_once_even_after_a_restart(tmp_path: Path) -> None:
    alarms = happened(tmp_path, 1)
    with Receiver().running() as receiver:
        hook(tmp_path, receiver.url, Clock()).deliver()
        hook(tmp_path, receiver.url, Clock()).deliver()
        happened(tmp_path, 5000, 1, alarms=alarms)
        hook(tmp_path, receiver.url, Clock()).deliver()
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert [one["state"] for one in receiver.documents] == ["raised", "cleared", "raised"]
        assert [one["seq"] for one in receiver.documents] == [1, 2, 3]
        keys = [headers["Idempotency-Key"] for headers, _ in receiver.got]
        assert len(set(keys)) == 3


def test_a_new_receiver_gets_the_active_alarms_only(tmp_path: Path) -> None:
    happened(tmp_path, 1, 5000, 1, 5000, 1)
    with Receiver().running() as receiver:
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert [(one["state"], one["seq"]) for one in receiver.documents] == [("raised", 5)]


def test_events_that_the_file_no_longer_has_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alarms = happened(tmp_path, 1)
    with Receiver().running() as receiver:
        hook(tmp_path, receiver.url, Clock()).deliver()
        happened(tmp_path, *[5000, 1] * (EVENTS // 2 + 3), alarms=alarms)
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert len(receiver.got) == 1 + EVENTS
    assert f"6 alarm events were not delivered by webhook: alarms.json keeps the last {EVENTS} events" in caplog.text


def test_an_alarm_is_delivered_once_although_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alarms = happened(tmp_path, 1)
    with Receiver().running() as receiver:
        web = hook(tmp_path, receiver.url, Clock())
        with monkeypatch.context() as patch:
            patch.setattr("openmsmq.admin.alarms.write_private", full_disk)
            for _ in range(3):
                web.deliver()
        happened(tmp_path, 5000, alarms=alarms)
        web.deliver()
        assert [one["state"] for one in receiver.documents] == ["raised", "cleared"]
    assert caplog.text.count("cannot record that alarm event 1 was delivered") == 1
    assert read_delivered(tmp_path) == 2


def full_disk(path: Path, content: bytes) -> None:
    raise PrivateFileError(f"{path} can't be written: No space left on device")


def test_a_damaged_number_of_the_last_event_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "alarms.delivered").write_text("?")
    assert read_delivered(tmp_path) is None and "alarms that are on are delivered again" in caplog.text


def test_a_process_whose_daemon_is_frozen_sends_nothing(tmp_path: Path) -> None:
    happened(tmp_path, 1)
    with Receiver().running() as receiver:
        frozen = hook(tmp_path, receiver.url, Clock())
        frozen.is_served = lambda: False
        frozen.deliver()
        assert receiver.got == [] and read_delivered(tmp_path) is None


def test_what_is_silenced_is_not_posted_and_does_not_count_as_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alarms = happened(tmp_path, 1)
    with Receiver().running() as receiver:
        hook(tmp_path, receiver.url, Clock()).deliver()
        for value in [5000, 1] * EVENTS:
            alarms.update({("disk", ""): value}, THRESHOLDS, 1000, is_silenced=lambda name, queue: True)
            if alarms.seq % 50 == 0:
                write_alarms(tmp_path, document_of(alarms))
                hook(tmp_path, receiver.url, Clock()).deliver()
        happened(tmp_path, 5000, alarms=alarms)
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert [one["state"] for one in receiver.documents] == ["raised", "cleared"]
    assert "were not delivered" not in caplog.text


def test_a_new_receiver_gets_no_silenced_alarms(tmp_path: Path) -> None:
    alarms = Alarms()
    alarms.update({("disk", ""): 1}, THRESHOLDS, 1000, is_silenced=lambda name, queue: True)
    write_alarms(tmp_path, document_of(alarms))
    with Receiver().running() as receiver:
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert receiver.got == []
        happened(tmp_path, 1, alarms=alarms)
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert [one["state"] for one in receiver.documents] == ["raised"]


def test_what_is_posted_is_signed(tmp_path: Path) -> None:
    happened(tmp_path, 1)
    with Receiver().running() as receiver:
        hook(tmp_path, receiver.url, Clock(), b"key").deliver()
        [(headers, body)] = receiver.got
    expected = hmac.new(b"key", b"1800000000." + body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE] == f"t=1800000000,sha256={expected}"
    assert signature(b"", 5, body) == {}


def test_a_failing_server_is_retried_until_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with Receiver(500, 503).running() as receiver:
        happened(tmp_path, 1)
        hook(tmp_path, receiver.url, clock).deliver()
        assert len(receiver.got) == 3 and len(clock.waits) == 2 and clock.waits[0] <= 1 < clock.waits[1] * 2
        assert len({headers["Idempotency-Key"] for headers, _ in receiver.got}) == 1
    caplog.clear()
    alarms = happened(tmp_path, 1, 5000)
    alarms.seq = 2
    with Receiver(*[500] * 100).running() as receiver:
        hook(tmp_path, receiver.url, clock).deliver()
        said = "alarm events (disk cleared) were not delivered by webhook: refused 5 times: the answer is 500"
        assert len(receiver.got) == TRIES and said in caplog.text
        hook(tmp_path, receiver.url, clock).deliver()
        assert len(receiver.got) == TRIES, "there is no attempt after the last one"


@pytest.mark.parametrize("answer", [302, 401, 404, 429, 503])
def test_a_receiver_that_is_busy_or_has_another_url_or_key_gets_its_events_later(
    tmp_path: Path, answer: int, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    alarms = happened(tmp_path, 1)
    write_delivered(tmp_path, 0)
    with Receiver(*[answer] * 2 * TRIES).running() as receiver:
        web = hook(tmp_path, receiver.url, Clock())
        assert not web.deliver()
        happened(tmp_path, 5000, alarms=alarms)
        assert not web.deliver()
        assert caplog.text.count("can't be delivered by webhook, retrying every 60 s") == 1
        receiver.got.clear()
        assert web.deliver() and web.deliver()
        assert [one["state"] for one in receiver.documents] == ["raised", "cleared"]
    assert "alarm events are delivered by webhook again" in caplog.text


def test_a_receiver_that_was_not_reached_gets_its_events_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed network raises alarms, and also stops their delivery."""
    happened(tmp_path, 1)
    assert not hook(tmp_path, "http://127.0.0.1:1/", Clock()).deliver()
    assert "alarm events (disk raised) can't be delivered by webhook" in caplog.text and "refused" in caplog.text
    with Receiver().running() as receiver:
        assert hook(tmp_path, receiver.url, Clock()).deliver()
        assert [one["state"] for one in receiver.documents] == ["raised"]


def test_active_alarms_are_sent_in_the_order_of_their_events(tmp_path: Path) -> None:
    """The last one has the number to continue from, so that no event is sent twice."""
    alarms = Alarms()
    for disk in (1, 5000, 1):
        alarms.update({("disk", ""): disk, ("sync", ""): 2000}, THRESHOLDS, 1000)
    write_alarms(tmp_path, document_of(alarms))
    with Receiver().running() as receiver:
        web = hook(tmp_path, receiver.url, Clock())
        assert web.deliver() and web.deliver()
        numbers = [one["seq"] for one in receiver.documents]
    assert numbers == [2, 4] and read_delivered(tmp_path) == alarms.seq


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    happened(tmp_path, 1)
    with Receiver(*[307] * 100).running() as receiver:
        hook(tmp_path, receiver.url, Clock()).deliver()
        assert len(receiver.got) == TRIES


def _silent(connection: socket.socket) -> None:
    """A handler that never answers."""


def _endless(connection: socket.socket) -> None:
    """A handler that sends an endless answer."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    try:
        while True:
            connection.sendall(b"x" * 65536)
    except OSError:
        return


def _continues(connection: socket.socket) -> None:
    """A handler that sends interim responses without end: each read of the client gets something."""
    try:
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    except OSError:
        return


def _dies(connection: socket.socket) -> None:
    connection.close()


def _noise(connection: socket.socket) -> None:
    connection.sendall(b"\xff" * 100)
    connection.close()


def test_a_post_goes_to_the_path_and_the_query_of_its_url() -> None:
    with Receiver().running() as receiver:
        for end in ("", "/", "/alarms", "/alarms?key=1", "?key=1"):
            assert posting()(f"http://127.0.0.1:{receiver.server.server_port}{end}", b"{}", {}) == 200
    assert receiver.paths == ["/", "/", "/alarms", "/alarms?key=1", "/?key=1"]


def test_a_receiver_needs_a_trusted_certificate(tmp_path: Path) -> None:
    files = self_signed(tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*files)
    receiver = Receiver()
    receiver.server.socket = server_side.wrap_socket(receiver.server.socket, server_side=True)
    url = f"https://localhost:{receiver.server.server_port}/a b?key=ä"
    with receiver.running():
        assert posting(ssl.create_default_context(cafile=files[0]))(url, b"{}", {"X-One": "1"}) == 200
        [(headers, body)] = receiver.got
        assert body == b"{}" and headers["Host"] == f"localhost:{receiver.server.server_port}"
        with pytest.raises(ssl.SSLCertVerificationError):
            posting()(url, b"{}", {})
        assert len(receiver.got) == 1


@pytest.mark.parametrize("answer", [_silent, _dies, _noise, _endless, _continues])
def test_a_hostile_server_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(webhook, "_SECONDS", 0.3)
    happened(tmp_path, 1)
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                Thread(target=answer, args=(connection,), daemon=True).start()

        Thread(target=serve, daemon=True).start()
        started = time.monotonic()
        hook(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}/", Clock()).deliver()
        assert time.monotonic() - started < 0.3 * TRIES + 2
    assert len(kept) == (1 if answer is _endless else TRIES), "its status is 200"
    for connection in kept:
        connection.close()
    assert read_delivered(tmp_path) == (1 if answer is _endless else None), "others get the event later"


def test_a_daemon_sends_alarms_to_all_receivers(tmp_path: Path) -> None:
    users(tmp_path / "data")
    key = tmp_path / "key"
    key.write_text("webhook key\n")
    with Receiver().running() as receiver:
        options = (*OPTIONS, *ALWAYS, "--alarm-queue", "alarms", "--alarm-webhook", receiver.url,
                   "--alarm-webhook-key-file", str(key))  # fmt: skip
        with Daemon(tmp_path / "data", *options) as daemon:
            client = Client(daemon)
            [document] = eventually(lambda: receiver.documents)
            assert (document["alarm"], document["state"]) == ("disk", "raised")
            assert receiver.got[0][0][SIGNATURE].startswith("t=")
            found = client.get("/alarms")
            [active], [event] = found["active"], found["events"]
            assert event["alarm"]["sentence"] == document["sentence"] and "MB free, less than" in active["sentence"]
            assert 'openmsmq_alarm_active{alarm="disk"} 1' in ask(daemon, "GET", "/metrics").text
            assert 'openmsmq_alarm_active{alarm="quota"} 0' in ask(daemon, "GET", "/metrics").text
            browser = Browser(daemon)
            browser.login()
            for page in ("/", "/alarms"):
                assert "MB</strong> free, less than" in browser.ask("GET", page).text
            assert Client(daemon, USER).get("/alarms")["active"] == [], "alarms of the machine are for administrators"
            shown = json.loads(checked("alarms", "--json", "--data-dir", str(daemon.directory)))
            assert shown["name"] == "disk"
            assert "raised" in checked("alarms", "--history", "--data-dir", str(daemon.directory))
            client.post("/queues", name="alarms")
            daemon.stop()
            daemon.start()
            assert [one["state"] for one in client.get("/alarms")["events"]] == ["raised"], "not raised again"
            assert len(receiver.got) == 1


def test_alarms_end_when_they_are_switched_off(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    users(directory)
    with Daemon(directory, *OPTIONS, *ALWAYS) as daemon:
        eventually(lambda: Client(daemon).get("/alarms")["active"])
    with Daemon(directory, *OPTIONS, "--alarm-disk-megabytes", "0", "--alarm-queue", "alarms") as daemon:
        events = eventually(lambda: Client(daemon).get("/alarms")["events"][:-1])
        assert [event["state"] for event in events] == ["cleared"]
        assert "no alarm" in checked("alarms", "--data-dir", str(directory))


def test_an_alarm_is_silenced_over_a_restart_and_stays_listed(tmp_path: Path) -> None:
    """A silence records user, end and reason. The metric stays; receivers are notified when the silence ends."""
    directory = tmp_path / "data"
    users(directory)
    with Receiver().running() as receiver:
        options = (*OPTIONS, "--alarm-queue", "alarms", "--alarm-webhook", receiver.url)
        with Daemon(directory, *options, "--alarm-disk-megabytes", "0") as daemon:
            client = Client(daemon)
            alarms = client.post("/queues", name="alarms")["id"]
            made = client.post("/alarms/silences", alarm="disk", duration="2h", reason="disks come")
            assert made["silence"]["user"] == "alice" and "alarm silence disk --for 2h" in made["command"]
        with Daemon(directory, *options, *ALWAYS) as daemon:
            client = Client(daemon)
            [active] = eventually(lambda: client.get("/alarms")["active"])
            assert active["silenced"] == made["silence"] and client.get("/alarms")["silences"] == [made["silence"]]
            assert [one["silenced"] for one in client.get("/alarms")["events"]] == [True]
            assert 'openmsmq_alarm_active{alarm="disk"} 1' in ask(daemon, "GET", "/metrics").text
            shown = json.loads(checked("alarms", "--json", "--data-dir", str(daemon.directory)))
            assert shown["silenced"]["reason"] == "disks come"
            assert Client(daemon, USER).get("/alarms")["silences"] == []
            assert receiver.got == [] and client.messages(alarms) == []
            checked("alarm", "unsilence", "disk", "--data-dir", str(directory))
            [document] = eventually(lambda: receiver.documents)
            assert document["state"] == "raised" and len(client.messages(alarms)) == 1
            records = [record["action"] for record in client.get("/audit", action="alarm.*")["records"]]
            assert records == ["alarm.unsilence", "alarm.silence"]


@pytest.mark.parametrize(
    ("given", "status"),
    [({"duration": "59"}, 422), ({"duration": "31d"}, 422), ({"duration": "soon"}, 422), ({"reason": ""}, 422),
     ({"alarm": "nosuch"}, 422)],
)  # fmt: skip
def test_a_silence_that_is_not_possible_is_refused(client: Client, given: dict[str, str], status: int) -> None:
    with pytest.raises(Refused) as refused:
        client.post("/alarms/silences", **{"alarm": "oldest", "reason": "why", **given})
    assert refused.value.status == status and client.get("/alarms")["silences"] == []


def test_silences_and_thresholds_are_for_administrators_of_the_queue_manager(bob: Client) -> None:
    for method, path, document in (
        ("POST", "/alarms/silences", {"alarm": "oldest", "reason": "why"}), ("DELETE", "/alarms/silences/oldest", None),
        ("GET", "/alarms/thresholds", None), ("PUT", "/alarms/thresholds/oldest", {"threshold": 1}),
        ("DELETE", "/alarms/thresholds/oldest", None),
    ):  # fmt: skip
        assert bob.ask(method, path, document).status == 403


def test_a_threshold_changes_while_the_daemon_runs(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    users(directory)
    with Daemon(directory, *OPTIONS, "--alarm-by-queue", "orders:oldest=60") as daemon:
        client = Client(daemon)
        disk = next(one for one in client.get("/alarms/thresholds")["thresholds"] if one["alarm"] == "disk")
        assert (disk["threshold"], disk["at"], disk["setting"]) == (1024, None, "alarm_disk_megabytes")
        client.put("/alarms/thresholds/disk", threshold=1 << 30)
        eventually(lambda: client.get("/alarms")["active"])
        client.put("/alarms/thresholds/oldest", threshold=5, subject="orders")
        listed = checked("alarm", "thresholds", "--data-dir", str(directory))
        assert "by alice" in listed and "orders" in listed
        reset = client.act("DELETE", "/alarms/thresholds/oldest", subject="orders")["threshold"]
        assert (reset["threshold"], reset["setting"], reset["configured"]) == (60, "alarm_by_queue", 60)
        checked("alarm", "reset-threshold", "disk", "--data-dir", str(directory))
        eventually(lambda: not client.get("/alarms")["active"])
        with pytest.raises(Refused) as refused:
            client.put("/alarms/thresholds/quota", threshold=101)
        assert refused.value.status == 422
        records = client.get("/audit", action="alarm.threshold")["records"]
        assert len(records) == 4 and records[-1]["after"]["threshold"] == 1 << 30


def test_the_page_of_alarms_silences_and_sets_thresholds(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    users(directory)
    with Daemon(directory, *OPTIONS, *ALWAYS) as daemon:
        client, browser = Client(daemon), Browser(daemon)
        browser.login()
        eventually(lambda: client.get("/alarms")["active"])
        page = browser.ask("GET", "/alarms").text
        attention = page.partition('id="alarms"')[2].partition("</section>")[0]
        assert "<strong>" in attention and 'href="/settings"' in attention and "Silence" in attention
        csrf = browser.field("csrf")
        page = browser.ask("POST", "/alarms/ask-silence", {"csrf": csrf, "alarm": "disk", "subject": ""}).text
        assert 'id="plan"' in page and 'name="duration"' in page
        hidden = {"csrf": csrf, "alarm": "oldest", "subject": "a\u202eb"}
        assert 'value="a&#8238;b"' in browser.ask("POST", "/alarms/ask-silence", hidden).text
        answer = browser.ask("POST", "/alarms/silences", {"csrf": csrf, "alarm": "disk", "subject": "", "reason": ""})
        assert answer.status == 422 and 'name="duration"' in answer.text
        form = {"csrf": csrf, "alarm": "disk", "subject": "", "duration": "2h", "reason": "<b>disks</b>"}
        assert "is silenced until" in browser.ask("POST", "/alarms/silences", form).text
        page = browser.ask("GET", "/alarms").text
        assert not re.search('Alarms <span class="count', page), "it does not count as one that needs attention"
        overview = browser.ask("GET", "/").text
        assert "No active alarms" in overview and ">1 silenced<" in overview
        assert "No active alarms" in page and "by alice: &lt;b&gt;disks" in page and "<b>disks" not in page
        ended = browser.ask("POST", "/alarms/silences/disk/end", {"csrf": csrf, "subject": ""})
        assert "has ended" in ended.text
        form = {"csrf": csrf, "subject": "", "threshold": "7"}
        assert browser.ask("POST", "/alarms/thresholds/disk", form).status == 303
        form = {"csrf": csrf, "subject": "orders", "alarm": "oldest", "threshold": "90"}
        assert browser.ask("POST", "/alarms/thresholds", form).status == 303
        page = browser.ask("GET", "/alarms").text
        assert 'value="7"' in page and "Back to" in page and "orders" in page and "Remove" in page
        answer = browser.ask("POST", "/alarms/thresholds/quota", {"csrf": csrf, "subject": "", "threshold": "101"})
        assert answer.status == 422 and 'value="101"' in answer.text
        reset = {"csrf": csrf, "subject": "orders"}
        assert browser.ask("POST", "/alarms/thresholds/oldest/reset", reset).status == 303
        assert "Remove" not in browser.ask("GET", "/alarms").text


def test_the_url_of_a_webhook_is_shown_to_nobody(tmp_path: Path) -> None:
    """The path of the URL is often a secret."""
    users(tmp_path / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENMSMQ_ALARM_WEBHOOK", "http://127.0.0.1:9/hidden-path")
        daemon = Daemon(tmp_path / "data", *OPTIONS).start()
    with daemon:
        children = psutil.Process(daemon.pid).children(recursive=True)
        assert children and not any("hidden-path" in " ".join(child.cmdline()) for child in children)
        settings = {one["name"]: one["value"] for one in Client(daemon).get("/settings")["settings"]}
        assert settings["alarm_webhook"] == "http://127.0.0.1/…"
        assert not [path for path, file in open_files(tmp_path / "data") if b"hidden-path" in file.read()]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_an_alarm_that_does_not_exist_is_not_found(client: Client, method: str) -> None:
    """Path segments are validated like the rest of a request."""
    answer = client.ask(
        method, "/alarms/thresholds/nosuch", {"threshold": 1, "subject": ""} if method == "PUT" else None
    )
    assert answer.status == 404 and "nosuch" in answer.json["detail"]
