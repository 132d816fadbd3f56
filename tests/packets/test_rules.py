"""For each rule of the packets, the checker finds a packet that breaks only this rule."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from packets import building as make
from packets import checker, headers, names, pings, reports
from packets.building import Properties, Queue, Security, Transaction, UserMessage
from packets.checker import Kind, Stream
from packets.reading import Violation
from seeds import chance

BROKEN: list[tuple[str, str, bytes]] = []  # the text of the rule, the reported field, the packet


def broken(rule: str, field: str, packet: bytes | UserMessage) -> None:
    BROKEN.append((rule, field, packet.encode() if isinstance(packet, UserMessage) else packet))


def message(**changed: Any) -> UserMessage:
    return replace(UserMessage(), **changed)


def properties(**changed: Any) -> UserMessage:
    return message(properties=replace(Properties(), **changed))


def security(**changed: Any) -> UserMessage:
    return message(security=replace(Security(), **changed))


def user_bits(**bits: int) -> UserMessage:
    return message(bits=bits)


def base_bits(**bits: int) -> UserMessage:
    return message(base=bits)


WHOLE = len(UserMessage().encode())

# BaseHeader
broken("the version is 0x10", "BaseHeader.VersionNumber", base_bits(version=0x11))
broken("the signature is LIOR", "BaseHeader.Signature", base_bits(signature=0x524F494D))
broken("a packet has at most 4 MiB", "BaseHeader.PacketSize", base_bits(size=headers.MAX_PACKET + 1))
broken("a packet includes its base header", "BaseHeader.PacketSize", base_bits(size=15))
broken("the size is that of the packet", "BaseHeader.PacketSize", base_bits(size=WHOLE + 4))
broken("the packet ends with its last header", "BaseHeader.PacketSize",
       base_bits(size=WHOLE + 4).encode() + bytes(4))  # fmt: skip
broken("tracing has a debug header", "BaseHeader.Flags.TR", base_bits(TR=1))
broken("a flagged debug header is there", "DebugHeader.Flags", base_bits(DH=1))
broken("a debug header has its flag", "BaseHeader.PacketSize", message(debug=make.debug(bytes(16)), base={"DH": 0}))
broken("a flagged session header is there", "BaseHeader.PacketSize", base_bits(SH=1))
broken("a session header has its flag", "BaseHeader.PacketSize",
       message(session=make.session_header(), base={"SH": 0}))  # fmt: skip
broken("transactional messages have priority 0", "BaseHeader.Flags.PR",
       message(transaction=Transaction(), base={"PR": 1}))  # fmt: skip
for bit in ("X9", "X8", "X"):
    broken(f"the reserved {bit} is 0", f"BaseHeader.Flags.{bit}", base_bits(**{bit: 1}))

# InternalHeader and the packets of session negotiation
broken("an internal packet is of a known type", "InternalHeader.Flags.PT", make.internal_packet(4, bytes(12)))
broken("the reserved field is 0", "InternalHeader.Reserved", make.establish_connection(reserved=0, unused=0)[:16]
       + struct.pack("<HH", 1, 2) + make.establish_connection()[20:])  # fmt: skip
broken("an acknowledgment refuses nothing", "InternalHeader.Flags.CS", make.session_ack(refused=1))
broken("the unused flags are 0", "InternalHeader.Flags.X", make.connection_parameters(unused=1))
broken("internal packets live forever", "BaseHeader.TimeToReachQueue", make.connection_parameters(life=5))
broken("internal packets have no debug header", "BaseHeader.Flags.DH", make.connection_parameters(DH=1))
broken("parameters have no session header", "BaseHeader.Flags.SH", make.connection_parameters(SH=1))
broken("an acknowledgment says that it has a session header", "BaseHeader.Flags.SH", make.session_ack(SH=0))
broken("an acknowledgment has its header", "SessionHeader.WindowSize", make.session_ack(make.session_header()[:12]))
broken("nothing follows", "BaseHeader.PacketSize", make.session_ack(make.session_header() + bytes(4)))
for field, least, most in (("recoverable", 0x1F4, 0x1D4C0), ("timeout", 0x4E20, 0x1D4C0)):
    name = {"recoverable": "RecoverableAckTimeout", "timeout": "AckTimeout"}[field]
    for value in (least - 1, most + 1):
        broken(f"{name} {value} is out of range", f"ConnectionParametersHeader.{name}",
               make.connection_parameters(**{field: value}))  # fmt: skip
broken("the reserved field is 0", "ConnectionParametersHeader.Reserved", make.connection_parameters(spare=1))
broken("RE is 0x10", "EstablishConnectionHeader.OperatingSystem.RE", make.establish_connection(system=0x300))
broken("the unused flags are 0", "EstablishConnectionHeader.OperatingSystem.X",
       make.establish_connection(system=0x810))  # fmt: skip
broken("the reserved field is 0", "EstablishConnectionHeader.Reserved",
       make.internal_packet(2, make.SOURCE + make.TARGET + struct.pack("<IHH", 0, 0x310, 1) + bytes(512)))  # fmt: skip
broken("the initiator has a GUID", "EstablishConnectionHeader.ClientGuid", make.establish_connection(bytes(16)))
broken("the padding has 512 bytes", "EstablishConnectionHeader.Padding",
       make.establish_connection(padding=b"\x5a" * 511))  # fmt: skip

# SessionHeader
broken("no bits without a first number", "SessionHeader.RecoverableMsgAckFlags",
       message(session=make.session_header(flags=1)))  # fmt: skip
broken("bit 0 is the first number", "SessionHeader.RecoverableMsgAckFlags",
       message(session=make.session_header(first=1, flags=2)))  # fmt: skip
broken("a window has room", "SessionHeader.WindowSize", message(session=make.session_header(window=0)))

# UserHeader
broken("there is a source", "UserHeader.SourceQueueManager", message(source=bytes(16)))
broken("at most 29 hops", "UserHeader.Flags.RC", user_bits(RC=0x1E))
broken("the delivery mode is 0 or 1", "UserHeader.Flags.DM", user_bits(DM=2))
broken("transactional messages are recoverable", "UserHeader.Flags.DM",
       message(transaction=Transaction(), bits={"DM": 0}))  # fmt: skip
broken("there are message properties", "UserHeader.Flags.MP", user_bits(MP=0))
broken("no message came over HTTP", "UserHeader.Flags.AH", user_bits(AH=1))
for bit in ("X1", "X2", "X3", "X4"):
    broken(f"the reserved {bit} is 0", f"UserHeader.Flags.{bit}", user_bits(**{bit: 1}))
for kind in (1, 2, 4, 6):
    broken(f"no destination of type {kind}", "UserHeader.Flags.DQ",
           message(destination=Queue(kind, b"\5\0\0\0"), address=make.TARGET))  # fmt: skip
for kind in (1, 4):
    broken(f"no administration queue of type {kind}", "UserHeader.Flags.AQ", message(admin=Queue(kind)))
    broken(f"a response queue of type {kind} refers to one of administration", "UserHeader.Flags.RQ",
           message(response=Queue(kind, bytes(4 * (kind == 4)))))  # fmt: skip
broken("an administration queue is wanted", "UserHeader.Flags.AQ", message(admin=make.numbered(2, 9)))
broken("direct names have no address", "UserHeader.QueueManagerAddress", message(address=make.TARGET))
for queue in (make.numbered(3, 9), Queue(5, bytes(15) + b"\1")):
    broken(f"type {queue.kind} has an address", "UserHeader.QueueManagerAddress",
           message(destination=queue, address=bytes(16)))  # fmt: skip
broken("a private name has its queue manager", "UserHeader.ResponseQueue.SourceQueueManager",
       message(response=Queue(6, bytes(16) + b"\5\0\0\0")))  # fmt: skip


class RawName(Queue):
    """A direct name with any bytes."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(names.DIRECT)
        self.raw = raw

    def encode(self) -> bytes:
        return make.pad(struct.pack("<H", len(self.raw)) + self.raw)


