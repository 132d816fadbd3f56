"""Allowed values of settings, and how a setting with another value is reported."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from msrpc.rpc.pdu import AuthLevel
from openmsmq.model.errors import IllegalQueuePathName
from openmsmq.model.names import parse_path_name
from openmsmq.model.security import sid_bytes

LEVELS: Final = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "packet": AuthLevel.PKT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}
STANDARD_PORT: Final = 2103  # of qmcomm
STANDARD_PORTS: Final = {
    "endpoint_mapper_port": 135, "rpc_port": STANDARD_PORT, "message_port": 1801, "peer_message_port": 1801,
    "ping_port": 3527, "flight_port": 18020, "web_port": 18021,
    "arrow_port": 18022,
}  # fmt: skip
LOGINS: Final = ("kerberos", "ntlm", "winbind")
NEW_QUEUE_ACCESS: Final = ("auto", "everyone", "owner")
PEER_LOGINS: Final = ("ntlm", "kerberos")
TRANSACTION_LEVELS: Final = ("off", "none", "incoming", "mutual", "on")
DIRECTORIES: Final = ("sqlite", "active-directory", "none")
NAME_CHANGES: Final = ("ask", "moved", "copied")


class ConfigurationError(Exception):
    """A setting is unknown or has a value that is not allowed; the message names both."""


def check(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise ConfigurationError(f"{name} is {value!r}; allowed: {allowed}")


def is_host(text: str) -> bool:
    """Whether a computer name or address is valid in a direct format name."""
    try:
        return parse_path_name(f"{text}\\private$\\q").computer == text
    except IllegalQueuePathName:
        return False


def is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname)
    except ValueError:
        return False


def is_domain_sid(text: str) -> bool:
    try:
        sid_bytes(text)
    except ValueError:
        return False
    return text.startswith("S-1-5-21-")


def host_and_port(address: str) -> tuple[str, str]:
    """Split host and port, with the standard port as default. Returns empty strings for an invalid address."""
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or not _is_ipv6(host) or (rest and not rest.startswith(":")):
            return "", ""
        return host, rest[1:] if rest else str(STANDARD_PORT)
    if address.count(":") > 1:  # IPv6 without brackets: it is unclear whether the last number is a port
        return (address, str(STANDARD_PORT)) if _is_ipv6(address) else ("", "")
    host, colon, port = address.partition(":")
    return host.strip(), port if colon else str(STANDARD_PORT)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
