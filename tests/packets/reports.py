"""Checks of report messages about traced messages: the grammars of MS-MQQB 3.1.5.8.9 and 3.1.7.1.7."""

from __future__ import annotations

import re

from packets.headers import REPORT
from packets.reading import Header

_DIGITS = {count: f"[0-9A-Fa-f]{{{count}}}" for count in (2, 4, 8, 12)}
_GUID = "-".join(_DIGITS[count] for count in (8, 4, 4, 4, 12))
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})? (?:AM|PM)"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DATE = rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),(?:{_MONTHS}) [0-9]{{2}} [0-9]{{2}}"
LABEL = re.compile(
    rf"(?P<qm>{_DIGITS[4]}):(?P<id>{_DIGITS[8]}):(?P<hops>{_DIGITS[2]}) received by (?P<computer>{_GUID})"
    rf" at {_TIME} {_DATE}"
)
_QUEUE = r"(?:PUBLIC|PRIVATE|DIRECT|MACHINE|CONNECTOR|DL|MULTICAST)=[^<\r\n]+"  # MS-MQMQ 2.1
_ADDRESS = r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)"  # RFC 3986
BODY = re.compile(
    rf"<MESSAGE ID>(?P<id>{_DIGITS[8]})</MESSAGE ID>\r\n<TARGET QUEUE>{_QUEUE}</TARGET QUEUE>\r\n"
    rf"(?:<NEXT HOP>{_ADDRESS}</NEXT HOP>\r\n<HOP COUNT>(?P<hops>{_DIGITS[2]}) </HOP COUNT>\r\n)?"
)
#: A label, and the body of a receiver's report.
EXAMPLE = (
    "0102:0000002A:03 received by 01020304-0506-0708-090A-0B0C0D0E0F10 at 07:05:00 PM Sun,Nov 22 26",
    "<MESSAGE ID>0000002A</MESSAGE ID>\r\n<TARGET QUEUE>DIRECT=OS:host\\queue</TARGET QUEUE>\r\n",
)


def hold(user: Header, properties: Header) -> None:
    """Check a UserMessage packet that is a report. Raises Violation."""
    if properties["MessageClass"] != REPORT:
        return
    section = "MS-MQQB 3.1.5.8.9"
    user.must("Flags.DM", user["Flags.DM"] == 0, "0: a report is an express message", section)
    label = LABEL.fullmatch(properties.get("Label") or "")
    properties.must("LabelLength", label is not None, "qm-id:message-id:hops received by computer at time", section)
    raw = properties["MessageBody"].removesuffix(b"\0\0")
    body = BODY.fullmatch(raw.decode("utf-16-le", "replace"))
    properties.must("MessageBody", body is not None, "MESSAGE ID, TARGET QUEUE, and NEXT HOP, HOP COUNT", section)
    assert label is not None and body is not None
    source = label["computer"].startswith(label["qm"])
    properties.must("LabelLength", source, "qm-id is the beginning of the source's identifier", section)
    properties.must("MessageBody", body["id"] == label["id"], f"{label['id']}, as in the label", section)
    hops = body["hops"] in (None, label["hops"])
    properties.must("MessageBody", hops, f"{label['hops']} hops, as in the label", "MS-MQQB 3.1.7.1.7")
