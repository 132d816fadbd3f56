"""Convert arguments of the public methods to those of client operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msrpc.rpc.credentials import Credentials
from msrpc.rpc.kerberos import KerberosCredentials
from openmsmq.model.bodies import BodyError, BodyValue
from openmsmq.model.message import Message, identifier_from_text

STANDARD_PORT = 2103  # of qmcomm and qmcomm2, [MS-MQMP] 3.1.4.24
ALL_SECURITY = 0x7  # owner, group and DACL
COUNTS = ("message_count", "bytes_in_queue", "journal_message_count", "bytes_in_journal")


def credentials_of(
    host: str, user: str | None, password: str, domain: str, kerberos: bool | KerberosCredentials
) -> Credentials | KerberosCredentials | None:
    """Combine the credentials given to `connect`; a user may be given as DOMAIN\\user. Raises ValueError."""
    if not kerberos:
        if user is None:
            return None
        if not domain and "\\" in user:
            domain, _, user = user.partition("\\")
        if not user or password is None:
            raise ValueError(f"user is {user!r} and the password {'given' if password else 'missing'}; allowed: a name "
                             "and a password, or user=None to be anonymous")  # fmt: skip
        return Credentials(user, password, domain)
    if user is not None:
        raise ValueError("user is for NTLM; with kerberos, the ticket identifies the caller")
    given = kerberos if isinstance(kerberos, KerberosCredentials) else KerberosCredentials()
    return given if given.service else replace(given, service=f"host/{host}")


def as_message(value: Message | BodyValue, properties: dict[str, Any]) -> Message:
    """Return a message from a value and properties; `recoverable=True` is short for delivery_guarantee=1. Raises
    BodyError, TypeError, ValueError."""
    if "recoverable" in properties:
        properties["delivery_guarantee"] = int(bool(properties.pop("recoverable")))
    if isinstance(identifier := properties.get("correlation_identifier"), str):
        properties["correlation_identifier"] = identifier_from_text(identifier)
    if isinstance(value, Message):
        if properties:
            raise TypeError(f"properties are allowed only with a body, not with a Message: {', '.join(properties)}")
        if not isinstance(value.body, bytes | bytearray | memoryview):
            kind = type(value.body).__name__
            raise BodyError(f"the body of a Message is a {kind}, allowed: bytes; Message.of(value) encodes others")
        return value
    return Message.of(value, **properties)
