"""The encoding of every IDL feature, computed by hand from C706 chapter 14, in both byte orders."""

from __future__ import annotations

from typing import Any

import pytest
from idl.idl_text import interface

from msrpc.ndr import NULL, BadStubData, NdrError

IDL = """
[uuid(12345678-1234-1234-1234-123456789abc), version(1.2), pointer_default(unique)]
interface feature {
    const long LIMIT = 4;
    typedef [context_handle] void *SESSION;
    typedef SESSION ALIAS_OF_SESSION;
    typedef unsigned long COUNT;
    typedef [range(1, 10)] COUNT SMALL_COUNT;
    typedef [ptr] long *FULL;
    typedef [string] wchar_t *TEXT;
    typedef struct { short x; } PLAIN, *PPLAIN;
    typedef struct ALIGNED { byte a; short b; byte c; hyper d; byte e; long f; } ALIGNED;
    typedef enum { RED, GREEN = 5, BLUE } COLOUR;
    typedef [v1_enum] enum { OFF = 0, ON = 70000 } POWER;
    typedef struct NODE { short value; struct NODE *next; struct LATER *later; } NODE;
    typedef struct LATER { byte tail; } LATER;
    typedef struct { long n; [size_is(n)] short v[]; } CONFORMANT;
    typedef struct { long n; long m; [size_is(n), length_is(m)] byte v[]; } CONFORMANT_VARYING;
    typedef struct { byte n; [length_is(n)] long v[LIMIT]; byte after; } VARYING;
    typedef struct { byte before; [string] wchar_t name[6]; byte after; } FIXED_STRING;
    typedef struct { byte before; [string] char name[6]; } FIXED_NARROW_STRING;
    typedef struct { long kind; [string] wchar_t name[]; } TRAILING_STRING;
    typedef union BYTE_SWITCH switch (byte kind) u { case 1: long number; case 2: byte tiny; default: ; } BYTE_SWITCH;
    typedef union SHORT_SWITCH switch (short kind) u { case 1: case 2: long number; } SHORT_SWITCH;
    typedef union LONG_SWITCH switch (long kind) u { case 1: byte tiny; default: hyper large; } LONG_SWITCH;
    typedef [switch_type(long)] union { [case(1)] short number; [case(2)] TEXT text; [default]; } OUTER;
    typedef struct { byte kind; [switch_is(kind)] union { [case(1)] long l; [default] byte b; }; } ANONYMOUS1;
    typedef struct { short kind; [switch_is(kind)] union { [case(1)] long l; [case(2)] TEXT t; }; } ANONYMOUS2;
    typedef struct { long kind; [switch_is(kind)] OUTER outer; } NAMED4;

    void Align([in] byte p, [in] hyper q, [in] ALIGNED *s);
    void Pointers([in] handle_t h, [in] long *a, [in, unique] long *b, [in, ptr] long *c, [in, ptr] long *d);
    void TwoLevels([in, unique] long **p);
    void TypedefPointer([in] FULL a, [in] FULL b);
    void Declarators([in] PLAIN a, [in, unique] PPLAIN b);
    void Enums([in] COLOUR a, [in] POWER b, [in] COLOUR c);
    void Forward([in] NODE *node);
    void Conformant([in] CONFORMANT *s);
    void ConformantVarying([in] CONFORMANT_VARYING *s);
    void Varying([in] VARYING *s);
    void Parameters([in] long n, [in, size_is(n * 2 + 1)] byte a[],
        [in, size_is(n, ), length_is((n + 1) / 2)] short *b);
    void Levels([in] long n, [in, size_is(, n)] byte **a, [in, size_is(n)] TEXT *b);
    void Strings([in, string] wchar_t *a, [in, string, unique] char *b, [in] TEXT c);
    void FixedString([in] FIXED_STRING *s);
    void FixedNarrowString([in] FIXED_NARROW_STRING *s);
    void TrailingString([in] TRAILING_STRING *s);
    void Switch1([in] BYTE_SWITCH *u);
    void Switch2([in] SHORT_SWITCH *u);
    void Switch4([in] LONG_SWITCH *u);
    void Anonymous1([in] ANONYMOUS1 *s);
    void Anonymous2([in] ANONYMOUS2 *s);
    void Named4([in] NAMED4 *s);
    void UnionParameter([in] long kind, [in, switch_is(kind)] OUTER *u);
    void Range([in] SMALL_COUNT n, [in, range(-2, 2)] short m);
    void Handles([in] SESSION a, [in] ALIAS_OF_SESSION b);
    void Numbers([in] small a, [in] unsigned __int64 b, [in] float c, [in] double d, [in] boolean e);
    void MaxIs([in] short last, [in, max_is(last)] unsigned short *v);
    typedef struct { hyper h; } WIDE;
    void NoElements([in] long n, [in, size_is(n)] WIDE *v, [in] long after);
    void Expressions([in] long n, [in, size_is((n & ~3) ? n >> 1 : n % 3)] byte v[]);
};
"""
FEATURE, TYPES = interface(IDL)