NAME = "OS:host\\private$\\queue".encode("utf-16-le")
for rule, data, field in (
    ("a direct name has a terminator", NAME, "DirectFormatName"),
    ("a direct name has one null character", b"O\0\0\0" + NAME + b"\0\0", "DirectFormatName"),
    ("a direct name has whole characters", NAME + b"\0\0\0", "DirectFormatName"),
    ("a direct name is not empty", b"\0\0", "Count"),
    ("a direct name has a protocol", make.wide("host\\private$\\queue"), "DirectFormatName"),
    ("a direct name has no DIRECT=", make.wide("DIRECT=OS:host\\queue"), "DirectFormatName"),
    ("a direct name has a queue", make.wide("OS:host"), "DirectFormatName"),
):
    broken(rule, f"UserHeader.DestinationQueue.{field}", message(destination=RawName(data)))
broken("a flagged connector type is there", "MessagePropertiesHeader", user_bits(CQ=1))
broken("a connector type has its flag", "MessagePropertiesHeader",
       message(connector=b"c" * 16, bits={"CQ": 0}))  # fmt: skip

# TransactionHeader
broken("the first number is 1", "TransactionHeader.TxSequenceNumber", message(transaction=Transaction(number=0)))
broken("the previous number is lower", "TransactionHeader.PreviousTxSequenceNumber",
       message(transaction=Transaction(number=4, previous=4)))  # fmt: skip
