"""What can go wrong on a connection: our mistake, theirs, a refused login, or a fault that the server answered."""

from __future__ import annotations


class ProtocolError(Exception):
    """Something broke the rules of the protocol."""


class LocalProtocolError(ProtocolError):
    """The program that uses this package broke the rules; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules; the connection cannot go on."""


class AuthenticationError(Exception):
    """A security provider refused: bad password, bad token, bad signature, or too weak a negotiation."""


class RpcConnectionError(ConnectionError):
    """The connection was refused, lost or timed out before the answer came."""


class BindError(RpcConnectionError):
    """The server did not accept the interface: a bind_nak, or a rejected presentation context."""


class RpcFault(Exception):
    """The server answered a call with a fault PDU; `status` is its code."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        from openmsmq.rpc.faults import status_name

        return f"RPC fault {status_name(self.status)}"
