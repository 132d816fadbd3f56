"""MIDL features that qmcomm does not need: object and dispatch interfaces, libraries, macros."""

from __future__ import annotations

import pytest
from idl.idl_text import library

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError
from msrpc.idl.parser import parse

AUTOMATION = """
import "base.idl", "other.idl";
#include "ignored.h"
#define FIRST_ID 100
#define REFTHING const struct THING *
#define EMPTY_MACRO
cpp_quote("#ifndef SOMETHING")
// a comment
/* another
   one */
typedef struct THING { long a; } THING;
interface IAnnounced;
typedef [unique] SAFEARRAY(VARIANT) *LPARRAY;
[ object, uuid(00000001-0000-0000-c000-000000000046), pointer_default(unique), ]
interface IShape : IUnknown
{
    [propget, id(DISPID_VALUE), helpstring("how many, they \\"ask\\"")] HRESULT Count([out, retval] long *count);
    [propput, id(FIRST_ID + 1)] HRESULT Name([in] BSTR name);
    [propputref, id(0x68)] HRESULT Owner([in] IUnknown *owner);
    HRESULT Find([in] REFTHING what, [in] REFIID riid, [out, iid_is(riid)] void **object);
    HRESULT Draw([in, defaultvalue(-1)] long color, [in, optional, defaultvalue("red")] VARIANT *more,
                 [in] SAFEARRAY(BSTR) names);
    [local] HRESULT __stdcall Hidden(void);
    import "inner.idl";
    const unsigned long MASK = (1 << 4) | 0x0f;
};
[ odl, dual, oleautomation, uuid(00000002-0000-0000-c000-000000000046) ]
interface IDual : IDispatch { [id(1)] HRESULT Go([in] IShape *shape, [in] IAnnounced *other); }
[ uuid(00000003-0000-0000-c000-000000000046) ]
dispinterface _DEvents
{
    properties:
        [id(1), readonly] long Total;
    methods:
        [id(2)] void Arrived([in] IDispatch *queue, [in] long cursor);
};
[ uuid(00000004-0000-0000-c000-000000000046) ]
dispinterface Wrapped { interface IDual; };
[ uuid(00000005-0000-0000-c000-000000000046), version(3.1), lcid(0x0) ]
library Shapes
{
    importlib("stdole2.tlb");
    typedef [public] enum SIDE { LEFT = -1, RIGHT = FIRST_ID, } SIDE;
    [ uuid(00000006-0000-0000-c000-000000000046), appobject ]
    coclass Shape { [default] interface IDual; [default, source] dispinterface _DEvents; interface IShape };
};
"""


def test_the_constructs_of_automation_are_read() -> None:
    file = parse(AUTOMATION, "shapes.idl")
    assert file.imports == ["base.idl", "other.idl", "inner.idl"]
    assert file.forward == ["IAnnounced"]
    by_name = {interface.name: interface for interface in file.interfaces}
    assert list(by_name) == ["IShape", "IDual", "_DEvents", "Wrapped"]
    assert [(i.base, i.is_dispatch, i.is_object) for i in file.interfaces] == [
        ("IUnknown", False, True), ("IDispatch", False, True), (None, True, True), ("IDual", True, True)]  # fmt: skip
    assert [o.name for o in by_name["IShape"].operations] == ["Count", "Name", "Owner", "Find", "Draw", "Hidden"]
    assert [o.name for o in by_name["_DEvents"].operations] == ["Arrived"]
    (coclass,) = file.coclasses
    assert [(sorted(attributes), name) for attributes, name in coclass.interfaces] == [
        (["default"], "IDual"), (["default", "source"], "_DEvents"), ([], "IShape")]  # fmt: skip


def test_attributes_keep_their_arguments() -> None:
    shape = parse(AUTOMATION, "shapes.idl").interfaces[0]
    count, name, owner, find, draw, hidden = shape.operations
    assert str(shape.uuid) == "00000001-0000-0000-c000-000000000046"
    assert count.attributes["helpstring"] == [s.Text('how many, they \\"ask\\"')]
    assert count.attributes["id"] == [s.Name("DISPID_VALUE")]
    assert name.attributes["id"] == [s.Binary("+", s.Name("FIRST_ID"), s.Number(1))]
    assert owner.attributes["id"] == [s.Number(0x68)]
    assert find.parameters[2].attributes["iid_is"] == [s.Name("riid")]
    assert find.parameters[2].declarator == s.Declarator("object", ["*", "*"])
    assert draw.parameters[0].attributes["defaultvalue"] == [s.Unary("-", s.Number(1))]
    assert draw.parameters[1].attributes["defaultvalue"] == [s.Text("red")]
    assert isinstance(draw.parameters[2].type, s.SafeArrayType)
    assert hidden.parameters == []


