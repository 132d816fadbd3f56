"""HRESULTs and the exceptions for them: one table for server, client and command line ([MS-MQMQ] 2.4)."""

from __future__ import annotations

from enum import IntEnum

from msrpc import errors
from msrpc.errors import HResultError


class HResult(IntEnum):
    """The values of [MS-MQMQ] 2.4, and those of [MS-ERREF] that the protocols use."""

    MQ_OK = 0
    E_INVALIDARG = 0x80070057
    ERROR_INVALID_OWNER = 0x8007051B  # Win32 error as HRESULT
    STATUS_INVALID_HANDLE = 0xC0000008
    STATUS_INVALID_PARAMETER = 0xC000000D
    STATUS_ACCESS_DENIED = 0xC0000022
    STATUS_SHARING_VIOLATION = 0xC0000043
    STATUS_CANCELLED = 0xC0000120
    STATUS_NOT_FOUND = 0xC0000225
    STATUS_RETRY = 0xC000022D
    MQ_INFORMATION_PROPERTY = 0x400E0001
    MQ_INFORMATION_ILLEGAL_PROPERTY = 0x400E0002
    MQ_INFORMATION_PROPERTY_IGNORED = 0x400E0003
    MQ_INFORMATION_UNSUPPORTED_PROPERTY = 0x400E0004
    MQ_INFORMATION_DUPLICATE_PROPERTY = 0x400E0005
    MQ_INFORMATION_OPERATION_PENDING = 0x400E0006
    MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL = 0x400E0009
    MQ_INFORMATION_INTERNAL_USER_CERT_EXIST = 0x400E000A
    MQ_INFORMATION_OWNER_IGNORED = 0x400E000B
    MQ_INFORMATION_REMOTE_OPERATION = 0x400E03E8
    MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT = 0x400E03E9
    MQ_ERROR = 0xC00E0001
    MQ_ERROR_PROPERTY = 0xC00E0002
    MQ_ERROR_QUEUE_NOT_FOUND = 0xC00E0003
    MQ_ERROR_QUEUE_NOT_ACTIVE = 0xC00E0004
    MQ_ERROR_QUEUE_EXISTS = 0xC00E0005
    MQ_ERROR_INVALID_PARAMETER = 0xC00E0006
    MQ_ERROR_INVALID_HANDLE = 0xC00E0007
    MQ_ERROR_OPERATION_CANCELLED = 0xC00E0008
    MQ_ERROR_SHARING_VIOLATION = 0xC00E0009
    MQ_ERROR_SERVICE_NOT_AVAILABLE = 0xC00E000B
    MQ_ERROR_MACHINE_NOT_FOUND = 0xC00E000D
    MQ_ERROR_ILLEGAL_SORT = 0xC00E0010
    MQ_ERROR_ILLEGAL_USER = 0xC00E0011
    MQ_ERROR_NO_DS = 0xC00E0013
    MQ_ERROR_ILLEGAL_QUEUE_PATHNAME = 0xC00E0014
    MQ_ERROR_ILLEGAL_PROPERTY_VALUE = 0xC00E0018
    MQ_ERROR_ILLEGAL_PROPERTY_VT = 0xC00E0019
    MQ_ERROR_BUFFER_OVERFLOW = 0xC00E001A
    MQ_ERROR_IO_TIMEOUT = 0xC00E001B
    MQ_ERROR_ILLEGAL_CURSOR_ACTION = 0xC00E001C
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED = 0xC00E001D
    MQ_ERROR_ILLEGAL_FORMATNAME = 0xC00E001E
    MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL = 0xC00E001F
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION = 0xC00E0020
    MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR = 0xC00E0021
    MQ_ERROR_SENDERID_BUFFER_TOO_SMALL = 0xC00E0022
    MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL = 0xC00E0023
    MQ_ERROR_CANNOT_IMPERSONATE_CLIENT = 0xC00E0024
    MQ_ERROR_ACCESS_DENIED = 0xC00E0025
    MQ_ERROR_PRIVILEGE_NOT_HELD = 0xC00E0026
    MQ_ERROR_INSUFFICIENT_RESOURCES = 0xC00E0027
    MQ_ERROR_USER_BUFFER_TOO_SMALL = 0xC00E0028
    MQ_ERROR_MESSAGE_STORAGE_FAILED = 0xC00E002A
    MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL = 0xC00E002B
    MQ_ERROR_INVALID_CERTIFICATE = 0xC00E002C
    MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE = 0xC00E002D
    MQ_ERROR_INTERNAL_USER_CERT_EXIST = 0xC00E002E
    MQ_ERROR_NO_INTERNAL_USER_CERT = 0xC00E002F
    MQ_ERROR_CORRUPTED_SECURITY_DATA = 0xC00E0030
    MQ_ERROR_CORRUPTED_PERSONAL_CERT_STORE = 0xC00E0031
    MQ_ERROR_COMPUTER_DOES_NOT_SUPPORT_ENCRYPTION = 0xC00E0033
    MQ_ERROR_BAD_SECURITY_CONTEXT = 0xC00E0035
    MQ_ERROR_COULD_NOT_GET_USER_SID = 0xC00E0036
    MQ_ERROR_COULD_NOT_GET_ACCOUNT_INFO = 0xC00E0037
    MQ_ERROR_ILLEGAL_MQCOLUMNS = 0xC00E0038
    MQ_ERROR_ILLEGAL_PROPID = 0xC00E0039
    MQ_ERROR_ILLEGAL_RELATION = 0xC00E003A
    MQ_ERROR_ILLEGAL_PROPERTY_SIZE = 0xC00E003B
    MQ_ERROR_ILLEGAL_RESTRICTION_PROPID = 0xC00E003C
    MQ_ERROR_ILLEGAL_MQQUEUEPROPS = 0xC00E003D
    MQ_ERROR_PROPERTY_NOTALLOWED = 0xC00E003E
    MQ_ERROR_INSUFFICIENT_PROPERTIES = 0xC00E003F
    MQ_ERROR_MACHINE_EXISTS = 0xC00E0040
    MQ_ERROR_ILLEGAL_MQQMPROPS = 0xC00E0041
    MQ_ERROR_DS_IS_FULL = 0xC00E0042
    MQ_ERROR_DS_ERROR = 0xC00E0043
    MQ_ERROR_INVALID_OWNER = 0xC00E0044
    MQ_ERROR_UNSUPPORTED_ACCESS_MODE = 0xC00E0045
    MQ_ERROR_RESULT_BUFFER_TOO_SMALL = 0xC00E0046
    MQ_ERROR_DELETE_CN_IN_USE = 0xC00E0048
    MQ_ERROR_NO_RESPONSE_FROM_OBJECT_SERVER = 0xC00E0049
    MQ_ERROR_OBJECT_SERVER_NOT_AVAILABLE = 0xC00E004A
    MQ_ERROR_QUEUE_NOT_AVAILABLE = 0xC00E004B
    MQ_ERROR_DTC_CONNECT = 0xC00E004C
    MQ_ERROR_TRANSACTION_IMPORT = 0xC00E004E
    MQ_ERROR_TRANSACTION_USAGE = 0xC00E0050
    MQ_ERROR_TRANSACTION_SEQUENCE = 0xC00E0051
    MQ_ERROR_MISSING_CONNECTOR_TYPE = 0xC00E0055
    MQ_ERROR_STALE_HANDLE = 0xC00E0056
    MQ_ERROR_TRANSACTION_ENLIST = 0xC00E0058
    MQ_ERROR_QUEUE_DELETED = 0xC00E005A
    MQ_ERROR_ILLEGAL_CONTEXT = 0xC00E005B
    MQ_ERROR_ILLEGAL_SORT_PROPID = 0xC00E005C
    MQ_ERROR_LABEL_TOO_LONG = 0xC00E005D
    MQ_ERROR_LABEL_BUFFER_TOO_SMALL = 0xC00E005E
    MQ_ERROR_MQIS_SERVER_EMPTY = 0xC00E005F
    MQ_ERROR_MQIS_READONLY_MODE = 0xC00E0060
    MQ_ERROR_SYMM_KEY_BUFFER_TOO_SMALL = 0xC00E0061
    MQ_ERROR_SIGNATURE_BUFFER_TOO_SMALL = 0xC00E0062
    MQ_ERROR_PROV_NAME_BUFFER_TOO_SMALL = 0xC00E0063
    MQ_ERROR_ILLEGAL_OPERATION = 0xC00E0064
    MQ_ERROR_WRITE_NOT_ALLOWED = 0xC00E0065
    MQ_ERROR_WKS_CANT_SERVE_CLIENT = 0xC00E0066
    MQ_ERROR_DEPEND_WKS_LICENSE_OVERFLOW = 0xC00E0067
    MQ_CORRUPTED_QUEUE_WAS_DELETED = 0xC00E0068
    MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE = 0xC00E0069
    MQ_ERROR_UNSUPPORTED_OPERATION = 0xC00E006A
    MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED = 0xC00E006B
    MQ_ERROR_CANNOT_SET_CRYPTO_SEC_DESCR = 0xC00E006C
    MQ_ERROR_CERTIFICATE_NOT_PROVIDED = 0xC00E006D
    MQ_ERROR_Q_DNS_PROPERTY_NOT_SUPPORTED = 0xC00E006E
    MQ_ERROR_CANNOT_CREATE_CERT_STORE = 0xC00E006F
    MQ_ERROR_CANNOT_OPEN_CERT_STORE = 0xC00E0070
    MQ_ERROR_ILLEGAL_ENTERPRISE_OPERATION = 0xC00E0071
    MQ_ERROR_CANNOT_GRANT_ADD_GUID = 0xC00E0072
    MQ_ERROR_CANNOT_LOAD_MSMQOCM = 0xC00E0073
    MQ_ERROR_NO_ENTRY_POINT_MSMQOCM = 0xC00E0074
    MQ_ERROR_NO_MSMQ_SERVERS_ON_DC = 0xC00E0075
    MQ_ERROR_CANNOT_JOIN_DOMAIN = 0xC00E0076
    MQ_ERROR_CANNOT_CREATE_ON_GC = 0xC00E0077
    MQ_ERROR_GUID_NOT_MATCHING = 0xC00E0078
    MQ_ERROR_PUBLIC_KEY_NOT_FOUND = 0xC00E0079
    MQ_ERROR_PUBLIC_KEY_DOES_NOT_EXIST = 0xC00E007A
    MQ_ERROR_ILLEGAL_MQPRIVATEPROPS = 0xC00E007B
    MQ_ERROR_NO_GC_IN_DOMAIN = 0xC00E007C
    MQ_ERROR_NO_MSMQ_SERVERS_ON_GC = 0xC00E007D
    MQ_ERROR_CANNOT_GET_DN = 0xC00E007E
    MQ_ERROR_CANNOT_HASH_DATA_EX = 0xC00E007F
    MQ_ERROR_CANNOT_SIGN_DATA_EX = 0xC00E0080
    MQ_ERROR_CANNOT_CREATE_HASH_EX = 0xC00E0081
    MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX = 0xC00E0082
    MQ_ERROR_CANNOT_DELETE_PSC_OBJECTS = 0xC00E0083
    MQ_ERROR_NO_MQUSER_OU = 0xC00E0084
    MQ_ERROR_CANNOT_LOAD_MQAD = 0xC00E0085
    MQ_ERROR_CANNOT_LOAD_MQDSSRV = 0xC00E0086
    MQ_ERROR_PROPERTIES_CONFLICT = 0xC00E0087
    MQ_ERROR_MESSAGE_NOT_FOUND = 0xC00E0088
    MQ_ERROR_CANT_RESOLVE_SITES = 0xC00E0089
    MQ_ERROR_NOT_SUPPORTED_BY_DEPENDENT_CLIENTS = 0xC00E008A
    MQ_ERROR_OPERATION_NOT_SUPPORTED_BY_REMOTE_COMPUTER = 0xC00E008B
    MQ_ERROR_NOT_A_CORRECT_OBJECT_CLASS = 0xC00E008C
    MQ_ERROR_MULTI_SORT_KEYS = 0xC00E008D
    MQ_ERROR_GC_NEEDED = 0xC00E008E
    MQ_ERROR_DS_BIND_ROOT_FOREST = 0xC00E008F
    MQ_ERROR_DS_LOCAL_USER = 0xC00E0090
    MQ_ERROR_Q_ADS_PROPERTY_NOT_SUPPORTED = 0xC00E0091
    MQ_ERROR_BAD_XML_FORMAT = 0xC00E0092
    MQ_ERROR_UNSUPPORTED_CLASS = 0xC00E0093
    MQ_ERROR_UNINITIALIZED_OBJECT = 0xC00E0094
    MQ_ERROR_CANNOT_CREATE_PSC_OBJECTS = 0xC00E0095
    MQ_ERROR_CANNOT_UPDATE_PSC_OBJECTS = 0xC00E0096
    MQ_ERROR_RESOLVE_ADDRESS = 0xC00E0099
    MQ_ERROR_TOO_MANY_PROPERTIES = 0xC00E009A
    MQ_ERROR_MESSAGE_NOT_AUTHENTICATED = 0xC00E009B
    MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION = 0xC00E009C
    MQDS_UNKNOWN_SOURCE = 0xC00E0504


