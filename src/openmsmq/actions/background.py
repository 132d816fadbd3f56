"""Jobs that continue after the HTTP response: a bounded list, stored in a file of the data directory.

A job belongs to the process that runs it. When that process ends, its jobs end, too. The next process finds them in the
file and reports them as interrupted.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import EpochSeconds, doc
from openmsmq.admin.jobs_file import JobsFileError, read_jobs, write_jobs
from openmsmq.admin.json_bytes import json_bytes

logger = logging.getLogger(__name__)

MOST_RUNNING: Final = 4  # running and paused jobs of one user and kind
MOST_KEPT: Final = 100
FAILURES: Final = 20  # maximum failures kept per job
_SAVE_EVERY: Final = 1.0  # seconds
_UNENDED: Final = ("running", "paused")
JobState = Literal["running", "paused", "done", "failed", "canceled", "interrupted"]


class JobFailure(msgspec.Struct, frozen=True):
    """A message that a job could not process; it was not moved."""

    id: Annotated[str, doc("Identifier of the message.", r"{6f9619ff-8b86-d011-b42d-00c04fc964ff}\2049")]
    detail: Annotated[str, doc("The reason.")]


class JobView(msgspec.Struct, frozen=True):
    """A job: work on many messages, or a backup."""

    id: Annotated[str, doc("Its identifier.", "5f0c21ab")]
    kind: Annotated[Literal["messages", "backup"], doc("Kind of work.")]
    what: Annotated[str, doc("The action.", "move")]
    object: Annotated[str, doc("Name of the queue, or directory of the backup.", "orders")]
    user: Annotated[str, doc("Name of the user who started it.")]
    sid: Annotated[str, doc("SID of that user.")]
    origin: Annotated[str, doc("Entry point and address from which it was started.", "http 10.0.0.7")]
    state: Annotated[
        JobState,
        doc("`interrupted`: the process that did the work ended; `failed`: an error ended it, see `detail`."),
    ]
    started: Annotated[EpochSeconds, doc("When it was started, in seconds since 1970.")]
    ended: Annotated[EpochSeconds | None, doc("When it ended, in seconds since 1970; null until then.")] = None
    to: Annotated[str, doc("Target queue; empty for none, or for the destination of each message.")] = ""
    total: Annotated[int, doc("Messages in the queue when the job started.")] = 0
    looked: Annotated[int, doc("Number of messages examined.")] = 0
    done: Annotated[int, doc("Processed messages; after an interruption, the minimum.")] = 0
    failed: Annotated[int, doc("Messages that could not be processed and remain where they were.")] = 0
    gone: Annotated[int, doc("Messages that another reader had received or locked.")] = 0
    ways: Annotated[dict[str, int], doc("Number of messages by method.")] = msgspec.field(default_factory=dict)
    failures: Annotated[list[JobFailure], doc("The first failures.")] = msgspec.field(default_factory=list)
    detail: Annotated[str, doc("Why it ended early; empty if all work was done.")] = ""

    @property
    def is_over(self) -> bool:
        return self.state not in _UNENDED


class CanceledJob(Exception):
    """The job was canceled."""


class BackgroundJob:
    """A job, for the thread that does its work. `view` is its public state."""

    def __init__(self, jobs: Jobs, view: JobView) -> None:
        self._jobs: Final = jobs
        self._go: Final = threading.Event()
        self._go.set()
        self.view = view
        self.canceled = False

    @property
    def is_wanted(self) -> bool:
        """Whether the work may continue: neither paused nor canceled."""
        return self._go.is_set() and not self.canceled

    def wait(self) -> None:
        """Wait while the job is paused. Raises CanceledJob."""
        self._go.wait()
        if self.canceled:
            raise CanceledJob

    def note(self, **figures: object) -> None:
        """Update figures; they are saved at most once a second."""
        self._jobs.note(self, figures)

    def pause(self) -> None:
        self._go.clear()
        if self.canceled:
            self._go.set()

    def resume(self) -> None:
        self._go.set()

    def cancel(self) -> None:
        self.canceled = True
        self._go.set()


class Jobs:
    """All jobs of this process, and earlier ones that are still in the list. Thread-safe."""

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        """Read the file; without a file, the list is in memory only. Jobs that the file records as running were
        interrupted and are in `interrupted`.
        """
        self._file: Final = file
        self._clock: Final = clock
        self._lock: Final = threading.RLock()
        self._jobs: Final[dict[str, BackgroundJob]] = {}
        self._saved = 0.0
        self.interrupted: Final[list[JobView]] = []
        for view in self._read():
            if not view.is_over:
                detail = "the process that ran the job ended; changes made before are kept"
                view = msgspec.structs.replace(view, state="interrupted", ended=int(clock()), detail=detail)
                self.interrupted.append(view)
            self._jobs[view.id] = BackgroundJob(self, view)
        if self.interrupted:
            self._save()

    def views(self) -> list[JobView]:
        """Return all jobs, newest first."""
        with self._lock:
            return [job.view for job in reversed(self._jobs.values())]

    def get(self, identifier: str) -> BackgroundJob | None:
        with self._lock:
            return self._jobs.get(identifier)

    def begin(self, kind: Literal["messages", "backup"], **values: str | int) -> BackgroundJob:
        """Create a job and save it before its work begins. Raises ActionRefused if its user has too many jobs that are
        running or paused, or if the file cannot be written."""
        identifier = secrets.token_hex(4)
        view = msgspec.convert(
            {"id": identifier, "kind": kind, "state": "running", "started": int(self._clock()), **values}, JobView
        )
        with self._lock:
            own = [job.view for job in self._jobs.values() if (job.view.kind, job.view.sid) == (kind, view.sid)]
            unended = [other for other in own if not other.is_over]
            if len(unended) >= MOST_RUNNING:
                known = ", ".join(f"{other.id} ({other.what} {other.object}) is {other.state}" for other in unended)
                raise ActionRefused(
                    409, f"{MOST_RUNNING} jobs of one user is the limit: wait for one, or resume or cancel it: {known}"
                )
            over = [name for name, job in self._jobs.items() if job.view.is_over]
            for name in over[: max(0, len(self._jobs) + 1 - MOST_KEPT)]:
                del self._jobs[name]
            job = self._jobs[identifier] = BackgroundJob(self, view)
            try:
                self._write()
            except JobsFileError as error:
                del self._jobs[identifier]
                raise ActionRefused(507, f"the job was not started: {error}") from None
        return job

    def run(self, job: BackgroundJob, work: Callable[[BackgroundJob], None], then: Callable[[JobView], None]) -> None:
        """Start a thread that does the work. `then` is called with the finished job before the file is updated: if the
        process is killed in between, the next one reports the job as interrupted.
        """

        def run() -> None:
            state: JobState = "failed"
            detail = "internal error; see the log"
            try:
                work(job)
                state, detail = "done", job.view.detail
            except CanceledJob:
                state, detail = "canceled", ""
            except ConnectionError as error:
                state, detail = "interrupted", f"the queue manager does not answer: {error}"
            except Exception as error:
                detail = str(error) or repr(error)
                logger.warning("job %s (%s %s) failed: %s", job.view.id, job.view.what, job.view.object, error)
            finally:
                try:
                    then(self._ended(job, state, detail))
                except Exception as error:
                    logger.error("cannot record the end of job %s: %s", job.view.id, error)
                self.end(job, state, detail)

        threading.Thread(target=run, name=f"job {job.view.id}", daemon=True).start()

    def set_state(self, job: BackgroundJob, state: JobState) -> JobView:
        with self._lock:
            if not job.view.is_over:
                job.view = msgspec.structs.replace(job.view, state=state)
                self._save()
            return job.view

    def note(self, job: BackgroundJob, figures: dict[str, object]) -> None:
        with self._lock:
            job.view = msgspec.structs.replace(job.view, **figures)
            if time.monotonic() - self._saved >= _SAVE_EVERY:
                self._save()

    def end(self, job: BackgroundJob, state: JobState, detail: str) -> None:
        with self._lock:
            job.view = self._ended(job, state, detail)
            self._save()

    def _ended(self, job: BackgroundJob, state: JobState, detail: str) -> JobView:
        return msgspec.structs.replace(job.view, state=state, ended=int(self._clock()), detail=detail)

    def _read(self) -> list[JobView]:
        if self._file is None:
            return []
        try:
            data = read_jobs(self._file)
            return [] if data is None else msgspec.json.decode(data, type=list[JobView])
        except (JobsFileError, msgspec.MsgspecError) as error:
            logger.error("the list of jobs in %s cannot be read; starting an empty one: %s", self._file, error)
            return []

    def _save(self) -> None:
        try:
            self._write()
        except JobsFileError as error:
            logger.error("cannot save the list of jobs: %s", error)

    def _write(self) -> None:
        self._saved = time.monotonic()
        if self._file is not None:
            write_jobs(self._file, json_bytes([job.view for job in self._jobs.values()]))
