"""Jobs: actions on any number of messages that run in the background, with progress and result."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from openmsmq.actions.background import FAILURES, BackgroundJob, JobFailure, JobView
from openmsmq.actions.errors import ActionRefused, InputError
from openmsmq.actions.fields import CommandText, QueueText, Text, doc
from openmsmq.actions.filters import criteria_of
from openmsmq.actions.messages import Bytes, Lifetime, Seconds
from openmsmq.actions.queues import daemon_of
from openmsmq.actions.selections import MOST, ActWord, MessageFilter, PlanRequest, check_act, command_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, Input, LineView, Output, Rows, action
from openmsmq.admin import acting
from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.naming import path_of
from openmsmq.admin.queues import missing
from openmsmq.admin.selection import Criteria
from openmsmq.client.dead_letters import walk
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import AccessDenied, MessageAlreadyReceived, MsmqError
from openmsmq.model.roles import Role
from openmsmq.model.text import counted, time_text

_CHECK_EVERY: Final = 5.0  # seconds between checks of the login, the role and the rights of the job's user
_NEWER: Final = 100_000  # number of skipped newer messages after which a job ends


class NewJob(Input, frozen=True):
    """Work on messages of a queue that match all given conditions."""

    queue: QueueText
    act: ActWord
    ids: Annotated[
        Annotated[list[Text], Meta(min_length=1, max_length=MOST)] | None,
        doc("Identifiers of messages; the job ends when it has found all of them."),
    ] = None
    find: Annotated[Text | None, doc("Text in the label or body, or 8 characters or more of the identifier.")] = None
    label: Annotated[Text | None, doc("Text in the label, or a pattern with * and ?.")] = None
    text: Annotated[Text | None, doc("Text in the body.")] = None
    correlation: Annotated[Text | None, doc("A correlation identifier.")] = None
    reason: Annotated[Text | None, doc("Reason of dead letters: a word, a name or a number.", "expired-unread")] = None
    destination: Annotated[Text | None, doc("Format name of the destination, or text in it.")] = None
    older: Annotated[Seconds | None, doc("Minimum time in the queue, in seconds.")] = None
    newer: Annotated[Seconds | None, doc("Maximum time in the queue, in seconds.")] = None
    larger: Annotated[Bytes | None, doc("Minimum size of the body, in bytes.")] = None
    smaller: Annotated[Bytes | None, doc("Maximum size of the body, in bytes.")] = None
    all: Annotated[bool, doc("All messages; required without conditions.")] = False
    limit: Annotated[int, Meta(ge=0, description="Maximum number of messages; 0 for no limit.")] = 0
    to: Annotated[
        Annotated[str, Meta(max_length=1024)] | None,
        doc("Name of the target queue; required for `move` and `copy`.", "orders"),
    ] = None
    time_to_be_received: Annotated[
        Lifetime | None, doc("New time limit to be received, in seconds from the time of sending.")
    ] = None
    transaction: Annotated[bool, doc("Treat the target queue as transactional (required if it is remote).")] = False


class NamedJob(Input, frozen=True):
    """A job."""

    job: Annotated[str, doc("Its identifier.", "5f0c21ab")]


class JobList(Output, frozen=True):
    """Jobs."""

    jobs: Annotated[list[JobView], doc("Jobs of the user (for administrators, of all users), newest first.")]
    command: CommandText


class JobDetails(Output, frozen=True):
    """A job."""

    job: Annotated[JobView, doc("The job.")]
    command: CommandText


def _line(found: JobDetails) -> list[str]:
    job = found.job
    lines = [f"job {job.id}: {job.what} {job.object}{f' to {job.to}' if job.to else ''}: {job.state}"]
    if job.kind == "messages":
        failed = f", {job.failed:,} failed" if job.failed else ""
        gone = f", {job.gone:,} with another reader" if job.gone else ""
        lines += [f"{job.done:,} done{failed}{gone}; {job.looked:,} of {counted(job.total, 'message')} examined"]
    lines += [job.detail] if job.detail else []
    return [*lines, *(f"{failure.id}: {failure.detail}" for failure in job.failures)]


def _document(found: JobDetails) -> dict[str, Any]:
    return dict(msgspec.to_builtins(found.job))


_SHOWN: Final = LineView(_line, _document)
_OF_JOBS: Final[dict[str, Any]] = {"place": "daemon", "audit": ("job.*",), "effect": "changes", "statuses": (409,)}


def _on_job(word: str) -> tuple[ActionCommand, ...]:
    return (ActionCommand(f"job {word}", {"job": "ID"}, _SHOWN),)


# -- queries -------------------------------------------------------------------------------------------------------


@action(
    "job.list", http="GET /jobs", role=Role.MONITOR, place="daemon",
    commands=(
        ActionCommand(
            "job list", {},
            Rows(
                lambda found: found.jobs,
                ("job", "what", "object", "state", "done", "failed", "looked at", "started", "by"),
                lambda job: [job.id, job.what, job.object, job.state, job.done, job.failed,
                             f"{job.looked:,} of {job.total:,}", time_text(job.started), job.user],
                empty="no jobs",
            ),
        ),
    ),
)  # fmt: skip
def list_jobs(site: ActionSite, given: Empty) -> JobList:
    """Show running jobs and the results of the last ones.

    The list has at most 100 jobs and survives a restart.
    """
    return JobList([view for view in site.jobs.views() if _is_seen(site, view)], site.command)


@action("job.show", http="GET /jobs/{job}", role=Role.MONITOR, place="daemon", commands=_on_job("show"))
def get_job(site: ActionSite, given: NamedJob) -> JobDetails:
    """Show a job with its progress or result."""
    return JobDetails(_job(site, given).view, site.command)


def _is_seen(site: ActionSite, view: JobView) -> bool:
    return site.caller.administrator or view.sid == site.caller.sid


def _job(site: ActionSite, given: NamedJob) -> BackgroundJob:
    """Return a job. Raises ActionRefused, also for a job of another user."""
    job = site.jobs.get(given.job)
    if job is None or not _is_seen(site, job.view):
        raise ActionRefused(404, f"there is no job {given.job[:40]}")
    return job


# -- pausing, resuming, canceling ----------------------------------------------------------------------------------


def _changeable(site: ActionSite, given: NamedJob, *states: str) -> BackgroundJob:
    """Return a job that is in one of `states`. Raises ActionRefused if it is not, or cannot be paused or canceled."""
    job = _job(site, given)
    if job.view.kind != "messages":
        raise ActionRefused(409, f"the job {given.job} is a {job.view.kind}, which cannot be paused or canceled")
    if job.view.state not in states:
        raise ActionRefused(409, f"the job {given.job} is {job.view.state}")
    if job.canceled:
        raise ActionRefused(409, f"the job {given.job} is being canceled")
    return job


@action("job.pause", http="POST /jobs/{job}/pause", role=Role.OPERATOR, commands=_on_job("pause"), **_OF_JOBS)
def pause_job(site: ActionSite, given: NamedJob) -> JobDetails:
    """Pause a job between two messages. A paused job still ends when the daemon restarts."""
    job = _changeable(site, given, "running")
    site.record("job.pause", "job", given.job)
    job.pause()
    return JobDetails(site.jobs.set_state(job, "paused"), site.command)


@action("job.resume", http="POST /jobs/{job}/resume", role=Role.OPERATOR, commands=_on_job("resume"), **_OF_JOBS)
def resume_job(site: ActionSite, given: NamedJob) -> JobDetails:
    """Resume a paused job."""
    job = _changeable(site, given, "paused")
    site.record("job.resume", "job", given.job)
    job.resume()
    return JobDetails(site.jobs.set_state(job, "running"), site.command)


@action("job.cancel", http="POST /jobs/{job}/cancel", role=Role.OPERATOR, commands=_on_job("cancel"), **_OF_JOBS)
def cancel_job(site: ActionSite, given: NamedJob) -> JobDetails:
    """Cancel a job between two messages. Changes already made are kept."""
    job = _changeable(site, given, "running", "paused")
    site.record("job.cancel", "job", given.job)
    job.cancel()
    return JobDetails(job.view, site.command)


# -- starting ------------------------------------------------------------------------------------------------------


@action(
    "job.start", http="POST /queues/{queue}/jobs", status=202, effect="destroys", role=Role.OPERATOR, place="daemon",
    audit=("messages.*", "job.end"), statuses=(409,),
    commands=(
        ActionCommand(
            "job start",
            {"act": "ACT", "queue": "QUEUE", "find": "--find", "label": "--label", "text": "--text",
             "correlation": "--correlation", "reason": "--reason", "destination": "--meant-for", "older": "--older",
             "newer": "--newer", "larger": "--larger", "smaller": "--smaller", "all": "--all", "limit": "--limit",
             "to": "--to-queue", "time_to_be_received": "--ttl", "transaction": "--transaction"},
            _SHOWN,
        ),
    ),
)  # fmt: skip
def start_job(site: ActionSite, given: NewJob) -> JobDetails:
    """Start work on any number of messages of a queue.

    The job runs in the background, message by message, with the rights of the user who started it. It acts on messages
    that are in the queue now; messages that arrive later are not touched.
    """
    row, daemon = site.queue, daemon_of(site)
    criteria = _check(given, row)
    with site.connect() as manager:
        if given.to is not None and missing(manager, [path_of(given.to)]):
            raise InputError(f"there is no queue {given.to}", "/to")
        with manager.open(row["open"], "peek"):
            pass  # also reports an error if the caller may not read it
    bound = int(daemon.call("sequence"))
    job = site.jobs.begin(
        "messages", what=given.act, object=row["name"], user=site.caller.name, sid=site.caller.sid, origin=site.origin,
        to=given.to or "", total=row["messages"],
    )  # fmt: skip
    try:
        site.record(f"messages.{given.act}", "queue", row["name"], after=_recorded(given, job))
    except BaseException:
        site.jobs.end(job, "failed", "it was not started: the audit log cannot be written")
        raise
    site.jobs.run(job, _Work(site, given, criteria, bound).run, lambda view: _record_end(site, view))
    return JobDetails(job.view, _command(site, given))


def _command(site: ActionSite, given: NewJob) -> str:
    """Return the equivalent command, which names single messages by their identifiers."""
    if given.ids is None:
        return site.command
    where = MessageFilter(ids=given.ids)
    return command_of(PlanRequest(given.act, given.queue, where, to=given.to, limit=len(given.ids)), site.queue)


def _recorded(given: NewJob, job: BackgroundJob) -> dict[str, Any]:
    known = {name: value for name, value in msgspec.to_builtins(given).items() if name not in ("queue", "act")}
    if "ids" in known:
        known["ids"] = len(known["ids"] or ())  # values of audit records are short
    return {"job": job.view.id, **{name: value for name, value in known.items() if value}}


def _record_end(site: ActionSite, view: JobView) -> None:
    site.record("job.end", "job", view.id, count=view.done, after=end_of(view))
    daemon_of(site).changed()


def end_of(view: JobView) -> dict[str, Any]:
    """Describe the end of a job for the audit log."""
    return {"state": view.state, "what": view.what, "object": view.object, "failed": view.failed}


def _check(given: NewJob, row: Any) -> Criteria:
    """Check the input and return its criteria. Raises InputError that names invalid fields."""
    criteria = criteria_of(given)
    is_all = criteria == Criteria()
    if is_all != given.all:
        problem = "cannot be combined with conditions" if given.all else "or a condition must be given"
        raise InputError(f"`all` {problem}", "/all")
    where = MessageFilter() if is_all else MessageFilter(find="")
    check_act(given.act, given.to, where, given.all, row)
    return criteria


class _Work:
    """The work of one job, in its thread."""

    def __init__(self, site: ActionSite, given: NewJob, criteria: Criteria, bound: int) -> None:
        """`bound` is the highest sequence number in the queue manager when the job was started."""
        self._site: Final = site
        self._given: Final = given
        self._criteria: Final = criteria
        self._bound: Final = bound
        self._now: Final = time.time()
        self._most: Final = len(given.ids) if given.ids is not None else given.limit
        self._after = 0  # the lookup identifier of the last message examined
        self._checked = time.monotonic()
        self._looked = self._done = self._failed = self._gone = 0
        self._ways: Final[dict[str, int]] = {}
        self._failures: Final[list[JobFailure]] = []

    def run(self, job: BackgroundJob) -> None:
        """Process the messages. Raises CanceledJob, MsmqError, ConnectionError."""
        given, row = self._given, self._site.queue
        to = path_of(given.to) if given.to is not None else None
        changes = MessageEdits(time_to_be_received=given.time_to_be_received)
        deed = acting.MessageAction(given.act, (row["open"],), to, changes, given.transaction)
        ended = False
        while not ended:
            job.wait()
            with self._site.connect() as manager:
                ended = self._pass(job, manager, deed)

    def _pass(self, job: BackgroundJob, manager: QueueManager, deed: acting.MessageAction) -> bool:
        """Continue after the last message examined. Returns False if the job was paused or canceled."""
        newer, does = 0, None
        with manager.open(self._site.queue["open"]) as opened, ExitStack() as targets:
            for cursor, message in walk(opened):
                if not job.is_wanted:
                    return False
                if does is None or time.monotonic() - self._checked >= _CHECK_EVERY:
                    targets.close()  # opening a queue checks the rights, sending and receiving do not
                    self._check_caller(manager)
                    does = targets.enter_context(acting.action(manager, deed))
                if message.sequence > self._bound:
                    newer += 1
                    if newer > _NEWER:
                        job.note(detail="messages came faster than they were passed over: start it again for the rest")
                        return True
                    continue
                if not message.lookup_identifier:
                    raise ActionRefused(409, "this queue has no lookup identifiers, so no job can run on it")
                if message.lookup_identifier <= self._after:
                    continue
                self._after = message.lookup_identifier
                self._looked += 1
                if self._criteria.matches(message, self._now):
                    try:
                        how = does(cursor, message)
                    except ConnectionError:
                        raise
                    except MessageAlreadyReceived:
                        self._gone += 1
                    except MsmqError as error:
                        self._fail(message.id, error)
                    else:
                        self._done += 1
                        self._ways[how] = self._ways.get(how, 0) + 1
                self._tell(job)
                if self._most and self._done + self._failed >= self._most:
                    return True
        return True

    def _fail(self, identifier: str, error: MsmqError) -> None:
        self._failed += 1
        if len(self._failures) < FAILURES:
            self._failures.append(JobFailure(identifier, str(error)))

    def _tell(self, job: BackgroundJob) -> None:
        job.note(
            looked=self._looked, done=self._done, failed=self._failed, gone=self._gone, ways=dict(self._ways),
            failures=list(self._failures),
        )  # fmt: skip

    def _check_caller(self, manager: QueueManager) -> None:
        """Check the login, the role and the right to read of the job's user: an open connection needs no new login, and
        an open queue no right. Raises AccessDenied."""
        self._checked = time.monotonic()
        user = daemon_of(self._site).call("whoami")
        if user["role"] < Role.OPERATOR:
            raise AccessDenied(detail=f"{user['name']} has lost the role operator, which jobs require")
        with manager.open(self._site.queue["open"]):
            pass


ACTIONS: Final = (list_jobs, get_job, start_job, pause_job, resume_job, cancel_job)