def name_of(hresult: int) -> str:
    """Return the name of an HRESULT, such as `MQ_ERROR_IO_TIMEOUT`; the hexadecimal value if it has none."""
    try:
        return HResult(hresult & 0xFFFFFFFF).name
    except ValueError:
        return f"0x{hresult & 0xFFFFFFFF:08X}"


class MsmqError(HResultError):
    """An operation failed with an HRESULT. There are subclasses for errors that programs catch.

    `hresult` is unsigned; `name` is its symbolic name; `detail` describes the error and the value that caused it. The
    text of the exception contains the detail as returned by `printable`.
    """

    hresult = HResult.MQ_ERROR

    @property
    def name(self) -> str:
        return name_of(self.hresult)


class QueueNotFound(MsmqError):
    hresult = HResult.MQ_ERROR_QUEUE_NOT_FOUND


class QueueExists(MsmqError):
    hresult = HResult.MQ_ERROR_QUEUE_EXISTS


class QueueDeleted(MsmqError):
    hresult = HResult.MQ_ERROR_QUEUE_DELETED


class ReceiveTimeout(MsmqError, TimeoutError):
    hresult = HResult.MQ_ERROR_IO_TIMEOUT


class AccessDenied(MsmqError, PermissionError):
    hresult = HResult.MQ_ERROR_ACCESS_DENIED