def make(name: str, /, **values: Any) -> Any:
    return TYPES[name](**values)


HANDLE_LE, HANDLE_BE = "00000000 04030201 0605 0807 090a0b0c0d0e0f10", "00000000 01020304 0506 0708 090a0b0c0d0e0f10"
HANDLE = bytes.fromhex("00000000 04030201 0605 0807 090a0b0c0d0e0f10")
# Operation, arguments, stub little-endian, stub big-endian.
VECTORS: list[tuple[str, dict[str, Any], str, str]] = [
    ("Align", {"p": 1, "q": 0x0102030405060708, "s": make("ALIGNED", a=2, b=0x304, c=5, d=0x1112131415161718, e=6,
                                                                  f=-2)},
     "01 00000000000000 0807060504030201 02 00 0403 05 000000 1817161514131211 06 000000 feffffff",
     "01 00000000000000 0102030405060708 02 00 0304 05 000000 1112131415161718 06 000000 fffffffe"),
    ("Pointers", {"a": 1, "b": 2, "c": 3, "d": None},
     "01000000 00000200 02000000 04000200 03000000 00000000", "00000001 00020000 00000002 00020004 00000003 00000000"),
    ("TwoLevels", {"p": 5}, "00000200 04000200 05000000", "00020000 00020004 00000005"),
    ("TwoLevels", {"p": NULL}, "00000200 00000000", "00020000 00000000"),
    ("TwoLevels", {"p": None}, "00000000", "00000000"),
    ("TypedefPointer", {"a": None, "b": 9}, "00000000 00000200 09000000", "00000000 00020000 00000009"),
    ("Declarators", {"a": make("PLAIN", x=1), "b": make("PLAIN", x=2)}, "0100 0000 00000200 0200",
     "0001 0000 00020000 0002"),
    ("Enums", {"a": 5, "b": 70000, "c": 6}, "0500 0000 70110100 0600", "0005 0000 00011170 0006"),
    ("Forward", {"node": make("NODE", value=1, next=make("NODE", value=2), later=make("LATER", tail=7))},
     "0100 0000 00000200 04000200  0200 0000 00000000 00000000  07",
     "0001 0000 00020000 00020004  0002 0000 00000000 00000000  07"),
    ("Conformant", {"s": make("CONFORMANT", n=3, v=[1, 2, -1])}, "03000000 03000000 0100 0200 ffff",
     "00000003 00000003 0001 0002 ffff"),
    ("ConformantVarying", {"s": make("CONFORMANT_VARYING", n=5, m=2, v=b"\xaa\xbb")},
     "05000000 05000000 02000000 00000000 02000000 aabb", "00000005 00000005 00000002 00000000 00000002 aabb"),
    ("Varying", {"s": make("VARYING", n=2, v=[7, 8], after=9)},
     "02 000000 00000000 02000000 07000000 08000000 09", "02 000000 00000000 00000002 00000007 00000008 09"),
    ("Parameters", {"n": 1, "a": b"abc", "b": [6]},
     "01000000 03000000 616263 00 01000000 00000000 01000000 0600",
     "00000001 00000003 616263 00 00000001 00000000 00000001 0006"),
    ("Levels", {"n": 2, "a": b"xy", "b": ["A", None]},
     "02000000 00000200 02000000 7879 0000  02000000 04000200 00000000 02000000 00000000 02000000 4100 0000",
     "00000002 00020000 00000002 7879 0000  00000002 00020004 00000000 00000002 00000000 00000002 0041 0000"),
    ("Strings", {"a": "Aé", "b": "xy", "c": ""},
     "03000000 00000000 03000000 4100 e900 0000 0000 00000200 03000000 00000000 03000000 787900 00 "
     "01000000 00000000 01000000 0000",
     "00000003 00000000 00000003 0041 00e9 0000 0000 00020000 00000003 00000000 00000003 787900 00 "
     "00000001 00000000 00000001 0000"),
    ("FixedString", {"s": make("FIXED_STRING", before=1, name="Ab", after=2)},
     "01 000000 00000000 03000000 4100 6200 0000 02", "01 000000 00000000 00000003 0041 0062 0000 02"),
    ("FixedNarrowString", {"s": make("FIXED_NARROW_STRING", before=1, name="abcde")},
     "01 000000 00000000 06000000 616263646500", "01 000000 00000000 00000006 616263646500"),
    ("TrailingString", {"s": make("TRAILING_STRING", kind=1, name="A")},
     "02000000 01000000 00000000 02000000 4100 0000", "00000002 00000001 00000000 00000002 0041 0000"),
    ("Switch1", {"u": make("BYTE_SWITCH", kind=1, number=3)}, "01 000000 03000000", "01 000000 00000003"),
    ("Switch1", {"u": make("BYTE_SWITCH", kind=2, tiny=3)}, "02 03", "02 03"),
    ("Switch1", {"u": make("BYTE_SWITCH", kind=77)}, "4d", "4d"),
    ("Switch2", {"u": make("SHORT_SWITCH", kind=2, number=3)}, "0200 0000 03000000", "0002 0000 00000003"),
    ("Switch4", {"u": make("LONG_SWITCH", kind=1, tiny=3)}, "01000000 03", "00000001 03"),
    ("Switch4", {"u": make("LONG_SWITCH", kind=9, large=-1)}, "09000000 00000000 ffffffffffffffff",
     "00000009 00000000 ffffffffffffffff"),
    ("Anonymous1", {"s": make("ANONYMOUS1", kind=1, l=2)}, "01 01 0000 02000000", "01 01 0000 00000002"),
    ("Anonymous1", {"s": make("ANONYMOUS1", kind=3, b=2)}, "03 03 02", "03 03 02"),
    ("Anonymous2", {"s": make("ANONYMOUS2", kind=2, t="")},
     "0200 0200 00000200 01000000 00000000 01000000 0000", "0002 0002 00020000 00000001 00000000 00000001 0000"),
    ("Named4", {"s": make("NAMED4", kind=1, outer=make("OUTER", number=3))}, "01000000 01000000 0300",
     "00000001 00000001 0003"),
    ("UnionParameter", {"kind": 1, "u": make("OUTER", number=3)}, "01000000 01000000 0300", "00000001 00000001 0003"),
    ("UnionParameter", {"kind": 8, "u": make("OUTER")}, "08000000 08000000", "00000008 00000008"),
    ("Range", {"n": 10, "m": -2}, "0a000000 feff", "0000000a fffe"),
    ("Handles", {"a": HANDLE, "b": bytes(20)}, HANDLE_LE + "00" * 20, HANDLE_BE + "00" * 20),
    ("Numbers", {"a": -1, "b": 1, "c": 1.5, "d": -2.0, "e": 1},
     "ff 00000000000000 0100000000000000 0000c03f 00000000 00000000000000c0 01",
     "ff 00000000000000 0000000000000001 3fc00000 00000000 c000000000000000 01"),
    ("MaxIs", {"last": 1, "v": [1, 2]}, "0100 0000 02000000 0100 0200", "0001 0000 00000002 0001 0002"),
    ("NoElements", {"n": 0, "v": [], "after": 7}, "00000000 00000000 07000000", "00000000 00000000 00000007"),
    ("NoElements", {"n": 1, "v": [make("WIDE", h=1)], "after": 7},
     "01000000 01000000 0100000000000000 07000000", "00000001 00000001 0000000000000001 00000007"),
    ("Expressions", {"n": 5, "v": b"ab"}, "05000000 02000000 6162", "00000005 00000002 6162"),
    ("Expressions", {"n": 2, "v": b"ab"}, "02000000 02000000 6162", "00000002 00000002 6162"),
]  # fmt: skip
IDS = [f"{name}-{index}" for index, (name, *_) in enumerate(VECTORS)]


