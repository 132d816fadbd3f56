"""Administrator commands through the HTTP API of a daemon have the same results as on its data directory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandResult, at, invoke
from console.browser import ADMINISTRATOR, PASSWORD, USER, Client, port_of
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from openmsmq.actions import by_http
from openmsmq.actions.definitions import Imported
from openmsmq.cli.exit_codes import DENIED, FAILED, NOT_FOUND

WRONG_USAGE = 2


class LocalAndRemote:
    """Runs commands on a daemon through its URL (`there`) and on its data directory (`here`)."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.url = f"http://127.0.0.1:{port_of(daemon)}"
        made = invoke(
            "token", "create", f"admin {time.time()}", "--user", ADMINISTRATOR, "--role", "administrator", "--json",
            OPENMSMQ_DATA_DIR=str(daemon.directory),
        )  # fmt: skip
        self.token = str(json.loads(made.stdout)["secret"])

    def there(self, *arguments: str, stdin: str = "", token: str = "") -> CommandResult:
        given = {"OPENMSMQ_TOKEN": token or self.token, "OPENMSMQ_DATA_DIR": "/nowhere"}
        return invoke(*arguments, "--url", self.url, stdin=stdin, **given)

    def here(self, *arguments: str, stdin: str = "") -> CommandResult:
        return invoke(*arguments, "--data-dir", str(self.daemon.directory), stdin=stdin)

    def same(self, *arguments: str) -> str:
        """Return the output of a command, which must be the same both ways."""
        there, here = self.there(*arguments), self.here(*arguments)
        assert there == here and there.code == 0, (arguments, there, here)
        return there.stdout


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAndRemote]:
    """A daemon with backups and an active alarm, without anonymous access to metrics."""
    directory = tmp_path_factory.mktemp("elsewhere")
    users(directory / "data")
    (directory / "backups").mkdir()
    options = ("--backup-directory", str(directory / "backups"), "--alarm-disk-megabytes", "999999999",
               "--no-allow-anonymous")  # fmt: skip
    with Daemon(directory / "data", *OPTIONS, *options) as daemon:
        yield LocalAndRemote(daemon)


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def secret_of(both: LocalAndRemote, user: str, role: str, name: str) -> str:
    return both.here("token", "create", name, "--user", user, "--role", role).stdout.strip()


# -- users and groups ----------------------------------------------------------------------------------------------


def test_users_and_groups_are_managed_on_another_machine(both: LocalAndRemote) -> None:
    added = both.there("user", "add", "carol", "--password-stdin", "--role", "monitor", stdin="Pa55 wörd\n")
    assert added.code == 0 and added.stdout.startswith("S-1-5-21-")
    carol = documents(both.same("user", "list", "--json"))[-1]
    assert (carol["name"], carol["sid"], carol["role"]) == ("carol", added.stdout.strip(), "monitor")
    assert both.there("user", "role", "carol", "operator").code == 0
    assert both.there("user", "admin", "carol").code == 0
    group = both.there("user", "group", "add", "clerks", "carol", "bob")
    assert group.code == 0 and group.stdout.startswith("S-1-5-21-")
    assert both.there("user", "group", "leave", "clerks", "bob").code == 0
    carol = documents(both.same("user", "list", "--json"))[-1]
    assert (carol["role"], carol["administrator"], carol["groups"]) == ("operator", True, ["clerks"])
    assert "operator" in both.same("user", "list") and "carol" in both.same("user", "group", "list")
    assert both.there("user", "group", "join", "clerks", "bob").code == 0
    assert documents(both.same("user", "group", "list", "--json"))[0]["members"] == ["bob", "carol"]
    assert both.there("user", "admin", "carol", "--revoke").code == 0
    assert both.there("user", "passwd", "carol", "--password-stdin", stdin="0ther\n").code == 0
    assert Client(both.daemon, "carol", "0ther").get("/session")["role"] == "operator"
    assert both.there("user", "group", "remove", "clerks").code == 0
    assert both.there("user", "remove", "carol").code == 0
    assert "carol" not in both.same("user", "list") and both.same("user", "group", "list", "--json") == ""
    logged = both.daemon.log + (both.daemon.directory / "audit.jsonl").read_text()
    assert "Pa55" not in logged and "0ther" not in logged


