"""What can go wrong on a connection: our mistake, theirs, a refused login, or a fault that the server answered."""

from __future__ import annotations

from openmsmq.model.errors import AccessDenied, ClientError, HResult
from openmsmq.model.text import printable


class ProtocolError(ClientError):
    """Something broke the rules of the protocol."""


class LocalProtocolError(ProtocolError):
    """The program that uses this package broke the rules; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules; the connection cannot go on."""


class AuthenticationError(AccessDenied):
    """A security provider refused: bad password, bad token, bad signature, or too weak a negotiation.

    `user`: whom the client named, where its password was wrong or nobody is called so.
    """

    def __init__(self, detail: str = "", user: str = "") -> None:
        super().__init__(None, detail)
        self.args = (printable(detail),)
        self.user = user


class LogonUnavailable(AuthenticationError):
    """Nobody could say whether a login is good: that is no failed try of the client."""


class RpcConnectionError(ClientError, ConnectionError):
    """The connection was refused or lost before the answer came.

    `outcome_unknown`: the request may have reached the server, and whether it was carried out is not known.
    """

    hresult = HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE

    def __init__(self, detail: str = "", *, outcome_unknown: bool = False) -> None:
        super().__init__(detail)
        self.outcome_unknown = outcome_unknown


class AnswerTimeout(RpcConnectionError):
    """The server accepted the request and did not answer in time."""


class BindError(RpcConnectionError):
    """The server did not accept the interface: a bind_nak, or a rejected presentation context.

    `reason` is that of the bind_nak ([C706] 12.6.3.1) or the status of a fault; None for a rejected context.
    """

    def __init__(self, detail: str = "", reason: int | None = None) -> None:
        super().__init__(detail)
        self.reason = reason


class RpcFault(Exception):
    """The server answered a call with a fault PDU; `status` is its code."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        from msrpc.rpc.faults import status_name

        return f"RPC fault {status_name(self.status)}"
