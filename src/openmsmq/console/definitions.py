"""Queues, rights, users, groups and settings as one document: written down, compared, and made as a document says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from openmsmq.accounts.users import UsersFile
from openmsmq.actions.table import Input, Output
from openmsmq.admin.definitions import (
    DONE,
    LEFT,
    UNREADABLE,
    DefinitionChange,
    Document,
    apply,
    export,
    plan,
    unreadable,
)
from openmsmq.admin.definitions_schema import DefinitionsError
from openmsmq.admin.guards import Guard
from openmsmq.admin.machine_guard import MachineGuard
from openmsmq.admin.permissions import sid_for
from openmsmq.admin.settings import settings_in_force
from openmsmq.client.sync import QueueManager
from openmsmq.console.problems import Problem
from openmsmq.console.recording import record, recorded_users
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.default_descriptors import default_machine_security
from openmsmq.model.text import counted


class ExportQuery(Input, frozen=True):
    """`local`: also users, groups, rights on the machine and settings; for administrators. Hashes of passwords are
    never in it."""

    local: bool = False


class DefinitionsRequest(Input, frozen=True):
    """`document` as `GET /definitions` gives it. `local`: also what that has with `local`."""

    document: dict[str, Any]
    local: bool = False


class ImportRequest(Input, frozen=True):
    """`token` is that of a dry run with the same document."""

    document: dict[str, Any]
    token: Annotated[str, msgspec.Meta(max_length=1024)]
    local: bool = False


class PlannedStepView(Output, frozen=True):
    """`can`: an import does it; otherwise `said` says why not."""

    said: str
    can: bool


class DifferencesView(Output, frozen=True):
    """What an import would do, in this order. `token` is what it needs."""

    steps: list[PlannedStepView]
    token: str
    command: str


class DoneStepView(Output, frozen=True):
    """`result` is done, left, or what was wrong."""

    said: str
    result: str


class Imported(Output, frozen=True):
    steps: list[DoneStepView]
    failed: int
    command: str


@dataclass(frozen=True, slots=True)
class _Local:
    """See `operating.definitions.Local`."""

    users: UsersFile
    machine: Guard


def export_definitions(asked: WebRequest) -> Any:
    """207 where the caller may not read a queue: the document has its name, and why, and all of the others."""
    with asked.queue_manager() as manager, _errors():
        document = _here(asked, manager, asked.query.local)
    if not unreadable(document):
        return document
    return Response(msgspec.json.encode(document), 207, media_type="application/json")


def compare_definitions(asked: WebRequest) -> DifferencesView:
    body: DefinitionsRequest = asked.body
    with asked.queue_manager() as manager, _errors():
        steps = _plan(asked, manager, body.document, body.local)
    planned = [PlannedStepView(step.said, step.apply is not None) for step in steps]
    token = asked.services.seals.seal({"sid": asked.caller.sid, "plan": _digest(body.document, body.local, steps)})
    return DifferencesView(planned, token, f"openmsmq definitions diff FILE{' --local' if body.local else ''}")


def import_definitions(asked: WebRequest) -> Imported:
    """Where one step fails, the others are done; the answer is a problem, with the results of all as `steps`."""
    body: ImportRequest = asked.body
    known = asked.services.seals.open(body.token, "token")
    with asked.queue_manager() as manager, _errors():
        steps = _plan(asked, manager, body.document, body.local)
        if known != {"sid": asked.caller.sid, "plan": _digest(body.document, body.local, steps)}:
            raise Problem(412, "what is to be done is not what the dry run has said: make another one")
        can = sum(step.apply is not None for step in steps)
        record(asked, "definitions.import", "machine", asked.services.settings.hosts[0], count=can)
        done = [DoneStepView(step.said, apply(step)) for step in steps]
    asked.services.rows.forget(asked.caller.ticket)
    wrong = [f"{step.said}: {step.result}" for step in done if step.result not in (DONE, LEFT)]
    if wrong:
        detail = f"{counted(len(wrong), 'step')} of {len(done)} failed, the others are done; {wrong[0]}"
        raise Problem(409, detail, steps=msgspec.to_builtins(done), failed=len(wrong))
    return Imported(done, 0, f"openmsmq definitions import FILE{' --local' if body.local else ''}")


def _here(asked: WebRequest, manager: QueueManager, local: bool) -> Document:
    names = asked.services.link.call("accounts", ticket=asked.caller.ticket)
    if not local:
        return export(manager, names)
    return export(manager, names, _local(asked), settings_in_force(asked.services.settings.directory))


def _plan(asked: WebRequest, manager: QueueManager, document: Document, local: bool) -> list[DefinitionChange]:
    accounts = asked.services.link.call("accounts", ticket=asked.caller.ticket)
    sids = {name.casefold(): sid for sid, name in accounts.items()}
    here = _here(asked, manager, local)

    def sid_of(who: str) -> str:
        """Also of a user whom an earlier step adds."""
        return sid_for(who, lambda name: sids.get(name.casefold()) or (_new_sid(asked, name) if local else None))

    return plan(manager, document, here, sid_of, _local(asked) if local else None)


def _new_sid(asked: WebRequest, name: str) -> str | None:
    return recorded_users(asked).sid_of(name)


def _local(asked: WebRequest) -> _Local:
    """Raises AccessDenied."""
    services = asked.services
    services.demand_administrator(asked.caller)
    machine = MachineGuard(
        services.settings.directory, default_machine_security(),
        lambda before, after: record(
            asked, "machine.permissions", "machine", services.settings.hosts[0],
            before={"security": before}, after={"security": after},
        ),
    )  # fmt: skip
    return _Local(recorded_users(asked), machine)


def _digest(document: Document, local: bool, steps: list[DefinitionChange]) -> str:
    said = json.dumps([document, local, [[step.said, step.apply is not None] for step in steps]], sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


@contextmanager
def _errors() -> Iterator[None]:
    """Raises Problem for a document that is none, and for files that can't be read."""
    try:
        yield
    except DefinitionsError as error:
        raise Problem(422, str(error), errors={"/document": str(error)}) from None
    except UNREADABLE as error:
        raise Problem(503, str(error)) from None


OPERATIONS: Final = (
    HttpOperation("GET", "/definitions", export_definitions, "Definitions as one document", dict[str, Any], ExportQuery,
              partial="The same without the queues that the caller may not read, which are named with the reason"),
    HttpOperation("POST", "/definitions/dry-runs", compare_definitions, "What an import of a document would do",
              DifferencesView, body=DefinitionsRequest),
    HttpOperation("POST", "/definitions", import_definitions, "Make what a document has and is not so here", Imported,
              body=ImportRequest, statuses=(400, 409, 412, 507)),
)  # fmt: skip
