"""Reasons for dead letters: the message classes of [MC-MQAC] 2.2.2.9 and [MS-MQMQ] 2.2.18.1.6, each with a description
and a remedy."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from openmsmq.model.constants import MessageClass as C
from openmsmq.model.remedies import RemedyStep


class DeadLetterReason(NamedTuple):
    """A reason. `name` is the specified name, `slug` its short name for users. `remedy` is the remedy as text, `steps`
    as actions. `fails_again`: a message that is sent again unchanged will fail for the same reason."""

    code: int
    name: str
    slug: str
    sentence: str
    remedy: str
    fails_again: bool = False
    steps: tuple[RemedyStep, ...] = ()


_VALUES: Final = {"ttl": "SECONDS", "reach-ttl": "SECONDS", "transaction": ""}  # values of options; empty for a flag


def _reason(
    kind: C, slug: str, sentence: str, remedy: str, fails_again: bool = False, *, steps: str = ""
) -> DeadLetterReason:
    """Create a reason. `steps` are action names, optionally with options of returning: `deadletters.return:ttl`."""
    found = []
    for step in steps.split():
        action, _, options = step.partition(":")
        returned = {"reason": slug, **{each: _VALUES[each] for each in options.split(",")}} if options else {}
        found.append(RemedyStep(action, returned))
    return DeadLetterReason(int(kind), kind.name, slug, sentence, remedy, fails_again, tuple(found))


REASONS: Final = (
    _reason(C.NACK_BAD_DST_Q, "no-queue", "The queue does not exist, or is not open to the sender.",
            "Check the name; create the queue; return the messages."),
    _reason(C.NACK_DELETED, "deleted", "It was removed on its way, before it reached its queue.",
            "The audit log of the machine that stored it shows who purged the outgoing queue.", steps="audit.list"),
    _reason(C.NACK_REACH_QUEUE_TIMEOUT, "expired-on-the-way",
            "It did not reach its queue before its time to reach it, or to be received, was over.",
            "See why it waited; return it with longer times.",
            steps="outgoing.list deadletters.return:reach-ttl,ttl"),
    _reason(C.NACK_Q_EXCEED_QUOTA, "queue-full", "The quota of the queue was used up.",
            "Raise the quota or start readers; then return the messages."),
    _reason(C.NACK_ACCESS_DENIED, "not-allowed", "The sender may not send to this queue.",
            "Grant WriteMessage to the sender; return the messages."),
    _reason(C.NACK_HOP_COUNT_EXCEEDED, "too-many-hops", "It passed more machines than a message may.",
            "Look for a loop in the routes; return the messages."),
    _reason(C.NACK_BAD_SIGNATURE, "bad-signature",
            "Its signature does not fit it, its certificate is not known, or it has none and the queue requires it.",
            "Register the sender's certificate, or see `authenticate` of the queue; the program must send it again.",
            True),
    _reason(C.NACK_BAD_ENCRYPTION, "bad-encryption",
            "The destination could not decrypt it, or the privacy level of the queue excludes it.",
            "Renew the key of the destination here, or see `priv_level` of the queue; the program must send it again.",
            True),
    _reason(C.NACK_COULD_NOT_ENCRYPT, "not-encrypted", "The sending machine could not encrypt it.",
            "Register the key of the destination here; the program must send it again.", True),
    _reason(C.NACK_NOT_TRANSACTIONAL_Q, "queue-not-transactional",
            "It was sent in a transaction, and the queue is not transactional.",
            "Create the queue again as a transactional one; return the messages."),
    _reason(C.NACK_NOT_TRANSACTIONAL_MSG, "message-not-transactional",
            "It was sent without a transaction, and the queue is transactional.",
            "Return it in a transaction; change the program that sends.",
            steps="deadletters.return:transaction"),
    _reason(C.NACK_UNSUPPORTED_CRYPTO_PROVIDER, "unknown-cipher",
            "The destination lacks the cryptographic provider that was used.",
            "Agree on one; the program must send it again.", True),
    _reason(C.NACK_SOURCE_COMPUTER_GUID_CHANGED, "sender-renewed",
            "The sending machine has got another identifier since it was sent.",
            "Was the machine restored from a backup? Look for doubles, then return the messages."),
    _reason(C.NACK_Q_DELETED, "queue-deleted", "The queue was deleted while the message was in it.",
            "The audit log of the queue's machine says who; create the queue again; return the messages.",
            steps="audit.list"),
    _reason(C.NACK_Q_PURGED, "purged", "The queue was purged.",
            "The audit log of the queue's machine says who; return the messages.", steps="audit.list"),
    _reason(C.NACK_RECEIVE_TIMEOUT, "expired-unread", "It reached its queue but was not received in time.",
            "See whether the reader runs; return it with a longer time to be received if it is still of use.",
            steps="deadletters.return:ttl"),
    _reason(C.NACK_RECEIVE_TIMEOUT_AT_SENDER, "expired-at-sender",
            "The time in which it was to be received ended before it left the sending machine.",
            "See why it waited; return it with a longer time to be received.",
            steps="outgoing.list deadletters.return:ttl"),
    _reason(C.NACK_RECEIVE_REJECTED, "rejected",
            "Its reader rejected it, or aborted its receive as often as the queue's delivery_limit.",
            "The log of that program says why; edit it and send it again.", steps="message.resend"),
)  # fmt: skip
_BY_CODE: Final = {reason.code: reason for reason in REASONS}
_NUMBER: Final = re.compile("0x[0-9a-f]{1,4}")


def reason_of(code: int) -> DeadLetterReason:
    """Return the reason of a message class; an "unknown" one for a class that is not in `REASONS`."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    name = class_name(code)
    return DeadLetterReason(
        code, name, name.lower(), f"Unknown reason {code:#06x}.", "Look at the message and at who sent it."
    )


def class_name(code: int) -> str:
    """Return the specified name of a message class, or its number."""
    try:
        return C(code).name
    except ValueError:
        return f"0x{code:04x}"


def find_reason(text: str) -> DeadLetterReason:
    """Return the reason for a slug, a name with or without `NACK_`, or a number such as 0xC002.

    Raises ValueError with all slugs.
    """
    wanted = text.strip().lower()
    if _NUMBER.fullmatch(wanted):
        return reason_of(int(wanted, 16))
    for reason in REASONS:
        if wanted in (reason.slug, reason.name.lower(), reason.name.lower().removeprefix("nack_")):
            return reason
    known = ", ".join(reason.slug for reason in REASONS)
    raise ValueError(f"{text!r}, allowed: {known}, their names (RECEIVE_TIMEOUT), or a number such as 0xC002")
