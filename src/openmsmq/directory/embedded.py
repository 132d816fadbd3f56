"""A directory in one SQLite file, which several queue managers of a machine may share.

SQLite's locks serialize access, even if a process is killed: the file is in WAL mode, changes are transactions, and a
change is on the disk before it is reported. All access happens in a thread, so that the event loop never waits. Names
are stored as written, together with the keys of `lookup`, by which they are found.

There are no access rights within the file: a user who may write it may change everything. It therefore belongs to one
user (mode 0600).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from openmsmq.directory import tables
from openmsmq.directory.lookup import Filter
from openmsmq.directory.provider import (
    Certificate,
    DirectoryNotConnected,
    ListRecord,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
    QueueRecord,
    UserRecord,
)

T = TypeVar("T")

BUSY_SECONDS: Final = 5.0  # maximum wait for a write by another process


class EmbeddedDirectory:
    """See the module and `provider.DirectoryProvider`."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet; the first call creates the file."""
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
        return await self._do(lambda db: tables.machine_with(db, identifier.bytes_le, f"machine {identifier}"))

    async def machine_named(self, name: str) -> MachineRecord:
        return await self._do(lambda db: tables.machine_with(db, tables.machine_key(db, name), name))

    async def machines(self) -> Sequence[MachineRecord]:
        def work(db: sqlite3.Connection) -> list[MachineRecord]:
            rows = db.execute("SELECT identifier FROM machine ORDER BY name_key").fetchall()
            return [tables.machine_with(db, row[0], "") for row in rows]

        return await self._do(work)

    async def remove_machine(self, identifier: UUID) -> None:
        await self._remove("machine", identifier, f"machine {identifier}")

    # -- queues ------------------------------------------------------------------------------------------------

    async def create_queue(self, record: QueueRecord) -> QueueRecord:
        def work(db: sqlite3.Connection) -> QueueRecord:
            tables.machine_with(db, record.machine.bytes_le, f"machine {record.machine}")
            values = {name: tables.to_column(getattr(record, name)) for name in tables.STORED}
            name = record.path_name.partition("\\")[2]
            values |= {"name": name, "name_key": name.casefold(), **tables.keys_of(values)}
            columns, marks = ", ".join(values), ", ".join(f":{column}" for column in values)
            try:
                db.execute(f"INSERT INTO queue ({columns}) VALUES ({marks})", values)
            except sqlite3.IntegrityError:
                raise ObjectExists(record.path_name) from None
            return tables.queue_with(db, record.identifier)

        return await self._do(lambda db: _changing(db, work))

    async def queue(self, identifier: UUID) -> QueueRecord:
        return await self._do(lambda db: tables.queue_with(db, identifier))

    async def queue_at(self, path_name: str) -> QueueRecord:
        computer, _, name = path_name.partition("\\")

        def work(db: sqlite3.Connection) -> QueueRecord:
            condition = "WHERE queue.machine = ? AND queue.name_key = ?"
            row = db.execute(
                f"{tables.OF_QUEUES} {condition}", [tables.machine_key(db, computer), name.casefold()]
            ).fetchone()
            if row is None:
                raise ObjectNotFound(f"queue {path_name}")
            return tables.queue_of(row)

        return await self._do(work)

    async def find_queues(self, filters: Sequence[Filter], after: int, limit: int) -> Sequence[QueueRecord]:
        conditions, values = ["queue.position > ?"], [after]
        for condition in filters:
            text, operands = tables.condition_of(condition)
            conditions.append(text)
            values += operands
        statement = f"{tables.OF_QUEUES} WHERE {' AND '.join(conditions)} ORDER BY queue.position LIMIT ?"

        def work(db: sqlite3.Connection) -> list[QueueRecord]:
            return [tables.queue_of(row) for row in db.execute(statement, [*values, limit])]

        return await self._do(work)

    async def update_queue(self, identifier: UUID, changes: Mapping[str, Any]) -> QueueRecord:
        unknown = [name for name in changes if name not in tables.STORED]
        assert not unknown, unknown

        def work(db: sqlite3.Connection) -> QueueRecord:
            values = {name: tables.to_column(value) for name, value in changes.items()}
            values |= tables.keys_of(values)
            assignments = ", ".join(f"{name} = :{name}" for name in values)
            if values:
                wanted = {**values, "wanted": identifier.bytes_le}
                db.execute(f"UPDATE queue SET {assignments} WHERE identifier = :wanted", wanted)
            return tables.queue_with(db, identifier)

        return await self._do(lambda db: _changing(db, work))

    async def delete_queue(self, identifier: UUID) -> None:
        def work(db: sqlite3.Connection) -> None:
            record = tables.queue_with(db, identifier)
            key = identifier.bytes_le
            db.execute("INSERT OR REPLACE INTO deleted_queue VALUES (?, ?)", [key, record.machine.bytes_le])
            db.execute("DELETE FROM queue WHERE identifier = ?", [key])

        await self._do(lambda db: _changing(db, work))

    async def directory_path(self, identifier: UUID) -> str:
        return ""

    async def format_name_at(self, directory_path: str) -> str:
        raise ObjectNotFound(f"{directory_path!r} (an LDAP path, which needs Active Directory)")

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
        return await self._do(lambda db: tables.user_with(db, sid))

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
            tables.add_members(db, identifier, members)
            return tables.list_with(db, identifier)

        return await self._do(lambda db: _changing(db, work))

    async def distribution_list(self, identifier: UUID) -> ListRecord:
        return await self._do(lambda db: tables.list_with(db, identifier))

    async def distribution_lists(self) -> Sequence[ListRecord]:
        def work(db: sqlite3.Connection) -> list[ListRecord]:
            rows = db.execute("SELECT identifier FROM list ORDER BY name_key").fetchall()
            return [tables.list_with(db, UUID(bytes_le=row[0])) for row in rows]

        return await self._do(work)

    async def set_members(self, identifier: UUID, add: Sequence[str], remove: Sequence[str]) -> ListRecord:
        def work(db: sqlite3.Connection) -> ListRecord:
            tables.list_with(db, identifier)
            rows = [(identifier.bytes_le, name.casefold()) for name in remove]
            db.executemany("DELETE FROM member WHERE list = ? AND name_key = ?", rows)
            tables.add_members(db, identifier, add)
            return tables.list_with(db, identifier)

        return await self._do(lambda db: _changing(db, work))

    async def remove_list(self, identifier: UUID) -> None:
        await self._remove("list", identifier, f"distribution list {identifier}")

    # -- the file ----------------------------------------------------------------------------------------------

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the thread. Raises DirectoryNotConnected, and exceptions of `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connected())
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            raise DirectoryNotConnected(f"{self._path}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        """Return the connection to the file; a new one if the file has been replaced."""
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
        """Return an initialized connection, or None to try `again`: SQLite does not wait for the lock with which
        another process sets the mode of a new file."""
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
        """Create the tables of a new file. Raises DirectoryNotConnected for another version of the schema."""
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in tables.SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {tables.VERSION}")
        elif version != tables.VERSION:
            raise DirectoryNotConnected(
                f"{self._path} has version {version} of the schema; this release reads {tables.VERSION}"
            )

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
    """Run a change as one transaction, which takes the write lock when it begins."""
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
