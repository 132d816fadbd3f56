"""Readers of packet headers, MS-MQMQ 2.2.19 and 2.2.20 and MS-MQQB 2.2: one function per header."""

from __future__ import annotations

from packets import names
from packets.reading import Header, Reader, text

MAX_PACKET = 0x00400000
INFINITE = 0xFFFFFFFF
NULL_GUID = bytes(16)

# MESSAGE_CLASS_VALUES of MS-MQMQ 2.2.18.1.6, and the mask of application-defined classes.
NORMAL, REPORT, ACK_REACH_QUEUE, ORDER_ACK, ACK_RECEIVE = 0x0000, 0x0001, 0x0002, 0x00FF, 0x4000
NEGATIVE = frozenset([*range(0x8000, 0x8008), 0x8009, 0x800A, 0x800B, 0xC000, 0xC001, 0xC002, 0xC004])
CLASSES = frozenset({NORMAL, REPORT, ACK_REACH_QUEUE, ORDER_ACK, ACK_RECEIVE}) | NEGATIVE
CUSTOM_CLASSES = 0xE1FF

RC2, RC4 = 0x6602, 0x6801
AES = {0x660E: 16, 0x660F: 24, 0x6610: 32}  # key size in bytes
CIPHERS = {RC2, RC4, *AES}
ALGORITHMS = {1: {RC2, RC4}, 3: {RC2, RC4}, 5: set(AES)}  # by PrivacyLevel
BLOCKS = {RC2: 8, **dict.fromkeys(AES, 16)}  # block size in bytes, to which a body is padded
HASHES = {0x8001, 0x8002, 0x8003, 0x8004, 0x800C, 0x800E}

SESSION_ACK, ESTABLISH_CONNECTION, CONNECTION_PARAMETERS = 1, 2, 3
TIMEOUTS = (0x4E20, 0x1D4C0)  # AckTimeout, in milliseconds
RECOVERABLE_TIMEOUTS = (0x1F4, 0x1D4C0)


def base(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQMQ 2.2.19.1", "BaseHeader",
        {"VersionNumber": 1, "Reserved": 1, "Flags": 2, "Signature": 4, "PacketSize": 4, "TimeToReachQueue": 4},
    )  # fmt: skip
    header.must("VersionNumber", header["VersionNumber"] == 0x10, "0x10")
    header.must("Signature", header["Signature"] == 0x524F494C, "0x524F494C")
    header.must("PacketSize", header["PacketSize"] <= MAX_PACKET, "at most 0x00400000")
    header.must("PacketSize", header["PacketSize"] >= 16, "includes the BaseHeader")
    header.bits("Flags", {"PR": 3, "IN": 1, "SH": 1, "DH": 1, "X9": 1, "X8": 1, "TR": 1, "X": 7})
    header.must("Flags.TR", header["Flags.DH"] or not header["Flags.TR"], "with TR, DH is set as well")
    if reader.strict:
        header.unused("Flags.X9", "Flags.X8", "Flags.X")
    return header


def internal(reader: Reader, base: Header) -> Header:
    header = reader.header("MS-MQQB 2.2.1", "InternalHeader", {"Reserved": 2, "Flags": 2})
    header.must("Reserved", header["Reserved"] == 0, "zero")
    header.bits("Flags", {"PT": 4, "CS": 1, "X": 11})
    kind = header["Flags.PT"]
    header.must("Flags.PT", kind in (SESSION_ACK, ESTABLISH_CONNECTION, CONNECTION_PARAMETERS), "1, 2 or 3")
    header.must("Flags.CS", kind != SESSION_ACK or not header["Flags.CS"], "set in no packet that does not negotiate")
    if reader.strict:
        header.unused("Flags.X")
    base.must("Flags.DH", not base["Flags.DH"], "set in UserMessage packets only")
    base.must("TimeToReachQueue", base["TimeToReachQueue"] == INFINITE, "0xFFFFFFFF outside of UserMessage packets")
    acknowledges = kind == SESSION_ACK
    base.must("Flags.SH", base["Flags.SH"] == acknowledges, "set where a SessionHeader is present", "MS-MQQB 2.2.6")
    return header


def connection_parameters(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQQB 2.2.2.1", "ConnectionParametersHeader",
        {"RecoverableAckTimeout": 4, "AckTimeout": 4, "Reserved": 2, "WindowSize": 2},
    )  # fmt: skip
    for field, (least, most) in (("RecoverableAckTimeout", RECOVERABLE_TIMEOUTS), ("AckTimeout", TIMEOUTS)):
        header.must(field, least <= header[field] <= most, f"from {least} to {most} ms")
    header.must("Reserved", header["Reserved"] == 0, "zero")
    return header


