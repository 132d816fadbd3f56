"""The identity of this queue manager, and the computer names by which it is known. The store keeps both.

A queue manager is identified by its GUID in the store. Its computer name may change, if the store is restored on
another host or a container is renamed. Former names then remain names of this machine; otherwise messages for them
would wait in outgoing queues for a machine that no longer exists. But if the store is a copy of one that is still in
use, two queue managers would have the same names and identifier. These cases cannot be distinguished here, so an
operator must state which one applies.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing import UNCONNECTED_COPY
from openmsmq.queueing.records import decode_properties
from openmsmq.queueing.registry import QUEUE_PREFIX
from openmsmq.server.config import ConfigurationError
from openmsmq.store import Drop, Put, Store

logger = logging.getLogger(__name__)

_IDENTIFIER = b"queue-manager-identifier"
_NAMES = b"computer-names"  # JSON: a list of names, oldest first
_FORMER = b"former-identifiers"  # 16 bytes each


class UnknownName(ConfigurationError):
    """The store belongs to a queue manager with another name, and no setting tells whether it was moved or copied."""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Identity of the queue manager: its GUID, 16 bytes, and further names of this machine, in lower case. `former` are
    its identifiers before it was moved into a domain."""

    identifier: bytes
    aliases: frozenset[str]
    former: frozenset[bytes] = frozenset()


def identity_of(
    store: Store, computer_name: str, configured: Sequence[str], name_change: str, draw: Callable[[], bytes]
) -> StoreIdentity:
    """Return the identity of a store on a computer of this name, which it stores.

    For stores of versions that did not store names, the names are taken from the queues. If the name is new to the
    store, the queue manager was moved, or the store is a copy of one that is still in use: `name_change` tells which
    (moved, copied); names in `configured` count as moved. `draw` creates the identifier of a new queue manager.

    Raises UnknownName if this is not configured, OSError, StoreError, and the exceptions of `draw`.
    """
    identifier = store.definitions.get(_IDENTIFIER)
    earlier = _remembered(store)
    is_new = bool(earlier) and computer_name.lower() not in {name.lower() for name in earlier}
    configured_names = {name.lower() for name in configured} & {name.lower() for name in earlier}
    if is_new and name_change == "ask" and not configured_names:
        raise UnknownName(_question(identifier, earlier, computer_name))
    is_copy = is_new and name_change == "copied"
    if is_copy:
        logger.warning(
            "this is a copy of the queue manager %s (%s), which runs elsewhere: it gets a new identifier",
            UUID(bytes_le=identifier) if identifier else "?", ", ".join(earlier),
        )  # fmt: skip
        identifier, earlier = None, []
    former = frozenset() if is_copy else _former(store)
    changes: list[Put | Drop] = [Put(UNCONNECTED_COPY, b"")] if is_copy else []
    if is_copy and _FORMER in store.definitions:
        changes.append(Drop(_FORMER))
    if identifier is None:
        identifier = draw()
        changes.append(Put(_IDENTIFIER, identifier))
    known = computer_name.lower() in {name.lower() for name in earlier}
    names = json.dumps(earlier if known else [*earlier, computer_name]).encode()
    if store.definitions.get(_NAMES) != names:
        changes.append(Put(_NAMES, names))
    if changes:
        store.append(changes)
        store.sync()
    if UNCONNECTED_COPY in store.definitions:
        logger.warning(
            "this copy of a queue manager stays disconnected until `openmsmq machine connect`; before, check its "
            "outgoing queues, whose messages the original also sends, and end its relays, which the original also runs"
        )
    others = [name for name in earlier if name.lower() != computer_name.lower()]
    if others:
        logger.warning(
            "the computer name was %s and is now %s; both names are accepted as this machine",
            ", ".join(others),
            computer_name,
        )
    return StoreIdentity(identifier, frozenset(name.lower() for name in (*others, *configured)), former)


def _former(store: Store) -> frozenset[bytes]:
    kept = store.definitions.get(_FORMER, b"")
    return frozenset(kept[at : at + 16] for at in range(0, len(kept), 16))


def identifier_in(store: Store) -> bytes | None:
    """Return the identifier of the queue manager that owns the store; None for a new store."""
    return store.definitions.get(_IDENTIFIER)


def renewed(store: Store, identifier: bytes) -> list[Put]:
    """Return the definitions that assign a new identifier to a store. Former identifiers remain valid."""
    had = store.definitions.get(_IDENTIFIER)
    known = _former(store) | ({had} if had else set())
    return [Put(_IDENTIFIER, identifier), Put(_FORMER, b"".join(sorted(known - {identifier})))]


def _remembered(store: Store) -> list[str]:
    """Return the computer names under which the store was used, oldest first."""
    remembered: list[str] = json.loads(store.definitions.get(_NAMES, b"[]"))
    if remembered:
        return remembered
    return sorted(
        {
            decode_properties(value).path_name.partition("\\")[0]
            for name, value in store.definitions.items()
            if name.startswith(QUEUE_PREFIX)
        }
    )


def _question(identifier: bytes | None, earlier: Sequence[str], computer_name: str) -> str:
    return (
        f"the store belongs to the queue manager {', '.join(earlier)} "
        f"({UUID(bytes_le=identifier) if identifier else 'without an identifier'}), and this computer is "
        f"{computer_name}. Set name_change = moved if that queue manager now runs only here; name_change = copied if "
        f"it still runs elsewhere; computer_name = {earlier[-1]} if the name should stay"
    )


def warn_of_own_outgoing_queues(manager: QueueManager) -> None:
    """Log a warning for messages to this machine that were sent while its name was not known."""
    for queue in manager.registry.outgoing.values():
        if queue.entries and manager.registry.is_local(queue.destination):
            logger.warning(
                "%d messages wait in the outgoing queue %s, whose destination is this machine: they were "
                "sent while the name "
                "was not known here (setting aliases). `openmsmq outgoing peek` shows them; send them "
                "again and purge the outgoing queue",
                len(queue),
                queue.destination,
            )


def fully_qualified_name() -> str:
    """Return the name of the host with its domain, as `hostname -f`; without a domain if the resolver knows none."""
    name = socket.gethostname()
    try:
        found = [entry[3] for entry in socket.getaddrinfo(name, 0, flags=socket.AI_CANONNAME) if entry[3]]
    except OSError:  # the resolver does not know the host
        return name
    return found[0] if found and "." in found[0] and not found[0].startswith("localhost") else name