broken("the unused flags are 0", "TransactionHeader.Flags.X", message(transaction=Transaction(bits={"X": 1})))
broken("a flagged connector is there", "", message(transaction=Transaction(bits={"CG": 1})))
broken("a connector has its flag", "", message(transaction=Transaction(connector=b"c" * 16, bits={"CG": 0})))
broken("a flagged header is there", "", user_bits(TH=1, DM=1).encode().replace(b"\3\0LIOR", b"\0\0LIOR", 1))
broken("a transaction header has its flag", "", message(transaction=Transaction(), bits={"TH": 0}))

# SecurityHeader
broken("the sender is a SID, a GUID or none", "SecurityHeader.Flags.ST", security(bits={"ST": 3}))
broken("without a sender it has no size", "SecurityHeader.SenderIdSize", security(bits={"ST": 0}))
broken("authenticated is what a receiver says", "SecurityHeader.Flags.AU", security(bits={"AU": 1}))
broken("so is the authentication type", "SecurityHeader.Flags.AS", security(bits={"AS": 1}))
broken("the unused flags are 0", "SecurityHeader.Flags.X", security(bits={"X": 1}))
broken("certificates have at most 64 KiB", "SecurityHeader.SenderCertSize", security(certificate=bytes(0x10000)))
broken("something is there", "SecurityHeader.Flags", security(sender=b""))
broken("the default provider has no name", "SecurityHeader.ProviderInfoSize",
       security(provider=bytes(4) + make.wide("P"), bits={"DE": 1}))  # fmt: skip
broken("another provider has one", "SecurityHeader.ProviderInfoSize", security(signature=b"s" * 64, bits={"DE": 0}))
broken("a provider has a type and a name", "SecurityHeader.ProviderInfo", security(provider=bytes(5)))
broken("its name is terminated", "SecurityHeader.ProviderName", security(provider=bytes(4) + b"P\0Q\0"))
broken("a SID has its size", "SecurityHeader.SecurityID", security(sender=make.sid() + bytes(4)))
broken("a SID has a revision", "SecurityHeader.SecurityID", security(sender=b"\2" + make.sid()[1:]))
broken("a SID has 8 bytes at least", "SecurityHeader.SenderIdSize", security(sender=b"\1\0\0\0"))
broken("a queue manager has a GUID", "SecurityHeader.SenderIdSize", security(bits={"ST": 2}))
broken("the sizes add up", "", security(sizes={"signature": 8}))


def sealed(key: bytes | None = None, **changed: Any) -> UserMessage:
    of_properties = {"privacy": 5, "algorithm": 0x6610, "body": bytes(32)} | changed
    key = make.simple_blob(0x6610) if key is None else key
    return message(security=Security(key=key, bits={"EB": 1}), properties=replace(Properties(), **of_properties))