def test_a_macro_that_is_no_constant_stands_for_a_type() -> None:
    find = parse(AUTOMATION, "shapes.idl").interfaces[0].operations[3]
    assert isinstance(find.parameters[0].type, s.StructType)
    assert find.parameters[0].declarator == s.Declarator("what", ["*"])


def test_constants_and_enums_evaluate_their_expressions() -> None:
    found = library("#define FIRST_ID 100\nconst unsigned long MASK = (1 << 4) | 0x0f;"
                    "const long TOGGLED = 6 ^ 3;").constants  # fmt: skip
    assert found == {"FIRST_ID": 100, "MASK": 0x1F, "TOGGLED": 5}


def test_imported_types_are_resolved_but_not_emitted() -> None:
    own = library('import "base.idl"; typedef struct { BASE b; } OWN;', base="typedef struct { long x; } BASE;")
    assert [struct.name for struct in own.structs] == ["OWN"]
    (own_struct,) = own.structs
    assert isinstance(own_struct, w.Struct)
    assert isinstance(own_struct.fields[0].type, w.Struct)
    assert own_struct.fields[0].type.home == "base.idl"


COM = """
typedef struct tagMInterfacePointer { unsigned long ulCntData; [size_is(ulCntData)] byte abData[]; } MInterfacePointer;
typedef struct tagORPCTHIS { unsigned long flags; } ORPCTHIS;
typedef struct tagORPCTHAT { unsigned long flags; } ORPCTHAT;
[object, uuid(00000000-0000-0000-c000-000000000046)]
interface IUnknown { HRESULT Opnum0NotUsedOnWire(void); HRESULT Opnum1NotUsedOnWire(void); }
[object, uuid(00020400-0000-0000-c000-000000000046)]
interface IDispatch : IUnknown { HRESULT Invoke([in] long id); }
"""


def test_a_pointer_to_an_interface_travels_as_a_unique_pointer_to_its_objref() -> None:
    text = "[uuid(00000007-0000-0000-c000-000000000046)] interface i { void f([in] IUnknown *p, [out] IUnknown **q); }"
    (interface,) = library('import "com.idl";' + text, com=COM).interfaces
    single, double = (p.type for p in interface.operations[0].parameters)
    assert isinstance(single, w.Pointer) and isinstance(double, w.Pointer) and isinstance(double.to, w.Pointer)
    assert (single.kind, double.kind, double.to.kind) == ("unique", "ref", "unique")
    assert isinstance(single.to, w.Struct) and single.to is double.to.to and single.to.name == "MInterfacePointer"


def test_an_interface_of_objects_continues_its_base_and_begins_each_call_with_orpcthis() -> None:
    text = """[uuid(00000008-0000-0000-c000-000000000046), dual]
    interface IOne : IDispatch { [propget, id(7)] HRESULT Size([out, retval] long *n); HRESULT Go([in] long to); }
    [uuid(00000009-0000-0000-c000-000000000046), dual] interface ITwo : IOne { HRESULT Stop(); }"""
    one, two = library('import "com.idl";' + text, com=COM).interfaces
    assert [(o.opnum, o.name) for o in one.operations] == [(3, "get_Size"), (4, "Go")]
    assert [(o.opnum, o.name) for o in two.operations] == [(5, "Stop")] and two.base is one
    assert [f.name for f in one.operations[1].inputs] == ["orpcthis", "to"]
    assert [f.name for f in one.operations[0].outputs] == ["orpcthat", "n"]
    assert one.members is not None and two.members is not None
    assert [(m.kind, m.name, m.dispid) for m in one.members] == [("propget", "Size", 7), ("method", "Go", 0x60020001)]
    assert [m.dispid for m in two.members] == [0x60030000]
    (size,) = one.members[0].parameters
    assert (size.name, size.type, size.attributes) == ("n", "long*", frozenset(["out", "retval"]))


def test_an_interface_whose_base_was_not_imported_is_refused() -> None:
    text = "[uuid(00000008-0000-0000-c000-000000000046), object] interface IOne : IElsewhere { HRESULT Go(); }"
    with pytest.raises(IdlError, match="IOne: unknown base 'IElsewhere'"):
        library(text)


def test_the_version_of_an_interface_defaults_to_0_0() -> None:
    (interface,) = library("[uuid(00000007-0000-0000-c000-000000000046)] interface i { void f(void); }").interfaces
    assert interface.version == (0, 0)


