"""Alarms by e-mail: one mail for all events within a short time.

It runs in a thread of the web process, as webhooks do, so a slow or unavailable mail server blocks nothing.
"""

from __future__ import annotations

import contextlib
import logging
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Any, Final, Protocol

from openmsmq.admin.alarms import MAILED_FILE, Event
from openmsmq.admin.deadlines import TimedSocket, connect_by
from openmsmq.console.delivery import AlarmDelivery, EventsRefused
from openmsmq.model.remedies import for_terminal
from openmsmq.model.text import printable, reason_of, time_text

logger = logging.getLogger(__name__)

GATHER: Final = 30.0  # seconds after the first event in which later events are added to its mail
_SECONDS: float = 10.0  # time limit of one attempt
_MOST: Final = 1 << 20  # bytes of the replies of a mail server
_LEAST: Final = 0.001  # seconds; a timeout of 0 would make a socket non-blocking
_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}


class SendMail(Protocol):
    """Sends a mail. Raises OSError, which smtplib's errors are."""

    def __call__(self, mail: EmailMessage) -> None: ...


class AlarmMailer:
    """Sends alarms by e-mail, with `AlarmDelivery`. `machine` is the name of this machine in the mails; `is_served` and
    `wait` are as for `AlarmDelivery`."""

    def __init__(
        self, data_dir: Path, machine: str, sender: str, recipients: tuple[str, ...], send: SendMail,
        is_served: Callable[[], bool] = lambda: True, wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._machine, self._sender, self._recipients, self._send_mail = machine, sender, recipients, send
        self._clock = clock
        self.delivery: Final = AlarmDelivery(
            data_dir, "by e-mail", MAILED_FILE, self._gathered, self._send, is_served, wait
        )

    def _gathered(self, events: Sequence[Event]) -> list[Sequence[Event]]:
        """Return all events as one batch, none while further ones may join it."""
        if not events or 0 <= self._clock() - events[0].at < GATHER:  # negative: the clock was set back
            return []
        return [events]

    def _send(self, events: Sequence[Event]) -> None:
        mail = mail_of(events, self._machine, self._sender, self._recipients)
        try:
            self._send_mail(mail)
        except smtplib.SMTPRecipientsRefused as error:
            answers = [f"{recipient}: {code} {_text(text)}" for recipient, (code, text) in error.recipients.items()]
            raise OSError("; ".join(answers)) from None
        except smtplib.SMTPResponseException as error:
            # A refused login, sender or recipient is corrected in the settings; only the mail itself can be at fault
            # for good, with a reply 5xx after DATA. 4xx asks to try again later (RFC 5321, 4.2.1), as greylisting does.
            is_final = isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500
            kind = EventsRefused if is_final else OSError
            raise kind(f"{error.smtp_code} {_text(error.smtp_error)}") from None
        except OSError as error:
            raise OSError(printable(reason_of(error))) from None


def _text(reply: bytes | str) -> str:
    return printable(reply.decode(errors="replace") if isinstance(reply, bytes) else reply)


def mail_of(events: Sequence[Event], machine: str, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    """Return one mail about events: raised alarms first, with their remedies."""
    raised = [event for event in events if event.state == "raised"]
    cleared = [event for event in events if event.state == "cleared"]
    parts = [f"{len(each)} {word}" for each, word in ((raised, "raised"), (cleared, "cleared")) if each]
    subject = f"{machine}: {events[0].alarm.sentence}" if len(events) == 1 else f"{machine}: alarms {', '.join(parts)}"
    lines = []
    for event in (*raised, *cleared):
        alarm = event.alarm
        lines += [f"{event.state.upper()} {time_text(event.at)} {alarm.name}", f"  {printable(alarm.sentence)}"]
        if event.state == "raised":
            lines.append(f"  {printable(for_terminal(alarm.remedy, alarm.steps))}")
        lines.append("")
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, ", ".join(recipients)
    mail["Subject"] = printable(("Cleared: " if len(events) == len(cleared) == 1 else "") + subject)[:200]
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="openmsmq")
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: suppresses automatic replies
    mail.set_content("\n".join(lines))
    return mail


def sending(server: str, tls: str, user: str, password: str, context: ssl.SSLContext | None = None) -> SendMail:
    """Return a function that sends mail by SMTP to `server` (a host, optionally with a port). `tls` is "starttls",
    "tls" (implicit) or "none"; with the first two, `context` (default: that of the system) must trust the server's
    certificate. Raises ValueError for a login that `smtplib` cannot send."""
    if not f"{user}{password}".isascii():
        raise ValueError("the user and the password for a mail server may have ASCII characters only")
    host, port = host_and_port(server, tls)

    def send(mail: EmailMessage) -> None:
        trusted = context or ssl.create_default_context()
        with _TimedSmtp(time.monotonic() + _SECONDS, trusted if tls == "tls" else None) as connection:
            connection.connect(host, port)
            if tls == "starttls":
                connection.starttls(context=trusted)  # raises if the server does not support it
            if user:
                connection.login(user, password)
            refused = connection.send_message(mail)
        for recipient, (status, text) in refused.items():  # smtplib raises only if all are refused
            logger.error("the mail server %s refused %s as a recipient of alarms: %d %s",
                         server, recipient, status, _text(text))  # fmt: skip

    return send


class _TimedSmtp(smtplib.SMTP):
    """An SMTP client with one deadline for the whole conversation; with `implicit`, TLS begins at once."""

    def __init__(self, deadline: float, implicit: ssl.SSLContext | None) -> None:
        super().__init__(timeout=_SECONDS)
        self._deadline: Final = deadline
        self._implicit: Final = implicit

    def __exit__(self, *failure: object) -> None:
        """End the session. The server has accepted or refused the mail before, so a failure here means nothing;
        smtplib would raise it, and the mail would be sent again."""
        with contextlib.suppress(OSError):
            self.docmd("QUIT")
        self.close()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """Connect; smtplib calls this method."""
        self._host = host  # name in the certificate; connect() leaves it empty
        connection = connect_by(host, port, self._deadline)
        return connection if self._implicit is None else self._implicit.wrap_socket(connection, server_hostname=host)

    def send(self, s: Any) -> None:
        """Send bytes or a command. Raises SMTPServerDisconnected, also if the deadline has passed."""
        if self.sock is not None:
            self.sock.settimeout(max(_LEAST, self._deadline - time.monotonic()))
        super().send(s)

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply. Raises SMTPServerDisconnected, also if the deadline has passed."""
        if self.file is None and self.sock is not None:
            self.file = TimedSocket(self.sock, self._deadline, _MOST).makefile("rb")
        return super().getreply()


def host_and_port(server: str, tls: str) -> tuple[str, int]:
    """Split a host with an optional port. Raises ValueError for an invalid port."""
    host, separator, port = server.rpartition(":")
    if not separator or (":" in host and not host.startswith("[")):
        host, port = server, ""
    return host.strip("[]"), int(port) if port else _PORTS[tls]
