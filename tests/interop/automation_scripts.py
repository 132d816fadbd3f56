"""One script of automation objects, run by two clients: impacket's and ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from com_client import Connection, Object, Refused
from daemon import Daemon
from openmsmq.com import CastTo, Dispatch, close_all
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import MsmqError


class Impacket:
    """Scripts run by impacket's client, through IDispatch."""

    refused: type[Exception] = Refused

    def __init__(self, daemon: Daemon) -> None:
        self.connection = Connection("127.0.0.1", daemon.mapper_port)
        self.new = self.connection.new
        self.close = self.connection.disconnect

    def get(self, target: Object, name: str, *arguments: Any) -> Any:
        return target.get(name, *arguments)

    def put(self, target: Object, name: str, value: Any) -> None:
        target.put(name, value)

    def call(self, target: Object, name: str, *arguments: Any, **named: Any) -> Any:
        return target.call(name, *arguments, **named)

    def array(self, target: Object, name: str) -> Any:
        return target.array(name)

    def cast(self, target: Object, interface: str) -> Object:
        return target.query(str(getattr(m, interface).uuid))

    def hresult(self, error: BaseException) -> int:
        assert isinstance(error, Refused)
        return error.hresult


class OwnClient:
    """Scripts run by openmsmq.com."""

    refused: type[Exception] = MsmqError

    def __init__(self, daemon: Daemon) -> None:
        self._dispatch: Callable[..., Any] = partial(Dispatch, host="127.0.0.1", port=daemon.mapper_port)
        self.cast: Callable[[Any, str], Any] = CastTo

    def new(self, name: str) -> Any:
        return self._dispatch(f"MSMQ.MSMQ{name}")

    def close(self) -> None:
        close_all()

    def get(self, target: Any, name: str) -> Any:
        return getattr(target, name)

    def put(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)

    def call(self, target: Any, name: str, *arguments: Any, **named: Any) -> Any:
        return getattr(target, name)(*arguments, **named)

    def array(self, target: Any, name: str) -> Any:
        return getattr(target, name)()

    def hresult(self, error: BaseException) -> int:
        assert isinstance(error, MsmqError)
        return error.hresult