broken("an encrypted body has a key", "SecurityHeader.EncryptionKeySize", sealed(b""))
broken("a key is a SIMPLEBLOB", "SecurityHeader.EncryptionKey", sealed(b"\2" + make.simple_blob(0x6610)[1:]))
broken("the key is for the algorithm", "SecurityHeader.EncryptionKey", sealed(make.simple_blob(0x660E)))
broken("an encrypted body is padded", "MessagePropertiesHeader.MessageSize", sealed(body=bytes(31)))
broken("an encrypted body is not empty", "MessagePropertiesHeader.MessageSize", sealed(body=b""))
broken("the algorithm fits the level", "MessagePropertiesHeader.EncryptionAlgorithm", sealed(algorithm=headers.RC4))
broken("an encrypted body has a level", "MessagePropertiesHeader.PrivacyLevel", sealed(privacy=0))
broken("a level has an encrypted body", "MessagePropertiesHeader.PrivacyLevel", properties(privacy=1))

# MessagePropertiesHeader
broken("the unused flags are 0", "MessagePropertiesHeader.Flags.X", properties(flags=0x10))
broken("labels have 250 characters", "MessagePropertiesHeader.LabelLength", properties(label=make.wide("x" * 250)))
broken("labels are terminated", "MessagePropertiesHeader.Label", properties(label=b"x\0"))
broken("labels have one null character", "MessagePropertiesHeader.Label", properties(label=b"x\0\0\0\0\0"))
broken("classes are known", "MessagePropertiesHeader.MessageClass", properties(kind=0x0200))
broken("what is allocated holds the body", "MessagePropertiesHeader.AllocationBodySize", properties(allocated=3))
broken("levels are known", "MessagePropertiesHeader.PrivacyLevel", properties(privacy=2))
broken("algorithms are known", "MessagePropertiesHeader.EncryptionAlgorithm", properties(algorithm=0x6601))
broken("hashes are known", "MessagePropertiesHeader.HashAlgorithm", properties(hash=0))
broken("a signature has a known hash", "MessagePropertiesHeader.HashAlgorithm",
       message(security=Security(signature=b"s" * 64), properties=Properties(hash=0x8005)))  # fmt: skip
broken("the body is there", "MessagePropertiesHeader.MessageBody", properties(size=400))
broken("nothing follows the body", "BaseHeader.PacketSize", properties(size=0))
padded = replace(UserMessage(), properties=Properties(label=b"", body=b"abc"))
broken("the header is padded", "MessagePropertiesHeader (padding)",
       make.base(len(padded.encode()) - 1, PR=3) + padded.encode()[16:-1])  # fmt: skip

# DebugHeader, SoapHeader, MultiQueueFormatHeader
broken("a trace queue is public or none", "DebugHeader.Flags.QT", message(debug=make.debug(bytes(16), kind=2)))
broken("a public trace queue is there", "DebugHeader.QueueIdentifier", message(debug=make.debug(kind=1)))
broken("no trace queue has no identifier", "BaseHeader.PacketSize", message(debug=make.debug(bytes(16), kind=0)))
broken("the unused flags are 0", "DebugHeader.Flags.X", message(debug=make.debug(unused=1)))
broken("the reserved field is 0", "DebugHeader.Reserved", message(debug=make.debug(reserved=1)))
broken("the header's section is 0x320", "SoapHeader.HeaderSectionID", message(soap=make.soap(sections=(1, 0x384))))
broken("the body's section is 0x384", "SoapHeader.BodySectionID", message(soap=make.soap(sections=(0x320, 1))))
broken("its text is terminated", "SoapHeader.Header",
       message(soap=make.soap("ab").replace(b"b\0\0\0", b"b\0c\0", 1)))  # fmt: skip
SOAP = make.soap("a", "b")
broken("its length counts the terminator", "SoapHeader.HeaderDataLength",
       message(soap=SOAP[:4] + bytes(4) + SOAP[8:]))  # fmt: skip
broken("its reserved field is 0", "SoapHeader.Reserved", message(soap=SOAP[:2] + b"\1\0" + SOAP[4:]))
MANY = make.multiple_queues()
broken("destinations are 0x64", "Destination.MQFAddressHeader.HeaderID", message(multiple=MANY[:4] + b"\1" + MANY[5:]))
broken("the reserved field is 0", "Destination.MQFAddressHeader.Reserved",
       message(multiple=MANY[:6] + b"\1" + MANY[7:]))  # fmt: skip
broken("a message has a destination", "Destination.MQFAddressHeader.ElementCount",
       message(multiple=make.multiple_queues([])))  # fmt: skip