@pytest.mark.parametrize(("name", "values", "little", "big"), VECTORS, ids=IDS)
def test_a_feature_decodes_from_either_byte_order(name: str, values: dict[str, Any], little: str, big: str) -> None:
    operation = FEATURE.operation(name)
    assert operation.request is not None
    expected = operation.request(**values)
    assert operation.decode_request(bytes.fromhex(little), "<") == expected
    assert operation.decode_request(bytes.fromhex(big), ">") == expected


@pytest.mark.parametrize(("name", "values", "little", "big"), VECTORS, ids=IDS)
def test_a_feature_encodes_little_endian(name: str, values: dict[str, Any], little: str, big: str) -> None:
    operation = FEATURE.operation(name)
    assert operation.request is not None
    assert operation.encode_request(operation.request(**values)).hex() == bytes.fromhex(little).hex()


@pytest.mark.parametrize(("name", "values", "little", "big"), VECTORS, ids=IDS)
def test_a_stub_cut_anywhere_is_refused(name: str, values: dict[str, Any], little: str, big: str) -> None:
    stub = bytes.fromhex(little)
    for length in range(len(stub)):
        with pytest.raises(BadStubData):
            FEATURE.operation(name).decode_request(stub[:length])


@pytest.mark.parametrize("name", ["Pointers", "TypedefPointer"])
def test_full_pointers_with_equal_referents_refer_to_one_value(name: str) -> None:
    prefix = "01000000 00000000" if name == "Pointers" else ""
    decoded = FEATURE.operation(name).decode_request(bytes.fromhex(prefix + "04000200 03000000 04000200"))
    values = (decoded.c, decoded.d) if name == "Pointers" else (decoded.a, decoded.b)
    assert values == (3, 3)


