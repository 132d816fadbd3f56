"""The bytes of a body, for a file: no browser shows them."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from openmsmq.actions.messages import NamedMessage, get_message, message_at
from openmsmq.console.derived import action_errors, site_of
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.roles import Role


def get_body(asked: WebRequest) -> Response:
    with action_errors(get_message), site_of(get_message, asked) as site:
        message = message_at(site, asked.path["lookup"])
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="message-{message.lookup_identifier}.bin"'},
    )


OPERATIONS: Final = (
    HttpOperation(
        "GET", "/queues/{queue}/messages/{lookup}/body", get_body, "The bytes of a body",
        media_type="application/octet-stream", statuses=(404, 409), role=Role.OPERATOR, path_fields=NamedMessage,
    ),
)  # fmt: skip
