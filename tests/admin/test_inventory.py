"""Inventories written by a script, and reports about them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import invoke
from openmsmq.admin.inventory import FirstMessage, Inventory, InventoryOutgoing, InventoryQueue, SequenceSender
from openmsmq.admin.inventory_export import read_export
from openmsmq.admin.inventory_remarks import definitions_of, remarks
from openmsmq.interfaces import mc_mqac
from openmsmq.model.constants import INFINITE, QueueAccessMask
from openmsmq.model.security import EVERYONE, SecurityDescriptor, allow

ALICE = "S-1-5-21-1-2-3-1105"
SECURITY = SecurityDescriptor(
    owner=ALICE, dacl=(allow(ALICE, int(QueueAccessMask.GENERIC_ALL)), allow(EVERYONE, 4))
).pack()
#: Expected output of Export-Msmq.ps1, written by hand.
ORDERS: dict[str, Any] = {
    "path_name": "OLD\\private$\\orders", "format_name": None, "FormatName": "DIRECT=OS:OLD\\private$\\orders",
    "IsLocal": True, "QueueType": 1, "ForeignStatus": 1, "TransactionalStatus": 0, "MessageCount": 12,
    "BytesInQueue": "3400", "JournalMessageCount": 5, "BytesInJournal": "900", "Label": "Orders",
    "IsTransactional2": True, "Journal": 1, "Quota": 4096, "JournalQuota": -1, "Authenticate": 0, "PrivLevel": 1,
    "BasePriority": 0, "ServiceTypeGuid": "{00000000-0000-0000-0000-000000000000}", "MulticastAddress": "",
    "Security": base64.b64encode(SECURITY).decode(),
}  # fmt: skip
EXPORT: dict[str, Any] = {
    "export": 1, "computer": "OLD", "taken": 1_764_000_000, "version": "6.3", "connected": True,
    "directory_server": None, "bytes": "4300", "triggers": ["Running"],
    "private": [ORDERS, {"path_name": "OLD\\private$\\bad", "FormatName": None, "TransactionalStatus": None}],
    "active": [
        {"path_name": None, "format_name": ORDERS["FormatName"], "FormatName": ORDERS["FormatName"], "IsLocal": True,
         "QueueType": 1},
        {"path_name": None, "format_name": "DIRECT=HTTP://web/msmq/q", "FormatName": "DIRECT=HTTP://web/msmq/q",
         "IsLocal": False, "MessageCount": 3, "State": 2, "NextHops": "web"},
    ],
    "system": [{"format_name": "DIRECT=OS:.\\SYSTEM$;DEADLETTER", "MessageCount": 7}],
    "accounts": {ALICE: "OLD\\alice"},
    "errors": {"OLD\\private$\\bad: Security": "Access is denied."},
}  # fmt: skip


def exported(**changed: Any) -> Inventory:
    return read_export(json.dumps(EXPORT | changed).encode("utf-8-sig"))


def said(found: Inventory) -> list[tuple[str, str, str]]:
    return [(each.weight, each.about, each.said) for each in remarks(found)]


def test_an_export_of_the_script_is_an_inventory() -> None:
    found = exported()
    assert (found.host, found.source, found.bytes, found.connected) == ("OLD", "Export-Msmq.ps1", 4300, "CONNECTED")
    bad, orders, dead = found.queues
    assert orders.definition == {
        "name": "orders", "label": "Orders", "transactional": True, "journal": True, "quota": 4096,
        "journal_quota": INFINITE, "authenticate": False, "priv_level": 1,
        "type": "00000000-0000-0000-0000-000000000000", "multicast_address": "", "owner": ALICE,
        "permissions": [f"allow {ALICE} FullControl", "allow Everyone WriteMessage"],
    }  # fmt: skip
    assert (orders.messages, orders.bytes, orders.journal_messages, orders.open) == (12, 3400, 5, True)
    assert [(each.item, each.reason) for each in bad.not_learned] == [("Security", "Access is denied.")]
    assert (dead.name, dead.kind, dead.messages) == ("deadletter", "system", 7)
    (web,) = found.outgoing
    assert (web.state, web.next_hops, web.messages) == ("WAITING", ["web"], 3)
    assert found.accounts[ALICE] == "OLD\\alice"


@pytest.mark.parametrize(
    ("active", "is_open"),
    [
        ({"FormatName": "DIRECT=OS:old\\PRIVATE$\\orders"}, True),
        ({"FormatName": None, "format_name": "DIRECT=OS:OLD\\private$\\orders"}, True),
        ({"FormatName": "DIRECT=OS:OLD\\private$\\bad", "format_name": "DIRECT=OS:OLD\\private$\\orders"}, False),
        ({"FormatName": None}, False),
    ],
)
def test_a_queue_is_open_if_an_active_one_has_its_format_name(active: dict[str, Any], is_open: bool) -> None:
    found = exported(active=[{"IsLocal": True, "QueueType": 1, **active}])
    _, orders, dead = found.queues
    assert (orders.open, dead.open, found.outgoing) == (is_open, None, [])


@pytest.mark.parametrize(("connected", "shown"), [(True, "CONNECTED"), (False, "DISCONNECTED"), (None, "")])
def test_a_computer_is_connected_disconnected_or_unknown(connected: bool | None, shown: str) -> None:
    found = exported(connected=connected, triggers=[], bytes=None, directory_server="dc")
    assert (found.connected, found.bytes, found.directory_server) == (shown, None, "dc")
    assert [each.item for each in found.not_learned] == ["subqueues, first messages, senders"]


def test_active_queues_of_the_computer_are_public_and_others_outgoing() -> None:
    here = {"IsLocal": True, "QueueType": 0, "path_name": "OLD\\shared", "FormatName": "PUBLIC=1", "ForeignStatus": 0}
    away = {"IsLocal": False, "QueueType": 0, "format_name": "PUBLIC=2", "NextHops": ["a", "b"], "State": 4}
    found = exported(active=[here, away, {"FormatName": "PUBLIC=3", "QueueType": 0}], private=[], system=[])
    (public,), (outgoing,) = found.queues, found.outgoing
    assert (public.kind, public.format_name, public.open, public.foreign) == ("public", "PUBLIC=1", True, True)
    assert (outgoing.format_name, outgoing.state, outgoing.next_hops) == ("PUBLIC=2", "ONHOLD", ["a", "b"])
    assert (outgoing.messages, outgoing.bytes, outgoing.foreign) == (None, None, None)


def test_values_that_cannot_be_read_are_not_learned_and_the_rest_is() -> None:
    damaged = ORDERS | {"Quota": "much", "Security": "???", "PrivLevel": None}
    (orders,) = exported(private=[damaged], active=[], system=[], errors={}).queues
    assert [each.item for each in orders.not_learned] == ["rights", "Quota"]
    assert orders.not_learned[1].reason == "the export has 'much'"
    assert orders.definition["label"] == "Orders"
    assert not {"quota", "priv_level", "owner"} & orders.definition.keys()


def test_remarks_cover_http_dead_letters_triggers_and_accounts() -> None:
    found = said(exported())
    assert ("not here", "outgoing DIRECT=HTTP://web/msmq/q", "programs there send to a queue by HTTP") in found
    assert any(about == "deadletter" for _, about, _ in found)
    assert any("Message Queuing Triggers exists: Running" in text for _, _, text in found)
    assert any(f"account {ALICE} (OLD\\alice)" in text for _, _, text in found)


def test_a_queue_whose_rights_are_not_known_is_not_defined() -> None:
    made = definitions_of(exported(), {ALICE.casefold(): "alice"})
    (orders,) = made.document["queues"]
    assert (orders["owner"], orders["permissions"][0]) == ("alice", "allow alice FullControl")
    assert made.left_out == {"bad": "it is not known whether it is transactional"}


@pytest.mark.parametrize("text", [b"", b"[]", b'{"export": 2, "computer": "a", "taken": 1}', b'{"export": 1}'])
def test_a_file_that_is_not_an_export_is_refused(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        read_export(text)
    file = tmp_path / "export.json"
    file.write_bytes(text)
    ended = invoke("adopt", "inventory", "--file", str(file))
    assert ended.code == 1 and str(file) in ended.stderr


def test_the_command_shows_an_export(tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(EXPORT))
    ended = invoke("adopt", "inventory", "--file", str(file))
    assert ended.code == 0, ended
    assert "orders" in ended.stdout and "not here: outgoing DIRECT=HTTP://web/msmq/q" in ended.stdout
    assert invoke("adopt", "inventory").code == invoke("adopt", "inventory", "a", "--file", str(file)).code == 2


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (InventoryQueue(name="q", kind="private", foreign=True), "not here"),
        (
            InventoryQueue(name="q", kind="private", first=FirstMessage(1, "", "", True)),
            "not here",
        ),
        (InventoryQueue(name="q", kind="private", subqueues=["later"]), "to do"),
        (InventoryQueue(name="q", kind="private", journal_messages=5000, messages=2), "to do"),
        (InventoryQueue(name="q", kind="public"), "to do"),
        (InventoryQueue(name="q", kind="private", senders=[SequenceSender("a", "", 0, 1)]), "to know"),
        (InventoryQueue(name="q", kind="private", senders=[SequenceSender("a", "", 2, 1)]), "to do"),
    ],
)  # fmt: skip
def test_each_condition_of_a_queue_is_remarked_once(queue: InventoryQueue, expected: str) -> None:
    plain = InventoryQueue(name="plain", kind="private", journal_messages=5, messages=10)
    found = said(Inventory(host="OLD", source="protocols", taken=1, queues=[queue, plain]))
    assert [weight for weight, about, _ in found if about == "q"] == [expected]
    assert not [about for _, about, _ in found if about == "plain"]


@pytest.mark.parametrize(
    "name", ["MULTICAST=234.1.1.1:80", "DIRECT=https://web/q", "DIRECT=SPX:00000012:00a0234f7500\\q",
             "DIRECT=OS:a\\q,DIRECT=HTTP://web/q"],
)  # fmt: skip
def test_destinations_that_cannot_be_reached_from_here_are_named(name: str) -> None:
    found = Inventory(
        host="OLD", source="protocols", taken=1,
        outgoing=[InventoryOutgoing(format_name=name), InventoryOutgoing(format_name="DIRECT=OS:a\\private$\\q")],
    )  # fmt: skip
    assert [about for weight, about, _ in said(found) if weight == "not here"] == [f"outgoing {name}"]


SCRIPT = (Path(__file__).parents[2] / "tools" / "windows" / "Export-Msmq.ps1").read_text(encoding="ascii")
OBJECTS = {
    "application": [mc_mqac.IMSMQApplication3],
    "managed": [mc_mqac.IMSMQManagement, mc_mqac.IMSMQQueueManagement, mc_mqac.IMSMQOutgoingQueueManagement],
    "info": [mc_mqac.IMSMQQueueInfo4],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_script_calls_methods_and_reads_properties_that_the_interfaces_have(name: str) -> None:
    kinds: dict[str, set[str]] = {}
    for interface in OBJECTS[name]:
        for member in interface.all_members:
            kinds.setdefault(member.name, set()).add(member.kind)
    used = [(member, bool(called)) for member, called in re.findall(rf"\${name}\.(\w+)(\()?", SCRIPT)]
    lists = re.findall(r"(?s)(?:\$name in|\$own =) ([^\n]*'[^\n]*)(.*?\$(\w+)\.\$name)", SCRIPT)
    used += [(word, False) for words, _, owner in lists if owner == name for word in re.findall(r"'([A-Z]\w+)'", words)]
    for member, called in used:
        if member not in ("name", "PathName"):  # a variable, and a property set by the script
            assert kinds[member] >= {"method" if called else "propget"}, member
    assert len(used) > 5
