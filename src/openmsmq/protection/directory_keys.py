"""Public keys of queue managers in a directory, beside those in a local file.

Whoever encrypts needs them at once, so a directory is not asked then: its records are told here whenever somebody has
asked for one, and they stay good until a newer one comes.
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
        self._told: Final[OrderedDict[bytes, tuple[float, Sequence[DirectoryKey]]]] = OrderedDict()  # the oldest first

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """Those of the file go first: an administrator has put them there."""
        return self._files.public_keys_of(identifier) or self._told.get(identifier, (0.0, ()))[1]

    def is_fresh(self, identifier: bytes) -> bool:
        """Whether the directory has said lately which keys a queue manager has, or that it has none."""
        told = self._told.get(identifier)
        return told is not None and self._clock() - told[0] < FRESH

    def told(self, identifier: bytes, encoded: bytes) -> None:
        """MQDSPUBLICKEYS of a queue manager, or nothing. Raises nothing: whoever wrote it may be anybody."""
        keys: Sequence[DirectoryKey] = ()
        try:
            keys = unpack_directory_keys(encoded) if encoded else ()
        except BadPacket as error:
            logger.warning("the keys of %s in the directory can't be read: %s", UUID(bytes_le=identifier), error)
        self._told[identifier] = self._clock(), keys
        self._told.move_to_end(identifier)
        if len(self._told) > MOST:
            self._told.popitem(last=False)