def _kinds(text: str) -> list[str]:
    (interface,) = library("[uuid(00000007-0000-0000-c000-000000000046)] interface i {" + text + "}").interfaces
    wire = interface.operations[0].parameters[0].type
    kinds = []
    while isinstance(wire, w.Pointer | w.Struct):
        if isinstance(wire, w.Pointer):
            kinds.append(wire.kind)
            wire = wire.to
        else:
            wire = wire.fields[0].type
    return kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("void f([in] long *p);", ["ref"]),
        ("void f([in, unique] long *p);", ["unique"]),
        ("void f([in, ptr] long *p);", ["full"]),
        ("void f([in] long **p);", ["ref", "unique"]),
        ("typedef [ptr] long *P; void f([in] P p);", ["full"]),
        ("typedef [unique] long *P; void f([in] P p);", ["unique"]),
        ("typedef [ptr] long *P; void f([in, unique] P p);", ["unique"]),
        ("typedef [ptr] long *P; void f([in] P *p);", ["ref", "full"]),
        ("typedef [ptr] long *P; typedef P Q; void f([in] Q p);", ["full"]),
        ("typedef [ref] long *P; typedef struct { P p; } S; void f([in] S s);", ["ref"]),
        ("typedef [ptr] long *P; typedef struct { P p; } S; void f([in] S *s);", ["ref", "full"]),
        ("typedef struct { [ptr] long *p; } S; void f([in] S s);", ["full"]),
    ],
)
def test_the_kind_of_a_pointer_comes_from_its_attribute_its_typedef_or_the_default(text: str, kinds: list[str]) -> None:
    assert _kinds(text) == kinds


def test_pointer_default_rules_the_pointers_that_say_nothing() -> None:
    text = """[uuid(00000007-0000-0000-c000-000000000046), pointer_default(ptr)] interface i {
        typedef struct { long *p; } S; void f([in] S *s, [in] long **q); }"""
    (interface,) = library(text).interfaces
    (struct,) = library(text).structs
    assert isinstance(struct, w.Struct) and isinstance(struct.fields[0].type, w.Pointer)
    assert struct.fields[0].type.kind == "full"
    inner = interface.operations[0].parameters[1].type
    assert isinstance(inner, w.Pointer) and isinstance(inner.to, w.Pointer)
    assert (inner.kind, inner.to.kind) == ("ref", "full")


def test_all_declarators_of_a_type_without_tag_mean_the_same_type() -> None:
    text = """typedef struct { long a; } A, *PA; typedef enum { ONE = 1 } E, *PE; typedef enum { TWO = 2 } F, *PF;
        typedef struct { PA a; PE e; PF f; A direct; } ALL; typedef struct { long only; } *LONELY;
        typedef struct { LONELY l; } HOLDER;"""
    structs = {struct.name: struct for struct in library(text).structs}
    assert set(structs) == {"A", "ALL", "_LONELY", "HOLDER"}
    everything = structs["ALL"]
    assert isinstance(everything, w.Struct)
    a, e, f, direct = (field.type for field in everything.fields)
    assert isinstance(a, w.Pointer) and a.to is direct is structs["A"]
    assert isinstance(e, w.Pointer) and isinstance(e.to, w.Enum) and e.to.members == {"ONE": 1}
    assert isinstance(f, w.Pointer) and isinstance(f.to, w.Enum) and f.to.members == {"TWO": 2}


BROKEN = [
    ("typedef struct { long a }", "x.idl:1: expected a name, found '}'|x.idl:1: expected ';', found '}'"),
    ("typedef struct { long a;", "found 'end'"),
    ("interface i { void f([in] long a; }", "x.idl:1: expected ',', found ';'"),
    ("\n\nconst long A = ;", "x.idl:3: expected an expression"),
    ("typedef long `;", "x.idl:1: unexpected character '`'"),
    ("coclass c { long x; }", "expected 'interface' or 'dispinterface'"),
    ("interface 5 {}", "expected a name, found '5'"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_text_that_is_not_idl_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(IdlError) as error:
        parse(text, "x.idl")
    assert any(part in str(error.value) for part in message.split("|"))


UNSOUND = [
    ("typedef struct { MISSING m; } S;", "unknown type 'MISSING'"),
    ("typedef struct { struct missing m; } S;", "unknown tag 'missing'"),
    ("typedef struct { long a[UNKNOWN]; } S;", "unknown constant 'UNKNOWN'"),
    ("typedef struct { [switch_is(other)] union { [case(1)] long l; }; } S;", "names no scalar field"),
    ("typedef struct { long a; long b; long c; [switch_is(a ? b : c)] union { [case(1)] long l; }; } S;", "over one"),
    ("typedef struct { long a; long b; long c; [switch_is(a ? a : b)] union { [case(1)] long l; }; } S;", "over one"),
    ("typedef struct { long a; long b; long c; [switch_is(a + b)] union { [case(1)] long l; }; } S;", "over one"),
    ("typedef struct { long a; long b; long c; [switch_is(5)] union { [case(1)] long l; }; } S;", "over one"),
    ("typedef struct { long n; [size_is(n)] byte v[]; } C; typedef struct { long a; C c; } S;", "no codec"),
]


@pytest.mark.parametrize(("text", "message"), UNSOUND)
def test_text_without_meaning_is_refused(text: str, message: str) -> None:
    with pytest.raises(IdlError, match=message):
        library(text)
