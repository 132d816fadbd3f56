"""Objects passed by value: their state as saved by IPersistStream, and in-memory streams for it.

This module never instantiates the class of an object. The saved state is passed on unchanged: a `SavedObject` can only
save itself again. A program that trusts the class creates the object itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msrpc.dcom.budget import Charge
from msrpc.dcom.remote import RemoteExporter
from msrpc.dcom.server import CallContext, ForeignReference
from msrpc.errors import ComError
from msrpc.hresults import ComResult
from msrpc.interfaces import com
from msrpc.interfaces.ms_dcom import STDOBJREF, IUnknown, MInterfacePointer
from msrpc.interfaces.ms_dtyp import ULARGE_INTEGER
from msrpc.ndr import Interface, Operation

INTERFACES: Final = (com.ISequentialStream, com.IStream, com.IPersist, com.IPersistStream)
_PERSISTENT: Final = (com.IPersistStream, com.IPersistStreamInit)  # interfaces to query, in this order
CLSID_SIZE: Final = 16
_PIECE: Final = 64 * 1024  # bytes of one RemoteWrite
_STREAM_TYPE: Final = 2  # STGTY_STREAM

Publish = Callable[["MemoryStream"], MInterfacePointer | None]  # exports a stream as an IStream for the other process


@dataclass(frozen=True, slots=True)
class ObjectState:
    """State of an object: its class and the output of IPersistStream::Save."""

    clsid: UUID
    data: bytes

    def pack(self) -> bytes:
        """Encode the CLSID and the data, as OleSaveToStream does."""
        return self.clsid.bytes_le + self.data

    @classmethod
    def unpack(cls, packed: bytes) -> ObjectState:
        """Decode the result of `pack`, which has at least CLSID_SIZE bytes."""
        return cls(UUID(bytes_le=packed[:CLSID_SIZE]), packed[CLSID_SIZE:])


class MemoryStream:
    """A write-once, sequential IStream of at most `limit` bytes, which are charged to `charge`."""

    def __init__(self, limit: int, charge: Charge | None = None) -> None:
        self._limit, self._charge = limit, charge
        self._pieces: list[bytes] = []
        self._size = 0
        self._closed = False

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, com.ISequentialStream.uuid, com.IStream.uuid)

    def released(self) -> None:
        """Do nothing: the written data is still needed."""

    def close(self) -> bytes:
        """Close the stream and return the written data."""
        self._closed = True
        written, self._pieces, self._size = b"".join(self._pieces), [], 0
        if self._charge is not None:
            self._charge.set(0)
        return written

    def write(self, data: bytes) -> None:
        """Add bytes. Raises ComError STG_E_MEDIUMFULL, STG_E_REVERTED after `close`; LimitReached."""
        if self._closed:
            raise ComError(ComResult.STG_E_REVERTED, "this stream was closed")
        if self._size + len(data) > self._limit:
            raise ComError(ComResult.STG_E_MEDIUMFULL, f"the state of an object has at most {self._limit} bytes")
        if self._charge is not None:
            self._charge.set(self._size + len(data))
        self._pieces.append(bytes(data))
        self._size += len(data)

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        method = getattr(self, operation.name, None)
        if method is None:  # reading, seeking and other operations
            raise ComError(ComResult.STG_E_INVALIDFUNCTION, f"{operation.name}: this stream can only be written")
        return method(request)

    def RemoteWrite(self, q: Any) -> Any:
        self.write(q.pv)
        return com.ISequentialStream_RemoteWrite_Response(pcbWritten=len(q.pv))

    def Commit(self, q: Any) -> Any:
        return com.IStream_Commit_Response()

    def Stat(self, q: Any) -> Any:
        status = com.STATSTG(type=_STREAM_TYPE, cbSize=ULARGE_INTEGER(self._size))
        return com.IStream_Stat_Response(pstatstg=status)


class SavedObject:
    """An object that consists only of its state and can only be saved (IPersistStream). The state is charged to
    `charge` until the object is released."""

    def __init__(self, state: ObjectState, charge: Charge | None = None) -> None:
        self.state, self._charge = state, charge

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, com.IPersist.uuid, com.IPersistStream.uuid)

    def released(self) -> None:
        if self._charge is not None:
            self._charge.set(0)

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, request)

    def GetClassID(self, context: CallContext, q: Any) -> Any:
        return com.IPersist_GetClassID_Response(pClassID=self.state.clsid.bytes_le)

    def IsDirty(self, context: CallContext, q: Any) -> Any:
        return com.IPersistStream_IsDirty_Response(result=ComResult.S_FALSE)

    def Load(self, context: CallContext, q: Any) -> Any:
        raise ComError(ComResult.E_NOTIMPL, "a saved object does not change")

    def GetSizeMax(self, context: CallContext, q: Any) -> Any:
        return com.IPersistStream_GetSizeMax_Response(pcbSize=ULARGE_INTEGER(len(self.state.data)))

    def Save(self, context: CallContext, q: Any) -> Any:
        target = context.unmarshal(q.pStm)
        if isinstance(target, MemoryStream):  # both objects are in this process
            target.write(self.state.data)
            return com.IPersistStream_Save_Response()
        if not isinstance(target, ForeignReference):
            raise ComError(ComResult.E_POINTER, "pStm is not a stream")
        return self._write_to(context, target)

    async def _write_to(self, context: CallContext, target: ForeignReference) -> Any:
        async with context.server.remote.reached(target.reference, target.host) as exporter:
            operation = com.IStream.operation("RemoteWrite")
            stream = await exporter.query(target.reference.ipid, com.IStream.uuid)
            try:
                for start in range(0, len(self.state.data), _PIECE):
                    piece = self.state.data[start : start + _PIECE]
                    request = com.ISequentialStream_RemoteWrite_Request(pv=piece, cb=len(piece))
                    answer = await exporter.call(com.IStream, stream.ipid, operation, request, context.causality)
                    if answer.result & 0x80000000:
                        raise ComError(answer.result, "IStream::Write")
            finally:
                await exporter.release([(stream.ipid, stream.cPublicRefs)])
        return com.IPersistStream_Save_Response()


async def state_of(
    exporter: RemoteExporter,
    ipid: bytes,
    publish: Publish,
    limit: int,
    causality: bytes | None = None,
    charge: Charge | None = None,
) -> ObjectState:
    """Return the state of an object in another process: let it save itself into a stream of at most `limit` bytes,
    which are charged to `charge` while it is written. Raises ComError: E_INVALIDARG for an object that cannot be saved,
    STG_E_MEDIUMFULL; RpcConnectionError, LimitReached."""
    interface, persistent = await _persistent(exporter, ipid)
    stream = MemoryStream(limit, charge)

    async def ask(name: str, **arguments: Any) -> Any:
        operation = interface.operation(name)
        assert operation.request is not None
        answer = await exporter.call(interface, persistent.ipid, operation, operation.request(**arguments), causality)
        if answer.result & 0x80000000:
            raise ComError(answer.result, f"{interface.name}::{name} of the object failed")
        return answer

    try:
        clsid = UUID(bytes_le=(await ask("GetClassID")).pClassID)
        await ask("Save", pStm=publish(stream), fClearDirty=0)  # only a copy is saved, so the object must stay dirty
        return ObjectState(clsid, stream.close())
    finally:
        stream.close()
        if exporter.is_open:
            await exporter.release([(persistent.ipid, persistent.cPublicRefs)])


async def _persistent(exporter: RemoteExporter, ipid: bytes) -> tuple[Interface, STDOBJREF]:
    for interface in _PERSISTENT:
        try:
            return interface, await exporter.query(ipid, interface.uuid)
        except ComError as error:
            if error.hresult != ComResult.E_NOINTERFACE:
                raise
    raise ComError(ComResult.E_INVALIDARG, "the object has neither IPersistStream nor IPersistStreamInit")
