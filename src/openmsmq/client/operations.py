"""Every operation of the client as a generator: it yields calls and is sent their responses, and knows no socket."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqmr as mgmt
from openmsmq.interfaces.ms_mqmq import OBJECTID, QUEUE_FORMAT, XACTUOW
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model import names
from openmsmq.model.constants import INFINITE, Access, Action, PropId, Share, VarType
from openmsmq.model.errors import HResult, MsmqError, QueueNotFound, error_for
from openmsmq.model.message import Message
from openmsmq.ndr import Interface, Operation
from openmsmq.transfer import propvariants
from openmsmq.transfer.management import MACHINE_PROPERTIES, QUEUE_PROPERTIES, unpack
from openmsmq.transfer.queue_format import from_queue_format, to_queue_format
from openmsmq.transfer.receive_buffer import (
    BufferSizes,
    identifier_of,
    message_from_receive,
    receive_buffer,
)
from openmsmq.transfer.send_buffer import send_buffer

T = TypeVar("T")

# Python name -> PROPID, and how a Python value becomes the property's.
PROPERTIES: dict[str, PropId] = {
    "instance": PropId.PROPID_Q_INSTANCE,
    "type": PropId.PROPID_Q_TYPE,
    "path_name": PropId.PROPID_Q_PATHNAME,
    "journal": PropId.PROPID_Q_JOURNAL,
    "quota": PropId.PROPID_Q_QUOTA,
    "base_priority": PropId.PROPID_Q_BASEPRIORITY,
    "journal_quota": PropId.PROPID_Q_JOURNAL_QUOTA,
    "label": PropId.PROPID_Q_LABEL,
    "create_time": PropId.PROPID_Q_CREATE_TIME,
    "modify_time": PropId.PROPID_Q_MODIFY_TIME,
    "authenticate": PropId.PROPID_Q_AUTHENTICATE,
    "priv_level": PropId.PROPID_Q_PRIV_LEVEL,
    "transactional": PropId.PROPID_Q_TRANSACTION,
    "path_name_dns": PropId.PROPID_Q_PATHNAME_DNS,
    "multicast_address": PropId.PROPID_Q_MULTICAST_ADDRESS,
    "ads_path": PropId.PROPID_Q_ADS_PATH,
}
_BOOLEANS = frozenset(["journal", "authenticate", "transactional"])
_ACCESS = {"receive": Access.RECEIVE, "send": Access.SEND, "peek": Access.PEEK}
_TOO_SMALL = frozenset(
    [
        HResult.MQ_ERROR_BUFFER_OVERFLOW,
        HResult.MQ_ERROR_LABEL_BUFFER_TOO_SMALL,
        HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL,
        HResult.MQ_ERROR_SENDERID_BUFFER_TOO_SMALL,
    ]
)


class Call(NamedTuple):
    """A call to make. `wait` is how long the server may take in milliseconds, INFINITE for ever, 0 for at once."""

    interface: Interface
    operation: Operation
    request: Any
    wait: int = 0


Steps = Generator[Call, Any, T]


def _call(interface: Interface, name: str, what: str = "", *, wait: int = 0, **arguments: Any) -> Steps[Any]:
    """One call about `what`; raises the MsmqError of a failure HRESULT, naming it."""
    operation = interface.operation(name)
    assert operation.request is not None
    response = yield Call(interface, operation, operation.request(**arguments), wait)
    hresult = getattr(response, "result", 0)
    if hresult & 0x80000000:
        raise error_for(hresult, f"{what} ({name})" if what else name)
    return response


# -- queues --------------------------------------------------------------------------------------------------------


def queue_format(name: str) -> QUEUE_FORMAT:
    """The QUEUE_FORMAT of a format name or of a path name, which becomes a direct one. Raises MsmqError."""
    return to_queue_format(format_name(name))


def format_name(name: str) -> names.FormatName:
    """`.\\private$\\orders` -> DIRECT=OS:.\\private$\\orders; a format name stays what it is."""
    if "=" in name.partition("\\")[0]:
        return names.parse_format_name(name)
    names.parse_path_name(name.partition(";")[0] if name.lower().endswith((";journal",)) else name)
    return names.parse_format_name(f"DIRECT=OS:{name}")


def to_propid(name: str) -> PropId:
    if name not in PROPERTIES:
        raise MsmqError(
            HResult.MQ_ERROR_ILLEGAL_PROPID, f"{name!r} is no queue property; known are {', '.join(PROPERTIES)}"
        )
    return PROPERTIES[name]


def _variants(properties: Mapping[str, Any]) -> tuple[list[int], list[PROPVARIANT]]:
    propids, variants = [], []
    for name, value in properties.items():
        propid = to_propid(name)
        if name in _BOOLEANS:
            value = int(bool(value))
        elif isinstance(value, UUID):
            value = value.bytes_le
        propids.append(int(propid))
        variants.append(propvariants.pack(propvariants.property_type(propid), value))
    return propids, variants


def create_queue(path_name: str, properties: Mapping[str, Any], security: bytes | None) -> Steps[str]:
    """Create a private queue; returns its direct format name."""
    propids, variants = _variants({"path_name": path_name, **properties})
    yield from _call(
        m.qmcomm, "R_QMCreateObjectInternal", path_name, dwObjectType=1, lpwcsPathName=path_name,
        SDSize=len(security) if security else 0, pSecurityDescriptor=security or None,
        cp=len(propids), aProp=propids, apVar=variants,
    )  # fmt: skip
    return f"DIRECT=OS:{path_name}"


def _object(name: str) -> m.OBJECT_FORMAT:
    return m.OBJECT_FORMAT(1, queue_format(name))


def delete_queue(name: str) -> Steps[None]:
    yield from _call(m.qmcomm, "R_QMDeleteObject", name, pObjectFormat=_object(name))


def get_properties(name: str, wanted: tuple[str, ...]) -> Steps[dict[str, Any]]:
    """Properties by Python name: GUIDs as UUID, flags as bool, times in seconds since 1970 UTC."""
    propids = [int(to_propid(w)) for w in wanted]
    blank = [PROPVARIANT(vt=VarType.VT_NULL) for _ in wanted]
    response = yield from _call(
        m.qmcomm,
        "R_QMGetObjectProperties",
        name,
        pObjectFormat=_object(name),
        cp=len(propids),
        aProp=propids,
        apVar=blank,
    )
    values: dict[str, Any] = {}
    for key, variant in zip(wanted, response.apVar, strict=True):
        value = propvariants.unpack(variant)
        if variant.vt == VarType.VT_CLSID:
            value = UUID(bytes_le=value)
        values[key] = bool(value) if key in _BOOLEANS else value
    return values


def set_properties(name: str, properties: Mapping[str, Any]) -> Steps[None]:
    propids, variants = _variants(properties)
    yield from _call(
        m.qmcomm, "R_QMSetObjectProperties", name, pObjectFormat=_object(name), cp=len(propids), aProp=propids,
        apVar=variants,
    )  # fmt: skip


def get_security(name: str, information: int) -> Steps[bytes]:
    """The self-relative security descriptor, parts by SECURITY_INFORMATION."""
    size = 512
    while True:
        operation = m.qmcomm.operation("R_QMGetObjectSecurityInternal")
        request = m.R_QMGetObjectSecurityInternal_Request(_object(name), information, size)
        response = yield Call(m.qmcomm, operation, request)
        if response.result != HResult.MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL:
            break
        size = response.lpnLengthNeeded
    if response.result & 0x80000000:
        raise error_for(response.result, f"{name} ({operation.name})")
    return bytes(response.pSecurityDescriptor[: response.lpnLengthNeeded])


def set_security(name: str, information: int, descriptor: bytes) -> Steps[None]:
    yield from _call(
        m.qmcomm, "R_QMSetObjectSecurityInternal", name, pObjectFormat=_object(name), SecurityInformation=information,
        SDSize=len(descriptor), pSecurityDescriptor=descriptor,
    )  # fmt: skip


def resolve(path_name: str) -> Steps[str]:
    """The private format name of a path name."""
    response = yield from _call(
        m.qmcomm, "R_QMObjectPathToObjectFormat", path_name, lpwcsPathName=path_name,
        pObjectFormat=m.OBJECT_FORMAT(1, QUEUE_FORMAT()),
    )  # fmt: skip
    return str(from_queue_format(response.pObjectFormat.pQueueFormat))


def query(kind: int) -> Steps[str]:
    """R_QMQueryQMRegistryInternal."""
    response = yield from _call(m.qmcomm, "R_QMQueryQMRegistryInternal", dwQueryType=kind)
    return response.lplpMQISServer or ""


# -- management ----------------------------------------------------------------------------------------------------


def _managed(name: str | None) -> mgmt.MGMT_OBJECT:
    if name is None:
        return mgmt.MGMT_OBJECT(type=mgmt.MGMT_MACHINE, Reserved1=0)
    return mgmt.MGMT_OBJECT(type=mgmt.MGMT_QUEUE, pQueueFormat=queue_format(name))


def management(name: str | None, *wanted: str) -> Steps[dict[str, Any]]:
    """R_QMMgmtGetInfo for a queue, or for the machine where `name` is None: properties by name, all if none is named;
    None for what the server has no value of."""
    known = MACHINE_PROPERTIES if name is None else QUEUE_PROPERTIES
    for property_name in wanted:
        if property_name not in known:
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_PROPID,
                f"{property_name!r} is no management property; known are {', '.join(known)}",
            )
    asked = wanted or tuple(known)
    response = yield from _call(
        mgmt.qmmgmt, "R_QMMgmtGetInfo", name or "the machine", pObjectFormat=_managed(name), cp=len(asked),
        aProp=[known[n].propid for n in asked], apVar=[PROPVARIANT(vt=VarType.VT_NULL) for _ in asked],
    )  # fmt: skip
    return {n: unpack(known, n, variant) for n, variant in zip(asked, response.apVar, strict=True)}


def act(name: str | None, action: str) -> Steps[None]:
    """R_QMMgmtAction on an outgoing queue, or on the machine where `name` is None."""
    yield from _call(
        mgmt.qmmgmt, "R_QMMgmtAction", f"{action} {name or 'the machine'}", pObjectFormat=_managed(name),
        lpwszAction=action,
    )  # fmt: skip


def outgoing() -> Steps[list[dict[str, Any]]]:
    """The management properties of the active outgoing queues: others can't be listed ([MS-MQMR] 3.1.4.1)."""
    found = []
    for active in (yield from management(None, "active_queues"))["active_queues"]:
        try:
            properties = yield from management(active)
        except QueueNotFound:  # gone since it was listed
            continue
        if properties["location"] == "REMOTE":
            found.append(properties)
    return found


