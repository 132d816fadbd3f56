"""By which names and addresses this machine is reached: DIRECT=TCP:address means here."""

from __future__ import annotations

import contextlib
import socket

from openmsmq.model.names import parse_address


def local_addresses(listen: str) -> frozenset[str]:
    """The address listened on, and with 0.0.0.0 or :: those that the host's name and default route have."""
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
