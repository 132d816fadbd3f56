"""Definitions and progress of relays in the store.

The progress is written with each batch of messages, in the same record of the log.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from openmsmq.model.relay_states import RELAY_STATES, RelayState
from openmsmq.store import Drop, Operation, Put

logger = logging.getLogger(__name__)

RELAY_PREFIX: Final = b"relay/"
PROGRESS_PREFIX: Final = b"relay-progress/"
_COUNTS: Final = struct.Struct("<QQQ")
_TAKEN: Final = struct.Struct("<20sI")


class RelayDefinition(NamedTuple):
    """Definition of a relay.

    Attributes:
        queue: path name of the queue here, `.\\private$\\orders`; with `;journal` its journal, or the dead-letter and
            journal queues of the machine, `system$;deadletter`.
        host: computer name of the other machine, or its address.
        remote: path name of the queue there, without computer name, `private$\\orders`.
        state: see `states`.
        since: when it entered this state, in seconds since 1970 UTC.
        began: when it was created, in seconds since 1970 UTC.
        replies: whether fetched messages that name the queue there as their response queue get the name of the queue
            here, once programs send here; see `replies.redirect_reply`.
    """

    queue: str
    host: str
    remote: str
    state: RelayState
    since: int
    began: int
    replies: bool = False


class RelayProgress(NamedTuple):
    """Progress of a relay.

    Attributes:
        moved, volume: messages moved in both directions, and their total size in bytes (Message.size).
        last: when the last message was moved, in seconds since 1970 UTC; 0 for never.
        taken: identifiers of messages that are stored here and possibly not yet removed at the other machine, each with
            the time when it was stored.
        express: those in `taken` that are express messages. A restart loses the messages, so their identifiers are not
            stored: the other machine still has the only copy.
    """

    moved: int = 0
    volume: int = 0
    last: int = 0
    taken: Mapping[bytes, int] = {}
    express: frozenset[bytes] = frozenset()

    def of_taken(self) -> RelayProgress:
        """Return the part that is kept when the relay is deleted."""
        return RelayProgress(taken=self.taken, express=self.express)


def relay_key(queue: str) -> str:
    """Return the key of a queue's relay: the queue's name, case-insensitive."""
    return queue.lower()


def put_relay(relay: RelayDefinition) -> Put:
    values = relay._asdict()
    if not relay.replies:
        del values["replies"]  # so that earlier versions can read the relay
    return Put(RELAY_PREFIX + _encoded(relay.queue), json.dumps(values).encode())


def drop_relay(queue: str, left: RelayProgress) -> list[Operation]:
    """Return the operations that delete a relay; `left` stays if messages are in doubt."""
    last = put_progress(queue, left) if left.taken else drop_progress(queue)
    return [Drop(RELAY_PREFIX + _encoded(queue)), last]


def drop_progress(queue: str) -> Drop:
    return Drop(PROGRESS_PREFIX + _encoded(queue))


def put_progress(queue: str, progress: RelayProgress) -> Put:
    counts = _COUNTS.pack(progress.moved, progress.volume, progress.last)
    taken = b"".join(
        _TAKEN.pack(identifier, at) for identifier, at in progress.taken.items() if identifier not in progress.express
    )
    return Put(PROGRESS_PREFIX + _encoded(queue), counts + taken)


def relays_of(definitions: Mapping[bytes, bytes]) -> Iterator[tuple[RelayDefinition, RelayProgress]]:
    """Yield the relays in a store. One that cannot be read, for example of a later version, is kept but left out."""
    for name in [name for name in definitions if name.startswith(RELAY_PREFIX)]:
        progress = definitions.get(PROGRESS_PREFIX + name.removeprefix(RELAY_PREFIX))
        try:
            yield _definition(definitions[name]), RelayProgress() if progress is None else _progress(progress)
        except (ValueError, TypeError, struct.error) as error:
            logger.error(
                "a relay is disabled, because this version cannot read its record %r; install the version that wrote "
                "it: %s", name, error,
            )  # fmt: skip


def left_by_deleted(definitions: Mapping[bytes, bytes]) -> Iterator[tuple[str, RelayProgress]]:
    """Yield what deleted relays have left, by the keys of their queues."""
    for name in [name for name in definitions if name.startswith(PROGRESS_PREFIX)]:
        key = name.removeprefix(PROGRESS_PREFIX)
        if RELAY_PREFIX + key not in definitions:
            with suppress(struct.error):
                yield key.decode("utf-8", "surrogatepass"), _progress(definitions[name]).of_taken()


def _definition(value: bytes) -> RelayDefinition:
    relay = RelayDefinition(**json.loads(value))
    if relay.state not in RELAY_STATES:
        raise ValueError(f"the relay of {relay.queue} is in a state that this version does not know: {relay.state}")
    return relay


def _progress(value: bytes) -> RelayProgress:
    taken = dict(_TAKEN.iter_unpack(value[_COUNTS.size :]))
    moved, volume, last = _COUNTS.unpack_from(value)
    return RelayProgress(moved, volume, last, taken)


def _encoded(queue: str) -> bytes:
    return relay_key(queue).encode("utf-8", "surrogatepass")
