"""Explain a distributed transaction to an operator: what it waits for, which machine decides, and what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

from openmsmq.model.distributed_states import DistributedState, Resolution
from openmsmq.model.text import counted


class PartnerState(NamedTuple):
    """A transaction manager that participates. `is_waited_for`: the transaction cannot end without its answer;
    `failure` and `is_answered` describe the last attempt to get it."""

    host: str
    is_superior: bool
    is_waited_for: bool
    failure: str
    is_answered: bool


class TransactionStatus(NamedTuple):
    """A distributed transaction: `identifier` as text; `locked` and `sent` are numbers of messages. `is_on`: the
    setting distributed_transactions is not off, so that partners can be contacted."""

    identifier: str
    state: DistributedState
    partners: tuple[PartnerState, ...]
    locked: int
    sent: int
    is_on: bool

    @property
    def superior(self) -> str:
        """The host that decides; empty for this host."""
        return next((one.host for one in self.partners if one.is_superior), "")

    @property
    def waited_for(self) -> list[PartnerState]:
        return [one for one in self.partners if one.is_waited_for]

    @property
    def held(self) -> tuple[str, str]:
        return counted(self.locked, "received message"), counted(self.sent, "sent message")


_OFF: Final = "It contacts no other machine, because the setting distributed_transactions is off."
_ENABLE: Final = (
    "What to do: enable distributed_transactions and restart the daemon. The transaction then ends automatically."
)
_NO_ACTION: Final = "No action needed: it ends automatically."


def explanation(it: TransactionStatus) -> list[str]:
    """Explain the state of a transaction in two or three sentences."""
    match it.state:
        case "in doubt":
            return _in_doubt(it)
        case "unconfirmed":
            return _unconfirmed(it)
        case "prepared":
            return [
                f"This queue manager has voted to commit. {it.superior} is connected, and decides when all have voted.",
                f"Until then {' and '.join(it.held)} stay locked. {_NO_ACTION}",
            ]
        case "preparing":
            return [f"Votes are being collected; a vote that is missing after 60 s aborts it. {_NO_ACTION}"]
        case "committing":
            return [
                "The commit has been decided, but is not on the disk yet.",
                "If this lasts, the disk is full or failing: see the log. The commit is retried every second.",
            ]
        case "aborting":
            return [f"It was aborted: no message is locked any more. Partners are being told. {_NO_ACTION}"]
    begun = f"The program that began it at {it.superior}" if it.superior else "The program that began it here"
    return [f"The transaction is in use. {begun} commits or aborts it; if its connection ends, it is aborted."]


def _in_doubt(it: TransactionStatus) -> list[str]:
    sentences = [
        f"This queue manager has voted to commit and waits for the decision of {it.superior}: only {it.superior} knows "
        f"it. Until then {' and '.join(it.held)} stay locked."
    ]
    if not it.is_on:
        return [*sentences, _OFF, _ENABLE]
    sentences += _tries(it, f"{it.superior} answers that it was not aborted, so its commit is yet to come.")
    return [
        *sentences,
        f"What to do: make sure that {it.superior} is running and reachable; the transaction then ends automatically. "
        f"If {it.superior} is lost permanently, find out what the other machines decided and do the same here: "
        "openmsmq transaction resolve "
        f"{it.identifier} commit (or abort).",
    ]


def _unconfirmed(it: TransactionStatus) -> list[str]:
    missing = _named(it.waited_for)
    sentences = [f"It is committed here. {missing} has not confirmed the commit yet; no message is locked here."]
    if not it.is_on:
        return [*sentences, _OFF, _ENABLE]
    sentences += _tries(it, f"{missing} answers that it is not ready to commit yet.")
    return [
        *sentences,
        f"What to do: make sure that {missing} is running and reachable; the transaction then ends automatically. If "
        f"{missing} is lost permanently: openmsmq transaction resolve {it.identifier} forget.",
    ]


def _tries(it: TransactionStatus, answered: str) -> list[str]:
    failures = [with_host(one.host, one.failure) for one in it.waited_for if one.failure]
    if failures:
        return [f"The query is repeated at least every 30 s. The last attempt failed: {'; '.join(failures)}."]
    return [answered] if any(one.is_answered for one in it.waited_for) else []


def with_host(host: str, failure: str) -> str:
    """Return a failure text that starts with the host name."""
    return failure if failure.startswith(host) else f"{host}: {failure}"


def _named(partners: list[PartnerState]) -> str:
    return ", ".join(one.host for one in partners)


def consequence(it: TransactionStatus, resolution: Resolution) -> str:
    """Describe the effect of a resolution here, in one sentence without its subject."""
    received, sent = it.held
    match resolution:
        case "commit":
            return f"commit {it.identifier} here, which removes {received} and makes {sent} visible"
        case "abort":
            return f"abort {it.identifier} here, which puts back {received} and discards {sent}"
    return f"forget {it.identifier}: {_named(it.waited_for)} is no longer told to commit"


def warning(it: TransactionStatus, resolution: Resolution) -> str:
    """Describe the risk of a resolution."""
    if resolution == "forget":
        return (
            f"The transaction is committed here. If {_named(it.waited_for)} still has it, its query for the outcome "
            "is then answered with 'aborted', and the two differ permanently."
        )
    return (
        f"{it.superior} decides, and may have decided otherwise: then the two differ permanently, and this cannot be "
        "repaired."
    )
