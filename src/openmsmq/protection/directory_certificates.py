"""Certificates of users in a directory that takes time to answer, beside those in local files.

A verdict needs them at once. So whoever judges a packet asks `look_up` first and awaits what that returns; then the
answer is in the cache of [MS-MQQB] 3.1.3.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from openmsmq.model.security import is_sid, sid_text
from openmsmq.protection.caches import TimedCache
from openmsmq.protection.directories import CertificateDirectory, DirectoryUnavailable

logger = logging.getLogger(__name__)

USERS: Final = 53  # entries, CertificateCacheSize
SECONDS: Final = 1200.0  # CertificateLifetime: so long may a certificate be accepted after it was removed elsewhere

#: The certificates of a SID, as text. Raises DirectoryUnavailable.
Ask = Callable[[str], Awaitable[Collection[bytes]]]


class DirectoryCertificates:
    """See the module and `directories.CertificateDirectory`. `clock` returns seconds and never goes back."""

    def __init__(self, files: CertificateDirectory, ask: Ask, clock: Callable[[], float]) -> None:
        self._files: Final = files
        self._ask: Final = ask
        self._clock: Final = clock
        self._found: Final[TimedCache[bytes, Collection[bytes]]] = TimedCache(USERS, SECONDS)
        self._trouble = ""  # why the directory did not answer the latest question

    def look_up(self, sid: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Asks also where the cache has other certificates of this user: it may have been registered since."""
        try:
            known = self._files.certificates_of_user(sid)
        except DirectoryUnavailable:
            return None  # the verdict will meet it, too
        if not is_sid(sid) or certificate in known or certificate in self._cached(sid):
            return None
        return self._fetch(sid)

    async def _fetch(self, sid: bytes) -> None:
        try:
            found = await self._ask(sid_text(sid))
        except Exception as error:  # whatever a directory fails with: somebody waits for the verdict
            if not isinstance(error, DirectoryUnavailable):
                logger.exception("the directory failed when it was asked for certificates of %s", sid_text(sid))
            self._trouble = str(error) or type(error).__name__
            return
        self._trouble = ""
        self._found.put(sid, found, self._clock())

    def _cached(self, sid: bytes) -> Collection[bytes]:
        return self._found.get(sid, self._clock()) or ()

    def forget(self, sid: bytes) -> None:
        self._found.discard(sid)

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        known = frozenset(self._files.certificates_of_user(sid)).union(self._cached(sid))
        if not known and self._trouble:
            raise DirectoryUnavailable(self._trouble)
        return known

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        """Of the files only: nothing here registers certificates of queue managers in a directory."""
        return self._files.certificates_of_machine(identifier)
