"""The state table of transactions: every cell, and that only the table changes states."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import openmsmq
from openmsmq.model.errors import TransactionSequence
from openmsmq.queueing.unit_of_work import TRANSITIONS, Transaction, TransactionEvent, TransactionState

S, E = TransactionState, TransactionEvent
ALLOWED = {
    (E.WORK, S.ACTIVE): S.ACTIVE,
    (E.CLOSE, S.ACTIVE): S.CLOSED,
    (E.PREPARE, S.ACTIVE): S.PREPARED,
    (E.PREPARE, S.PREPARED): S.PREPARED,
    (E.COMMIT, S.ACTIVE): S.COMMITTED,
    (E.COMMIT, S.CLOSED): S.COMMITTED,
    (E.OUTCOME_COMMIT, S.PREPARED): S.COMMITTED,
    (E.ABORT, S.ACTIVE): S.ABORTED,
    (E.ABORT, S.CLOSED): S.ABORTED,
    (E.ABORT, S.PREPARED): S.ABORTED,
}


@pytest.mark.parametrize(("event", "state"), [*product(TransactionEvent, TransactionState)])
def test_each_event_in_each_state_has_a_transition_or_is_refused(
    event: TransactionEvent, state: TransactionState
) -> None:
    transaction = Transaction(bytes(16), 1, state=state)
    if (event, state) in ALLOWED:
        transaction.advance(event)
        assert transaction.state is ALLOWED[event, state]
        return
    with pytest.raises(TransactionSequence, match=state.value):
        transaction.check(event)
    with pytest.raises(TransactionSequence):
        transaction.advance(event)
    assert transaction.state is state


def test_the_table_has_a_row_for_each_event() -> None:
    assert set(TRANSITIONS) == set(TransactionEvent)


def test_nothing_but_the_table_changes_the_state_of_a_transaction() -> None:
    package = Path(openmsmq.__file__).parent
    sources = {
        path.relative_to(package).as_posix(): path.read_text()
        for name in ("queueing", "protocols", "gateways", "server")
        for path in (package / name).glob("*.py")
    }
    assert [name for name, text in sources.items() if re.search(r"transaction\.state\s*=[^=]", text)] == []
    assert len(re.findall(r"self\.state = ", sources["queueing/unit_of_work.py"])) == 1
    assert [name for name, text in sources.items() if ".advance(" in text] == ["queueing/transactions.py"]
    makers = [name for name, text in sources.items() if re.search(r"(= |return )Transaction\(", text)]
    assert makers == ["queueing/transactions.py"]
