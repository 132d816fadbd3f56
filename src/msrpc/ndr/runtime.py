"""Runtime of generated codecs: the NULL behind a non-NULL pointer, and the description of an interface.

Transfer syntax NDR 2.0 (C706 chapter 14), 8a885d04-1ceb-11c9-9fe8-08002b104860. Stubs are decoded in either integer
byte order and always encoded little-endian. `Operation.ndr64` is the same operation in NDR64 ([MS-RPCE] 2.2.5),
71710533-beba-4937-8319-b5dbef9ccc36, which is little-endian only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import count
from typing import Any, ClassVar, Final, Literal
from uuid import UUID

from msrpc.errors import BadStubData, NdrError

ByteOrder = Literal["<", ">"]

MAXIMUM_DEPTH = 16  # nested PROPVARIANTs; far more than any valid call has, and each level takes a Python frame


class Null:
    """`NULL` is the value of a non-NULL pointer whose pointee is itself a NULL pointer."""

    _only: ClassVar[Null | None] = None

    def __new__(cls) -> Null:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "NULL"

    def __bool__(self) -> bool:
        return False


NULL = Null()
UNSET: Final = object()  # default of members that are created for each structure
PADDING = tuple(bytes(n) for n in range(8))
_FIRST_REFERENT = 0x20000  # as MIDL; the values have no meaning


class Structure:
    """Base of generated classes. Their `__slots__` are the members in the order of the IDL. They are not dataclasses,
    which would have to create the methods of about 600 classes at each start (0.5 s of CPU time)."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # they can change

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({members})"


class DecodeState:
    """State of one decoding: the full pointers found so far, and the depth of recursive types."""

    __slots__ = ("depth", "full")

    def __init__(self) -> None:
        self.full: dict[int, tuple[str, Any]] = {}
        self.depth = 0

    def alias(self, referent: int, kind: str) -> Any:
        """Return the already decoded object of a full pointer. Raises BadStubData if it has another type."""
        found, value = self.full[referent]
        if found != kind:
            raise BadStubData(f"a full pointer to {kind} refers to {found}")
        return value

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            raise BadStubData(f"values nested more than {MAXIMUM_DEPTH} deep")


