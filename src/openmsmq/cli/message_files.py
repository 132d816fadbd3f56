"""Files of messages, one JSON document per line: complete an interrupted export, and resume an interrupted import.

Neither guesses: a file that does not fit is an error, and no file is changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from openmsmq.admin.message_json import from_json
from openmsmq.files.private import write_private
from openmsmq.model.message import Message


class MessageFileError(ValueError):
    """The file is not of the expected kind; the message names it and the line."""


#: How each line of an export begins.
_START: Final = b'{"body": "'


class Export:
    """The part of an export that FILE already contains."""

    def __init__(self, file: Path) -> None:
        """Read FILE without changing it. Raises MessageFileError for a line that no export wrote; only the last line
        may be cut off.
        """
        self._file: Final = file
        self.identifiers: Final[set[str]] = set()
        self._kept = 0  # bytes of whole lines
        self._ends = True  # with the end of a line
        if file.exists():
            self._read()

    def _read(self) -> None:
        with self._file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                identifier = _identifier(line)
                if identifier is not None:
                    self.identifiers.add(identifier)
                    self._kept += len(line)
                    self._ends = line.endswith(b"\n")
                elif line.endswith(b"\n") or not (line.startswith(_START) or _START.startswith(line)):
                    raise MessageFileError(
                        f"{self._file}, line {number}: not a line of an export, so --resume leaves the file as it is; "
                        "name the file that an export was writing, or leave out --resume to replace this one"
                    )

    @contextmanager
    def append(self) -> Iterator[IO[str]]:
        """Open FILE to append lines; drop a last line that was cut off."""
        with self._file.open("a", encoding="utf-8") as output:
            output.truncate(self._kept)
            if not self._ends:
                output.write("\n")
            yield output


def _identifier(line: bytes) -> str | None:
    """Return the identifier in a line of an export; None for any other line."""
    found = _document(line)
    identifier = found.get("identifier") if found is not None else None
    return identifier if isinstance(identifier, str) else None


def _document(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def alone(file: Path, mode: str) -> Iterator[None]:
    """Lock a file, opened with `mode`, against other exports and imports. Raises MessageFileError if another command
    has it."""
    with file.open(mode) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MessageFileError(f"{file}: another export or import uses it; wait for its end") from None
        except OSError:  # a file system without locks
            pass
        yield


class MessageImport:
    """The messages of FILE, and in FILE.progress how many of its lines have been sent, where to, and their digest: what
    is skipped later is exactly what was sent."""

    def __init__(self, file: Path, target: str, *, restart: bool) -> None:
        """`target` names the queue and its queue manager. Raises MessageFileError where FILE.progress is of another
        import."""
        self._file, self._target = file, target
        self._state: Final = file.with_name(file.name + ".progress")
        self._sent: Final = hashlib.sha256()
        self.done = 0  # lines that earlier imports have sent, without gaps
        # Digests of lines behind those that were sent, too. A line that was refused may be changed or removed.
        self._ahead: Counter[str] = Counter()
        self._passed: list[str] = []  # of these, the ones passed since the last `remember`
        with file.open("rb") as lines:
            self.total: Final = sum(1 for line in lines if line.strip())
        if self._state.exists() and not restart:
            self.done = self._continued()
        self._place = self._safe = self.done, self._sent.hexdigest()  # lines and digest, now and at `remember`
        self._given: list[tuple[int, str]] = []  # numbers and digests of the lines given since then

    def _continued(self) -> int:
        kept = _document(self._state.read_bytes())
        if kept is None or not isinstance(kept.get("lines"), int) or not {"digest", "sent"} <= kept.keys():
            raise self._other("is not the progress of an import by this version")
        if kept.get("target") != self._target:
            raise self._other(f"belongs to an import into {kept.get('target')}, not into {self._target}")
        for line in self._lines(kept["lines"]):
            self._sent.update(line)
        if kept["lines"] > self.total or kept["digest"] != self._sent.hexdigest():
            raise self._other(
                f"belongs to another file: the {kept['lines']:,} lines that were sent are not the first lines of this "
                "one"
            )
        self._ahead = Counter(kept["sent"])
        return int(kept["lines"])

    def _other(self, why: str) -> MessageFileError:
        return MessageFileError(f"{self._state} {why}; nothing is sent. To send all of {self._file}, give --restart")

    def _lines(self, count: int) -> Iterator[bytes]:
        """Return the first lines that are not empty."""
        with self._file.open("rb") as lines:
            for line in lines:
                if not count:
                    return
                if line.strip():
                    count -= 1
                    yield line.strip()

    def messages(self) -> Iterator[Message]:
        """Yield messages that have not been sent. Raises MessageFileError naming the line of a malformed one."""
        number = 0
        with self._file.open("rb") as lines:
            for line_number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                number += 1
                if number <= self.done:
                    continue
                message = self._message(line, line_number)
                self._sent.update(line.strip())
                self._place = number, self._sent.hexdigest()
                own = hashlib.sha256(line.strip()).hexdigest()
                if self._ahead[own]:
                    self._ahead[own] -= 1
                    self._passed.append(own)
                else:
                    self._given.append((line_number, own))
                    yield message

    def _message(self, line: bytes, number: int) -> Message:
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise ValueError("expected a JSON object with the properties of a message")
            return from_json(values)
        except (ValueError, RecursionError) as error:
            raise MessageFileError(f"{self._file}, line {number}: {error}") from None

    def name(self, position: int, message: Message) -> str:
        """Return where the message is that `messages` gave at `position` after the last `remember`."""
        return f"{self._file}, line {self._given[position][0]}"

    def remember(self, sent: Sequence[bool] | None) -> None:
        """Write down that all that `messages` has given so far was sent; or, of those given since the last time, which
        ones. Those that `sent` does not have were not. Raises PrivateFileError."""
        ahead = list(self._ahead.elements())
        if sent is not None:
            ahead += self._passed + [own for (_, own), done in zip(self._given, sent, strict=False) if done]
        else:
            self._safe = self._place
        lines, digest = self._safe
        self._given, self._passed = [], []
        kept = {"target": self._target, "lines": lines, "digest": digest, "sent": ahead}
        write_private(self._state, json.dumps(kept).encode())  # atomic: half a file would end the import for good

    def finish(self) -> None:
        self._state.unlink(missing_ok=True)
