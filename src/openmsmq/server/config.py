"""The configuration of the daemon: one schema for TOML file, environment and command line.

A setting `rpc_port` is `rpc_port = 2103` in the file, `OPENMSMQ_RPC_PORT=2103` in the environment and
`--rpc-port 2103` on the command line; the later wins. Unknown names are refused with the names that exist. Tables, such
as `[[foreign_site]]`, are for the file only.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from uuid import UUID

from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import IllegalQueuePathName
from openmsmq.model.names import parse_path_name
from openmsmq.protocols.remote_read_security import RemoteReadSecurity
from openmsmq.queueing.connectors import ForeignSite
from openmsmq.queueing.properties import MAXIMUM_LABEL
from openmsmq.queueing.state import Machine
from openmsmq.rpc.pdu import AuthLevel

LEVELS = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "packet": AuthLevel.PKT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}
STANDARD_PORT = 2103  # of qmcomm
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class ConfigurationError(Exception):
    """A setting is unknown or has a value that is not allowed; the message names both."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings. Ports of 0 let the system choose."""

    data_dir: Path = field(default=Path("/var/lib/openmsmq"), metadata={"help": "where queues and messages live"})
    listen: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port_offset: int = field(default=0, metadata={"help": "added to every standard port"})
    endpoint_mapper_port: int = field(default=135, metadata={"help": "port of the endpoint mapper"})
    rpc_port: int = field(default=2103, metadata={"help": "port of qmcomm and qmcomm2"})
    computer_name: str = field(default="", metadata={"help": "name in path names; default: the host's"})
    users_file: Path | None = field(default=None, metadata={"help": "users; default: users.json in the data directory"})
    allow_anonymous: bool | None = field(
        default=None, metadata={"help": "serve unauthenticated callers; default: only on loopback"}
    )
    anonymous_is_administrator: bool = field(
        default=False, metadata={"help": "let unauthenticated callers administer the queue manager"}
    )
    time_to_reach_queue: int = field(
        default=345600, metadata={"help": "seconds until a message that can't be delivered dies, if it says nothing"}
    )
    minimum_level: str = field(default="none", metadata={"help": f"least protection of calls: {', '.join(LEVELS)}"})
    interface_levels: str = field(
        default="", metadata={"help": "stronger levels for some interfaces: qmcomm2=privacy,qmmgmt=integrity"}
    )
    allow_nonauthenticated_rpc: bool = field(
        default=False, metadata={"help": "let clients in workgroups read from other machines without authentication"}
    )
    remote_read_deny_workgroup_client: bool = field(
        default=False, metadata={"help": "allow_nonauthenticated_rpc notwithstanding"}
    )
    remote_read_allow_none_security_client: bool = field(
        default=False,
        metadata={"help": "let everybody read without authentication from queues that Anonymous Logon may read"},
    )
    machine_quota: int = field(default=INFINITE, metadata={"help": "kilobytes for all queues"})
    journal_quota: int = field(default=INFINITE, metadata={"help": "kilobytes for the machine journal"})
    peers: str = field(
        default="", metadata={"help": "where other queue managers are: NAME=host:port,NAME=host; default: by name"}
    )
    peer_user: str = field(default="", metadata={"help": "user at other queue managers; default: anonymous"})
    peer_domain: str = field(default="", metadata={"help": "domain of peer_user"})
    peer_password_file: Path | None = field(default=None, metadata={"help": "file with the password of peer_user"})
    minimum_free_megabytes: int = field(
        default=64, metadata={"help": "no messages are taken while the disk has less; 0 for no limit"}
    )
    checkpoint_megabytes: int = field(default=256, metadata={"help": "log written between checkpoints, at least"})
    flight: bool = field(default=False, metadata={"help": "serve Arrow Flight too, for data pipelines"})
    flight_port: int = field(default=18020, metadata={"help": "port of Arrow Flight"})
    flight_certificate: Path | None = field(
        default=None, metadata={"help": "PEM file for TLS on the Flight port; default: plain text, on loopback only"}
    )
    flight_key: Path | None = field(default=None, metadata={"help": "PEM file with the key of flight_certificate"})
    foreign_site: tuple[ForeignSite, ...] = field(
        default=(),
        metadata={"help": "sites without Message Queuing: tables with identifier, name, machines", "file_only": True},
    )
    log_level: str = field(default="info", metadata={"help": "debug, info, warning or error"})

    def __post_init__(self) -> None:
        _check(self.minimum_level in LEVELS, "minimum_level", self.minimum_level, f"one of {', '.join(LEVELS)}")
        for interface, level in self.levels_by_interface.items():
            _check(level in LEVELS, f"interface_levels ({interface})", level, f"one of {', '.join(LEVELS)}")
        levels = ("debug", "info", "warning", "error")
        _check(self.log_level in levels, "log_level", self.log_level, f"one of {', '.join(levels)}")
        for name in ("endpoint_mapper_port", "rpc_port", "flight_port"):
            port = getattr(self, name)
            _check(0 <= port <= 65535, name, port, "0 to 65535")
            _check(port == 0 or port + self.port_offset <= 65535, "port_offset", self.port_offset, "ports to 65535")
        _check(self.port_offset >= 0, "port_offset", self.port_offset, "0 or more")
        for name in ("machine_quota", "journal_quota"):
            _check(0 <= getattr(self, name) <= INFINITE, name, getattr(self, name), "0 to 4294967295 kilobytes")
        seconds = self.time_to_reach_queue
        _check(0 < seconds < INFINITE, "time_to_reach_queue", seconds, "1 to 4294967294 seconds")
        _check(self.minimum_free_megabytes >= 0, "minimum_free_megabytes", self.minimum_free_megabytes, "0 or more")
        _check(self.checkpoint_megabytes > 0, "checkpoint_megabytes", self.checkpoint_megabytes, "1 or more")
        for name in ("allow_nonauthenticated_rpc", "remote_read_allow_none_security_client"):
            consistent = self.allow_anonymous is not False or not getattr(self, name)
            _check(consistent, name, True, "false, because allow_anonymous is false")
        self._check_foreign_sites()
        self.hosts_of_peers  # noqa: B018 - raises for a value that is not allowed
        given = bool(self.peer_user) == bool(self.peer_password_file)
        _check(given, "peer_password_file", self.peer_password_file, "given if and only if peer_user is")
        given = bool(self.flight_certificate) == bool(self.flight_key)
        _check(given, "flight_key", self.flight_key, "given if and only if flight_certificate is")
        try:
            ipaddress.IPv4Address(self.listen)
        except ValueError:
            _check(self.listen == "localhost", "listen", self.listen, "an IPv4 address or localhost")
        safe = not self.flight or self.on_loopback or self.flight_certificate is not None
        _check(safe, "flight_certificate", self.flight_certificate, "a file, because passwords would travel as text")

    def _check_foreign_sites(self) -> None:
        identifiers = [str(site.identifier) for site in self.foreign_site]
        machines = [machine.lower() for site in self.foreign_site for machine in site.machines]
        for values, what in ((identifiers, "identifier"), (machines, "machines")):
            twice = next((value for value in values if values.count(value) > 1), None)
            _check(twice is None, f"foreign_site ({what})", twice, "in one site only, once")
        here = Machine(self.machine_name, b"")
        own = next((machine for machine in machines if here.is_local(machine)), None)
        _check(own is None, "foreign_site (machines)", own, "other machines than this one")

    @property
    def hosts_of_peers(self) -> dict[str, tuple[str, int]]:
        """Lower-case computer name -> host and port. Raises ConfigurationError."""
        hosts = {}
        for part in (part.strip() for part in self.peers.split(",") if part.strip()):
            name, separator, address = part.partition("=")
            host, _, port = address.rpartition(":") if ":" in address else (address, "", str(STANDARD_PORT))
            valid = bool(separator and name.strip() and host) and port.isdecimal() and 0 < int(port) <= 65535
            _check(valid, "peers", part, "NAME=host or NAME=host:port, separated by commas")
            hosts[name.strip().lower()] = (host.strip(), int(port))
        return hosts

    @property
    def levels_by_interface(self) -> dict[str, str]:
        """Interface name -> level; `none` where none is given."""
        pairs = [part.partition("=") for part in self.interface_levels.split(",") if part.strip()]
        return {name.strip(): level.strip() for name, _, level in pairs}

    def minimum_level_of(self, interface: str) -> AuthLevel:
        """What callers of one interface must have negotiated, at least.

        RemoteRead asks for privacy off loopback unless told otherwise ([MS-MQRR] 3.1.4.2, note 19).
        """
        default = "privacy" if interface == "RemoteRead" and not self.on_loopback else "none"
        return LEVELS[self.levels_by_interface.get(interface, default)]

    @property
    def remote_read_security(self) -> RemoteReadSecurity:
        return RemoteReadSecurity(
            self.allow_nonauthenticated_rpc,
            self.remote_read_deny_workgroup_client,
            self.remote_read_allow_none_security_client,
        )

    @property
    def on_loopback(self) -> bool:
        return self.listen == "localhost" or ipaddress.IPv4Address(self.listen).is_loopback

    @property
    def accepts_anonymous(self) -> bool:
        return self.on_loopback if self.allow_anonymous is None else self.allow_anonymous

    @property
    def machine_name(self) -> str:
        return self.computer_name or socket.gethostname().partition(".")[0] or "localhost"

    @property
    def users_path(self) -> Path:
        return self.users_file or self.data_dir / "users.json"

    def port(self, standard: int) -> int:
        return standard + self.port_offset if standard else 0


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Configuration:
    """Merge file, environment and options (None values are not given). Raises ConfigurationError."""
    values: dict[str, Any] = {}
    if file is not None:
        values.update(_read_file(file))
    for name, text in (environment if environment is not None else os.environ).items():
        if name.startswith("OPENMSMQ_") and (setting := name.removeprefix("OPENMSMQ_").lower()) in _TYPES:
            values[setting] = text
    values.update({name: value for name, value in (options or {}).items() if value is not None})
    return Configuration(**{name: _convert(name, value) for name, value in values.items()})