ONE = make.ONE_QUEUE
END = make.addresses(0xC8, ()) + make.addresses(0x12C, ()) + struct.pack("<HHI", 0x15E, 0, 0)
broken("the header has its size", "Destination.MQFAddressHeader.HeaderSize",
       message(multiple=make.addresses(0x64, ONE, size=99) + END))  # fmt: skip
broken("the size is 12 at least", "Destination.MQFAddressHeader.HeaderSize",
       message(multiple=make.addresses(0x64, ONE, size=11) + END))  # fmt: skip
broken("each element is there", "Destination.MQFAddressHeader.FormatNameList[1].FormatType",
       message(multiple=make.addresses(0x64, ONE, count=2) + END))  # fmt: skip
broken("a packet's queue is among the destinations", "MultiQueueFormatHeader.Destination",
       message(destination=Queue(names.PUBLIC, bytes(16)),
               multiple=make.multiple_queues([(1, make.SOURCE)])))  # fmt: skip
broken("a name is of a known type", "Destination.MQFAddressHeader.FormatNameList[0].FormatType",
       message(multiple=make.multiple_queues([(4, bytes(16))])))  # fmt: skip
broken("a name is a direct name", "Destination.MQFAddressHeader.FormatNameList[0].FormatName",
       message(multiple=make.multiple_queues([(3, make.wide("nothing"))])))  # fmt: skip
for identifier, name in ((0xC8, "Administration"), (0x12C, "Response")):
    at = MANY.index(struct.pack("<IH", 12, identifier)) + 4
    broken(f"{name} is {identifier:#x}", f"{name}.MQFAddressHeader.HeaderID",
           message(multiple=MANY[:at] + b"\1\1" + MANY[at + 2 :]))  # fmt: skip
broken("a signature is 0x15E", "MultiQueueFormatHeader.ID|MQFSignatureHeader.ID",
       message(multiple=MANY[:-8] + b"\1" + MANY[-7:]))  # fmt: skip
broken("the signature's reserved field is 0", "MQFSignatureHeader.Reserved",
       message(multiple=MANY[:-6] + b"\1" + MANY[-5:]))  # fmt: skip
broken("a signature has its size", "MQFSignatureHeader.Signature", message(multiple=MANY[:-4] + struct.pack("<I", 1)))

# OrderAck and FinalAck packets
for name, acknowledgment in (("order", make.order_ack), ("final", make.final_ack)):
    of: list[tuple[str, str, dict[str, Any]]] = [
        ("has no flags", "BaseHeader.Flags", {"base": {"PR": 1}}),
        ("lives forever", "BaseHeader.TimeToReachQueue", {"base": {"life": 5}}),
        ("asks for no journal", "UserHeader.Flags", {"bits": {"JP": 1}}),
        ("is labelled", "MessagePropertiesHeader.Label", {"label": make.wide("QM Ordering Acl")}),
        ("has its label's length", "MessagePropertiesHeader.LabelLength", {"label": make.wide("QM Ordering")}),
        ("has 36 bytes", "MessagePropertiesHeader.MessageSize", {"body": bytes(40)}),
        ("has an untyped body", "MessagePropertiesHeader.BodyType", {"body_type": 8}),
        ("names the order queue as the text does", "UserHeader.DestinationQueue",
         {"destination": make.direct("OS:host\\private$\\order_queue$")}),
        ("asks for no acknowledgment", "MessagePropertiesHeader.Flags", {"flags": 1}),
    ]  # fmt: skip
    for rule, field, changed in of:
        broken(f"{name}: {rule}", field, acknowledgment(**changed))
    broken(f"{name}: numbers begin with 1", "Body.TxSequenceNumber", acknowledgment(number=0, previous=0))
broken("a final acknowledgment is recoverable", "UserHeader.Flags.DM", make.final_ack(bits={"DM": 0}))
broken("its class is final", "MessagePropertiesHeader.MessageClass", make.final_ack(kind=2))
broken("it names a source", "FinalAckBody.SourceGUID", make.final_ack(source=bytes(16)))
broken("it has a lower previous number", "FinalAckBody.TxPreviousSequenceNumber", make.final_ack(number=2, previous=2))
broken("the previous number is one less", "OrderAckBody.TxPreviousSequenceNumber",
       make.order_ack(number=3, previous=1))  # fmt: skip
