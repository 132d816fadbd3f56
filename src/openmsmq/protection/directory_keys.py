"""Public keys of queue managers: a local file, and a directory.

Encryption needs them at once, so the directory is not queried then: its records are passed to this module when they are
read, and stay valid until a newer one comes.
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

FRESH: Final = 1200.0  # seconds before the directory is to be asked again
MOST: Final = 10_000  # queue managers


class DirectoryKeys:
    """See the module and `directories.KeyDirectory`. `clock` returns seconds and never goes back."""

    def __init__(self, files: KeyDirectory, clock: Callable[[], float]) -> None:
        self._files: Final = files
        self._clock: Final = clock
        # The oldest first.
        self._learned: Final[OrderedDict[bytes, tuple[float, Sequence[DirectoryKey]]]] = OrderedDict()

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """Return the keys of a queue manager; those of the file come first, because an administrator put them there."""
        return self._files.public_keys_of(identifier) or self._learned.get(identifier, (0.0, ()))[1]

    def is_fresh(self, identifier: bytes) -> bool:
        """Whether the directory has recently reported the keys of a queue manager, or that it has none."""
        learned = self._learned.get(identifier)
        return learned is not None and self._clock() - learned[0] < FRESH

    def learn(self, identifier: bytes, encoded: bytes) -> None:
        """Store the MQDSPUBLICKEYS of a queue manager, or none. Raises nothing: the data is not trusted."""
        keys: Sequence[DirectoryKey] = ()
        try:
            keys = unpack_directory_keys(encoded) if encoded else ()
        except BadPacket as error:
            logger.warning("invalid keys of %s in the directory: %s", UUID(bytes_le=identifier), error)
        self._learned[identifier] = self._clock(), keys
        self._learned.move_to_end(identifier)
        if len(self._learned) > MOST:
            self._learned.popitem(last=False)
