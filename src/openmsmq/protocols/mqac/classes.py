"""All classes of automation objects, and the DCOM server that offers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from msrpc.dcom import persistence
from msrpc.dcom.exporter import Exporter
from msrpc.dcom.server import CallContext, ComServer, Host, ServedObject
from msrpc.interfaces import com, ms_dcom, ms_oaut
from msrpc.ndr import Interface
from msrpc.rpc.pdu import AuthLevel
from openmsmq.model.errors import HResult
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.collection import MSMQCollection
from openmsmq.protocols.mqac.destination import MSMQDestination
from openmsmq.protocols.mqac.event import MSMQEvent
from openmsmq.protocols.mqac.management import (
    MSMQApplication,
    MSMQManagement,
    MSMQOutgoingQueueManagement,
    MSMQQueueManagement,
)
from openmsmq.protocols.mqac.message import MSMQMessage
from openmsmq.protocols.mqac.objects import INTERFACES, MqacObject
from openmsmq.protocols.mqac.query import MSMQQuery, MSMQQueueInfos
from openmsmq.protocols.mqac.queue import MSMQQueue
from openmsmq.protocols.mqac.queue_info import MSMQQueueInfo
from openmsmq.protocols.mqac.transactions import (
    MSMQCoordinatedTransactionDispenser,
    MSMQTransaction,
    MSMQTransactionDispenser,
)

CLASSES: Final[tuple[type[MqacObject], ...]] = (
    MSMQQuery, MSMQMessage, MSMQQueue, MSMQEvent, MSMQQueueInfo, MSMQQueueInfos, MSMQTransaction,
    MSMQCoordinatedTransactionDispenser, MSMQTransactionDispenser, MSMQApplication, MSMQDestination, MSMQCollection,
    MSMQManagement, MSMQOutgoingQueueManagement, MSMQQueueManagement,
)  # fmt: skip
_OTHERS: Final = (
    ms_dcom.IUnknown, com.IClassFactory, ms_oaut.IDispatch, ms_oaut.IEnumVARIANT, ms_oaut.ITypeInfo, ms_oaut.ITypeLib,
    *persistence.INTERFACES,
)  # fmt: skip


def com_server(
    environment: Environment, exporter: Exporter, host: Host, level: AuthLevel, computer_name: str
) -> ComServer:
    """Return the server for the automation objects of a queue manager. Raises TypeError if an operation has no
    method."""
    missing = [name for kind in CLASSES for name in kind.missing()]
    if missing:
        raise TypeError(f"operations without a method: {', '.join(missing)}")
    interfaces: dict[UUID, Interface] = {i.uuid: i for i in (*INTERFACES.values(), *_OTHERS)}
    classes = {kind.coclass.uuid: _factory(kind, environment) for kind in CLASSES}
    cancelled = HResult.MQ_ERROR_OPERATION_CANCELLED
    return ComServer(exporter, host, classes, interfaces, level, computer_name, cancelled=cancelled)


def _factory(kind: type[MqacObject], environment: Environment) -> Callable[[CallContext], ServedObject]:
    return lambda context: kind(environment)
