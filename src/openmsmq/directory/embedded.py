"""A directory in one SQLite file, which several queue managers of a machine may share.

SQLite's own locks keep them apart, also when one is killed: the file is in WAL mode, changes are transactions, and a
change is on the disk before it is reported. All of it happens in a thread; the event loop never waits. Names are kept
as they were written, and beside them the keys of `lookup`, by which they are found.

The file has no rights of its own: whoever may write it may change everything, so it is for one user (mode 0600).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from openmsmq.directory.lookup import KEYS, OPERATORS, Filter, Relation
from openmsmq.directory.provider import (
    Certificate,
    DirectoryAway,
    ListRecord,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
    QueueRecord,
    UserRecord,
)

T = TypeVar("T")

VERSION: Final = 1  # of the schema, in PRAGMA user_version
BUSY_SECONDS: Final = 5.0  # to wait for another process that writes
_SCHEMA: Final = """
CREATE TABLE machine (
    identifier BLOB PRIMARY KEY, computer_name TEXT NOT NULL, name_key TEXT NOT NULL UNIQUE,
    public_keys BLOB NOT NULL, signing_keys BLOB NOT NULL, security BLOB NOT NULL);
CREATE TABLE dns_name (
    machine BLOB NOT NULL REFERENCES machine ON DELETE CASCADE, name TEXT NOT NULL, name_key TEXT NOT NULL,
    PRIMARY KEY (machine, name_key));
CREATE INDEX dns_name_key ON dns_name (name_key);
CREATE TABLE queue (
    position INTEGER PRIMARY KEY AUTOINCREMENT, identifier BLOB NOT NULL UNIQUE,
    machine BLOB NOT NULL REFERENCES machine ON DELETE CASCADE, name TEXT NOT NULL, name_key TEXT NOT NULL,
    type BLOB NOT NULL, label TEXT NOT NULL, label_key TEXT, journaling INTEGER NOT NULL, quota INTEGER NOT NULL,
    journal_quota INTEGER NOT NULL, base_priority INTEGER NOT NULL, authentication INTEGER NOT NULL,
    privacy_level INTEGER NOT NULL, transactional INTEGER NOT NULL, multicast_address TEXT NOT NULL,
    multicast_key TEXT, create_time INTEGER NOT NULL, modify_time INTEGER NOT NULL, security BLOB NOT NULL,
    UNIQUE (machine, name_key));
CREATE INDEX queue_label ON queue (label_key);
CREATE TABLE deleted_queue (identifier BLOB PRIMARY KEY, machine BLOB NOT NULL);
CREATE TABLE certificate (
    sid TEXT NOT NULL, digest BLOB NOT NULL, identifier BLOB NOT NULL, encoded BLOB NOT NULL,
    PRIMARY KEY (sid, digest));
CREATE INDEX certificate_digest ON certificate (digest);
CREATE TABLE list (identifier BLOB PRIMARY KEY, name TEXT NOT NULL, name_key TEXT NOT NULL UNIQUE);
CREATE TABLE member (
    list BLOB NOT NULL REFERENCES list ON DELETE CASCADE, format_name TEXT NOT NULL, name_key TEXT NOT NULL,
    PRIMARY KEY (list, name_key));