_TYPES = {f.name: str(f.type) for f in fields(Configuration)}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    for name in values:
        if name not in _TYPES:
            raise ConfigurationError(f"{file}: unknown setting {name!r}; known are {', '.join(sorted(_TYPES))}")
    return values


def _convert(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    if "ForeignSite" in kind:
        return tuple(_foreign_site(table) for table in _tables(name, value))
    if "Path" in kind:
        return Path(value).expanduser()
    if "bool" in kind and isinstance(value, str):
        lowered = value.lower()
        _check(lowered in _TRUE + _FALSE, name, value, f"one of {', '.join(_TRUE + _FALSE)}")
        return lowered in _TRUE
    if kind == "int":
        try:
            return int(value)
        except (TypeError, ValueError):
            _check(False, name, value, "a whole number")
    return value


def _tables(name: str, value: Any) -> list[dict[str, Any]]:
    tables = isinstance(value, list) and all(isinstance(table, dict) for table in value)
    _check(tables, name, value, f"[[{name}]] tables in the configuration file")
    return list(value)


def _foreign_site(table: dict[str, Any]) -> ForeignSite:
    what, known = "foreign_site", ("identifier", "name", "machines")
    for key in table:
        _check(key in known, what, key, f"the keys {', '.join(known)}")
    identifier, name, machines = table.get("identifier"), table.get("name", ""), table.get("machines")
    try:
        guid = UUID(identifier)
    except (TypeError, ValueError, AttributeError):
        _check(False, f"{what} (identifier)", identifier, "a GUID of the form 8-4-4-4-12 hexadecimal digits")
    valid = isinstance(name, str) and len(name) <= MAXIMUM_LABEL
    _check(valid, f"{what} (name)", name, f"text of at most {MAXIMUM_LABEL} characters")
    listed = isinstance(machines, list) and machines and all(isinstance(m, str) and _is_host(m) for m in machines)
    _check(bool(listed), f"{what} (machines)", machines, "a list of computer names or addresses, one or more")
    return ForeignSite(guid, name or str(guid), tuple(table["machines"]))


def _is_host(text: str) -> bool:
    """Whether a computer name or address can stand in a direct format name."""
    try:
        return parse_path_name(f"{text}\\private$\\q").computer == text
    except IllegalQueuePathName:
        return False


def _check(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise ConfigurationError(f"{name} is {value!r}; allowed: {allowed}")
