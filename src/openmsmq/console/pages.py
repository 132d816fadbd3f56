"""The console: server-side rendered pages with the functions of the API.

Pages work without scripts. The two scripts refresh figures and charts, and add a theme, keyboard shortcuts and copying.

Names, labels and bodies are untrusted. They reach a page only through template expressions, which escape HTML and make
control, bidirectional and zero-width characters visible (`model.text.printable`). Values of form fields are escaped,
but otherwise unchanged (`wording.exact`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Any, Final, cast
from urllib.parse import parse_qsl, quote, urlencode

import jinja2
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from openmsmq import __version__
from openmsmq.actions import dead_letters, handles, jobs, messages, outgoing, queues, selections, transactions
from openmsmq.actions.alarms import KnownAlarm, list_alarms
from openmsmq.actions.queues import QueueView, queue_of
from openmsmq.actions.series import SeriesQuery
from openmsmq.admin.acting import HAS_NO_TARGET
from openmsmq.admin.naming import DEAD_LETTER_QUEUES
from openmsmq.admin.series import Rates
from openmsmq.console import account, charts, navigation, problems, wording
from openmsmq.console.application import Web, peer_of, problem_response
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import body_of, handler_of, may_see_figures
from openmsmq.console.forms import FORMS, SHOWN, PageForm, changed_fields, converted, inputs, whole
from openmsmq.console.message_search import find_message, parse_identifier
from openmsmq.console.problems import Problem
from openmsmq.console.table import WebRequest, parse_query
from openmsmq.console.tiles import depth_of, overview_tiles
from openmsmq.model.errors import MsmqError
from openmsmq.model.look import look_css
from openmsmq.model.roles import Role
from openmsmq.model.text import as_unicode

_MOST_FIELDS: Final = 600
_STATIC: Final = {
    "style.css": "text/css", "live.js": "text/javascript", "console.js": "text/javascript", "icon.svg": "image/svg+xml",
    "login-link.js": "text/javascript",
}  # fmt: skip
_THEME: Final = "openmsmq-theme"  # cookie that console.js sets
_HIDDEN: Final = "openmsmq-hidden"  # cookie that console.js sets: hidden columns of the queue table, dot-separated
_COLUMNS: Final = {
    "size": "Size", "quota": "Of quota", "past": "10 minutes", "growth": "Growth", "readers": "Readers",
    "state": "State",
}  # fmt: skip
_KEPT: Final = "kept_"  # prefix of form fields that are kept during a login
SECRETS: Final = ("csrf", "password", "current")  # fields that are not kept: the CSRF token and passwords
_UNSEEN: Final = ("id", "selection", "queue", "act", "lookup", "about", "sure")  # fields that are not typed by the user
_THEMES: Final = ("light", "dark")
PAGE_ROWS: Final = 100
_NOTHING_YET: Final = Rates(0.0, 0, 0.0, 0.0, 0.0, None, None, None)
_WHERE: Final = ("find", "label", "reason", "destination", "text")  # fields of a plan that are text filters
_AGES: Final = ("older", "newer")
_PLANNED: Final = ("act", "queue", *_WHERE, *_AGES, "first", "to", "ttl")
Page = Callable[[Request, WebCaller], Awaitable[Response]]


class Console:
    """The pages of the console."""

    def __init__(self, web: Web) -> None:
        self.web: Final = web
        self._templates: Final = jinja2.Environment(
            loader=jinja2.PackageLoader("openmsmq.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=wording.shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= wording.FILTERS
        show, change = self.page, self.form
        self.routes: Final[list[Route]] = [
            Route("/", show(self._overview), methods=["GET"]),
            Route("/login", self.with_error_pages(self._login_page), methods=["GET"]),
            Route("/login", self.with_error_pages(self._login), methods=["POST"]),
            Route("/login-link", self.with_error_pages(self._link_page), methods=["GET"]),
            Route("/login-link", self.with_error_pages(self._login_by_link), methods=["POST"]),
            Route("/logout", change(self._logout), methods=["POST"]),
            Route("/queues", show(self._queues), methods=["GET"]),
            Route("/find", show(self._find), methods=["GET"]),
            Route("/new-queue", show(self._new_queue), methods=["GET"]),
            Route("/deadletters", show(self._deadletters), methods=["GET"]),
            Route("/outgoing", show(self._outgoing), methods=["GET"]),
            Route("/handles", show(self._handles), methods=["GET"]),
            Route("/jobs", show(self._jobs), methods=["GET"]),
            Route("/jobs/{job}", show(self._job), methods=["GET"]),
            Route("/transactions", show(self._transactions), methods=["GET"]),
            Route("/transactions/{transaction}", show(self._transaction), methods=["GET"]),
            Route("/carry-out", change(self._carry_out, self._plan), methods=["POST"]),
            Route("/in-background", change(self._start_job, self._plan), methods=["POST"]),
            *(self._static(name, media_type) for name, media_type in _STATIC.items()),
        ]
        #: Path of a form -> the page that contains it, which is shown again if the form is refused.
        self.behind: Final[dict[str, Page]] = {
            "/queues": self._new_queue, "/outgoing/{queue}/pause": self._outgoing,
            "/outgoing/{queue}/resume": self._outgoing, "/handles/{handle}/close": self._handles,
            "/transactions/{transaction}/resolve": self._transaction,
            **{f"/jobs/{{job}}/{act}": self._job for act in ("pause", "resume", "cancel")},
        }  # fmt: skip

    # -- common to all pages ---------------------------------------------------------------------------------------

    def page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page. Without a login, it redirects to the login form."""

        async def look(request: Request) -> Response:
            try:
                request.state.caller = caller = await self.web.caller(request)
            except Problem as problem:
                if problem.status != 401:
                    raise
                back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"/login?{urlencode({'next': back})}", 303)
            return await page(request, caller)

        return self.with_error_pages(look)

    def form(self, page: Page, behind: Page | None = None) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a form. If the form is refused, its page `behind` is shown again with the error and
        the typed values."""

        async def change(request: Request) -> Response:
            try:
                request.state.caller = caller = await self.web.caller(request)
            except Problem as refused:
                if refused.status != 401:
                    raise
                if request.url.path == "/logout":
                    return RedirectResponse("/login", 303)
                return await self._login_over(request, refused)
            request.state.form = form = await self._form(request)
            token = form.pop("csrf", None)
            try:
                self.web.demand_own_page(request, caller.session, token)
            except Problem:
                if not token:
                    raise
                return await self._former_login(request)
            try:
                return await page(request, caller)
            except Problem as error:
                problem = error
            except MsmqError as error:
                problem = problems.of_error(error)
            if behind is None:
                raise problem
            request.state.problem = problem.document(request.scope["state"]["request_id"])
            try:
                response = await behind(request, caller)
            except (Problem, MsmqError):
                del request.state.problem
                raise problem from None
            response.status_code = problem.status
            response.headers.update(problem.headers)
            return response

        return self.with_error_pages(change)

    async def _login_over(self, request: Request, problem: Problem) -> Response:
        """Answer a form that was sent after the end of the login: show a login form that keeps the typed values."""
        self.web.demand_own_page(request, None, None)
        await self._form(request)
        kept = _kept(request.state.pairs)
        response = await self.login_form(request, next_="/", again=request.url.path, kept=kept)
        response.status_code = problem.status
        response.headers.update(problem.headers)
        return response

    async def _former_login(self, request: Request) -> Response:
        """Answer a form whose token belongs to a former login, as after a login in another tab: show what was typed, to
        be sent again. Raises Problem for a page of another site."""
        self.web.demand_own_page(request, None, None)
        response = await self._again(request, request.url.path, _kept(request.state.pairs), is_former=True)
        response.status_code = 403
        return response

    async def _again(
        self, request: Request, path: str, kept: Sequence[tuple[str, str]], *, is_former: bool = False
    ) -> Response:
        """Show the fields of a form that was not carried out, to be sent again."""
        return await self.render(
            request, "again.html", "Send again", path=path, kept=kept, unseen=_is_unseen, is_former=is_former
        )

    async def login_form(
        self, request: Request, *, next_: str, wrong: str | None = None, name: str = "", again: str | None = None,
        kept: Sequence[tuple[str, str]] = (),
    ) -> Response:  # fmt: skip
        """Show the login form. If another form was sent after the end of the login, `again` is its path and `kept` are
        its fields."""
        title = "Log in" if again is None else "Log in again"
        return await self.render(
            request, "login.html", title, next=next_, wrong=wrong, name=name, again=again, kept=kept,
            openid=self.web.services.settings.openid,
        )  # fmt: skip

    def with_error_pages(
        self, work: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler so that its exceptions become pages, with the navigation of the logged-in user."""

        async def answer(request: Request) -> Response:
            try:
                return await work(request)
            except ClientDisconnect:
                raise
            except Exception as error:
                problem = self.web.problem_of(error, request)
            document = problem.document(request.scope["state"]["request_id"])
            try:
                response = await self.render(request, "problem.html", document["title"], failed=document)
            except (MsmqError, ConnectionError):  # the numbers of the navigation come from the queue manager
                request.state.caller = None
                response = await self.render(request, "problem.html", document["title"], failed=document)
            response.status_code = problem.status
            response.headers.update(problem.headers)
            return response

        return self.web.endpoint(answer)

    async def missing(self, request: Request, error: Exception) -> Response:
        """Answer a request for an unknown path or method: with a page, but with JSON for the API."""
        status = getattr(error, "status_code", 404)
        problem = Problem(status, f"{request.method} {request.url.path[:200]}: {problems.explained(status)}",
                          headers=getattr(error, "headers", None))  # fmt: skip
        if request.url.path.startswith("/api/"):
            return problem_response(problem, request)

        async def fail(request: Request) -> Response:
            with suppress(Problem):  # without a login, the page has no navigation
                request.state.caller = await self.web.caller(request)
            raise problem

        return await self.with_error_pages(fail)(request)

    async def _form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form, one value each; `request.state.ids` gets all values of `id`. Raises Problem."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Problem(415, "the content type of a form must be application/x-www-form-urlencoded")
        data = await self.web.read(request)
        try:
            pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        except (ValueError, UnicodeDecodeError) as error:
            raise Problem(400, f"not a valid form: {error}") from None
        request.state.pairs = pairs
        request.state.ids = [value for name, value in pairs if name == "id" and value]
        return dict(pairs)

    async def render(self, request: Request, template: str, title: str, **values: Any) -> HTMLResponse:
        """Render a page for the logged-in user. If a form was refused, the template also gets the reason `problem`, the
        values `typed`, and the path `posted` of the form."""
        state, services = request.state, self.web.services
        caller: WebCaller | None = getattr(state, "caller", None)
        problem = getattr(state, "problem", None)
        links = []
        if caller is not None:
            counts = await self.web.work(navigation.counts_of, services, caller)
            links = navigation.links(request.url.path, counts, caller)
        theme = request.cookies.get(_THEME)
        text = self._templates.get_template(template).render(
            title=title, user=caller.name if caller is not None else None,
            csrf=caller.session.csrf if caller is not None and caller.session is not None else "",
            machine=services.settings.hosts[0], version=__version__, links=links,
            theme=theme if theme in _THEMES else None,
            problem=problem, typed=state.form if problem is not None else {},
            posted=request.url.path if problem is not None else None,
            administrator=caller is not None and caller.administers,
            manages=caller is not None and caller.administrator,
            operates=caller is not None and caller.role >= Role.OPERATOR,
            administers=caller is not None and caller.role >= Role.ADMINISTRATOR, **values,
        )  # fmt: skip
        return HTMLResponse(as_unicode(text))

    async def ask(self, handler: Callable[[WebRequest], Any], request: Request, caller: WebCaller, **given: Any) -> Any:
        """Call a handler and return its answer. If `handler` does not belong to an operation, `like` is the handler of
        the operation whose role is required."""
        self.web.demand_role(given.get("like", handler), caller)
        asked = WebRequest(self.web.services, caller, dict(request.path_params), given.get("query"), given.get("body"))
        return await self.web.work(handler, asked)

    # -- logging in ------------------------------------------------------------------------------------------------

    async def _login_page(self, request: Request) -> Response:
        return await self.login_form(request, next_=own_path(request.query_params.get("next")))

    async def _login(self, request: Request) -> Response:
        form = await self._form(request)
        self.web.demand_own_page(request, None, None)
        after, again = own_path(form.get("next")), own_path(form["again"]) if form.get("again") else None
        kept = [(name[len(_KEPT) :], value) for name, value in request.state.pairs if name.startswith(_KEPT)]
        try:
            given = msgspec.convert({name: form.get(name, "") for name in ("user", "password")}, account.LoginRequest)
            secret, _ = await self.web.work(account.begin, self.web.services, given, peer_of(request))
        except (Problem, msgspec.ValidationError) as error:
            status = error.status if isinstance(error, Problem) else 401
            wrong = error.detail if isinstance(error, Problem) else "enter a user name and a password"
            response = await self.login_form(
                request, next_=after, wrong=wrong, name=form.get("user", ""), again=again, kept=kept
            )
            response.status_code = status
            return response
        response = RedirectResponse(after, 303)
        session = self.web.services.sessions.find(secret)
        if again is not None and session is not None:
            request.state.caller = await self.web.caller_of(session, peer_of(request))
            response = await self._again(request, again, kept)
        account.set_cookie(response, self.web.services.settings, secret, secure=self.web.is_secure(request))
        return response

    async def _link_page(self, request: Request) -> Response:
        return await self.render(request, "login_link.html", "Log in")

    async def _login_by_link(self, request: Request) -> Response:
        """Log in with a one-time link. Its secret is in the body of the request, so that no access log contains it."""
        form = await self._form(request)
        self.web.demand_own_page(request, None, None)
        secret = await self.web.work(
            account.begin_by_link, self.web.services, form.get("secret", "")[:256], peer_of(request)
        )
        response = RedirectResponse("/", 303)
        account.set_cookie(response, self.web.services.settings, secret, secure=self.web.is_secure(request))
        return response

    async def _logout(self, request: Request, caller: WebCaller) -> Response:
        if caller.session is not None:
            self.web.services.sessions.close(caller.session)
        response = RedirectResponse("/login", 303)
        account.set_cookie(response, self.web.services.settings, "", secure=self.web.is_secure(request))
        return response

    # -- views -----------------------------------------------------------------------------------------------------

    async def _overview(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(SeriesQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(queues.overview), request, caller)
        on = await self.ask(handler_of(list_alarms), request, caller)
        shown = may_see_figures(WebRequest(self.web.services, caller))
        rates = self.web.services.history.rates(query.range) if shown else []
        now = (rates[-1] if rates else _NOTHING_YET) if shown else None
        return await self.render(
            request, "overview.html", "Overview", found=found, query=query, command=found.command,
            alarms=await self.attention(caller, [alarm for alarm in on.active if alarm.silenced is None]),
            silenced=sum(alarm.silenced is not None for alarm in on.active),
            charts=charts.charts(rates), step=charts.seconds_of_a_point(rates), now=now,
            tiles=overview_tiles(found, rates, now), past=self.sparks([*found.growing, *found.fullest, *found.waiting]),
        )  # fmt: skip

    def sparks(self, shown: Sequence[QueueView]) -> dict[str, tuple[str, str]]:
        """Return small charts of the number of messages in the last ten minutes, by queue identifier."""
        history = self.web.services.queue_history
        return {queue.id: depth_of(history.of(queue.id)) for queue in shown}

    async def _queues(self, request: Request, caller: WebCaller) -> Response:
        pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
        query = shown_query(parse_query(queues.ListQuery, pairs))
        found = await self.ask(handler_of(queues.list_queues), request, caller, query=query)
        return await self.render(
            request, "queues.html", "Queues", found=found, query=query, command=found.command,
            link=lambda **changes: link_to("/queues", query, **changes), past=self.sparks(found.queues),
            columns=_COLUMNS,
            hidden_columns=[name for name in _COLUMNS if name in request.cookies.get(_HIDDEN, "").split(".")],
        )  # fmt: skip

    async def _find(self, request: Request, caller: WebCaller) -> Response:
        """Show the queue that has this name or, if there is only one, whose name contains it; the message with this
        identifier; or else a list of queues."""
        wanted = request.query_params.get("filter", "").strip()
        rows = await self.web.work(self.web.services.rows.of, caller.ticket)
        named, holding = found_by(wanted, rows)
        if wanted and (len(named) == 1 or len(holding) == 1):
            return RedirectResponse(f"/queues/{quote((named or holding)[0], safe='')}", 303)
        if (identifier := parse_identifier(wanted)) is not None:
            return await self._find_message(request, caller, identifier)
        return RedirectResponse(f"/queues?{urlencode({'filter': wanted})}" if wanted else "/queues", 303)

    async def _find_message(self, request: Request, caller: WebCaller, identifier: str) -> Response:
        self.web.demand_role(handler_of(messages.list_messages), caller)
        found = await self.web.work(find_message, WebRequest(self.web.services, caller), identifier)
        if not found.queue:
            return await self.render(request, "message_search.html", "No such message", found=found)
        place = f"/queues/{quote(found.queue, safe='')}"
        if found.lookup:
            return RedirectResponse(f"{place}/messages/{found.lookup}", 303)
        return RedirectResponse(f"{place}?{urlencode({'find': identifier})}", 303)

    async def _new_queue(self, request: Request, caller: WebCaller) -> Response:
        return await self.render(request, "new_queue.html", "New queue", command="openmsmq queue create NAME")

    async def _deadletters(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(dead_letters.GroupsQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(dead_letters.list_groups), request, caller, query=query)
        rows = await self.web.work(self.web.services.rows.of, caller.ticket)
        shown = [queue_of(row) for row in rows if row["id"] in DEAD_LETTER_QUEUES]
        return await self.render(
            request, "deadletters.html", "Dead letters", found=found, command=found.command, queues=shown,
            past=self.sparks(shown),
        )  # fmt: skip

    async def _outgoing(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(outgoing.list_outgoing), request, caller)
        return await self.render(request, "outgoing.html", "Outgoing queues", found=found, command=found.command)

    async def attention(self, caller: WebCaller, found: list[KnownAlarm]) -> list[tuple[KnownAlarm, dict[str, Any]]]:
        """Return alarms, each with its badge and the link to its remedy."""
        by_name = {row["name"]: row["id"] for row in await self.web.work(self.web.services.rows.of, caller.ticket)}
        return [(alarm, wording.attention(alarm, by_name.get(alarm.queue))) for alarm in found]

    async def _handles(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(handles.HandleQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(handles.list_handles), request, caller, query=query)
        return await self.render(
            request, "handles.html", "Open queues", found=found, query=query, command=found.command
        )

    async def _transactions(self, request: Request, caller: WebCaller) -> Response:
        query = parse_query(transactions.DistributedTransactionQuery, request.query_params.multi_items())
        found = await self.ask(handler_of(transactions.list_transactions), request, caller, query=query)
        return await self.render(request, "transactions.html", "Transactions", found=found, command=found.command)

    async def _transaction(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(transactions.get_transaction), request, caller)
        it = found.transaction
        return await self.render(request, "transaction.html", f"Transaction {it.id}", it=it, command=found.command)

    async def _jobs(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(jobs.list_jobs), request, caller)
        return await self.render(request, "jobs.html", "Jobs", jobs=found.jobs, command=found.command)

    async def _job(self, request: Request, caller: WebCaller) -> Response:
        found = await self.ask(handler_of(jobs.get_job), request, caller)
        it = found.job
        return await self.render(request, "job.html", f"Job {it.id}", it=it, command=found.command)

    def _static(self, name: str, media_type: str) -> Route:
        content = (files("openmsmq.console") / "static" / name).read_bytes()
        if name == "style.css":
            content = look_css().encode() + content

        async def give(request: Request) -> Response:
            return Response(content, media_type=media_type)

        return Route(f"/static/{name}", self.with_error_pages(give), methods=["GET"])

    # -- changes ---------------------------------------------------------------------------------------------------

    def forms(self, pages: Mapping[str, Page]) -> list[Route]:
        """Return routes of the forms that run one action each, and of the form that plans an action on many messages.
        `pages` maps the path of a form to its page, which is shown again if the form is refused."""
        return [
            Route("/plan", self.form(self._plan, pages.get("/plan")), methods=["POST"]),
            *(
                Route(form.path, self.form(partial(self._filled, form), pages.get(form.path)), methods=["POST"])
                for form in FORMS
            ),
        ]

    async def _filled(self, form: PageForm, request: Request, caller: WebCaller) -> Response:
        if form.question is not None and "sure" not in request.state.form:
            return await self.render(
                request, "question.html", form.question.answer, question=form.question, path=request.url.path,
                about=request.state.form.get("about", ""), back=form.after,
            )  # fmt: skip
        given, done = changed_fields(request.state.form), cast(Any, None)
        if given or not request.state.form:  # else the user has changed nothing
            done = await self.ask(handler_of(form.row), request, caller, **inputs(form.row, given))
        if isinstance(form.after, str):
            named = {name: quote(value, safe="") for name, value in request.path_params.items()}
            return RedirectResponse(form.after.format(**{"id": getattr(done, "id", ""), **named}), 303)
        return await self.render(request, "done.html", "Done", said=form.after(done), command=done.command)

    async def _plan(self, request: Request, caller: WebCaller) -> Response:
        """Show a dry run of the action of a form, with a form that runs the action."""
        plan = _plan_of(request.state.form, request.state.ids)
        found = await self.ask(handler_of(selections.dry_run), request, caller, body=plan)
        asked = [(name, value) for name, value in request.state.form.items() if name in _PLANNED and value]
        asked += [("id", value) for value in request.state.ids]
        first, ticked = _first(request.state.form), len(request.state.ids)
        wanted = ticked or (first if first <= selections.MOST else 0)
        limited = not found.complete and found.count != wanted
        return await self.render(
            request, "plan.html", "Dry run", found=found, plan=plan, asked=asked, command=found.command,
            first=first, ticked=ticked, limited=limited, beyond=limited or first > selections.MOST,
        )  # fmt: skip

    async def _start_job(self, request: Request, caller: WebCaller) -> Response:
        """Start a background job that applies the action of a dry run to all matching messages."""
        form = request.state.form
        given = {name: value for name, value in form.items() if value}
        if given.get("act") == "delete" and "sure" not in given:
            raise Problem(422, "nothing was deleted: to confirm, tick the box of the form")
        ids = request.state.ids
        where = {"ids": ids} if ids else where_of(given)
        values: dict[str, Any] = {"act": given.get("act"), **where, "all": not where}
        values |= {"limit": whole(given["first"])} if "first" in given and not ids else {}
        values |= {"time_to_be_received": whole(given["ttl"])} if "ttl" in given else {}
        values |= {"to": given["to"]} if "to" in given and given.get("act") not in HAS_NO_TARGET else {}
        request.path_params["queue"] = given.get("queue", "")
        body = converted(values, body_of(jobs.start_job))
        found = await self.ask(handler_of(jobs.start_job), request, caller, body=body)
        return await self.render(request, "job_started.html", "Job started", it=found.job, command=found.command)

    async def _carry_out(self, request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        values = {"selection": form.get("selection", ""), "count": whole(form.get("count", ""))}
        order = converted(values, selections.Order)
        found = await self.ask(handler_of(selections.operate), request, caller, body=order)
        return await self.render(request, "result.html", "Result", found=found, command=found.command)


def _plan_of(form: Mapping[str, str], ids: list[str]) -> selections.PlanRequest:
    """Read a plan from the fields of a form. Raises Problem."""
    given = {name: value for name, value in form.items() if value}
    where = {"ids": ids} if ids else where_of(given)
    values: dict[str, Any] = {
        "act": given.get("act"), "queue": given.get("queue"), "where": where, "all": not where,
        "changes": {"time_to_be_received": whole(given["ttl"])} if "ttl" in given else {},
    }  # fmt: skip
    if "first" in given and not ids:
        first = whole(given["first"])
        values["limit"] = first if first is None else min(first, selections.MOST)
    if "to" in given and given.get("act") not in HAS_NO_TARGET:
        values["to"] = given["to"]
    plan: selections.PlanRequest = converted(values, selections.PlanRequest)
    return plan


def _kept(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the fields of a form that are kept until it is sent again."""
    return [pair for pair in pairs if pair[0] not in SECRETS]


def _is_unseen(name: str) -> bool:
    """Whether a field is not typed by the user."""
    return name in _UNSEEN or name.startswith(SHOWN)


def _first(form: Mapping[str, str]) -> int:
    return whole(form.get("first", "")) or 0


def where_of(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the message filter in a form."""
    where: dict[str, Any] = {name: form[name] for name in _WHERE if form.get(name)}
    return where | {name: whole(form[name]) for name in _AGES if form.get(name)}


def shown_query(query: Any) -> Any:
    """Limit a query to `PAGE_ROWS` rows: pages with more rows are large and slow."""
    return msgspec.structs.replace(query, limit=min(query.limit, PAGE_ROWS))


def link_to(path: str, query: msgspec.Struct, **changes: Any) -> str:
    """Return a link to the same page with other parameters; defaults are left out."""
    values = msgspec.structs.asdict(msgspec.structs.replace(query, **changes))
    defaults = msgspec.structs.asdict(type(query)())
    given = {name: value for name, value in values.items() if value != defaults[name]}
    text = urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()})
    return f"{path}?{text}" if text else path


def found_by(wanted: str, rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return identifiers of the queues with this name, with or without the machine name, and of those whose names
    contain it."""
    key = wanted.casefold()
    names = [(str(row["id"]), str(row["name"]).casefold()) for row in rows]
    named = [
        identifier
        for identifier, name in names
        if key in (name, name.partition("\\")[2], name.rpartition("\\private$\\")[2])
    ]
    return named, [identifier for identifier, name in names if key in name]


def own_path(text: str | None) -> str:
    """Return the page to show after a login: `text` if it is a path of this server, else the start page."""
    own = text is not None and text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if own and text is not None else "/"
