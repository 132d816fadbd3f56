"""A DNS server with records given by a test, and processes that use it as resolver. Root only."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


class NameServer:
    """Answers on UDP port 53 of a loopback address; `records` are keyed by lower-case name and type."""

    def __init__(self, directory: Path, address: str = "127.0.0.53") -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.asked: list[str] = []
        self.silent = False
        self._configuration = directory / "resolv.conf"
        self._configuration.write_text(f"nameserver {address}\noptions attempts:1 timeout:1\n")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._socket.settimeout(0.1)
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._open:
            try:
                data, peer = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            if self.silent:
                continue
            query = dns.message.from_wire(data)
            question = query.question[0]
            name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
            self.asked.append(name)
            answer = dns.message.make_response(query)
            answer.flags |= dns.flags.AA
            values = self.records.get((name, kind), [])
            if values:
                answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, *values))
            elif not any(known == name for known, _ in self.records):
                answer.set_rcode(dns.rcode.NXDOMAIN)
            self._socket.sendto(answer.to_wire(), peer)

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self._socket.close()

    def enter(self) -> Callable[[], None]:
        """Return a function that makes this server the resolver of the calling process."""
        source, libc = str(self._configuration).encode(), ctypes.CDLL(None, use_errno=True)

        def move() -> None:
            done = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
            if done or libc.mount(source, os.path.realpath("/etc/resolv.conf").encode(), None, MS_BIND, None):
                raise OSError(ctypes.get_errno(), "mount")

        return move
