"""A client of qmcomm and qmcomm2 based on impacket: connections, and calls named as in the specification."""

from __future__ import annotations

from typing import Any

from impacket.dcerpc.v5 import rpcrt, transport

from interop import impacket_msmq as calls

USER, PASSWORD, DOMAIN = "tester", "Passw0rd!", "WORKGROUP"
NONE = 0
CONNECT = rpcrt.RPC_C_AUTHN_LEVEL_CONNECT
INTEGRITY = rpcrt.RPC_C_AUTHN_LEVEL_PKT_INTEGRITY
PRIVACY = rpcrt.RPC_C_AUTHN_LEVEL_PKT_PRIVACY

RECEIVE_ACCESS, SEND_ACCESS, PEEK_ACCESS = 1, 2, 0x20
ACTION_RECEIVE, ACTION_PEEK_CURRENT, ACTION_PEEK_NEXT = 0, 0x80000000, 0x80000001
MQ_OK = 0
MQ_ERROR_QUEUE_NOT_FOUND = 0xC00E0003
MQ_ERROR_QUEUE_EXISTS = 0xC00E0005
MQ_ERROR_IO_TIMEOUT = 0xC00E001B
MQ_ERROR_BUFFER_OVERFLOW = 0xC00E001A
MQ_ERROR_ACCESS_DENIED = 0xC00E0025
MQ_ERROR_TRANSACTION_USAGE = 0xC00E0050


def connect(
    port: int, level: int = NONE, password: str = PASSWORD, fragment: int = 0, user: str = USER,
    host: str = "127.0.0.1", of: str = DOMAIN,
) -> Any:  # fmt: skip
    """Return a connection that is not bound yet."""
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[{port}]")
    rpc.set_connect_timeout(20)
    if level:
        rpc.set_credentials(user, password, of)
    dce = rpc.get_dce_rpc()
    if level:
        dce.set_auth_level(level)
    if fragment:
        dce.set_max_fragment_size(fragment)
    dce.connect()
    return dce


def direct(queue: str) -> dict[str, Any]:
    """Return the QUEUE_FORMAT of DIRECT=OS:.\\private$\\queue."""
    return {"m_qft": 3, "u": {"m_pDirectID": f"OS:.\\private$\\{queue}\0"}}


def queue_object(queue: str) -> dict[str, Any]:
    return {"ObjType": 1, "u": {"pQueueFormat": direct(queue)}}


