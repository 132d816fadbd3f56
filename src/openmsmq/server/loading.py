"""Settings from a TOML file, the environment and the command line.

A setting `rpc_port` is `rpc_port = 2103` in the file, `OPENMSMQ_RPC_PORT=2103` in the environment and
`--rpc-port 2103` on the command line; the last of these takes
precedence. Unknown names are refused with a list of the known ones. Tables, such
as `[[foreign_site]]`, are for the file only.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from uuid import UUID

from openmsmq.protection.policy import CryptoPolicy
from openmsmq.queueing.outgoing_queues import ForeignSite
from openmsmq.queueing.properties import MAXIMUM_LABEL
from openmsmq.server.allowed_values import check, is_host
from openmsmq.server.config import Configuration, ConfigurationError

_PREFIX = "OPENMSMQ_"
# Variables that the client and the command line read.
CLIENT_VARIABLES = tuple(
    _PREFIX + name
    for name in ("HOST", "PORT", "PORT_OFFSET", "USER", "PASSWORD", "URL", "TOKEN", "TOKEN_FILE", "TLS_ROOT")
)
_TYPES = {f.name: str(f.type) for f in fields(Configuration) if "internal" not in f.metadata}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Configuration:
    """Merge file, environment and options (None values are not given). Raises ConfigurationError."""
    values: dict[str, Any] = {}
    if file is not None:
        values.update(_read_file(file))
    environment = os.environ if environment is None else environment
    unknown = unknown_variables(environment)
    if unknown:
        raise ConfigurationError("; ".join(unknown))
    for name, text in environment.items():
        if name.startswith(_PREFIX) and (setting := name.removeprefix(_PREFIX).lower()) in _TYPES:
            values[setting] = text
    values.update({name: value for name, value in (options or {}).items() if value is not None})
    converted = {name: _convert(name, value) for name, value in values.items()}
    return Configuration(**converted, source_of=sources(file, environment, options))


def sources(
    file: Path | None, environment: Mapping[str, str] | None, options: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the source of each setting that is not the default: file, environment or option."""
    found = dict.fromkeys(_read_file(file), "file") if file is not None else {}
    for name in os.environ if environment is None else environment:
        if name.startswith(_PREFIX) and (setting := name.removeprefix(_PREFIX).lower()) in _TYPES:
            found[setting] = "environment"
    return found | {name: "option" for name, value in (options or {}).items() if value is not None}


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a message for each unknown OPENMSMQ_ variable, with the nearest known name."""
    messages = []
    known = [*CLIENT_VARIABLES, *(_PREFIX + name.upper() for name in _TYPES)]
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else f"; allowed: {', '.join(sorted(known))}"
            messages.append(f"unknown environment variable {name}{hint}")
    return messages


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    for name in values:
        if name not in _TYPES:
            raise ConfigurationError(f"{file}: unknown setting {name!r}; allowed: {', '.join(sorted(_TYPES))}")
    return values


def _convert(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    if "ForeignSite" in kind:
        return tuple(_foreign_site(table) for table in _tables(name, value))
    if kind == CryptoPolicy.__name__:
        return _policy(name, value)
    if "Path" in kind:
        return Path(value).expanduser()
    if "bool" in kind and isinstance(value, str):
        lowered = value.lower()
        check(lowered in _TRUE + _FALSE, name, value, f"one of {', '.join(_TRUE + _FALSE)}")
        return lowered in _TRUE
    if kind.startswith("int"):
        try:
            return int(value)
        except (TypeError, ValueError):
            check(False, name, value, "a whole number")
    return value


def _policy(name: str, value: Any) -> CryptoPolicy:
    check(isinstance(value, dict), name, value, f"a [{name}] table in the configuration file")
    known = [item.name for item in fields(CryptoPolicy)]
    for key in value:
        check(key in known, name, key, f"the keys {', '.join(known)}")
    try:
        return CryptoPolicy(**value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _tables(name: str, value: Any) -> list[dict[str, Any]]:
    tables = isinstance(value, list) and all(isinstance(table, dict) for table in value)
    check(tables, name, value, f"[[{name}]] tables in the configuration file")
    return list(value)


def _foreign_site(table: dict[str, Any]) -> ForeignSite:
    what, known = "foreign_site", ("identifier", "name", "machines")
    for key in table:
        check(key in known, what, key, f"the keys {', '.join(known)}")
    identifier, name, machines = table.get("identifier"), table.get("name", ""), table.get("machines")
    try:
        guid = UUID(identifier)
    except (TypeError, ValueError, AttributeError):
        check(False, f"{what} (identifier)", identifier, "a GUID of the form 8-4-4-4-12 hexadecimal digits")
    valid = isinstance(name, str) and len(name) <= MAXIMUM_LABEL
    check(valid, f"{what} (name)", name, f"text of at most {MAXIMUM_LABEL} characters")
    listed = isinstance(machines, list) and machines and all(isinstance(m, str) and is_host(m) for m in machines)
    check(bool(listed), f"{what} (machines)", machines, "a list of computer names or addresses, one or more")
    return ForeignSite(guid, name or str(guid), tuple(table["machines"]))
