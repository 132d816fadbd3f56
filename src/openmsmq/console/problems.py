"""Errors as RFC 9457 problem documents, with the HRESULT and the invalid members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.text import printable

MEDIA_TYPE: Final = "application/problem+json"
_TITLES: Final = {
    400: "The request is malformed", 401: "Log in first", 403: "Not allowed", 404: "Not found",
    405: "Not for this resource", 408: "The request took too long", 409: "Conflicts with the current state",
    412: "Changed in the meantime", 413: "Too large", 415: "Another media type is needed", 421: "Not for this host",
    422: "A value is not allowed", 428: "A condition is needed", 429: "Too many attempts", 500: "Internal server error",
    503: "Not available now", 504: "The queue manager did not answer in time", 507: "Insufficient storage",
}  # fmt: skip
#: Error of the queue manager -> HTTP status; all other errors are 422.
_STATUSES: Final = {
    HResult.MQ_ERROR_ACCESS_DENIED: 403, HResult.STATUS_ACCESS_DENIED: 403,
    HResult.MQ_ERROR_QUEUE_NOT_FOUND: 404, HResult.MQ_ERROR_MESSAGE_NOT_FOUND: 404,
    HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED: 404, HResult.MQ_ERROR_QUEUE_DELETED: 404,
    HResult.MQ_ERROR_ILLEGAL_USER: 404,
    HResult.MQ_ERROR_QUEUE_EXISTS: 409, HResult.MQ_ERROR_SHARING_VIOLATION: 409,
    HResult.STATUS_SHARING_VIOLATION: 409, HResult.MQ_ERROR_TRANSACTION_USAGE: 409,
    HResult.MQ_ERROR_TRANSACTION_SEQUENCE: 409,
    HResult.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION: 409,
    HResult.MQ_ERROR_IO_TIMEOUT: 504, HResult.MQ_ERROR_SERVICE_NOT_AVAILABLE: 503,
    HResult.MQ_ERROR_INSUFFICIENT_RESOURCES: 507, HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED: 507,
    HResult.MQ_ERROR: 500,
}  # fmt: skip


class Problem(Exception):
    """An error response. `errors` maps JSON pointers or parameter names to sentences."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        hresult: int | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hresult = status, detail, hresult
        self.errors, self.headers, self.extra = dict(errors or {}), dict(headers or {}), extra

    def document(self, request_id: str) -> dict[str, Any]:
        """Return the members of the document. `type` is a page of this server."""
        found: dict[str, Any] = {
            "type": f"/problems/{self.status}", "title": _TITLES.get(self.status, "Error"), "status": self.status,
            "detail": printable(self.detail), "request_id": request_id,
        }  # fmt: skip
        if self.hresult is not None:
            found["hresult"] = f"0x{self.hresult:08X}"
        if self.errors:
            found["errors"] = [{"pointer": at, "detail": printable(text)} for at, text in self.errors.items()]
        return found | self.extra


def explained(status: int) -> str | None:
    """Return the title of a status; None for a status that is not used."""
    return _TITLES.get(status)


def of_error(error: MsmqError) -> Problem:
    """Convert an error of the queue manager to a Problem."""
    status = 422
    for hresult, known in _STATUSES.items():
        if error.hresult == hresult:
            status = known
    return Problem(status, str(error), hresult=error.hresult)