"""
# The column that is compared for an attribute of a query. Paths are put together of two tables.
_COLUMNS: Final = {
    "identifier": "queue.identifier", "type": "queue.type", "label": "queue.label_key",
    "create_time": "queue.create_time", "modify_time": "queue.modify_time",
    "multicast_address": "queue.multicast_key", "machine": "queue.machine",
    "path_name": "machine.name_key || '\\' || queue.name_key",
}  # fmt: skip
_OF_QUEUES: Final = (
    "SELECT queue.*, machine.computer_name FROM queue JOIN machine ON machine.identifier = queue.machine"
)
_STORED: Final = tuple(f.name for f in fields(QueueRecord) if f.name not in ("position", "path_name"))
_BOOLEANS: Final = ("journaling", "authentication", "transactional")


class EmbeddedDirectory:
    """See the module and `provider.DirectoryProvider`."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet; the file is made with the first call."""
        self._path: Final = path
        self._thread: Final = ThreadPoolExecutor(1, "directory")
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    async def close(self) -> None:
        self._thread.submit(self._disconnect)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    # -- machines ----------------------------------------------------------------------------------------------

    async def register_machine(self, record: MachineRecord) -> None:
        key = record.computer_name.casefold()

        def work(db: sqlite3.Connection) -> None:
            owner = db.execute("SELECT identifier FROM machine WHERE name_key = ?", [key]).fetchone()
            if owner is not None and owner[0] != record.identifier.bytes_le:
                raise ObjectExists(
                    f"the computer name {record.computer_name} belongs to another queue manager, "
                    f"{UUID(bytes_le=owner[0])}; this one is {record.identifier}"
                )
            db.execute(
                "INSERT INTO machine VALUES (:identifier, :name, :key, :public, :signing, :security) "
                "ON CONFLICT (identifier) DO UPDATE SET computer_name = :name, name_key = :key, security = :security, "
                "public_keys = CASE length(:public) WHEN 0 THEN public_keys ELSE :public END, "
                "signing_keys = CASE length(:signing) WHEN 0 THEN signing_keys ELSE :signing END",
                {
                    "identifier": record.identifier.bytes_le, "name": record.computer_name, "key": key,
                    "public": record.public_keys, "signing": record.signing_keys, "security": record.security,
                },
            )  # fmt: skip
            db.execute("DELETE FROM dns_name WHERE machine = ?", [record.identifier.bytes_le])
            rows = {name.casefold(): name for name in record.dns_names}
            db.executemany(
                "INSERT INTO dns_name VALUES (?, ?, ?)",
                [(record.identifier.bytes_le, name, folded) for folded, name in rows.items()],
            )

        await self._do(lambda db: _changing(db, work))

    async def machine(self, identifier: UUID) -> MachineRecord:
        return await self._do(lambda db: _machine(db, identifier.bytes_le, f"machine {identifier}"))

    async def machine_named(self, name: str) -> MachineRecord:
        return await self._do(lambda db: _machine(db, _machine_key(db, name), name))

    async def machines(self) -> Sequence[MachineRecord]:
        def work(db: sqlite3.Connection) -> list[MachineRecord]:
            rows = db.execute("SELECT identifier FROM machine ORDER BY name_key").fetchall()
            return [_machine(db, row[0], "") for row in rows]

        return await self._do(work)

    async def remove_machine(self, identifier: UUID) -> None:
        await self._remove("machine", identifier, f"machine {identifier}")

    # -- queues ------------------------------------------------------------------------------------------------

    async def create_queue(self, record: QueueRecord) -> QueueRecord:
        def work(db: sqlite3.Connection) -> QueueRecord:
            _machine(db, record.machine.bytes_le, f"machine {record.machine}")
            values = {name: _to_column(getattr(record, name)) for name in _STORED}
            name = record.path_name.partition("\\")[2]
            values |= {"name": name, "name_key": name.casefold(), **_keys_of(values)}
            columns, marks = ", ".join(values), ", ".join(f":{column}" for column in values)
            try:
                db.execute(f"INSERT INTO queue ({columns}) VALUES ({marks})", values)
            except sqlite3.IntegrityError:
                raise ObjectExists(record.path_name) from None
            return _queue(db, record.identifier)

        return await self._do(lambda db: _changing(db, work))

    async def queue(self, identifier: UUID) -> QueueRecord:
        return await self._do(lambda db: _queue(db, identifier))

    async def queue_at(self, path_name: str) -> QueueRecord:
        computer, _, name = path_name.partition("\\")

        def work(db: sqlite3.Connection) -> QueueRecord:
            condition = "WHERE queue.machine = ? AND queue.name_key = ?"
            row = db.execute(f"{_OF_QUEUES} {condition}", [_machine_key(db, computer), name.casefold()]).fetchone()
            if row is None:
                raise ObjectNotFound(f"queue {path_name}")
            return _queue_of(row)

        return await self._do(work)

    async def find_queues(self, filters: Sequence[Filter], after: int, limit: int) -> Sequence[QueueRecord]:
        conditions, values = ["queue.position > ?"], [after]
        for condition in filters:
            text, operands = _condition(condition)
            conditions.append(text)
            values += operands
        statement = f"{_OF_QUEUES} WHERE {' AND '.join(conditions)} ORDER BY queue.position LIMIT ?"

        def work(db: sqlite3.Connection) -> list[QueueRecord]:
            return [_queue_of(row) for row in db.execute(statement, [*values, limit])]

        return await self._do(work)

    async def update_queue(self, identifier: UUID, changes: Mapping[str, Any]) -> QueueRecord:
        unknown = [name for name in changes if name not in _STORED]
        assert not unknown, unknown

        def work(db: sqlite3.Connection) -> QueueRecord:
            values = {name: _to_column(value) for name, value in changes.items()}
            values |= _keys_of(values)
            assignments = ", ".join(f"{name} = :{name}" for name in values)
            if values:
                wanted = {**values, "wanted": identifier.bytes_le}
                db.execute(f"UPDATE queue SET {assignments} WHERE identifier = :wanted", wanted)
            return _queue(db, identifier)

        return await self._do(lambda db: _changing(db, work))

    async def delete_queue(self, identifier: UUID) -> None:
        def work(db: sqlite3.Connection) -> None:
            record = _queue(db, identifier)
            key = identifier.bytes_le
            db.execute("INSERT OR REPLACE INTO deleted_queue VALUES (?, ?)", [key, record.machine.bytes_le])
            db.execute("DELETE FROM queue WHERE identifier = ?", [key])

        await self._do(lambda db: _changing(db, work))

    async def deleted_queues(self, machine: UUID) -> Sequence[UUID]:
        statement = "SELECT identifier FROM deleted_queue WHERE machine = ?"

        def work(db: sqlite3.Connection) -> list[UUID]:
            return [UUID(bytes_le=row[0]) for row in db.execute(statement, [machine.bytes_le])]

        return await self._do(work)

    async def confirm_deletion(self, identifier: UUID) -> None:
        statement = "DELETE FROM deleted_queue WHERE identifier = ?"
        await self._do(lambda db: _changing(db, lambda db: db.execute(statement, [identifier.bytes_le])))

    # -- users -------------------------------------------------------------------------------------------------

    async def user(self, sid: str) -> UserRecord:
        return await self._do(lambda db: _user(db, sid))

    async def user_with_certificate(self, digest: bytes) -> UserRecord:
        def work(db: sqlite3.Connection) -> UserRecord:
            row = db.execute("SELECT sid FROM certificate WHERE digest = ? ORDER BY sid", [digest]).fetchone()
            if row is None:
                raise ObjectNotFound(f"certificate with the digest {digest.hex()}")
            return _user(db, row[0])

        return await self._do(work)

    async def add_certificate(self, sid: str, certificate: Certificate) -> None:
        row = [sid, certificate.digest, certificate.identifier.bytes_le, certificate.encoded]
        statement = "INSERT OR REPLACE INTO certificate VALUES (?, ?, ?, ?)"
        await self._do(lambda db: _changing(db, lambda db: db.execute(statement, row)))

    async def remove_certificate(self, sid: str, digest: bytes) -> None:
        def work(db: sqlite3.Connection) -> None:
            done = db.execute("DELETE FROM certificate WHERE sid = ? AND digest = ?", [sid, digest])
            if not done.rowcount:
                raise ObjectNotFound(f"certificate of {sid} with the digest {digest.hex()}")

        await self._do(lambda db: _changing(db, work))

    # -- distribution lists ------------------------------------------------------------------------------------

    async def create_list(self, name: str, members: Sequence[str]) -> ListRecord:
        identifier = uuid4()

        def work(db: sqlite3.Connection) -> ListRecord:
            try:
                db.execute("INSERT INTO list VALUES (?, ?, ?)", [identifier.bytes_le, name, name.casefold()])
            except sqlite3.IntegrityError:
                raise ObjectExists(f"distribution list {name}") from None
            _add_members(db, identifier, members)
            return _list(db, identifier)

        return await self._do(lambda db: _changing(db, work))

    async def distribution_list(self, identifier: UUID) -> ListRecord:
        return await self._do(lambda db: _list(db, identifier))

    async def distribution_lists(self) -> Sequence[ListRecord]:
        def work(db: sqlite3.Connection) -> list[ListRecord]:
            rows = db.execute("SELECT identifier FROM list ORDER BY name_key").fetchall()
            return [_list(db, UUID(bytes_le=row[0])) for row in rows]

        return await self._do(work)

    async def set_members(self, identifier: UUID, add: Sequence[str], remove: Sequence[str]) -> ListRecord:
        def work(db: sqlite3.Connection) -> ListRecord:
            _list(db, identifier)
            rows = [(identifier.bytes_le, name.casefold()) for name in remove]
            db.executemany("DELETE FROM member WHERE list = ? AND name_key = ?", rows)
            _add_members(db, identifier, add)
            return _list(db, identifier)

        return await self._do(lambda db: _changing(db, work))

    async def remove_list(self, identifier: UUID) -> None:
        await self._remove("list", identifier, f"distribution list {identifier}")

    # -- the file ----------------------------------------------------------------------------------------------

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run something in the thread. Raises DirectoryAway, and what `work` raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connected())
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            raise DirectoryAway(f"{self._path}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        """The connection to the file of that name: a new one where somebody has put another file in its place."""
        if self._connection is not None:
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                return self._connection
            self._disconnect()
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        deadline = time.monotonic() + BUSY_SECONDS
        while (db := self._open(time.monotonic() < deadline)) is None:
            time.sleep(0.02)
        self._connection, self._inode = db, self._path.stat().st_ino
        return db

    def _open(self, again: bool) -> sqlite3.Connection | None:
        """A connection that is ready, or None to try `again`: SQLite does not wait for the lock by which the first of
        several processes sets the mode of a new file."""
        db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            _changing(db, self._prepare)
        except BaseException as error:
            db.close()
            if again and isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                return None
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Raises DirectoryAway for a file of a later release."""
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise DirectoryAway(f"{self._path} has version {version} of the schema; this release reads {VERSION}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _remove(self, table: str, identifier: UUID, what: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            if not db.execute(f"DELETE FROM {table} WHERE identifier = ?", [identifier.bytes_le]).rowcount:
                raise ObjectNotFound(what)

        await self._do(lambda db: _changing(db, work))


def _changing(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run a change as one transaction, which has the right to write from its beginning on."""
    with _transaction(db):
        return work(db)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back after some errors
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


# -- rows and records --------------------------------------------------------------------------------------------------


def _machine_key(db: sqlite3.Connection, name: str) -> bytes:
    """The identifier of the machine with a computer name or DNS name; none where there is no such machine."""
    key = name.casefold()
    row = db.execute("SELECT identifier FROM machine WHERE name_key = ?", [key]).fetchone()
    row = row or db.execute("SELECT machine FROM dns_name WHERE name_key = ? ORDER BY machine", [key]).fetchone()
    return bytes(row[0]) if row is not None else b""


def _machine(db: sqlite3.Connection, identifier: bytes, what: str) -> MachineRecord:
    row = db.execute("SELECT * FROM machine WHERE identifier = ?", [identifier]).fetchone()
    if row is None:
        raise ObjectNotFound(what)
    found = db.execute("SELECT name FROM dns_name WHERE machine = ? ORDER BY name_key", [identifier])
    return MachineRecord(
        UUID(bytes_le=row["identifier"]), row["computer_name"], tuple(name[0] for name in found),
        row["public_keys"], row["signing_keys"], row["security"],
    )  # fmt: skip


def _queue(db: sqlite3.Connection, identifier: UUID) -> QueueRecord:
    row = db.execute(f"{_OF_QUEUES} WHERE queue.identifier = ?", [identifier.bytes_le]).fetchone()
    if row is None:
        raise ObjectNotFound(f"public queue {identifier}")
    return _queue_of(row)


def _queue_of(row: sqlite3.Row) -> QueueRecord:
    values = {name: row[name] for name in _STORED}
    for name in ("identifier", "machine", "type"):
        values[name] = UUID(bytes_le=values[name])
    for name in _BOOLEANS:
        values[name] = bool(values[name])
    return QueueRecord(path_name=f"{row['computer_name']}\\{row['name']}", position=row["position"], **values)


def _to_column(value: Any) -> Any:
    return value.bytes_le if isinstance(value, UUID) else value


def _keys_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that are compared, of those texts that are among `values`."""
    keys = {"label": "label_key", "multicast_address": "multicast_key"}
    return {key: KEYS[name](values[name]) for name, key in keys.items() if name in values}


def _condition(condition: Filter) -> tuple[str, list[Any]]:
    """A filter in SQL, as `lookup.holds` decides, and its operands."""
    column, found, key = _COLUMNS[condition.attribute], OPERATORS[condition.relation], condition.key
    if key is None:
        if condition.relation is Relation.EQUALS:
            return f"({column}) IS NULL", []
        return (f"({column}) IS NOT NULL" if found.of_absent else "0"), []
    text = f"({column}) {found.symbol} ?"
    return (f"({text} OR ({column}) IS NULL)" if found.of_absent else text), [key]


def _user(db: sqlite3.Connection, sid: str) -> UserRecord:
    rows = db.execute("SELECT * FROM certificate WHERE sid = ? ORDER BY rowid", [sid]).fetchall()
    if not rows:
        raise ObjectNotFound(f"user {sid}")
    certificates = (Certificate(row["digest"], UUID(bytes_le=row["identifier"]), row["encoded"]) for row in rows)
    return UserRecord(sid, tuple(certificates))


def _list(db: sqlite3.Connection, identifier: UUID) -> ListRecord:
    row = db.execute("SELECT name FROM list WHERE identifier = ?", [identifier.bytes_le]).fetchone()
    if row is None:
        raise ObjectNotFound(f"distribution list {identifier}")
    statement = "SELECT format_name FROM member WHERE list = ? ORDER BY rowid"
    return ListRecord(identifier, row[0], tuple(m[0] for m in db.execute(statement, [identifier.bytes_le])))


def _add_members(db: sqlite3.Connection, identifier: UUID, members: Sequence[str]) -> None:
    rows = [(identifier.bytes_le, name, name.casefold()) for name in members]
    db.executemany("INSERT OR IGNORE INTO member VALUES (?, ?, ?)", rows)
