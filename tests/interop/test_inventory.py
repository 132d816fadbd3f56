"""An inventory of a queue manager that is accessed only through its public protocols."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import openmsmq
from command_line import CommandResult, invoke
from daemon import Daemon
from openmsmq.cli.exit_codes import UNREACHABLE
from openmsmq.model.constants import QueueAccessMask
from openmsmq.model.security import EVERYONE, SecurityDescriptor, allow

ALICE = "S-1-5-21-1-2-3-1105"
HOST = "127.0.94.1"


def inventory(daemon: Daemon, *words: str) -> CommandResult:
    return invoke("adopt", "inventory", HOST, "--port", str(daemon.port), *words)


def taken(daemon: Daemon, *words: str) -> dict[str, Any]:
    ended = inventory(daemon, "--json", *words)
    assert ended.code == 0, ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def queue(found: dict[str, Any], name: str) -> dict[str, Any]:
    (each,) = [each for each in found["queues"] if each["name"] == name]
    return dict(each)


def remarks(found: dict[str, Any], about: str) -> list[str]:
    return [f"{each['weight']}: {each['said']}" for each in found["remarks"] if each["about"] == about]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(
        tmp_path_factory.mktemp("inventory") / "old", "--listen", HOST, "--computer-name", "OLD",
        "--allow-anonymous", "--anonymous-is-administrator",
    )  # fmt: skip
    with daemon:
        with openmsmq.connect(HOST, daemon.port) as manager:
            fill(manager)
        yield daemon
    assert "Traceback" not in daemon.log, daemon.log


def fill(manager: openmsmq.QueueManager) -> None:
    rights = SecurityDescriptor(
        owner=ALICE, dacl=(allow(EVERYONE, int(QueueAccessMask.GENERIC_ALL)), allow(ALICE, 2), allow("S-1-5-20", 4))
    )
    manager.create_queue(r".\private$\orders", security=rights.pack(), label="<b>Orders</b>", transactional=True)
    manager.create_queue(r".\private$\news", multicast_address="234.1.1.1:8001", journal=True)
    manager.create_queue(r".\private$\secret", authenticate=True, priv_level=2)
    manager.create_queue(
        r".\private$\closed",
        security=SecurityDescriptor(owner=ALICE, dacl=(allow(ALICE, int(QueueAccessMask.GENERIC_ALL)),)).pack(),
    )
    with manager.open(r".\private$\news", "send") as opened:
        opened.send("taken", recoverable=True)
        opened.send("one", recoverable=True, response_queue_format_name="DIRECT=HTTP://web/msmq/private$/answers")
        opened.send("two", recoverable=True)
    with manager.open(r".\private$\news") as opened:
        opened.receive(0)
        *_, last = list(opened)
        opened.move(last.lookup_identifier, "later")
    with manager.open(r"DIRECT=TCP:192.0.2.9\private$\away", "send") as opened:
        opened.send("far")


def test_an_inventory_has_queues_rights_counts_and_outgoing_messages(old: Daemon) -> None:
    found = taken(old)
    orders = queue(found, "orders")
    assert (orders["transactional"], orders["messages"], orders["kind"]) == (True, 0, "private")
    assert orders["definition"]["owner"] == ALICE
    assert "allow Everyone FullControl" in orders["definition"]["permissions"]
    assert found["accounts"] == {"S-1-5-20": "Network Service"}
    assert queue(found, "news")["journal_messages"] == 1
    assert queue(found, "deadletter")["messages"] == 0
    (away,) = found["outgoing"]
    assert (away["format_name"], away["messages"]) == (r"DIRECT=TCP:192.0.2.9\private$\away", 1)
    assert found["queue_manager"] and found["type"].startswith("Message Queuing")
    assert {each["name"]: each["answer"] for each in found["services"]}["MS-MQMP: properties and rights"] == ""


def test_remarks_name_problems_and_their_remedies(old: Daemon) -> None:
    found = taken(old)
    assert remarks(found, "news") == [
        "not here: it takes what is sent to 234.1.1.1:8001",
        "not here: its first message requests replies to a queue by HTTP: DIRECT=HTTP://web/msmq/private$/answers",
        "to do: it has 1 subqueue: later",
    ]
    assert remarks(found, "secret") == [
        "to do: it takes signed messages only",
        "to do: it takes encrypted messages only",
    ]
    assert f"to do: account {ALICE} is of that machine or its domain; 1 queue named: orders" in remarks(
        found, "the machine"
    )
    assert all(each["do"] for each in found["remarks"])


def test_a_missing_right_is_named_and_the_rest_is_reported(old: Daemon) -> None:
    found = taken(old)
    closed = queue(found, "closed")
    assert {each["item"] for each in closed["not_learned"]} >= {"properties", "rights"}
    assert all("ACCESS_DENIED" in each["reason"] for each in closed["not_learned"])
    assert queue(found, "news")["definition"]["journal"] is True
    assert any("rights not learned" in said for said in remarks(found, "closed"))


def test_without_ms_mqmp_the_rest_is_still_reported(tmp_path: Path) -> None:
    with Daemon(tmp_path / "old", "--listen", HOST, "--allow-anonymous", "--anonymous-is-administrator") as old:
        with openmsmq.connect(HOST, old.port) as manager:
            fill(manager)
        old.stop()
        old.options = (*old.options, "--interface-levels", "qmcomm=privacy")
        old.start()
        found = taken(old)
        with openmsmq.connect(HOST, old.port) as manager:
            assert len(manager.queues()) == 4
    news = queue(found, "news")
    assert (news["messages"], news["transactional"], news["subqueues"]) == (1, False, ["later"])
    assert news["definition"] == {"name": "news", "transactional": False}
    (reason,) = [
        each["reason"] for each in found["not_learned"] if each["item"] == "properties and rights of all queues"
    ]
    assert "MS-MQMP is not served" in reason


class Page(HTMLParser):
    """The elements and the text of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_one_page_without_external_resources_or_scripts(old: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    ended = inventory(old, "--report", str(file))
    assert ended.code == 0, ended
    assert "not here: news: it takes what is sent to 234.1.1.1:8001" in ended.stdout
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "img", "b", "iframe"} & set(page.tags)
    assert not [each for each in page.attributes if each[0] in ("src", "href", "onclick")]
    assert "url(" not in text and "@import" not in text and "prefers-color-scheme: dark" in text
    for said in ("<b>Orders</b>", "S-1-5-20 (Network Service)", "it takes signed messages only", "234.1.1.1:8001"):
        assert said in page.text, said


