"""API tokens for the HTTP server: `tokens.json` in the data directory has their hashes, `token-uses.json` the times of
their last use.

The daemon and commands change the first file under a lock; only the daemon writes the second one. A token is 256 random
bits, so its SHA-256 does not help an attacker who reads the file.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from openmsmq.files.private import CachedFile, PrivateFileError, write_private
from openmsmq.model.roles import Role, role_of

TOKENS_FILE: Final = "tokens.json"
USES_FILE: Final = "token-uses.json"
PREFIX: Final = "omq_"
DAYS: Final = 90  # default lifetime of a token
LONGEST_DAYS: Final = 366
LONGEST_NAME: Final = 100
MOST_OF_USER: Final = 100
_DAY: Final = 86400


class TokensFileError(Exception):
    """The file is unusable, or the change is invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token. `id` is its public identifier; `name` describes its purpose; times in seconds since 1970."""

    id: str
    name: str
    user: str
    sid: str
    role: Role
    created: int
    expires: int
    hash: str = field(repr=False)


class TokensFile:
    """The tokens of one data directory. Changes by other processes are detected."""

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: Callable[[], float] = time.time,
        on_change: Callable[[str, ApiToken], object] = lambda action, token: None,
    ) -> None:
        """`on_change` gets `token.create` or `token.revoke` and the token before the change; may raise to prevent
        it."""
        self.data_dir: Final = data_dir
        self._file: Final = CachedFile(data_dir / TOKENS_FILE, _parse, dict[str, ApiToken]())
        self._clock: Final = clock
        self._on_change: Final = on_change

    def list(self) -> list[ApiToken]:
        """Return all tokens, sorted by user and name, including those that expired recently. Raises TokensFileError."""
        return sorted(
            self._known().values(), key=lambda token: (token.user.casefold(), token.name.casefold(), token.id)
        )

    def get(self, identifier: str) -> ApiToken | None:
        """Return the token with an identifier; None if unknown or expired. Raises TokensFileError."""
        token = self._known().get(identifier)
        return token if token is not None and self._clock() < token.expires else None

    def find(self, secret: str) -> ApiToken | None:
        """Return the token with this secret; None if unknown or expired. Raises TokensFileError."""
        hashed = _hashed(secret)
        found = next((token for token in self._known().values() if token.hash == hashed), None)
        return None if found is None else self.get(found.id)

    def create(self, name: str, user: str, sid: str, role: Role, days: int = DAYS) -> tuple[str, ApiToken]:
        """Create a token for a user. Return its secret, which cannot be recovered later, and the token. Raises
        TokensFileError."""
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise TokensFileError(f"the name of a token has 1 to {LONGEST_NAME} printable characters, not {name!r}")
        if not 1 <= days <= LONGEST_DAYS:
            raise TokensFileError(f"a token is valid for 1 to {LONGEST_DAYS} days, not {days}")
        secret, now = PREFIX + secrets.token_urlsafe(32), int(self._clock())
        with self._changing() as known:
            own = [token for token in known.values() if token.sid == sid]
            if len(own) >= MOST_OF_USER:
                raise TokensFileError(f"{user} has {len(own)} tokens, which is the limit: revoke one")
            if any(token.name == name for token in own):
                raise TokensFileError(f"{user} already has a token named {name}: revoke it, or choose another name")
            token = ApiToken(secrets.token_hex(4), name, user, sid, role, now, now + days * _DAY, _hashed(secret))
            self._on_change("token.create", token)
            self._save({**known, token.id: token})
        return secret, token

    def revoke(self, identifier: str) -> ApiToken:
        """Revoke a token and return it. Raises TokensFileError if there is none."""
        with self._changing() as known:
            token = known.get(identifier)
            if token is None:
                raise TokensFileError(f"there is no token {identifier}; `openmsmq token list` lists all tokens")
            self._on_change("token.revoke", token)
            self._save({key: kept for key, kept in known.items() if key != identifier})
        return token

    @contextmanager
    def _changing(self) -> Iterator[dict[str, ApiToken]]:
        """Yield the tokens while holding the lock of the file. Raises TokensFileError."""
        try:
            with self._file.changing() as known:
                yield known
        except PrivateFileError as error:
            raise TokensFileError(str(error)) from error

    def _known(self) -> dict[str, ApiToken]:
        try:
            return self._file.value()
        except PrivateFileError as error:
            raise TokensFileError(str(error)) from error

    def _save(self, tokens: dict[str, ApiToken]) -> None:
        """Write the tokens, without those that expired at least a month ago."""
        known = [token for token in tokens.values() if token.expires + 30 * _DAY > self._clock()]
        content = {"tokens": [_document(token) for token in known]}
        write_private(self._file.path, (json.dumps(content, indent=1) + "\n").encode())


class TokenUses:
    """Times of the last use of tokens. The daemon records each use and writes the file at most once a minute."""

    PERIOD: Final = 60.0  # seconds

    def __init__(self, data_dir: Path) -> None:
        self._uses = read_uses(data_dir)
        self._changed = False

    def note(self, identifier: str, now: float) -> None:
        self._uses[identifier] = int(now)
        self._changed = True

    def of(self, identifier: str) -> int | None:
        return self._uses.get(identifier)

    def to_write(self, known: Iterable[str]) -> dict[str, int] | None:
        """Return the contents for the file, for the tokens that still exist; None if unchanged."""
        if not self._changed:
            return None
        self._changed = False
        self._uses = {key: used for key in known if (used := self._uses.get(key)) is not None}
        return dict(self._uses)


def write_uses(data_dir: Path, uses: Mapping[str, int]) -> None:
    """Write the file. Raises PrivateFileError."""
    write_private(data_dir / USES_FILE, (json.dumps(uses) + "\n").encode())


def read_uses(data_dir: Path) -> dict[str, int]:
    """Read the file: token -> time of its last use in seconds since 1970. Empty if the file cannot be read."""
    try:
        content = json.loads((data_dir / USES_FILE).read_text(encoding="utf-8"))
        return {str(key): int(used) for key, used in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _parse(data: bytes) -> dict[str, ApiToken]:
    tokens = [_token(entry) for entry in json.loads(data)["tokens"]]
    return {token.id: token for token in tokens}


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(entry: Any) -> ApiToken:
    return ApiToken(
        str(entry["id"]), str(entry["name"]), str(entry["user"]), str(entry["sid"]), role_of(entry["role"]),
        int(entry["created"]), int(entry["expires"]), str(entry["sha256"]),
    )  # fmt: skip


def _document(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.id, "name": token.name, "user": token.user, "sid": token.sid, "role": token.role.word,
        "created": token.created, "expires": token.expires, "sha256": token.hash,
    }  # fmt: skip