# -- open queues ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OpenQueue:
    """What the client keeps of an open queue: the context handle, the context value, and buffer sizes that did."""

    handle: bytes
    context: int
    access: Access
    name: str
    sizes: BufferSizes = field(default_factory=BufferSizes)


def open_queue(name: str, access: str | Access, exclusive: bool, client: str, licence: bytes) -> Steps[OpenQueue]:
    if isinstance(access, str):
        if access not in _ACCESS:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"access is {access!r}, allowed are {', '.join(_ACCESS)}"
            )
        access = _ACCESS[access]
    response = yield from _call(
        m.qmcomm, "rpc_QMOpenQueueInternal", name, pQueueFormat=queue_format(name), dwDesiredAccess=access,
        dwShareMode=Share.DENY_RECEIVE_SHARE if exclusive else Share.DENY_NONE, pLicGuid=licence, lpClientName=client,
    )  # fmt: skip
    if response.lplpRemoteQueueName:
        raise MsmqError(
            HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{name} is at {response.lplpRemoteQueueName}; connect there"
        )
    return OpenQueue(response.phQueue, response.pdwQMContext, access, name)


def close_queue(queue: OpenQueue) -> Steps[None]:
    yield from _call(m.qmcomm, "rpc_ACCloseHandle", phQueue=queue.handle)


