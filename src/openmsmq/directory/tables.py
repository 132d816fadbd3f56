"""The tables of `embedded`, and their rows as the records of `provider`."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final
from uuid import UUID

from openmsmq.directory.lookup import KEYS, OPERATORS, Filter, Relation
from openmsmq.directory.provider import (
    Certificate,
    ListRecord,
    MachineRecord,
    ObjectNotFound,
    QueueRecord,
    UserRecord,
)

VERSION: Final = 1  # version of the schema, in PRAGMA user_version
SCHEMA: Final = """
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
# Attribute of a query -> column that is compared. Paths are composed of columns of two tables.
_COLUMNS: Final = {
    "identifier": "queue.identifier", "type": "queue.type", "label": "queue.label_key",
    "create_time": "queue.create_time", "modify_time": "queue.modify_time",
    "multicast_address": "queue.multicast_key", "machine": "queue.machine",
    "path_name": "machine.name_key || '\\' || queue.name_key",
}  # fmt: skip
OF_QUEUES: Final = "SELECT queue.*, machine.computer_name FROM queue JOIN machine ON machine.identifier = queue.machine"
STORED: Final = tuple(f.name for f in fields(QueueRecord) if f.name not in ("position", "path_name"))
_BOOLEANS: Final = ("journaling", "authentication", "transactional")


def machine_key(db: sqlite3.Connection, name: str) -> bytes:
    """Return the identifier of the machine with a computer name or DNS name; empty if there is none."""
    key = name.casefold()
    row = db.execute("SELECT identifier FROM machine WHERE name_key = ?", [key]).fetchone()
    row = row or db.execute("SELECT machine FROM dns_name WHERE name_key = ? ORDER BY machine", [key]).fetchone()
    return bytes(row[0]) if row is not None else b""


def machine_with(db: sqlite3.Connection, identifier: bytes, what: str) -> MachineRecord:
    row = db.execute("SELECT * FROM machine WHERE identifier = ?", [identifier]).fetchone()
    if row is None:
        raise ObjectNotFound(what)
    found = db.execute("SELECT name FROM dns_name WHERE machine = ? ORDER BY name_key", [identifier])
    return MachineRecord(
        UUID(bytes_le=row["identifier"]), row["computer_name"], tuple(name[0] for name in found),
        row["public_keys"], row["signing_keys"], row["security"],
    )  # fmt: skip


def queue_with(db: sqlite3.Connection, identifier: UUID) -> QueueRecord:
    row = db.execute(f"{OF_QUEUES} WHERE queue.identifier = ?", [identifier.bytes_le]).fetchone()
    if row is None:
        raise ObjectNotFound(f"public queue {identifier}")
    return queue_of(row)


def queue_of(row: sqlite3.Row) -> QueueRecord:
    values = {name: row[name] for name in STORED}
    for name in ("identifier", "machine", "type"):
        values[name] = UUID(bytes_le=values[name])
    for name in _BOOLEANS:
        values[name] = bool(values[name])
    return QueueRecord(path_name=f"{row['computer_name']}\\{row['name']}", position=row["position"], **values)


def to_column(value: Any) -> Any:
    return value.bytes_le if isinstance(value, UUID) else value


def keys_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the key columns for the texts among `values`."""
    keys = {"label": "label_key", "multicast_address": "multicast_key"}
    return {key: KEYS[name](values[name]) for name, key in keys.items() if name in values}


def condition_of(condition: Filter) -> tuple[str, list[Any]]:
    """Return a filter as SQL, equivalent to `lookup.holds`, and its operands."""
    column, found, key = _COLUMNS[condition.attribute], OPERATORS[condition.relation], condition.key
    if key is None:
        if condition.relation is Relation.EQUALS:
            return f"({column}) IS NULL", []
        return (f"({column}) IS NOT NULL" if found.of_absent else "0"), []
    text = f"({column}) {found.symbol} ?"
    return (f"({text} OR ({column}) IS NULL)" if found.of_absent else text), [key]


def user_with(db: sqlite3.Connection, sid: str) -> UserRecord:
    rows = db.execute("SELECT * FROM certificate WHERE sid = ? ORDER BY rowid", [sid]).fetchall()
    if not rows:
        raise ObjectNotFound(f"user {sid}")
    certificates = (Certificate(row["digest"], UUID(bytes_le=row["identifier"]), row["encoded"]) for row in rows)
    return UserRecord(sid, tuple(certificates))


def list_with(db: sqlite3.Connection, identifier: UUID) -> ListRecord:
    row = db.execute("SELECT name FROM list WHERE identifier = ?", [identifier.bytes_le]).fetchone()
    if row is None:
        raise ObjectNotFound(f"distribution list {identifier}")
    statement = "SELECT format_name FROM member WHERE list = ? ORDER BY rowid"
    return ListRecord(identifier, row[0], tuple(m[0] for m in db.execute(statement, [identifier.bytes_le])))


def add_members(db: sqlite3.Connection, identifier: UUID, members: Sequence[str]) -> None:
    rows = [(identifier.bytes_le, name, name.casefold()) for name in members]
    db.executemany("INSERT OR IGNORE INTO member VALUES (?, ?, ?)", rows)