def test_the_definitions_of_an_inventory_can_be_imported(old: Daemon, tmp_path: Path) -> None:
    accounts, file = tmp_path / "accounts.json", tmp_path / "definitions.json"
    accounts.write_text(json.dumps({ALICE: "S-1-5-32-544"}))
    ended = inventory(old, "--definitions", str(file), "--accounts", str(accounts), "--json")
    assert ended.code == 0, ended
    assert f"not in {file}: queue closed: it is not known whether it is transactional" in ended.stderr
    document = json.loads(file.read_text(encoding="utf-8"))
    assert [each["name"] for each in document["queues"]] == ["news", "orders", "secret"]
    with Daemon(tmp_path / "new", "--allow-anonymous", "--anonymous-is-administrator") as new:
        imported = invoke("definitions", "import", str(file), "--port", str(new.port), "--data-dir", str(new.directory))
        assert imported.code == 0, imported
        with new.connect() as manager:
            rights = SecurityDescriptor.parse(manager.security(r".\private$\orders"))
            properties = manager.properties(r".\private$\orders", "label", "transactional")
    assert rights.owner == "S-1-5-32-544"
    assert properties == {"label": "<b>Orders</b>", "transactional": True}


def test_each_unknown_property_of_a_queue_has_a_line_and_no_reason_repeats_its_name(
    old: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    assert inventory(old, "--report", str(file)).code == 0
    text = file.read_text(encoding="utf-8")
    assert ";<br>rights not learned: MQ_ERROR_ACCESS_DENIED: " in text
    assert "MQ_ERROR_ACCESS_DENIED: MQ_ERROR_ACCESS_DENIED" not in text


def test_a_port_that_does_not_answer_is_named(old: Daemon) -> None:
    answers = {each["name"]: each["answer"] for each in taken(old)["services"]}
    (mapper,) = [answer for name, answer in answers.items() if re.match(r"port 135\b", name)]
    assert mapper == "Connection refused"


def by_com(daemon: Daemon, *words: str) -> dict[str, Any]:
    ended = invoke("adopt", "inventory", HOST, "--by", "com", "--port", str(daemon.mapper_port), "--json", *words)
    assert ended.code == 0, ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_the_automation_objects_have_queues_properties_and_counts(old: Daemon) -> None:
    found, known = by_com(old), taken(old)
    for name in ("orders", "news", "secret"):
        ours, theirs = queue(known, name), queue(found, name)
        for member in ("transactional", "messages", "journal_messages", "kind", "open"):
            assert theirs[member] == ours[member], (name, member)
        assert theirs["definition"].items() <= ours["definition"].items(), name
        assert "Security is reserved" in {each["item"]: each["reason"] for each in theirs["not_learned"]}["Security"]
    assert {each["name"] for each in found["queues"]} == {each["name"] for each in known["queues"]}
    assert (found["source"], found["host"]) == ("DCOM", HOST)
    (away,) = found["outgoing"]
    assert (away["format_name"], away["messages"]) == (r"DIRECT=TCP:192.0.2.9\private$\away", 1)


def test_properties_that_automation_objects_lack_are_named(old: Daemon) -> None:
    found = by_com(old)
    closed = queue(found, "closed")
    assert "Refresh" in {each["item"] for each in closed["not_learned"]}
    assert any("ACCESS_DENIED" in each["reason"] for each in closed["not_learned"])
    general = {each["item"]: each["reason"] for each in found["not_learned"]}
    assert general["names of accounts"] == "the automation objects have security identifiers only"
    assert "subqueues, first messages, senders" in general
    assert not [item for item in general if "Directory" in item], "no directory service is an answer"


def test_without_automation_objects_the_reason_is_reported(old: Daemon) -> None:
    ended = invoke("adopt", "inventory", HOST, "--by", "com", "--port", "1")
    assert ended.code == UNREACHABLE and "Connection refused" in ended.stderr


def test_unused_public_queues_are_found_in_the_directory(tmp_path: Path) -> None:
    file = tmp_path / "directory.db"
    directory = ("--directory-provider", "sqlite", "--directory-path", str(file))
    with Daemon(
        tmp_path / "old", "--listen", HOST, "--computer-name", "OLD", "--allow-anonymous",
        "--anonymous-is-administrator", *directory,
    ) as old:  # fmt: skip
        with openmsmq.connect(HOST, old.port) as manager:
            manager.create_queue(r".\idle", label="Idle", journal=True)
            manager.create_queue(
                r".\hidden", label="Hidden",
                security=SecurityDescriptor(owner=ALICE, dacl=(allow(ALICE, int(QueueAccessMask.GENERIC_ALL)),)).pack(),
            )  # fmt: skip
        assert any("public queues that are not open" in said for said in remarks(taken(old), "the machine"))
        config = tmp_path / "here.toml"
        config.write_text(f'directory_provider = "sqlite"\ndirectory_path = "{file}"\ndata_dir = "{tmp_path}"\n')
        asked = ("--directory", "--directory-name", "OLD", "--config", str(config))
        found = taken(old, *asked)
        assert not any("public queues that are not open" in said for said in remarks(found, "the machine"))
        idle, hidden = queue(found, "idle"), queue(found, "hidden")
        assert (idle["kind"], idle["messages"], idle["definition"]["label"]) == ("public", 0, "Idle")
        assert "rights" in {each["item"] for each in hidden["not_learned"]}
        assert hidden["definition"]["label"] == "Hidden", "the directory knows what the machine does not say"
        assert hidden["definition"]["owner"] == ALICE
        ended = inventory(old, "--directory", "--config", str(config))
        assert ended.code == 1 and "--directory-name" in ended.stderr
        config.write_text(f'directory_provider = "none"\ndata_dir = "{tmp_path}"\n')
        ended = inventory(old, *asked)
        assert ended.code == 1 and "set directory_provider" in ended.stderr
