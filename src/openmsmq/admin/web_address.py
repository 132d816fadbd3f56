"""Where the HTTP server of a daemon is: the daemon writes it into its data directory while it serves, for commands on
the same machine. A port may follow from others or be chosen by the system, so the settings do not have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from openmsmq.files.private import write_private

ADDRESS_FILE: Final = "web-address.json"
_THIS_MACHINE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # by which those that stand for all are reached


class WebAddress(NamedTuple):
    """`certificate`: the PEM file that the server shows, empty without TLS."""

    url: str
    certificate: str


def address_of(host: str, port: int, certificate: Path | None) -> WebAddress:
    """For who is on the machine of a server that listens so."""
    host = _THIS_MACHINE.get(host, host)
    scheme = "http" if certificate is None else "https"
    shown = f"[{host}]" if ":" in host else host
    return WebAddress(f"{scheme}://{shown}:{port}", "" if certificate is None else str(certificate.resolve()))


def write_address(data_dir: Path, address: WebAddress) -> None:
    """Raises PrivateFileError."""
    write_private(data_dir / ADDRESS_FILE, (json.dumps(address._asdict()) + "\n").encode())


def forget_address(data_dir: Path) -> None:
    """No server is there any more. Raises OSError."""
    (data_dir / ADDRESS_FILE).unlink(missing_ok=True)


def read_address(data_dir: Path) -> WebAddress | None:
    """None where no daemon serves HTTP, or the directory is not for this user. Raises ValueError for another
    content."""
    path = data_dir / ADDRESS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return WebAddress(str(found["url"]), str(found["certificate"]))
    except OSError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} can't be read ({error!r}): restart the daemon to write it again") from None
