"""The configuration of the daemon: settings whose values are allowed, alone and together. `loading` reads it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msrpc.rpc.sockets import LEAST_DEAD_PEER
from openmsmq.admin.alarms import CONDITIONS, OF_QUEUES, parse_thresholds
from openmsmq.gateways.openid import is_safe_url
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import IllegalFormatName
from openmsmq.model.names import parse_format_name
from openmsmq.oletx.structures import LONGEST_NAME
from openmsmq.processes.logs import FORMATTERS
from openmsmq.queueing.machine import Machine
from openmsmq.server.allowed_values import (
    DIRECTORIES,
    LEVELS,
    LOGINS,
    NAME_CHANGES,
    NEW_QUEUE_ACCESS,
    PEER_LOGINS,
    STANDARD_PORTS,
    TRANSACTION_LEVELS,
    ConfigurationError,
    check,
    is_domain_sid,
    is_host,
    is_url,
)
from openmsmq.server.daemon_settings import DaemonSettings

__all__ = ["Configuration", "ConfigurationError"]

_WORDS: Final = {
    "minimum_level": LEVELS, "new_queue_access": NEW_QUEUE_ACCESS, "name_change": NAME_CHANGES,
    "directory_provider": DIRECTORIES, "log_level": ("debug", "info", "warning", "error"), "log_format": FORMATTERS,
    "peer_login": PEER_LOGINS, "distributed_transactions": TRANSACTION_LEVELS,
    "alarm_mail_tls": ("starttls", "tls", "none"),
}  # fmt: skip


class _Range(NamedTuple):
    """A range of numbers, and the text that describes it. Without `highest` it has no upper end."""

    lowest: float
    highest: float | None
    text: str


def _least(lowest: int, unit: str = "") -> _Range:
    return _Range(lowest, None, f"{lowest} {unit} or more" if unit else f"{lowest} or more")


_QUOTA: Final = _Range(0, INFINITE, f"0 to {INFINITE} kilobytes")
_RANGES: Final = {
    "port_offset": _least(0), "machine_quota": _QUOTA, "journal_quota": _QUOTA,
    **dict.fromkeys((
        "max_queues", "max_queues_per_owner", "max_outgoing_queues", "max_connections", "max_connections_per_peer",
        "max_com_objects", "max_com_objects_per_peer", "max_com_megabytes", "max_com_megabytes_per_peer",
        "max_sessions", "max_sessions_per_peer", "checkpoint_megabytes", "audit_megabytes",
    ), _least(1)),
    "time_to_reach_queue": _Range(1, INFINITE - 1, f"1 to {INFINITE - 1} seconds"),
    "stage_time_limit": _least(180, "seconds"), "minimum_free_megabytes": _least(0),
    "shutdown_grace_seconds": _least(0), "dead_peer_seconds": _least(LEAST_DEAD_PEER),
    **{condition.setting: _Range(0, None, f"0 or more {condition.unit}") for condition in CONDITIONS},
    "metrics_queues": _Range(0, 1000, "0 to 1000"),
}  # fmt: skip

#: Settings that are given together or not at all; the second one is named if one is missing.
_PAIRS: Final = (
    ("peer_user", "peer_password_file"), ("flight_certificate", "flight_key"), ("web_certificate", "web_key"),
    ("oidc_issuer", "oidc_client_id"),
)  # fmt: skip
_ADDRESS: Final = re.compile(r"[^\s@,;<>\"\\]+@[^\s@,;<>\"\\]+")
_MAIL_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d{1,5})?")

#: Whether a setting has an allowed value: condition, setting, value, what is allowed.
_Checked = tuple[bool, str, object, str]


@dataclass(frozen=True, slots=True)
class Configuration(DaemonSettings):
    """Settings that have been checked. Raises ConfigurationError."""

    def __post_init__(self) -> None:
        for checks in (
            _values, _logins, _directory, _listeners, _queue_manager, _peers, _distributed_transactions, _alarms, _mail,
            _openid,
        ):  # fmt: skip
            for checked in checks(self):
                check(*checked)


def _values(given: DaemonSettings) -> Iterator[_Checked]:
    """The values of single settings."""

    def of(name: str) -> Any:
        return getattr(given, name)

    for name, words in _WORDS.items():
        yield of(name) in words, name, of(name), _one_of(words)
    for name, (lowest, highest, text) in _RANGES.items():
        yield lowest <= of(name) and (highest is None or of(name) <= highest), name, of(name), text
    yield given.com_ping_seconds > 0, "com_ping_seconds", given.com_ping_seconds, "more than 0"
    yield given.alarm_quota_percent <= 100, "alarm_quota_percent", given.alarm_quota_percent, "0 to 100"
    for name in STANDARD_PORTS:
        yield of(name) is None or 0 <= of(name) <= 65535, name, of(name), "0 to 65535"
        yield given.port(name, given.port_offset) <= 65535, "port_offset", given.port_offset, "ports to 65535"
    for interface, level in given.levels_by_interface.items():
        yield level in LEVELS, f"interface_levels ({interface})", level, _one_of(LEVELS)
    yield not given.com_level or given.com_level in LEVELS, "com_level", given.com_level, _one_of(LEVELS)
    for first, second in _PAIRS:
        yield bool(of(first)) == bool(of(second)), second, of(second), f"given if and only if {first} is"


def _one_of(words: Any) -> str:
    return f"one of {', '.join(words)}"


def _logins(given: DaemonSettings) -> Iterator[_Checked]:
    logins = given.logins_in_order
    known = bool(logins) and len(set(logins)) == len(logins) and set(logins) <= set(LOGINS)
    yield known, "logins", given.logins, f"one or more of {', '.join(LOGINS)}, each once"
    keytab = given.kerberos_keytab
    wanted = "a file, because logins has kerberos; see docs/domain.md"
    yield "kerberos" not in logins or keytab is not None, "kerberos_keytab", keytab, wanted
    for sid in given.domain_administrator_sids:
        yield is_domain_sid(sid), "domain_administrators", sid, "SIDs of a domain, as S-1-5-21-1-2-3-512"
    for name in ("allow_nonauthenticated_rpc", "remote_read_allow_none_security_client"):
        consistent = given.allow_anonymous is not False or not getattr(given, name)
        yield consistent, name, True, "false, because allow_anonymous is false"


def _directory(given: DaemonSettings) -> Iterator[_Checked]:
    in_domain = given.directory_provider == "active-directory"
    wanted = "given, because directory_provider is active-directory; see docs/domain.md"
    located = not in_domain or bool(given.controllers or given.directory_domain)
    yield located, "directory_controllers", given.directory_controllers, wanted + "; or directory_domain"
    domain = given.directory_domain
    yield not domain or is_host(domain), "directory_domain", domain, "the DNS name of a domain, as example.com"
    yield not in_domain or given.kerberos_keytab is not None, "kerberos_keytab", given.kerberos_keytab, wanted


def _listeners(given: DaemonSettings) -> Iterator[_Checked]:
    """Addresses, and certificates without which passwords would travel as text."""
    local = given.listen == "localhost" or _is_address(given.listen)
    yield local, "listen", given.listen, "an IPv4 or IPv6 address, or localhost"
    yield _is_address(given.web_address), "web_listen", given.web_listen, "an IPv4 or IPv6 address"
    wanted = "a file, because passwords would travel as text"
    safe = not given.web or given.web_on_loopback or given.web_certificate is not None
    yield safe, "web_certificate", given.web_certificate, wanted
    safe = not given.flight or given.on_loopback or given.flight_certificate is not None
    yield safe, "flight_certificate", given.flight_certificate, wanted


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _queue_manager(given: DaemonSettings) -> Iterator[_Checked]:
    """Names, files and other queue managers."""
    yield given.audit or not given.audit_required, "audit", given.audit, "true, because audit_required is true"
    backups = given.backup_directory
    is_outside = backups is None or not backups.resolve().is_relative_to(given.data_dir.resolve())
    yield is_outside, "backup_directory", backups, "outside of the data directory, of which backups are made"
    for alias in given.alias_names:
        yield is_host(alias), "aliases", alias, "computer names, separated by commas"
    named = not given.computer_name or (is_host(given.computer_name) and "." not in given.computer_name)
    wanted = "a name of at most 63 characters, without dots and characters that queue names give a meaning"
    yield named and len(given.computer_name) <= 63, "computer_name", given.computer_name, wanted
    valid = not given.report_queue or bool(given.report_queue_identifier)
    yield valid, "report_queue", given.report_queue, "PUBLIC= and the GUID of a public queue"
    identifiers = [str(site.identifier) for site in given.foreign_site]
    machines = [machine.lower() for site in given.foreign_site for machine in site.machines]
    for values, what in ((identifiers, "identifier"), (machines, "machines")):
        twice = next((value for value in values if values.count(value) > 1), None)
        yield twice is None, f"foreign_site ({what})", twice, "in one site only, once"
    here = Machine(given.machine_name, b"")
    own = next((machine for machine in machines if here.is_local(machine)), None)
    yield own is None, "foreign_site (machines)", own, "other machines than this one"


def _peers(given: DaemonSettings) -> Iterator[_Checked]:
    given.hosts_of_peers  # noqa: B018 - raises for a value that is not allowed
    by_domain = given.peer_login == "kerberos"
    keytab = given.kerberos_keytab
    yield not by_domain or keytab is not None, "kerberos_keytab", keytab, "a file, because peer_login is kerberos"
    alone = not by_domain or not given.peer_user
    yield alone, "peer_user", given.peer_user, "none, because peer_login is kerberos"


def _distributed_transactions(given: DaemonSettings) -> Iterator[_Checked]:
    chosen, name = given.distributed_transactions, given.machine_name
    wanted = f"off, because the computer name {name} has more than {LONGEST_NAME} characters; see computer_name"
    yield chosen == "off" or len(name) <= LONGEST_NAME, "distributed_transactions", chosen, wanted


def _alarms(given: DaemonSettings) -> Iterator[_Checked]:
    """The destinations of alarms and traces."""
    wanted = "the name of a queue, a path name or a format name"
    yield _is_format_name(given.alarm_queue_name), "alarm_queue", given.alarm_queue, wanted
    for name in ("alarm_webhook", "trace_endpoint"):
        url = getattr(given, name)
        yield not url or is_url(url), name, url, "a URL that begins with http:// or https://"
    for name in ("alarm_webhook", "alarm_mail_to"):
        served = given.web or not getattr(given, name)
        yield served, name, getattr(given, name), "unset, because web is not set, whose process sends it"
    wanted = f"QUEUE:ALARM=VALUE, separated by commas; the alarms are {', '.join(OF_QUEUES)}"
    yield _has_thresholds(given.alarm_by_queue), "alarm_by_queue", given.alarm_by_queue, wanted


def _is_format_name(text: str) -> bool:
    try:
        parse_format_name(text or "DIRECT=OS:.\\private$\\none")
    except IllegalFormatName:
        return False
    return True


def _has_thresholds(text: str) -> bool:
    try:
        parse_thresholds(text)
    except ValueError:
        return False
    return True


def _mail(given: DaemonSettings) -> Iterator[_Checked]:
    addresses = [*given.alarm_mail_recipients, *([given.alarm_mail_from] if given.alarm_mail_from else [])]
    known = all(_ADDRESS.fullmatch(address) for address in addresses)
    wanted = "addresses such as night@example.org, separated by commas"
    yield known, "alarm_mail_to", ", ".join(addresses), wanted
    server = given.alarm_mail_server
    yield bool(_MAIL_SERVER.fullmatch(server)), "alarm_mail_server", server, "HOST or HOST:PORT"
    user = given.alarm_mail_user
    logs_in = bool(user) == (given.alarm_mail_password_file is not None)
    yield logs_in, "alarm_mail_user", user, "set together with alarm_mail_password_file"
    wanted = "starttls or tls, because alarm_mail_user has a password"
    yield not user or given.alarm_mail_tls != "none", "alarm_mail_tls", given.alarm_mail_tls, wanted


def _openid(given: DaemonSettings) -> Iterator[_Checked]:
    issuer, secret = given.oidc_issuer, given.oidc_client_secret_file
    safe = is_safe_url(issuer) and not {"?", "#"} & set(issuer)
    yield not issuer or safe, "oidc_issuer", issuer, "a URL that begins with https:// (http:// on loopback)"
    yield not issuer or given.web, "oidc_issuer", issuer, "unset, because web is not set"
    unset = "unset, because oidc_issuer is not set"
    yield bool(issuer) or secret is None, "oidc_client_secret_file", secret, unset
    yield bool(given.oidc_user_claim), "oidc_user_claim", given.oidc_user_claim, "the name of a claim"
