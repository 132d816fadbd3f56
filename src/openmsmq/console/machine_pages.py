"""Pages of the console for the audit log and the settings of the daemon."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openmsmq.actions import audit, settings
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import handler_of, operation_of
from openmsmq.console.pages import Console, Page, link_to
from openmsmq.console.table import parse_query


class MachinePages:
    """Pages of the machine of one console."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self.routes: Final = [
            Route("/audit", console.page(self._audit), methods=["GET"]),
            Route("/settings", console.page(self._settings), methods=["GET"]),
        ]
        self.behind: Final[dict[str, Page]] = {}  # these pages have no forms that change anything

    async def _audit(self, request: Request, caller: WebCaller) -> Response:
        pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
        query = parse_query(operation_of(audit.list_records).query, pairs)
        found = await self._console.ask(handler_of(audit.list_records), request, caller, query=query)
        following = int(found.records[-1].seq) if len(found.records) == query.limit else None
        return await self._console.render(
            request, "audit.html", "Audit log", found=found, query=query, command=found.command,
            older=link_to("/audit", query, before=following) if following is not None and following > 1 else None,
            newest=link_to("/audit", query, before=None),
        )  # fmt: skip

    async def _settings(self, request: Request, caller: WebCaller) -> Response:
        pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
        query = parse_query(operation_of(settings.list_settings).query, pairs)
        found = await self._console.ask(handler_of(settings.list_settings), request, caller, query=query)
        return await self._console.render(
            request, "settings.html", "Settings", found=found, query=query, command=found.command
        )
