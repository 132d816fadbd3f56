"""Where an inventory comes from besides MS-MQMR and MS-MQMP: the automation objects of the other machine by DCOM, and
the directory that this machine uses."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from openmsmq.admin.definitions import Document, defined
from openmsmq.admin.inventory import Inventory, reason_of
from openmsmq.admin.inventory_export import OF_INFO, read_export
from openmsmq.admin.json_bytes import json_bytes
from openmsmq.cli.connection import Address, login_of
from openmsmq.client.calls import UNANSWERED
from openmsmq.com import CastTo, ComError, Dispatch
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import DirectoryError, ObjectNotFound, QueueRecord
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.security import SecurityDescriptor
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.directory import connect_to_directory

RESOLVER_PORT: Final = 135
_PAGE: Final = 1000  # queries that run at the same time
_OF_ALL: Final = (
    "FormatName", "IsLocal", "QueueType", "ForeignStatus", "TransactionalStatus", "MessageCount", "BytesInQueue",
)  # fmt: skip
#: Members of MSMQManagement by the further interface that has them ([MC-MQAC] 3.15, 3.16).
_OF_OUTGOING: Final = ("IMSMQOutgoingQueueManagement", ("State", "NextHops"))
_OF_LOCAL: Final = ("IMSMQQueueManagement", ("JournalMessageCount", "BytesInJournal"))
_SYSTEM: Final = tuple(f"DIRECT=OS:.\\SYSTEM$;{name}" for name in ("DEADLETTER", "DEADXACT", "JOURNAL"))


# -- automation objects --------------------------------------------------------------------------------------------


def by_com(address: Address, level: Any) -> Inventory:
    """Ask the automation objects of a machine, which are made there and see what its own programs see. The document is
    the same as that of `tools/windows/Export-Msmq.ps1`. The specification reserves the member that has the rights
    ([MC-MQAC] 3.10.4.1.33), so a machine may not say them. Raises what ends the connection, and MsmqError where no
    object can be made."""
    login = login_of(address, level)
    port = address.port or RESOLVER_PORT + address.port_offset

    def new(name: str) -> Any:
        return Dispatch(f"MSMQ.{name}", address.host, port, **login)

    return read_export(json_bytes(_ComExport(new).document(address.host)), source="DCOM")


class _ComExport:
    """Reads one machine; what can't be read is in `errors`, with the reason."""

    def __init__(self, new: Callable[[str], Any]) -> None:
        """`new` makes an object of a class."""
        self._new: Final = new
        self._errors: dict[str, str] = {
            "names of accounts": "the automation objects have security identifiers only",
        }

    def document(self, host: str) -> Document:
        application = self._new("MSMQApplication")

        def of_machine(name: str) -> Any:
            return self._read("the machine", name, lambda: getattr(application, name))

        private = of_machine("PrivateQueues") or ()
        active = self._read("the machine", "ActiveQueues", application.ActiveQueues) or ()  # a method
        size = of_machine("BytesInAllQueues")
        version = [of_machine(f"MSMQVersion{part}") for part in ("Major", "Minor")]
        queues = {
            "private": [self._queue(path, None) for path in private], "active": [self._queue(None, n) for n in active],
            "system": [self._queue(None, name) for name in _SYSTEM],
        }  # fmt: skip
        return {
            "export": 1, "computer": host, "taken": int(time.time()),
            "version": ".".join(str(part) for part in version if part is not None),
            "connected": of_machine("IsConnected"), "directory_server": of_machine("DirectoryServiceServer"),
            "bytes": None if size is None else str(size), **queues, "errors": self._errors,
        }  # fmt: skip

    def _read(self, about: str, name: str, read: Callable[[], Any]) -> Any:
        """Read a value; return None, and add to `errors`, if the machine refuses it. Raises errors that end the
        connection."""
        try:
            return read()
        except UNANSWERED:
            raise
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_NO_DS:  # which is an answer
                self._errors[f"{about}: {name}"] = str(error) if isinstance(error, ComError) else reason_of(error)
            return None

    def _queue(self, path: str | None, format_name: str | None) -> Document:
        """Return a queue, given by path name or format name, with the members of its objects."""
        about = path or format_name or ""
        found: Document = {"path_name": path, "format_name": format_name}
        managed = self._new("MSMQManagement")
        self._read(about, "Init", lambda: managed.Init(..., *((path,) if path else (..., format_name))))
        for name in _OF_ALL:
            found[name] = self._read(about, name, lambda name=name: getattr(managed, name))  # type: ignore[misc]
        face, names = _OF_OUTGOING if found["IsLocal"] is False else _OF_LOCAL
        further = self._read(about, face, lambda: CastTo(managed, face))
        for name in names if further is not None else ():
            found[name] = self._read(about, name, lambda name=name: getattr(further, name))  # type: ignore[misc]
        if path:
            self._properties(path, found)
        for name in ("BytesInQueue", "BytesInJournal"):
            found[name] = None if found.get(name) is None else str(found[name])
        return found

    def _properties(self, path: str, found: Document) -> None:
        info = self._new("MSMQQueueInfo")
        info.PathName = path
        self._read(path, "Refresh", info.Refresh)
        for name in OF_INFO:
            found[name] = self._read(path, name, lambda name=name: getattr(info, name))  # type: ignore[misc]
        security = self._read(path, "Security", lambda: info.Security)
        if security:
            found["Security"] = base64.b64encode(bytes(security)).decode()


# -- the directory -------------------------------------------------------------------------------------------------


def from_directory(configuration: Configuration, host: str) -> Mapping[str, Document]:
    """Return the definitions of a machine's public queues by name, read from the configured directory. `host` is a
    computer name or DNS name. Raises ClickException.
    """
    try:
        return asyncio.run(_listed(configuration, host))
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None
    except ObjectNotFound:
        raise click.ClickException(
            f"the directory has no machine {host}: give --directory-name, its computer name or DNS name there"
        ) from None
    except DirectoryError as error:
        raise click.ClickException(f"cannot query the directory: {error}") from None


async def _listed(configuration: Configuration, host: str) -> dict[str, Document]:
    provider = connect_to_directory(configuration).provider
    if provider is None:
        raise click.ClickException(
            "this machine has no directory: set directory_provider, as in docs/directory.md, and name its file by "
            "--config, or its data directory by --data-dir"
        )
    try:
        machine = await provider.machine_named(host)
        wanted = [Filter("machine", Relation.EQUALS, machine.identifier)]
        records: list[QueueRecord] = []
        while page := await provider.find_queues(wanted, records[-1].position if records else 0, _PAGE):
            records += page
    finally:
        await provider.close()
    return {record.path_name.partition("\\")[2]: _definition(record) for record in records}


def _definition(record: QueueRecord) -> Document:
    values = {
        "label": record.label, "transactional": record.transactional, "journal": record.journaling,
        "quota": record.quota, "journal_quota": record.journal_quota, "authenticate": record.authentication,
        "priv_level": record.privacy_level, "base_priority": record.base_priority, "type": record.type,
        "multicast_address": record.multicast_address,
    }  # fmt: skip
    try:
        descriptor = SecurityDescriptor.parse(record.security) if record.security else None
    except MsmqError:
        descriptor = None
    return defined(record.path_name.partition("\\")[2], values, descriptor, {})