def test_what_the_server_refuses_of_users_is_said(both: LocalAndRemote) -> None:
    for words, code, said in (
        (("remove", "nobody"), NOT_FOUND, "there is no user nobody"),
        (("remove", ""), NOT_FOUND, "a name is empty"),
        (("remove", ADMINISTRATOR), FAILED, "you cannot remove yourself"),
        (("add", USER, "--password-stdin"), FAILED, "exists"),
        (("add", "x" * 300, "--password-stdin"), FAILED, "/name"),
        (("group", "join", "nogroup", USER), NOT_FOUND, "there is no group nogroup"),
    ):
        ended = both.there("user", *words, stdin="secret password\n")
        assert ended.code == code and said in ended.stderr and ended.stdout == "", ended
        assert "secret password" not in ended.stderr
    long = both.there("user", "add", "dora", "--password-stdin", stdin="x" * 1025 + "\n")
    assert long.code == FAILED and "/password" in long.stderr and "xxx" not in long.stderr
    assert both.there("user", "add", "dora", "--password-stdin", stdin="\n").code == FAILED
    assert both.same("user", "list", "--json").count("\n") == 2


def test_users_are_for_administrators_in_that_role(both: LocalAndRemote) -> None:
    for user, role in ((ADMINISTRATOR, "operator"), (USER, "administrator")):
        token = secret_of(both, user, role, "looks at users")
        for words in (("user", "list"), ("audit",), ("settings",), ("backup", "--list"), ("user", "remove", "x")):
            ended = both.there(*words, token=token)
            assert ended.code == DENIED and ended.stdout == "", ended
    assert both.there("user", "list", token="omq_wrong").code == DENIED


# -- URL or data directory -----------------------------------------------------------------------------------------


def test_options_of_the_group_count_and_those_of_the_command_go_first(both: LocalAndRemote) -> None:
    data_dir = str(both.daemon.directory)
    listed = both.same("user", "list", "--json")
    given = {"OPENMSMQ_TOKEN": both.token}
    assert invoke("user", "--url", both.url, "list", "--json", **given).stdout == listed
    assert invoke("user", "--data-dir", data_dir, "list", "--json").stdout == listed
    assert invoke("user", "--data-dir", "/nowhere", "list", "--json", "--data-dir", data_dir).stdout == listed
    from_environment = {**given, "OPENMSMQ_URL": both.url, "OPENMSMQ_DATA_DIR": "/nowhere"}
    assert invoke("user", "list", "--json", **from_environment).stdout == listed


