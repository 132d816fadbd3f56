"""Public queues in those calls of qmcomm that are specified for private queues ([MS-MQMP] 3.1.4.5 to 3.1.4.11;
deviation D-173). The coroutines use the directory and return the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from openmsmq.conversion.propvariants import pack_properties
from openmsmq.conversion.queue_format import to_queue_format
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model import names
from openmsmq.model.errors import HResult, IllegalQueuePathName, MsmqError
from openmsmq.model.security import SecurityDescriptor
from openmsmq.protocols.environment import Environment
from openmsmq.queueing.authorization import Caller, Right
from openmsmq.queueing.queue import QueueKind

_QUEUE = 1  # ObjType of OBJECT_FORMAT


def is_public_path(environment: Environment, path_name: str) -> bool:
    """Whether a path name denotes a public queue in a directory. False for a malformed name, which is reported
    elsewhere."""
    if not environment.directory.exists:
        return False
    try:
        path = names.parse_path_name(path_name)
    except IllegalQueuePathName:
        return False
    return path.kind == "public" and not path.subqueue


def identifier_of(environment: Environment, name: names.FormatName) -> UUID | None:
    """Return the identifier of the public queue that a format name denotes; None if it denotes another queue, or if
    there is no directory."""
    if not environment.directory.exists:
        return None
    if isinstance(name, names.PublicFormatName):
        return name.guid if name.suffix is names.Suffix.NONE else None
    queue = environment.manager.registry.local_queue(name)
    return UUID(bytes_le=queue.properties.instance) if queue is not None and queue.kind is QueueKind.PUBLIC else None


async def create(
    environment: Environment, q: m.R_QMCreateObjectInternal_Request, values: Mapping[int, Any], caller: Caller
) -> m.R_QMCreateObjectInternal_Response:
    await environment.public_queues.create(q.lpwcsPathName, values, caller, q.pSecurityDescriptor)
    return m.R_QMCreateObjectInternal_Response()


async def delete(environment: Environment, guid: UUID, caller: Caller) -> m.R_QMDeleteObject_Response:
    await environment.public_queues.delete(guid, caller)
    return m.R_QMDeleteObject_Response()


async def get_properties(
    environment: Environment, guid: UUID, q: m.R_QMGetObjectProperties_Request, caller: Caller
) -> m.R_QMGetObjectProperties_Response:
    public_queues = environment.public_queues
    values = await public_queues.values_of(await public_queues.record(guid, caller), q.aProp)
    return m.R_QMGetObjectProperties_Response(apVar=pack_properties(q.aProp, values, q.apVar))


async def set_properties(
    environment: Environment, guid: UUID, values: Mapping[int, Any], caller: Caller
) -> m.R_QMSetObjectProperties_Response:
    await environment.public_queues.change(guid, values, caller)
    return m.R_QMSetObjectProperties_Response()


async def get_security(
    environment: Environment, guid: UUID, q: m.R_QMGetObjectSecurityInternal_Request, caller: Caller
) -> m.R_QMGetObjectSecurityInternal_Response:
    try:
        record = await environment.public_queues.record(guid, caller, Right.GET_PERMISSIONS)
    except MsmqError as error:
        return no_security(error, q.nLength)
    return security_answer(SecurityDescriptor.parse(record.security).select(q.RequestedInformation).pack(), q.nLength)


def security_answer(descriptor: bytes, length: int) -> m.R_QMGetObjectSecurityInternal_Response:
    """Return the response with a security descriptor. Its buffer always has `length` bytes."""
    response = m.R_QMGetObjectSecurityInternal_Response(pSecurityDescriptor=bytes(length))
    response.lpnLengthNeeded = len(descriptor)
    if len(descriptor) > length:
        response.result = HResult.MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL
    else:
        response.pSecurityDescriptor = descriptor.ljust(length, b"\0")
    return response


def no_security(error: MsmqError, length: int) -> m.R_QMGetObjectSecurityInternal_Response:
    response = m.R_QMGetObjectSecurityInternal_Response(pSecurityDescriptor=bytes(length))
    response.result = error.hresult
    return response


async def set_security(
    environment: Environment, guid: UUID, q: m.R_QMSetObjectSecurityInternal_Request, descriptor: bytes, caller: Caller
) -> m.R_QMSetObjectSecurityInternal_Response:
    await environment.public_queues.set_security(guid, q.SecurityInformation, descriptor, caller)
    return m.R_QMSetObjectSecurityInternal_Response()


async def resolve(environment: Environment, path_name: str) -> m.R_QMObjectPathToObjectFormat_Response:
    guid = await environment.public_queues.identifier_of(names.parse_path_name(path_name))
    formatted = m.OBJECT_FORMAT(_QUEUE, to_queue_format(names.PublicFormatName(guid)))
    return m.R_QMObjectPathToObjectFormat_Response(pObjectFormat=formatted)
