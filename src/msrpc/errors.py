"""Errors: HRESULTs, failed calls, broken protocols, refused logins, stubs that do not decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from msrpc.hresults import ComResult
from msrpc.text import printable

_RAISED_AS: dict[type[HResultError], type[HResultError]] = {}
K = TypeVar("K", bound="type[HResultError]")
E = TypeVar("E", bound="HResultError")


def raised_for(kind: type[HResultError]) -> Callable[[K], K]:
    """Decorate a subclass of `kind`: from now on it is raised wherever this package raises `kind`.

    For a program with a tree of errors of its own: `class Lost(ProgramError, RpcConnectionError)`. Code that catches
    `kind` catches the subclass. There is one such subclass in a process. Raises ValueError for a second one, or for a
    class that is not a subclass of `kind`.
    """

    def register(subclass: K) -> K:
        if not issubclass(subclass, kind) or kind in _RAISED_AS:
            raise ValueError(f"{subclass} can't be raised for {kind}: {raised_class(kind)} is")
        _RAISED_AS[kind] = subclass
        return subclass

    return register


def raised_class(kind: type[E]) -> type[E]:
    """Return the class to raise for `kind`: itself, or the subclass that a program has registered."""
    return cast("type[E]", _RAISED_AS.get(kind, kind))


class HResultError(Exception):
    """An operation failed with an HRESULT ([MS-ERREF] 2.1).

    `hresult` is unsigned; `name` is its symbolic name; `detail` says what was wrong with which value. The text of the
    exception has the detail as `printable` makes it.
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
        """The name of the HRESULT, the number where none is known."""
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
    """A client, or all together, would hold more than they may; the text names the limit."""

    hresult: int = ComResult.E_OUTOFMEMORY


class RpcError(HResultError):
    """An operation failed without an answer from the server. Made of its text alone, and shown as it."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(None, detail)
        self.args = (printable(detail),)


class NdrError(RpcError, ValueError):
    """A value can't be encoded; the message names the field. This is the caller's mistake."""

    hresult: int = ComResult.E_INVALIDARG


class ProtocolError(RpcError):
    """Something broke the rules of the protocol."""


class LocalProtocolError(ProtocolError):
    """The program that uses this package broke the rules; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules; the connection cannot go on."""


class RpcConnectionError(RpcError, ConnectionError):
    """The connection was refused or lost before the answer came.

    `outcome_unknown`: the request may have reached the server, and whether it was carried out is not known.
    """

    hresult: int = ComResult.RPC_S_SERVER_UNAVAILABLE

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


class AuthenticationError(HResultError, PermissionError):
    """A security provider refused: bad password, bad token, bad signature, or too weak a negotiation.

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
    """A login could not be checked: this does not count as a failed attempt of the client."""


class KerberosUnavailable(RpcError):
    """Kerberos was asked for and is not available; the message says what to do."""

    requirement = "msrpc[kerberos]"  # what pip installs to have it


class WinbindUnavailable(RpcError):
    """Winbind was asked for and is not available here; the message says what to do."""


class BadStubData(Exception):
    """A stub does not decode: too short, a count that does not fit, a union without arm, a value out of range.

    The peer's mistake; on the wire it becomes the fault RPC_X_BAD_STUB_DATA (1783).
    """