class Client:
    """One connection with both interfaces bound; its context handles belong to it alone."""

    def __init__(
        self, port: int, level: int = NONE, password: str = PASSWORD, fragment: int = 0, user: str = USER,
        of: str = DOMAIN,
    ) -> None:  # fmt: skip
        self.dce = connect(port, level, password, fragment, user, of=of)
        self.dce.bind(calls.QMCOMM)
        self.second = self.dce.alter_ctx(calls.QMCOMM2)
        if fragment:
            self.second.set_max_fragment_size(fragment)

    def close(self) -> None:
        self.dce.disconnect()

    def call(self, name: str, uuid: bytes | None = None, **values: Any) -> Any:
        """Return the response of an operation, also if it failed. `uuid` is sent as object UUID."""
        dce = self.second if name in _SECOND else self.dce
        return dce.request(calls.request(name, **values), uuid, checkError=False)

    def done(self, name: str, **values: Any) -> Any:
        """Like `call`, but the call must succeed."""
        response = self.call(name, **values)
        assert response["result"] == MQ_OK, f"{name}: {response['result']:#x}"
        return response

    # -- queues ------------------------------------------------------------------------------------------------

    def create(self, queue: str, *properties: tuple[int, int, str, Any]) -> Any:
        """Create a queue. Properties are (PROPID, VARTYPE, arm, value); the path name is added."""
        path = f".\\private$\\{queue}\0"
        every = [(103, 31, "pwszVal", path), *properties]
        return self.call(
            "R_QMCreateObjectInternal", dwObjectType=1, lpwcsPathName=path, SDSize=0, cp=len(every),
            aProp=[propid for propid, *_ in every], apVar=[{"vt": vt, "u": {arm: v}} for _, vt, arm, v in every],
        )  # fmt: skip

    def properties(self, queue: str, *propids: int) -> list[Any]:
        blank = [{"vt": 1, "u": {"null": None}} for _ in propids]
        response = self.done(
            "R_QMGetObjectProperties", pObjectFormat=queue_object(queue), cp=len(propids), aProp=list(propids),
            apVar=blank,
        )  # fmt: skip
        return [_value(v) for v in response["apVar"]]

    def open(self, queue: str, access: int = RECEIVE_ACCESS, share: int = 0) -> Any:
        return self.call(
            "rpc_QMOpenQueueInternal", pQueueFormat=direct(queue), dwDesiredAccess=access, dwShareMode=share,
            pLicGuid=bytes(range(16)), lpClientName="client\0",
        )  # fmt: skip

    def opened(self, queue: str, access: int = RECEIVE_ACCESS) -> tuple[bytes, int]:
        """Return the context handle and the context value of an open queue."""
        response = self.open(queue, access)
        assert response["result"] == MQ_OK, f"{response['result']:#x}"
        return response["phQueue"], response["pdwQMContext"]

    # -- messages ----------------------------------------------------------------------------------------------

    def send(self, handle: bytes, body: bytes, label: str = "", uow: bytes | None = None, **members: Any) -> Any:
        old: dict[str, Any] = {
            "uTransferType": 0, "u": {"Send": {}}, "ppBody": body, "ulBodyBufferSizeInBytes": len(body),
            "ulAllocBodyBufferInBytes": len(body), "pBodySize": len(body), "ulAbsoluteTimeToQueue": 0xFFFFFFFF,
            "ulRelativeTimeToLive": 0xFFFFFFFF, **members,
        }  # fmt: skip
        if label:
            old |= {"ppTitle": (label + "\0").encode("utf-16-le"), "ulTitleBufferSizeInWCHARs": len(label) + 1}
        if uow is not None:
            old["pUow"] = uow
        identifier = {"Lineage": bytes(16), "Uniquifier": 0}
        return self.call("rpc_ACSendMessageEx", hQueue=handle, ptb={"old": old}, pMessageID=identifier)

    def read(
        self,
        context: int,
        action: int = ACTION_RECEIVE,
        timeout: int = 0,
        room: int = 1024,
        cursor: int = 0,
        uow: bytes | None = None,
    ) -> Any:
        """Call rpc_ACReceiveMessageEx with `room` bytes for the body."""
        receive = {
            "RequestTimeout": timeout, "Action": action, "Cursor": cursor,
            "ulDestFormatNameLen": 128, "ppDestFormatName": bytes(256), "pulDestFormatNameLenProp": 128,
        }  # fmt: skip
        old: dict[str, Any] = {
            "uTransferType": 1, "u": {"Receive": receive}, "pClass": 0, "pPriority": 0, "pDelivery": 0,
            "ppMessageID": {"Lineage": bytes(16), "Uniquifier": 0}, "pSentTime": 0, "pArrivedTime": 0,
            "ppBody": bytes(room), "ulBodyBufferSizeInBytes": room, "ulAllocBodyBufferInBytes": room, "pBodySize": 0,
            "ppTitle": bytes(500), "ulTitleBufferSizeInWCHARs": 250, "pulTitleBufferSizeInWCHARs": 250,
            "pApplicationTag": 0, "pulBodyType": 0,
        }  # fmt: skip
        if uow is not None:
            old["pUow"] = uow
        return self.call("rpc_ACReceiveMessageEx", hQMContext=context, ptb={"old": old})


_SECOND = ("rpc_ACSendMessageEx", "rpc_ACReceiveMessageEx", "rpc_ACCreateCursorEx")


def _value(variant: Any) -> Any:
    arms = [arm for name, arm in variant["u"].fields.items() if name != "tag" and "Data" in arm.fields]
    return arms[0]["Data"] if arms else None


def body(response: Any) -> bytes:
    """Return the body in the response of a read."""
    old = response["ptb"]["old"]
    return old["ppBody"][: old["pBodySize"]]


def label(response: Any) -> str:
    return response["ptb"]["old"]["ppTitle"].decode("utf-16-le").partition("\0")[0]