class EncodeState:
    """State of one encoding: the next referent identifier."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = count(_FIRST_REFERENT, 4).__next__


def guid_from_big_endian(raw: bytes) -> bytes:
    """Convert a GUID in big-endian data representation to the 16 little-endian bytes used in this project."""
    return raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]


def handle_from_big_endian(raw: bytes) -> bytes:
    """Convert a context handle (attributes and UUID) in big-endian data representation to 20 little-endian bytes."""
    return raw[3::-1] + guid_from_big_endian(raw[4:])


def short_of(name: str) -> BadStubData:
    return BadStubData(f"{name}: more elements announced than bytes left")


# TypeError, ValueError and ZeroDivisionError: size_is expressions over NULL, or division by a received number.
_DECODE_ERRORS = (
    struct.error, UnicodeDecodeError, IndexError, OverflowError, TypeError, ValueError, ZeroDivisionError,
)  # fmt: skip
_ENCODE_ERRORS = (
    struct.error, TypeError, AttributeError, UnicodeEncodeError, OverflowError, ValueError, ZeroDivisionError,
    RecursionError,
)  # fmt: skip

_Decode = Callable[[bytes], Any]
_Encode = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True, eq=False)  # operations are unique, and hashing their contents would be slow
class Operation:
    """A procedure: its classes of arguments and its codecs. Codecs are None if the opnum is not used on the wire."""

    opnum: int
    name: str
    request: type | None
    response: type | None
    decoders: tuple[_Decode, _Decode, _Decode, _Decode] | None = field(repr=False)
    encoders: tuple[_Encode, _Encode] | None = field(repr=False)

    @property
    def used_on_wire(self) -> bool:
        return self.decoders is not None

    @property
    def ndr64(self) -> Operation:
        """The operation with the same classes of arguments and codecs for NDR64. The first use imports their module."""
        found = _in_ndr64.get(self)
        if found is None:
            found = _in_ndr64[self] = _made_ndr64(self)
            _in_ndr64[found] = found
        return found

    def decode_request(self, stub: bytes, order: ByteOrder = "<") -> Any:
        """Decode a request stub; bytes after it are tolerated. Raises BadStubData."""
        assert self.decoders is not None
        try:
            return self.decoders[order == ">"](stub)
        except _DECODE_ERRORS as error:
            raise BadStubData(f"{self.name}: {error}") from None

    def decode_response(self, stub: bytes, order: ByteOrder = "<") -> Any:
        """Decode a response stub. Raises BadStubData."""
        assert self.decoders is not None
        try:
            return self.decoders[2 + (order == ">")](stub)
        except _DECODE_ERRORS as error:
            raise BadStubData(f"{self.name}: {error}") from None

    def encode_request(self, arguments: Any) -> bytes:
        """Encode a request stub, little-endian. Raises NdrError."""
        assert self.encoders is not None
        try:
            return self.encoders[0](arguments)
        except _ENCODE_ERRORS as error:
            raise NdrError(f"{self.name}: {error}") from error

    def encode_response(self, results: Any) -> bytes:
        """Encode a response stub, little-endian. Raises NdrError."""
        assert self.encoders is not None
        try:
            return self.encoders[1](results)
        except _ENCODE_ERRORS as error:
            raise NdrError(f"{self.name}: {error}") from error


_in_ndr64: dict[Operation, Operation] = {}


def _made_ndr64(operation: Operation) -> Operation:
    request, response = operation.request, operation.response
    if request is None or response is None:  # the opnum is not used on the wire
        return operation
    decode_request, encode_request = _ndr64_codecs("_q_", request)
    decode_response, encode_response = _ndr64_codecs("_r_", response)
    decoders = decode_request, _no_big_endian, decode_response, _no_big_endian
    return replace(operation, decoders=decoders, encoders=(encode_request, encode_response))


def _ndr64_codecs(prefix: str, kind: type) -> tuple[_Decode, _Encode]:
    module = import_module(f"{kind.__module__}_ndr64")
    codecs: tuple[_Decode, _Encode] = getattr(module, prefix + kind.__name__)
    return codecs


def _no_big_endian(stub: bytes) -> Any:
    raise BadStubData("NDR64 in big-endian byte order")  # [MS-RPCE] 2.2.5


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter for Automation: `type` as written in the IDL, `attributes` from in, out, optional, retval."""

    name: str
    type: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A method or property accessor for Automation. `kind`: method, propget, propput or propputref; without `opnum`, it
    can only be called through Invoke."""

    opnum: int | None
    name: str
    kind: str
    dispid: int
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Interface:
    """An interface as declared in IDL. `operations` is indexed by opnum and begins with those of `base`.

    `members` are those of the interface itself, None if it is not for Automation. The arguments of the operations of an
    Automation interface are numbered (a0, a1, ...), separately for input and output parameters.
    """

    name: str
    uuid: UUID
    version: tuple[int, int]
    operations: Sequence[Operation] = field(repr=False)
    base: Interface | None = field(default=None, repr=False)
    members: tuple[Member, ...] | None = field(default=None, repr=False)

    @property
    def all_members(self) -> tuple[Member, ...]:
        """Members including those of the bases, by opnum."""
        inherited = () if self.base is None else self.base.all_members
        return inherited + (self.members or ())

    def operation(self, name: str) -> Operation:
        for operation in self.operations:
            if operation.name == name:
                return operation
        raise KeyError(f"{self.name} has no operation {name!r}")


@dataclass(frozen=True, slots=True, eq=False)
class CoClass:
    """A class of objects: `interfaces` that its objects implement, and `sources` that they call."""

    name: str
    uuid: UUID
    interfaces: tuple[Interface, ...]
    sources: tuple[Interface, ...]
    default: Interface
