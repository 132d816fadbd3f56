"""How the text of [MS-MQMQ] 2.5 is read where it leaves something open.

The section lists fields and says nothing of terminators, padding or absent values. Each choice has a name here, so that
a capture of other senders changes a value and no code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reading:
    """The choices; the defaults are what this queue manager signs and verifies (deviation D-135).

    Attributes:
        label_terminator: the label is hashed as the packet has it, with its terminator.
        names: of queue names the fields of the UserHeader (`header`), or of direct ones their text alone (`text`).
        name_padding: with the padding behind a direct name.
        absent_connector: 16 zeros for a ConnectorType that is not there (`null`), or nothing (`nothing`).
        record_padding: two zeros between MessageClass and BodyType, as a C structure of both would have.
        list: whose FormatNameList an MSMQ 3.0 signature covers: that of Destination, or of all three.
    """

    label_terminator: bool = True
    names: Literal["header", "text"] = "header"
    name_padding: bool = False
    absent_connector: Literal["null", "nothing"] = "null"
    record_padding: bool = False
    list: Literal["destination", "all"] = "destination"


STANDARD = Reading()
