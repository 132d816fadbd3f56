"""Address of the HTTP server of a daemon. The daemon writes it into its data directory while it serves, for commands on
the same machine. The settings may not have the port: it can depend on other ports or be chosen by the system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from openmsmq.files.private import write_private

ADDRESS_FILE: Final = "web-address.json"
_THIS_MACHINE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # loopback address for each wildcard address


class WebAddress(NamedTuple):
    """URL of the server. `certificate` is the PEM file with its certificate, empty without TLS."""

    url: str
    certificate: str


def address_of(host: str, port: int, certificate: Path | None) -> WebAddress:
    """Return the address for clients on the machine of a server that listens on `host`."""
    host = _THIS_MACHINE.get(host, host)
    scheme = "http" if certificate is None else "https"
    shown = f"[{host}]" if ":" in host else host
    return WebAddress(f"{scheme}://{shown}:{port}", "" if certificate is None else str(certificate.resolve()))


def write_address(data_dir: Path, address: WebAddress) -> None:
    """Write the address into a data directory. Raises PrivateFileError."""
    write_private(data_dir / ADDRESS_FILE, (json.dumps(address._asdict()) + "\n").encode())


def forget_address(data_dir: Path) -> None:
    """Remove the address, because the server has stopped. Raises OSError."""
    (data_dir / ADDRESS_FILE).unlink(missing_ok=True)


def read_address(data_dir: Path) -> WebAddress | None:
    """Read the address; None if no daemon serves HTTP or this user may not read the directory. Raises ValueError for
    invalid contents."""
    path = data_dir / ADDRESS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return WebAddress(str(found["url"]), str(found["certificate"]))
    except OSError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} can't be read ({error!r}): restart the daemon to write it again") from None
