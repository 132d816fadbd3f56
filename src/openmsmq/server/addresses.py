"""By which names and addresses this machine is reached: DIRECT=TCP:address means here."""

from __future__ import annotations

import contextlib
import socket


def local_addresses(listen: str) -> frozenset[str]:
    """The address listened on, and with 0.0.0.0 those that the host's name and default route have."""
    addresses = {listen}
    if listen == "0.0.0.0":
        with contextlib.suppress(OSError):
            addresses.update(socket.gethostbyname_ex(socket.gethostname())[2])
        # Connecting a datagram socket sends nothing; it only makes the system choose a source address.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            addresses.add(probe.getsockname()[0])
    return frozenset(address for address in addresses if address != "0.0.0.0")
