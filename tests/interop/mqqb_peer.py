"""An independent queue manager for tests: MS-MQQB over a blocking socket, written from the documents alone.

It shares no code with `openmsmq`: packets are packed here by hand, and `check` parses every byte that the other side
sends, by MS-MQQB 2.2 and MS-MQMQ 2.2.18 to 2.2.20, and reports every violation.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

SESSION_ACK, ESTABLISH, PARAMETERS = 1, 2, 3
ORDER_ACK = 0x00FF
FOREVER = 0xFFFFFFFF
NOBODY = bytes(16)


class NotAsSpecified(AssertionError):
    """The other side sent something that the documents do not allow."""


def need(condition: object, what: str) -> None:
    if not condition:
        raise NotAsSpecified(what)


# -- packing (MS-MQMQ 2.2.19, 2.2.20) --------------------------------------------------------------------------


def base(flags: int, size: int, life: int = FOREVER, version: int = 0x10) -> bytes:
    return struct.pack("<BBHIII", version, 0, flags, 0x524F494C, size, life)


def establish(client: bytes, server: bytes, stamp: int = 0, refused: bool = False, system: int = 0x0310) -> bytes:
    body = struct.pack("<HH", 0, ESTABLISH | (0x10 if refused else 0))
    body += client + server + struct.pack("<IHH", stamp, system, 0) + b"\x5a" * 512
    return base(0x000B, 16 + len(body)) + body


def parameters(recoverable: int, timeout: int, window: int, refused: bool = False) -> bytes:
    body = struct.pack("<HHIIHH", 0, PARAMETERS | (0x10 if refused else 0), recoverable, timeout, 0, window)
    return base(0x000B, 16 + len(body)) + body


def session_ack(ack: int, first: int, bits: int, sent: int, sent_recoverable: int, window: int = 64) -> bytes:
    body = struct.pack("<HH", 0, SESSION_ACK) + struct.pack(
        "<HHIHHHH", ack, first, bits, sent, sent_recoverable, window, 0
    )
    return base(0x001B, 16 + len(body)) + body


def direct(name: str) -> bytes:
    """Encode a DirectQueueFormatName (MS-MQMQ 2.2.18.1.5.2): bytes with the terminator, padded to four."""
    text = (name + "\0").encode("utf-16-le")
    data = struct.pack("<H", len(text)) + text
    return data + bytes(-len(data) % 4)


def addresses(identifier: int, listed: Iterable[str]) -> bytes:
    """Encode an MQFAddressHeader (2.2.20.2) of direct names; each element (2.2.18.1.4) is a type and a terminated
    text."""
    elements = [struct.pack("<H", 3) + (name + "\0").encode("utf-16-le") for name in listed]
    data = b"".join(elements)
    head = struct.pack("<IHHI", 12 + len(data), identifier, 0, len(elements))
    return head + data + bytes(-len(data) % 4)


@dataclass
class Transaction:
    """TransactionHeader, 2.2.20.5."""

    ordinal: int
    stamp: int
    number: int
    previous: int
    final_ack: bool = False
    identifier: int = 1


@dataclass
class Message:
    """Contents of a UserMessage packet; `destination` is a direct name without `DIRECT=`, or the number of a queue."""

    source: bytes
    message_id: int
    destination: str | int
    body: bytes = b"body"
    label: str = ""
    recoverable: bool = False
    transaction: Transaction | None = None
    address: bytes = NOBODY
    sent: int = field(default_factory=lambda: int(time.time()))
    life: int = 345600
    to_be_received: int = FOREVER
    acknowledge: int = 0
    admin: str = ""
    journal: int = 0
    message_class: int = 0
    hops: int = 0
    security: bytes = b""
    privacy: int = 0
    correlation: bytes = bytes(20)
    several: tuple[str, ...] = ()  # direct names of all destinations
    report_queue: bytes = b""  # traced, with reports to this public queue

    def pack(self, session: bytes = b"") -> bytes:
        names, kinds = b"", [0, 0, 0]
        if isinstance(self.destination, str):
            kinds[0], names = 7, direct(self.destination)
        else:
            kinds[0], names = 3, struct.pack("<I", self.destination)
        if self.admin:
            kinds[1], names = 7, names + direct(self.admin)
        flags = (
            self.hops | self.recoverable << 5 | (self.journal & 1) << 8 | (self.journal >> 1 & 1) << 9 | kinds[0] << 10
            | kinds[1] << 13 | bool(self.security) << 19 | (self.transaction is not None) << 20 | 1 << 21
            | bool(self.several) << 23
        )  # fmt: skip
        user = self.source + self.address
        user += struct.pack("<IIII", self.to_be_received, self.sent, self.message_id, flags) + names
        if self.transaction is not None:
            t = self.transaction
            word = t.final_ack << 1 | 1 << 2 | 1 << 3 | t.identifier << 4
            user += struct.pack("<IIIII", word, t.ordinal, t.stamp, t.number, t.previous)
        label = (self.label + "\0").encode("utf-16-le") if self.label else b""
        properties = struct.pack(
            "<BBH20sIIIIIIII", self.acknowledge, len(label) // 2, self.message_class, self.correlation, 0, 0,
            len(self.body), len(self.body), self.privacy, 0, 0, 0,
        )  # fmt: skip
        rest = user + self.security + properties + label + self.body
        rest += bytes(-len(rest) % 4)
        if self.report_queue:
            rest += struct.pack("<HH", 1, 0) + self.report_queue
        if self.several:
            rest += addresses(0x64, self.several) + addresses(0xC8, ()) + addresses(0x12C, ())
            rest += struct.pack("<HHI", 0x15E, 0, 0)
        flags = (0 if self.transaction else 3) | bool(session) << 4 | bool(self.report_queue) * 0x120
        return base(flags, 16 + len(rest), self.life) + rest + session


def security_with_sid(sid: bytes, encrypted: bool = False) -> bytes:
    data = struct.pack("<HHHHII", 1 | encrypted << 5, len(sid), 0, 0, 0, 0) + sid
    return data + bytes(-len(data) % 4)


# -- reading and checking ------------------------------------------------------------------------------------------


@dataclass
class Packet:
    """A parsed packet; `kind` is 1 to 3, or 0 for a UserMessage."""

    kind: int
    raw: bytes
    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def check(raw: bytes) -> Packet:
    """Parse a whole packet. Raises NotAsSpecified."""
    version, _, flags, signature, size, life = struct.unpack_from("<BBHIII", raw)
    need(version == 0x10, f"version {version:#x}")
    need(signature == 0x524F494C, "signature")
    need(not flags & ~0x013F, f"reserved bits of BaseHeader.Flags: {flags:#06x}")
    if flags & 0x08:
        need(life == FOREVER, "TimeToReachQueue of an internal packet")
        need(size == len(raw), f"PacketSize {size} of {len(raw)} bytes")
        return _internal(raw, flags)
    session = bool(flags & 0x10)
    need(size == len(raw) - 16 * session, f"PacketSize {size} of {len(raw)} bytes")
    need(size % 4 == 0, "a UserMessage that does not end at four bytes")
    return _user(raw, size, flags, life)


def _internal(raw: bytes, flags: int) -> Packet:
    reserved, word = struct.unpack_from("<HH", raw, 16)
    need(reserved == 0, "InternalHeader.Reserved")
    kind = word & 0xF
    need(kind in (1, 2, 3), f"packet type {kind}")
    need(not word & ~0x1F, "reserved bits of InternalHeader.Flags")
    need(bool(flags & 0x10) == (kind == SESSION_ACK), "SH of an internal packet")
    values: dict[str, Any] = {"refused": bool(word & 0x10)}
    if kind == SESSION_ACK:
        need(len(raw) == 36, "length of a SessionAck")
        values |= _session(raw[20:])
    elif kind == PARAMETERS:
        need(len(raw) == 32, "length of ConnectionParameters")
        values["recoverable"], values["timeout"], zero, values["window"] = struct.unpack_from("<IIHH", raw, 20)
        need(zero == 0, "reserved bytes of ConnectionParameters")
        need(500 <= values["recoverable"] <= 120_000 and 20_000 <= values["timeout"] <= 120_000, "timeouts")
    else:
        need(len(raw) == 572, "length of EstablishConnection")
        values["client"], values["server"] = raw[20:36], raw[36:52]
        values["stamp"], values["system"], zero = struct.unpack_from("<IHH", raw, 52)
        need(values["system"] & 0xFF == 0x10, "OperatingSystem.RE")
        need(zero == 0 and raw[60:] == b"\x5a" * 512, "padding of EstablishConnection")
    return Packet(kind, raw, values)


def _session(data: bytes) -> dict[str, Any]:
    need(len(data) == 16, "length of a SessionHeader")
    ack, first, bits, sent, recoverable, window, reserved = struct.unpack("<HHIHHHH", data)
    need(reserved == 0, "SessionHeader.Reserved")
    need(window >= 1, "a window of 0")
    return {"ack": ack, "first": first, "bits": bits, "sent": sent, "sent_recoverable": recoverable, "window": window}


def _user(raw: bytes, size: int, flags: int, life: int) -> Packet:
    values: dict[str, Any] = {"priority": flags & 7, "life": life, "traced": bool(flags & 0x100)}
    source, address = raw[16:32], raw[32:48]
    received, sent, message_id, word = struct.unpack_from("<IIII", raw, 48)
    values |= {"source": source, "address": address, "to_be_received": received, "sent": sent, "message_id": message_id}
    need(not word & (1 << 7 | 0x36000000 | 0xC0000000), f"reserved bits of UserHeader.Flags: {word:#010x}")
    need(word >> 5 & 3 in (0, 1), "delivery mode")
    values |= {"hops": word & 0x1F, "recoverable": word >> 5 & 1, "journal": word >> 8 & 3}
    at = 64
    for name, kind in (("destination", word >> 10 & 7), ("admin", word >> 13 & 7), ("response", word >> 16 & 7)):
        values[name], at = _name(raw, at, kind, name)
    if word >> 22 & 1:
        values["connector"], at = raw[at : at + 16], at + 16
    if word >> 20 & 1:
        need(values["priority"] == 0, "a transactional message with a priority")
        header, ordinal, stamp, number, previous = struct.unpack_from("<IIIII", raw, at)
        need(not header >> 24, "reserved bits of TransactionHeader.Flags")
        need(number > previous, f"number {number} after {previous}")
        values["transaction"] = Transaction(ordinal, stamp, number, previous, bool(header & 2), header >> 4 & 0xFFFFF)
        at += 20 + 16 * (header & 1)
    if word >> 19 & 1:
        at = _security(raw, at, values)
    need(word >> 21 & 1, "MP has to be set")
    (acknowledge, label, message_class, correlation, body_type, tag, body, _, privacy, _, _, extension) = (
        struct.unpack_from("<BBH20sIIIIIIII", raw, at)
    )
    need(not acknowledge & 0xF0, "reserved bits of MessagePropertiesHeader.Flags")
    at += 56
    text = raw[at : at + 2 * label].decode("utf-16-le")
    need(not label or (text.endswith("\0") and "\0" not in text[:-1]), "terminator of the label")
    at += 2 * label
    values |= {"label": text[:-1], "extension": raw[at : at + extension], "acknowledge": acknowledge}
    at += extension
    values |= {"body": raw[at : at + body], "class": message_class, "correlation": correlation}
    values |= {"body_type": body_type, "tag": tag, "privacy": privacy}
    at += body
    padding = -at % 4
    need(raw[at : at + padding] == bytes(padding), "padding that is not zero")
    at += padding
    need(flags & 0x20 or not flags & 0x100, "TR without DH")
    if flags & 0x20:
        kind, reserved = struct.unpack_from("<HH", raw, at)
        need(kind in (0, 1) and reserved == 0, f"DebugHeader.Flags {kind:#06x}, Reserved {reserved:#06x}")
        values["report_queue"] = raw[at + 4 : at + 20] if kind else b""
        at += 4 + 16 * kind
    if word >> 23 & 1:
        for name, identifier in (("destinations", 0x64), ("admins", 0xC8), ("responses", 0x12C)):
            values[name], at = _addresses(raw, at, identifier)
        identifier, reserved, length = struct.unpack_from("<HHI", raw, at)
        need(identifier == 0x15E and reserved == 0, f"MQFSignatureHeader {identifier:#x}, {reserved:#x}")
        at += 8 + length + -length % 4
    need(at == size, f"headers end at {at}, the packet at {size}")
    if flags & 0x10:
        values |= _session(raw[size:])
    return Packet(0, raw, values)


def _addresses(raw: bytes, start: int, expected: int) -> tuple[list[Any], int]:
    """Parse an MQFAddressHeader: texts for direct names, GUIDs for public ones, pairs with the number for private
    ones."""
    size, identifier, reserved, count = struct.unpack_from("<IHHI", raw, start)
    need(identifier == expected and reserved == 0, f"MQFAddressHeader {identifier:#x}, expected {expected:#x}")
    at, found = start + 12, []
    for _ in range(count):
        (kind,) = struct.unpack_from("<H", raw, at)
        at += 2
        if kind == 3:
            end = at
            while raw[end : end + 2] != b"\0\0":
                end += 2
            found.append(raw[at:end].decode("utf-16-le"))
            at = end + 2
            continue
        need(kind in (1, 2), f"an element of type {kind}")
        at += -at % 4
        guid = uuid.UUID(bytes_le=raw[at : at + 16])
        at += 16
        if kind == 1:
            found.append(guid)
        else:
            found.append((guid, struct.unpack_from("<I", raw, at)[0]))
            at += 4
    need(at == start + size, f"an MQFAddressHeader of {size} bytes, its elements end at {at - start}")
    return found, at + -at % 4


def _name(raw: bytes, at: int, kind: int, what: str) -> tuple[Any, int]:
    if kind in (0, 1):
        return None, at
    if kind in (2, 3, 4):
        return struct.unpack_from("<I", raw, at)[0], at + 4
    if kind == 5:
        return uuid.UUID(bytes_le=raw[at : at + 16]), at + 16
    if kind == 6:
        guid, number = struct.unpack_from("<16sI", raw, at)
        return (uuid.UUID(bytes_le=guid), number), at + 20
    (length,) = struct.unpack_from("<H", raw, at)
    text = raw[at + 2 : at + 2 + length].decode("utf-16-le")
    need(text.endswith("\0") and "\0" not in text[:-1], f"terminator of {what}")
    need(not text.upper().startswith("DIRECT="), f"{what} with its prefix")
    end = at + 2 + length
    return text[:-1], end + -end % 4


def _security(raw: bytes, at: int, values: dict[str, Any]) -> int:
    flags, sid, key, signature, certificate, provider = struct.unpack_from("<HHHHII", raw, at)
    need(not flags & ~0x0FFF, "reserved bits of SecurityHeader.Flags")
    need(not flags >> 4 & 1, "AU has to be 0")
    at += 16
    values["sender_type"], values["encrypted"] = flags & 0xF, flags >> 5 & 1
    for length in (sid, key, signature, certificate, provider):
        at += length + -length % 4
    return at


# -- a connection ----------------------------------------------------------------------------------------------


class Peer:
    """One connection. Counts are kept as in MS-MQMQ 2.2.20.4, and every received packet is checked."""

    def __init__(
        self, host: str, port: int, guid: bytes = b"\x77" * 16, source: str = "", sock: socket.socket | None = None
    ) -> None:
        self.guid = guid
        address = (source, 0) if source else None
        self.socket = sock or socket.create_connection((host, port), 10, source_address=address)
        self.socket.settimeout(10)
        self._buffer = b""
        self.sent = self.sent_recoverable = 0
        self.received: list[Packet] = []  # number of UserMessages
        self.received_recoverable = 0
        self.acknowledged = 0
        self.saved: list[int] = []  # numbers of recoverable packets with their bit
        self.server = NOBODY

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, timeout: float = 10) -> Packet | None:
        """Return the next packet; None if the other side closes. Raises TimeoutError."""
        self.socket.settimeout(timeout)
        while (size := self._size()) is None or len(self._buffer) < size:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                need(not self._buffer, "half a packet before the end")
                return None
            self._buffer += data
        raw, self._buffer = self._buffer[:size], self._buffer[size:]
        packet = check(raw)
        self._count(packet)
        return packet

    def _size(self) -> int | None:
        if len(self._buffer) < 16:
            return None
        flags, _, size = struct.unpack_from("<HII", self._buffer, 2)
        return int(size + (16 if flags & 0x10 and not flags & 0x08 else 0))

    def _count(self, packet: Packet) -> None:
        if packet.kind == 0:
            self.received.append(packet)
            self.received_recoverable += packet.recoverable
        if packet.kind == SESSION_ACK or "ack" in packet.values:
            need(packet.ack <= self.sent, f"{packet.ack} acknowledged, {self.sent} sent")
            need(packet.sent == len(self.received), f"{packet.sent} said to be sent, {len(self.received)} came")
            need(packet.sent_recoverable == self.received_recoverable, "count of recoverable packets")
            self.acknowledged = packet.ack
            named = [packet.first + bit for bit in range(32) if packet.bits >> bit & 1]
            need(not set(named) & set(self.saved), f"acknowledged twice: {named}")
            need(all(number <= self.sent_recoverable for number in named), "a bit for what was not sent")
            self.saved += named

    def open(self, server: bytes = NOBODY, window: int = 64, recoverable: int = 500) -> Packet:
        """Send EstablishConnection and ConnectionParameters; returns the other side's parameters."""
        self.write(establish(self.guid, server, 12345))
        answer = self.read()
        assert answer is not None and answer.kind == ESTABLISH and not answer.refused, answer
        need(answer.client == self.guid and answer.stamp == 12345, "what has to be echoed")
        self.server = answer.server
        self.write(parameters(recoverable, 20_000, window))
        answer = self.read()
        assert answer is not None and answer.kind == PARAMETERS, answer
        return answer

    def accept(self, wanted: bytes = NOBODY) -> None:
        """Answer as the acceptor of a connection that the other side has opened to the queue manager `wanted`, or to
        a direct format name."""
        request = self.read()
        assert request is not None and request.kind == ESTABLISH and request.server == wanted, request
        self.write(establish(request.client, self.guid, request.stamp))
        answer = self.read()
        assert answer is not None and answer.kind == PARAMETERS, answer
        self.write(parameters(answer.recoverable, answer.timeout, 64))

    def send(self, message: Message) -> None:
        self.send_all([message])

    def send_all(self, messages: Sequence[Message]) -> None:
        """Send messages with one write."""
        self.sent += len(messages)
        self.sent_recoverable += sum(message.recoverable for message in messages)
        self.write(b"".join(message.pack() for message in messages))

    def acknowledge(self) -> None:
        """Acknowledge all received messages, recoverable ones as saved."""
        count = self.received_recoverable
        bits = min(count, 32)
        self.write(
            session_ack(
                len(self.received), count - bits + 1 if bits else 0, (1 << bits) - 1, self.sent, self.sent_recoverable
            )
        )

    def until(self, condition: Any, seconds: float = 15) -> None:
        """Read until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the other side does not send what was expected")
            try:
                if self.read(left) is None:
                    raise ConnectionError("the other side has closed the connection")
            except TimeoutError:
                continue

    def is_closed(self, seconds: float = 10) -> bool:
        """Whether the other side closes without sending another byte."""
        try:
            return self.read(seconds) is None
        except TimeoutError:
            return False