REFUSED = [
    ("Conformant", "02000000 03000000 0100 0200", "a count that differs from size_is"),
    ("ConformantVarying", "05000000 05000000 06000000 00000000 06000000 aabbccddeeff", "more elements than fit"),
    ("ConformantVarying", "05000000 05000000 02000000 01000000 02000000 aabb", "an offset"),
    ("Varying", "05 000000 00000000 05000000" + "07000000" * 5 + "09", "more elements than the fixed array has"),
    ("Varying", "01 000000 00000000 02000000 07000000 08000000 09", "a count that differs from length_is"),
    ("FixedString", "01 000000 00000000 07000000" + "4100" * 6 + "0000 02", "a string longer than its array"),
    ("FixedString", "01 000000 00000000 00000000 02", "a string without terminator"),
    ("FixedString", "01 000000 00000000 01000000 4100 02", "a string that does not end with its terminator"),
    ("TrailingString", "02000000 01000000 00000000 02000000 4100 4100", "a trailing string without terminator"),
    ("Switch2", "0300 0000 03000000", "no arm"),
    ("Anonymous1", "01 02 0000 02000000", "two different selectors"),
    ("Range", "0b000000 0000", "a value above the range of its typedef"),
    ("Range", "00000000 0000", "a value below the range of its typedef"),
    ("Range", "01000000 0300", "a value above its range"),
    ("Parameters", "01000000 ffffff7f 616263", "a count of 2^31"),
    ("Expressions", "ffffffff 00000080 6162", "a negative number in an expression"),
    ("MaxIs", "ffff 0000 01000000 0100", "a maximum of -1"),
]


