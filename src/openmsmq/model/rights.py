"""Rights in words, as Set-MsmqQueueAcl and older cmdlets have them, for the masks of [MS-MQMQ] 2.2.23 and 2.2.24."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from openmsmq.model.constants import MachineAccessMask as M
from openmsmq.model.constants import QueueAccessMask as Q


class Right(NamedTuple):
    """`aliases` are what older cmdlets, and people, call it."""

    word: str
    mask: int
    aliases: tuple[str, ...] = ()


_STANDARD: Final = (
    Right("DeleteQueue", Q.DELETE_QUEUE, ("Delete",)),
    Right("GetQueuePermissions", Q.GET_QUEUE_PERMISSIONS, ("GetPermissions",)),
    Right("ChangeQueuePermissions", Q.CHANGE_QUEUE_PERMISSIONS, ("SetPermissions", "ChangePermissions")),
    Right("TakeQueueOwnership", Q.TAKE_QUEUE_OWNERSHIP, ("TakeOwnership",)),
)
#: What rights are shown as, those that comprise others first; each bit is shown once.
QUEUE_RIGHTS: Final = (
    Right("FullControl", Q.GENERIC_ALL, ("Full",)),
    Right("ReceiveMessage", Q.RECEIVE_MESSAGE, ("Receive",)),
    Right("ReceiveJournalMessage", Q.RECEIVE_JOURNAL_MESSAGE, ("JournalReceive", "ReceiveJournal")),
    Right("DeleteMessage", Q.DELETE_MESSAGE),
    Right("PeekMessage", Q.PEEK_MESSAGE, ("Peek",)),
    Right("WriteMessage", Q.WRITE_MESSAGE, ("Send", "Write")),
    Right("DeleteJournalMessage", Q.DELETE_JOURNAL_MESSAGE),
    Right("SetQueueProperties", Q.SET_QUEUE_PROPERTIES, ("SetProperties",)),
    Right("GetQueueProperties", Q.GET_QUEUE_PROPERTIES, ("GetProperties",)),
    *_STANDARD,
)
#: Understood and not shown: they are shown as what they comprise.
QUEUE_SETS: Final = (
    Right("GenericRead", Q.GENERIC_READ),
    Right("GenericWrite", Q.GENERIC_WRITE),
    Right("Look", Q.PEEK_MESSAGE | Q.GET_QUEUE_PROPERTIES),
)
MACHINE_RIGHTS: Final = (
    Right("FullControl", M.GENERIC_ALL, ("Full",)),
    Right("ReceiveDeadLetter", M.RECEIVE_DEADLETTER_MESSAGE, ("ReceiveDeadLetterMessage",)),
    Right("ReceiveComputerJournal", M.RECEIVE_JOURNAL_QUEUE_MESSAGE, ("ReceiveJournalMessage",)),
    Right("DeleteDeadLetter", M.DELETE_DEADLETTER_MESSAGE),
    Right("PeekDeadLetter", M.PEEK_DEADLETTER_MESSAGE, ("PeekDeadLetterMessage",)),
    Right("CreateQueue", M.CREATE_QUEUE),
    Right("SetProperties", M.SET_MACHINE_PROPERTIES, ("SetMachineProperties",)),
    Right("GetProperties", M.GET_MACHINE_PROPERTIES, ("GetMachineProperties",)),
    Right("DeleteComputerJournal", M.DELETE_JOURNAL_QUEUE_MESSAGE),
    Right("PeekComputerJournal", M.PEEK_JOURNAL_QUEUE_MESSAGE, ("PeekJournalMessage",)),
    Right("Delete", 0x00010000),
    Right("GetPermissions", 0x00020000),
    Right("ChangePermissions", 0x00040000, ("SetPermissions",)),
    Right("TakeOwnership", 0x00080000),
)
#: Rights of a computer's object in a directory, which a queue manager does not ask for.
_OF_DIRECTORIES: Final = frozenset(
    ["allextendedrights", "createchildobjects", "deletechildobjects", "createallchildobjects", "deleteallchildobjects",
     "listobjects", "listcontents"]
)  # fmt: skip


def mask_of(words: Iterable[str], rights: tuple[Right, ...] = QUEUE_RIGHTS) -> int:
    """The mask of rights in words or as numbers (0x3), without regard to case. Raises ValueError naming the words."""
    known = {
        name.lower(): int(right.mask)
        for right in (*rights, *(QUEUE_SETS if rights is QUEUE_RIGHTS else ()))
        for name in (right.word, *right.aliases)
    }
    mask = 0
    for word in words:
        lowered = word.lower()
        if lowered in known:
            mask |= known[lowered]
        elif lowered.startswith("0x"):
            mask |= _number(word)
        elif lowered in _OF_DIRECTORIES:
            raise ValueError(f"{word} is a right of a directory's object, which no queue manager asks for")
        else:
            raise ValueError(f"{word!r} is no right; allowed: {', '.join(right.word for right in rights)}")
    return mask


def _number(word: str) -> int:
    try:
        mask = int(word, 16)
    except ValueError:
        mask = -1
    if not 0 < mask < 1 << 32:
        raise ValueError(f"{word!r} is no access mask: 0x1 to 0xffffffff")
    return mask


def words_of(mask: int, rights: tuple[Right, ...] = QUEUE_RIGHTS) -> list[str]:
    """The words for a mask whose generic rights are mapped; what has no word, in hexadecimal. The inverse of
    `mask_of`."""
    words, left = [], mask
    for right in rights:
        if right.mask & mask == right.mask and right.mask & left:
            words.append(right.word)
            left &= ~int(right.mask)  # an IntFlag's inverse lacks the bits that it has no names for
    return words + ([f"0x{left:x}"] if left else [])
