"""The properties of a queue ([MS-MQDMPR] 3.1.1.2) and the rules for their values ([MS-MQMQ] 2.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from openmsmq.model.admission import utf16_units
from openmsmq.model.constants import INFINITE, MOST_DELIVERIES, PropId
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError
from openmsmq.model.message import NULL_GUID
from openmsmq.model.names import MulticastFormatName, parse_format_name

MAXIMUM_LABEL = 124  # WCHARs, MS-MQMQ 2.3.1.8
PRIV_LEVEL_NONE, PRIV_LEVEL_OPTIONAL, PRIV_LEVEL_BODY = 0, 1, 2


class QueueProperties(NamedTuple):
    """Definition of a queue. Quotas are in kilobytes, times in seconds since 1970 UTC, GUIDs 16 bytes.

    `delivery_limit` is the number of aborted receives after which a message is poison (0: no limit); it then moves to
    the subqueue `poison`, or to the dead letters if `poison_to_deadletter` is set (D-196).

    The defaults are those of Set Queue Defaults ([MS-MQDMPR] 3.1.7.1.33). A tuple, because a restart creates two for
    each queue and a frozen dataclass takes four times as long to create.
    """

    path_name: str
    instance: bytes = NULL_GUID
    type: bytes = NULL_GUID
    label: str = ""
    journaling: bool = False
    quota: int = INFINITE
    journal_quota: int = INFINITE
    base_priority: int = 0
    authentication: bool = False
    privacy_level: int = PRIV_LEVEL_OPTIONAL
    transactional: bool = False
    multicast_address: str = ""
    create_time: int = 0
    modify_time: int = 0
    security: bytes = b""
    delivery_limit: int = 0
    poison_to_deadletter: bool = False


#: Properties that are not stored in a directory, which has no attributes for them.
LOCAL_PROPERTIES: Final = ("delivery_limit", "poison_to_deadletter")
POISON: Final = "poison"  # name of the subqueue for poison messages


@dataclass(frozen=True, slots=True)
class _Rule:
    attribute: str
    check: Callable[[Any], bool]
    allowed: str
    on_create: bool = False
    on_set: bool = False


def _is_multicast(value: str) -> bool:
    if not value:
        return True
    try:
        return isinstance(parse_format_name(f"MULTICAST={value}"), MulticastFormatName)
    except ValueError:
        return False


_LABEL = _Rule(
    "label", lambda v: utf16_units(v) <= MAXIMUM_LABEL and "\0" not in v,
    f"at most {MAXIMUM_LABEL} characters without NUL, which would end it", True, True,
)  # fmt: skip
_RULES: dict[int, _Rule] = {
    PropId.PROPID_Q_INSTANCE: _Rule("instance", bool, ""),
    PropId.PROPID_Q_TYPE: _Rule("type", lambda v: len(v) == 16, "a GUID", True, True),
    PropId.PROPID_Q_PATHNAME: _Rule("path_name", bool, "a path name", True),
    PropId.PROPID_Q_JOURNAL: _Rule("journaling", lambda v: v in (0, 1), "0 or 1", True, True),
    PropId.PROPID_Q_QUOTA: _Rule("quota", lambda v: 0 <= v <= INFINITE, "0 to 0xFFFFFFFF kilobytes", True, True),
    PropId.PROPID_Q_BASEPRIORITY: _Rule("base_priority", lambda v: -32768 <= v <= 32767, "-32768 to 32767", True, True),
    PropId.PROPID_Q_JOURNAL_QUOTA: _Rule(
        "journal_quota", lambda v: 0 <= v <= INFINITE, "0 to 0xFFFFFFFF kilobytes", True, True
    ),
    PropId.PROPID_Q_LABEL: _LABEL,
    PropId.PROPID_Q_CREATE_TIME: _Rule("create_time", bool, ""),
    PropId.PROPID_Q_MODIFY_TIME: _Rule("modify_time", bool, ""),
    PropId.PROPID_Q_AUTHENTICATE: _Rule("authentication", lambda v: v in (0, 1), "0 or 1", True, True),
    PropId.PROPID_Q_PRIV_LEVEL: _Rule("privacy_level", lambda v: v in (0, 1, 2), "0, 1 or 2", True, True),
    PropId.PROPID_Q_TRANSACTION: _Rule("transactional", lambda v: v in (0, 1), "0 or 1", True),
    PropId.PROPID_Q_PATHNAME_DNS: _Rule("path_name_dns", bool, ""),
    PropId.PROPID_Q_MULTICAST_ADDRESS: _Rule(
        "multicast_address", _is_multicast, "empty or address:port from 224.0.0.0 to 239.255.255.255", True, True
    ),
    PropId.PROPID_Q_ADS_PATH: _Rule("ads_path", bool, ""),
    PropId.PROPID_Q_OPENMSMQ_DELIVERY_LIMIT: _Rule(
        "delivery_limit", lambda v: 0 <= v <= MOST_DELIVERIES, f"0 (no limit) to {MOST_DELIVERIES}", True, True
    ),
    PropId.PROPID_Q_OPENMSMQ_POISON_TO_DEADLETTER: _Rule(
        "poison_to_deadletter", lambda v: v in (0, 1), "0 or 1", True, True
    ),
}
_BOOLEANS = frozenset(["journaling", "authentication", "transactional", "poison_to_deadletter"])


def changed(properties: QueueProperties, values: Mapping[int, Any], creating: bool) -> QueueProperties:
    """Return `properties` with new values for some PROPIDs, after checking them ([MS-MQMP] 3.1.1.12 says which apply).

    PROPID_Q_PATHNAME is accepted only on creation, where it repeats the path name. Raises MsmqError
    MQ_ERROR_ILLEGAL_PROPID, MQ_ERROR_PROPERTY_NOTALLOWED or MQ_ERROR_ILLEGAL_PROPERTY_VALUE, naming the property.
    """
    updates: dict[str, Any] = {}
    for propid, value in values.items():
        rule = rule_for(propid)
        name = PropId(propid).name
        if not (rule.on_create if creating else rule.on_set):
            verb = "create" if creating else "set"
            raise MsmqError(HResult.MQ_ERROR_PROPERTY_NOTALLOWED, f"{name} can't be given to {verb} a queue")
        if not rule.check(value):
            raise IllegalPropertyValue(detail=f"{name} is {value!r}, allowed: {rule.allowed}")
        if propid != PropId.PROPID_Q_PATHNAME:
            updates[rule.attribute] = bool(value) if rule.attribute in _BOOLEANS else value
    return properties._replace(**updates)


def of_private_queue(properties: QueueProperties) -> QueueProperties:
    """Return the properties with the base priority of every private queue: 0, also if a client sets another one
    ([MS-MQMQ] 2.3.1.6)."""
    return properties._replace(base_priority=0)


def rule_for(propid: int) -> _Rule:
    """Return the rule of a property. Raises MsmqError MQ_ERROR_ILLEGAL_PROPID."""
    rule = _RULES.get(propid)
    if rule is None:
        allowed = ", ".join(str(int(p)) for p in _RULES)
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPID, f"unknown queue property {propid}; allowed: {allowed}")
    return rule