def queue_format_name(queue: OpenQueue) -> Steps[str]:
    size = 256
    operation = m.qmcomm.operation("rpc_ACHandleToFormatName")
    while True:
        request = m.rpc_ACHandleToFormatName_Request(queue.handle, size, "\0" * size, size)
        response = yield Call(m.qmcomm, operation, request)
        if response.result != HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL:
            break
        size = response.pdwLength
    if response.result & 0x80000000:
        raise error_for(response.result, f"{queue.name} ({operation.name})")
    return str(response.lpwcsFormatName).partition("\0")[0]


def purge(queue: OpenQueue) -> Steps[None]:
    yield from _call(m.qmcomm, "rpc_ACPurgeQueue", queue.name, hQueue=queue.handle)


def send(queue: OpenQueue, message: Message, uow: bytes | None) -> Steps[bytes]:
    """Returns the identifier of the message, 20 bytes."""
    response = yield from _call(
        m.qmcomm2,
        "rpc_ACSendMessageEx",
        queue.name,
        hQueue=queue.handle,
        ptb=send_buffer(message, uow),
        pMessageID=OBJECTID(),
    )
    return identifier_of(response.pMessageID)


def read(queue: OpenQueue, action: Action, timeout: int, cursor: int, uow: bytes | None) -> Steps[Message]:
    """Receive or peek; buffers that prove too small are enlarged, and the sizes that did are kept for the next read."""
    operation = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
    while True:
        used = replace(queue.sizes)
        ptb = receive_buffer(action, timeout, cursor, uow, used)
        response = yield Call(m.qmcomm2, operation, m.rpc_ACReceiveMessageEx_Request(queue.context, ptb), timeout)
        if response.result not in _TOO_SMALL:
            break
        queue.sizes.enlarge(response.result, response.ptb)
        if queue.sizes == used:  # other threads enlarge them too
            break
    if response.result & 0x80000000:
        raise error_for(response.result, f"{queue.name} ({operation.name})")
    return message_from_receive(response.ptb)