def establish_connection(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQQB 2.2.3.1", "EstablishConnectionHeader",
        {"ClientGuid": 16, "ServerGuid": 16, "TimeStamp": 4, "OperatingSystem": 2, "Reserved": 2, "Padding": 512},
    )  # fmt: skip
    header.bits("OperatingSystem", {"RE": 8, "SE": 1, "OS": 1, "QS": 1, "X": 5})
    header.must("OperatingSystem.RE", header["OperatingSystem.RE"] == 0x10, "0x10")
    header.must("Reserved", header["Reserved"] == 0, "zero")
    header.must("ClientGuid", header["ClientGuid"] != NULL_GUID, "the GUID of the initiator's queue manager")
    if reader.strict:
        header.unused("OperatingSystem.X")
    return header


def session(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQMQ 2.2.20.4", "SessionHeader",
        {"AckSequenceNumber": 2, "RecoverableMsgAckSeqNumber": 2, "RecoverableMsgAckFlags": 4,
         "UserMsgSequenceNumber": 2, "RecoverableMsgSeqNumber": 2, "WindowSize": 2, "Reserved": 2},
    )  # fmt: skip
    first, flags = header["RecoverableMsgAckSeqNumber"], header["RecoverableMsgAckFlags"]
    header.must("RecoverableMsgAckFlags", first != 0 or flags == 0, "no bits without RecoverableMsgAckSeqNumber")
    header.must("RecoverableMsgAckFlags", first == 0 or flags & 1 == 1, "bit 0 is RecoverableMsgAckSeqNumber itself")
    header.must("WindowSize", header["WindowSize"] >= 1, "at least 1")
    return header


def user(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQMQ 2.2.19.2", "UserHeader",
        {"SourceQueueManager": 16, "QueueManagerAddress": 16, "TimeToBeReceived": 4, "SentTime": 4, "MessageID": 4,
         "Flags": 4},
    )  # fmt: skip
    header.bits(
        "Flags",
        {"RC": 5, "DM": 2, "X1": 1, "JN": 1, "JP": 1, "DQ": 3, "AQ": 3, "RQ": 3, "SH": 1, "TH": 1, "MP": 1, "CQ": 1,
         "MQ": 1, "X2": 1, "AH": 1, "X3": 2, "HH": 1, "X4": 3},
    )  # fmt: skip
    header.must("SourceQueueManager", header["SourceQueueManager"] != NULL_GUID, "identifies the original sender")
    header.must("Flags.RC", header["Flags.RC"] <= 0x1D, "at most 0x1D")
    header.must("Flags.DM", header["Flags.DM"] in (0, 1), "0 or 1")
    header.must("Flags.DM", header["Flags.DM"] == 1 or not header["Flags.TH"], "not 0 in transactional messages")
    header.must("Flags.MP", header["Flags.MP"] == 1, "always set")
    header.must("Flags.AH", header["Flags.AH"] == 0, "not set when sent")
    header.must("Flags.DQ", header["Flags.DQ"] in (0, 3, 5, 7), "0, 3, 5 or 7")
    header.must("Flags.AQ", header["Flags.AQ"] in (0, 2, 3, 5, 6, 7), "0, 2, 3, 5, 6 or 7")
    relative = header["Flags.RQ"] in (names.SAME, names.WITH_ADMIN)
    header.must("Flags.RQ", header["Flags.AQ"] != 0 or not relative, "says where an administration queue is: none is")
    if reader.strict:
        header.unused("Flags.X1", "Flags.X2", "Flags.X3", "Flags.X4")
    direct, address = header["Flags.DQ"] == names.DIRECT, header["QueueManagerAddress"]
    header.must("QueueManagerAddress", not direct or address == NULL_GUID, "the NULL GUID with a direct format name")
    named = header["Flags.DQ"] in (names.DESTINATION, names.PUBLIC)
    header.must("QueueManagerAddress", not named or address != NULL_GUID, "the GUID of the destination queue manager")
    names.queue(reader, header, "DestinationQueue", header["Flags.DQ"])
    names.queue(reader, header, "AdminQueue", header["Flags.AQ"])
    names.queue(reader, header, "ResponseQueue", header["Flags.RQ"])
    if header["Flags.CQ"]:
        reader.take(header, "ConnectorType", 16)
    return header


def transaction(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQMQ 2.2.20.5", "TransactionHeader",
        {"Flags": 4, "TxSequenceID": 8, "TxSequenceNumber": 4, "PreviousTxSequenceNumber": 4},
    )  # fmt: skip
    header.bits("Flags", {"CG": 1, "FA": 1, "FM": 1, "LM": 1, "ID": 20, "X": 8})
    if reader.strict:
        header.unused("Flags.X")
    _hold_numbers(header, "TxSequenceNumber", "PreviousTxSequenceNumber")
    if header["Flags.CG"]:
        reader.take(header, "ConnectorQMGuid", 16)
    return header