broken("the rest is zeros", "OrderAckBody.Reserved", make.order_ack(reserved=bytes(19) + b"\1"))

# Report messages
LABEL, RECEIVED = reports.EXAMPLE
SENT = RECEIVED + "<NEXT HOP>192.0.2.1</NEXT HOP>\r\n<HOP COUNT>03 </HOP COUNT>\r\n"


def report(label: str = LABEL, body: str = SENT, **of_packet: Any) -> UserMessage:
    text = Properties(kind=headers.REPORT, label=make.wide(label), body=body.encode("utf-16-le"))
    return message(properties=text, **of_packet)


broken("a report is an express message", "UserHeader.Flags.DM", report(bits={"DM": 1}))
for rule, old, new in (
    ("the source has four digits", "0102:", "01020:"), ("the identifier has eight digits", "0000002A", "2A"),
    ("hops have two digits", ":03 ", ":3 "), ("the computer is a GUID", "01020304-", "{01020304-"),
    ("there are two clocks of twelve hours", "PM", "XM"), ("the day has a name", "Sun,", "Sunday,"),
    ("the label begins like the computer", "0102:", "0103:"), ("the year has two digits", " 26", " 2026"),
):  # fmt: skip
    broken(f"report: {rule}", "MessagePropertiesHeader.LabelLength", report(LABEL.replace(old, new, 1)))
for rule, old, new in (
    ("its body has the identifier of its label", "2A", "2B"), ("the queue is a format name", "DIRECT=", "direct "),
    ("lines end", "\r\n<TARGET", "\n<TARGET"), ("the next hop is an address", "192.0.2.1", "host"),
    ("its body has the hops of its label", "03 ", "04 "), ("a hop has its count", "<HOP COUNT>03 </HOP COUNT>\r\n", ""),
):  # fmt: skip
    broken(f"report: {rule}", "MessagePropertiesHeader.MessageBody", report(body=SENT.replace(old, new, 1)))


def test_reports_of_senders_and_receivers_break_no_rule() -> None:
    for body in (RECEIVED, SENT, SENT.replace("192.0.2.1", "2001:db8::1")):
        checker.check(report(body=body).encode())


GUID = bytes(range(16))


def ping(flags: int = 0, signature: int = 0x5548, cookie: int = 7, guid: bytes = GUID) -> bytes:
    return struct.pack("<HHI", flags, signature, cookie) + guid


@pytest.mark.parametrize(
    ("field", "question", "answer"),
    [
        ("Signature", ping(signature=0x4855), None), ("QMGuid", ping(guid=bytes(16)), None),
        ("QMGuid", ping() + b"x", None), ("QMGuid", ping()[:-1], None), ("Flags.RF", ping(2), None),
        ("Flags.X", ping(4), None), ("Cookie", ping(), ping(cookie=8)), ("Flags.RC", ping(1), ping()),
    ],
)  # fmt: skip
def test_a_broken_rule_of_pings_is_found(field: str, question: bytes, answer: bytes | None) -> None:
    asked = None
    if answer is not None:
        asked, question = pings.check(question), answer
    with pytest.raises(Violation) as caught:
        pings.check(question, asked)
    assert caught.value.field == f"PingPacket.{field}"


def test_pings_that_break_no_rule_are_read() -> None:
    question = pings.check(ping(1))
    assert (question["Cookie"], question["QMGuid"]) == (7, GUID)
    assert pings.check(ping(3), question)["Flags.RF"] == 1
    pings.check(ping(0xFFFD), strict=False)


@pytest.mark.parametrize(("rule", "field", "packet"), BROKEN, ids=[f"{field}-{rule}" for rule, field, _ in BROKEN])
def test_a_broken_rule_is_found(rule: str, field: str, packet: bytes) -> None:
    with pytest.raises(Violation) as caught:
        checker.check(packet)
    assert any(part in caught.value.field for part in field.split("|")), caught.value
    assert caught.value.section.startswith("MS-") and 0 <= caught.value.offset <= len(packet)


