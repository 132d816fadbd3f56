"""Rules of a session across packets: each test breaks one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packets import building as make
from packets.building import SOURCE, TARGET, Transaction, UserMessage
from packets.checker import Kind
from packets.conversation import Conversation, Ledger, Side
from packets.reading import Violation

FIRST, SECOND = Side.INITIATOR, Side.ACCEPTOR
ESTABLISH, PARAMETERS = make.establish_connection(), make.connection_parameters()
Steps = list[tuple[Side, bytes]]
OPENING: Steps = [(FIRST, ESTABLISH), (SECOND, ESTABLISH), (FIRST, PARAMETERS), (SECOND, PARAMETERS)]


def message(recoverable: bool = False, session: bytes = b"") -> bytes:
    return UserMessage(bits={"DM": int(recoverable)}, session=session).encode()


def acknowledging(**fields: int) -> bytes:
    return make.session_ack(make.session_header(**fields))


def transactional(number: int, previous: int | None = None, sequence: int = 1 << 32 | 1, **changed: Any) -> bytes:
    previous = number - 1 if previous is None else previous
    return UserMessage(transaction=Transaction(sequence, number, previous), **changed).encode()


def converse(steps: Steps, ledger: Ledger | None = None) -> list[Kind]:
    conversation = Conversation(ledger)
    return [packet.kind for side, data in steps for packet in conversation.feed(side, data)]


def test_a_session_with_each_kind_of_packet_breaks_no_rule() -> None:
    steps = [
        *OPENING,
        (FIRST, message()), (FIRST, message(True)), (SECOND, acknowledging(received=2, first=1, flags=1)),
        (FIRST, transactional(1)), (FIRST, transactional(2)), (FIRST, transactional(1)),
        (SECOND, make.order_ack(number=2, address=SOURCE).encode()),
        (SECOND, make.final_ack(number=1, source=SOURCE, address=SOURCE).encode()),
        (FIRST, message(session=make.session_header(received=2, first=1, flags=1, sent=6, recoverable=4))),
        (SECOND, acknowledging(received=6, first=2, flags=7, sent=2, recoverable=1)),
        (SECOND, message(True, make.session_header(received=6, sent=3, recoverable=2))),
    ]  # fmt: skip
    kinds = converse(steps)
    assert kinds[4:] == [
        Kind.USER_MESSAGE, Kind.USER_MESSAGE, Kind.SESSION_ACK, Kind.USER_MESSAGE, Kind.USER_MESSAGE,
        Kind.USER_MESSAGE, Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.USER_MESSAGE, Kind.SESSION_ACK, Kind.USER_MESSAGE,
    ]  # fmt: skip


def establish(**fields: Any) -> bytes:
    return make.establish_connection(**fields)


BROKEN: list[tuple[str, str, Steps]] = [
    ("the initiator begins", "BaseHeader.Flags", [(SECOND, ESTABLISH)]),
    ("a session begins with EstablishConnection", "BaseHeader.Flags", [(FIRST, PARAMETERS)]),
    ("parameters come second", "BaseHeader.Flags", [(FIRST, ESTABLISH), (FIRST, message())]),
    ("nothing is established twice", "BaseHeader.Flags", [(FIRST, ESTABLISH), (FIRST, ESTABLISH)]),
    ("parameters come after the answer", "BaseHeader.Flags", [(FIRST, ESTABLISH), (FIRST, PARAMETERS)]),
    ("parameters are answered", "BaseHeader.Flags", [*OPENING[:2], (SECOND, PARAMETERS)]),
    ("messages wait until the session is open", "BaseHeader.Flags", [*OPENING[:3], (FIRST, message())]),
    ("parameters come once", "InternalHeader.Flags.PT", [*OPENING, (FIRST, PARAMETERS)]),
    ("a request refuses nothing", "InternalHeader.Flags.CS", [(FIRST, establish(refused=1))]),
    ("parameters refuse nothing", "InternalHeader.Flags.CS",
     [*OPENING[:2], (FIRST, make.connection_parameters(refused=1))]),
    ("nothing follows a refusal", "BaseHeader.Flags",
     [OPENING[0], (SECOND, establish(refused=1)), (FIRST, PARAMETERS)]),
    ("nothing follows one's own refusal", "BaseHeader.Flags",
     [OPENING[0], (SECOND, establish(refused=1)), (SECOND, PARAMETERS)]),
    ("an answer has the client's GUID", "EstablishConnectionHeader.ClientGuid",
     [OPENING[0], (SECOND, establish(client=TARGET))]),
    ("an answer has the server's GUID", "EstablishConnectionHeader.ServerGuid",
     [OPENING[0], (SECOND, establish(server=SOURCE))]),
    ("an answer always has a server's GUID", "EstablishConnectionHeader.ServerGuid",
     [(FIRST, establish(server=bytes(16))), (SECOND, establish(server=bytes(16)))]),
    ("an answer has the time stamp", "EstablishConnectionHeader.TimeStamp",
     [OPENING[0], (SECOND, establish(stamp=1001))]),
    ("an answer has the flag of pings", "EstablishConnectionHeader.OperatingSystem.SE",
     [OPENING[0], (SECOND, establish(system=0x210))]),
    ("an answer has the padding", "EstablishConnectionHeader.Padding",
     [OPENING[0], (SECOND, establish(padding=bytes(512)))]),
    ("an answer repeats RecoverableAckTimeout", "ConnectionParametersHeader.RecoverableAckTimeout",
     [*OPENING[:3], (SECOND, make.connection_parameters(recoverable=1001))]),
    ("an answer repeats AckTimeout", "ConnectionParametersHeader.AckTimeout",
     [*OPENING[:3], (SECOND, make.connection_parameters(timeout=60_001))]),
    ("no message is acknowledged before it is sent", "SessionHeader.AckSequenceNumber",
     [*OPENING, (FIRST, message()), (SECOND, acknowledging(received=2))]),
    ("no acknowledgment is taken back", "SessionHeader.AckSequenceNumber",
     [*OPENING, (FIRST, message() * 2), (SECOND, acknowledging(received=2)), (SECOND, acknowledging(received=1))]),
    ("no more than a window waits", "BaseHeader.Flags", [*OPENING, (FIRST, message() * 64), (FIRST, message())]),
    ("an acknowledgment makes room for what it is of only", "BaseHeader.Flags",
     [*OPENING, (FIRST, message() * 64), (SECOND, acknowledging(received=1)), (FIRST, message()), (FIRST, message())]),
    ("one's own window counts", "BaseHeader.Flags",
     [*OPENING, (FIRST, acknowledging(window=1)), (FIRST, message()), (FIRST, message())]),
    ("the other's window counts", "BaseHeader.Flags",
     [*OPENING[:3], (SECOND, make.connection_parameters(window=2)), (FIRST, message() * 2), (FIRST, message())]),
    ("messages are counted", "SessionHeader.UserMsgSequenceNumber",
     [*OPENING, (FIRST, message()), (FIRST, acknowledging())]),
    ("a message counts itself", "SessionHeader.UserMsgSequenceNumber",
     [*OPENING, (FIRST, message(session=make.session_header(sent=0)))]),
    ("recoverable messages are counted", "SessionHeader.RecoverableMsgSeqNumber",
     [*OPENING, (FIRST, message(True)), (FIRST, acknowledging(sent=1))]),
    ("express messages are not acknowledged as recoverable ones", "SessionHeader.RecoverableMsgAckFlags",
     [*OPENING, (FIRST, message()), (SECOND, acknowledging(received=1, first=1, flags=1))]),
    ("no recoverable message is acknowledged before it is sent", "SessionHeader.RecoverableMsgAckFlags",
     [*OPENING, (FIRST, message(True)), (SECOND, acknowledging(received=1, first=1, flags=3))]),
    ("no recoverable message is acknowledged again", "SessionHeader.RecoverableMsgAckSeqNumber",
     [*OPENING, (FIRST, message(True)), (SECOND, acknowledging(received=1, first=1, flags=1)),
      (SECOND, acknowledging(received=1, first=1, flags=1))]),
    ("a sequence begins with 1", "TransactionHeader.TxSequenceNumber", [*OPENING, (FIRST, transactional(2, 0))]),
    ("a sequence grows by one", "TransactionHeader.TxSequenceNumber",
     [*OPENING, (FIRST, transactional(1)), (FIRST, transactional(3, 1))]),
    ("the previous number is that of the message before", "TransactionHeader.PreviousTxSequenceNumber",
     [*OPENING, (FIRST, transactional(1)), (FIRST, transactional(2, 0))]),
    ("a sequence has an ordinal", "TransactionHeader.TxSequenceID",
     [*OPENING, (FIRST, transactional(1, sequence=1 << 32))]),
    ("no message goes back to a prior sequence", "TransactionHeader.TxSequenceID",
     [*OPENING, (FIRST, transactional(1, sequence=1 << 32 | 2)), (FIRST, transactional(1))]),
    ("no transactional message is acknowledged before it is sent", "OrderAckBody.TxSequenceNumber",
     [*OPENING, (FIRST, transactional(1)), (SECOND, make.order_ack(number=2, address=SOURCE).encode())]),
    ("no sequence that was not sent is acknowledged", "OrderAckBody.TxSequenceNumber",
     [*OPENING, (FIRST, transactional(1)), (SECOND, make.order_ack(1 << 33 | 1, address=SOURCE).encode())]),
    ("a final acknowledgment is of a message that was sent", "FinalAckBody.TxSequenceNumber",
     [*OPENING, (FIRST, transactional(1)), (SECOND, make.final_ack(number=2, source=SOURCE).encode())]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "field", "steps"), BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_a_broken_rule_is_found_in_the_last_step(rule: str, field: str, steps: Steps) -> None:
    ledger = Ledger()
    conversation = Conversation(ledger)
    for side, data in steps[:-1]:
        conversation.feed(side, data)
    with pytest.raises(Violation) as caught:
        conversation.feed(*steps[-1])
    assert caught.value.field == field, caught.value


def test_a_sequence_continues_over_connections() -> None:
    ledger = Ledger()
    converse([*OPENING, (FIRST, transactional(1)), (FIRST, transactional(2))], ledger)
    converse([*OPENING, (FIRST, transactional(2, 0)), (FIRST, transactional(3))], ledger)
    acknowledge = make.direct("TCP:192.0.2.1\\PRIVATE$\\order_queue$")
    converse([*OPENING, (SECOND, replace(make.order_ack(number=3), destination=acknowledge).encode())], ledger)
    with pytest.raises(Violation, match="3 was sent"):
        converse([*OPENING, (FIRST, transactional(5))], ledger)


def test_sequences_of_other_queues_are_their_own() -> None:
    elsewhere = make.direct("OS:host\\private$\\elsewhere")
    steps = [transactional(1), transactional(1, sequence=2 << 32 | 1, destination=elsewhere), transactional(2)]
    converse([*OPENING, *((FIRST, step) for step in steps)])


def test_a_router_forwards_messages_unchanged() -> None:
    """It may still have messages of a prior sequence, and resends them at any time."""
    ledger = Ledger()
    converse([*OPENING, (FIRST, transactional(1)), (FIRST, transactional(1, sequence=2 << 32 | 1))], ledger)
    onward = make.establish_connection(TARGET, b"d" * 16)
    opening = [(FIRST, onward), (SECOND, onward), (FIRST, PARAMETERS), (SECOND, PARAMETERS)]
    converse([*opening, (FIRST, transactional(1, sequence=2 << 32 | 1)), (FIRST, transactional(1))], ledger)
    with pytest.raises(Violation, match="1 is the last that its source has sent"):
        converse([*opening, (FIRST, transactional(2))], ledger)


def test_counts_of_messages_wrap_after_16_bits() -> None:
    conversation = Conversation()
    for step in OPENING:
        conversation.feed(*step)
    conversation.sent[FIRST].messages = conversation.sent[SECOND].acknowledged = 65535
    conversation.feed(FIRST, message())
    conversation.feed(SECOND, acknowledging(received=0))
    conversation.feed(FIRST, message())
    conversation.feed(FIRST, acknowledging(sent=1))
    conversation.feed(SECOND, acknowledging(received=1))
