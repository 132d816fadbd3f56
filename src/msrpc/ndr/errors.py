"""What codecs raise."""

from __future__ import annotations

from openmsmq.model.errors import ClientError, HResult


class NdrError(ClientError, ValueError):
    """A value can't be encoded; the message names the field. This is the caller's mistake."""

    hresult = HResult.MQ_ERROR_INVALID_PARAMETER


class BadStubData(Exception):
    """A stub does not decode: too short, a count that does not fit, a union without arm, a value out of range.

    The peer's mistake; on the wire it becomes the fault RPC_X_BAD_STUB_DATA (1783).
    """
