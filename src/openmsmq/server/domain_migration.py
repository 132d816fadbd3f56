"""Move a data directory into a domain: its queue manager takes over the identifier of its directory object.

Active Directory assigns the identifiers of objects. The queue manager therefore gets a new identifier, and its previous
one remains valid. Its queues keep their numbers, messages and rights. A public queue gets the identifier of its new
object.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.records import decode_properties, encode_properties
from openmsmq.queueing.registry import OUTGOING_PREFIX, PUBLIC_PREFIX
from openmsmq.server.identity import identifier_in, renewed
from openmsmq.store import Put, Store


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a store: the identifier of the queue manager, public queues by the name of their definition, and the
    number of messages in outgoing queues by destination."""

    identifier: UUID
    public: Mapping[bytes, QueueProperties]
    outgoing: Mapping[str, int]


def is_used(data_dir: Path) -> bool:
    """Whether a queue manager has run on a data directory."""
    return (data_dir / "store").is_dir()


def contents_of(store: Store) -> Contents | None:
    """Return the contents of a store; None if no queue manager has used it."""
    identifier = identifier_in(store)
    if identifier is None:
        return None
    public, outgoing = {}, {}
    for name, value in store.definitions.items():
        if name.startswith(PUBLIC_PREFIX):
            public[name] = decode_properties(value)
        elif name.startswith(OUTGOING_PREFIX):
            columns = store.recovered.queues.get(int(name.removeprefix(OUTGOING_PREFIX)))
            if columns is not None and len(columns.keys):
                outgoing[value.decode()] = len(columns.keys)
    return Contents(UUID(bytes_le=identifier), public, outgoing)


def move(store: Store, contents: Contents, identifier: UUID, queues: Mapping[bytes, UUID]) -> None:
    """Change all identifiers in one batch and sync it. `queues` has the new identifiers of public queues. Raises
    StoreError, OSError."""
    changes = renewed(store, identifier.bytes_le)
    for name, instance in queues.items():
        changes.append(Put(name, encode_properties(contents.public[name]._replace(instance=instance.bytes_le))))
    store.append(changes)
    store.sync()


def give_to_owner(data_dir: Path) -> None:
    """Give files that root wrote in a store to the owner of the data directory: the daemon runs as that user. Raises
    OSError."""
    if os.geteuid() != 0:
        return
    owner = data_dir.stat()
    for path in (data_dir / "store").rglob("*"):
        found = path.lstat()
        if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
            os.lchown(path, owner.st_uid, owner.st_gid)
