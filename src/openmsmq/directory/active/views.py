"""Search scopes in the forest: the own domain through one of its controllers, all domains through a global catalog, or
the domains to which a controller refers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from openmsmq.directory.active.ldap_text import by_identifier, filter_octets
from openmsmq.directory.active.objects import one
from openmsmq.directory.active.session import DirectorySession, LdapEntry
from openmsmq.directory.provider import ObjectNotFound


@dataclass(frozen=True, slots=True)
class View:
    """A session's results below `top`, which is empty at a global catalog ([MS-ADTS] 3.1.1.3.2.3); with `everywhere`,
    also the results of other controllers that the session is referred to."""

    session: DirectorySession
    top: str
    everywhere: bool = False

    @property
    def is_of_domain(self) -> bool:
        return bool(self.top) and not self.everywhere

    def search(self, condition: str, attributes: Sequence[str], limit: int = 0) -> list[LdapEntry]:
        """Search below `top`. Raises DirectoryError."""
        return self.session.search(self.top, condition, attributes, limit=limit, everywhere=self.everywhere)

    def identified(self, identifier: UUID, attributes: Sequence[str]) -> LdapEntry:
        """Return an object by its objectGUID ([MS-MQDSSM] 3.1.6.19). Raises ObjectNotFound."""
        if self.is_of_domain:
            return one(self.session, by_identifier(identifier), attributes)
        found = self.search(f"(objectGUID={filter_octets(identifier.bytes_le)})", attributes, limit=1)
        if not found:
            raise ObjectNotFound(f"object {identifier}")
        return found[0]
