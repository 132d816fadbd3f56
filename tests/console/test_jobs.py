"""Background jobs on any number of messages: pausing, canceling, interruption, results."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command_line import invoke
from console.browser import ADMINISTRATOR, PASSWORD, USER, Browser, Client, FreshDaemon, port_of
from console.test_api import refused
from daemon import Daemon, eventually
from openmsmq.actions import jobs as job_actions
from openmsmq.actions.background import MOST_KEPT, MOST_RUNNING, BackgroundJob, CanceledJob, Jobs, JobView
from openmsmq.actions.errors import ActionRefused
from openmsmq.admin import acting
from openmsmq.admin.selection import Action as MessageWork
from openmsmq.admin.selection import Criteria
from openmsmq.client.sync import Cursor
from openmsmq.model.errors import AccessDenied
from openmsmq.model.message import Message
from openmsmq.model.roles import Role

MANY = 1_500  # more than one request processes


@pytest.fixture
def browser(daemon: Daemon) -> Browser:
    found = Browser(daemon)
    found.login()
    found.ask("GET", "/queues")
    return found


def fill(daemon: Daemon, name: str, count: int, *, transactional: bool = False, **properties: Any) -> None:
    with (
        daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager,
        manager.open(f".\\private$\\{name}", "send") as opened,
    ):
        messages = [Message.of("x", label=f"m{number}", **properties) for number in range(count)]
        if not transactional:
            opened.send_many(messages)
            return
        with manager.transaction() as transaction:
            opened.send_many(messages, transaction=transaction)


def pair(client: Client, name: str, **properties: Any) -> tuple[str, str]:
    """Create a source queue and a target queue."""
    source = client.post("/queues", name=name, **properties)["id"]
    return str(source), str(client.post("/queues", name=f"{name}-to", **properties)["id"])


def start(client: Client, queue: str, **values: Any) -> str:
    return str(client.post(f"/queues/{queue}/jobs", **values)["job"]["id"])


def job_of(client: Client, job: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/jobs/{job}")["job"]
    return found


def ended(client: Client, job: str) -> dict[str, Any]:
    """Wait for the end of a job and return the job."""

    def over() -> dict[str, Any] | None:
        found = job_of(client, job)
        return found if found["state"] not in ("running", "paused") else None

    return eventually(over, 120)


def count(client: Client, queue: str) -> int:
    return int(client.get(f"/queues/{queue}")["queue"]["messages"])


def paused(client: Client, job: str) -> dict[str, Any]:
    """Pause a running job, and wait until its counts no longer change."""
    client.act("POST", f"/jobs/{job}/pause")
    before = job_of(client, job)

    def still() -> bool:
        nonlocal before
        now = job_of(client, job)
        same = now == before
        before = now
        return same

    eventually(still)
    return before


# -- the work ------------------------------------------------------------------------------------------------------


def test_more_messages_than_a_request_takes_are_moved(client: Client, daemon: Daemon) -> None:
    source, target = pair(client, "job-move")
    fill(daemon, "job-move", MANY)
    done = ended(client, start(client, source, act="move", all=True, to="job-move-to"))
    assert (done["state"], done["done"], done["failed"], done["looked"]) == ("done", MANY, 0, MANY)
    assert done["ways"] == {"sent, then removed": MANY} and done["total"] == MANY and done["ended"]
    assert (count(client, source), count(client, target)) == (0, MANY)
    assert done in client.get("/jobs")["jobs"], "the result can be looked up later"
    name = client.get(f"/queues/{source}")["queue"]["name"]
    (began,) = client.get("/audit", action="messages.move", object=name)["records"]
    (over,) = client.get("/audit", action="job.end", object=done["id"])["records"]
    assert began["after"]["job"] == done["id"] and over["count"] == MANY and over["after"]["state"] == "done"


def test_only_messages_that_match_are_meant_and_at_most_as_many_as_the_limit_says(
    client: Client, daemon: Daemon
) -> None:
    source, _ = pair(client, "job-some")
    fill(daemon, "job-some", 30)
    done = ended(client, start(client, source, act="delete", label="m1*", limit=5))
    assert done["done"] == 5
    assert [each["label"] for each in client.messages(source)][:8] == ["m0", *(f"m{n}" for n in range(2, 9))]


def test_single_messages_are_found_wherever_they_are_in_the_queue(client: Client, daemon: Daemon) -> None:
    source, target = pair(client, "job-ids")
    fill(daemon, "job-ids", 20)
    chosen = [each["id"] for each in client.messages(source)[10:12]]
    found = client.post(f"/queues/{source}/jobs", act="move", ids=chosen, to="job-ids-to")
    assert found["command"].count("--id") == 2 and "msg move" in found["command"]
    done = ended(client, found["job"]["id"])
    assert (done["done"], done["looked"], count(client, target)) == (2, 12, 2), "it ends when all are found"


def test_messages_that_are_sent_again_into_their_own_queue_are_dealt_with_once(client: Client, daemon: Daemon) -> None:
    """The new messages follow the old ones in the same queue and must not be processed again."""
    source, _ = pair(client, "job-again")
    fill(daemon, "job-again", 40, priority=5)
    fill(daemon, "job-again", 10, priority=1)
    done = ended(client, start(client, source, act="resend", all=True, to="job-again"))
    assert (done["state"], done["done"], count(client, source)) == ("done", 50, 50)


def test_messages_that_come_after_the_start_are_not_touched(client: Client, daemon: Daemon) -> None:
    source, _ = pair(client, "job-later")
    fill(daemon, "job-later", MANY)
    job = start(client, source, act="delete", all=True)
    paused(client, job)
    fill(daemon, "job-later", 3, priority=7)
    client.act("POST", f"/jobs/{job}/resume")
    assert ended(client, job)["done"] == MANY and count(client, source) == 3


def test_a_job_is_paused_continues_and_is_canceled(client: Client, daemon: Daemon) -> None:
    source, target = pair(client, "job-stop")
    fill(daemon, "job-stop", MANY)
    job = start(client, source, act="copy", all=True, to="job-stop-to")
    first = paused(client, job)
    assert first["state"] == "paused" and first["done"] < MANY
    refused(409, client, "POST", f"/jobs/{job}/pause")
    client.act("POST", f"/jobs/{job}/resume")
    refused(409, client, "POST", f"/jobs/{job}/resume")
    eventually(lambda: job_of(client, job)["done"] > first["done"])
    client.act("POST", f"/jobs/{job}/cancel")
    done = ended(client, job)
    assert done["state"] in ("canceled", "done") and count(client, target) == done["done"], "each copy is made once"
    refused(409, client, "POST", f"/jobs/{job}/cancel")
    actions = [each["action"] for each in client.get("/audit", object=job)["records"]]
    assert sorted(actions) == ["job.cancel", "job.end", "job.pause", "job.resume"]


def test_failures_are_counted_and_the_messages_stay(client: Client, daemon: Daemon) -> None:
    source, _ = pair(client, "job-full")
    small = client.post("/queues", name="job-small", quota=1)["id"]
    with (
        daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager,
        manager.open(".\\private$\\job-full", "send") as opened,
    ):
        for number in range(5):
            opened.send(b"x" * 400, label=f"m{number}")
    done = ended(client, start(client, source, act="move", all=True, to="job-small"))
    assert done["state"] == "done" and done["failed"] > 0 and done["done"] + done["failed"] == 5
    assert len(done["failures"]) == done["failed"] and done["failures"][0]["detail"]
    assert count(client, source) + count(client, small) == 5


# -- authorization -------------------------------------------------------------------------------------------------


def test_a_job_is_for_who_started_it_and_for_administrators(client: Client, bob: Client, daemon: Daemon) -> None:
    source, _ = pair(client, "job-whose")
    fill(daemon, "job-whose", 2)
    job = start(client, source, act="delete", all=True)
    refused(404, bob, "GET", f"/jobs/{job}")
    refused(404, bob, "POST", f"/jobs/{job}/cancel")
    assert job not in [each["id"] for each in bob.get("/jobs")["jobs"]]
    fill(daemon, "job-whose-to", 2)
    own = start(bob, client.get("/queues", filter="job-whose-to")["queues"][0]["id"], act="delete", all=True)
    assert job_of(client, own)["user"] == "bob"


def test_nobody_starts_a_job_on_a_queue_that_they_may_not_read(client: Client, bob: Client, daemon: Daemon) -> None:
    source, _ = pair(client, "job-secret")
    fill(daemon, "job-secret", 1)
    client.post(f"/queues/{source}/permissions", change="revoke", user="everyone", rights=[], confirm=True)
    before = len(client.get("/jobs")["jobs"])
    assert bob.ask("POST", f"/queues/{source}/jobs", {"act": "delete", "all": True}).status in (403, 404)
    assert len(client.get("/jobs")["jobs"]) == before and count(client, source) == 1


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"act": "delete"}, "/all"), ({"act": "delete", "all": True, "label": "x"}, "/all"),
        ({"act": "move", "all": True}, "/to"), ({"act": "move", "all": True, "to": "no-such-queue"}, "/to"),
        ({"act": "return", "all": True}, "/act"), ({"act": "delete", "reason": "boredom"}, "/reason"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_a_job_begins(
    client: Client, queue: str, values: dict[str, Any], pointer: str
) -> None:
    before = len(client.get("/jobs")["jobs"])
    problem = refused(422, client, "POST", f"/queues/{queue}/jobs", values)
    assert problem["errors"][0]["pointer"] == pointer and len(client.get("/jobs")["jobs"]) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda users: users.set_password("bob", "another"), "login"),
     (lambda users: users.set_role("bob", Role.MONITOR), "bob has lost the role operator")],
)  # fmt: skip
def test_a_job_ends_when_its_user_may_no_longer_run_it(own: FreshDaemon, change: Any, said: str) -> None:
    client, bob = own.client, Client(own.daemon, "bob")
    source, _ = pair(client, "job-login")
    fill(own.daemon, "job-login", MANY)
    job = start(bob, source, act="copy", all=True, to="job-login-to")
    paused(client, job)
    change(own.users)
    client.act("POST", f"/jobs/{job}/resume")
    done = ended(client, job)
    assert done["state"] == "failed" and said in done["detail"] and done["done"] < MANY


def work(daemon: Daemon, source: str, user: str, **given: Any) -> job_actions._Work:
    """Return the work of a job as a part of this process."""
    site: Any = SimpleNamespace(
        queue={"open": f".\\private$\\{source}"}, connect=lambda: daemon.connect(user=user, password=PASSWORD),
        daemon=SimpleNamespace(call=lambda operation: {"role": Role.OPERATOR}),
    )  # fmt: skip
    return job_actions._Work(site, job_actions.NewJob(source, all=True, **given), Criteria(), 1 << 60)


@pytest.mark.parametrize("act", ["delete", "move"])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_that_another_reader_takes_first_has_not_failed(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, act: acting.Act, transactional: bool
) -> None:
    name = f"job-other-{act}{transactional:d}"
    source, target = pair(client, name, transactional=transactional)
    fill(daemon, name, 3, transactional=transactional)
    job = Jobs().begin("messages", **GIVEN)
    with daemon.connect(user=USER, password=PASSWORD) as other, other.open(f".\\private$\\{name}") as queue:
        whole = acting.action

        @contextmanager
        def behind(*deed: Any) -> Iterator[MessageWork]:
            with whole(*deed) as does:

                def later(cursor: Cursor, message: Message) -> str:
                    if message.label == "m0":
                        queue.receive(0)
                    return does(cursor, message)

                yield later

        monkeypatch.setattr(acting, "action", behind)
        work(daemon, name, ADMINISTRATOR, act=act, to=f"{name}-to" if act == "move" else None).run(job)
    assert (job.view.done, job.view.failed, job.view.gone) == (2, 0, 1)
    assert (count(client, source), count(client, target)) == (0, 2 if act == "move" else 0)


def test_a_job_ends_when_its_user_may_no_longer_read_its_queue(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = pair(client, "job-rights")
    fill(daemon, "job-rights", 3)
    job = Jobs().begin("messages", **GIVEN)
    whole = job.note

    def note(**figures: Any) -> None:
        whole(**figures)
        if figures.get("done") == 1:
            client.post(f"/queues/{source}/permissions", change="revoke", user="everyone", rights=[], confirm=True)

    monkeypatch.setattr(job, "note", note)
    monkeypatch.setattr(job_actions, "_CHECK_EVERY", 0)
    with pytest.raises(AccessDenied):
        work(daemon, "job-rights", USER, act="delete").run(job)
    assert job.view.done == 1 and count(client, source) == 2


# -- restarts ------------------------------------------------------------------------------------------------------


def test_a_job_in_the_middle_of_a_restart_is_interrupted_and_no_message_is_lost_or_there_twice(
    own: FreshDaemon,
) -> None:
    client, many = own.client, 600  # each is moved in a transaction of its own, which takes some milliseconds
    source, target = pair(client, "job-cut", transactional=True)
    fill(own.daemon, "job-cut", many, transactional=True)
    job = start(client, source, act="move", all=True, to="job-cut-to")
    eventually(lambda: job_of(client, job)["done"] > 0)
    own.daemon.kill()
    own.daemon.start()
    client = own.client
    found = job_of(client, job)
    assert found["state"] == "interrupted" and found["ended"] and found["detail"]
    moved = count(client, target)
    assert moved and found["done"] <= moved < many and count(client, source) + moved == many
    over = client.get("/audit", action="job.end", object=job)["records"][0]
    assert over["after"]["state"] == "interrupted" and over["actor"]["name"] == ADMINISTRATOR
    done = ended(client, start(client, source, act="move", all=True, to="job-cut-to"))
    assert (done["done"], count(client, source), count(client, target)) == (many - moved, 0, many)


def test_the_file_of_jobs_survives_and_what_was_under_way_is_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    first = Jobs(file)
    jobs = [first.begin("messages", what="move", object="q", user="a", sid="S", origin="x") for _ in range(3)]
    first.end(jobs[0], "done", "")
    first.set_state(jobs[1], "paused")
    later = Jobs(file)
    assert [view.state for view in later.views()] == ["interrupted", "interrupted", "done"]
    assert {view.id for view in later.interrupted} == {jobs[1].view.id, jobs[2].view.id}
    assert Jobs(file).interrupted == [], "once"
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"{", b'[{"id": 1}]', b"\xff"])
def test_a_damaged_file_of_jobs_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "jobs.json").write_bytes(damage)
    assert Jobs(tmp_path / "jobs.json").views() == []


# -- the list ------------------------------------------------------------------------------------------------------

GIVEN: dict[str, str] = {"what": "move", "object": "q", "user": "a", "sid": "S", "origin": "x"}


@pytest.mark.parametrize("state", ["running", "paused"])
def test_jobs_of_one_user_do_not_keep_others_from_starting_one(state: Any) -> None:
    started = Jobs()
    own = [started.begin("messages", **GIVEN) for _ in range(MOST_RUNNING)]
    started.set_state(own[0], state)
    with pytest.raises(ActionRefused, match=rf"resume or cancel it: {own[0].view.id} \(move q\) is {state}"):
        started.begin("messages", **GIVEN)
    started.begin("messages", **{**GIVEN, "sid": "S-2"})


def test_the_list_is_bounded_and_keeps_what_is_under_way() -> None:
    jobs = Jobs()
    first = jobs.begin("messages", **GIVEN)
    for _ in range(2 * MOST_KEPT):
        jobs.end(jobs.begin("messages", **GIVEN), "done", "")
    assert len(jobs.views()) == MOST_KEPT and jobs.get(first.view.id) is first
    for _ in range(MOST_RUNNING - 1):
        jobs.begin("messages", **GIVEN)
    with pytest.raises(ActionRefused, match="is the limit") as refused:
        jobs.begin("messages", **GIVEN)
    assert refused.value.status == 409
    jobs.begin("backup", **GIVEN)  # the limit of message jobs does not apply


def test_a_job_whose_file_cannot_be_written_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").mkdir()  # a directory in place of the file
    jobs = Jobs(tmp_path / "jobs.json")
    with pytest.raises(ActionRefused, match="was not started"):
        jobs.begin("messages", **GIVEN)
    assert jobs.views() == []


def run(work: Any) -> tuple[JobView, Jobs, BackgroundJob]:
    jobs, over, found = Jobs(), threading.Event(), []
    job = jobs.begin("messages", **GIVEN)
    jobs.run(job, work, lambda view: (found.append(view), over.set()))
    assert over.wait(60)
    return found[0], jobs, job


def test_how_work_ends_is_how_the_job_ends() -> None:
    def lost(job: BackgroundJob) -> None:
        raise ConnectionError("gone")

    def wrong(job: BackgroundJob) -> None:
        raise ValueError("wrong")

    def canceled(job: BackgroundJob) -> None:
        job.pause()
        job.cancel()
        job.wait()

    def paused_afterwards(job: BackgroundJob) -> None:
        job.cancel()
        job.pause()
        job.wait()

    assert run(lambda job: job.note(done=3))[0].state == "done"
    assert run(paused_afterwards)[0].state == "canceled"
    assert run(lost)[0].state == "interrupted"
    view = run(wrong)[0]
    assert (view.state, view.detail) == ("failed", "wrong")
    assert run(canceled)[0].state == "canceled"
    with pytest.raises(CanceledJob):
        run(canceled)[2].wait()


# -- commands and pages --------------------------------------------------------------------------------------------


def test_jobs_are_started_and_seen_by_commands(client: Client, daemon: Daemon) -> None:
    source, target = pair(client, "job-word")
    fill(daemon, "job-word", 3)
    token = client.post("/tokens", name="jobs", role="operator")["secret"]
    env = {"OPENMSMQ_URL": f"http://127.0.0.1:{port_of(daemon)}", "OPENMSMQ_TOKEN": token}
    begun = invoke("job", "start", "move", "job-word", "--all", "--to-queue", "job-word-to", "--json", **env)
    assert begun.code == 0, begun.stderr
    job = json.loads(begun.stdout)["id"]
    assert ended(client, job)["done"] == 3 and count(client, target) == 3
    shown = invoke("job", "show", job, **env)
    assert "3 done" in shown.stdout and job in invoke("job", "list", **env).stdout
    assert invoke("job", "pause", job, **env).code != 0
    assert invoke("job", "show", "nothing", **env).code == 3
    assert "job start move" in client.post(f"/queues/{source}/jobs", act="move", all=True, to="job-word-to")["command"]


def test_a_dry_run_of_more_than_a_request_takes_offers_a_job(browser: Browser, client: Client, daemon: Daemon) -> None:
    source, target = pair(client, "job-page")
    fill(daemon, "job-page", 1_001)
    form = {"csrf": browser.field("csrf"), "queue": source, "act": "move", "to": "job-page-to", "find": "m"}
    page = browser.ask("POST", "/plan", form).text
    offer = re.search(r'<form method="post" action="/in-background".*?</form>', page, re.DOTALL)
    assert "<strong>1,000</strong> messages" in page and offer is not None
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', offer.group())
    page = browser.ask("POST", "/in-background", fields).text
    link = re.search(r'href="(/jobs/\w+)"', page)
    assert link is not None
    done = ended(client, link.group(1).rpartition("/")[2])
    assert done["done"] == 1_001 and count(client, target) == 1_001
    assert "1,001" in browser.ask("GET", link.group(1)).text and "job-page" in browser.ask("GET", "/jobs").text


def test_a_dry_run_of_fewer_offers_none(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a")
    form = {"csrf": browser.field("csrf"), "queue": queue, "act": "delete"}
    assert "/in-background" not in browser.ask("POST", "/plan", form).text


def test_deleting_in_the_background_needs_a_word(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a")
    form = {"csrf": browser.field("csrf"), "queue": queue, "act": "delete"}
    answer = browser.ask("POST", "/in-background", form)
    assert answer.status == 422 and "tick the box" in answer.text and count(client, queue) == 1
    assert browser.ask("POST", "/in-background", {**form, "csrf": browser.field("csrf"), "sure": "true"}).status == 200
    eventually(lambda: count(client, queue) == 0)


def test_a_job_is_paused_and_canceled_by_page(browser: Browser, client: Client, daemon: Daemon) -> None:
    source, _ = pair(client, "job-click")
    fill(daemon, "job-click", MANY)
    job = start(client, source, act="copy", all=True, to="job-click-to")
    csrf = browser.field("csrf")
    assert browser.ask("POST", f"/jobs/{job}/pause", {"csrf": csrf}).headers["location"] == f"/jobs/{job}"
    assert "Resume" in browser.ask("GET", f"/jobs/{job}").text
    assert browser.ask("POST", f"/jobs/{job}/cancel", {"csrf": csrf}).status == 303
    assert ended(client, job)["state"] == "canceled"
    answer = browser.ask("POST", f"/jobs/{job}/cancel", {"csrf": csrf})
    assert answer.status == 409 and "is canceled" in html.unescape(answer.text) and "Log out" in answer.text


def test_names_of_queues_are_text_on_pages_of_jobs(browser: Browser, client: Client) -> None:
    name = "<b>job'& {{7*7}}"
    source, _ = pair(client, name)
    job = start(client, source, act="delete", all=True)
    ended(client, job)
    for path in ("/jobs", f"/jobs/{job}"):
        page = browser.ask("GET", path).text
        assert "<b>job" not in page and "{{7*7}}" in html.unescape(page)
