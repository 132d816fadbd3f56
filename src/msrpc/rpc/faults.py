"""Status codes of fault PDUs (C706 appendix E, [MS-RPCE] 3.1.3.5, 3.3.3.5 and [MS-ERREF] 2.2)."""

from __future__ import annotations

from typing import Final

NCA_S_OP_RNG_ERROR: Final = 0x1C010002
NCA_S_UNK_IF: Final = 0x1C010003
NCA_S_PROTO_ERROR: Final = 0x1C01000B
NCA_S_OUT_ARGS_TOO_BIG: Final = 0x1C010013
NCA_S_SERVER_TOO_BUSY: Final = 0x1C010014
NCA_S_UNSUPPORTED_TYPE: Final = 0x1C010017
NCA_S_FAULT_INVALID_TAG: Final = 0x1C000006
NCA_S_FAULT_INVALID_BOUND: Final = 0x1C000007
NCA_S_RPC_VERSION_MISMATCH: Final = 0x1C000008
NCA_S_UNSPEC_REJECT: Final = 0x1C000009
NCA_S_FAULT_CANCEL: Final = 0x1C00000D
NCA_S_FAULT_UNSPEC: Final = 0x1C000012
NCA_S_FAULT_CONTEXT_MISMATCH: Final = 0x1C00001A
NCA_S_FAULT_REMOTE_NO_MEMORY: Final = 0x1C00001B
RPC_S_ACCESS_DENIED: Final = 5
RPC_S_PROTOCOL_ERROR: Final = 1728
RPC_X_NULL_REF_POINTER: Final = 1780
RPC_X_BAD_STUB_DATA: Final = 1783

_NAMES: Final = {value: name for name, value in globals().items() if name.startswith(("NCA_S_", "RPC_"))}


def status_name(status: int) -> str:
    """Return the name and number of a status, as `NCA_S_UNK_IF (0x1c010003)`; only the number if it has no name
    here."""
    name = _NAMES.get(status)
    return f"{name} (0x{status:08x})" if name else f"0x{status:08x}"


class Fault(Exception):
    """Raised by the implementation of a call, to end it with a fault of this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"fault {status_name(self.status)}"


class RpcFault(Exception):
    """The server answered a call with a fault PDU; `status` is its code."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"RPC fault {status_name(self.status)}"