def test_each_header_of_a_packet_that_breaks_no_rule_is_read() -> None:
    whole = UserMessage(
        admin=make.numbered(2, 9), response=Queue(6, b"g" * 16 + b"\7\0\0\0"), connector=b"c" * 16,
        transaction=Transaction(connector=b"q" * 16), security=Security(signature=b"s" * 5),
        properties=Properties(flags=5, extension=b"more"), debug=make.debug(b"d" * 16), soap=make.soap(),
        multiple=make.multiple_queues(signature=b"sig"), session=make.session_header(3), base={"TR": 1},
    )  # fmt: skip
    packet = checker.check(whole.encode())
    assert packet.kind is Kind.USER_MESSAGE
    assert list(packet.headers) == [
        "BaseHeader", "UserHeader", "TransactionHeader", "SecurityHeader", "MessagePropertiesHeader", "DebugHeader",
        "SoapHeader", "MultiQueueFormatHeader", "SessionHeader",
    ]  # fmt: skip
    assert packet["UserHeader"]["ResponseQueue"] == (b"g" * 16, 7)
    assert packet["MessagePropertiesHeader"]["ExtensionData"] == b"more"
    assert packet["MultiQueueFormatHeader"]["Destination"] == [(3, "OS:host\\private$\\queue")]
    assert packet["SoapHeader"]["Body"] == "<body>"
    for acknowledgment, kind in ((make.order_ack(), Kind.ORDER_ACK), (make.final_ack(), Kind.FINAL_ACK)):
        assert checker.check(acknowledgment.encode()).kind is kind
        named = make.direct("TCP:192.0.2.1\\PRIVATE$\\order_queue$")
        assert checker.check(replace(acknowledgment, destination=named).encode()).kind is kind


def test_what_receivers_have_to_ignore_is_allowed_unless_the_reading_is_strict() -> None:
    packet = UserMessage(
        base={"PR": 0, "X": 0x7F, "X8": 1, "X9": 1}, bits={"X1": 1, "X2": 1, "X3": 3, "X4": 7},
        transaction=Transaction(bits={"X": 255}), security=Security(bits={"X": 15}),
        properties=Properties(flags=0xF0), debug=make.debug(unused=5, reserved=9),
    ).encode()  # fmt: skip
    checker.check(packet, strict=False)


def test_random_packets_of_the_builder_break_no_rule() -> None:
    luck = chance("packets of the builder")
    for _ in range(300):
        message = make.random_user_message(luck)
        packet = checker.check(message.encode())
        assert packet["MessagePropertiesHeader"]["MessageBody"] == message.properties.body


@pytest.mark.parametrize(
    ("packet", "offset"),
    [
        (base_bits(signature=7).encode(), 4),
        (user_bits(RC=0x1E).encode(), 16 + 44),
        (properties(privacy=2).encode(), 16 + len(UserMessage().user_header()) + 40),
        (make.connection_parameters(timeout=1), 20 + 4),
        (message(session=make.session_header(window=0)).encode(), WHOLE + 12),
    ],
)
def test_a_violation_has_the_offset_of_its_field(packet: bytes, offset: int) -> None:
    with pytest.raises(Violation) as caught:
        checker.check(packet)
    assert caught.value.offset == offset


def test_changed_bytes_give_packets_or_violations_and_nothing_else() -> None:
    luck = chance("changed bytes")
    found = 0
    for _ in range(600):
        packet = bytearray(make.random_user_message(luck).encode())
        for _ in range(luck.randrange(1, 4)):
            packet[luck.randrange(len(packet))] = luck.randrange(256)
        try:
            checker.check(bytes(packet))
        except Violation:
            found += 1
    assert found > 60


def test_a_stream_cuts_packets_wherever_its_pieces_end() -> None:
    luck = chance("pieces of a stream")
    packets = [make.random_user_message(luck).encode() for _ in range(20)] + [make.session_ack()]
    data, stream, found = b"".join(packets), Stream(), []
    while data:
        size = luck.choice([1, 15, 16, 17, 1000])
        found += [packet.data for packet in stream.feed(data[:size])]
        data = data[size:]
    assert found == packets and stream.rest == 0


def test_the_order_queue_of_this_text_is_known_by_its_number_and_its_names() -> None:
    for queue in (make.numbered(names.DESTINATION, 4), make.direct("OS:x\\PRIVATE$\\order_queue$")):
        with pytest.raises(Violation):
            checker.check(message(destination=queue).encode())