class SharingViolation(MsmqError):
    hresult = HResult.MQ_ERROR_SHARING_VIOLATION


class MessageNotFound(MsmqError):
    hresult = HResult.MQ_ERROR_MESSAGE_NOT_FOUND


class MessageAlreadyReceived(MsmqError):
    hresult = HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED


class IllegalCursorAction(MsmqError):
    hresult = HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION


class BufferOverflow(MsmqError):
    hresult = HResult.MQ_ERROR_BUFFER_OVERFLOW


class IllegalFormatName(MsmqError, ValueError):
    hresult = HResult.MQ_ERROR_ILLEGAL_FORMATNAME


class IllegalQueuePathName(MsmqError, ValueError):
    hresult = HResult.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME


class IllegalPropertyValue(MsmqError, ValueError):
    hresult = HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


class InvalidHandle(MsmqError):
    hresult = HResult.MQ_ERROR_INVALID_HANDLE


class InsufficientResources(MsmqError):
    hresult = HResult.MQ_ERROR_INSUFFICIENT_RESOURCES


class MessageStorageFailed(MsmqError):
    hresult = HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED


class TransactionUsage(MsmqError):
    hresult = HResult.MQ_ERROR_TRANSACTION_USAGE


class TransactionSequence(MsmqError):
    hresult = HResult.MQ_ERROR_TRANSACTION_SEQUENCE


