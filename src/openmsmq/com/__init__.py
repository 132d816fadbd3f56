"""The automation objects of MSMQ in Python, with an interface like `win32com.client`.

    from openmsmq.com import Dispatch

    info = Dispatch("MSMQ.MSMQQueueInfo", host="server")
    info.PathName = r".\\private$\\orders"
    queue = info.Open(2, 0)
    message = Dispatch("MSMQ.MSMQMessage", host="server")
    message.Body, message.Label = "hello", "first"
    message.Send(queue)

The server is openmsmq or Windows with MSMQ's DCOM proxy. See docs/com.md.
"""

from msrpc.dcom.persistence import ObjectState
from msrpc.dcom.variant import VT, SafeArray, Variant
from openmsmq.com.client import CastTo, Dispatch, WithEvents, close_all, connect
from openmsmq.com.proxies import ComObject
from openmsmq.model.errors import ComError

__all__ = [
    "VT", "CastTo", "ComError", "ComObject", "Dispatch", "ObjectState", "SafeArray", "Variant", "WithEvents",
    "close_all", "connect",
]  # fmt: skip
