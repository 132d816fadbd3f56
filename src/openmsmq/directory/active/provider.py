"""Active Directory as a `DirectoryProvider` ([MS-MQDSSM]).

The object of a queue manager is `CN=msmq` below that of its computer; the objects of its queues are below that.
Computers are found by name anywhere in the domain. Objects that are not in the own domain are searched in the global
catalog of the forest (deviation D-171), which has all attributes of queues and queue managers that are read here. The
directory assigns the identifiers of objects, including that of this queue manager (`enrol`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from openmsmq.directory.active import descriptors, schema
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.filters import queue_filter
from openmsmq.directory.active.forest import forest_of
from openmsmq.directory.active.ldap_text import by_identifier, child, filter_text, name_of, parent_of
from openmsmq.directory.active.objects import (
    OF_COMPUTER,
    Computer,
    computer_of,
    format_name_of,
    format_names_of_members,
    identifier_of,
    octets,
    one,
    sid_of,
    site_of,
)
from openmsmq.directory.active.session import DirectorySession, LdapEntry
from openmsmq.directory.active.views import View
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import (
    Certificate,
    DirectoryDenied,
    DirectoryError,
    DirectoryNotConnected,
    ListRecord,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
    QueueRecord,
    UserRecord,
)
from openmsmq.model.errors import MsmqError
from openmsmq.model.security import sid_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Functions that parse and build MQUSERSIGNCERTS ([MS-MQMQ] 2.2.21). Raise ValueError.
ReadCertificates = Callable[[bytes], Sequence[Certificate]]
WriteCertificates = Callable[[Sequence[Certificate]], bytes]

_KEYS, _CERTIFICATES, _DIGESTS = "mSMQEncryptKey", "mSMQSignCertificates", "mSMQDigests"
_OF_MACHINE: Final = ("objectGUID", _KEYS, schema.DESCRIPTOR)
_OF_A_DOMAIN: Final = "S-1-5-21-"
_PATH: Final = "LDAP://"
_MEMBERS: Final = 1000  # maximum members of a distribution list
_POSITION: Final = schema.OF_QUEUE["position"].name


class ActiveDirectory:
    """See the module and `provider.DirectoryProvider`. Distribution lists are read only."""

    def __init__(
        self,
        controllers: Controllers,
        account: str,
        read_certificates: ReadCertificates,
        write_certificates: WriteCertificates,
        catalog: Controllers | None = None,
    ) -> None:
        """`account` is the sAMAccountName of this machine, such as `MQ1$`; `catalog` are controllers at the port of the
        global catalog, None if there is none. Nothing is sent yet."""
        self._controllers: Final = controllers
        self._catalog: Final = catalog
        self._account: Final = account
        self._read_certificates: Final = read_certificates
        self._write_certificates: Final = write_certificates
        self._context = ""  # the domain's distinguished name
        self._keys_denied = False  # already logged

    async def close(self) -> None:
        await self._controllers.close()
        if self._catalog is not None:
            await self._catalog.close()

    # -- machines ----------------------------------------------------------------------------------------------

    def enrol(self, computer_name: str) -> UUID:
        """Return the identifier of this queue manager's object, which is created if it does not exist. Blocks. Raises
        DirectoryError."""
        return self._controllers.change_now(lambda session: self._enrolled(session, computer_name))

    async def register_machine(self, record: MachineRecord) -> None:
        def work(session: DirectorySession) -> None:
            identifier = self._identifier(session, self._computer_of(session, record.computer_name))
            if identifier != record.identifier:
                raise ObjectExists(
                    f"{self._account} is the queue manager {identifier} in the directory, and the data directory is "
                    f"that of {record.identifier}: `openmsmq domain join` moves it, or start with an empty one"
                )
            self._write_keys(session, one(session, by_identifier(identifier), [_KEYS]), record.public_keys)

        await self._controllers.change(work)

    def _write_keys(self, session: DirectorySession, machine: LdapEntry, keys: bytes) -> None:
        """Publish the keys if they have changed, since every change is replicated. A failure affects only
        encryption."""
        if not keys or keys == octets(machine, _KEYS):
            return
        try:
            session.modify(machine.name, {_KEYS: [keys]})
        except DirectoryDenied as error:
            if not self._keys_denied:
                advice = f"Give {self._account} full control of {machine.name}"
                logger.warning("cannot publish own keys, so peers cannot encrypt messages for this machine: %s. %s",
                               error, advice)  # fmt: skip
            self._keys_denied = True

    def _enrolled(self, session: DirectorySession, computer_name: str) -> UUID:
        computer = self._computer_of(session, computer_name)
        try:
            return identifier_of(one(session, computer.configuration, ["objectGUID"]))
        except ObjectNotFound:
            self._make_configuration(session, computer)
        return identifier_of(one(session, computer.configuration, ["objectGUID"]))

    def _identifier(self, session: DirectorySession, computer: Computer) -> UUID:
        """Return the identifier of this queue manager's object. A missing object is not created: this controller may
        not know it yet, and of two objects of one name, replication renames one."""
        try:
            return identifier_of(one(session, computer.configuration, ["objectGUID"]))
        except ObjectNotFound:
            raise DirectoryError(
                f"the directory does not have {computer.configuration}, the object of this queue manager. A controller "
                "may not know a new object yet; a deleted one has to be restored, or `openmsmq domain join` creates "
                "another"
            ) from None

    def _computer_of(self, session: DirectorySession, computer_name: str) -> Computer:
        computer = self._own_computer(session)
        if computer.computer_name.casefold() != computer_name.casefold():
            raise DirectoryError(
                f"the account {self._account} is of the computer {computer.computer_name}, and computer_name is "
                f"{computer_name}: one of the settings computer_name and directory_account is wrong"
            )
        return computer

    def _make_configuration(self, session: DirectorySession, computer: Computer) -> None:
        """Create the object of the queue manager ([MS-MQDSSM] 3.1.6.1.1.2). Without a descriptor in the request, the
        machine could not modify the object."""
        no = [schema.BOOLEAN.encode(False)]
        attributes = {
            "objectClass": [schema.CONFIGURATION.encode()],
            schema.DESCRIPTOR: [descriptors.of_computer(computer.sid)],
            "mSMQSites": [site_of(session)],
            "mSMQServiceType": [b"0"],
            "mSMQOSType": [b"0"],  # Other
            "mSMQForeign": no, "mSMQRoutingServices": no, "mSMQDsServices": no, "mSMQDependentClientServices": no,
        }  # fmt: skip
        try:
            session.add(computer.configuration, attributes)
        except ObjectExists:
            return  # another process was faster
        except DirectoryDenied as error:
            raise DirectoryDenied(
                f"{error}. An administrator of the domain has to create {computer.configuration}, of class "
                f"{schema.CONFIGURATION}, and give {self._account} full control of it, or the right to create it"
            ) from None

    async def machine(self, identifier: UUID) -> MachineRecord:
        return await self._read(
            lambda view: self._machine_record(view.session, view.identified(identifier, _OF_MACHINE))
        )  # fmt: skip

    async def machine_named(self, name: str) -> MachineRecord:
        return await self._read(
            lambda view: self._machine_record(
                view.session, one(view.session, _computer_named(view, name).configuration, _OF_MACHINE)
            )
        )

    async def machines(self) -> Sequence[MachineRecord]:
        """Return the machines of the own domain."""

        def work(session: DirectorySession) -> list[MachineRecord]:
            condition = f"(objectClass={schema.CONFIGURATION})"
            found = session.search(self._domain(session), condition, _OF_MACHINE)
            records = [self._machine_record(session, entry) for entry in found]
            return sorted(records, key=lambda record: record.computer_name.casefold())

        return await self._controllers.read(work)

    async def remove_machine(self, identifier: UUID) -> None:
        raise DirectoryDenied("remove the object CN=msmq of the machine with the tools of the domain")

    def _machine_record(self, session: DirectorySession, entry: LdapEntry) -> MachineRecord:
        computer = computer_of(one(session, parent_of(entry.name), OF_COMPUTER))
        security = self._descriptor(entry, descriptors.of_machine)
        keys = octets(entry, _KEYS)
        names = (computer.dns_name,) if computer.dns_name else ()
        return MachineRecord(
            identifier_of(entry), computer.computer_name, names, keys, computer.signing_keys, security
        )  # fmt: skip

    def _own_computer(self, session: DirectorySession) -> Computer:
        condition = f"(&(objectClass=computer)(sAMAccountName={filter_text(self._account)}))"
        found = session.search(self._domain(session), condition, OF_COMPUTER, limit=1)
        if not found:
            raise DirectoryError(
                f"the domain has no computer account {self._account}: join the domain, or set directory_account"
            )
        return computer_of(found[0])

    # -- queues ------------------------------------------------------------------------------------------------

    async def create_queue(self, record: QueueRecord) -> QueueRecord:
        def work(session: DirectorySession) -> QueueRecord:
            machine = one(session, by_identifier(record.machine), ["objectGUID"]).name
            sid = computer_of(one(session, parent_of(machine), OF_COMPUTER)).sid
            name = child(record.path_name.partition("\\")[2], machine)
            values = {field: getattr(record, field) for field in schema.OF_QUEUE}
            attributes = {"objectClass": [schema.QUEUE.encode()], **schema.attributes_of(values)}
            attributes[schema.DESCRIPTOR] = [descriptors.to_directory(record.security, sid)]
            try:
                session.add(name, attributes)
            except ObjectExists:
                raise ObjectExists(record.path_name) from None
            except DirectoryDenied as error:
                raise DirectoryDenied(f"{error}. Give {self._account} full control of {machine}") from None
            return self._queue(session, one(session, name, schema.QUEUE_ATTRIBUTES), {})

        return await self._controllers.change(work)

    async def queue(self, identifier: UUID) -> QueueRecord:
        return await self._read(lambda view: self._queue_with(view, identifier))

    async def queue_at(self, path_name: str) -> QueueRecord:
        computer, _, name = path_name.partition("\\")

        def work(view: View) -> QueueRecord:
            machine, session = _computer_named(view, computer).configuration, view.session
            try:
                return self._queue(session, one(session, child(name, machine), schema.QUEUE_ATTRIBUTES), {})
            except ObjectNotFound:
                raise ObjectNotFound(f"queue {path_name}") from None

        return await self._read(work)

    async def find_queues(self, filters: Sequence[Filter], after: int, limit: int) -> Sequence[QueueRecord]:
        """Find queues. Positions are specific to a controller, so a query that continues at another one may miss
        queues. Queues that are malformed or that this account may not read are left out."""
        machines = [condition for condition in filters if condition.attribute == "machine"]
        others = [condition for condition in filters if condition.attribute != "machine"]
        if any(f.relation is not Relation.EQUALS for f in machines) or len(machines) > 1:
            raise DirectoryError("a search by machine must name one machine with EQUALS")

        if not machines:
            return await self._read_all(lambda view: self._found(view.session, view.top, others, after, limit))

        def work(view: View) -> list[QueueRecord]:
            machine = view.identified(machines[0].value, ["objectGUID"]).name
            return self._found(view.session, machine, others, after, limit)

        try:
            return await self._read(work)
        except ObjectNotFound:
            return []  # there is no such machine

    def _found(
        self, session: DirectorySession, base: str, filters: Sequence[Filter], after: int, limit: int
    ) -> list[QueueRecord]:  # fmt: skip
        known: dict[str, tuple[str, UUID, str]] = {}
        while True:
            condition = queue_filter(filters, after)
            found = session.search(base, condition, schema.QUEUE_ATTRIBUTES, limit=limit, order=_POSITION)
            records = [record for entry in found if (record := self._readable(session, entry, known)) is not None]
            if records or not found:
                return records
            after = schema.value_of(found[-1].values, schema.OF_QUEUE["position"])

    async def update_queue(self, identifier: UUID, changes: Mapping[str, Any]) -> QueueRecord:
        def work(session: DirectorySession) -> QueueRecord:
            attributes = schema.attributes_of(changes)
            if "security" in changes:
                sid = self._sid_of_owner(session, identifier)
                attributes[schema.DESCRIPTOR] = [descriptors.to_directory(changes["security"], sid)]
            if attributes:
                session.modify(by_identifier(identifier), attributes)
            return self._queue_with(View(session, self._domain(session)), identifier)

        return await self._controllers.change(work)

    async def delete_queue(self, identifier: UUID) -> None:
        def work(session: DirectorySession) -> None:
            try:
                session.delete(by_identifier(identifier))
            except ObjectNotFound:
                raise ObjectNotFound(f"public queue {identifier}") from None

        await self._controllers.change(work)

    async def directory_path(self, identifier: UUID) -> str:
        return await self._read(lambda view: _PATH + view.identified(identifier, ["objectGUID"]).name)

    async def format_name_at(self, directory_path: str) -> str:
        """Return the format name of an object; a server name in the path is ignored."""
        name = directory_path[len(_PATH) :] if directory_path.upper().startswith(_PATH) else directory_path
        server, _, rest = name.partition("/")
        name = rest if "=" not in server else name

        def work(view: View) -> str:
            try:
                return format_name_of(view.session, name)
            except DirectoryNotConnected:
                raise
            except DirectoryError as error:
                raise ObjectNotFound(f"a queue, alias or group at {directory_path!r} ({error})") from None

        return await self._read(work)

    async def deleted_queues(self, machine: UUID) -> Sequence[UUID]:
        """Return nothing: only administrators can see deleted objects of Active Directory, and a queue may be missing
        only because its creation has not been replicated. Such a queue is kept, and the log names it."""
        return ()

    async def confirm_deletion(self, identifier: UUID) -> None:
        """Do nothing: Active Directory needs no confirmation."""

    def _queue_with(self, view: View, identifier: UUID) -> QueueRecord:
        try:
            return self._queue(view.session, view.identified(identifier, schema.QUEUE_ATTRIBUTES), {})
        except ObjectNotFound:
            raise ObjectNotFound(f"public queue {identifier}") from None

    def _queue(
        self, session: DirectorySession, entry: LdapEntry, known: dict[str, tuple[str, UUID, str]]
    ) -> QueueRecord:
        """Convert an entry to a record. `known` caches computer, identifier and SID of machines by distinguished
        name."""
        machine = parent_of(entry.name)
        if machine not in known:
            computer_name = parent_of(machine)
            known[machine] = (
                name_of(computer_name), identifier_of(one(session, machine, ["objectGUID"])),
                sid_of(one(session, computer_name, ["objectSid"])),
            )  # fmt: skip
        computer, identifier, sid = known[machine]
        security = self._descriptor(entry, lambda descriptor: descriptors.from_directory(descriptor, sid))
        return schema.queue_record(entry.values, computer, identifier, security)

    def _readable(
        self, session: DirectorySession, entry: LdapEntry, known: dict[str, tuple[str, UUID, str]]
    ) -> QueueRecord | None:
        try:
            return self._queue(session, entry, known)
        except DirectoryNotConnected:
            raise
        except (DirectoryError, ValueError) as error:
            logger.info("%s is left out: %s", entry.name, error)
            return None

    def _descriptor(self, entry: LdapEntry, convert: Callable[[bytes], bytes]) -> bytes:
        """Return the converted security descriptor of an object. Raises DirectoryError."""
        descriptor = octets(entry, schema.DESCRIPTOR)
        if not descriptor:
            raise DirectoryError(f"{self._account} may not read the permissions of {entry.name}")
        try:
            return convert(descriptor)
        except MsmqError as error:
            raise DirectoryError(f"the permissions of {entry.name} can't be read: {error}") from None

    def _sid_of_owner(self, session: DirectorySession, queue: UUID) -> str:
        name = parent_of(parent_of(one(session, by_identifier(queue), ["objectGUID"]).name))
        return computer_of(one(session, name, OF_COMPUTER)).sid

    # -- users -------------------------------------------------------------------------------------------------

    async def user(self, sid: str) -> UserRecord:
        def work(session: DirectorySession) -> UserRecord:
            found = self._user_entry(session, sid)
            groups = (
                sid_text(value) for value in one(session, found.name, ["tokenGroups"]).values.get("tokengroups", ())
            )
            of_domains = frozenset(group for group in groups if group.startswith(_OF_A_DOMAIN))
            return UserRecord(sid_of(found), self._certificates_of(found), of_domains)

        return await self._controllers.read(work)

    def _user_entry(self, session: DirectorySession, sid: str) -> LdapEntry:
        condition = f"(&(objectClass=user)(objectSid={filter_text(sid)}))"
        found = session.search(self._domain(session), condition, ["objectSid", _CERTIFICATES], limit=1)
        if not found:
            raise ObjectNotFound(sid)
        return found[0]

    def _certificates_of(self, user: LdapEntry) -> tuple[Certificate, ...]:
        encoded = octets(user, _CERTIFICATES)
        try:
            return tuple(self._read_certificates(encoded)) if encoded else ()
        except ValueError as error:
            raise DirectoryError(f"the certificates of {user.name} can't be read: {error}") from None

    async def add_certificate(self, sid: str, certificate: Certificate) -> None:
        def added(present: Sequence[Certificate]) -> list[Certificate]:
            return [*(entry for entry in present if entry.digest != certificate.digest), certificate]

        await self._change_certificates(sid, added)

    async def remove_certificate(self, sid: str, digest: bytes) -> None:
        def removed(present: Sequence[Certificate]) -> list[Certificate]:
            remaining = [entry for entry in present if entry.digest != digest]
            if len(remaining) == len(present):
                raise ObjectNotFound(f"certificate {digest.hex()} of {sid}")
            return remaining

        await self._change_certificates(sid, removed)

    async def _change_certificates(
        self, sid: str, change: Callable[[Sequence[Certificate]], list[Certificate]]
    ) -> None:
        """Change both attributes in one operation, with the same order ([MS-MQDSSM] 3.1.6.7.6.4)."""

        def work(session: DirectorySession) -> None:
            user = self._user_entry(session, sid)
            after = change(self._certificates_of(user))
            written = [self._write_certificates(after)] if after else []
            try:
                session.modify(user.name, {_CERTIFICATES: written, _DIGESTS: [entry.digest for entry in after]})
            except DirectoryDenied as error:
                raise DirectoryDenied(
                    f"{error}. A certificate in Active Directory is written by its user: `openmsmq "
                    "certificates register --domain`, with the user's ticket; or grant the queue manager's account the "
                    f"right to write {_CERTIFICATES} and {_DIGESTS} of {user.name}"
                ) from None

        await self._controllers.change(work)

    # -- distribution lists ------------------------------------------------------------------------------------

    async def create_list(self, name: str, members: Sequence[str]) -> ListRecord:
        raise _of_administrators()

    async def distribution_list(self, identifier: UUID) -> ListRecord:
        """Return a group of queues, aliases and groups ([MS-MQDSSM] 3.1.6.9)."""

        def work(session: DirectorySession) -> ListRecord:
            group = one(session, by_identifier(identifier), ["cn", "member"])
            if len(group.values.get("member", ())) > _MEMBERS:
                raise DirectoryError(f"the group {group.name} has more than {_MEMBERS} members, which is the limit")
            names = format_names_of_members(session, self._domain(session), group)
            return ListRecord(identifier, octets(group, "cn").decode(), names)

        return await self._controllers.read(work)

    async def distribution_lists(self) -> Sequence[ListRecord]:
        """Return nothing: any group can be a distribution list."""
        return ()

    async def set_members(self, identifier: UUID, add: Sequence[str], remove: Sequence[str]) -> ListRecord:
        raise _of_administrators()

    async def remove_list(self, identifier: UUID) -> None:
        raise _of_administrators()

    # -- the domain and its forest -----------------------------------------------------------------------------

    async def _read(self, work: Callable[[View], T]) -> T:
        """Read from the own domain or, if the object is not found there, from the other domains of the forest."""
        try:
            return await self._controllers.read(lambda session: work(View(session, self._domain(session))))
        except ObjectNotFound:
            if not await self._has_others():
                raise
        assert self._catalog is not None
        try:
            return await self._catalog.read(lambda session: work(View(session, "")))
        except DirectoryNotConnected as error:
            logger.info("no global catalog answers, referrals are followed instead: %s", error)
        return await self._controllers.read(
            lambda session: work(View(session, self._domain(session), everywhere=True))
        )  # fmt: skip

    async def _read_all(self, work: Callable[[View], T]) -> T:
        """Read from the whole forest. If no global catalog answers, read only from the own domain, because positions
        are specific to a controller."""
        if await self._has_others():
            assert self._catalog is not None
            try:
                return await self._catalog.read(lambda session: work(View(session, "")))
            except DirectoryNotConnected as error:
                logger.warning("no global catalog is available; queues of other domains cannot be found: %s", error)
        return await self._controllers.read(lambda session: work(View(session, self._domain(session))))

    async def _has_others(self) -> bool:
        """Whether the forest has other domains."""
        if self._catalog is None:
            return False

        def work(session: DirectorySession) -> bool:
            self._domain(session)  # cache it now: the catalog cannot be queried for it
            return len(forest_of(session)) > 1

        return await self._controllers.read(work)

    def _domain(self, session: DirectorySession) -> str:
        """Return the distinguished name of the domain, which is the same at every controller."""
        if not self._context:
            root = one(session, "", ["defaultNamingContext"])
            self._context = octets(root, "defaultNamingContext").decode()
        return self._context


def _of_administrators() -> DirectoryDenied:
    return DirectoryDenied("a distribution list is a group: use the tools of the domain")


def _computer_named(view: View, name: str) -> Computer:
    """Return a computer by computer name or DNS name. Raises ObjectNotFound; DirectoryError if the forest has
    several."""
    text = filter_text(name)
    condition = f"(&(objectClass=computer)(|(sAMAccountName={text}$)(dNSHostName={text})))"
    found = view.search(condition, OF_COMPUTER, limit=1 if view.is_of_domain else 2)
    if not found:
        raise ObjectNotFound(f"computer {name}")
    if len(found) > 1:
        raise DirectoryError(f"the forest has several computers {name}: {', '.join(entry.name for entry in found)}")
    return computer_of(found[0])