class OperationCancelled(MsmqError):
    hresult = HResult.MQ_ERROR_OPERATION_CANCELLED


_EXCEPTIONS: dict[int, type[MsmqError]] = {cls.hresult: cls for cls in MsmqError.__subclasses__()}
# Servers return two status codes for this condition ([MS-MQMP] 3.1.4.2).
_EXCEPTIONS[HResult.STATUS_SHARING_VIOLATION] = SharingViolation


def error_for(hresult: int, detail: str = "") -> MsmqError:
    """Return the exception for an HRESULT, of its subclass if there is one."""
    hresult &= 0xFFFFFFFF
    return _EXCEPTIONS.get(hresult, MsmqError)(hresult, detail)


class ClientError(errors.RpcError, MsmqError):
    """An operation failed without an answer from the server. Its only argument and its text is the detail."""


class UnreadableMessage(MsmqError):
    """A server sent a message that is not a message packet. Other messages may still be readable.

    Attributes:
        sequence: sequence number of the message in its queue.
    """

    def __init__(self, detail: str, sequence: int) -> None:
        super().__init__(None, detail)
        self.sequence = sequence


# MsmqError versions of the exceptions of `msrpc`.


@errors.raised_for(errors.ComError)
class ComError(errors.ComError, MsmqError):
    __doc__ = errors.ComError.__doc__


