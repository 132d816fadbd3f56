"""Alarms by e-mail, sent to a mail server in the test."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.certificate import self_signed
from console.test_alarms import full_disk
from daemon import Daemon, eventually
from openmsmq.admin import deadlines
from openmsmq.admin.alarms import (
    EVENTS,
    MAILED_FILE,
    Alarms,
    document_of,
    read_delivered,
    write_alarms,
    write_delivered,
)
from openmsmq.console.delivery import TRIES, AlarmDelivery
from openmsmq.console.mailing import GATHER, AlarmMailer, SendMail, host_and_port, mail_of, sending
from openmsmq.server.config import Configuration, ConfigurationError

THRESHOLDS = {
    "disk": 1000, "quota": 90, "sync": 0, "deadletters": 100, "oldest": 60, "outgoing": 900, "indoubt": 300,
    "relay": 900, "refused": 1, "peer": 300,
}  # fmt: skip


class MailServer:
    """A minimal SMTP server that serves one connection at a time."""

    def __init__(self, certificate: tuple[Path, Path] | None, implicit: ssl.SSLContext | None) -> None:
        self.mails: list[EmailMessage] = []
        self.answers = {"QUIT": "221 bye"}  # by command, or by a whole one in lower case; "250 ok" to others
        self.commands: list[str] = []
        self._certificate = certificate
        self._implicit = implicit
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"localhost:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError):
                self._talk(self._implicit.wrap_socket(connection, server_side=True) if self._implicit else connection)

    def _talk(self, connection: socket.socket) -> None:
        said = connection.makefile("rwb")

        def answer(*lines: str) -> None:
            said.write("".join(f"{line}\r\n" for line in lines).encode())
            said.flush()

        answer("220 test")
        while line := said.readline():
            command = line.decode().strip()
            self.commands.append(command.partition(" ")[0].upper())
            match self.commands[-1]:
                case "EHLO":
                    plain = not isinstance(connection, ssl.SSLSocket)
                    answer("250-test", *(["250-STARTTLS"] if self._certificate and plain else []), "250 AUTH PLAIN")
                case "STARTTLS":
                    assert self._certificate is not None
                    answer("220 go")
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(*self._certificate)
                    connection = context.wrap_socket(connection, server_side=True)
                    said = connection.makefile("rwb")
                case "AUTH":
                    answer(self.answers.get("AUTH", "235 in"))
                case "DATA":
                    answer("354 go")
                    lines = []
                    while (part := said.readline()) != b".\r\n":
                        lines.append(part)
                    mail = message_from_bytes(b"".join(lines), policy=policy.default)
                    assert isinstance(mail, EmailMessage)
                    if "." not in self.answers:
                        self.mails.append(mail)
                    answer(self.answers.get(".", "250 kept"))
                case "QUIT":
                    answer(self.answers["QUIT"])
                    connection.close()
                    return
                case _:
                    answer(self.answers.get(command.lower(), "250 ok"))  # versions of Python write FROM: or from:


@contextmanager
def mail_server(certificate: tuple[Path, Path] | None, implicit: ssl.SSLContext | None = None) -> Iterator[MailServer]:
    server = MailServer(certificate, implicit)
    yield server
    server.close()


def raised(directory: Path, *queues: str, at: float = 1000.0) -> Alarms:
    alarms = Alarms()
    alarms.update({("oldest", queue): 183.0 for queue in queues}, THRESHOLDS, at)
    write_alarms(directory, document_of(alarms))
    return alarms


def mailing(
    directory: Path, send: SendMail, *recipients: str, wait: Callable[[float], object] = lambda seconds: None,
    clock: Callable[[], float] = time.time,
) -> AlarmDelivery:  # fmt: skip
    return AlarmMailer(
        directory, "mq1", "openmsmq@mq1", recipients or ("night@example.org",), send, wait=wait, clock=clock
    ).delivery


def test_one_mail_has_all_that_happens_within_a_short_time(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate[0]))
    data = tmp_path / "data"
    data.mkdir()
    with mail_server(certificate) as server:
        send = sending(server.address, "starttls", "night", "secret", context)
        now = [1000.0]
        mailer = mailing(data, send, clock=lambda: now[0])
        alarms = raised(data, "orders")
        mailer.deliver()
        assert server.mails == [], "others may join"
        now[0] += GATHER / 2
        alarms.update({("oldest", "orders"): 200.0, ("oldest", "bills"): 183.0}, THRESHOLDS, now[0])
        write_alarms(data, document_of(alarms))
        now[0] += GATHER / 2
        mailer.deliver()
        mailer.deliver()
        [mail] = server.mails
        assert {"STARTTLS", "AUTH"} <= set(server.commands)
        assert (mail["To"], mail["Subject"]) == ("night@example.org", "mq1: alarms 2 raised")
        text = mail.get_content()
        assert "The first message of bills has waited for 3 min 3 s" in text and "openmsmq handle list orders" in text
        assert read_delivered(data, MAILED_FILE) == 2
        alarms.update({}, THRESHOLDS, now[0])
        write_alarms(data, document_of(alarms))
        now[0] += GATHER
        mailer.deliver()
        assert server.mails[1]["Subject"] == "mq1: alarms 2 cleared"


def test_a_mail_is_sent_once_although_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised(tmp_path, "orders")
    mails: list[EmailMessage] = []
    mailer = mailing(tmp_path, mails.append)
    monkeypatch.setattr("openmsmq.admin.alarms.write_private", full_disk)
    for _ in range(3):
        mailer.deliver()
    assert len(mails) == 1


def test_events_that_no_mail_could_have_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alarms = raised(tmp_path, "orders")
    write_delivered(tmp_path, 1, MAILED_FILE)
    for number in range(EVENTS + 3):
        alarms.update({("oldest", "orders"): 183.0 * (number % 2)}, THRESHOLDS, 1000)
    write_alarms(tmp_path, document_of(alarms))
    mailing(tmp_path, lambda mail: None).deliver()
    assert "3 alarm events were not delivered by e-mail" in caplog.text


def test_a_clock_that_is_set_back_delays_no_mail(tmp_path: Path) -> None:
    sent: list[EmailMessage] = []
    raised(tmp_path, "orders", at=90_000.0)
    write_delivered(tmp_path, 0, MAILED_FILE)
    mailing(tmp_path, sent.append, clock=lambda: 1000.0).deliver()
    assert len(sent) == 1 and read_delivered(tmp_path, MAILED_FILE) == 1


def test_a_server_without_tls_gets_neither_password_nor_mail(tmp_path: Path) -> None:
    raised(tmp_path, "orders")
    pauses: list[float] = []
    with mail_server(None) as server:
        send = sending(server.address, "starttls", "night", "secret")
        mailing(tmp_path, send, wait=pauses.append).deliver()
        assert server.mails == [] and "AUTH" not in server.commands
        assert len(pauses) == TRIES - 1 and read_delivered(tmp_path, MAILED_FILE) is None
        mailing(tmp_path, sending(server.address, "none", "", "")).deliver()
        assert len(server.mails) == 1, "with another setting, the mail is sent"


@pytest.mark.parametrize(
    ("greeting", "why"), [(b"220-x\r\n", "timed out"), (b"220-" + b"x" * 6000 + b"\r\n", "more than")]
)
def test_a_mail_server_that_never_finishes_its_greeting_is_left(
    monkeypatch: pytest.MonkeyPatch, greeting: bytes, why: str
) -> None:
    begun, seconds = time.monotonic(), itertools.count(0, 0.01 if why == "more than" else 1)
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: begun + next(seconds)))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def flood() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                while True:
                    connection.sendall(greeting)

        threading.Thread(target=flood, daemon=True).start()
        with pytest.raises(OSError, match=why):
            sending(f"127.0.0.1:{listener.getsockname()[1]}", "none", "", "")(EmailMessage())


def test_a_mail_server_with_implicit_tls_gets_the_mail(tmp_path: Path) -> None:
    files = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    with mail_server(None, context) as server:
        alarms = raised(tmp_path, "orders")
        mail = mail_of(alarms.events, "mq1", "a@b", ("c@d",))
        with pytest.raises(ssl.SSLCertVerificationError):
            sending(server.address, "tls", "", "")(mail)
        sending(server.address, "tls", "night", "secret", ssl.create_default_context(cafile=files[0]))(mail)
        assert len(server.mails) == 1 and "AUTH" in server.commands


def test_a_mail_that_was_accepted_is_not_sent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither if the server answers QUIT with an error, nor if it refuses one of two recipients, which the log says."""
    raised(tmp_path, "orders")
    with mail_server(None) as server:
        server.answers |= {"QUIT": "421 too busy", "rcpt to:<gone@d>": "550 unknown"}
        send = sending(server.address, "none", "", "")
        mailing(tmp_path, send, "c@d", "gone@d", wait=pytest.fail).deliver()
        assert len(server.mails) == 1 and read_delivered(tmp_path, MAILED_FILE) == 1
    assert f"the mail server {server.address} refused gone@d as a recipient of alarms: 550 unknown" in caplog.text


