"""Under which names this queue manager is known: the store remembers the computer names with which it was run.

A queue manager is who its identifier says, which the store holds. A computer name is only how others reach it, and may
change: the store is restored on another host, or a container is given another name. So each name stays a name of this
machine; otherwise messages for it would wait in outgoing queues for a machine that is not there any more.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Sequence

from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.records import decode_properties
from openmsmq.queueing.registry import QUEUE_PREFIX
from openmsmq.store import Put, Store

logger = logging.getLogger(__name__)

_IDENTIFIER = b"queue-manager-identifier"
_NAMES = b"computer-names"  # JSON: a list of names, the oldest first


def identifier_of(store: Store) -> bytes:
    """The GUID of the queue manager, 16 bytes; drawn when the store is new. Raises OSError, StoreError."""
    identifier = store.definitions.get(_IDENTIFIER)
    if identifier is None:
        identifier = os.urandom(16)
        store.append([Put(_IDENTIFIER, identifier)])
        store.sync()
    return identifier


def aliases_of(store: Store, computer_name: str, configured: Sequence[str]) -> frozenset[str]:
    """Names of this machine besides `computer_name`, in lower case: earlier ones, and those that are configured.

    The store remembers `computer_name`. Queues of a store that was written before it remembered names say theirs.
    """
    remembered: list[str] = json.loads(store.definitions.get(_NAMES, b"[]"))
    known = {name.lower() for name in remembered}
    if not remembered:
        of_queues = {
            decode_properties(value).path_name.partition("\\")[0]
            for name, value in store.definitions.items()
            if name.startswith(QUEUE_PREFIX)
        }
        remembered += sorted(name for name in of_queues if name.lower() != computer_name.lower())
        known = {name.lower() for name in remembered}
    if computer_name.lower() not in known:
        store.append([Put(_NAMES, json.dumps([*remembered, computer_name]).encode())])
        store.sync()
    earlier = [name for name in remembered if name.lower() != computer_name.lower()]
    if earlier:
        logger.warning(
            "the computer name was %s and is now %s; both names are accepted as this machine",
            ", ".join(earlier),
            computer_name,
        )
    return frozenset(name.lower() for name in (*earlier, *configured))


def warn_of_own_outgoing_queues(manager: QueueManager) -> None:
    """Messages that were sent to this machine while it was taken for another one."""
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
    """The host's name with its domain, as `hostname -f` has it; without one where the resolver knows none."""
    name = socket.gethostname()
    try:
        found = [entry[3] for entry in socket.getaddrinfo(name, 0, flags=socket.AI_CANONNAME) if entry[3]]
    except OSError:  # the resolver does not know the host at all
        return name
    return found[0] if found and "." in found[0] and not found[0].startswith("localhost") else name