@pytest.mark.parametrize(("name", "stub", "what"), REFUSED, ids=[what for *_, what in REFUSED])
def test_a_stub_is_refused_for(name: str, stub: str, what: str) -> None:
    with pytest.raises(BadStubData):
        FEATURE.operation(name).decode_request(bytes.fromhex(stub))


UNENCODABLE = [
    ("Conformant", {"s": make("CONFORMANT", n=2, v=[1])}),
    ("ConformantVarying", {"s": make("CONFORMANT_VARYING", n=1, m=2, v=b"ab")}),
    ("ConformantVarying", {"s": make("CONFORMANT_VARYING", n=3, m=1, v=b"ab")}),
    ("Varying", {"s": make("VARYING", n=5, v=[1, 2, 3, 4, 5])}),
    ("Varying", {"s": make("VARYING", n=1, v=[1, 2])}),
    ("FixedString", {"s": make("FIXED_STRING", name="abcdef")}),
    ("Strings", {"a": "a\0b", "b": None, "c": ""}),
    ("Switch2", {"u": make("SHORT_SWITCH", kind=3)}),
    ("Range", {"n": 1, "m": 3}),
    ("Handles", {"a": b"short", "b": bytes(20)}),
    ("Pointers", {"a": None, "b": None, "c": None, "d": None}),
]


@pytest.mark.parametrize(("name", "values"), UNENCODABLE)
def test_a_value_that_breaks_its_declaration_is_not_encoded(name: str, values: dict[str, Any]) -> None:
    operation = FEATURE.operation(name)
    assert operation.request is not None
    with pytest.raises(NdrError):
        operation.encode_request(operation.request(**values))


def test_the_description_of_the_interface_is_what_the_text_says() -> None:
    assert str(FEATURE.uuid) == "12345678-1234-1234-1234-123456789abc"
    assert FEATURE.version == (1, 2)
    assert [operation.opnum for operation in FEATURE.operations] == list(range(29))
    assert TYPES["LIMIT"] == 4 and TYPES["BLUE"] == 6


def test_bytes_after_a_stub_are_tolerated() -> None:
    decoded = FEATURE.operation("Range").decode_request(bytes.fromhex("01000000 0200 6d79747261696c65 72"))
    assert (decoded.n, decoded.m) == (1, 2)


def test_padding_that_is_sent_is_zero_and_padding_that_comes_is_ignored() -> None:
    stub = bytes.fromhex("0500 abcd 70110100 0600")
    decoded = FEATURE.operation("Enums").decode_request(stub)
    assert FEATURE.operation("Enums").encode_request(decoded) == bytes.fromhex("0500 0000 70110100 0600")


def test_a_chain_of_structures_is_bounded_in_depth() -> None:
    link = bytes.fromhex("0100 0000 00000200 00000000")
    with pytest.raises(BadStubData, match="nested"):
        FEATURE.operation("Forward").decode_request(link * 5000)
    node = make("NODE", value=1)
    for _ in range(5000):
        node = make("NODE", value=1, next=node)
    operation = FEATURE.operation("Forward")
    assert operation.request is not None
    with pytest.raises(NdrError):
        operation.encode_request(operation.request(node=node))
