"""Rules that a session, and a sequence of transactional messages, must obey across packets.

A `Conversation` is given the bytes that each end of one connection writes, in the order of writing: a reply after
the packet that it answers. A `Ledger` spans connections and queue managers, as transactional sequences do; it must
see them from their first message.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from packets.checker import Kind, Packet, Stream
from packets.headers import NULL_GUID
from packets.reading import Header, Violation

WINDOW = "MS-MQQB 3.1.7.1"
COUNTS = 1 << 16  # counts of messages have 16 bits


class Side(IntEnum):
    INITIATOR = 0
    ACCEPTOR = 1

    @property
    def other(self) -> Side:
        return Side(1 - self)


def sequence_number(identifier: bytes) -> int:
    """Return a TxSequenceID as the number used for comparisons, MS-MQMQ 2.2.18.1.2."""
    return int.from_bytes(identifier, "little")


@dataclass
class Ledger:
    """Transactional sequences: the last number sent in each, by source queue manager and TxSequenceID. Deviation D-235:
    PreviousTxSequenceNumber may skip messages that have left their queue."""

    highest: dict[tuple[bytes, int], int] = field(default_factory=dict)
    current: dict[tuple[bytes, bytes, int, object], int] = field(default_factory=dict)
    finished: set[tuple[bytes, int, int]] = field(default_factory=set)  # with a FinalAck

    def sent(self, packet: Packet, sender: bytes) -> None:
        """Check a sent message: MS-MQQB 3.1.1.5 and 3.1.7.1.3, MS-MQMQ 2.2.20.5. Routing servers forward what the
        source has sent."""
        user, header = packet["UserHeader"], packet["TransactionHeader"]
        source, sequence = user["SourceQueueManager"], sequence_number(header["TxSequenceID"])
        header.must("TxSequenceID", sequence & 0xFFFFFFFF > 0, "an Ordinal of at least 1", "MS-MQQB 3.1.1.3.1")
        if sender != source:
            passed, highest = header["TxSequenceNumber"], self.highest.get((source, sequence), 0)
            header.must("TxSequenceNumber", passed <= highest, f"{highest} is the last that its source has sent")
            return
        destination = (source, user["QueueManagerAddress"], user["Flags.DQ"], user.get("DestinationQueue"))
        latest = self.current.setdefault(destination, sequence)
        header.must("TxSequenceID", sequence >= latest, "no message on a prior sequence", "MS-MQQB 3.1.1.5")
        self.current[destination] = sequence
        highest = self.highest.get((source, sequence), 0)
        number, previous = header["TxSequenceNumber"], header["PreviousTxSequenceNumber"]
        header.must("TxSequenceNumber", number <= highest + 1, f"grows by one: {highest} was sent", "MS-MQQB 3.1.7.1.3")
        first = number == highest + 1
        header.must(
            "PreviousTxSequenceNumber",
            not first or all((source, sequence, between) in self.finished for between in range(previous + 1, number)),
            f"{highest} was sent before", "MS-MQQB 3.1.7.1.3",
        )  # fmt: skip
        self.highest[source, sequence] = max(number, highest)

    def acknowledged(self, source: bytes, body: Header) -> None:
        """Check an OrderAck or FinalAck body about messages of a source queue manager, MS-MQQB 3.1.1.6.2."""
        highest = self.highest.get((source, sequence_number(body["TxSequenceID"])), 0)
        body.must("TxSequenceNumber", body["TxSequenceNumber"] <= highest, f"{highest} is the last that was sent")


@dataclass
class Sent:
    """State of one side of a session: its settings, and the counts of messages sent and acknowledged."""

    stream: Stream
    messages: int = 0
    recoverable: int = 0
    acknowledged: int = 0  # count of the other side's messages
    window: int = 0  # as last announced
    widest: int = 0  # the largest one ever announced
    recoverable_acknowledged: set[int] = field(default_factory=set)
    establishing: Packet | None = None
    parameters: Packet | None = None

    def announce(self, window: int) -> None:
        self.window, self.widest = window, max(self.widest, window)

    @property
    def refused(self) -> bool:
        return self.establishing is not None and bool(self.establishing["InternalHeader"]["Flags.CS"])


class Watch:
    """Checks all connections of some queue managers and keeps their first violation."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.seen: Counter[Kind] = Counter()
        self.headers: set[str] = set()  # seen in packets
        self._violation: Violation | None = None

    def connection(self) -> Conversation:
        return Conversation(self.ledger)

    def feed(self, conversation: Conversation, side: Side, data: bytes) -> None:
        """Check the bytes that a side writes. After the first violation, no more bytes are read."""
        if self._violation is None:
            try:
                for packet in conversation.feed(side, data):
                    self.seen[packet.kind] += 1
                    self.headers.update(packet.headers)
            except Violation as violation:
                self._violation = violation

    def hold(self) -> None:
        """Raises the first Violation, if there was one."""
        if self._violation is not None:
            raise self._violation