@pytest.mark.parametrize("login", [("night", "geheimü"), ("jörg", "secret")])
def test_a_login_that_smtp_cannot_send_is_refused_at_the_start(login: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="ASCII"):
        sending("mail", "tls", *login)


@pytest.mark.parametrize("host", ["mail..example", "m" * 64])
def test_a_name_that_no_host_can_have_is_named_in_the_log(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    raised(tmp_path, "orders")
    mailing(tmp_path, sending(host, "tls", "", "")).deliver()
    said = "alarm events (oldest raised) can't be delivered by e-mail, retrying every 60 s"
    assert f"{said}: {host} is not a valid name of a host" in caplog.text


def test_a_mail_server_that_is_busy_gets_the_mail_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Greylisting refuses the first mails of a sender for some minutes, with a 4xx reply."""
    raised(tmp_path, "orders")
    with mail_server(None) as server:
        mailer = mailing(tmp_path, sending(server.address, "none", "", ""))
        server.answers["rcpt to:<night@example.org>"] = "451 come back later"
        assert not mailer.deliver() and not mailer.deliver()
        assert caplog.text.count("retrying every 60 s: night@example.org: 451 come back later") == 1
        raised(tmp_path, "orders", "bills")
        del server.answers["rcpt to:<night@example.org>"]
        assert mailer.deliver() and mailer.deliver()
        assert [mail["Subject"] for mail in server.mails] == ["mq1: alarms 2 raised"]
    assert "alarm events are delivered by e-mail again" in caplog.text


def test_a_mail_that_a_server_refuses_blocks_no_later_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    raised(tmp_path, "orders")
    with mail_server(None) as server:
        mailer = mailing(tmp_path, sending(server.address, "none", "", ""))
        server.answers["."] = "554 looks like spam"
        assert mailer.deliver() and read_delivered(tmp_path, MAILED_FILE) == 1
    assert "(oldest raised) were not delivered by e-mail: refused 5 times: 554 looks like spam" in caplog.text


@pytest.mark.parametrize(
    ("command", "reply", "said"),
    [
        ("AUTH", "535 wrong password", "535 wrong password"),
        ("mail from:<openmsmq@mq1>", "550 who?", "550 who?"),
        ("rcpt to:<night@example.org>", "550 unknown", "night@example.org: 550 unknown"),
    ],
)
def test_a_mail_waits_until_wrong_settings_are_corrected(
    tmp_path: Path, command: str, reply: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    raised(tmp_path, "orders")
    with mail_server(None) as server:
        mailer = mailing(tmp_path, sending(server.address, "none", "night", "secret"))
        server.answers[command] = reply
        assert not mailer.deliver() and read_delivered(tmp_path, MAILED_FILE) is None
        del server.answers[command]
        assert mailer.deliver() and len(server.mails) == 1
    assert f"can't be delivered by e-mail, retrying every 60 s: {said}" in caplog.text


def test_a_name_of_a_queue_adds_no_header_and_no_line() -> None:
    alarms = Alarms()
    [event] = alarms.update({("oldest", "q\nBcc: all@example.org\r\n\u202e"): 183.0}, THRESHOLDS, 1)
    mail = mail_of([event], "mq1", "a@b", ("c@d",))
    assert mail["Bcc"] is None and "\n" not in mail["Subject"] and "\u202e" not in mail.as_string()
    assert not [line for line in mail.get_content().splitlines() if line.startswith("Bcc")]


def test_where_the_mail_server_is() -> None:
    assert host_and_port("mail", "starttls") == ("mail", 587) and host_and_port("mail:26", "tls") == ("mail", 26)
    assert host_and_port("[::1]:25", "none") == ("::1", 25) and host_and_port("mail", "tls") == ("mail", 465)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"alarm_mail_to": "nobody"}, "addresses"), ({"alarm_mail_to": "a@b", "web": False}, "web is not set"),
     ({"alarm_mail_tls": "maybe"}, "starttls, tls, none"), ({"alarm_mail_user": "night"}, "alarm_mail_password_file"),
     ({"alarm_mail_user": "n", "alarm_mail_password_file": Path("p"), "alarm_mail_tls": "none"}, "has a password"),
     ({"alarm_mail_server": "a b"}, "HOST:PORT")],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Configuration(data_dir=tmp_path, **{"web": True, **wrong})  # type: ignore[arg-type]


def test_a_daemon_sends_mail(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    raised(data, "orders")
    write_delivered(data, 0, MAILED_FILE)
    with mail_server(None) as server:
        given = {"to": "night@example.org", "server": server.address, "tls": "none"}
        options = [word for name, value in given.items() for word in (f"--alarm-mail-{name}", value)]
        with Daemon(data, "--web", "--web-port", "0", *options):
            mail = eventually(lambda: server.mails)[0]
    assert mail["To"] == "night@example.org" and mail["From"].startswith("openmsmq@")
