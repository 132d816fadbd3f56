"""The waiting reads of a queue, first come first served."""

from __future__ import annotations

from bisect import bisect_right

from openmsmq.queueing.descriptors import WaitingMessageReadOperation

_SPARE = 16  # finished reads may stay in the list: at most the number of waiting reads plus this


class WaitingLine:
    """Waiting reads in order. Joining, leaving and finding the next read take constant time: a finished read stays in
    the list and is skipped until enough have accumulated."""

    def __init__(self) -> None:
        self._reads: list[WaitingMessageReadOperation] = []  # ordered by number
        self._head = 0  # all before this index have finished
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def last_number(self) -> int:
        """Number of the most recent read, whether or not it still waits; 0 if there is none."""
        return self._reads[-1].number if self._reads else 0

    def join(self, read: WaitingMessageReadOperation) -> None:
        """Append a read. Its number must be higher than all others in the line."""
        self._reads.append(read)
        self._waiting += 1

    def leave(self) -> None:
        """Note that a read no longer waits (`is_waiting`)."""
        self._waiting -= 1
        if len(self._reads) > 2 * self._waiting + _SPARE:
            self._reads, self._head = self.all(), 0

    def first_after(self, number: int) -> WaitingMessageReadOperation | None:
        """Return the first waiting read with a higher number. Reads may leave and join between calls."""
        reads = self._reads
        at = bisect_right(reads, number, self._head, key=_number_of) if number else self._head
        while at < len(reads) and not is_waiting(reads[at]):
            at += 1
        if not number:
            self._head = at
        return reads[at] if at < len(reads) else None

    def all(self) -> list[WaitingMessageReadOperation]:
        """Return the waiting reads in order."""
        return [read for read in self._reads[self._head :] if is_waiting(read)]


def is_waiting(read: WaitingMessageReadOperation) -> bool:
    """Whether a read is still waiting."""
    return read.number in read.descriptor.waiting


def _number_of(read: WaitingMessageReadOperation) -> int:
    return read.number