class Conversation:
    """One connection between two queue managers."""

    def __init__(self, ledger: Ledger | None = None, strict: bool = True) -> None:
        self.ledger = ledger if ledger is not None else Ledger()
        self.sent = {side: Sent(Stream(strict)) for side in Side}

    def feed(self, side: Side, data: bytes) -> list[Packet]:
        """Return the packets completed by these bytes from this side. Raises Violation."""
        found = []
        for packet in self.sent[side].stream.feed(data):
            self._take(side, packet)
            found.append(packet)
        return found

    def _take(self, side: Side, packet: Packet) -> None:
        own = self.sent[side]
        base, section = packet["BaseHeader"], "MS-MQQB 3.1.5.3"
        base.must("Flags", not (own.refused or self.sent[side.other].refused), "no packet after a refusal", section)
        if own.establishing is None:
            base.must("Flags", packet.kind is Kind.ESTABLISH_CONNECTION, "EstablishConnection comes first", section)
            self._establish(side, packet)
        elif own.parameters is None:
            section = "MS-MQQB 3.1.5.4"
            base.must("Flags", packet.kind is Kind.CONNECTION_PARAMETERS, "ConnectionParameters come second", section)
            self._parameters(side, packet)
        else:
            self._open(side, packet)

    def _establish(self, side: Side, packet: Packet) -> None:
        """Check EstablishConnection packets, MS-MQQB 2.2.3.1, 3.1.5.2.3 and 3.1.5.3.1."""
        header, refusing = packet["EstablishConnectionHeader"], packet["InternalHeader"]["Flags.CS"]
        if side is Side.INITIATOR:
            packet["InternalHeader"].must("Flags.CS", not refusing, "0 in a request", "MS-MQQB 3.1.5.2.3")
        else:
            request = self.sent[side.other].establishing
            packet["BaseHeader"].must("Flags", request is not None, "an answer comes after its request")
            assert request is not None
            asked = request["EstablishConnectionHeader"]
            for name in ("ClientGuid", "TimeStamp", "OperatingSystem.SE"):
                header.must(name, header[name] == asked[name], f"{asked[name]!r}, as in the request")
            header.must("Padding", header["Padding"] == b"\x5a" * 512, "0x5A in each byte of a response")
            # 2.2.3.1 and 3.1.5.3.1 contradict each other about the GUID of a refusal.
            wanted = asked["ServerGuid"] if any(asked["ServerGuid"]) else header["ServerGuid"]
            known = header["ServerGuid"] == wanted != NULL_GUID
            header.must("ServerGuid", bool(refusing) or known, "that of the acceptor, as in the request")
        self.sent[side].establishing = packet

    def _parameters(self, side: Side, packet: Packet) -> None:
        """Check ConnectionParameters packets, MS-MQQB 3.1.5.3.2 and 3.1.5.4.1."""
        other, header = self.sent[side.other], packet["ConnectionParametersHeader"]
        internal, base = packet["InternalHeader"], packet["BaseHeader"]
        internal.must("Flags.CS", not internal["Flags.CS"], "0", "MS-MQQB 3.1.5.3.2")
        answered = other.establishing if side is Side.INITIATOR else other.parameters
        base.must("Flags", answered is not None, "comes after what it answers", "MS-MQQB 3.1.5.4")
        if side is Side.ACCEPTOR:
            assert other.parameters is not None
            asked = other.parameters["ConnectionParametersHeader"]
            for name in ("RecoverableAckTimeout", "AckTimeout"):
                header.must(name, header[name] == asked[name], f"{asked[name]}, as in the request", "MS-MQQB 3.1.5.4.1")
        self.sent[side].announce(header["WindowSize"])
        self.sent[side].parameters = packet

    def _open(self, side: Side, packet: Packet) -> None:
        internal = packet.get("InternalHeader")
        own, base = self.sent[side], packet["BaseHeader"]
        base.must("Flags", self.sent[side.other].parameters is not None, "the session is not open", "MS-MQQB 3.1.5.5")
        if internal is not None:
            internal.must("Flags.PT", packet.kind is Kind.SESSION_ACK, "negotiated already", "MS-MQQB 3.1.5.3")
        else:
            # Acknowledgments are sent as messages (MS-MQQB 3.1.7.17), so they count.
            self._hold_window(side, base)
            own.messages += 1
            own.recoverable += packet["UserHeader"]["Flags.DM"]
        if packet.get("TransactionHeader") is not None:
            self.ledger.sent(packet, self._identifier(side))
        if (session := packet.get("SessionHeader")) is not None:
            self._acknowledge(side, session)
            own.announce(session["WindowSize"])
        if (order := packet.get("OrderAckBody")) is not None:
            self.ledger.acknowledged(self._source(side, packet), order)
        if (final := packet.get("FinalAckBody")) is not None:
            self.ledger.acknowledged(final["SourceGUID"], final)
            self.ledger.finished.add(
                (final["SourceGUID"], sequence_number(final["TxSequenceID"]), final["TxSequenceNumber"])
            )  # fmt: skip

    def _hold_window(self, side: Side, base: Header) -> None:
        """Check the window, MS-MQQB 3.1.7.1: no message is sent while UnAckedMessageCount is WindowSize or more.

        MS-MQQB 3.1.1.3.1 has a window for each side. A sender may not have read yet that the other side's window has
        shrunk.
        """
        own, other = self.sent[side], self.sent[side.other]
        window = max(1, min(own.window, other.widest))
        waiting = own.messages - other.acknowledged
        base.must("Flags", waiting < window, f"{waiting} wait for an acknowledgment, the window is {window}", WINDOW)

    def _source(self, side: Side, packet: Packet) -> bytes:
        """Return the queue manager whose messages an OrderAck acknowledges: its addressee."""
        address = bytes(packet["UserHeader"]["QueueManagerAddress"])
        return address if any(address) else self._identifier(side.other)

    def _identifier(self, side: Side) -> bytes:
        establishing = self.sent[Side.ACCEPTOR].establishing
        assert establishing is not None
        header = establishing["EstablishConnectionHeader"]
        return bytes(header["ClientGuid" if side is Side.INITIATOR else "ServerGuid"])

    def _acknowledge(self, side: Side, session: Header) -> None:
        """Check a SessionHeader, MS-MQMQ 2.2.20.4, MS-MQQB 3.1.1.4, 3.1.5.5 and 3.1.7.1.3."""
        own, other = self.sent[side], self.sent[side.other]
        for name, count in (("UserMsgSequenceNumber", own.messages), ("RecoverableMsgSeqNumber", own.recoverable)):
            session.must(name, session[name] == count % COUNTS, f"{count} were sent")
        received = own.acknowledged + (session["AckSequenceNumber"] - own.acknowledged) % COUNTS
        session.must("AckSequenceNumber", received <= other.messages, f"{other.messages} were sent to it")
        own.acknowledged = received
        first, flags = session["RecoverableMsgAckSeqNumber"], session["RecoverableMsgAckFlags"]
        if first == 0 or other.recoverable >= COUNTS:  # the text does not define numbers beyond 16 bits
            return
        numbers = {first + bit for bit in range(32) if flags >> bit & 1}
        rule = f"{other.recoverable} recoverable messages were sent to it"
        session.must("RecoverableMsgAckFlags", max(numbers) <= other.recoverable, rule)
        new = first not in own.recoverable_acknowledged
        session.must("RecoverableMsgAckSeqNumber", new, "the lowest number that is not acknowledged yet")
        own.recoverable_acknowledged |= numbers
