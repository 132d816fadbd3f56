"""The console: pages made here. What they show and do is what the API shows and does. They work without scripts; the
one that there is brings figures and charts of the overview up to date.

Names, labels and bodies come from anybody. They reach a page by one way, the expressions of templates, which escape
HTML and make control characters, bidirectional and zero-width ones visible (`model.text.printable`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from openmsmq.actions import dead_letters, handles, messages, outgoing, permissions, queues, selections, transactions
from openmsmq.actions.alarms import list_alarms
from openmsmq.actions.series import SeriesQuery
from openmsmq.admin.acting import HAS_NO_TARGET
from openmsmq.admin.series import Rates
from openmsmq.admin.series import shown as figure
from openmsmq.console import account, charts, problems
from openmsmq.console.application import Web, peer_of
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import body_of, handler_of, may_see_figures, operation_of
from openmsmq.console.forms import FORMS, PageForm, converted, inputs, whole
from openmsmq.console.problems import Problem
from openmsmq.console.table import WebRequest, parse_query
from openmsmq.model.errors import MsmqError
from openmsmq.model.rights import QUEUE_RIGHTS
from openmsmq.model.roles import Role
from openmsmq.model.text import printable, time_text

_MOST_FIELDS: Final = 60
_STATIC: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
_CHANGES: Final = {"grant": "Grant", "revoke": "Revoke what was granted", "deny": "Deny", "undeny": "Revoke a denial"}
_NOTHING_YET: Final = Rates(0.0, 0, 0.0, 0.0, 0.0, None, None, None)
Page = Callable[[Request, WebCaller], Awaitable[Response]]


class Console:
    """The pages of one application."""

    def __init__(self, web: Web) -> None:
        self._web: Final = web
        self._templates: Final = jinja2.Environment(
            loader=jinja2.PackageLoader("openmsmq.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "time": _time, "number": lambda value: f"{value:,}", "figure": figure, "json": _json,
            "quoted": _quoted,
        }  # fmt: skip
        show, change = self.looking, self.changing
        self.routes: Final = [
            Route("/", show(self._overview), methods=["GET"]),
            Route("/login", self._answering(self._login_page), methods=["GET"]),
            Route("/login", self._answering(self._login), methods=["POST"]),
            Route("/logout", change(self._logout), methods=["POST"]),
            Route("/queues", show(self._queues), methods=["GET"]),
            Route("/queues/{queue}", show(self._queue), methods=["GET"]),
            Route("/queues/{queue}/rights", show(self._rights), methods=["GET"]),
            Route("/queues/{queue}/rights", change(self._change_rights), methods=["POST"]),
            Route("/queues/{queue}/messages/{lookup}", show(self._message), methods=["GET"]),
            Route("/deadletters", show(self._deadletters), methods=["GET"]),
            Route("/outgoing", show(self._outgoing), methods=["GET"]),
            Route("/alarms", show(self._alarms), methods=["GET"]),
            Route("/handles", show(self._handles), methods=["GET"]),
            Route("/transactions", show(self._transactions), methods=["GET"]),
            Route("/transactions/{transaction}", show(self._transaction), methods=["GET"]),
            Route("/plan", change(self._plan), methods=["POST"]),
            Route("/carry-out", change(self._carry_out), methods=["POST"]),
            *(Route(form.path, change(partial(self._filled, form)), methods=["POST"]) for form in FORMS),
            *(self._static(name, media_type) for name, media_type in _STATIC.items()),
        ]

    # -- what is the same of all pages -----------------------------------------------------------------------------

    def looking(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def look(request: Request) -> Response:
            try:
                caller = await self._web.caller(request)
            except Problem as problem:
                if problem.status != 401:
                    raise
                back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"/login?{urlencode({'next': back})}", 303)
            return await page(request, caller)

        return self._answering(look)

    def changing(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def change(request: Request) -> Response:
            caller = await self._web.caller(request)
            request.state.form = form = await self._form(request)
            self._web.demand_own_page(request, caller.session, form.pop("csrf", None))
            return await page(request, caller)

        return self._answering(change)

    def _answering(self, work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """The same, but what it raises becomes a page."""

        async def answer(request: Request) -> Response:
            try:
                return await work(request)
            except Problem as error:
                problem = error
            except MsmqError as error:
                problem = problems.of_error(error)
            document = problem.document(request.scope["state"]["request_id"])
            response = self.render("problem.html", None, document["title"], problem=document)
            response.status_code = problem.status
            response.headers.update(problem.headers)
            return response

        return self._web.endpoint(answer)

    async def _form(self, request: Request) -> dict[str, str]:
        """The fields of a form, each once. Raises Problem."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Problem(415, "a form has to be application/x-www-form-urlencoded")
        data = await self._web.read(request)
        try:
            pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        except (ValueError, UnicodeDecodeError) as error:
            raise Problem(400, f"that is no form: {error}") from None
        return dict(pairs)

    def render(self, template: str, caller: WebCaller | None, title: str, **values: Any) -> HTMLResponse:
        csrf = caller.session.csrf if caller is not None and caller.session is not None else ""
        text = self._templates.get_template(template).render(
            title=title, user=caller.name if caller is not None else None, csrf=csrf,
            machine=self._web.services.settings.hosts[0], administrator=caller is not None and caller.administers,
            manages=caller is not None and caller.administrator,
            operates=caller is not None and caller.role >= Role.OPERATOR,
            administers=caller is not None and caller.role >= Role.ADMINISTRATOR, **values,
        )  # fmt: skip
        return HTMLResponse(text)

    async def ask(self, handler: Callable[[WebRequest], Any], request: Request, caller: WebCaller, **given: Any) -> Any:
        self._web.demand_role(handler, caller)
        asked = WebRequest(self._web.services, caller, dict(request.path_params), given.get("query"), given.get("body"))
        return await self._web.work(handler, asked)

    # -- logging in ------------------------------------------------------------------------------------------------

    async def _login_page(self, request: Request) -> Response:
        return self.render("login.html", None, "Log in", next=_own_path(request.query_params.get("next")), wrong=None)

    async def _login(self, request: Request) -> Response:
        form = await self._form(request)
        self._web.demand_own_page(request, None, None)
        after = _own_path(form.get("next"))
        try:
            given = msgspec.convert({name: form.get(name, "") for name in ("user", "password")}, account.LoginRequest)
            secret, _ = await self._web.work(account.begin, self._web.services, given, peer_of(request))
        except (Problem, msgspec.ValidationError) as error:
            status = error.status if isinstance(error, Problem) else 401
            wrong = error.detail if isinstance(error, Problem) else "a name and a password are needed"
            response: Response = self.render("login.html", None, "Log in", next=after, wrong=wrong)
            response.status_code = status
            return response
        response = RedirectResponse(after, 303)
        account.set_cookie(response, self._web.services.settings, secret)
        return response

    async def _logout(self, request: Request, caller: WebCaller) -> Response:
        if caller.session is not None:
            self._web.services.sessions.close(caller.session)
        response = RedirectResponse("/login", 303)
        account.set_cookie(response, self._web.services.settings, "")
        return response

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _overview(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(SeriesQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(queues.overview), request, caller)
        on = await self.ask(handler_of(list_alarms), request, caller)
        shown = may_see_figures(WebRequest(self._web.services, caller))
        rates = self._web.services.history.rates(query.range) if shown else []
        return self.render(
            "overview.html", caller, "Overview", found=found, alarms=on.active, query=query, command=found.command,
            charts=charts.charts(rates), step=charts.seconds_of_a_point(rates),
            now=(rates[-1] if rates else _NOTHING_YET) if shown else None,
        )  # fmt: skip

    async def _queues(self, request: Request, caller: WebCaller) -> Response:
        pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
        query = parse_query(queues.ListQuery, pairs)
        found = await self.ask(handler_of(queues.list_queues), request, caller, query=query)
        return self.render(
            "queues.html", caller, "Queues", found=found, query=query, command=found.command,
            link=lambda **changes: _link("/queues", query, **changes),
        )  # fmt: skip

    async def _queue(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(operation_of(messages.list_messages).query, request.query_params.multi_items())
        details = await self.ask(handler_of(queues.get_queue), request, caller)
        page, refused = None, ""
        try:
            page = await self.ask(handler_of(messages.list_messages), request, caller, query=query)
        except MsmqError as error:
            refused = str(error)
        return self.render(
            "queue.html", caller, details.queue.name, found=details, queue=details.queue, page=page, refused=refused,
            command=page.command if page is not None else details.command,
            link=lambda **changes: _link(f"/queues/{details.queue.id}", query, **changes),
        )  # fmt: skip

    async def _message(self, request: Request, caller: WebCaller) -> Response:
        details = await self.ask(handler_of(queues.get_queue), request, caller)
        found = await self.ask(handler_of(messages.get_message), request, caller)
        title = f"{found.summary.label or 'Message'} in {details.queue.name}"
        return self.render(
            "message.html", caller, title, found=found, queue=details.queue, command=found.command
        )  # fmt: skip

    async def _deadletters(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(dead_letters.GroupsQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(dead_letters.list_groups), request, caller, query=query)
        return self.render("deadletters.html", caller, "Dead letters", found=found, command=found.command)

    async def _outgoing(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(outgoing.list_outgoing), request, caller)
        return self.render("outgoing.html", caller, "Outgoing queues", found=found, command=found.command)

    async def _alarms(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(list_alarms), request, caller)
        return self.render("alarms.html", caller, "Alarms", found=found, command=found.command)

    async def _handles(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(handles.HandleQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(handles.list_handles), request, caller, query=query)
        return self.render("handles.html", caller, "Open queues", found=found, query=query, command=found.command)

    async def _transactions(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(transactions.DistributedTransactionQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(transactions.list_transactions), request, caller, query=query)
        return self.render("transactions.html", caller, "Transactions", found=found, command=found.command)

    async def _transaction(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(transactions.get_transaction), request, caller)
        it = found.transaction
        return self.render("transaction.html", caller, f"Transaction {it.id}", it=it, command=found.command)

    def _static(self, name: str, media_type: str) -> Route:
        content = (files("openmsmq.console") / "static" / name).read_bytes()

        async def give(request: Request) -> Response:
            return Response(content, media_type=media_type)

        return Route(f"/static/{name}", self._answering(give), methods=["GET"])

    # -- changing --------------------------------------------------------------------------------------------------

    async def _filled(self, form: PageForm, request: Request, caller: WebCaller) -> Response:
        done = await self.ask(handler_of(form.row), request, caller, **inputs(form.row, request.state.form))
        if isinstance(form.after, str):
            named = {name: quote(value, safe="") for name, value in request.path_params.items()}
            return RedirectResponse(form.after.format(**{"id": getattr(done, "id", ""), **named}), 303)
        return self.render("done.html", caller, "Done", said=form.after(done), command=done.command)

    async def _rights(self, request: Request, caller: WebCaller) -> Response:
        pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
        query = parse_query(operation_of(permissions.get_permissions).query, pairs)
        found = await self.ask(handler_of(permissions.get_permissions), request, caller, query=query)
        accounts = await self._web.work(partial(self._web.services.link.call, "accounts", ticket=caller.ticket))
        return self.render(
            "rights.html", caller, "Rights", found=found, query=query, command=found.command,
            words=[right.word for right in QUEUE_RIGHTS], queue=request.path_params["queue"], changes=_CHANGES,
            accounts=[*permissions.WELL_KNOWN, *sorted(accounts.values())],
        )  # fmt: skip

    async def _change_rights(self, request: Request, caller: WebCaller) -> Response:
        """A dry run, and its page has the form that does it."""
        form = request.state.form
        values = {
            "change": form.get("change"), "user": form.get("user"), "rights": [form.get("right", "")],
            "dry_run": "carry_out" not in form, "confirm": "confirm" in form,
        }  # fmt: skip
        change = converted(values, body_of(permissions.change_permissions))
        found = await self.ask(handler_of(permissions.change_permissions), request, caller, body=change)
        if found.done:
            return RedirectResponse(f"/queues/{quote(request.path_params['queue'], safe='')}/rights", 303)
        return self.render(
            "rights_plan.html", caller, "Dry run", found=found, change=change, text=_CHANGES[change.change],
            queue=request.path_params["queue"], command=found.command,
        )  # fmt: skip

    async def _plan(self, request: Request, caller: WebCaller) -> Response:
        """A dry run of what a form asks for; its page has the form that does it."""
        plan = _plan_of(request.state.form)
        found = await self.ask(handler_of(selections.dry_run), request, caller, body=plan)
        return self.render("plan.html", caller, "Dry run", found=found, plan=plan, command=found.command)

    async def _carry_out(self, request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        values = {"selection": form.get("selection", ""), "count": whole(form.get("count", ""))}
        order = converted(values, selections.Order)
        found = await self.ask(handler_of(selections.operate), request, caller, body=order)
        return self.render("result.html", caller, "Result", found=found, command=found.command)


def _plan_of(form: Mapping[str, str]) -> selections.PlanRequest:
    """Raises Problem."""
    given = {name: value for name, value in form.items() if value}
    where: dict[str, Any] = {name: given[name] for name in ("label", "reason", "destination", "text") if name in given}
    if "id" in given:
        where["ids"] = [given["id"]]
    values: dict[str, Any] = {
        "act": given.get("act"), "queue": given.get("queue"), "where": where, "all": not where,
        "changes": {"time_to_be_received": whole(given["ttl"])} if "ttl" in given else {},
    }  # fmt: skip
    if "to" in given and given.get("act") not in HAS_NO_TARGET:
        values["to"] = given["to"]
    plan: selections.PlanRequest = converted(values, selections.PlanRequest)
    return plan


def _link(path: str, query: msgspec.Struct, **changes: Any) -> str:
    """The same page with other parameters; what has its default is left out."""
    values = msgspec.structs.asdict(msgspec.structs.replace(query, **changes))
    defaults = msgspec.structs.asdict(type(query)())
    given = {name: value for name, value in values.items() if value != defaults[name]}
    text = urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()})
    return f"{path}?{text}" if text else path


def _own_path(text: str | None) -> str:
    """Where to go after a login: a path of this server, or its first page."""
    own = text is not None and text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if own and text is not None else "/"


def _shown(value: Any) -> Any:
    """For each expression of each template."""
    return printable(value, multiline=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _time(seconds: int | None) -> str:
    return time_text(seconds) if seconds else ""


def _json(values: list[float | None]) -> str:
    return msgspec.json.encode([None if value is None else round(value, 3) for value in values]).decode()


def _quoted(text: str) -> str:
    """For a path of a link."""
    return quote(text, safe="")
