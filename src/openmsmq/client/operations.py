"""Client operations of MS-MQMP and MS-MQMR, except on open queues: see `qmcomm`, `remote_read`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from openmsmq.client.calls import HARMLESS, REPEATABLE, ClientCall, RetryRule, Steps, call, check
from openmsmq.client.open_queue import queue_format
from openmsmq.conversion import propvariants
from openmsmq.conversion.management import MACHINE_PROPERTIES, QUEUE_PROPERTIES, unpack
from openmsmq.conversion.queue_format import from_queue_format
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqmr as mgmt
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT, XACTUOW
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import PropId, VarType
from openmsmq.model.errors import HResult, MsmqError, QueueNotFound
from openmsmq.model.queue_names import path_of
from openmsmq.model.security import MAXIMUM_DESCRIPTOR
from openmsmq.oletx.transaction import VOTING

# Python name -> PROPID and conversion of the Python value.
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
    "delivery_limit": PropId.PROPID_Q_OPENMSMQ_DELIVERY_LIMIT,
    "poison_to_deadletter": PropId.PROPID_Q_OPENMSMQ_POISON_TO_DEADLETTER,
}
_EXTENSIONS = (PropId.PROPID_Q_OPENMSMQ_DELIVERY_LIMIT, PropId.PROPID_Q_OPENMSMQ_POISON_TO_DEADLETTER)
_BOOLEANS = frozenset(["journal", "authenticate", "transactional", "poison_to_deadletter"])

# -- queues --------------------------------------------------------------------------------------------------------


def to_propid(name: str) -> PropId:
    if name not in PROPERTIES:
        raise MsmqError(
            HResult.MQ_ERROR_ILLEGAL_PROPID, f"unknown queue property {name!r}; allowed: {', '.join(PROPERTIES)}"
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
        propvariants.check_value(name, propid, value)
        propids.append(int(propid))
        variants.append(propvariants.pack(propvariants.property_type(propid), value))
    return propids, variants


def create_queue(path_name: str, properties: Mapping[str, Any], security: bytes | None) -> Steps[str]:
    """Create a queue and return its direct format name."""
    path_name = path_of(path_name)
    propids, variants = _variants({"path_name": path_name, **properties})
    yield from call(
        m.qmcomm, "R_QMCreateObjectInternal", path_name, dwObjectType=1, lpwcsPathName=path_name,
        SDSize=len(security) if security else 0, pSecurityDescriptor=security or None,
        cp=len(propids), aProp=propids, apVar=variants,
    )  # fmt: skip
    return f"DIRECT=OS:{path_name}"


def _object(name: str) -> m.OBJECT_FORMAT:
    return m.OBJECT_FORMAT(1, queue_format(name))


def delete_queue(name: str) -> Steps[None]:
    yield from call(m.qmcomm, "R_QMDeleteObject", name, pObjectFormat=_object(name))


def get_properties(name: str, wanted: tuple[str, ...]) -> Steps[dict[str, Any]]:
    """Return properties by Python name: GUIDs as UUID, flags as bool, times in seconds since 1970 UTC.

    For a queue manager without the extensions of openmsmq (D-196), the properties of the delivery limit are 0 and
    False."""
    specified = tuple(w for w in wanted if to_propid(w) not in _EXTENSIONS)
    try:
        return (yield from _get_properties(name, wanted))
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_ILLEGAL_PROPID or len(specified) == len(wanted):
            raise
    known = (yield from _get_properties(name, specified)) if specified else {}
    return {w: known.get(w, False if w in _BOOLEANS else 0) for w in wanted}


def _get_properties(name: str, wanted: tuple[str, ...]) -> Steps[dict[str, Any]]:
    propids = [int(to_propid(w)) for w in wanted]
    blank = [PROPVARIANT(vt=VarType.VT_NULL) for _ in wanted]
    response = yield from call(
        m.qmcomm,
        "R_QMGetObjectProperties",
        name,
        fate=REPEATABLE,
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
    yield from call(
        m.qmcomm, "R_QMSetObjectProperties", name, fate=REPEATABLE,
        pObjectFormat=_object(name), cp=len(propids), aProp=propids,
        apVar=variants,
    )  # fmt: skip


def get_security(name: str, information: int) -> Steps[bytes]:
    """Return the self-relative security descriptor; SECURITY_INFORMATION selects its parts."""
    size = 512
    while True:
        operation = m.qmcomm.operation("R_QMGetObjectSecurityInternal")
        request = m.R_QMGetObjectSecurityInternal_Request(_object(name), information, size)
        response = yield ClientCall(m.qmcomm, operation, request, fate=REPEATABLE)
        too_small = response.result == HResult.MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL
        if not too_small or not size < response.lpnLengthNeeded <= MAXIMUM_DESCRIPTOR:
            break
        size = response.lpnLengthNeeded
    check(response.result, operation.name, name)
    return bytes(response.pSecurityDescriptor[: response.lpnLengthNeeded])


def set_security(name: str, information: int, descriptor: bytes) -> Steps[None]:
    yield from call(
        m.qmcomm, "R_QMSetObjectSecurityInternal", name, fate=REPEATABLE,
        pObjectFormat=_object(name), SecurityInformation=information,
        SDSize=len(descriptor), pSecurityDescriptor=descriptor,
    )  # fmt: skip


def resolve(path_name: str) -> Steps[str]:
    """Return the private format name for a path name."""
    path_name = path_of(path_name)
    response = yield from call(
        m.qmcomm, "R_QMObjectPathToObjectFormat", path_name, fate=REPEATABLE, lpwcsPathName=path_name,
        pObjectFormat=m.OBJECT_FORMAT(1, QUEUE_FORMAT()),
    )  # fmt: skip
    return str(from_queue_format(response.pObjectFormat.pQueueFormat))


def query(kind: int) -> Steps[str]:
    """R_QMQueryQMRegistryInternal."""
    response = yield from call(m.qmcomm, "R_QMQueryQMRegistryInternal", fate=REPEATABLE, dwQueryType=kind)
    return response.lplpMQISServer or ""


# -- management ----------------------------------------------------------------------------------------------------


def _managed(name: str | None) -> mgmt.MGMT_OBJECT:
    if name is None:
        return mgmt.MGMT_OBJECT(type=mgmt.MGMT_MACHINE, Reserved1=0)
    return mgmt.MGMT_OBJECT(type=mgmt.MGMT_QUEUE, pQueueFormat=queue_format(name))


def management(name: str | None, *wanted: str) -> Steps[dict[str, Any]]:
    """Return management properties of a queue, or of the machine if `name` is None (R_QMMgmtGetInfo): the named ones,
    or all. A property without a value is None.

    Queue managers before MSMQ 4.0 have no subqueues and do not know their properties ([MS-MQMQ] 2.3.12.26)."""
    try:
        return (yield from _get_info(name, wanted))
    except MsmqError as error:
        if wanted or name is None or error.hresult != HResult.MQ_ERROR_ILLEGAL_PROPID:
            raise
    older = tuple(each for each in QUEUE_PROPERTIES if not each.startswith("subqueue_"))
    return dict.fromkeys(QUEUE_PROPERTIES) | (yield from _get_info(name, older))


def _get_info(name: str | None, wanted: tuple[str, ...]) -> Steps[dict[str, Any]]:
    known = MACHINE_PROPERTIES if name is None else QUEUE_PROPERTIES
    for property_name in wanted:
        if property_name not in known:
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_PROPID,
                f"unknown management property {property_name!r}; allowed: {', '.join(known)}",
            )
    asked = wanted or tuple(known)
    response = yield from call(
        mgmt.qmmgmt, "R_QMMgmtGetInfo", name or "the machine", fate=REPEATABLE,
        pObjectFormat=_managed(name), cp=len(asked),
        aProp=[known[n].propid for n in asked], apVar=[PROPVARIANT(vt=VarType.VT_NULL) for _ in asked],
    )  # fmt: skip
    return {n: unpack(known, n, variant) for n, variant in zip(asked, response.apVar, strict=True)}


def act(name: str | None, action: str) -> Steps[None]:
    """Run R_QMMgmtAction on an outgoing queue, or on the machine if `name` is None."""
    yield from call(
        mgmt.qmmgmt, "R_QMMgmtAction", f"{action} {name or 'the machine'}", fate=REPEATABLE,
        pObjectFormat=_managed(name),
        lpwszAction=action,
    )  # fmt: skip


def outgoing_of(active: Iterable[dict[str, Any] | Exception]) -> list[dict[str, Any]]:
    """Return the outgoing queues among the management properties of active queues; MS-MQMR lists no others (3.1.4.1).
    Raises the error of a queue unless it was deleted since it was listed."""
    found = []
    for properties in active:
        if isinstance(properties, Exception):
            if not isinstance(properties, QueueNotFound):
                raise properties
        elif properties["location"] == "REMOTE":
            found.append(properties)
    return found


# -- transactions --------------------------------------------------------------------------------------------------


_VOTES = int(VOTING * 1000)  # milliseconds that a commit may wait for other queue managers
_COMMITTED = RetryRule(False, "the transaction may have been committed; look for what it did before doing it again")


class Enlisted(NamedTuple):
    uow: bytes
    handle: bytes


def enlist(uow: bytes | None = None) -> Steps[Enlisted]:
    uow = uow or os.urandom(16)
    response = yield from call(m.qmcomm, "R_QMEnlistInternalTransaction", fate=HARMLESS, pUow=XACTUOW(uow))
    return Enlisted(uow, response.phIntXact)


def commit(transaction: Enlisted) -> Steps[None]:
    yield from call(m.qmcomm, "R_QMCommitTransaction", wait=_VOTES, fate=_COMMITTED, phIntXact=transaction.handle)


def abort(transaction: Enlisted) -> Steps[None]:
    yield from call(m.qmcomm, "R_QMAbortTransaction", fate=HARMLESS, phIntXact=transaction.handle)
