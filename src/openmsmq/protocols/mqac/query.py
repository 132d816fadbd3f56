"""MSMQQuery and MSMQQueueInfos ([MC-MQAC] 3.13, 3.14): public queues in the directory."""

from __future__ import annotations

from typing import Any, ClassVar

from openmsmq.dcom.hresults import ComError, ComResult
from openmsmq.dcom.server import CallContext
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.protocols.mqac.objects import MqacObject


class MSMQQuery(MqacObject):
    """3.13. Without a directory there is nothing to look up."""

    coclass = m.MSMQQuery
    states: ClassVar[dict[str, str]] = dict.fromkeys(
        ("LookupQueue", "LookupQueue_v2"), "MQ_ERROR_NO_DS: there is no directory yet"
    )
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    def LookupQueue(self, context: CallContext, *criteria: Any) -> MSMQQueueInfos:
        """3.13.4.1.3."""
        raise MsmqError(HResult.MQ_ERROR_NO_DS, "public queues need a directory, and this queue manager has none")

    LookupQueue_v2 = LookupQueue


class MSMQQueueInfos(MqacObject):
    """3.14. One that a client made itself holds the result of no query."""

    coclass = m.MSMQQueueInfos
    states: ClassVar[dict[str, str]] = dict.fromkeys(("Reset", "Next"), "OLE_E_BLANK: queries need a directory")
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    def Reset(self, context: CallContext) -> None:
        """3.14.4.1.1."""
        raise _no_query()

    def Next(self, context: CallContext) -> Any:
        """3.14.4.1.2."""
        raise _no_query()


def _no_query() -> ComError:
    return ComError(ComResult.OLE_E_BLANK, "an MSMQQueueInfos is made by MSMQQuery.LookupQueue")
