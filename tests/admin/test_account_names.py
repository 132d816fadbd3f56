"""Accounts of another machine in rights, in text form and in SDDL, and their mapping to local accounts."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.admin.account_names import accounts_of, mapped, read_accounts, unknown
from openmsmq.admin.definitions_schema import DefinitionsError

ALICE, ALICE_2, BOB = "S-1-5-21-1-2-3-1105", "S-1-5-21-1-2-3-11051", "S-1-5-21-9-9-9-500"
SDDL = f"O:{ALICE}G:S-1-5-18D:(A;;GA;;;{BOB})(A;;GA;;;WD)S:(AU;SA;GA;;;{ALICE_2})"


def queue(**rights: Any) -> dict[str, Any]:
    return {"name": "orders", **rights}


@pytest.mark.parametrize(
    ("rights", "accounts"),
    [
        ({"owner": ALICE, "permissions": [f"allow {BOB} FullControl", f"deny {ALICE} PeekMessage"]}, [ALICE, BOB]),
        ({"permissions": ["allow OLD\\Domain Users WriteMessage PeekMessage"]}, ["OLD\\Domain Users"]),
        ({"permissions": ["allow OLD\\Full Control Users FullControl"]}, ["OLD\\Full Control Users"]),
        ({"owner": None, "permissions": [f"allow {BOB}"]}, [BOB]),
        ({"sddl": SDDL}, [ALICE, "S-1-5-18", BOB, "S-1-1-0", ALICE_2]),
        ({}, []),
    ],
)
def test_all_accounts_of_rights_are_found_in_words_and_in_sddl(rights: dict[str, Any], accounts: list[str]) -> None:
    assert accounts_of(queue(**rights)) == accounts


def test_accounts_of_the_other_machine_are_unknown_also_where_only_sddl_names_them() -> None:
    found = unknown([
        queue(sddl=SDDL),
        {"name": "bills", "permissions": ["allow OLD\\Domain Users FullControl", f"allow {BOB} FullControl"]},
    ])  # fmt: skip
    assert found == {ALICE: ["orders"], BOB: ["orders", "bills"], ALICE_2: ["orders"]}


def test_a_name_is_replaced_as_a_whole() -> None:
    accounts = read_accounts({"OLD\\alice": "alice", "OLD\\Domain Users": "staff", ALICE: "owner"})
    found = mapped(
        queue(
            owner=ALICE,
            permissions=[
                "allow OLD\\Alice FullControl", "allow OLD\\alice smith PeekMessage",
                "deny OLD\\domain users WriteMessage PeekMessage", f"allow {ALICE_2} PeekMessage",
            ],
        ),
        accounts,
    )  # fmt: skip
    assert found["owner"] == "owner"
    assert found["permissions"] == [
        "allow alice FullControl", "allow OLD\\alice smith PeekMessage", "deny staff WriteMessage PeekMessage",
        f"allow {ALICE_2} PeekMessage",
    ]  # fmt: skip


def test_sddl_is_refused_only_where_one_of_its_own_accounts_is_called_otherwise() -> None:
    assert mapped(queue(sddl=f"O:{ALICE_2}D:(A;;GA;;;WD)"), read_accounts({ALICE: "alice"}))["sddl"]
    with pytest.raises(DefinitionsError, match=ALICE):
        mapped(queue(sddl=SDDL), read_accounts({ALICE: "alice"}))
