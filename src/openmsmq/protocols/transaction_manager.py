"""The interface TransactionManager, the project's own: what queue managers say to each other about transactions."""

from __future__ import annotations

from typing import Any

from msrpc.rpc.call import Call
from openmsmq.interfaces import openmsmq_tm as m
from openmsmq.model.errors import HResult
from openmsmq.protocols.dispatch import NdrInterface, check, owned_transaction


class TransactionManager(NdrInterface):
    description = m.TransactionManager

    def TmGetPropagationToken(self, call: Call, q: m.TmGetPropagationToken_Request) -> m.TmGetPropagationToken_Response:
        """For the client that enlisted the internal transaction: what others need to take part in it."""
        transaction = owned_transaction(self, call, q.pUow)
        check(transaction.owner is not None, "others coordinate this transaction", HResult.MQ_ERROR_TRANSACTION_USAGE)
        token = self.environment.coordinator.token(transaction)
        return m.TmGetPropagationToken_Response(pcbToken=len(token), ppbToken=token)

    def TmEnlist(self, call: Call, q: m.TmEnlist_Request) -> m.TmEnlist_Response:
        """A queue manager takes part in a transaction that this one coordinates."""
        self.environment.coordinator.add_participant(q.pUow.rgb, q.pSecret, q.pbParticipant)
        return m.TmEnlist_Response()

    def TmPrepare(self, call: Call, q: m.TmPrepare_Request) -> None:
        """The first phase."""
        self.environment.coordinator.prepare_branch(q.pUow.rgb, q.pSecret)
        self._answer(call, m.TmPrepare_Response())

    def TmCommit(self, call: Call, q: m.TmCommit_Request) -> None:
        """The second phase."""
        self.environment.coordinator.commit_branch(q.pUow.rgb, q.pSecret)
        self._answer(call, m.TmCommit_Response())

    def TmAbort(self, call: Call, q: m.TmAbort_Request) -> m.TmAbort_Response:
        """The second phase, or instead of both."""
        self.environment.coordinator.abort_branch(q.pUow.rgb, q.pSecret)
        return m.TmAbort_Response()

    def TmGetOutcome(self, call: Call, q: m.TmGetOutcome_Request) -> None:
        """Called by a participant that does not know the outcome yet."""
        outcome = self.environment.coordinator.outcome(q.pUow.rgb, q.pSecret)
        self._answer(call, m.TmGetOutcome_Response(pdwOutcome=outcome))

    def _answer(self, call: Call, response: Any) -> None:
        """What is said must not be taken back by a crash, nor what was said to an earlier call that came twice."""
        self.finish(call, self.description.operations[call.opnum], response, self.environment.is_dirty)