def _hold_numbers(header: Header, number: str, previous: str) -> None:
    header.must(number, header[number] >= 1, "at least 1")
    header.must(previous, header[previous] < header[number], "that of a message that comes before")


def security(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQMQ 2.2.20.6", "SecurityHeader",
        {"Flags": 2, "SenderIdSize": 2, "EncryptionKeySize": 2, "SignatureSize": 2, "SenderCertSize": 4,
         "ProviderInfoSize": 4},
    )  # fmt: skip
    header.bits("Flags", {"ST": 4, "AU": 1, "EB": 1, "DE": 1, "AI": 1, "AS": 4, "X": 4})
    header.must("Flags.ST", header["Flags.ST"] in (0, 1, 2), "0, 1 or 2")
    header.must("SenderIdSize", header["Flags.ST"] != 0 or header["SenderIdSize"] == 0, "0 without a sender identifier")
    header.must("Flags.AU", header["Flags.AU"] == 0, "zero")
    header.must("Flags.AS", header["Flags.AS"] == 0, "zero")
    header.must("SenderCertSize", header["SenderCertSize"] <= 0xFFFF, "at most 0xFFFF")
    sizes = ["SenderIdSize", "EncryptionKeySize", "SignatureSize", "SenderCertSize", "ProviderInfoSize"]
    header.must("Flags", any(header[size] for size in sizes), "at least one of the sizes is not zero")
    default, provider = header["Flags.DE"], header["ProviderInfoSize"]
    header.must("ProviderInfoSize", not default or provider == 0, "absent with the default provider")
    named = default or provider or not header["SignatureSize"]
    header.must("ProviderInfoSize", bool(named), "names the provider of a signature that the default did not make")
    if reader.strict:
        header.unused("Flags.X")
    for size in sizes:
        field = {"SenderIdSize": "SecurityID"}.get(size, size.removesuffix("Size"))
        if header[size]:
            reader.blob(header, field, header[size])
            reader.align(header)
    _hold_sender(header)
    _hold_key(header)
    if provider:
        header.must("ProviderInfo", len(header["ProviderInfo"]) >= 6, "ProviderType and a null-terminated name")
        at = header.end - (provider + 3 & ~3)
        header.keep("ProviderName", header["ProviderInfo"][4:], at + 4)
        header.keep("ProviderName", text(header, "ProviderName"), at + 4)
    return header


def _hold_sender(header: Header) -> None:
    """Check SecurityID: a SID (MS-DTYP 2.4.2.2) or the GUID of a queue manager."""
    if header["Flags.ST"] == 1:
        header.must("SenderIdSize", header["SenderIdSize"] >= 8, "the size of a SID")
        sid = header["SecurityID"]
        fits = sid[0] == 1 and sid[1] <= 15 and len(sid) == 8 + 4 * sid[1]
        header.must("SecurityID", fits, "a SID of its size", "MS-DTYP 2.4.2.2")
    elif header["Flags.ST"] == 2:
        header.must("SenderIdSize", header["SenderIdSize"] == 16, "the size of a GUID")


def _hold_key(header: Header) -> None:
    """Check EncryptionKey: a SIMPLEBLOB."""
    encrypted, size = header["Flags.EB"], header["EncryptionKeySize"]
    header.must("EncryptionKeySize", not encrypted or size > 12, "an encrypted body has a key", "MS-MQQB 3.1.7.1.5")
    if size:
        key = header["EncryptionKey"]
        frame = key[:4] == b"\1\2\0\0" and key[8:12] == b"\0\xa4\0\0" and size > 12
        header.must("EncryptionKey", frame, "a SIMPLEBLOB", "MS-MQQB 2.4.2")


