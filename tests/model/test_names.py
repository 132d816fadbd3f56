"""Path names and format names ([MS-MQMQ] 2.1): accepted names, round trips, and refusals with a reason."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmsmq.client.open_queue import format_name
from openmsmq.conversion.queue_format import from_queue_format, to_queue_format
from openmsmq.model import names
from openmsmq.model.errors import HResult, IllegalFormatName, IllegalQueuePathName
from openmsmq.model.names import PathName, Suffix
from openmsmq.model.queue_names import format_name_of, path_of
from openmsmq.queueing.source_names import queue_name

GUID = "12345678-9abc-def0-1234-56789abcdef0"

PATHS = [
    (r"host\private$\orders", PathName("host", "orders")),
    (r".\private$\orders", PathName(".", "orders")),
    (r"host\orders", PathName("host", "orders", "public")),
    (r"host\private$\orders;retry", PathName("host", "orders", "private", "retry")),
    (r"host\orders;retry", PathName("host", "orders", "public", "retry")),
    (r"host\system$;deadletter", PathName("host", "deadletter", "system")),
    (r"host\private$\Bestellungen für übermorgen", PathName("host", "Bestellungen für übermorgen")),
    (r"host\private$\../../etc/passwd", PathName("host", "../../etc/passwd")),
    (r"host\private$\..", PathName("host", "..")),
    ("host\\private$\\" + "x" * 124, PathName("host", "x" * 124)),
    ("h" * 256 + r"\q", PathName("h" * 256, "q", "public")),
    ("host\\q;" + "s" * 31, PathName("host", "q", "public", "s" * 31)),
]


@pytest.mark.parametrize(("text", "expected"), PATHS)
def test_a_path_name_parses_and_comes_back_as_it_was(text: str, expected: PathName) -> None:
    assert names.parse_path_name(text) == expected
    assert str(expected) == text


def test_the_marks_of_a_path_name_are_read_in_any_case() -> None:
    assert names.parse_path_name(r"HOST\PRIVATE$\Q") == PathName("HOST", "Q")
    assert names.parse_path_name(r"HOST\System$;JOURNAL") == PathName("HOST", "JOURNAL", "system")


BAD_PATHS = [
    ("", "expected computer"),
    ("orders", "expected computer"),
    (r"\private$\orders", "computer name"),
    ("h" * 257 + r"\q", "computer name"),
    ("a,b\\q", "computer name"),
    ("a\ud800\\q", "computer name"),
    ("host\\", "0 characters"),
    ("host\\private$\\", "0 characters"),
    ("host\\private$\\" + "x" * 125, "125 characters .UTF-16 code units., allowed: 1 to 124"),
    (r"host\private$\a\b", r"'\\\\'"),
    (r"host\private$\a+b", r"'\+'"),
    (r"host\private$\a,b", "','"),
    (r'host\private$\a"b', "'\"'"),
    ("host\\private$\\a\0b", r"'\\x00'"),
    ("host\\private$\\a\nb", r"'\\n'"),
    ("host\\private$\\a\udc00", "surrogate"),
    (r"host\private$\a;", "subqueue name has 0"),
    ("host\\a;" + "s" * 33, "subqueue name has 33"),
    (r"host\a;b;c", "subqueue name contains ';'"),
    (r"host\private$\..\..\etc", r"'\\\\'"),
    (r"host\system$;", "0 characters"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_PATHS)
def test_a_bad_path_name_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(IllegalQueuePathName, match=reason) as error:
        names.parse_path_name(text)
    assert error.value.hresult == HResult.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME


FORMAT_NAMES: list[tuple[str, names.FormatName]] = [
    (f"PUBLIC={GUID}", names.PublicFormatName(names.UUID(GUID))),
    (f"PUBLIC={GUID};JOURNAL", names.PublicFormatName(names.UUID(GUID), Suffix.JOURNAL)),
    (f"PRIVATE={GUID}\\0000000a", names.PrivateFormatName(names.UUID(GUID), 10)),
    (f"PRIVATE={GUID}\\ffffffff;JOURNAL", names.PrivateFormatName(names.UUID(GUID), 0xFFFFFFFF, Suffix.JOURNAL)),
    (r"DIRECT=OS:host\private$\q", names.DirectFormatName("OS", "host", r"private$\q")),
    (r"DIRECT=OS:.\q", names.DirectFormatName("OS", ".", "q")),
    (r"DIRECT=TCP:10.1.2.3\private$\q;JOURNAL",
     names.DirectFormatName("TCP", "10.1.2.3", r"private$\q", Suffix.JOURNAL)),
    (r"DIRECT=TCP:fe80::1%eth0\q", names.DirectFormatName("TCP", "fe80::1%eth0", "q")),
    (r"DIRECT=IPX:00000012:00a0234f7500\q", names.DirectFormatName("IPX", "00000012:00a0234f7500", "q")),
    (r"DIRECT=OS:host\SYSTEM$;DEADLETTER", names.DirectFormatName("OS", "host", "SYSTEM$", Suffix.DEADLETTER)),
    (r"DIRECT=OS:host\SYSTEM$;DEADXACT", names.DirectFormatName("OS", "host", "SYSTEM$", Suffix.DEADXACT)),
    (r"DIRECT=OS:host\SYSTEM$;JOURNAL", names.DirectFormatName("OS", "host", "SYSTEM$", Suffix.JOURNAL)),
    (r"DIRECT=OS:host\private$\q;retry", names.DirectFormatName("OS", "host", r"private$\q", Suffix.SUBQUEUE, "retry")),
    ("DIRECT=HTTP://host:8080/msmq\\private$\\q", names.DirectFormatName("HTTP", "//host:8080/msmq", r"private$\q")),
    ("DIRECT=HTTPS://host/MSMQ\\q", names.DirectFormatName("HTTPS", "//host/MSMQ", "q")),
    (f"MACHINE={GUID};JOURNAL", names.MachineFormatName(names.UUID(GUID), Suffix.JOURNAL)),
    (f"MACHINE={GUID};DEADLETTER", names.MachineFormatName(names.UUID(GUID), Suffix.DEADLETTER)),
    (f"MACHINE={GUID};DEADXACT", names.MachineFormatName(names.UUID(GUID), Suffix.DEADXACT)),
    (f"CONNECTOR={GUID}", names.ConnectorFormatName(names.UUID(GUID))),
    (f"CONNECTOR={GUID};XACTONLY", names.ConnectorFormatName(names.UUID(GUID), Suffix.XACTONLY)),
    (f"DL={GUID}", names.DistributionListFormatName(names.UUID(GUID))),
    (f"DL={GUID}@example.com", names.DistributionListFormatName(names.UUID(GUID), "example.com")),
    ("MULTICAST=239.255.255.255:65535", names.MulticastFormatName("239.255.255.255", 65535)),
    ("MULTICAST=224.0.0.1:0", names.MulticastFormatName("224.0.0.1", 0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FORMAT_NAMES, ids=[text for text, _ in FORMAT_NAMES])
def test_a_format_name_parses_and_comes_back_as_it_was(text: str, expected: names.FormatName) -> None:
    assert names.parse_format_name(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(("text", "name"), FORMAT_NAMES, ids=[text for text, _ in FORMAT_NAMES])
def test_a_format_name_survives_queue_format(text: str, name: names.FormatName) -> None:
    back = from_queue_format(to_queue_format(name))
    assert back == name
    assert str(back) == text


def test_a_multiple_element_format_name_keeps_its_elements_in_order() -> None:
    elements = [text for text, name in FORMAT_NAMES if "JOURNAL" not in text and "MACHINE" not in text][:9]
    elements = [text for text in elements if "SYSTEM$" not in text]
    text = ",".join(elements)
    name = names.parse_format_name(text)
    assert isinstance(name, names.MultipleElementFormatName)
    assert [str(element) for element in name.elements] == elements
    assert str(name) == text
    with pytest.raises(IllegalFormatName, match="single-element"):
        to_queue_format(name)


def test_prefixes_suffixes_and_hexadecimal_digits_are_read_in_any_case() -> None:
    assert names.parse_format_name(f"private={GUID.upper()}\\A;journal") == names.PrivateFormatName(
        names.UUID(GUID), 10, Suffix.JOURNAL
    )
    assert str(names.parse_format_name(r"direct=os:Host\Private$\Q;Journal")) == r"DIRECT=os:Host\Private$\Q;JOURNAL"


@pytest.mark.parametrize("text", [
    "DIRECT=HTTP://host/msmq/private$/q", r"DIRECT=HTTPS://host:81/msmq\private$\q", "DIRECT=http://host/msmq/q;sub",
])  # fmt: skip
def test_an_http_name_is_kept_as_written(text: str) -> None:
    name = names.parse_format_name(text)
    assert str(name) == text and isinstance(name, names.DirectFormatName)
    assert name.path == (r"private$\q" if "private" in text else "q")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        (r"DIRECT=OS:host\q", "host"),
        (r"DIRECT=TCP:10.0.0.1\q", "10.0.0.1"),
        ("DIRECT=HTTP://host/msmq/q", "host"),
        ("DIRECT=HTTP://host:80/msmq/q", "host"),
        ("DIRECT=HTTPS://[fe80::1]/msmq/q", "fe80::1"),
        ("DIRECT=HTTPS://[fe80::1]:443/msmq/q", "fe80::1"),
    ],
)
def test_the_host_of_a_direct_format_name_is_without_port(text: str, host: str) -> None:
    name = names.parse_format_name(text)
    assert isinstance(name, names.DirectFormatName)
    assert name.host == host


def test_a_direct_format_name_has_its_path_name() -> None:
    cases = {
        r"DIRECT=OS:host\private$\q": PathName("host", "q"),
        r"DIRECT=OS:host\q;sub": PathName("host", "q", "public", "sub"),
        r"DIRECT=OS:host\SYSTEM$;DEADXACT": PathName("host", "deadxact", "system"),
    }
    for text, expected in cases.items():
        name = names.parse_format_name(text)
        assert isinstance(name, names.DirectFormatName)
        assert name.path_name() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"PUBLIC={GUID}", True),
        (" direct = OS:.\\private$\\q", True),
        ("DIRECT=OS:.\\private$\\a=b", True),
        ("MULTICAST=234.1.1.1:8001", True),
        ("FormatName:DIRECT=OS:host\\q", True),  # which is refused, with the reason
        ("DIRECTLY=OS:.\\private$\\q", True),  # refused, too
        ("a=b", False),
        ("orders", False),
        ("", False),
        (".\\private$\\a=b", False),
        ("host\\DIRECT=x", False),
    ],
)
def test_format_names_are_told_from_queue_names_with_equals_signs(text: str, expected: bool) -> None:
    assert names.is_format_name(text) is expected


def test_short_names_may_have_equals_signs() -> None:
    for name in ("a=b", ".\\private$\\a=b", "a=b;journal"):
        assert str(format_name(name)).startswith("DIRECT=OS:.\\private$\\a=b")
        assert str(queue_name(name)) == str(format_name(name))
    assert path_of("a=b") == ".\\private$\\a=b"
    assert format_name_of("a=b") == "DIRECT=OS:.\\private$\\a=b"


def test_the_short_name_of_a_system_queue_has_one_format_name() -> None:
    assert format_name_of("deadletter") == format_name_of("DIRECT=OS:.\\SYSTEM$;DEADLETTER") == path_of("deadletter")


BAD_FORMAT_NAMES = [
    ("", "expected one of PUBLIC="),
    ("orders", "expected one of"),
    ("FILE=/etc/passwd", "expected one of"),
    ("PUBLIC=", "GUID"),
    (f"PUBLIC={{{GUID}}}", "GUID"),
    (f"PUBLIC={GUID};DEADLETTER", "suffix must be one of ;JOURNAL"),
    (f"PUBLIC={GUID};", "suffix"),
    (f"PRIVATE={GUID}", "1 to 8 hexadecimal digits"),
    (f"PRIVATE={GUID}\\", "1 to 8 hexadecimal digits"),
    (f"PRIVATE={GUID}\\123456789", "1 to 8 hexadecimal digits"),
    (f"PRIVATE={GUID}\\٣", "1 to 8 hexadecimal digits"),
    (f"PRIVATE={GUID[:-1]}\\1", "GUID"),
    ("DIRECT=", "protocol must be one of TCP"),
    (r"DIRECT=FTP:host\q", "protocol must be one of TCP"),
    ("DIRECT=OS:host", "protocol:address"),
    (r"DIRECT=OS:\q", "protocol:address"),
    ("DIRECT=OS:host\\", "0 characters"),
    ("DIRECT=OS:host\\" + "q" * 125, "125 characters"),
    ("DIRECT=OS:" + "h" * 257 + "\\q", "protocol:address"),
    (r"DIRECT=OS:host\private$\..\..\etc\passwd", "contains"),
    (r"DIRECT=OS:..\..\etc\passwd", "contains"),
    (r"DIRECT=OS:host\SYSTEM$", "a system queue is"),
    (r"DIRECT=OS:host\SYSTEM$;OTHER", "a system queue is"),
    (r"DIRECT=OS:host\q;", "nothing follows"),
    (r"DIRECT=OS:host\q;a;b", "contains"),
    ("DIRECT=OS:host\\a\0b", "contains"),
    ("DIRECT=HTTP://host/other/q", "/msmq"),
    ("DIRECT=HTTP:///msmq/q", "/msmq"),
    ("DIRECT=HTTP://a;b/msmq/q", "/msmq"),
    ("DIRECT=HTTP://" + "h" * 300 + "/msmq/q", "/msmq"),
    (f"MACHINE={GUID}", "ends with ;JOURNAL"),
    (f"MACHINE={GUID};XACTONLY", "suffix"),
    (f"CONNECTOR={GUID};JOURNAL", "suffix"),
    (f"DL={GUID}@", "domain"),
    (f"DL={GUID}@a b", "domain"),
    (f"DL={GUID}@{'d' * 256}", "domain"),
    ("MULTICAST=223.0.0.1:80", "224.0.0.0"),
    ("MULTICAST=240.0.0.1:80", "224.0.0.0"),
    ("MULTICAST=224.0.0.256:80", "224.0.0.0"),
    ("MULTICAST=224.0.0.01:80", "224.0.0.0"),
    ("MULTICAST=224.0.0.1:65536", "224.0.0.0"),
    ("MULTICAST=224.0.0.1", "224.0.0.0"),
    ("MULTICAST=٢٢٤.0.0.1:80", "224.0.0.0"),
    ("DIRECT=OS:host\\q,", "expected one of"),
    (f"DIRECT=OS:host\\q,PUBLIC={GUID};JOURNAL", "read-only"),
    (f"DIRECT=OS:host\\q,MACHINE={GUID};DEADLETTER", "read-only"),
    (r"DIRECT=OS:host\q,DIRECT=OS:host\SYSTEM$;DEADLETTER", "read-only"),
    (r"DIRECT=OS:host\q,DIRECT=OS:host\SYSTEM$;DEADXACT", "read-only"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_FORMAT_NAMES)
def test_a_bad_format_name_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(IllegalFormatName, match=reason) as error:
        names.parse_format_name(text)
    assert error.value.hresult == HResult.MQ_ERROR_ILLEGAL_FORMATNAME


@pytest.mark.parametrize("prefix", ["DIRECT=OS:host\\", "DIRECT=", "PUBLIC=", "", "DIRECT=OS:host\\q,"])
def test_a_name_of_130000_characters_is_refused_at_once_and_not_repeated(prefix: str) -> None:
    for filler in ("x", "\\", ";", ",", "\U0001f600"):
        begin = time.process_time()
        with pytest.raises(IllegalFormatName) as error:
            names.parse_format_name(prefix + filler * 130_000)
        with pytest.raises(IllegalQueuePathName) as path_error:
            names.parse_path_name("host\\private$\\" + filler * 130_000)
        assert time.process_time() - begin < 1
        assert len(str(error.value)) < 500 and len(str(path_error.value)) < 500


_QUEUE = st.text(
    st.characters(exclude_characters='\\;+,"\x7f', exclude_categories=("Cc", "Cs")), min_size=1, max_size=124
)
_HOST = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters=".-"), min_size=1, max_size=20)
_SUFFIX = st.sampled_from([Suffix.NONE, Suffix.JOURNAL])


@st.composite
def _direct(draw: st.DrawFn) -> names.DirectFormatName:
    queue = draw(_QUEUE.filter(lambda q: q.lower() != "system$"))
    path = f"private$\\{queue}" if draw(st.booleans()) else queue
    protocol = draw(st.sampled_from(["OS", "TCP", "IPX"]))
    if draw(st.booleans()):
        subqueue = draw(_QUEUE.filter(lambda q: len(q.encode("utf-16-le")) <= 62 and q.upper() != "JOURNAL"))
        return names.DirectFormatName(protocol, draw(_HOST), path, Suffix.SUBQUEUE, subqueue)
    return names.DirectFormatName(protocol, draw(_HOST), path, draw(_SUFFIX))


FORMAT_NAME = st.one_of(
    _direct(),
    st.builds(names.PublicFormatName, st.uuids(), _SUFFIX),
    st.builds(names.PrivateFormatName, st.uuids(), st.integers(0, 0xFFFFFFFF), _SUFFIX),
    st.builds(names.ConnectorFormatName, st.uuids(), st.sampled_from([Suffix.NONE, Suffix.XACTONLY])),
    st.builds(
        names.MachineFormatName, st.uuids(), st.sampled_from([Suffix.JOURNAL, Suffix.DEADLETTER, Suffix.DEADXACT])
    ),
    st.builds(names.DistributionListFormatName, st.uuids(), st.one_of(st.just(""), _HOST)),
    st.builds(
        names.MulticastFormatName,
        st.tuples(st.integers(224, 239), *[st.integers(0, 255)] * 3).map(lambda parts: ".".join(map(str, parts))),
        st.integers(0, 65535),
    ),
)


@settings(max_examples=200, deadline=None)
@given(FORMAT_NAME)
def test_any_format_name_survives_text_and_queue_format(name: names.FormatName) -> None:
    assert names.parse_format_name(str(name)) == name
    assert from_queue_format(to_queue_format(name)) == name


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=60), FORMAT_NAME.map(str)), st.integers(0, 60), st.text(max_size=3))
def test_any_text_is_a_name_or_is_refused(text: str, at: int, inserted: str) -> None:
    text = text[:at] + inserted + text[at:]
    try:
        name = names.parse_format_name(text)
    except IllegalFormatName:
        pass
    else:
        assert names.parse_format_name(str(name)) == name
    try:
        path = names.parse_path_name(text)
    except IllegalQueuePathName:
        pass
    else:
        assert str(path).lower() == text.lower()
