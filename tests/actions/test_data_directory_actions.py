"""Individual actions on a data directory, for several callers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.accounts.users import NoSuchAccount
from openmsmq.actions import audit, backups, messages, relays, sequences
from openmsmq.actions.alarms import list_alarms
from openmsmq.actions.backups import BackupView
from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.relays import RelayQuery, list_relays
from openmsmq.actions.settings import SettingQuery, list_settings
from openmsmq.actions.site import OPERATOR_OF_FILES, ActionCaller, ActionSite
from openmsmq.actions.table import Empty
from openmsmq.actions.tokens import NewToken, TokenRevocation, create_token, list_tokens, revoke_token
from openmsmq.actions.users import NamedUser, NewUser, UserChange, change_user, create_user, delete_user
from openmsmq.admin.alarms import Alarms, document_of, write_alarms
from openmsmq.admin.data_directories import NoDataDirectory
from openmsmq.model.errors import AccessDenied, MessageNotFound
from openmsmq.model.message import Message
from openmsmq.model.roles import Role

ALICE = ActionCaller("alice", "S-1-5-21-1", True, Role.ADMINISTRATOR)
BOB = ActionCaller("bob", "S-1-5-21-2", False, Role.OPERATOR)
SETTINGS = {
    "web": {"value": True, "source": "option"}, "web_port": {"value": 18021, "source": "default"},
    "audit": {"value": True, "source": "default"},
}  # fmt: skip


class Records(list[tuple[str, str, str]]):
    """The audit records: action, type and name."""

    def __call__(self, action: str, kind: str, name: str, *_: Any, **__: Any) -> None:
        self.append((action, kind, name))


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def site(tmp_path: Path, records: Records) -> ActionSite:
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    return ActionSite(tmp_path, tmp_path / "users.json", OPERATOR_OF_FILES, records, "mq1")


def test_alarms_are_those_of_the_queues_that_the_caller_may_see(site: ActionSite) -> None:
    known = Alarms()
    known.update({("oldest", queue): 100 for queue in ("a", "b", "c")}, {"oldest": 10}, 5.0)
    write_alarms(site.directory, document_of(known))
    found = list_alarms.perform(site, Empty())
    assert [each.queue for each in found.active] == ["a", "b", "c"] and found.machine == "mq1"
    of_bob = list_alarms.perform(replace(site, caller=BOB, visible=lambda: {"b"}), Empty())
    assert [each.queue for each in of_bob.active] == [each.alarm.queue for each in of_bob.events] == ["b"]


def test_settings_are_chosen_by_name_and_by_whether_they_were_set(site: ActionSite) -> None:
    def names(**given: Any) -> list[str]:
        return [each.name for each in list_settings.perform(site, SettingQuery(**given)).settings]

    assert names() == ["audit", "web", "web_port"]
    assert names(name="Web*") == ["web", "web_port"] and names(name="web-port") == ["web_port"]
    assert names(changed=True) == ["web"] and names(name="audit", changed=True) == []
    with pytest.raises(ActionRefused, match="there is no setting nosuch") as refused:
        names(name="nosuch")
    assert refused.value.status == 422


def test_a_directory_without_daemon_has_nothing_to_show(tmp_path: Path, records: Records) -> None:
    site = ActionSite(tmp_path, tmp_path / "users.json", OPERATOR_OF_FILES, records)
    for row, given in ((list_settings, SettingQuery()), (list_alarms, Empty()), (list_tokens, Empty())):
        with pytest.raises(NoDataDirectory):
            row.perform(site, given)


def test_tokens_are_shown_to_and_revoked_by_their_user_and_administrators(site: ActionSite, records: Records) -> None:
    alice, bob = replace(site, caller=ALICE), replace(site, caller=BOB)
    made = create_token.perform(bob, NewToken("script", "operator", 7))
    assert made.command == "openmsmq token create --user bob script --role operator --days 7"
    assert (made.token.user, made.token.expires - made.token.created) == ("bob", 7 * 86400)
    create_token.perform(alice, NewToken("hers"))
    assert [each.name for each in list_tokens.perform(bob, Empty()).tokens] == ["script"]
    assert [each.name for each in list_tokens.perform(alice, Empty()).tokens] == ["hers", "script"]
    (hers,) = [each for each in list_tokens.perform(alice, Empty()).tokens if each.user == "alice"]
    with pytest.raises(ActionRefused, match="there is no token"):
        revoke_token.perform(bob, TokenRevocation(hers.id))
    revoke_token.perform(alice, TokenRevocation(made.token.id))
    assert [name for name, _, _ in records] == ["token.create", "token.create", "token.revoke"]


def test_no_token_is_made_by_a_token_or_has_more_than_its_maker(site: ActionSite, records: Records) -> None:
    for caller, role in ((replace(ALICE, token="5f0c21ab"), "monitor"), (BOB, "administrator")):
        with pytest.raises(AccessDenied):
            create_token.perform(replace(site, caller=caller), NewToken("x", role))  # type: ignore[arg-type]
    assert not records


def test_an_operator_of_files_acts_for_a_user_who_is_there(site: ActionSite) -> None:
    create_user.perform(site, NewUser("Carol", "secret"))
    assert site.acting_for("CAROL").caller.name == "Carol"
    with pytest.raises(NoSuchAccount, match="there is no user dora in"):
        site.acting_for("dora")


def test_a_user_cannot_revoke_their_own_rights(site: ActionSite, records: Records) -> None:
    for name in ("alice", "bob"):
        create_user.perform(site, NewUser(name, "secret", administrator=True))
    alice = replace(site, caller=ALICE)
    for row, given in (
        (delete_user, NamedUser("ALICE")), (change_user, UserChange("alice", administrator=False)),
        (change_user, UserChange("alice", role="monitor")),
    ):  # fmt: skip
        with pytest.raises(ActionRefused, match="cannot remove yourself"):
            row.perform(alice, given)
    change_user.perform(alice, UserChange("bob", administrator=False))
    with pytest.raises(ActionRefused, match="ask for the current one"):
        change_user.perform(alice, UserChange("ALICE", password="another"))
    done = change_user.perform(site, UserChange("alice", password="another"))
    assert done.command == "openmsmq user passwd alice"
    assert [name for name, _, _ in records[2:]] == ["user.no-administrator", "user.password"]
    delete_user.perform(site, NamedUser("alice"))


def test_backups_are_listed_with_the_latest_first(site: ActionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old", "latest", "early"):
        (site.directory / name).mkdir()
    times = {"old": "2026-01-02", "latest": "2026-03-01", "early": None}
    monkeypatch.setattr(backups, "_known", lambda _, __, name: BackupView(name, "done", times[name], None, None))
    jobs: Any = SimpleNamespace(directory=str(site.directory), outside=())
    found = backups.list_backups.perform(replace(site, backups=jobs), Empty())
    assert [each.name for each in found.backups] == ["latest", "old", "early"]


def test_a_sequence_that_is_forgotten_is_named_with_its_last_number() -> None:
    known: Any = SimpleNamespace(source="guid", queue="q", sequence=SimpleNamespace(number=1200))
    assert sequences._said(known) == "the sequence of guid into q, last number 1,200"


def test_a_lost_position_in_a_long_queue_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class QueueWithGap:
        """A queue in which message 1000 is missing and all others exist."""

        def peek(self, timeout: int) -> Message:
            return Message(lookup_identifier=1)

        def peek_by_lookup_id(self, identifier: int, direction: str) -> Message:
            if identifier == 1000:
                raise MessageNotFound
            return Message(lookup_identifier=identifier + 1)

    opened: Any = QueueWithGap()
    monkeypatch.setattr(messages, "SCANNED", 10)
    with pytest.raises(ActionRefused, match="messages at the end of the last page no longer exist"):
        messages._next(opened, 1000)
    monkeypatch.setattr(messages, "SCANNED", 2000)
    assert messages._next(opened, 1000) is None


def test_a_relay_is_found_by_any_form_of_the_name_of_its_queue(
    site: ActionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [SimpleNamespace(queue=f".\\private$\\{name}") for name in ("Orders", "bills")]
    monkeypatch.setattr(relays, "_rows", lambda _: rows)
    assert list_relays.perform(site, RelayQuery()).relays == rows
    for name in ("orders", ".\\private$\\ORDERS"):
        assert list_relays.perform(site, RelayQuery(name)).relays == rows[:1]
    with pytest.raises(ActionRefused, match=r"^missing has no relay") as refused:
        list_relays.perform(site, RelayQuery("missing"))
    assert refused.value.status == 404


def test_a_site_that_is_shown_has_neither_its_daemon_nor_its_connections(site: ActionSite) -> None:
    shown = repr(site)
    assert "machine='mq1'" in shown
    assert [name for name in ("record", "manager", "accounts", "daemon", "backups") if f", {name}=" in shown] == []


def test_a_change_in_the_audit_log_is_shown_with_old_and_new_values() -> None:
    values: dict[str, Any] = {"before": {"label": "a"}, "after": {"label": "b", "quota": 0}}
    made = audit.AuditRecordView(
        "1", "t", audit.ActorView("alice", None), audit.SettingOrigin("cli", None), "queue.properties", "queue", "q",
        None, **values, result="ok",
    )  # fmt: skip
    assert audit._cells(made) == ["t", "alice", "cli", "queue.properties", "q", "", "ok", "label: a -> b, quota: 0"]


def test_unreadable_alarms_are_refused_as_unavailable(site: ActionSite) -> None:
    (site.directory / "alarms.json").write_bytes(b"{")
    with pytest.raises(ActionRefused, match="alarms can't be read") as refused:
        list_alarms.perform(site, Empty())
    assert refused.value.status == 503


def test_a_body_is_shown_in_the_form_that_was_asked_for() -> None:
    shown = messages._body_of(Message(body=b"[1]"), "text")
    assert (shown.kind, shown.text, shown.size, shown.cut, shown.problem) == ("text", "[1]", 3, False, "")
    shown = messages._body_of(Message(body=b"{"), "json")
    assert (shown.text, shown.size) == ("", 1) and shown.problem.startswith("the body is not JSON")
