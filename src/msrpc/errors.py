"""Errors: HRESULTs, failed calls, protocol violations, refused logins, malformed stubs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from msrpc.hresults import ComResult
from msrpc.text import printable

_RAISED_AS: dict[type[HResultError], type[HResultError]] = {}
K = TypeVar("K", bound="type[HResultError]")
E = TypeVar("E", bound="HResultError")


def raised_for(kind: type[HResultError]) -> Callable[[K], K]:
    """Decorate a subclass of `kind`, which is then raised wherever this package raises `kind`.

    This is for programs with their own exception hierarchy: `class Lost(ProgramError, RpcConnectionError)`. Code that
    catches `kind` also catches the subclass. Only one subclass per process is possible. Raises ValueError for a second
    one, or for a class that is not a subclass of `kind`.
    """

    def register(subclass: K) -> K:
        if not issubclass(subclass, kind) or kind in _RAISED_AS:
            raise ValueError(
                f"cannot register {subclass.__name__}: it is not a subclass of {kind.__name__}, or "
                f"{raised_class(kind).__name__} is already registered"
            )
        _RAISED_AS[kind] = subclass
        return subclass

    return register


def raised_class(kind: type[E]) -> type[E]:
    """Return the class to raise for `kind`: itself, or the subclass that a program has registered."""
    return cast("type[E]", _RAISED_AS.get(kind, kind))


class HResultError(Exception):
    """An operation failed with an HRESULT ([MS-ERREF] 2.1).

    `hresult` is unsigned; `name` is its symbolic name; `detail` names the invalid value. The text of the exception
    contains the detail after `printable`.
    """

    hresult: int = ComResult.E_FAIL

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        return super().__new__(raised_class(cls))

    def __init__(self, hresult: int | None = None, detail: str = "") -> None:
        if hresult is not None:
            self.hresult = hresult & 0xFFFFFFFF
        self.detail = detail
        self.args = (f"{self.name}: {printable(detail)}" if detail else self.name,)

    @property
    def name(self) -> str:
        """Name of the HRESULT, or its number if unknown."""
        return f"0x{self.hresult:08X}"


class ComError(HResultError):
    """A call to an object failed with an HRESULT of COM, DCOM or Automation."""

    @property
    def name(self) -> str:
        try:
            return ComResult(self.hresult).name
        except ValueError:
            return super().name


class LimitReached(HResultError):
    """A limit per client or in total would be exceeded; the message names it."""

    hresult: int = ComResult.E_OUTOFMEMORY


class RpcError(HResultError):
    """An operation failed without a response from the server. It has only a text."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(None, detail)
        self.args = (printable(detail),)


class NdrError(RpcError, ValueError):
    """A value cannot be encoded; the message names the field. This is an error of the caller."""

    hresult: int = ComResult.E_INVALIDARG


class ProtocolError(RpcError):
    """A protocol violation."""


class LocalProtocolError(ProtocolError):
    """A protocol violation by the program that uses this package; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """A protocol violation by the peer; the connection is unusable."""


class RpcConnectionError(RpcError, ConnectionError):
    """The connection was refused, or lost before the response.

    `outcome_unknown`: the request may have reached the server, so it is unknown whether it was executed.
    """

    hresult: int = ComResult.RPC_S_SERVER_UNAVAILABLE

    def __init__(self, detail: str = "", *, outcome_unknown: bool = False) -> None:
        super().__init__(detail)
        self.outcome_unknown = outcome_unknown


class AnswerTimeout(RpcConnectionError):
    """The server accepted the request but did not respond in time."""


class BindError(RpcConnectionError):
    """The server did not accept the interface: a bind_nak, or a rejected presentation context.

    `reason` is that of the bind_nak ([C706] 12.6.3.1) or the status of a fault; None for a rejected context.
    """

    def __init__(self, detail: str = "", reason: int | None = None) -> None:
        super().__init__(detail)
        self.reason = reason


class AuthenticationError(HResultError, PermissionError):
    """A security provider refused the peer: bad password, bad token, bad signature, or too weak a negotiation.

    `user`: the name given by the client, if its password was wrong or the user is unknown.
    """

    hresult: int = ComResult.E_ACCESSDENIED

    def __init__(self, detail: str = "", user: str = "") -> None:
        super().__init__(None, detail)
        self.args = (printable(detail),)
        self.user = user


class LoginRefused(AuthenticationError):
    """A server refused a login, at the bind or at the first call after it. `user` is the caller's name."""


class LogonUnavailable(AuthenticationError):
    """A login could not be checked. It does not count as a failed attempt of the client."""


class KerberosUnavailable(RpcError):
    """Kerberos was requested but is not available; the message has the remedy."""

    requirement = "msrpc[kerberos]"  # package to install with pip


class WinbindUnavailable(RpcError):
    """Winbind was requested but is not available; the message has the remedy."""


class BadStubData(Exception):
    """A stub cannot be decoded: too short, an inconsistent count, a union without a matching arm, a value out of range.

    This is an error of the peer, which gets the fault RPC_X_BAD_STUB_DATA (1783).
    """
