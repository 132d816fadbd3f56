"""The options of the data source: one table with their names, uses and allowed values."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from openmsmq.bulk.client import DEFAULT_PORT
from openmsmq.bulk.message_columns import SOURCES
from openmsmq.model.constants import MAXIMUM_LABEL
from openmsmq.model.queue_names import full_name

BATCH_READ, STREAM_READ, BATCH_WRITE, STREAM_WRITE = "batch read", "streaming read", "batch write", "streaming write"
READS, WRITES = (BATCH_READ, STREAM_READ), (BATCH_WRITE, STREAM_WRITE)
_EVERYWHERE = (*READS, *WRITES)
_MACHINE_SOURCES = ("deadletter", "xactdeadletter")


class OptionError(ValueError):
    """An option is unknown, malformed, or conflicts with another; the message names it and what is allowed."""


def _text(name: str, value: str) -> str:
    return value


def _whole(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]+", value.strip()):
        raise OptionError(f"{name} is {value!r}, allowed: a whole number, 0 or more")
    return int(value)


def _positive(name: str, value: str) -> int:
    number = _whole(name, value)
    if number == 0:
        raise OptionError(f"{name} is 0, allowed: a whole number, 1 or more")
    return number


def _port(name: str, value: str) -> int:
    number = _whole(name, value)
    if not 1 <= number <= 65535:
        raise OptionError(f"{name} is {value}, allowed: a port, 1 to 65535")
    return number


def _name(name: str, value: str) -> str:
    if not 1 <= len(value) <= MAXIMUM_LABEL:
        raise OptionError(f"{name} has {len(value)} characters, allowed: 1 to {MAXIMUM_LABEL}")
    return value


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"{name} is {value!r}, allowed: true, false")
    return value.lower() == "true"


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.lower() not in allowed:
            raise OptionError(f"{name} is {value!r}, allowed: {', '.join(allowed)}")
        return value.lower()

    return parse


def _list(name: str, value: str) -> tuple[str, ...]:
    """Split a list of queues. Spaces belong to a name (`a` and `a ` are two queues), except directly after a comma."""
    first, *others = value.split(",")
    queues = tuple(part for part in (first, *(other.lstrip() for other in others)) if part.strip())
    if not queues:
        raise OptionError(f"{name} is {value!r}, allowed: names of queues, separated by commas")
    return queues


def queue_list(queues: Iterable[str]) -> str:
    """Return the option `queue` for these names. Raises OptionError for a name with a comma, which no queue has."""
    names = [full_name(queue) if queue[:1].isspace() else queue for queue in queues]
    for name in names:
        _demand("," not in name, f"queue is {name!r}, allowed: one name; give several names separately")
    return ",".join(names)


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(f"{name} is {value!r}, allowed: a regular expression ({error})") from None
    return value


def _offsets(name: str, value: str) -> str | dict[str, int]:
    """Parse a word, or a JSON object queue -> sequence."""
    if value.lower() in ("earliest", "latest"):
        return value.lower()
    try:
        offsets = json.loads(value)
        if isinstance(offsets, dict) and all(type(v) is int and v >= 0 for v in offsets.values()):
            return offsets
    except ValueError:
        pass
    raise OptionError(f'{name} is {value!r}, allowed: earliest, latest, or JSON like {{"orders": 4711}}')


def _time(name: str, value: str) -> datetime:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise OptionError(f"{name} is {value!r}, allowed: a time like 2026-11-20T08:00:00+01:00") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _option(parse: Callable[[str, str], Any], where: tuple[str, ...], meaning: str, default: Any = None) -> Any:
    return field(default=default, metadata={"parse": parse, "where": where, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class DataSourceOptions:
    """All options, by name; docs/spark.md shows `meaning` and `where` of their metadata."""

    host: str = _option(
        _text, _EVERYWHERE, "queue manager; of reads by Arrow Flight several, separated by commas", "127.0.0.1"
    )
    port: int = _option(_port, _EVERYWHERE, "its RPC port, for protocol=remoteread", 2103)
    flightPort: int = _option(_port, _EVERYWHERE, "its port of Arrow Flight", DEFAULT_PORT)
    tlsRoot: str | None = _option(_text, _EVERYWHERE, "certificate file that the server's is checked against")
    user: str | None = _option(_text, _EVERYWHERE, "user; without it anonymous")
    credential: str = _option(_text, _EVERYWHERE, "password: env:NAME, file:PATH, or the password itself", "")
    protocol: str = _option(
        _one_of("auto", "flight", "remoteread"), READS, "auto takes flight where the server has it", "auto"
    )
    retrySeconds: int = _option(
        _whole, _EVERYWHERE, "how long a call by Arrow Flight is repeated while the server does not answer", 60
    )
    queue: tuple[str, ...] = _option(
        _list, READS, "path names or format names, separated by commas; a space after a comma is ignored", ()
    )
    queuePattern: str | None = _option(_pattern, READS, "regular expression for whole path names")
    source: str = _option(_one_of(*SOURCES), READS, ", ".join(SOURCES), "queue")
    mode: str = _option(
        _one_of("browse", "receive"), (STREAM_READ,), "receive: messages leave the queue with their batch", "browse"
    )
    consumerGroup: str | None = _option(_name, (STREAM_READ,), "name of the reader, for mode=receive")
    startingOffsets: str | dict[str, int] = _option(_offsets, READS, "earliest, latest, or JSON by queue", "earliest")
    endingOffsets: str | dict[str, int] = _option(_offsets, (BATCH_READ,), "latest, or JSON by queue", "latest")
    startingTimestamp: datetime | None = _option(_time, READS, "only what arrived then or later")
    maxRecordsPerTrigger: int | None = _option(_positive, (STREAM_READ,), "messages per batch, over all queues")
    maxBytesPerTrigger: int | None = _option(
        _positive, (STREAM_READ,), "bytes per batch, over all queues, approximately"
    )
    minPartitions: int = _option(_positive, READS, "minimum number of partitions, if there are enough messages", 1)
    maxRecordsPerPartition: int | None = _option(_positive, READS, "maximum messages per partition")
    failOnDataLoss: bool | None = _option(
        _flag, READS, "an error when planned messages are gone; default: of a stream true, of a batch read false"
    )
    includeBody: bool = _option(_flag, READS, "whether bodies are read", True)
    decode: str = _option(
        _one_of("none", "text", "json"),
        READS,
        "adds the column `text`: the body as text, or what is JSON of it",
        "none",
    )
    fetchRows: int = _option(_positive, READS, "maximum rows per record batch", 4096)
    pushFilters: bool = _option(
        _flag,
        (BATCH_READ,),
        "take filters on `queue`, `source`, `sequence`, `arrival_time`; needs spark.sql.python.filterPushdown.enabled",
        False,
    )
    sinkId: str | None = _option(_name, WRITES, "name of the sink: a batch of it is sent once")
    defaultQueue: str | None = _option(_text, WRITES, "where rows without destination_queue go")
    transactional: bool = _option(
        _flag, WRITES, "whether rows for queues of other machines are sent as messages of a transaction", False
    )
    onError: str = _option(
        _one_of("fail", "collect"), WRITES, "collect: rows that can't be sent go to errorPath", "fail"
    )
    errorPath: str | None = _option(
        _text, WRITES, "directory or URI for rows that can't be sent, as Parquet; driver and executors share it"
    )

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of the queue managers."""
        return hosts_of(self.host)

    @property
    def has_many_hosts(self) -> bool:
        return len(self.hosts) > 1

    @property
    def password(self) -> str:
        """Read the password that `credential` refers to. Raises OptionError."""
        kind, separator, rest = self.credential.partition(":")
        if separator and kind == "env":
            if rest not in os.environ:
                raise OptionError(f"credential names the environment variable {rest!r}, which is not set")
            return os.environ[rest]
        if separator and kind == "file":
            try:
                return Path(rest).read_text(encoding="utf-8").rstrip("\r\n")
            except OSError as error:
                raise OptionError(f"credential: {rest}: {error.strerror}") from None
        return self.credential

    @property
    def roots(self) -> bytes | None:
        """Read the certificates of `tlsRoot`; None for plain text. Raises OptionError."""
        if self.tlsRoot is None:
            return None
        try:
            roots = Path(self.tlsRoot).read_bytes()
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.tlsRoot)
        except ssl.SSLError:
            raise OptionError(f"tlsRoot is {self.tlsRoot!r}, allowed: a PEM file of certificates") from None
        except OSError as error:
            raise OptionError(f"tlsRoot: {self.tlsRoot}: {error.strerror}") from None
        return roots

    def check(self, where: str) -> None:
        """Raise OptionError unless the options are consistent for this use."""
        checks = {BATCH_READ: self._check_read, STREAM_READ: self._check_stream}
        checks.get(where, self._check_write)(where)

    def _check_read(self, where: str) -> None:
        if self.source in _MACHINE_SOURCES:
            _demand(not self.queue and not self.queuePattern, f"source={self.source} is one queue of the machine; "
                    "leave out queue and queuePattern")  # fmt: skip
        else:
            _demand(bool(self.queue) != bool(self.queuePattern), "give either queue or queuePattern")
        if self.has_many_hosts:
            _demand(self.protocol != "remoteread", "several hosts are read by Arrow Flight; leave out protocol")
            twice = next((host for host in self.hosts if self.hosts.count(host) > 1), None)
            _demand(twice is None, f"host names {twice!r} twice, allowed: each queue manager once")
        _demand(self.endingOffsets != "earliest", "endingOffsets is 'earliest', allowed: latest, or JSON by queue")
        _demand(self.includeBody or self.decode == "none", f"decode={self.decode} needs includeBody=true")

    def _check_stream(self, where: str) -> None:
        self._check_read(where)
        if self.mode == "receive":
            _demand(bool(self.consumerGroup), "mode=receive needs consumerGroup")
            _demand(self.source in ("queue", "deadletter", "xactdeadletter", "journal"),
                    f"mode=receive does not go with source={self.source}")  # fmt: skip
            _demand(self.startingOffsets == "earliest",
                    "mode=receive begins where its consumerGroup stands; leave out startingOffsets")  # fmt: skip
            _demand(self.startingTimestamp is None,
                    "mode=receive would remove what startingTimestamp leaves out")  # fmt: skip
        else:
            _demand(self.consumerGroup is None, "consumerGroup is for mode=receive")

    def _check_write(self, where: str) -> None:
        _demand(not self.has_many_hosts, f"host is {self.host!r}, allowed for a {where}: one queue manager")
        _demand((self.onError == "collect") == (self.errorPath is not None),
                "onError=collect and errorPath go together")  # fmt: skip
        if where == STREAM_WRITE:
            _demand(bool(self.sinkId), "a streaming write needs sinkId, the name by which a batch is sent once")


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise OptionError(message)


