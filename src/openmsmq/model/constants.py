"""Constants under their specified names ([MS-MQMQ] 2.2 and 2.3, [MS-MQMP] 2.2.3.2 and 3.1.4.17)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

INFINITE = 0xFFFFFFFF  # unlimited time-out or lifetime
MAXIMUM_LABEL = 249  # characters; the buffer holds 250 with its terminator ([MS-MQMP] 3.1.5.2)
MAXIMUM_GROUP_NAME = MAXIMUM_LABEL  # maximum characters of the name of a consumer group or a sink
MOST_DELIVERIES = 0xFFFF  # largest delivery limit: aborted receives are counted in 16 bits
MAXIMUM_MESSAGE_SIZE = 4 * 1024 * 1024  # bytes, including headers


class MessageClass(IntEnum):
    """[MS-MQMQ] 2.2.18.1.6, and two more values of [MC-MQAC] 2.2.2.9. Applications may use other values within the mask
    0xE1FF."""

    NORMAL = 0x0000
    REPORT = 0x0001
    ACK_REACH_QUEUE = 0x0002
    ORDER_ACK = 0x00FF
    ACK_RECEIVE = 0x4000
    NACK_BAD_DST_Q = 0x8000
    NACK_DELETED = 0x8001
    NACK_REACH_QUEUE_TIMEOUT = 0x8002
    NACK_Q_EXCEED_QUOTA = 0x8003
    NACK_ACCESS_DENIED = 0x8004
    NACK_HOP_COUNT_EXCEEDED = 0x8005
    NACK_BAD_SIGNATURE = 0x8006
    NACK_BAD_ENCRYPTION = 0x8007
    NACK_COULD_NOT_ENCRYPT = 0x8008
    NACK_NOT_TRANSACTIONAL_Q = 0x8009
    NACK_NOT_TRANSACTIONAL_MSG = 0x800A
    NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    NACK_SOURCE_COMPUTER_GUID_CHANGED = 0x800C
    NACK_Q_DELETED = 0xC000
    NACK_Q_PURGED = 0xC001
    NACK_RECEIVE_TIMEOUT = 0xC002
    NACK_RECEIVE_TIMEOUT_AT_SENDER = 0xC003
    NACK_RECEIVE_REJECTED = 0xC004


class Acknowledge(IntFlag):
    """pAcknowledge, [MS-MQMP] 2.2.3.2."""

    NONE = 0x00
    POS_ARRIVAL = 0x01
    POS_RECEIVE = 0x02
    NEG_ARRIVAL = 0x04
    NEG_RECEIVE = 0x08
    FULL_REACH_QUEUE = POS_ARRIVAL | NEG_ARRIVAL
    NACK_RECEIVE = NEG_ARRIVAL | NEG_RECEIVE
    FULL_RECEIVE = POS_RECEIVE | NEG_ARRIVAL | NEG_RECEIVE


class Journal(IntFlag):
    """pAuditing, [MS-MQMP] 2.2.3.2."""

    NONE = 0
    DEADLETTER = 1
    JOURNAL = 2


class Delivery(IntEnum):
    EXPRESS = 0
    RECOVERABLE = 1


class Access(IntEnum):
    """dwDesiredAccess of rpc_QMOpenQueueInternal, [MS-MQMP] 3.1.4.17."""

    RECEIVE = 0x01
    SEND = 0x02
    MOVE = 0x04  # only for the target of R_MoveMessage, [MS-MQRR] 3.1.4.11
    PEEK = 0x20
    RECEIVE_ADMIN = 0x81
    PEEK_ADMIN = 0xA0


class Share(IntEnum):
    """dwShareMode of rpc_QMOpenQueueInternal."""

    DENY_NONE = 0
    DENY_RECEIVE_SHARE = 1


class ReceiveAction(IntEnum):
    """CACTransferBufferV1.Receive.Action."""

    RECEIVE = 0x00000000
    PEEK_CURRENT = 0x80000000
    PEEK_NEXT = 0x80000001


class LookupAction(IntEnum):
    """The actions of R_StartReceive by lookup identifier ([MS-MQRR] 3.1.4.7)."""

    PEEK_CURRENT = 0x40000010
    PEEK_NEXT = 0x40000011
    PEEK_PREV = 0x40000012
    RECEIVE_CURRENT = 0x40000020
    RECEIVE_NEXT = 0x40000021
    RECEIVE_PREV = 0x40000022

    @property
    def destructive(self) -> bool:
        return bool(self & 0x20)

    @property
    def seek(self) -> MessageSeekAction:
        return MessageSeekAction(self & 0x0F)


class MessageSeekAction(IntEnum):
    """Which message to read, relative to a lookup identifier ([MS-MQDMPR] 3.1.7.1.13)."""

    CURRENT = 0
    NEXT = 1
    PREVIOUS = 2
    FIRST = 3
    LAST = 4


class PropId(IntEnum):
    """Queue properties of qmcomm, [MS-MQMP] 3.1.1.12.

    Those named PROPID_Q_OPENMSMQ_ are extensions (D-196). Their numbers are outside the ranges of [MS-MQMQ] 2.3, so
    other queue managers answer MQ_ERROR_ILLEGAL_PROPID.
    """

    PROPID_Q_INSTANCE = 101
    PROPID_Q_TYPE = 102
    PROPID_Q_PATHNAME = 103
    PROPID_Q_JOURNAL = 104
    PROPID_Q_QUOTA = 105
    PROPID_Q_BASEPRIORITY = 106
    PROPID_Q_JOURNAL_QUOTA = 107
    PROPID_Q_LABEL = 108
    PROPID_Q_CREATE_TIME = 109
    PROPID_Q_MODIFY_TIME = 110
    PROPID_Q_AUTHENTICATE = 111
    PROPID_Q_PRIV_LEVEL = 112
    PROPID_Q_TRANSACTION = 113
    PROPID_Q_PATHNAME_DNS = 124
    PROPID_Q_MULTICAST_ADDRESS = 125
    PROPID_Q_ADS_PATH = 126
    PROPID_Q_OPENMSMQ_DELIVERY_LIMIT = 0x4F500001
    PROPID_Q_OPENMSMQ_POISON_TO_DEADLETTER = 0x4F500002


class VarType(IntEnum):
    """[MS-MQMQ] 2.2.12 and the VARTYPEs that message bodies use ([MS-OAUT] 2.2.7)."""

    VT_EMPTY = 0
    VT_NULL = 1
    VT_I2 = 2
    VT_I4 = 3
    VT_R4 = 4
    VT_R8 = 5
    VT_CY = 6
    VT_DATE = 7
    VT_BSTR = 8
    VT_BOOL = 11
    VT_I1 = 16
    VT_UI1 = 17
    VT_UI2 = 18
    VT_UI4 = 19
    VT_I8 = 20
    VT_UI8 = 21
    VT_LPSTR = 30
    VT_LPWSTR = 31
    VT_FILETIME = 64
    VT_BLOB = 65
    VT_STREAMED_OBJECT = 68
    VT_CLSID = 72
    VT_VECTOR_UI1 = 0x1011


class QueueAccessMask(IntFlag):
    """MQQUEUEACCESSMASK, [MS-MQMQ] 2.2.24."""

    DELETE_MESSAGE = 0x00000001
    PEEK_MESSAGE = 0x00000002
    WRITE_MESSAGE = 0x00000004
    DELETE_JOURNAL_MESSAGE = 0x00000008
    SET_QUEUE_PROPERTIES = 0x00000010
    GET_QUEUE_PROPERTIES = 0x00000020
    DELETE_QUEUE = 0x00010000
    GET_QUEUE_PERMISSIONS = 0x00020000
    CHANGE_QUEUE_PERMISSIONS = 0x00040000
    TAKE_QUEUE_OWNERSHIP = 0x00080000
    RECEIVE_MESSAGE = DELETE_MESSAGE | PEEK_MESSAGE
    RECEIVE_JOURNAL_MESSAGE = DELETE_JOURNAL_MESSAGE | PEEK_MESSAGE
    GENERIC_READ = GET_QUEUE_PROPERTIES | GET_QUEUE_PERMISSIONS | RECEIVE_MESSAGE | RECEIVE_JOURNAL_MESSAGE
    GENERIC_WRITE = GET_QUEUE_PROPERTIES | GET_QUEUE_PERMISSIONS | WRITE_MESSAGE
    GENERIC_ALL = (
        RECEIVE_MESSAGE | RECEIVE_JOURNAL_MESSAGE | WRITE_MESSAGE | SET_QUEUE_PROPERTIES | GET_QUEUE_PROPERTIES
        | DELETE_QUEUE | GET_QUEUE_PERMISSIONS | CHANGE_QUEUE_PERMISSIONS | TAKE_QUEUE_OWNERSHIP
    )  # fmt: skip


class MachineAccessMask(IntFlag):
    """MQQMACCESSMASK, [MS-MQMQ] 2.2.23."""

    DELETE_DEADLETTER_MESSAGE = 0x00000001
    PEEK_DEADLETTER_MESSAGE = 0x00000002
    CREATE_QUEUE = 0x00000004
    SET_MACHINE_PROPERTIES = 0x00000010
    GET_MACHINE_PROPERTIES = 0x00000020
    DELETE_JOURNAL_QUEUE_MESSAGE = 0x00000040
    PEEK_JOURNAL_QUEUE_MESSAGE = 0x00000080
    RECEIVE_DEADLETTER_MESSAGE = DELETE_DEADLETTER_MESSAGE | PEEK_DEADLETTER_MESSAGE
    RECEIVE_JOURNAL_QUEUE_MESSAGE = DELETE_JOURNAL_QUEUE_MESSAGE | PEEK_JOURNAL_QUEUE_MESSAGE
    GENERIC_READ = GET_MACHINE_PROPERTIES | 0x00020000 | RECEIVE_DEADLETTER_MESSAGE | RECEIVE_JOURNAL_QUEUE_MESSAGE
    GENERIC_WRITE = GET_MACHINE_PROPERTIES | 0x00020000 | CREATE_QUEUE
    GENERIC_ALL = 0x000F00F7


class SecurityInformation(IntFlag):
    """SECURITY_INFORMATION, [MS-MQMQ] 2.2.3."""

    OWNER = 0x1
    GROUP = 0x2
    DACL = 0x4
    SACL = 0x8
