"""Queries for queues as LDAP filters ([MS-MQDSSM] 3.1.6.4.2.2), equivalent to `lookup.holds`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from openmsmq.directory.active import schema
from openmsmq.directory.active.ldap_text import filter_octets, filter_text
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import DirectoryError

#: LDAP has neither < nor >: they are <= or >= combined with not equal.
_FORMS: Final = {
    Relation.EQUALS: "({a}={v})",
    Relation.NOT_EQUALS: "(!({a}={v}))",
    Relation.LESS_THAN: "(&({a}<={v})(!({a}={v})))",
    Relation.GREATER_THAN: "(&({a}>={v})(!({a}={v})))",
    Relation.LESS_THAN_OR_EQUAL: "({a}<={v})",
    Relation.GREATER_THAN_OR_EQUAL: "({a}>={v})",
}
#: Filters for an empty text, which is an absent attribute; all other operators are false for it.
_FORMS_OF_ABSENT: Final = {Relation.EQUALS: "(!({a}=*))", Relation.NOT_EQUALS: "({a}=*)"}
NOTHING: Final = "(!(objectClass=*))"


def queue_filter(filters: Iterable[Filter], after: int) -> str:
    """Return the LDAP filter for queues that satisfy all `filters` and were created after a position of `QueueRecord`.
    Raises DirectoryError for an attribute that cannot be searched in Active Directory."""
    created = f"({schema.OF_QUEUE['position'].name}>={after + 1})"
    return f"(&(objectClass={schema.QUEUE}){created}{''.join(map(condition_text, filters))})"


def condition_text(condition: Filter) -> str:
    """Return one condition as an LDAP filter. Raises DirectoryError."""
    attribute = schema.OF_QUEUE.get(condition.attribute)
    if attribute is None:
        raise DirectoryError(f"queues cannot be searched by {condition.attribute}")
    if condition.value == "":
        return _FORMS_OF_ABSENT.get(condition.relation, NOTHING).format(a=attribute.name)
    octets = attribute.syntax.encode(condition.value)
    value = filter_octets(octets) if attribute.syntax is schema.GUID else filter_text(octets.decode())
    return _FORMS[condition.relation].format(a=attribute.name, v=value)
