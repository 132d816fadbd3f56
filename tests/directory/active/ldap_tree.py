"""A directory in memory that answers like a domain controller: objects by distinguished name, RFC 4515 filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID, uuid4

from openmsmq.directory.active.ldap_text import name_of, parent_of
from openmsmq.directory.active.session import LdapEntry, Scope
from openmsmq.directory.provider import DirectoryError, ObjectExists, ObjectNotFound
from openmsmq.model.security import sid_text

_NUMBERS = ("usncreated", "msmqqueuequota", "msmqbasepriority")
Values = dict[str, list[bytes]]
Test = Callable[[Values], bool]


class LdapTree:
    """A session (see `session.Session`); several sessions can share `objects`."""

    def __init__(self, objects: dict[str, Values]) -> None:
        self.objects = objects
        self.asked: list[str] = []  # filters
        self.closed = False

    def _named(self, name: str) -> str:
        """Return the key of an object by name or <GUID=…>. Raises ObjectNotFound or, if invalid, DirectoryError."""
        if name.startswith("<GUID="):
            wanted = UUID(name[6:-1]).bytes_le
            found = [key for key, values in self.objects.items() if values.get("objectguid") == [wanted]]
        else:
            try:
                found = [key for key in self.objects if _same(key, name)]
            except ValueError as error:
                raise DirectoryError(f"Invalid DN syntax: {error}") from None
        if not found:
            raise ObjectNotFound(name)
        return found[0]

    def search(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope = Scope.SUBTREE, *,
        limit: int = 0, order: str = "", everywhere: bool = False,
    ) -> list[LdapEntry]:  # fmt: skip
        self.asked.append(condition)
        root, test = self._named(base), parse(condition)
        wanted = {name.lower() for name in attributes}
        found = [
            LdapEntry(name, {key: value for key, value in values.items() if key in wanted})
            for name, values in sorted(self.objects.items(), key=lambda item: _order(item[1], order))
            if _within(name, root, scope) and test(values)
        ]
        return found[:limit] if limit else found

    def add(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        self._named(parent_of(name))
        if any(_same(key, name) for key in self.objects):
            raise ObjectExists(name)
        number = 1 + max(int(values["usncreated"][0]) for values in self.objects.values())
        self.objects[name] = {
            "objectguid": [uuid4().bytes_le], "cn": [name_of(name).encode()], "usncreated": [b"%d" % number],
            "whencreated": [b"20261122145708.0Z"], "whenchanged": [b"20261122145708.0Z"],
            **{key.lower(): list(values) for key, values in attributes.items() if values},
        }  # fmt: skip

    def modify(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        values = self.objects[self._named(name)]
        for key, given in attributes.items():
            values.pop(key.lower(), None)
            if given:
                values[key.lower()] = list(given)

    def delete(self, name: str) -> None:
        del self.objects[self._named(name)]

    def close(self) -> None:
        self.closed = True


def _same(one: str, other: str) -> bool:
    return name_parts(one) == name_parts(other)


def name_parts(name: str) -> list[str]:
    parts = []
    while name:
        parts.append(name_of(name).casefold())
        name = parent_of(name)
    return parts


def _within(name: str, root: str, scope: Scope) -> bool:
    inner, outer = name_parts(name), name_parts(root)
    depth = len(inner) - len(outer)
    return inner[depth:] == outer and {Scope.BASE: depth == 0, Scope.CHILDREN: depth == 1}.get(scope, depth >= 0)


def _order(values: Values, order: str) -> int:
    return int(values.get(order.lower(), [b"0"])[0]) if order else 0


def parse(text: str) -> Test:
    """Parse a filter. Raises ValueError if it is invalid."""
    test, rest = _parse(text)
    if rest:
        raise ValueError(f"{rest!r} behind a filter")
    return test


def _parse(text: str) -> tuple[Test, str]:
    if text[:2] in ("(&", "(|", "(!"):
        sort, rest, parts = text[1], text[2:], []
        while rest.startswith("("):
            part, rest = _parse(rest)
            parts.append(part)
        if not rest.startswith(")") or (sort == "!" and len(parts) != 1):
            raise ValueError(f"no filter: {text!r}")
        joined = {"&": all, "|": any, "!": lambda found: not next(iter(found))}[sort]
        return (lambda values: joined([part(values) for part in parts])), rest[1:]
    found = re.match(r"\(([A-Za-z-]+)(>=|<=|=)((?:[^()*\\\0]|\\[0-9a-f]{2})*|\*)\)", text)
    if found is None:
        raise ValueError(f"no filter: {text!r}")
    return _comparison(found[1].lower(), found[2], found[3]), text[found.end() :]


def _comparison(name: str, relation: str, value: str) -> Test:
    if value == "*":
        return lambda values: bool(values.get(name))
    octets = b"".join(_unescaped(value))
    compare = {"=": lambda a, b: a == b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b}[relation]
    return lambda values: any(compare(_key(name, have), _key(name, octets)) for have in values.get(name, ()))


def _unescaped(value: str) -> Iterator[bytes]:
    for octet, plain in re.findall(r"\\(..)|([^\\])", value):
        yield bytes.fromhex(octet) if octet else plain.encode()


def _key(name: str, value: bytes) -> int | str | bytes:
    if name in _NUMBERS:
        return int(value)
    if name in ("objectguid", "msmqqueuetype", "msmqdigests"):
        return value
    if name == "objectsid" and not value.startswith(b"S-"):  # Active Directory also accepts text in filters
        return sid_text(value).casefold()
    return value.decode().casefold()
