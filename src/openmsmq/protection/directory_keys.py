"""Public keys of queue managers, from a local file and a directory.

Encryption cannot wait for a directory query. Instead, directory records are passed to this module whenever they are
read, and stay valid until a newer record arrives.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from openmsmq.packet.errors import BadPacket
from openmsmq.protection.directories import KeyDirectory
from openmsmq.protection.keys import DirectoryKey, unpack_directory_keys

logger = logging.getLogger(__name__)

FRESH: Final = 1200.0  # seconds before the directory is queried again
MOST: Final = 10_000  # queue managers


class DirectoryKeys:
    """See the module and `directories.KeyDirectory`. `clock` is a monotonic clock in seconds."""

    def __init__(self, files: KeyDirectory, clock: Callable[[], float]) -> None:
        self._files: Final = files
        self._clock: Final = clock
        # Oldest first.
        self._learned: Final[OrderedDict[bytes, tuple[float, Sequence[DirectoryKey]]]] = OrderedDict()

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """Return the keys of a queue manager; those in the file, set by an administrator, take precedence."""
        return self._files.public_keys_of(identifier) or self._learned.get(identifier, (0.0, ()))[1]

    def is_fresh(self, identifier: bytes) -> bool:
        """Whether the keys of a queue manager, or their absence, were recently read from the directory."""
        learned = self._learned.get(identifier)
        return learned is not None and self._clock() - learned[0] < FRESH

    def learn(self, identifier: bytes, encoded: bytes) -> None:
        """Store the MQDSPUBLICKEYS of a queue manager, or none. Invalid data is logged; raises nothing."""
        keys: Sequence[DirectoryKey] = ()
        try:
            keys = unpack_directory_keys(encoded) if encoded else ()
        except BadPacket as error:
            logger.warning("invalid keys of %s in the directory: %s", UUID(bytes_le=identifier), error)
        self._learned[identifier] = self._clock(), keys
        self._learned.move_to_end(identifier)
        if len(self._learned) > MOST:
            self._learned.popitem(last=False)