@errors.raised_for(errors.LimitReached)
class LimitReached(errors.LimitReached, InsufficientResources):
    __doc__ = errors.LimitReached.__doc__
    hresult = HResult.MQ_ERROR_INSUFFICIENT_RESOURCES


@errors.raised_for(errors.NdrError)
class NdrError(errors.NdrError, ClientError):
    __doc__ = errors.NdrError.__doc__
    hresult = HResult.MQ_ERROR_INVALID_PARAMETER


@errors.raised_for(errors.ProtocolError)
class ProtocolError(errors.ProtocolError, ClientError):
    __doc__ = errors.ProtocolError.__doc__


@errors.raised_for(errors.LocalProtocolError)
class LocalProtocolError(errors.LocalProtocolError, ProtocolError):
    __doc__ = errors.LocalProtocolError.__doc__


@errors.raised_for(errors.RemoteProtocolError)
class RemoteProtocolError(errors.RemoteProtocolError, ProtocolError):
    __doc__ = errors.RemoteProtocolError.__doc__


@errors.raised_for(errors.RpcConnectionError)
class RpcConnectionError(errors.RpcConnectionError, ClientError):
    __doc__ = errors.RpcConnectionError.__doc__
    hresult = HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE


@errors.raised_for(errors.AnswerTimeout)
class AnswerTimeout(errors.AnswerTimeout, RpcConnectionError):
    __doc__ = errors.AnswerTimeout.__doc__
    hresult = HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE


@errors.raised_for(errors.BindError)
class BindError(errors.BindError, RpcConnectionError):
    __doc__ = errors.BindError.__doc__
    hresult = HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE


@errors.raised_for(errors.AuthenticationError)
class AuthenticationError(errors.AuthenticationError, AccessDenied):
    __doc__ = errors.AuthenticationError.__doc__
    hresult = HResult.MQ_ERROR_ACCESS_DENIED


@errors.raised_for(errors.LoginRefused)
class LoginRefused(errors.LoginRefused, AuthenticationError):
    __doc__ = errors.LoginRefused.__doc__
    hresult = HResult.MQ_ERROR_ACCESS_DENIED


@errors.raised_for(errors.LogonUnavailable)
class LogonUnavailable(errors.LogonUnavailable, AuthenticationError):
    __doc__ = errors.LogonUnavailable.__doc__
    hresult = HResult.MQ_ERROR_ACCESS_DENIED


@errors.raised_for(errors.KerberosUnavailable)
class KerberosUnavailable(errors.KerberosUnavailable, ClientError):
    __doc__ = errors.KerberosUnavailable.__doc__
    requirement = "openmsmq[domain]"


@errors.raised_for(errors.WinbindUnavailable)
class WinbindUnavailable(errors.WinbindUnavailable, ClientError):
    __doc__ = errors.WinbindUnavailable.__doc__
