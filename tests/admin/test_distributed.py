"""Descriptions of distributed transactions."""

from __future__ import annotations

import pytest

from openmsmq.admin.distributed import PartnerState, TransactionStatus, consequence, explanation, warning
from openmsmq.model.distributed_states import DISTRIBUTED_STATES, RESOLUTIONS, DistributedState

ID = "00ff" * 8


def status(
    state: DistributedState, *, is_on: bool = True, failure: str = "", is_answered: bool = False
) -> TransactionStatus:
    waits = state in RESOLUTIONS
    partner = PartnerState("FAR", state != "unconfirmed", waits, failure, is_answered)
    return TransactionStatus(ID, state, (partner,), 2, 1, is_on)


@pytest.mark.parametrize("state", DISTRIBUTED_STATES)
def test_every_state_is_explained_in_a_few_sentences_with_an_end(state: DistributedState) -> None:
    said = explanation(status(state))
    assert 1 <= len(said) <= 3 and all(line.endswith(".") for line in said)


@pytest.mark.parametrize("state", list(RESOLUTIONS))
def test_a_waiting_transaction_names_its_partner_and_the_remedy(state: DistributedState) -> None:
    failed = explanation(status(state, failure="no route"))
    assert "FAR" in failed[0] and "FAR: no route" in failed[1]
    assert failed[-1].startswith("What to do: ")
    assert f"openmsmq transaction resolve {ID} {RESOLUTIONS[state][0]}" in failed[-1]
    answered = explanation(status(state, is_answered=True))
    assert answered[1].startswith("FAR answers") and "failed" not in " ".join(answered)


@pytest.mark.parametrize("state", list(RESOLUTIONS))
def test_the_setting_is_named_where_it_is_the_reason(state: DistributedState) -> None:
    said = explanation(status(state, is_on=False, failure="off"))
    assert "distributed_transactions is off" in said[1] and "enable distributed_transactions" in said[2]


def test_a_resolution_explains_its_effects_and_risks() -> None:
    doubt, late = status("in doubt"), status("unconfirmed")
    assert "removes 2 received messages and makes 1 sent message visible" in consequence(doubt, "commit")
    assert "puts back 2 received messages and discards 1 sent message" in consequence(doubt, "abort")
    for resolution in RESOLUTIONS["in doubt"]:
        assert "FAR decides, and may have decided otherwise" in warning(doubt, resolution)
    assert "FAR is no longer told to commit" in consequence(late, "forget")
    assert "answered with 'aborted'" in warning(late, "forget")
