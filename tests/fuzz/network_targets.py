"""Fuzz targets for input before authentication (RPC connections, logins, packets of TCP port 1801), and for the files
of the store. A target ends normally for correctly refused input."""

from __future__ import annotations

from collections.abc import Iterator

from rpc.toys import Pair

from msrpc.errors import AuthenticationError
from msrpc.rpc.ntlm import NtlmAcceptor, ServerNames, nt_hash
from msrpc.rpc.pac import unpack_logon_information
from msrpc.rpc.spnego import SpnegoAcceptor, ntlm_login
from openmsmq.packet.errors import BadPacket
from openmsmq.packet.internal import parse_internal
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.packet.stream import Framer, is_internal
from openmsmq.store import Store, StoreError
from openmsmq.store.errors import UnknownFormat
from openmsmq.store.fsck import repair, verify
from store.oracle import DIRECTORY
from store.test_damage import PATH, QUARANTINE, SEGMENT, disk

NOW = 133_000_000_000_000_000  # a FILETIME
NAMES = ServerNames("RIG")


def lookup(user: str, domain: str) -> tuple[bytes, str] | None:
    return (nt_hash("secret"), "S-1-5-21-1-2-3-1001") if user.lower() == "alice" else None


def parts(data: bytes) -> Iterator[bytes]:
    """Split data into messages, each preceded by its length in two bytes; the last one may be shorter."""
    while data:
        size = int.from_bytes(data[:2], "little")
        yield data[2 : 2 + size]
        data = data[2 + size :]


def fuzz_rpc(data: bytes) -> None:
    """The bytes of a connection. The server answers or ends the connection; no login succeeds."""
    pair = Pair(acceptor=lambda kind, level: NtlmAcceptor(lookup, NAMES, random=bytes, now=lambda: NOW, level=level))
    for part in parts(data):
        if pair.ended:
            break
        pair.serve(part)
        pair.server.data_to_send()


def fuzz_ntlm(data: bytes) -> None:
    """Two messages of a login. It never succeeds, because no response matches the server's challenge."""
    server = NtlmAcceptor(lookup, NAMES, random=lambda n: b"\x5a" * n, now=lambda: NOW)
    try:
        for part in parts(data):
            server.step(part)
    except AuthenticationError:
        return
    assert not server.complete, server.identity


def fuzz_spnego(data: bytes) -> None:
    """SPNEGO tokens over NTLM."""
    login = ntlm_login(lookup, NAMES, random=lambda n: b"\x5a" * n, now=lambda: NOW)
    server = SpnegoAcceptor([login], 6)
    try:
        for part in parts(data):
            server.step(part)
    except AuthenticationError:
        return
    assert not server.complete, server.identity


def fuzz_pac(data: bytes) -> None:
    """The logon information of a Kerberos ticket."""
    try:
        logon = unpack_logon_information(data)
    except AuthenticationError:
        return
    assert logon.sid.startswith("S-1-")


def fuzz_packets(data: bytes) -> None:
    """The bytes of a session of TCP port 1801. A decoded message can be encoded and decoded to the same message."""
    framer = Framer()
    try:
        framer.feed(data)
        while (packet := framer.next()) is not None:
            if is_internal(packet):
                parse_internal(packet)
            else:
                message = MessagePacket.unpack(packet)
                assert MessagePacket.unpack(message.pack()) == message
    except BadPacket:
        return


def fuzz_log(data: bytes) -> None:
    """A log segment without its padding. The store opens or reports the damage; `repair` refuses, or the store opens
    afterwards."""
    vfs = disk({PATH: data[:SEGMENT].ljust(SEGMENT, b"\0")})
    try:
        Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes).close()
    except UnknownFormat:
        return
    except StoreError:
        verify(DIRECTORY, vfs)
        try:
            repair(DIRECTORY, QUARANTINE, vfs)
        except StoreError:  # no segment header is left
            return
        Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes).close()


TARGETS = {
    "rpc": fuzz_rpc, "ntlm": fuzz_ntlm, "spnego": fuzz_spnego, "pac": fuzz_pac, "packets": fuzz_packets,
    "log": fuzz_log,
}  # fmt: skip
