"""Certificates and groups of senders, from local files and an asynchronous directory.

The check of a packet cannot wait for the directory. Its caller therefore first awaits `look_up`, which stores the
result in the cache of [MS-MQQB] 3.1.3.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from openmsmq.model.security import is_sid, sid_text
from openmsmq.protection.caches import TimedCache
from openmsmq.protection.directories import CertificateDirectory, DirectoryUnavailable

logger = logging.getLogger(__name__)

USERS: Final = 53  # entries, CertificateCacheSize
SECONDS: Final = 1200.0  # CertificateLifetime: maximum use of a certificate that was removed elsewhere


@dataclass(frozen=True, slots=True)
class KnownSender:
    """Directory entry of a user or a queue manager: certificates in DER, and SIDs of groups."""

    certificates: Collection[bytes] = frozenset()
    groups: frozenset[str] = frozenset()


#: Queries a directory for a SID (text). Raises DirectoryUnavailable.
Ask = Callable[[str], Awaitable[KnownSender]]
#: Queries a directory for a queue manager. Raises DirectoryUnavailable.
AskMachine = Callable[[UUID], Awaitable[KnownSender]]
_MACHINE: Final = b"queue manager "  # prefix of identifiers in cache keys, because a SID may also have 16 bytes


class DirectoryCertificates:
    """See the module and `directories.CertificateDirectory`. `clock` is a monotonic clock in seconds."""

    def __init__(
        self, files: CertificateDirectory, ask: Ask, ask_machine: AskMachine, clock: Callable[[], float], *,
        has_groups: bool = False,
    ) -> None:  # fmt: skip
        """`has_groups`: whether the directory has groups; every sender is then looked up."""
        self._files: Final = files
        self._ask: Final = ask
        self._ask_machine: Final = ask_machine
        self._clock: Final = clock
        self._has_groups: Final = has_groups
        self._found: Final[TimedCache[bytes, KnownSender]] = TimedCache(USERS, SECONDS)
        self._trouble = ""  # why the latest query failed, empty if it succeeded

    def look_up(self, sid: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Query the directory for this certificate, even if the cache has other certificates of the user: it may have
        been registered recently."""
        try:
            known = self._files.certificates_of_user(sid)
        except DirectoryUnavailable:
            return None  # the check of the packet will raise it again
        if not is_sid(sid):
            return None
        cached = self._found.get(sid, self._clock())
        if cached is None:
            wanted = self._has_groups or certificate not in known
        else:
            wanted = certificate not in known and certificate not in cached.certificates
        return self._fetch(sid, self._ask(sid_text(sid)), sid_text(sid)) if wanted else None

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> Awaitable[None] | None:
        try:
            known = self._files.certificates_of_machine(identifier)
        except DirectoryUnavailable:
            return None
        if len(identifier) != 16 or certificate in known or certificate in self._cached(_MACHINE + identifier):
            return None
        machine = UUID(bytes_le=identifier)
        return self._fetch(_MACHINE + identifier, self._ask_machine(machine), f"queue manager {machine}")

    async def _fetch(self, key: bytes, answer: Awaitable[KnownSender], who: str) -> None:
        try:
            found = await answer
        except Exception as error:  # any error: the packet must still be checked
            if not isinstance(error, DirectoryUnavailable):
                logger.exception("directory query for certificates of %s failed", who)
            self._trouble = str(error) or type(error).__name__
            return
        self._trouble = ""
        self._found.put(key, found, self._clock())

    def _cached(self, key: bytes) -> Collection[bytes]:
        found = self._found.get(key, self._clock())
        return found.certificates if found is not None else ()

    def forget(self, sid: bytes) -> None:
        self._found.discard(sid)

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        return self._known(self._files.certificates_of_user(sid), sid)

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        return self._known(self._files.certificates_of_machine(identifier), _MACHINE + identifier)

    def _known(self, local: Collection[bytes], key: bytes) -> Collection[bytes]:
        known = frozenset(local).union(self._cached(key))
        if not known and self._trouble:
            raise DirectoryUnavailable(self._trouble)
        return known

    def groups_of(self, sid: bytes) -> frozenset[str]:
        """Return the groups of a sender that was looked up; none for others."""
        found = self._found.get(sid, self._clock())
        return found.groups if found is not None else frozenset()
