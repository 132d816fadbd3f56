"""Examples of requests and responses, built from the `examples` of their fields."""

from __future__ import annotations

from typing import Any, Final

from msgspec import inspect

_NUMBER: Final = 3
_UUID: Final = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


def example_of(kind: Any) -> Any:
    """Return an example of a type as a JSON value. A struct contains its required fields and those with an example; if
    there are none, its first field."""
    return _value(inspect.type_info(kind))


def _value(kind: inspect.Type) -> Any:
    match kind:
        case inspect.Metadata():
            given = (kind.extra_json_schema or {}).get("examples")
            return given[0] if given else _value(kind.type)
        case inspect.UnionType():
            return _value(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
        case inspect.StructType():
            shown = [each for each in kind.fields if each.required or _is_given(each.type)]
            return {each.encode_name: _value(each.type) for each in shown or kind.fields[:1]}
        case inspect.ListType():
            return [_value(kind.item_type)]
        case inspect.DictType():
            return {"name": _value(kind.value_type)}
        case inspect.LiteralType():
            return min(map(str, kind.values))
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return max(kind.ge or 0, min(_NUMBER, _NUMBER if kind.le is None else kind.le))
        case inspect.UUIDType():
            return _UUID
    return "text"


def _is_given(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.Metadata) and "examples" in (kind.extra_json_schema or {})
