"""Queues, rights, users, groups and settings as one document: export, compare and import it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Annotated, Any, Final

from openmsmq.accounts.users import UsersFile
from openmsmq.actions.errors import ActionIncomplete, ActionRefused
from openmsmq.actions.fields import CommandText, doc
from openmsmq.actions.machine import machine_guard
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, ActionPlan, DryRunAt, Input, Output, action
from openmsmq.admin.definitions import DONE, LEFT, UNREADABLE, Document, apply_all, export, plan, queues_in, unreadable
from openmsmq.admin.definitions_schema import DefinitionsError
from openmsmq.admin.guards import Guard
from openmsmq.admin.permissions import sid_for
from openmsmq.admin.settings import settings_in_force
from openmsmq.model.text import counted

_REFUSES: Final = dict.fromkeys(UNREADABLE, 503)
_FILE: Final = "it reads and writes files"
MOST_STEPS: Final = 5000  # changes of one HTTP request, which has to end within a minute

WithLocal = Annotated[bool, doc("Also users, groups, rights on the machine and settings; for administrators.")]


class DefinitionsQuery(Input, frozen=True):
    """Selects definitions."""

    local: WithLocal = False


class DefinitionsRequest(Input, frozen=True):
    """Definitions to import."""

    document: Annotated[
        dict[str, Any],
        doc(
            "A document as `GET /definitions` gives it.",
            {"format": 1, "queues": [{"name": "orders", "label": "Orders"}]},
        ),
    ]
    local: WithLocal = False


class PlannedStep(Output, frozen=True):
    """A difference between the current state and a document."""

    said: Annotated[str, doc("The planned change, or why it is not possible.", "create queue orders")]
    can: Annotated[bool, doc("Whether an import does it.")]


class Differences(Output, frozen=True):
    """The planned steps of an import."""

    steps: Annotated[list[PlannedStep], doc("The steps, in this order.")]
    token: Annotated[str, doc("Token that the import requires; valid only for these steps.")]
    command: CommandText


class DoneStep(Output, frozen=True):
    """The result of a step."""

    said: Annotated[str, doc("The planned change.", "create queue orders")]
    result: Annotated[str, doc("`done`, `left`, or the error.", "done")]


class Imported(Output, frozen=True):
    """Results of an import."""

    steps: Annotated[list[DoneStep], doc("The steps, in this order.")]
    failed: Annotated[int, doc("Number of failed steps.")]
    command: CommandText


@dataclass(frozen=True, slots=True)
class _Local:
    """See `admin.definitions.Local`."""

    users: UsersFile
    machine: Guard
    caller: str


def definitions_of(
    site: ActionSite, *, local: bool, secrets: bool = False, only: Container[str] | None = None
) -> Document:
    """Return the document of a queue manager; `secrets` includes password hashes. Of queues that are not in `only`, it
    has only the names. Raises MsmqError, `UNREADABLE`."""
    names = site.accounts.names()
    if not local:
        return export(site.manager, names, only=only)
    return export(site.manager, names, _local(site), settings_in_force(site.data_dir), secrets=secrets, only=only)


@action(
    "definitions.export", http="GET /definitions", place="queue manager", refuses=_REFUSES,
    partial="The same without the queues that the caller may not read, which are named with the reason",
    is_partial=unreadable,
    commands=(ActionCommand("definitions export", {"local": "--local"}, by_hand=_FILE),),
)  # fmt: skip
def export_definitions(site: ActionSite, given: DefinitionsQuery) -> dict[str, Any]:
    """Export definitions as one document.

    It never contains password hashes.
    """
    return definitions_of(site, local=given.local)


@action(
    "definitions.import", http="POST /definitions", effect="changes", place="queue manager",
    audit=("definitions.import", "user.*", "group.*", "machine.permissions"), refuses=_REFUSES, statuses=(409,),
    dry_run=DryRunAt(
        "POST /definitions/dry-runs", "compare_definitions", "What an import of a document would do"
    ),
    bound=True,
    commands=(
        ActionCommand("definitions import", {"document": "FILE", "local": "--local"}, by_hand=_FILE),
        ActionCommand("definitions diff", {"document": "FILE", "local": "--local"}, by_hand=_FILE),
    ),
)  # fmt: skip
def import_definitions(site: ActionSite, given: DefinitionsRequest) -> ActionPlan[Differences, Imported]:
    """Apply the differences of a document to the current state.

    If a step fails, the others are still done; the response is then a problem with the results of all steps as `steps`.
    """
    try:
        here = definitions_of(site, local=given.local, only=queues_in(given.document))
        local = _local(site) if given.local else None
        steps = plan(site.manager, given.document, here, lambda who: _sid(site, who, local), local)
    except DefinitionsError as error:
        raise ActionRefused(422, str(error), "/document") from None
    planned = [PlannedStep(step.said, step.apply is not None) for step in steps]
    can = sum(step.can for step in planned)
    if site.daemon is not None and can > MOST_STEPS:
        raise ActionRefused(
            422, f"the document has {can} changes, a request at most {MOST_STEPS}: import it in parts, or by `openmsmq "
            "definitions import` without --url", pointer="/document",
        )  # fmt: skip
    option = " --local" if given.local else ""

    def carry_out() -> Imported:
        if site.daemon is not None:  # without the HTTP process, the daemon records each step
            site.record("definitions.import", "machine", site.machine, count=can)
        results = zip(steps, apply_all(steps), strict=True)
        done = [DoneStep(step.said, result) for step, result in results]
        if site.daemon is not None:
            site.daemon.changed()
        wrong = [f"{step.said}: {step.result}" for step in done if step.result not in (DONE, LEFT)]
        output = Imported(done, len(wrong), f"openmsmq definitions import FILE{option}")
        if wrong:
            failures = f"{counted(len(wrong), 'step')} of {len(done)} failed, the others are done; {wrong[0]}"
            raise ActionIncomplete(failures, output)
        return output

    binds = [given.document, given.local, [[step.said, step.can] for step in planned]]
    would = Differences(planned, "", f"openmsmq definitions diff FILE{option}")
    return ActionPlan(lambda: would, carry_out, binds=binds)


def _sid(site: ActionSite, who: str, local: _Local | None) -> str:
    """Return a user's SID, also for a user added by an earlier step. Raises ValueError."""
    try:
        return site.accounts.sid(who)
    except ValueError:
        if local is None:
            raise
        return sid_for(who, local.users.sid_of)


def _local(site: ActionSite) -> _Local:
    """Return the local accounts. Raises MsmqError unless the caller administers the queue manager."""
    site.demand_administrator()
    users = UsersFile(site.users_file, on_change=lambda name, user: site.record(name, "user", user))
    return _Local(users, machine_guard(site), site.caller.name)


ACTIONS: Final = (export_definitions, import_definitions)
