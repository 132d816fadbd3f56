"""Files that only their owner may read: mode 0600, replaced atomically, reread after changes."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

from openmsmq.files.locks import PATIENCE, locked

logger = logging.getLogger(__name__)
T = TypeVar("T")


class PrivateFileError(Exception):
    """A file is unusable; the message has its path and the remedy."""


class CachedFile(Generic[T]):
    """Parsed contents of a file, reread after changes."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        absent: T,
        *,
        error: type[PrivateFileError] = PrivateFileError,
        kind: str = "",
    ) -> None:
        """`absent` is the value if there is no file. `error` is raised for an unusable file. If `parse` raises
        ValueError, KeyError, TypeError or AttributeError, the error says that the file is not of `kind`."""
        self.path: Final = path
        self._error: Final = error
        self._kind: Final = kind
        self._parse: Final = parse
        self._absent: Final = absent
        self._seen: tuple[int, int, int] | None = None
        self._value = absent
        self._logged = ""

    def value(self) -> T:
        """Return the current contents. Raises PrivateFileError, which is also logged, since senders of messages do not
        see it."""
        try:
            value = self.read()
        except PrivateFileError as error:
            if str(error) != self._logged:  # log it once, not for each message
                self._logged = str(error)
                logger.error("%s", error)
            raise
        self._logged = ""
        return value

    def read(self) -> T:
        """Return the `value`, without logging."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
                if seen == self._seen:
                    return self._value
                if status.st_mode & 0o077:
                    raise self._error(f"{self.path} can be accessed by other users; set its mode to 0600 (chmod)")
                self._value, self._seen = self._parse(file.read()), seen
        except FileNotFoundError:
            self._value, self._seen = self._absent, None
        except PermissionError as error:
            raise self._error(
                f"{self.path} can't be read by uid {os.geteuid()}: {error.strerror}; set its owner to the user "
                "of the daemon (chown) and its mode to 0600 (chmod)"
            ) from error
        except OSError as error:
            raise self._error(f"{self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # BadPacket is a ValueError
            problem = f"is not a valid file of {self._kind}" if self._kind else "can't be read"
            raise self._error(f"{self.path} {problem}: {error!r}") from error
        return self._value

    @contextmanager
    def changing(self, patience: float = PATIENCE) -> Iterator[T]:
        """Yield the current contents, to be replaced with `write_private`, while other processes wait: of two
        simultaneous changes, one would be lost otherwise. Raises `error`, also if another process keeps the lock for
        `patience` seconds."""
        try:
            _make_directory_of(self.path)
            with locked(self.path.with_suffix(".lock"), patience):
                yield self.read()
        except OSError as error:
            raise self._error(str(error)) from error


def write_private(
    path: Path, data: bytes, *, replace: bool = True, error: type[PrivateFileError] = PrivateFileError
) -> None:
    """Write a file atomically; other users can never read it.

    Raises FileExistsError if the file exists and `replace` is false, and `error`.
    """
    try:
        _make_directory_of(path)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                _give_to(file.fileno(), (path if path.exists() else path.parent).stat())
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except FileExistsError:
        raise
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from problem


def _make_directory_of(path: Path) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _give_to(path.parent, path.parent.parent.stat())


def _give_to(file: int | Path, owner: os.stat_result) -> None:
    """Set the owner of a new file. Root may act for a daemon that runs as another user: a replaced file keeps its
    owner, and a new one gets the owner of its directory."""
    if os.geteuid() == 0:
        os.chown(file, owner.st_uid, owner.st_gid)
