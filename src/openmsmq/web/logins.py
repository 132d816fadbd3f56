"""Who logs in by HTTP: passwords are checked in the daemon, against its users file, and a ticket says who it was."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from openmsmq.model.errors import AccessDenied
from openmsmq.rpc.ntlm import nt_hash
from openmsmq.rpc.users import UsersFile

LONGEST: Final = 12 * 3600  # seconds that a ticket holds, and an hour more
_HOUR: Final = 3600
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 900.0  # seconds after failures; they double
_FREE: Final = 3  # failures before the first delay: people mistype
_REMEMBERED: Final = 4096  # pairs of user and address; who has failed longest ago is forgotten first


class Known(NamedTuple):
    """Whom a ticket names."""

    sid: str
    name: str


class Tickets:
    """Gives tickets and knows them again. One ends with its time, with the daemon, and with the user's password.

    A ticket is `[SID, name, end, signature]` as JSON. The hash of the password is part of what is signed.
    """

    def __init__(self, users: UsersFile, clock: Callable[[], float] = time.time) -> None:
        self._users: Final = users
        self._clock: Final = clock
        self._secret: Final = secrets.token_bytes(32)

    def login(self, name: str, password: str) -> str | None:
        """The ticket of a user; None for one who is not known, or a wrong password. The same one within an hour."""
        found = self._users.lookup("", name)
        given = nt_hash(password)
        if found is None or not password or not hmac.compare_digest(found[0], given):
            return None
        hashed, sid = found
        end = (int(self._clock()) // _HOUR + 1) * _HOUR + LONGEST
        return json.dumps([sid, name, end, self._signature(sid, name, end, hashed)])

    def check(self, ticket: str) -> Known:
        """Raises AccessDenied for one that was not given here, or holds no longer."""
        try:
            sid, name, end, signature = json.loads(ticket)
            found = self._users.lookup("", name)
            genuine = (
                found is not None
                and found[1] == sid
                and hmac.compare_digest(signature, self._signature(sid, name, end, found[0]))
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            genuine = False
        if not genuine or self._clock() >= end:
            raise AccessDenied(detail="this login holds no longer: log in again")
        return Known(sid, name)

    def _signature(self, sid: str, name: str, end: int, hashed: bytes) -> str:
        return hmac.digest(self._secret, json.dumps([sid, name, end]).encode() + hashed, "sha256").hex()


class Delays:
    """How long a user at an address has to wait after wrong passwords: 1 s after three failures, twice as long after
    each further one. Who fails at one address is not kept out at another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def left(self, user: str, peer: str) -> float:
        """Seconds until the next try; 0 for none."""
        _, until = self._failures.get((user.casefold(), peer), (0, 0.0))
        return max(0.0, until - self._clock())

    def failed(self, user: str, peer: str) -> None:
        key = (user.casefold(), peer)
        count = self._failures.pop(key, (0, 0.0))[0] + 1
        delay = 0.0 if count < _FREE else min(_FIRST_DELAY * 2 ** min(count - _FREE, 20), _LONGEST_DELAY)
        self._failures[key] = count, self._clock() + delay
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def succeeded(self, user: str, peer: str) -> None:
        self._failures.pop((user.casefold(), peer), None)