def message_properties(reader: Reader) -> Header:
    header = reader.header(
        "MS-MQMQ 2.2.19.3", "MessagePropertiesHeader",
        {"Flags": 1, "LabelLength": 1, "MessageClass": 2, "CorrelationID": 20, "BodyType": 4, "ApplicationTag": 4,
         "MessageSize": 4, "AllocationBodySize": 4, "PrivacyLevel": 4, "HashAlgorithm": 4, "EncryptionAlgorithm": 4,
         "ExtensionSize": 4},
    )  # fmt: skip
    header.bits("Flags", {"PA": 1, "PR": 1, "NA": 1, "NR": 1, "X": 4})
    if reader.strict:
        header.unused("Flags.X")
    header.must("LabelLength", header["LabelLength"] <= 0xFA, "at most 0xFA")
    kind = header["MessageClass"]
    header.must("MessageClass", kind in CLASSES or not kind & ~CUSTOM_CLASSES, "predefined, or of bits in 0xE1FF")
    size, allocated = header["MessageSize"], header["AllocationBodySize"]
    header.must("AllocationBodySize", allocated >= size, "not below MessageSize")
    level, algorithm = header["PrivacyLevel"], header["EncryptionAlgorithm"]
    header.must("PrivacyLevel", level in (0, 1, 3, 5), "0, 1, 3 or 5")
    header.must("EncryptionAlgorithm", algorithm in CIPHERS, "a value of the table")
    header.must("HashAlgorithm", header["HashAlgorithm"] in HASHES, "a value of the table")
    header.must("EncryptionAlgorithm", level not in ALGORITHMS or algorithm in ALGORITHMS[level], "fits PrivacyLevel")
    if header["LabelLength"]:
        at = reader.position
        reader.blob(header, "Label", 2 * header["LabelLength"])
        header.keep("Label", text(header, "Label"), at)
    reader.blob(header, "ExtensionData", header["ExtensionSize"])
    header.keep("MessageBody.offset", reader.position, reader.position)
    reader.blob(header, "MessageBody", size)
    reader.align(header)
    return header


def debug(reader: Reader) -> Header:
    header = reader.header("MS-MQMQ 2.2.20.8", "DebugHeader", {"Flags": 2, "Reserved": 2})
    header.bits("Flags", {"QT": 2, "X": 14})
    header.must("Flags.QT", header["Flags.QT"] in (0, 1), "0 or 1")
    if reader.strict:
        header.unused("Flags.X", "Reserved")
    if header["Flags.QT"] == 1:
        reader.take(header, "QueueIdentifier", 16)
    return header


def soap(reader: Reader) -> Header:
    header = reader.header("MS-MQMQ 2.2.20.7", "SoapHeader", {})
    for name, identifier, reserved in (("Header", 0x0320, "Reserved"), ("Body", 0x0384, "Reserved1")):
        section = reader.take(header, f"{name}SectionID", 2)
        header.must(f"{name}SectionID", section == identifier, f"{identifier:#06x}")
        reader.take(header, reserved, 2)
        if reader.strict:
            header.unused(reserved)
        count = reader.take(header, f"{name}DataLength", 4)
        header.must(f"{name}DataLength", count >= 1, "counts the terminating null character")
        at = reader.position
        reader.blob(header, name, 2 * count)
        header.keep(name, text(header, name), at)
        # The text does not say whether BodySectionID starts at a boundary, as all rows of its figure do.
        reader.align(header)
    return header


def multiple_queues(reader: Reader) -> Header:
    header = reader.header("MS-MQMQ 2.2.20.1", "MultiQueueFormatHeader", {})
    for name, identifier in (("Destination", 0x0064), ("Administration", 0x00C8), ("Response", 0x012C)):
        part = _addresses(reader, name, identifier)
        header.keep(name, part["FormatNameList"], part.start)
        if name == "Destination":
            part.must("ElementCount", part["ElementCount"] >= 1, "one or more destination queues", header.section)
    part = reader.header("MS-MQMQ 2.2.20.3", "MQFSignatureHeader", {"ID": 2, "Reserved": 2, "Size": 4})
    part.must("ID", part["ID"] == 0x015E, "0x015E")
    if reader.strict:
        part.unused("Reserved")
    header.keep("Signature", reader.blob(part, "Signature", part["Size"]), part.start)
    reader.align(part)
    header.end = reader.position
    return header


def _addresses(reader: Reader, name: str, identifier: int) -> Header:
    """Read an MQFAddressHeader. HeaderSize may exclude the padding at its end: the text is ambiguous."""
    part = reader.header(
        "MS-MQMQ 2.2.20.2", f"{name}.MQFAddressHeader",
        {"HeaderSize": 4, "HeaderID": 2, "Reserved": 2, "ElementCount": 4},
    )  # fmt: skip
    part.must("HeaderID", part["HeaderID"] == identifier, f"{identifier:#06x}")
    part.must("HeaderSize", part["HeaderSize"] >= 12, "at least 12")
    if reader.strict:
        part.unused("Reserved")
    found = [names.element(reader, part, f"FormatNameList[{index}]") for index in range(part["ElementCount"])]
    part.keep("FormatNameList", found, part.start + 12)
    size = reader.position - part.start
    part.must("HeaderSize", part["HeaderSize"] in (size, size + 3 & ~3), f"the size of the header, {size} bytes")
    reader.align(part)
    return part
