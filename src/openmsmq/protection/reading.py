"""Interpretation of [MS-MQMQ] 2.5 where it is ambiguous.

The section lists fields, but does not specify terminators, padding or absent values. Each choice has a name here, so
that a capture from other senders changes only a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reading:
    """The choices; the defaults are what this queue manager signs and verifies (deviation D-135).

    Attributes:
        label_terminator: the label is hashed as in the packet, including its terminator.
        names: for queue names, hash the fields of the UserHeader (`header`) or only the text of direct names (`text`).
        name_padding: hash the padding after a direct name.
        absent_connector: for an absent ConnectorType, hash 16 zeros (`null`) or nothing (`nothing`).
        record_padding: hash two zeros between MessageClass and BodyType, the padding of a C structure of both.
        list: which FormatNameList an MSMQ 3.0 signature covers: that of Destination, or all three.
    """

    label_terminator: bool = True
    names: Literal["header", "text"] = "header"
    name_padding: bool = False
    absent_connector: Literal["null", "nothing"] = "null"
    record_padding: bool = False
    list: Literal["destination", "all"] = "destination"


STANDARD = Reading()