def test_a_data_directory_that_is_typed_goes_before_a_url_of_the_environment(
    both: LocalAndRemote, tmp_path: Path
) -> None:
    given = {"OPENMSMQ_URL": both.url, "OPENMSMQ_TOKEN": both.token}
    added = invoke("user", "--data-dir", str(tmp_path), "add", "zoe", "--password-stdin", stdin="x\n", **given)
    assert added.code == 0 and (tmp_path / "users.json").exists()
    assert "zoe" not in both.same("user", "list")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("user", "list", "--url", "http://127.0.0.1:1", "--data-dir", "x"), "--data-dir cannot be combined with"),
        (("user", "--users-file", "x", "list", "--url", "http://127.0.0.1:1"), "--users-file cannot be combined with"),
        (("audit", "--token-file", "x"), "--token-file requires --url"),
        (("settings", "--tls-root", "x"), "--tls-root requires --url"),
        (("audit", "--url", "http://127.0.0.1:1"), "no token of the HTTP API"),
        (("alarms", "--url", "http://10.0.0.7:1"), "use https"),
        (("backup",), "DIRECTORY is missing"),
        (("backup", "--list"), "--list requires the HTTP API: give --url"),
        (("backup", "--list", "x", "--url", "http://127.0.0.1:1"), "does not take a DIRECTORY"),
        (("token", "create", "x", "--user", "bob", "--password-stdin"), "--password-stdin requires the HTTP API"),
        (("definitions", "export", "--url", "http://127.0.0.1:1", "--host", "x"), "--host cannot be combined with"),
        (("definitions", "export", "--secrets", "--url", "http://127.0.0.1:1"), "does not return password hashes"),
    ],
)
def test_options_that_do_not_fit_are_named(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    token = {} if "no token" in said else {"OPENMSMQ_TOKEN": "omq_x"}
    ended = invoke(*words, OPENMSMQ_DATA_DIR=str(tmp_path), **token)
    assert ended.code == WRONG_USAGE and said in ended.stderr and not list(tmp_path.iterdir()), ended


# -- tokens --------------------------------------------------------------------------------------------------------


def test_a_user_makes_a_token_with_the_password_from_another_machine(both: LocalAndRemote) -> None:
    words = ("token", "create", "of bob", "--user", USER, "--role", "operator", "--days", "3", "--password-stdin")
    made = both.there(*words, "--json", stdin=PASSWORD + "\n")
    [document] = documents(made.stdout)
    assert document["secret"].startswith("omq_") and 2 * 86400 < document["expires"] - time.time() <= 3 * 86400
    [who] = documents(both.there("token", "check", "--json", token=document["secret"]).stdout)
    assert (who["user"], who["administrator"], who["role"]) == (USER, False, "operator")
    assert "no administrator, in the role operator" in both.there("token", "check", token=document["secret"]).stdout
    both.same("token", "list", "--json")
    assert "of bob" in both.same("token", "list")
    own = documents(both.there("token", "list", "--json", token=document["secret"]).stdout)
    assert {each["user"] for each in own} == {USER}
    gone = both.there("token", "revoke", document["id"])
    assert gone.code == 0 and "revoked of bob of bob" in gone.stderr
    again = both.there("token", "revoke", document["id"])
    assert again.code == NOT_FOUND and document["id"] in again.stderr
    assert both.there("token", "check", token=document["secret"]).code == DENIED


def test_a_password_that_is_wrong_makes_no_token(both: LocalAndRemote) -> None:
    words = ("token", "create", "none", "--user", ADMINISTRATOR, "--password-stdin")
    ended = both.there(*words, stdin="Wr0ng\n")
    assert ended.code == DENIED and "user or password" in ended.stderr and "Wr0ng" not in ended.stderr
    assert "none" not in both.same("token", "list", "--json")


# -- audit log, alarms, settings -----------------------------------------------------------------------------------


def test_the_audit_log_is_the_same_by_every_filter(both: LocalAndRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in pages of three records."""
    for number in range(4):
        Client(both.daemon).post("/queues", name=f"Audited{number}")
    for pattern in ("*", "queue.create", "token.*"):
        both.same("audit", "--action", pattern, "-n", "0", "--json")
    whole = by_http._all_pages
    small = {"largest": 3}
    monkeypatch.setattr(
        by_http, "_all_pages", lambda http, row, of, given: whole(http, row, of._replace(**small), given)
    )
    assert len(documents(both.same("audit", "--json", "-n", "0"))) > 6
    assert len(documents(both.same("audit", "--json", "-n", "4"))) == 4
    queues = ("audit", "--object", "*audited*", "--action", "queue.create")
    assert len(documents(both.same(*queues, "-n", "0", "--json"))) == 4
    assert "Audited3" in both.same(*queues) or "audited3" in both.same(*queues)
    [last] = documents(both.same(*queues, "-n", "1", "--json"))
    sid = last["actor"]["sid"]
    for by in ("al*", "ALICE", sid, sid.lower()):
        assert len(documents(both.same(*queues, "--by", by, "--json"))) == 4
    assert both.same(*queues, "--by", "al", "--json") == both.same(*queues, "--denied", "--json") == ""


def test_alarms_are_the_same(both: LocalAndRemote) -> None:
    eventually(lambda: both.here("alarms", "--json").stdout)
    [alarm] = documents(both.same("alarms", "--json"))
    assert (alarm["name"], alarm["unit"]) == ("disk", "MB")
    assert "Make room" in both.same("alarms")
    [event] = documents(both.same("alarms", "--history", "--json"))
    assert (event["alarm"], event["state"], event["seq"]) == ("disk", "raised", 1) and event["machine"]
    assert "raised" in both.same("alarms", "--history")


def test_settings_in_force_are_shown_with_their_origin(both: LocalAndRemote) -> None:
    everything = documents(both.same("settings", "--json"))
    assert len(everything) > 60 and {each["source"] for each in everything} >= {"default", "option"}
    assert all(each["default"] == (each["source"] == "default") for each in everything)
    assert documents(both.same("settings", "web", "--json")) == [
        {"name": "web", "value": True, "source": "option", "default": False}
    ]
    changed = documents(both.same("settings", "--changed", "--json"))
    assert changed == [each for each in everything if not each["default"]] and 0 < len(changed) < 20
    assert documents(both.same("settings", "Alarm-*", "--changed", "--json"))[0]["value"] == 999999999
    assert "option" in both.same("settings", "web_*", "--changed")
    assert both.same("settings", "audit", "--changed") == "all settings have their default values\n"
    for place in (both.there, both.here):
        ended = place("settings", "nosuch")
        assert ended.code == FAILED and "there is no setting nosuch" in ended.stderr


def test_a_directory_in_which_no_daemon_has_started_has_no_settings(tmp_path: Path) -> None:
    ended = invoke("settings", "--data-dir", str(tmp_path))
    assert ended.code == FAILED and f"{tmp_path} is not a data directory" in ended.stderr


# -- definitions ---------------------------------------------------------------------------------------------------


def test_definitions_are_written_compared_and_made_on_another_machine(both: LocalAndRemote, tmp_path: Path) -> None:
    Client(both.daemon).post("/queues", name="defined", label="Defined")
    by_rpc = {**at(both.daemon), "OPENMSMQ_PASSWORD": PASSWORD, "OPENMSMQ_DATA_DIR": str(both.daemon.directory)}
    for local in ((), ("--local",)):
        direct = invoke("definitions", "export", *local, "--user", ADMINISTRATOR, **by_rpc)
        there = both.there("definitions", "export", *local)
        assert there.code == direct.code == 0 and json.loads(there.stdout) == json.loads(direct.stdout)
    file = tmp_path / "definitions.json"
    assert both.there("definitions", "export", str(file), "--local").code == 0
    assert both.there("definitions", "diff", str(file), "--local") == (0, "", "")
    document = json.loads(file.read_text())
    document["queues"] += [{"name": "odd", "permissions": ["allow nobody WriteMessage"]}]
    file.write_text(json.dumps(document))
    refused = both.there("definitions", "import", str(file), "--local", "--dry-run")
    assert refused.code == FAILED and "'nobody' is not a user" in refused.stderr
    document["queues"][-1] = {"name": "new"}
    document["groups"] = [{"name": "packers", "members": [USER]}]
    document["users"] += [{"name": "erin"}]
    file.write_text(json.dumps(document))
    planned = both.there("definitions", "diff", str(file), "--local")
    assert planned.code == FAILED and "create queue new" in planned.stdout and "packers" in planned.stdout
    dry = documents(both.there("definitions", "import", str(file), "--local", "--dry-run", "--json").stdout)
    assert {step["result"] for step in dry} == {"would be done", "left"}
    assert "packers" not in both.same("user", "group", "list")
    made = both.there("definitions", "import", str(file), "--local")
    assert made.code == 0, made
    assert "[done]" in made.stdout and "[left]" in made.stdout and "erin" not in both.same("user", "list")
    assert documents(both.same("user", "group", "list", "--json"))[0]["members"] == [USER]
    both.there("user", "group", "remove", "packers")
    ended = both.there("definitions", "export", "--local", token=secret_of(both, USER, "administrator", "definitions"))
    assert ended.code == DENIED
    direct = invoke("definitions", "export", "--host", "127.0.0.1", OPENMSMQ_URL="http://127.0.0.1:1", **{
        **at(both.daemon), "OPENMSMQ_PASSWORD": PASSWORD, "OPENMSMQ_USER": ADMINISTRATOR
    })  # fmt: skip
    assert direct.code == 0, "what is typed goes before the URL of the environment"


def test_an_import_that_is_not_what_was_planned_is_said(
    both: LocalAndRemote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.json").write_text(json.dumps({"format": 1, "queues": [{"name": "unmade"}]}))
    asked = by_http._ask

    def ask(http: Any, action: Any, *given: Any) -> Any:
        return Imported([], 0, "") if action.http == "POST /definitions" else asked(http, action, *given)

    monkeypatch.setattr(by_http, "_ask", ask)
    ended = both.there("definitions", "import", str(tmp_path / "f.json"))
    assert ended.code == FAILED and "the import had 0 steps, but its dry run had" in ended.stderr


# -- backups -------------------------------------------------------------------------------------------------------


def test_a_backup_is_made_on_another_machine(both: LocalAndRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_http, "_LOOK", 0.05)
    made = both.there("backup", "first")
    where = both.daemon.directory.parent / "backups" / "first"
    assert made.code == 0 and made.stdout == f"{where}: 0 messages\n", made
    assert (where / "backup.json").exists()
    [named] = documents(both.there("backup", "--json").stdout)
    assert named["messages"] == 0 and named["bytes"] is None and named["backup"].startswith(str(where.parent))
    listed = documents(both.there("backup", "--list", "--json").stdout)
    assert {each["state"] for each in listed} == {"done"} and "first" in [each["name"] for each in listed]
    assert "done" in both.there("backup", "--list").stdout
    again = both.there("backup", "first")
    assert again.code == FAILED and "exists" in again.stderr
    outside = both.there("backup", "../elsewhere")
    assert outside.code == FAILED and "is not a valid name of a backup" in outside.stderr


# -- figures over time ---------------------------------------------------------------------------------------------


def test_charts_are_shown_in_text(both: LocalAndRemote) -> None:
    points = eventually(lambda: (found := documents(both.there("series", "--json").stdout))[2:] and found)
    members = {"at", "messages", "came", "left", "dead", "sync", "call", "free"}
    assert set(points[0]) == members and points[0]["at"] < points[1]["at"] and points[0]["free"] > 0
    shown = both.there("series").stdout
    assert (
        "came, /s" in shown and "sync, ms" in shown and "disk free, MB" in shown and "▁▁" in shown and " UTC" in shown
    )
    assert both.there("series", "24h").code == 0
    assert both.there("series", "7d").code == WRONG_USAGE


def test_figures_of_all_queues_are_for_administrators(both: LocalAndRemote) -> None:
    ended = both.there("series", token=secret_of(both, USER, "administrator", "figures"))
    assert ended.code == DENIED and "administrators" in ended.stderr
