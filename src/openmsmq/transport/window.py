"""Count and acknowledge the packets of a session ([MS-MQQB] 3.1.1.4, 3.1.1.6.1; [MS-MQMQ] 2.2.20.4).

Counts are unbounded here and have 16 bits on the wire, where they wrap (deviation D-93).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic

from openmsmq.packet.headers import SessionHeader
from openmsmq.transport.events import RemoteSessionError, Token
from openmsmq.transport.settings import MAXIMUM_WINDOW_SIZE, WINDOW_SIZE

FLAG_BITS = 32  # RecoverableMsgAckFlags
# Maximum number of recoverable packets without their bit. Less than 2**15, so that a number on the wire is unambiguous.
MAXIMUM_UNSAVED = 0x4000

_MODULUS = 0x10000


class Receiving:
    """Packets received from the peer, and how many of them have been acknowledged."""

    def __init__(self) -> None:
        self._received = 0
        self._recoverable = 0
        self._durable = 0  # all recoverable packets up to this number are synced
        self._durable_beyond: set[int] = set()
        self._acknowledged = 0
        self._base = 0  # the bits of all recoverable packets up to this number were sent

    @property
    def unacknowledged(self) -> int:
        """UnackedReceivedMsgCount."""
        return self._received - self._acknowledged

    @property
    def ackable(self) -> int:
        """Number of synced recoverable packets whose bit was not sent yet."""
        return self._durable - self._base

    @property
    def nothing_to_say(self) -> bool:
        """Whether an acknowledgment would contain nothing new."""
        return not self.unacknowledged and not self.ackable

    def count(self, recoverable: bool) -> int | None:
        """Count a packet, accepted or not (deviation D-89). Returns the receipt of a recoverable one, else None."""
        self._received += 1
        if not recoverable:
            return None
        self._recoverable += 1
        return self._recoverable

    def durable(self, receipt: int) -> None:
        """Note that the outcome of a recoverable packet is synced. Bits are sent in the order of receipt (deviation
        D-91).

        Raises ValueError for a receipt that was not issued, or was passed before.
        """
        if not self._durable < receipt <= self._recoverable or receipt in self._durable_beyond:
            raise ValueError(f"receipt {receipt} was not issued, or was already reported")
        if receipt == self._durable + 1 and not self._durable_beyond:
            self._durable = receipt
            return
        self._durable_beyond.add(receipt)
        while self._durable + 1 in self._durable_beyond:
            self._durable += 1
            self._durable_beyond.remove(self._durable)

    def differs_from(self, header: SessionHeader) -> bool:
        """Whether the peer's counts differ from the received packets."""
        return (
            header.user_sequence_number != self._received % _MODULUS
            or header.recoverable_sequence_number != self._recoverable % _MODULUS
        )

    def acknowledge(self) -> tuple[int, int, int]:
        """Return AckSequenceNumber, RecoverableMsgAckSeqNumber and -Flags to send now; each bit is sent once."""
        bits = min(self.ackable, FLAG_BITS)
        first = (self._base + 1) % _MODULUS if bits else 0
        self._base += bits
        self._acknowledged = self._received
        return self._received % _MODULUS, first, (1 << bits) - 1


class _Sent:
    def __init__(self, token: Any, number: int) -> None:
        self.token: Final = token  # of type Token
        self.number: Final = number


class SendWindow(Generic[Token]):
    """Packets sent in this session, and their acknowledgments."""

    def __init__(self) -> None:
        self._sent = 0
        self._recoverable = 0
        self._received = 0  # AckSequenceNumber, unwrapped
        self._express: deque[_Sent] = deque()  # unacknowledged, in sending order
        self._unsaved: dict[int, _Sent] = {}  # recoverable packets without their bit, in sending order

    @property
    def counts(self) -> tuple[int, int]:
        """UserMsgSequenceNumber and RecoverableMsgSeqNumber."""
        return self._sent % _MODULUS, self._recoverable % _MODULUS

    @property
    def in_flight(self) -> int:
        """UnAckedMessageCount: number of packets that the peer has not counted."""
        return self._sent - self._received

    @property
    def unsaved(self) -> int:
        """Number of recoverable packets whose bit was not received."""
        return len(self._unsaved)

    def sent(self, token: Token, recoverable: bool) -> None:
        """Record the next packet of this session."""
        self._sent += 1
        if recoverable:
            self._recoverable += 1
            self._unsaved[self._recoverable] = _Sent(token, self._sent)
        else:
            self._express.append(_Sent(token, self._sent))

    def acknowledged(self, header: SessionHeader) -> tuple[Token, ...]:
        """Return the tokens that a SessionHeader acknowledges, in sending order (3.1.5.5.1 to 3.1.5.5.3).

        Recoverable packets are acknowledged only by bits (deviation D-91); repeated bits change nothing. Raises
        RemoteSessionError if it acknowledges packets that were never sent.
        """
        newly = (header.ack_sequence_number - self._received) % _MODULUS
        if newly > self.in_flight:
            raise RemoteSessionError(
                f"AckSequenceNumber is {header.ack_sequence_number}, but only {self._sent} packets were sent"
            )
        saved = self._named(header)
        received = self._received + newly
        if any(number in self._unsaved and self._unsaved[number].number > received for number in saved):
            raise RemoteSessionError("a packet was acknowledged as saved, but not as received")
        self._received = received
        done = [self._unsaved.pop(number) for number in saved if number in self._unsaved]
        while self._express and self._express[0].number <= received:
            done.append(self._express.popleft())
        done.sort(key=lambda sent: sent.number)
        return tuple(sent.token for sent in done)

    def rest(self) -> tuple[Token, ...]:
        """Return the tokens of unacknowledged packets, in sending order."""
        left = sorted([*self._express, *self._unsaved.values()], key=lambda sent: sent.number)
        return tuple(sent.token for sent in left)

    def _named(self, header: SessionHeader) -> list[int]:
        """Return the numbers of the recoverable packets in the flags. Without flags, RecoverableMsgAckSeqNumber is
        ignored, because after a wrap 0 is a normal number."""
        flags = header.recoverable_ack_flags
        numbers = []
        for bit in range(flags.bit_length()):
            if flags >> bit & 1:
                behind = (self._recoverable - header.recoverable_ack_sequence_number - bit) % _MODULUS
                if behind >= min(self._recoverable, _MODULUS // 2):
                    raise RemoteSessionError(
                        f"RecoverableMsgAckSeqNumber {header.recoverable_ack_sequence_number} with bit {bit},"
                        f" {self._recoverable} recoverable packets sent"
                    )
                numbers.append(self._recoverable - behind)
        return numbers


class Window:
    """Both window sizes. The smaller one, but at least 1, limits the unacknowledged packets (D-88, D-90)."""

    def __init__(self, own: int = WINDOW_SIZE) -> None:
        if not 1 <= own <= MAXIMUM_WINDOW_SIZE:
            raise ValueError(f"the window size is {own} packets, allowed: 1 to {MAXIMUM_WINDOW_SIZE}")
        self.own = own
        self.peer = own

    @property
    def size(self) -> int:
        return max(1, min(self.own, self.peer))

    @property
    def half(self) -> int:
        """Number of received packets that are acknowledged without waiting for the timer (D-92)."""
        return (self.size + 1) // 2
