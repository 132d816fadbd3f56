"""Pages of the console for one queue: its messages, journal, subqueues, activity, readers, rights and settings."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openmsmq.actions import handles, messages, permissions, queues, resending
from openmsmq.actions.queues import QueueDetails, QueueView, queue_of
from openmsmq.actions.table import Action, Input
from openmsmq.console import charts
from openmsmq.console.callers import WebCaller
from openmsmq.console.charts import Drawn, Subject
from openmsmq.console.derived import body_of, handler_of, operation_of
from openmsmq.console.forms import converted, inputs, whole
from openmsmq.console.messages import MessageExport, changes_in, export, resending_form
from openmsmq.console.pages import Console, link_to, shown_query, where_of
from openmsmq.console.queue_history import PastRange, step_of
from openmsmq.console.table import parse_query
from openmsmq.console.tiles import Tile, even_times, evenly, flow_of, tiles_of
from openmsmq.console.wording import quoted
from openmsmq.model.errors import MsmqError
from openmsmq.model.reasons import REASONS
from openmsmq.model.rights import QUEUE_RIGHTS

#: Frequently granted rights -> labels of their buttons.
_USUAL: Final = {
    "WriteMessage": "Send", "ReceiveMessage": "Receive", "PeekMessage": "Read", "FullControl": "Everything",
}  # fmt: skip
_CHANGES: Final = {"grant": "Grant", "revoke": "Revoke granted rights", "deny": "Deny", "undeny": "Revoke a denial"}
_ABOUT_FIGURES: Final = ("queue.html", "queue_activity.html")
_VIEWS: Final = {"auto": "As it is", "json": "JSON", "xml": "XML", "text": "Text", "hex": "Hex"}
_AGES: Final = {600: "10 minutes", 3600: "hour", 86400: "day"}  # seconds
#: Usual combinations of acknowledgment bits ([MS-MQMP] 2.2.3.2) -> their descriptions.
_ACKNOWLEDGMENTS: Final = {
    0: "none", 4: "failure to reach the queue", 12: "failure to be received", 5: "reaching the queue, or not",
    14: "being received, or not",
}  # fmt: skip
_LOOK: Final = handler_of(messages.get_message)
_RANGES: Final = {"10m": "Ten minutes", "1h": "An hour", "24h": "A day"}
#: Properties in the form of settings.
_SETTINGS: Final = tuple(name for name in queues.QueueChange.__struct_fields__ if name != "queue")
_PRIVACY: Final = {0: "clear bodies only", 1: "both", 2: "encrypted bodies only"}
_DEPTH: Final = Subject("Messages", "", (Drawn("messages", "messages", mean=False, look="depth"),))
_FLOW: Final = Subject("Messages a second", "/s", (Drawn("came", "came"), Drawn("left", "left", look="out")))


class ActivityQuery(Input, frozen=True):
    """The time range to show."""

    range: PastRange = "10m"


class Tab(NamedTuple):
    """A tab of the pages of a queue."""

    text: str
    path: str
    current: bool
    number: int = 0


class QueueFrame(NamedTuple):
    """Parts common to all pages of a queue; `parent` is the queue whose journal or subqueue it is; `compact`: hide the
    tiles on narrow screens, because they are not the main content."""

    tiles: list[Tile]
    tabs: list[Tab]
    parent: QueueView | None
    compact: bool


class QueuePages:
    """Pages of the queues of one console."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self._services: Final = console.web.services
        show, change = console.page, console.form
        self.routes: Final = [
            Route("/queues/{queue}", show(self.messages), methods=["GET"]),
            Route("/queues/{queue}/messages/{lookup}", show(self._message), methods=["GET"]),
            Route("/queues/{queue}/messages/{lookup}/edit", show(self.edit), methods=["GET"]),
            Route("/queues/{queue}/messages/{lookup}/edit", change(self._resend, self.edit), methods=["POST"]),
            Route("/queues/{queue}/export", change(self._export, self.messages), methods=["POST"]),
            Route("/queues/{queue}/send", show(self.send), methods=["GET"]),
            Route("/queues/{queue}/subqueues", show(self._subqueues), methods=["GET"]),
            Route("/queues/{queue}/activity", show(self._activity), methods=["GET"]),
            Route("/queues/{queue}/readers", show(self._readers), methods=["GET"]),
            Route("/queues/{queue}/settings", show(self.settings), methods=["GET"]),
            Route("/queues/{queue}/rights", show(self.rights), methods=["GET"]),
            Route("/queues/{queue}/rights", change(self._change_rights, self.rights), methods=["POST"]),
        ]

        #: Path of a form -> the page that contains it, which is shown again if the form is refused.
        self.behind: Final = {
            "/queues/{queue}/send": self.send, "/queues/{queue}/settings": self.settings,
            "/queues/{queue}/purge": self.messages, "/queues/{queue}/delete": self.messages,
            "/outgoing/{queue}/delete": self.messages, "/plan": self._planned,
        }  # fmt: skip

    # -- common parts ----------------------------------------------------------------------------------------------

    async def _render(
        self, request: Request, caller: WebCaller, template: str, details: QueueDetails, tab: str, **values: Any
    ) -> Response:
        frame = await self._console.web.work(self._frame, details, caller, tab, template not in _ABOUT_FIGURES)
        values.setdefault("command", details.command)
        return await self._console.render(
            request, template, values.pop("title", details.queue.name), found=details, queue=details.queue, frame=frame,
            **values,
        )  # fmt: skip

    def _frame(self, details: QueueDetails, caller: WebCaller, tab: str, compact: bool) -> QueueFrame:
        queue = details.queue
        parent = self._parent(queue, caller)
        base = queue if parent is None or queue.kind != "journal" else parent
        root = f"/queues/{quoted(base.id)}"
        current = "Journal" if base is not queue else tab
        known = [("Messages", root, base.messages)]
        if base.kind == "queue":
            known += [("Journal", f"{root}j", base.journal_messages), ("Subqueues", f"{root}/subqueues", 0)]
        known.append(("Activity", f"{root}/activity", 0))
        if caller.administrator:
            known.append(("Readers and handles", f"{root}/readers", base.handles))
        if base.kind == "queue":
            known += [("Rights", f"{root}/rights", 0), ("Settings", f"{root}/settings", 0)]
        tabs = [Tab(text, where, text == current, count) for text, where, count in known]
        return QueueFrame(tiles_of(details, self._services.queue_history.of(queue.id)), tabs, parent, compact)

    def _parent(self, queue: QueueView, caller: WebCaller) -> QueueView | None:
        """Return the parent of a journal or subqueue; None if there is none or the user may not see it. The identifier
        of a journal is that of its queue followed by "j"; the name of a subqueue is that of its queue, a semicolon and
        a suffix."""
        if queue.kind == "journal" and queue.id != "journal":
            try:
                return queue_of(self._services.queue(caller.ticket, queue.id.removesuffix("j")))
            except MsmqError:
                return None
        if queue.kind != "subqueue":
            return None
        name = queue.name.rpartition(";")[0]
        rows = self._services.rows.of(caller.ticket)
        return next((queue_of(row) for row in rows if row["kind"] == "queue" and row["name"] == name), None)

    async def _details(self, request: Request, caller: WebCaller) -> QueueDetails:
        found: QueueDetails = await self._console.ask(handler_of(queues.get_queue), request, caller)
        return found

    # -- messages --------------------------------------------------------------------------------------------------

    async def messages(self, request: Request, caller: WebCaller) -> Response:
        """Show the messages of a queue."""
        query = shown_query(_query(messages.list_messages, request))
        details = await self._details(request, caller)
        page, refused = None, ""
        try:
            page = await self._console.ask(handler_of(messages.list_messages), request, caller, query=query)
        except MsmqError as error:
            refused = str(error)
        return await self._render(
            request, caller, "queue.html", details, "Messages", page=page, refused=refused,
            command=page.command if page is not None else details.command,
            query=query, **_links(details.queue, query),
        )  # fmt: skip

    async def _planned(self, request: Request, caller: WebCaller) -> Response:
        """Show the page of the queue that a form for a dry run names."""
        request.path_params["queue"] = request.state.form.get("queue", "")
        return await self.messages(request, caller)

    async def _message(self, request: Request, caller: WebCaller) -> Response:
        """Show a message next to the page of messages that contains it."""
        query, shown = shown_query(_query(messages.list_messages, request)), _query(messages.get_message, request)
        details = await self._details(request, caller)
        found = await self._console.ask(handler_of(messages.get_message), request, caller, query=shown)
        page = await self._console.ask(handler_of(messages.list_messages), request, caller, query=query)
        return await self._render(
            request, caller, "message.html", details, "Messages", page=page, message=found, command=found.command,
            title=f"{found.summary.label or 'Message'} in {details.queue.name}", query=query, view=shown.view,
            views=_VIEWS, **_links(details.queue, query),
        )  # fmt: skip

    async def edit(self, request: Request, caller: WebCaller) -> Response:
        """Show the form that resends a message, filled in with the values that can be changed."""
        details = await self._details(request, caller)
        found = await self._console.ask(resending_form, request, caller, like=_LOOK)
        return await self._render(
            request, caller, "resend.html", details, "Messages", message=found.details, filled=found.fields,
            is_text=found.is_text, to=found.to, acknowledgments=_ACKNOWLEDGMENTS,
            title=f"Send again: {found.details.summary.label or 'message'}",
            command=f"openmsmq msg resend {shlex.quote(details.queue.name)} --id "
            f"{shlex.quote(found.details.summary.id)} --edit",
        )  # fmt: skip

    async def _resend(self, request: Request, caller: WebCaller) -> Response:
        """Resend a message. Only changed values are passed, so that characters that a page cannot show are
        preserved."""
        shown = await self._console.ask(resending_form, request, caller, like=_LOOK)
        given = changes_in(request.state.form, shown.fields)
        values = inputs(resending.resend_message, given)
        done = await self._console.ask(handler_of(resending.resend_message), request, caller, **values)
        return await self._console.render(request, "resent.html", "Sent again", found=done, command=done.command)

    async def _export(self, request: Request, caller: WebCaller) -> Response:
        """Return the selected messages, or the first ones that match, as a file of JSON lines."""
        form = request.state.form
        where = {"ids": request.state.ids} if request.state.ids else where_of(form)
        first = {"first": whole(form["first"])} if form.get("first") and not request.state.ids else {}
        wanted = converted({"where": where, **first}, MessageExport)
        response: Response = await self._console.ask(export, request, caller, body=wanted, like=_LOOK)
        return response

    async def send(self, request: Request, caller: WebCaller) -> Response:
        """Show the form that sends a message."""
        details = await self._details(request, caller)
        return await self._render(request, caller, "send.html", details, "Messages")

    # -- other parts -----------------------------------------------------------------------------------------------

    async def _subqueues(self, request: Request, caller: WebCaller) -> Response:
        details = await self._details(request, caller)
        rows = await self._console.web.work(self._services.rows.of, caller.ticket)
        found = [
            queue_of(row) for row in rows
            if row["kind"] == "subqueue" and row["name"].startswith(f"{details.queue.name};")
        ]  # fmt: skip
        return await self._render(
            request, caller, "queue_subqueues.html", details, "Subqueues", subqueues=found,
            past=self._console.sparks(found),
        )  # fmt: skip

    async def _activity(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(ActivityQuery, request.query_params.multi_items())
        details = await self._details(request, caller)
        points = self._services.queue_history.of(details.queue.id, query.range)
        flow, step = flow_of(points), step_of(points)
        drawn = []
        if len(flow) > 1:
            at = [each[0] for each in flow]
            came, left = (evenly(at, [each[column] for each in flow], step) for column in (1, 2))
            depth = evenly([point.at for point in points], [point.messages for point in points], step)
            drawn = [
                charts.chart(_FLOW, even_times(at[0], len(came), step), [came, left]),
                charts.chart(_DEPTH, even_times(points[0].at, len(depth), step), [depth]),
            ]
        return await self._render(
            request, caller, "queue_activity.html", details, "Activity", charts=drawn, query=query,
            ranges=_RANGES, since=points[0].at if points else None, root=f"/queues/{quoted(details.queue.id)}/activity",
        )  # fmt: skip

    async def _readers(self, request: Request, caller: WebCaller) -> Response:
        details = await self._details(request, caller)
        query = handles.HandleQuery(queue=details.queue.id)
        opened = await self._console.ask(handler_of(handles.list_handles), request, caller, query=query)
        return await self._render(
            request, caller, "queue_readers.html", details, "Readers and handles", opened=opened, command=opened.command
        )

    async def settings(self, request: Request, caller: WebCaller) -> Response:
        """Show the properties of a queue, as a form if the user may change them."""
        details = await self._details(request, caller)
        current = {name: _field_text(details.properties.get(name)) for name in _SETTINGS}
        return await self._render(
            request, caller, "queue_settings.html", details, "Settings", privacy=_PRIVACY, current=current
        )

    # -- rights ----------------------------------------------------------------------------------------------------

    async def rights(self, request: Request, caller: WebCaller) -> Response:
        """Show the rights of users on a queue."""
        pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
        query = parse_query(operation_of(permissions.get_permissions).query, pairs)
        details = await self._details(request, caller)
        known = await self._console.ask(handler_of(permissions.get_permissions), request, caller, query=query)
        accounts = await self._console.web.work(partial(self._services.link.call, "accounts", ticket=caller.ticket))
        return await self._render(
            request, caller, "rights.html", details, "Rights", known=known, query=query, command=known.command,
            words=[right.word for right in QUEUE_RIGHTS], changes=_CHANGES, usual=_USUAL,
            accounts=[*permissions.WELL_KNOWN, *sorted(accounts.values())],
        )  # fmt: skip

    async def _change_rights(self, request: Request, caller: WebCaller) -> Response:
        """Show a dry run of a change of rights, with a form that makes the change."""
        form = request.state.form
        values = {
            "change": form.get("change"), "user": form.get("user"), "rights": [form.get("right", "")],
            "dry_run": "carry_out" not in form, "confirm": "confirm" in form,
        }  # fmt: skip
        change = converted(values, body_of(permissions.change_permissions))
        changed = await self._console.ask(handler_of(permissions.change_permissions), request, caller, body=change)
        details = await self._details(request, caller)
        if changed.done:
            text = f"{_CHANGES[change.change]}: {change.user}, {', '.join(change.rights)}. Done."
            return await self._render(
                request, caller, "rights_done.html", details, "Rights", said=text,
                command=changed.command,
            )  # fmt: skip
        return await self._render(
            request, caller, "rights_plan.html", details, "Rights", changed=changed, change=change,
            text=_CHANGES[change.change], command=changed.command,
        )  # fmt: skip


def _links(queue: QueueView, query: msgspec.Struct) -> dict[str, Any]:
    """Return functions that link to pages of messages, and to one message of the current page."""
    root = f"/queues/{quoted(queue.id)}"
    defaults = msgspec.structs.asdict(type(query)())
    given = msgspec.structs.asdict(query)
    kept = {name: value for name, value in given.items() if value != defaults[name]}
    searches = any(name not in ("limit", "cursor") for name in kept)

    def to_message(message: Any, **more: str) -> str:
        parameters = urlencode(kept | more)
        return f"{root}/messages/{quoted(message.lookup)}" + (f"?{parameters}" if parameters else "")

    return {
        "link": lambda **changes: link_to(root, query, **changes), "message_link": to_message, "searches": searches,
        "reasons": [reason.slug for reason in REASONS] if queue.kind == "deadletter" else [], "ages": _AGES,
    }  # fmt: skip


def _field_text(value: Any) -> str:
    """Return the text of a property in a form field: empty for none."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _query(row: Action, request: Request) -> Any:
    """Return the parameters of an action from a query that may also contain those of the other action on the page.
    Empty form fields are left out."""
    own = operation_of(row).query
    shared = {*operation_of(messages.list_messages).query.__struct_fields__, "view"} - {*own.__struct_fields__}
    given = request.query_params.multi_items()
    if request.method == "POST":  # a form of the page was refused
        given = [each for each in request.state.form.items() if each[0] in own.__struct_fields__]
    return parse_query(own, [(name, value) for name, value in given if value and name not in shared])
