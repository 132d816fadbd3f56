"""The settings of the daemon, and values derived from them. `config` checks them, `loading` reads them."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.sockets import DEAD_PEER
from openmsmq.admin.alarms import CONDITIONS
from openmsmq.admin.audit import FILES, MEGABYTES
from openmsmq.admin.naming import format_name_of
from openmsmq.gateways.openid import OpenIdSettings
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import IllegalFormatName
from openmsmq.model.names import PublicFormatName, Suffix, parse_format_name
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protocols.remote_read_security import RemoteReadSecurity
from openmsmq.protocols.transaction_security import TransactionSecurity
from openmsmq.queueing.outgoing_queues import ForeignSite
from openmsmq.server.allowed_values import LEVELS, STANDARD_PORTS, check, host_and_port


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """All settings. Ports of 0 let the system choose."""

    data_dir: Path = field(default=Path("/var/lib/openmsmq"), metadata={"help": "directory of queues and messages"})
    listen: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port_offset: int = field(default=0, metadata={"help": "added to standard ports, not to given ones"})
    endpoint_mapper_port: int | None = field(
        default=None, metadata={"help": "port of the endpoint mapper; default: 135 plus port_offset"}
    )
    rpc_port: int | None = field(
        default=None, metadata={"help": "port of qmcomm and qmcomm2; default: 2103 plus port_offset"}
    )
    message_port: int | None = field(
        default=None, metadata={"help": "port for messages of other queue managers; default: 1801 plus port_offset"}
    )
    peer_message_port: int | None = field(
        default=None,
        metadata={"help": "port where other queue managers take messages; default: 1801 plus port_offset"},
    )
    ping: bool = field(
        default=False,
        metadata={"help": "answer pings of other queue managers, and ping these before connecting (UDP)"},
    )
    ping_port: int | None = field(
        default=None, metadata={"help": "UDP port of pings, here and elsewhere; default: 3527 plus port_offset"}
    )
    computer_name: str = field(default="", metadata={"help": "name in path names; default: the host's"})
    aliases: str = field(
        default="", metadata={"help": "further names of this machine in path names, separated by commas"}
    )
    name_change: str = field(
        default="ask",
        metadata={
            "help": "how to treat a computer name that differs from the store's: ask (do not start), moved (the queue "
            "manager was renamed and keeps its old names), copied (another queue manager keeps the old name, and this "
            "one gets a new identifier)"
        },
    )
    take_over: bool = field(
        default=False,
        metadata={
            "help": "take the store over from a daemon that still owns it or whose state is unknown; that daemon ends "
            "with exit code 75. For cluster managers, which ensure that only one node starts"
        },
    )
    directory_provider: str = field(
        default="sqlite",
        metadata={
            "help": "where public queues, distribution lists and certificates are kept: sqlite (a file), "
            "active-directory (the domain that kerberos_keytab is of), or none (workgroup mode)"
        },
    )
    directory_path: Path | None = field(
        default=None,
        metadata={
            "help": "the file of the directory, which queue managers of one machine may share; default: "
            "directory.sqlite in the data directory"
        },
    )
    directory_controllers: str = field(
        default="",
        metadata={
            "help": "domain controllers for active-directory by DNS name, separated by commas: the next one is asked "
            "when one does not answer"
        },
    )
    directory_domain: str = field(
        default="",
        metadata={
            "help": "domain by its DNS name, whose controllers DNS has, those of this machine's site first; used where "
            "directory_controllers names none"
        },
    )
    directory_account: str = field(
        default="",
        metadata={"help": "account of this machine for active-directory; default: the computer name and $"},
    )
    users_file: Path | None = field(default=None, metadata={"help": "users; default: users.json in the data directory"})
    logins: str = field(
        default="ntlm",
        metadata={
            "help": "how callers may log in, separated by commas; the first counts that a client offers: ntlm (users "
            "of users_file), kerberos (accounts of the domain), winbind (these by NTLM; of two accounts "
            "of one name the first of ntlm and winbind counts)"
        },
    )
    kerberos_keytab: Path | None = field(
        default=None, metadata={"help": "the keys of this machine's account in the domain, for kerberos"}
    )
    kerberos_principal: str = field(
        default="",
        metadata={
            "help": "the only service that tickets may be for, as host/mq1.example.com; default: all in the keytab"
        },
    )
    domain_administrators: str = field(
        default="",
        metadata={"help": "SIDs of users and groups of the domain that are administrators here, separated by commas"},
    )
    allow_anonymous: bool | None = field(
        default=None, metadata={"help": "serve unauthenticated callers; default: only on loopback"}
    )
    anonymous_is_administrator: bool = field(
        default=False, metadata={"help": "let unauthenticated callers administer the queue manager"}
    )
    system_queue_readers: str = field(
        default="",
        metadata={
            "help": "who may read dead-letter queues and the machine journal besides administrators: users, SIDs, "
            "accounts of the domain as EXAMPLE\\\\alice, everyone, anonymous, authenticated; separated by commas"
        },
    )
    time_to_reach_queue: int = field(
        default=345600, metadata={"help": "default time to reach the queue of messages to other machines, in seconds"}
    )
    minimum_level: str = field(
        default="none", metadata={"help": f"minimum authentication level of calls: {', '.join(LEVELS)}"}
    )
    interface_levels: str = field(
        default="", metadata={"help": "higher levels for some interfaces: qmcomm2=privacy,qmmgmt=integrity"}
    )
    allow_nonauthenticated_rpc: bool = field(
        default=False, metadata={"help": "let clients in workgroups read from other machines without authentication"}
    )
    remote_read_deny_workgroup_client: bool = field(
        default=False, metadata={"help": "refuse clients in workgroups even if allow_nonauthenticated_rpc is set"}
    )
    remote_read_allow_none_security_client: bool = field(
        default=False,
        metadata={"help": "allow reading without authentication from queues that Anonymous Logon may read"},
    )
    machine_quota: int = field(default=INFINITE, metadata={"help": "kilobytes for all queues"})  # D-244
    journal_quota: int = field(default=INFINITE, metadata={"help": "kilobytes for the machine journal"})
    new_queue_access: str = field(
        default="auto",
        metadata={
            "help": "what Everyone may do with a new queue that is created without permissions: auto (of a domain "
            "user: see it; of others: all on loopback, and beyond it see and send), everyone (all), or owner (see "
            "and send)"
        },
    )
    max_queues: int = field(default=100_000, metadata={"help": "private queues, in all"})
    max_queues_per_owner: int = field(
        default=10_000, metadata={"help": "private queues of one owner; administrators have no limit"}
    )
    max_outgoing_queues: int = field(default=16_384, metadata={"help": "outgoing queues"})
    max_connections: int = field(default=8192, metadata={"help": "RPC connections, in all"})
    max_connections_per_peer: int = field(
        default=4096, metadata={"help": "RPC connections from one host; on loopback all clients are one host"}
    )
    max_sessions: int = field(default=4096, metadata={"help": "sessions with other queue managers, in all"})
    max_sessions_per_peer: int = field(
        default=1024, metadata={"help": "sessions with other queue managers on one host"}
    )
    routing_file: Path | None = field(
        default=None, metadata={"help": "TOML file with queue managers, sites and routing links"}
    )
    report_messages: bool = field(
        default=False, metadata={"help": "send reports of messages that are traced on their way (MSMQ's pTrace)"}
    )
    report_queue: str = field(
        default="",
        metadata={"help": "format name PUBLIC=... of the queue for reports of traced messages that are sent here"},
    )
    trust_sender_identifiers: bool = field(
        default=False,
        metadata={"help": "let the SID in a message of another queue manager decide about access, though unproved"},
    )
    trust_queue_manager_identifiers: bool = field(
        default=False,
        metadata={
            "help": "send messages for PRIVATE= queues to any peer claiming their queue manager's identifier, also "
            "from another address than before"
        },
    )
    com_level: str = field(
        default="",
        metadata={
            "help": "minimum authentication level for automation objects over DCOM; default: none on loopback, "
            "otherwise integrity"
        },
    )
    com_ping_seconds: float = field(
        default=120.0, metadata={"help": "how often DCOM clients ping; who does not for three periods is gone"}
    )
    max_com_objects: int = field(default=100_000, metadata={"help": "automation objects, in all"})
    max_com_objects_per_peer: int = field(default=16_384, metadata={"help": "automation objects of one user of a host"})
    max_com_megabytes: int = field(
        default=512, metadata={"help": "MiB of messages that automation objects hold, in all"}
    )
    max_com_megabytes_per_peer: int = field(
        default=128, metadata={"help": "MiB of messages that automation objects of one user of a host hold"}
    )
    com_callback_hosts: str = field(
        default="",
        metadata={
            "help": "hosts where event sinks may be besides the client's own, separated by commas: names or addresses "
            "as clients publish them. Only there does peer_user log in"
        },
    )
    peers: str = field(
        default="",
        metadata={"help": "where other queue managers are: NAME=host,NAME=host:port (of calls); default: by name"},
    )
    peer_login: str = field(
        default="ntlm",
        metadata={
            "help": "how to log in at other queue managers: ntlm (peer_user), kerberos (this machine's account, by "
            "kerberos_keytab; their service is host/ and their name)"
        },
    )
    distributed_transactions: str = field(
        default="off",
        metadata={
            "help": "partners allowed in transactions over several machines (OleTx, as with a Microsoft DTC): off (no "
            "partners), none (any partner, not authenticated), incoming (partners that log in), mutual (partners that "
            "log in as "
            "their computer, and prove it when called), on (mutual with peer_login = kerberos, otherwise none)"
        },
    )
    peer_user: str = field(default="", metadata={"help": "user at other queue managers; default: anonymous"})
    peer_domain: str = field(default="", metadata={"help": "domain of peer_user"})
    peer_password_file: Path | None = field(default=None, metadata={"help": "file with the password of peer_user"})
    minimum_free_megabytes: int = field(
        default=64, metadata={"help": "free disk space below which no messages are accepted (0: no limit)"}
    )
    checkpoint_megabytes: int = field(default=256, metadata={"help": "minimum log size between checkpoints"})
    flight: bool = field(default=False, metadata={"help": "serve Arrow Flight too, for data pipelines"})
    flight_port: int | None = field(
        default=None, metadata={"help": "port of Arrow Flight; default: 18020 plus port_offset"}
    )
    flight_certificate: Path | None = field(
        default=None, metadata={"help": "PEM file for TLS on the Flight port; default: plain text, on loopback only"}
    )
    flight_key: Path | None = field(default=None, metadata={"help": "PEM file with the key of flight_certificate"})
    arrow_port: int | None = field(
        default=None,
        metadata={
            "help": "port of Arrow streams for the Spark connector, served with Arrow Flight; default: 18022 plus "
            "port_offset"
        },
    )
    web: bool = field(default=False, metadata={"help": "serve the HTTP API, metrics and the console"})
    web_listen: str = field(default="", metadata={"help": "address of the HTTP server; default: 127.0.0.1"})
    web_port: int | None = field(
        default=None, metadata={"help": "port of the HTTP server; default: 18021 plus port_offset"}
    )
    web_certificate: Path | None = field(
        default=None, metadata={"help": "PEM file for HTTPS; default: plain text, on loopback only"}
    )
    web_key: Path | None = field(default=None, metadata={"help": "PEM file with the key of web_certificate"})
    web_hosts: str = field(
        default="",
        metadata={"help": "names by which browsers reach the HTTP server, besides those of the machine, separated by "
                          "commas"},
    )  # fmt: skip
    oidc_issuer: str = field(
        default="",
        metadata={"help": "issuer URL of the OpenID Connect provider for logins to the console; default: none"},
    )
    oidc_client_id: str = field(default="", metadata={"help": "identifier of this client at oidc_issuer"})
    oidc_client_secret_file: Path | None = field(
        default=None, metadata={"help": "file with the client secret for oidc_issuer; default: a public client"}
    )
    oidc_user_claim: str = field(
        default="preferred_username", metadata={"help": "claim of the ID token with the name of the user"}
    )
    metrics_queues: int = field(
        default=0,
        metadata={"help": "number of queues of which /metrics has figures by name, those with most messages (0: none)"},
    )
    backup_directory: Path | None = field(
        default=None, metadata={"help": "where backups go that administrators start by HTTP; default: none are"}
    )
    stage_time_limit: int = field(
        default=3600,
        metadata={"help": "seconds without a keep-alive after which a data pipeline's stages are dropped"},
    )
    foreign_site: tuple[ForeignSite, ...] = field(
        default=(),
        metadata={"help": "sites without Message Queuing: tables with identifier, name, machines", "file_only": True},
    )
    security: CryptoPolicy = field(
        default=CryptoPolicy(),
        metadata={"help": "what signatures and encryption of messages are accepted: a table", "file_only": True},
    )
    alarm_disk_megabytes: int = field(
        default=1024, metadata={"help": "alarm with less free on the disk of the data directory (0: never)"}
    )
    alarm_quota_percent: int = field(
        default=90, metadata={"help": "alarm when so much of a quota is used, of the machine or a queue (0: never)"}
    )
    alarm_sync_milliseconds: int = field(
        default=1000, metadata={"help": "alarm when a sync of the disk takes as long (0: never)"}
    )
    alarm_dead_letters: int = field(
        default=100, metadata={"help": "alarm when at least this many dead letters come within ten minutes (0: never)"}
    )
    alarm_oldest_seconds: int = field(
        default=86400, metadata={"help": "alarm when the first message of a queue has waited for so long (0: never)"}
    )
    alarm_outgoing_seconds: int = field(
        default=900, metadata={"help": "alarm when messages wait for another machine and none leaves (0: never)"}
    )
    alarm_in_doubt_seconds: int = field(
        default=300,
        metadata={"help": "alarm when a transaction is in doubt, or its commit unconfirmed, for this long (0: never)"},
    )
    alarm_relay_seconds: int = field(
        default=900,
        metadata={"help": "alarm when a relay with remaining messages moves none for this long (0: never)"},
    )
    alarm_relay_refused: int = field(
        default=1, metadata={"help": "alarm when this many messages of a relay are refused (0: never)"}
    )
    alarm_peer_seconds: int = field(
        default=300,
        metadata={"help": "alarm when a machine whose queues are fetched does not answer for this long (0: never)"},
    )
    alarm_by_queue: str = field(
        default="",
        metadata={"help": "thresholds of single queues for quota, oldest and outgoing: orders:oldest=60,bills:quota=0"},
    )
    alarm_queue: str = field(default="", metadata={"help": "queue that gets a message for each alarm; default: none"})
    alarm_webhook: str = field(
        default="",
        metadata={"help": "URL to which alarms are posted by the HTTP server's process; default: none", "url": True},
    )
    alarm_webhook_key_file: Path | None = field(
        default=None, metadata={"help": "file with the key that signs what is posted to alarm_webhook"}
    )
    alarm_mail_to: str = field(
        default="", metadata={"help": "addresses that get alarms by e-mail, separated by commas; default: none"}
    )
    alarm_mail_from: str = field(default="", metadata={"help": "address of the sender; default: openmsmq@ the machine"})
    alarm_mail_server: str = field(
        default="localhost", metadata={"help": "mail server, HOST or HOST:PORT; default port 587, 465 or 25 by its TLS"}
    )
    alarm_mail_tls: str = field(
        default="starttls", metadata={"help": "TLS with the mail server: starttls, tls (from the first byte), or none"}
    )
    alarm_mail_user: str = field(default="", metadata={"help": "user at the mail server; default: no login"})
    alarm_mail_password_file: Path | None = field(
        default=None, metadata={"help": "file with the password of alarm_mail_user"}
    )
    trace_endpoint: str = field(
        default="",
        metadata={"help": "URL of an OpenTelemetry collector (OTLP over HTTP) for traces of transfers; default: none"},
    )
    audit: bool = field(default=True, metadata={"help": "keep a log of who changes what (audit.jsonl)"})
    audit_required: bool = field(
        default=False, metadata={"help": "refuse changes that can't be recorded in the audit log"}
    )
    audit_megabytes: int = field(
        default=MEGABYTES, metadata={"help": f"size of one file of the audit log; there are {FILES} at most"}
    )
    shutdown_grace_seconds: int = field(default=1, metadata={"help": "seconds to wait for pending calls at shutdown"})
    dead_peer_seconds: int = field(
        default=DEAD_PEER,
        metadata={"help": "seconds without a TCP acknowledgment after which a client's connection is closed"},
    )
    log_level: str = field(default="info", metadata={"help": "debug, info, warning or error"})
    log_format: str = field(default="text", metadata={"help": "text, or json: a document a line, for collectors"})
    # Setting -> file, environment or option; a setting that is missing here has its default.
    source_of: Mapping[str, str] = field(default_factory=dict, compare=False, metadata={"internal": True})

    @property
    def hosts_of_peers(self) -> dict[str, tuple[str, int]]:
        """Lower-case computer name -> host and port. Raises ConfigurationError."""
        hosts = {}
        for part in (part.strip() for part in self.peers.split(",") if part.strip()):
            name, separator, address = part.partition("=")
            host, port = host_and_port(address.strip())
            valid = bool(separator and name.strip() and host) and port.isdecimal() and 0 < int(port) <= 65535
            check(valid, "peers", part, "NAME=host, NAME=host:port, NAME=IPv6 address or NAME=[IPv6 address]:port, "
                  "separated by commas")  # fmt: skip
            hosts[name.strip().lower()] = (host, int(port))
        return hosts

    @property
    def report_queue_identifier(self) -> bytes:
        """The GUID in `report_queue`, 16 bytes; empty if it is not the name of a public queue."""
        try:
            name = parse_format_name(self.report_queue)
        except IllegalFormatName:
            return b""
        if not isinstance(name, PublicFormatName) or name.suffix is not Suffix.NONE:
            return b""
        return name.guid.bytes_le

    @property
    def levels_by_interface(self) -> dict[str, str]:
        """Interface name -> level; `none` where none is given."""
        pairs = [part.partition("=") for part in self.interface_levels.split(",") if part.strip()]
        return {name.strip(): level.strip() for name, _, level in pairs}

    def minimum_level_of(self, interface: str) -> AuthLevel:
        """Return the level that callers of one interface must have negotiated, at least.

        RemoteRead requires privacy off loopback unless configured otherwise ([MS-MQRR] 3.1.4.2, note 19).
        """
        default = "privacy" if interface == "RemoteRead" and not self.on_loopback else "none"
        return LEVELS[self.levels_by_interface.get(interface, default)]

    @property
    def callback_hosts(self) -> frozenset[str]:
        """`com_callback_hosts`."""
        return frozenset(host.strip() for host in self.com_callback_hosts.split(",") if host.strip())

    @property
    def minimum_com_level(self) -> AuthLevel:
        """Return the level that callers of automation objects must have negotiated: integrity, unless they are
        local."""
        return LEVELS[self.com_level or ("none" if self.on_loopback else "integrity")]

    @property
    def transaction_security(self) -> TransactionSecurity | None:
        """Return who may take part in distributed transactions; None if they are off."""
        chosen = self.distributed_transactions
        if chosen == "on":
            chosen = "mutual" if self.peer_login == "kerberos" else "none"
        return None if chosen == "off" else TransactionSecurity(chosen)

    @property
    def remote_read_security(self) -> RemoteReadSecurity:
        return RemoteReadSecurity(
            self.allow_nonauthenticated_rpc,
            self.remote_read_deny_workgroup_client,
            self.remote_read_allow_none_security_client,
        )

    def described(self) -> dict[str, dict[str, Any]]:
        """Return each setting with its value and source, as text. No secrets are shown: passwords and keys are in
        files, and of a URL, whose path may be secret, only the host is shown."""
        return {
            item.name: {
                "value": _shown(item, getattr(self, item.name)),
                "source": self.source_of.get(item.name, "default"),
            }
            for item in fields(self)
            if item.name != "source_of"
        }

    def changed(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, for the audit log."""
        return {name: entry["value"] for name, entry in self.described().items() if entry["source"] != "default"}

    @property
    def alarm_thresholds(self) -> dict[str, int]:
        """Return condition of an alarm -> threshold; 0 for never."""
        return {condition.name: getattr(self, condition.setting) for condition in CONDITIONS}

    @property
    def alarm_mail_recipients(self) -> list[str]:
        """The addresses that get alarms."""
        return [address for part in self.alarm_mail_to.split(",") if (address := part.strip())]

    @property
    def alarm_mail_sender(self) -> str:
        """The address of the sender."""
        return self.alarm_mail_from or f"openmsmq@{self.machine_name}"

    @property
    def alarm_queue_name(self) -> str:
        """The format name of the queue that gets alarms; empty for none."""
        return format_name_of(self.alarm_queue) if self.alarm_queue else ""

    @property
    def on_loopback(self) -> bool:
        return self.listen == "localhost" or ipaddress.ip_address(self.listen).is_loopback

    @property
    def accepts_anonymous(self) -> bool:
        return self.on_loopback if self.allow_anonymous is None else self.allow_anonymous

    @property
    def machine_name(self) -> str:
        return self.computer_name or socket.gethostname().partition(".")[0] or "localhost"

    @property
    def web_address(self) -> str:
        return self.web_listen or "127.0.0.1"

    @property
    def web_on_loopback(self) -> bool:
        return ipaddress.ip_address(self.web_address).is_loopback

    @property
    def web_shows_sums(self) -> bool:
        """Whether all callers, including anonymous ones, may see sums over all queues in metrics."""
        return self.accepts_anonymous and (self.web_on_loopback or self.allow_anonymous is True)

    @property
    def web_host_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.web_hosts.split(",") if name.strip())

    @property
    def openid(self) -> OpenIdSettings | None:
        """Return the provider of logins by OpenID Connect; None without one."""
        if not self.oidc_issuer:
            return None
        return OpenIdSettings(self.oidc_issuer, self.oidc_client_id, self.oidc_client_secret_file, self.oidc_user_claim)

    @property
    def logins_in_order(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.logins.split(",") if name.strip())

    @property
    def domain_administrator_sids(self) -> frozenset[str]:
        return frozenset(sid.strip().upper() for sid in self.domain_administrators.split(",") if sid.strip())

    @property
    def users_path(self) -> Path:
        return self.users_file or self.data_dir / "users.json"

    @property
    def directory_file(self) -> Path:
        return self.directory_path or self.data_dir / "directory.sqlite"

    @property
    def account_name(self) -> str:
        """This machine's account in the domain."""
        return self.directory_account or f"{self.machine_name.upper()}$"

    @property
    def controllers(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.directory_controllers.split(",") if name.strip())

    @property
    def alias_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.aliases.split(",") if name.strip())

    def port(self, setting: str, offset: int) -> int:
        """Return the port of a setting, or the standard port plus `offset`."""
        given: int | None = getattr(self, setting)
        return STANDARD_PORTS[setting] + offset if given is None else given


def _shown(item: Field[Any], value: Any) -> Any:
    if is_dataclass(value):  # a table of the file
        return asdict(cast("Any", value))
    if isinstance(value, tuple):
        return [_shown(item, each) for each in value]
    if "url" not in item.metadata or not value:
        return value
    url = urlsplit(value)
    return f"{url.scheme}://{url.hostname}/…"
