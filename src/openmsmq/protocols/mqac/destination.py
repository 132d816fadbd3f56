"""MSMQDestination ([MC-MQAC] 3.12): one or several queues to send to, by any format name."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar, Final

from msrpc.dcom import coercion
from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, Variant
from msrpc.hresults import ComResult
from msrpc.ndr import Interface
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model import names
from openmsmq.model.constants import Access, Share
from openmsmq.model.errors import ComError, HResult, MsmqError
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.naming import after, format_name_in_directory, format_name_of, needs_lookup
from openmsmq.protocols.mqac.objects import NOBODY, MqacObject
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.descriptors import OpenQueueDescriptor

_NO_HANDLE: Final = (0, -1)  # NULL and INVALID_HANDLE_VALUE


class MSMQDestination(MqacObject):
    """See the module."""

    coclass = m.MSMQDestination
    not_implemented: ClassVar[frozenset[str]] = frozenset(
        ["get_IADs", "put_IADs", "get_Destinations", "put_Destinations", "get_Properties"]
    )

    states: ClassVar[dict[str, str]] = {
        "put_ADsPath": "served with Active Directory; otherwise MQ_ERROR_QUEUE_NOT_FOUND: no LDAP paths"
    }

    def __init__(self, environment: Environment, format_name: str | None = None) -> None:
        super().__init__(environment)
        self.format_name = format_name
        self._path_name: str | None = None
        self._ads_path: str | None = None
        self._descriptor: OpenQueueDescriptor | None = None

    @classmethod
    def interfaces(cls) -> tuple[Interface, ...]:
        return (*cls.coclass.interfaces, m.IMSMQPrivateDestination)

    def released(self) -> None:
        self.format_name = None  # abandon an open in progress
        self._close()

    def for_sending(self, context: CallContext) -> OpenQueueDescriptor | Awaitable[OpenQueueDescriptor]:
        """Return the handle for sending; open the destination if needed, as in the example of section 4.6 (deviation
        D-102). Raises MsmqError."""
        return self._descriptor or self._open(self.caller(context))

    def _close(self) -> None:
        if self._descriptor is not None:
            self.environment.manager.handles.close_queue(self._descriptor)
            self._descriptor = None

    # -- methods -----------------------------------------------------------------------------------------------

    def Open(self, context: CallContext) -> ComResult | Awaitable[None] | None:
        """3.12.4.1.1."""
        if self._descriptor is not None:
            return ComResult.S_FALSE
        opening = self._open(self.caller(context))
        return None if isinstance(opening, OpenQueueDescriptor) else after(opening, lambda: None)

    def _open(self, caller: Caller) -> OpenQueueDescriptor | Awaitable[OpenQueueDescriptor]:
        if not self.format_name:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "FormatName, PathName and ADsPath are not set")
        name = names.parse_format_name(self.format_name)
        if self.environment.public_queues.needs(name):
            return self._resolve_and_open(name, caller)
        return self._open_resolved(name, caller)

    async def _resolve_and_open(self, name: names.FormatName, caller: Caller) -> OpenQueueDescriptor:
        meant = self.format_name
        resolved = await self.environment.public_queues.resolve(name, Access.SEND)
        if self.format_name != meant:
            raise MsmqError(HResult.MQ_ERROR_OPERATION_CANCELLED, "the destination was changed while it was opened")
        return self._descriptor or self._open_resolved(resolved, caller)

    def _open_resolved(self, name: names.FormatName, caller: Caller) -> OpenQueueDescriptor:
        handles = self.environment.manager.handles
        self._descriptor = handles.open_queue(name, Access.SEND, Share.DENY_NONE, caller, NOBODY)
        return self._descriptor

    def Close(self, context: CallContext) -> ComResult | None:
        """3.12.4.1.2."""
        if self._descriptor is None:
            return ComResult.S_FALSE
        self._close()
        return None

    # -- properties --------------------------------------------------------------------------------------------

    def get_IsOpen(self, context: CallContext) -> bool:
        """3.12.4.1.3."""
        return self._descriptor is not None

    def get_ADsPath(self, context: CallContext) -> str | None:
        """3.12.4.1.6."""
        return self._ads_path

    async def put_ADsPath(self, context: CallContext, value: str | None) -> None:
        """3.12.4.1.7: an LDAP path (3.12.6.1)."""
        path = value or ""
        opening = self._change(context, await self.environment.directory.ask(lambda d: d.format_name_at(path)))
        self._ads_path = path
        if opening is not None:
            await opening

    def get_PathName(self, context: CallContext) -> str:
        """3.12.4.1.8."""
        return self._path_name or ""

    def put_PathName(self, context: CallContext, value: str | None) -> Awaitable[None] | None:
        """3.12.4.1.9."""
        path_name = value or ""
        if needs_lookup(self.environment, path_name):
            return self._look_up(context, path_name)
        return self._change(context, str(format_name_of(self.environment, path_name)), path_name=value)

    async def _look_up(self, context: CallContext, path_name: str) -> None:
        opening = self._change(
            context, await format_name_in_directory(self.environment, path_name), path_name=path_name
        )
        if opening is not None:
            await opening

    def get_FormatName(self, context: CallContext) -> str | None:
        """3.12.4.1.10."""
        return self.format_name

    def put_FormatName(self, context: CallContext, value: str | None) -> Awaitable[None] | None:
        """3.12.4.1.11."""
        return self._change(context, value)

    def _change(
        self, context: CallContext, format_name: str | None, path_name: str | None = None
    ) -> Awaitable[None] | None:
        """Change the destination; if it is open, close it and open the new one."""
        self.format_name, self._path_name, self._ads_path = format_name, path_name, None
        if self._descriptor is None:
            return None
        self._close()
        opening = self._open(self.caller(context))
        return None if isinstance(opening, OpenQueueDescriptor) else after(opening, lambda: None)

    # -- IMSMQPrivateDestination -------------------------------------------------------------------------------

    def get_Handle(self, context: CallContext) -> Variant:
        """3.12.4.2.1."""
        return Variant(VT.I8, 0 if self._descriptor is None else self._descriptor.handle)

    def put_Handle(self, context: CallContext, value: Variant) -> None:
        """3.12.4.2.2. Deviation D-195: no handle (0 or -1) closes the open destination; otherwise only the handle of
        this object is accepted. Raises ComError."""
        handle = 0 if value.resolved.vt == VT.NULL else coercion.to_integer(value, VT.I8)
        if handle not in _NO_HANDLE and (self._descriptor is None or handle != self._descriptor.handle):
            raise ComError(ComResult.E_INVALIDARG, "the handle is not that of this object")
        self._path_name = self._ads_path = None
        if handle in _NO_HANDLE:
            self._close()
