"""The names and addresses of this machine, for DIRECT=TCP:address."""

from __future__ import annotations

import contextlib
import socket

from openmsmq.model.names import parse_address


def local_addresses(listen: str) -> frozenset[str]:
    """Return the address listened on; for 0.0.0.0 or ::, the addresses of the host name and of the default route."""
    addresses = {listen}
    if listen in ("0.0.0.0", "::"):
        with contextlib.suppress(OSError):
            addresses.update(socket.gethostbyname_ex(socket.gethostname())[2])
        # Connecting a datagram socket sends nothing; it only makes the system choose a source address.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            addresses.add(probe.getsockname()[0])
    parsed = (parse_address(address) for address in addresses)
    return frozenset(str(address) for address in parsed if address is not None and not address.is_unspecified)
