"""Names of rights, as in Set-MsmqQueueAcl and older cmdlets, for the masks of [MS-MQMQ] 2.2.23 and 2.2.24."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from shlex import quote
from typing import Final, NamedTuple

from openmsmq.model.constants import MachineAccessMask as M
from openmsmq.model.constants import QueueAccessMask as Q

_PRIVATE: Final = "\\private$\\"


class NamedRight(NamedTuple):
    """A named right. `aliases` are its names in older cmdlets and common usage."""

    word: str
    mask: int
    aliases: tuple[str, ...] = ()


_STANDARD: Final = (
    NamedRight("DeleteQueue", Q.DELETE_QUEUE, ("Delete",)),
    NamedRight("GetQueuePermissions", Q.GET_QUEUE_PERMISSIONS, ("GetPermissions",)),
    NamedRight("ChangeQueuePermissions", Q.CHANGE_QUEUE_PERMISSIONS, ("SetPermissions", "ChangePermissions")),
    NamedRight("TakeQueueOwnership", Q.TAKE_QUEUE_OWNERSHIP, ("TakeOwnership",)),
)
#: Rights in output, in this order: rights that include others come first; each bit is shown once.
QUEUE_RIGHTS: Final = (
    NamedRight("FullControl", Q.GENERIC_ALL, ("Full",)),
    NamedRight("ReceiveMessage", Q.RECEIVE_MESSAGE, ("Receive",)),
    NamedRight("ReceiveJournalMessage", Q.RECEIVE_JOURNAL_MESSAGE, ("JournalReceive", "ReceiveJournal")),
    NamedRight("DeleteMessage", Q.DELETE_MESSAGE),
    NamedRight("PeekMessage", Q.PEEK_MESSAGE, ("Peek",)),
    NamedRight("WriteMessage", Q.WRITE_MESSAGE, ("Send", "Write")),
    NamedRight("DeleteJournalMessage", Q.DELETE_JOURNAL_MESSAGE),
    NamedRight("SetQueueProperties", Q.SET_QUEUE_PROPERTIES, ("SetProperties",)),
    NamedRight("GetQueueProperties", Q.GET_QUEUE_PROPERTIES, ("GetProperties",)),
    *_STANDARD,
)
#: Sets of rights that are accepted as input; output shows their parts.
QUEUE_SETS: Final = (
    NamedRight("GenericRead", Q.GENERIC_READ),
    NamedRight("GenericWrite", Q.GENERIC_WRITE),
    NamedRight("Look", Q.PEEK_MESSAGE | Q.GET_QUEUE_PROPERTIES),
)
MACHINE_RIGHTS: Final = (
    NamedRight("FullControl", M.GENERIC_ALL, ("Full",)),
    NamedRight("ReceiveDeadLetter", M.RECEIVE_DEADLETTER_MESSAGE, ("ReceiveDeadLetterMessage",)),
    NamedRight("ReceiveComputerJournal", M.RECEIVE_JOURNAL_QUEUE_MESSAGE, ("ReceiveJournalMessage",)),
    NamedRight("DeleteDeadLetter", M.DELETE_DEADLETTER_MESSAGE),
    NamedRight("PeekDeadLetter", M.PEEK_DEADLETTER_MESSAGE, ("PeekDeadLetterMessage",)),
    NamedRight("CreateQueue", M.CREATE_QUEUE),
    NamedRight("SetProperties", M.SET_MACHINE_PROPERTIES, ("SetMachineProperties",)),
    NamedRight("GetProperties", M.GET_MACHINE_PROPERTIES, ("GetMachineProperties",)),
    NamedRight("DeleteComputerJournal", M.DELETE_JOURNAL_QUEUE_MESSAGE),
    NamedRight("PeekComputerJournal", M.PEEK_JOURNAL_QUEUE_MESSAGE, ("PeekJournalMessage",)),
    NamedRight("Delete", 0x00010000),
    NamedRight("GetPermissions", 0x00020000),
    NamedRight("ChangePermissions", 0x00040000, ("SetPermissions",)),
    NamedRight("TakeOwnership", 0x00080000),
)
#: Rights of a computer object in a directory, which a queue manager does not check.
_OF_DIRECTORIES: Final = frozenset(
    ["allextendedrights", "createchildobjects", "deletechildobjects", "createallchildobjects", "deleteallchildobjects",
     "listobjects", "listcontents"]
)  # fmt: skip


def mask_of(words: Iterable[str], rights: tuple[NamedRight, ...] = QUEUE_RIGHTS) -> int:
    """Return the mask of rights given as names (case-insensitive) or numbers (0x3). Raises ValueError with the valid
    names."""
    known, mask = _masks(rights), 0
    for word in words:
        lowered = word.lower()
        if lowered in known:
            mask |= known[lowered]
        elif lowered.startswith("0x"):
            mask |= _number(word)
        elif lowered in _OF_DIRECTORIES:
            raise ValueError(f"{word} is a right on directory objects, which queue managers do not check")
        else:
            raise ValueError(f"unknown right {word!r}; allowed: {', '.join(right.word for right in rights)}")
    return mask


@cache
def _masks(rights: tuple[NamedRight, ...]) -> dict[str, int]:
    return {
        name.lower(): int(right.mask)
        for right in (*rights, *(QUEUE_SETS if rights is QUEUE_RIGHTS else ()))
        for name in (right.word, *right.aliases)
    }


def missing_right(mask: int, user: str, queue: str | None) -> str:
    """Return an error text: the rights in `mask` that a user lacks on a queue (None: on the queue manager), and the
    command that grants them."""
    words = words_of(mask, MACHINE_RIGHTS if queue is None else QUEUE_RIGHTS)
    place = "machine grant" if queue is None else f"queue grant {quote(short_name(queue))}"
    command = f"openmsmq {place} {quote(user)} {' '.join(words)}"
    return f"the right {', '.join(words)} is missing; an administrator grants it: {command}"


def short_name(queue: str) -> str:
    """Return the short name of a private queue of this machine, as commands accept it; any other name unchanged."""
    start = queue.lower().rfind(_PRIVATE)
    local = queue[:start].lower() in (".", "direct=os:.") and start >= 0
    name = queue[start + len(_PRIVATE) :]
    return name if local and name.lower() != "journal" else queue


def _number(word: str) -> int:
    try:
        mask = int(word, 16)
    except ValueError:
        mask = 0
    if not 0 < mask < 1 << 32:
        raise ValueError(f"invalid access mask {word!r}; allowed: 0x1 to 0xffffffff")
    return mask


def words_of(mask: int, rights: tuple[NamedRight, ...] = QUEUE_RIGHTS) -> list[str]:
    """Return the names of the rights in a mask without generic rights; bits without a name in hexadecimal. The inverse
    of `mask_of`."""
    words, left = [], mask
    for right in rights:
        if right.mask & mask == right.mask and right.mask & left:
            words.append(right.word)
            left &= ~int(right.mask)  # the inverse of an IntFlag lacks unnamed bits
    return words + ([f"0x{left:x}"] if left else [])
