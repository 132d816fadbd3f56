"""Pages of the console for maintenance: definitions, backups, moves, clients and sequences."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openmsmq.actions import backups, connections, definitions, handles, relays, sequences
from openmsmq.actions.relays import RelayView
from openmsmq.admin.definitions import DONE, LEFT
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import OPERATIONS, body_of, handler_of, operation_of
from openmsmq.console.forms import converted, whole
from openmsmq.console.pages import Console, Page
from openmsmq.console.problems import Problem
from openmsmq.console.table import parse_query
from openmsmq.model.text import printable_json


class RelayStepText(NamedTuple):
    """Button label and description of a step of a relay."""

    words: str
    does: str
    look: str = ""


#: Steps of relays; docs/moving.md describes the procedure.
STEPS: Final[dict[str, RelayStepText]] = {
    "switch": RelayStepText(
        "Switch", "Say that programs send to the queue here from now on. What is left at the other machine, and what "
        "stragglers send there, still comes.", "primary",
    ),
    "done": RelayStepText("End the move", "End the move. It is refused while messages are left."),
    "back": RelayStepText(
        "Move back", "Send what is in the queue here, and what comes, to the queue of the other machine. Messages get "
        "identifiers of this machine. Stop the readers here first.", "danger",
    ),
    "shadow": RelayStepText("Fetch again", "Fetch messages of the other machine into the queue here again."),
    "forget": RelayStepText("Forget", "Drop what is known of this move. Messages stay where they are."),
    "end": RelayStepText("End the bridge", "End the bridge. Messages stay where they are.", "danger"),
}  # fmt: skip
_COMPARE: Final = next(each for each in OPERATIONS if each.name == "compare_definitions")
_PAGE: Final = 500  # connections per page
_LOOKS: Final = {"shadow": "accent", "switched": "accent", "returning": "warn", "done": "good", "returned": "good"}


class UpkeepPages:
    """Pages of definitions, backups, clients, moves and sequences of one console."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        show, change = console.page, console.form
        self.routes: Final = [
            Route("/definitions", show(self._definitions), methods=["GET"]),
            Route("/definitions/export", show(self._export), methods=["GET"]),
            Route("/definitions/compare", change(self._compare, self._definitions), methods=["POST"]),
            Route("/definitions/import", change(self._import, self._definitions), methods=["POST"]),
            Route("/backups", show(self._backups), methods=["GET"]),
            Route("/clients", show(self._clients), methods=["GET"]),
            Route("/moves", show(self._moves), methods=["GET"]),
            Route("/moves/plan", change(self._plan_step, self._moves), methods=["POST"]),
            Route("/moves/step", change(self._step, self._moves), methods=["POST"]),
            Route("/sequences", show(self._sequences), methods=["GET"]),
            Route("/sequences/plan", change(self._plan_forget, self._sequences), methods=["POST"]),
            Route("/sequences/forget", change(self._forget, self._sequences), methods=["POST"]),
        ]
        #: Path of a form -> the page that contains it, which is shown again if the form is refused.
        self.behind: Final[dict[str, Page]] = dict.fromkeys(("/backups", "/backups/{backup}/verify"), self._backups)

    # -- definitions -----------------------------------------------------------------------------------------------

    async def _definitions(self, request: Request, caller: WebCaller) -> Response:
        return await self._console.render(
            request, "definitions.html", "Definitions", command="openmsmq definitions export > FILE"
        )

    async def _export(self, request: Request, caller: WebCaller) -> Response:
        """Return the definitions as a file, which marks the parts that the user may not read."""
        query = parse_query(operation_of(definitions.export_definitions).query, request.query_params.multi_items())
        found = await self._console.ask(handler_of(definitions.export_definitions), request, caller, query=query)
        document = json.loads(bytes(found.body)) if isinstance(found, Response) else found
        name = datetime.now(UTC).strftime("definitions-%Y-%m-%d.json")
        return Response(
            printable_json(document, indent=2).encode() + b"\n", media_type="application/json",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )  # fmt: skip

    async def _compare(self, request: Request, caller: WebCaller) -> Response:
        """Show the differences as a table, with a form that applies them."""
        values = _document_in(request.state.form)
        body = converted(values, definitions.DefinitionsRequest)
        found = await self._console.ask(_COMPARE.handler, request, caller, body=body)
        return await self._console.render(
            request, "definitions_plan.html", "Differences", found=found, command=found.command,
            steps=[_parts(step.said, step.can) for step in found.steps], can=sum(step.can for step in found.steps),
            document=request.state.form.get("document", ""), local=values["local"],
        )  # fmt: skip

    async def _import(self, request: Request, caller: WebCaller) -> Response:
        values = _document_in(request.state.form) | {"token": request.state.form.get("token", "")}
        body = converted(values, body_of(definitions.import_definitions))
        try:
            done = await self._console.ask(handler_of(definitions.import_definitions), request, caller, body=body)
            found = msgspec.to_builtins(done)
        except Problem as problem:
            if "steps" not in problem.extra:
                raise
            found = problem.extra
        steps = [(*_parts(step["said"], True)[:2], step["result"]) for step in found["steps"]]
        return await self._console.render(
            request, "definitions_done.html", "Imported", steps=steps, failed=found["failed"],
            done=sum(result == DONE for _, _, result in steps), left=sum(result == LEFT for _, _, result in steps),
            command="openmsmq definitions import FILE",
        )  # fmt: skip

    # -- backups, clients ------------------------------------------------------------------------------------------

    async def _backups(self, request: Request, caller: WebCaller) -> Response:
        found, refused = None, ""
        try:
            found = await self._console.ask(handler_of(backups.list_backups), request, caller)
        except Problem as problem:
            if problem.status not in (409, 503):
                raise
            refused = problem.detail
        rows = [
            (each, int(datetime.fromisoformat(each.time).timestamp()) if each.time else None)
            for each in (found.backups if found is not None else [])
        ]
        checks = [view for view in self._console.web.services.jobs.views() if view.what == "verify backup"]
        return await self._console.render(
            request, "backups.html", "Backups", found=found, refused=refused, rows=rows,
            checked={view.object.rpartition("/")[2]: view for view in reversed(checks)},
            command=found.command if found is not None else "openmsmq backup DIRECTORY",
        )  # fmt: skip

    async def _clients(self, request: Request, caller: WebCaller) -> Response:
        pairs = request.query_params.multi_items()
        query = parse_query(handles.HandleQuery, [pair for pair in pairs if pair[0] != "start"])
        start = whole(request.query_params.get("start", "0"))
        if start is None:
            raise Problem(400, "start is the number of rows before the page")
        found = await self._console.ask(handler_of(connections.list_connections), request, caller)
        opened = await self._console.ask(handler_of(handles.list_handles), request, caller, query=query)
        return await self._console.render(
            request, "clients.html", "Clients", connections=found.connections[start : start + _PAGE], start=start,
            all=len(found.connections), opened=opened, command=found.command,
        )  # fmt: skip

    # -- moves, sequences ------------------------------------------------------------------------------------------

    async def _moves(self, request: Request, caller: WebCaller) -> Response:
        found = await self._console.ask(handler_of(relays.list_relays), request, caller)
        return await self._console.render(
            request, "moves.html", "Moves", relays=[(each, _share(each)) for each in found.relays], steps=STEPS,
            looks=_LOOKS, command="openmsmq adopt status",
        )  # fmt: skip

    async def _plan_step(self, request: Request, caller: WebCaller) -> Response:
        """Show the effect of a step, with a form that performs it. Raises Problem."""
        form = request.state.form
        query = relays.RelayQuery(form.get("relay", ""))
        (it,) = (await self._console.ask(handler_of(relays.list_relays), request, caller, query=query)).relays
        step = form.get("step", "")
        if step not in it.steps:
            raise Problem(409, f"{it.queue} is {it.state}: {step or 'nothing'} is not possible now")
        words = "done" if step == "done" else {"shadow": "again"}.get(step, step)
        command = f"openmsmq {'forward' if step == 'end' else 'adopt'} {words} {it.queue}"
        return await self._console.render(
            request, "move_plan.html", "Next step", it=it, step=step, text=STEPS[step], command=command
        )

    async def _step(self, request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        values = {"relay": form.get("relay", ""), "step": form.get("step", ""), "force": "force" in form}
        body = converted(values, body_of(relays.step_relay))
        done = await self._console.ask(handler_of(relays.step_relay), request, caller, body=body)
        return await self._said(request, f"{done.relay.queue}: {done.relay.state}.", done.command)

    async def _sequences(self, request: Request, caller: WebCaller) -> Response:
        found = await self._console.ask(
            handler_of(sequences.list_sequences), request, caller, query=sequences.SequenceQuery()
        )
        return await self._console.render(request, "sequences.html", "Sequences", found=found, command=found.command)

    async def _plan_forget(self, request: Request, caller: WebCaller) -> Response:
        found = await self._forgotten(request, caller, dry_run=True)
        return await self._console.render(
            request, "sequence_plan.html", "Forget a sequence", found=found, command=found.command
        )

    async def _forget(self, request: Request, caller: WebCaller) -> Response:
        found = await self._forgotten(request, caller, dry_run=False)
        return await self._said(
            request, f"Forgotten: the sequence of {found.source} into {found.queue}.", found.command
        )

    async def _forgotten(self, request: Request, caller: WebCaller, *, dry_run: bool) -> Any:
        form, row = request.state.form, sequences.forget_sequence
        request.path_params.update(queue=form.get("queue", ""), source=form.get("source", ""))
        query = converted({"dry_run": dry_run}, operation_of(row).query)
        found = await self._console.ask(handler_of(row), request, caller, query=query)
        return msgspec.json.decode(found.body, type=row.output) if isinstance(found, Response) else found

    async def _said(self, request: Request, said: str, command: str) -> Response:
        return await self._console.render(request, "done.html", "Done", said=said, command=command)


def _document_in(form: dict[str, str]) -> dict[str, Any]:
    """Read the fields of an import from a form. Raises Problem."""
    try:
        document = json.loads(form.get("document", ""))
    except ValueError as error:
        raise Problem(422, f"the definitions are not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise Problem(422, "the definitions are not a JSON object")
    return {"document": document, "local": "local" in form}


def _parts(said: str, can: bool) -> tuple[str, str, bool]:
    """Split the text of a step into its subject and its change."""
    about, separator, change = said.partition(": ")
    return (about, change, can) if separator else (said, "", can)


def _share(relay: RelayView) -> int | None:
    """Return the percentage of messages that were moved; None if unknown."""
    if relay.waiting is None:
        return None
    known = relay.moved + relay.waiting
    return round(100 * relay.moved / known) if known else 100
