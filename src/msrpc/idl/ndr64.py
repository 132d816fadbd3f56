"""Conversion of types of NDR 2.0 to those of NDR64 ([MS-RPCE] 2.2.5) for the same declarations.

The differences, and the attributes in which back ends find them:

- Pointers have 8 bytes, aligned to 8, also in arrays of reference pointers (2.2.5.3.5): `Pointer.size`.
- Maximum counts, offsets and actual counts have 8 bytes (2.2.5.3.2, 2.2.5.3.3): `Array.count_size`.
- Enumerations have 4 bytes, with or without `v1_enum` (2.2.4.6, 2.2.5.2): `Enum.size`. They are read as unsigned
  integers, as those with `v1_enum` in NDR 2.0: their members are 0 to 32,767 (2.2.4.11), never negative.
- `__int3264` is a hyper (2.2.4.1.2).
- Structures end at a multiple of their alignment. The padding after the last member that is neither conformant nor
  varying comes before the elements of a conformant array (2.2.5.3.4.1): `Struct.ndr64`.
- Unions are aligned like their largest arm, and so is the arm after the discriminant (2.2.5.3.4.4), even if the
  selected arm is smaller or has no member: `Union.ndr64`.
"""

from __future__ import annotations

from dataclasses import replace

from msrpc.idl import wiretypes as w

_HYPERS = {"i": w.Primitive("hyper", "q", 8), "I": w.Primitive("unsigned hyper", "Q", 8)}
_INT3264 = ("__int3264", "signed __int3264", "unsigned __int3264")


class Widening:
    """Converts types to NDR64. The same type is always converted to the same object, so that structures may be
    recursive."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[w.WireType, w.WireType]] = {}  # with the original, to keep its id() valid

    def type(self, wire_type: w.WireType) -> w.WireType:
        """Convert a type of NDR 2.0 to NDR64."""
        if id(wire_type) in self._made:
            return self._made[id(wire_type)][1]
        match wire_type:
            case w.Primitive(name=name, format=fmt):
                made: w.WireType = _HYPERS[fmt] if name in _INT3264 else wire_type
            case w.Opaque():
                made = wire_type
            case w.Enum():
                made = replace(wire_type, ndr64=True)
            case w.Pointer(to=to):
                made = replace(wire_type, to=self.type(to), ndr64=True)
            case w.Array(element=element):
                made = replace(wire_type, element=self.type(element), ndr64=True)
            case w.Union():
                made = self._union(wire_type)
            case w.Struct(fields=fields):
                made = replace(wire_type, fields=[], ndr64=True)
                self._made[id(wire_type)] = wire_type, made
                made.fields.extend(map(self.field, fields))
        self._made[id(wire_type)] = wire_type, made
        return made

    def field(self, field: w.Field) -> w.Field:
        """Convert a member or parameter to NDR64."""
        return replace(field, type=self.type(field.type))

    def _union(self, union: w.Union) -> w.Union:
        discriminant = self.type(union.discriminant)
        assert isinstance(discriminant, w.Primitive | w.Enum)
        made = replace(union, discriminant=discriminant, arms=[], ndr64=True)
        self._made[id(union)] = union, made
        made.arms.extend(replace(arm, field=self.field(arm.field) if arm.field else None) for arm in union.arms)
        return made
