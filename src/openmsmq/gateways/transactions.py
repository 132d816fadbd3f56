"""Distributed transactions for administrators: list, and resolve manually."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from openmsmq.admin.distributed import PartnerState, TransactionStatus, consequence, explanation, warning
from openmsmq.model.distributed_states import DISTRIBUTED_STATES, RESOLUTIONS, Resolution
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.manager import EnlistmentRow, TransactionManager, TransactionRow
from openmsmq.oletx.states import EnlistmentState
from openmsmq.queueing.auditing import Actor, Auditor, AuditRecord
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.unit_of_work import Enqueued


class DistributedTransactions:
    """Used by `WebGateway`, which checks the caller."""

    def __init__(
        self, manager: QueueManager, transactions: TransactionManager, auditor: Auditor, *, is_on: bool
    ) -> None:
        """`is_on`: the setting distributed_transactions is not off, so that partners can be contacted."""
        self._manager, self._transactions, self._auditor, self._is_on = manager, transactions, auditor, is_on

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each transaction: stuck ones first, then by age."""
        for row in sorted(self._transactions.rows(), key=lambda row: not row.is_stuck):
            yield self._document(row)

    def counts(self) -> dict[str, int]:
        """Return the number of transactions by state, for metrics."""
        found = dict.fromkeys(DISTRIBUTED_STATES, 0)
        for row in self._transactions.rows():
            found[row.state] += 1
        return {state.replace(" ", "_"): count for state, count in found.items()}

    def resolve(self, identifier: str, resolution: str, actor: Actor) -> bool:
        """Resolve a transaction manually; return whether it exists. Raises TransactionSequence if its state does not
        allow this, MsmqError for an unknown resolution and if the audit record cannot be written."""
        row = self._find(identifier)
        if row is None:
            return False
        chosen = _resolution(resolution)
        self._transactions.check_resolvable(row.uow, chosen)
        partners = ", ".join(f"{one.role} {one.partner}" for one in row.enlistments)
        self._auditor.record(
            AuditRecord(
                actor, "transaction.resolve", "transaction", row.uow.hex(),
                before={"state": row.state, "partners": partners}, after={"resolution": chosen},
            )
        )  # fmt: skip
        self._transactions.resolve(row.uow, chosen)
        return True

    def state(self, identifier: str) -> str:
        """Return the state of a transaction; `ended` if there is no such transaction."""
        row = self._find(identifier)
        return "ended" if row is None else row.state

    def _find(self, identifier: str) -> TransactionRow | None:
        return next((row for row in self._transactions.rows() if row.uow.hex() == identifier), None)

    def _document(self, row: TransactionRow) -> dict[str, Any]:
        held = self._held(row.uow)
        status = TransactionStatus(
            row.uow.hex(), row.state, tuple(_partner_state(one) for one in row.enlistments),
            sum(locked for locked, _ in held.values()), sum(sent for _, sent in held.values()), self._is_on,
        )  # fmt: skip
        return {
            "id": status.identifier, "guid": str(UUID(bytes_le=row.uow)),
            "role": "branch" if status.superior else "began here", "state": row.state, "since": int(row.since),
            "partners": [
                {
                    "host": one.partner.host, "contact": str(one.partner.cid), "role": one.role,
                    "state": one.state.value, "trying": one.trying, "failure": one.failure,
                }
                for one in row.enlistments
            ],
            "held": [{"queue": name, "locked": locked, "sent": sent} for name, (locked, sent) in held.items()],
            "explanation": explanation(status),
            "resolutions": [
                {"resolution": each, "does": consequence(status, each), "warning": warning(status, each)}
                for each in RESOLUTIONS.get(row.state, ())
            ],
        }  # fmt: skip

    def _held(self, uow: bytes) -> dict[str, tuple[int, int]]:
        """Return a mapping: queue -> numbers of messages received or moved, and sent, in the transaction."""
        transaction = self._manager.transactions.get(uow)
        found: dict[str, tuple[int, int]] = {}
        for operation in transaction.operations if transaction is not None else ():
            if operation.queue.deleted:
                continue
            name = operation.queue.properties.path_name
            locked, sent = found.get(name, (0, 0))
            is_sent = isinstance(operation, Enqueued)
            found[name] = locked + (not is_sent), sent + is_sent
        return dict(sorted(found.items()))


def _partner_state(one: EnlistmentRow) -> PartnerState:
    is_superior = one.role == "superior"
    is_waited_for = one.state is (EnlistmentState.IN_DOUBT if is_superior else EnlistmentState.COMMITTING)
    return PartnerState(one.partner.host, is_superior, is_waited_for, one.failure, one.is_answered)


_RESOLUTIONS: Final = frozenset(each for possible in RESOLUTIONS.values() for each in possible)


def _resolution(text: str) -> Resolution:
    if text not in _RESOLUTIONS:
        raise MsmqError(
            HResult.MQ_ERROR_INVALID_PARAMETER,
            f"unknown resolution {text!r}; allowed: {', '.join(sorted(_RESOLUTIONS))}",
        )
    return text