_KNOWN = {option.name.lower(): option for option in fields(DataSourceOptions)}
# Options that Spark adds itself.
_FOREIGN = frozenset(["path", "checkpointlocation"])


def parse(given: Mapping[str, str], where: str) -> DataSourceOptions:
    """Parse and check the options for one use. Names are case-insensitive, as in all of Spark. Raises OptionError."""
    values = {}
    for name, text in given.items():
        if name.lower() in _FOREIGN:
            continue
        option = _KNOWN.get(name.lower())
        if option is None:
            known = ", ".join(sorted(o.name for o in fields(DataSourceOptions)))
            raise OptionError(f"unknown option {name!r}; allowed: {known}")
        if where not in option.metadata["where"]:
            uses = ", ".join(option.metadata["where"])
            raise OptionError(f"{option.name} does not apply to a {where}, but to: {uses}")
        values[option.name] = option.metadata["parse"](option.name, str(text))
    options = DataSourceOptions(**values)
    options.check(where)
    return options


def hosts_of(text: str) -> tuple[str, ...]:
    """Return the queue managers that the option `host` names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def decoding(given: Mapping[str, str]) -> str:
    """Return the option `decode` alone; the schema depends on it before the use is known."""
    parsed: str = _KNOWN["decode"].metadata["parse"]("decode", _raw(given, "decode", "none"))
    return parsed


def names_many_hosts(given: Mapping[str, str]) -> bool:
    """Whether the option `host` names several hosts; the schema depends on it."""
    return len(hosts_of(_raw(given, "host", ""))) > 1


def _raw(given: Mapping[str, str], option: str, default: str) -> str:
    return str({name.lower(): text for name, text in given.items()}.get(option, default))