def create_cursor(queue: OpenQueue) -> Steps[int]:
    response = yield from _call(
        m.qmcomm2, "rpc_ACCreateCursorEx", queue.name, hQueue=queue.handle, pcc=m.CACCreateRemoteCursor()
    )
    handle: int = response.pcc.hCursor
    return handle


def close_cursor(queue: OpenQueue, cursor: int) -> Steps[None]:
    yield from _call(m.qmcomm, "rpc_ACCloseCursor", queue.name, hQueue=queue.handle, hCursor=cursor)


# -- transactions --------------------------------------------------------------------------------------------------


class Enlisted(NamedTuple):
    uow: bytes
    handle: bytes


def enlist() -> Steps[Enlisted]:
    uow = os.urandom(16)
    response = yield from _call(m.qmcomm, "R_QMEnlistInternalTransaction", pUow=XACTUOW(uow))
    return Enlisted(uow, response.phIntXact)


def commit(transaction: Enlisted) -> Steps[None]:
    yield from _call(m.qmcomm, "R_QMCommitTransaction", phIntXact=transaction.handle)


def abort(transaction: Enlisted) -> Steps[None]:
    yield from _call(m.qmcomm, "R_QMAbortTransaction", phIntXact=transaction.handle)


def milliseconds(timeout: float | None) -> int:
    """A timeout in seconds, None for ever, as the protocol has it. Raises ValueError below 0."""
    if timeout is None:
        return INFINITE
    if timeout < 0:
        raise ValueError(f"timeout is {timeout} seconds, allowed are 0 and more, or None to wait for ever")
    return min(int(timeout * 1000), INFINITE - 1)
