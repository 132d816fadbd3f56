"""Options and columns: errors name the value and what is allowed, before anything runs."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from flight.certificates import make_certificate
from openmsmq.bulk.texts import _as_text, with_text
from openmsmq.model.bodies import encode_body
from openmsmq.model.text import as_unicode
from openmsmq.spark.options import BATCH_READ, BATCH_WRITE, STREAM_READ, STREAM_WRITE, OptionError, parse, queue_list
from openmsmq.spark.schema import ColumnError, check_writable, projection, spark_schema
from openmsmq.spark.writing import _with_bytes


@pytest.mark.parametrize(
    ("where", "given", "said"),
    [
        (BATCH_READ, {"queue": "q", "color": "red"}, "unknown option 'color'; allowed: .*consumerGroup"),
        (BATCH_READ, {}, "either queue or queuePattern"),
        (BATCH_READ, {"queue": "q", "queuePattern": ".*"}, "either queue or queuePattern"),
        (BATCH_READ, {"queue": " , "}, "queue is ' , ', allowed: names of queues"),
        (BATCH_READ, {"queuePattern": "("}, "queuePattern is '\\(', allowed: a regular expression"),
        (BATCH_READ, {"queue": "q", "mode": "receive"}, "mode does not apply to a batch read"),
        (BATCH_READ, {"queue": "q", "source": "trash"}, "source is 'trash', allowed: queue, journal"),
        (BATCH_READ, {"queue": "q", "source": "deadletter"}, "source=deadletter is one queue of the machine"),
        (BATCH_READ, {"queue": "q", "port": "x"}, "port is 'x', allowed: a whole number"),
        (BATCH_READ, {"queue": "q", "flightPort": "99999"}, "flightPort is 99999, allowed: a port, 1 to 65535"),
        (
            STREAM_READ,
            {"queue": "q", "mode": "receive", "consumerGroup": "g" * 300},
            "consumerGroup has 300 characters",
        ),
        (STREAM_WRITE, {"sinkId": "s" * 250}, "sinkId has 250 characters, allowed: 1 to 249"),
        (BATCH_READ, {"queue": "q", "fetchRows": "0"}, "fetchRows is 0, allowed: a whole number, 1 or more"),
        (BATCH_READ, {"queue": "q", "includeBody": "maybe"}, "includeBody is 'maybe', allowed: true, false"),
        (BATCH_READ, {"queue": "q", "includeBody": "false", "decode": "json"}, "decode=json needs includeBody=true"),
        (BATCH_READ, {"queue": "q", "startingOffsets": "[1]"}, "startingOffsets is .*allowed: earliest, latest, or"),
        (BATCH_READ, {"queue": "q", "startingOffsets": '{"q": -1}'}, "startingOffsets is"),
        (BATCH_READ, {"queue": "q", "endingOffsets": "earliest"}, "endingOffsets is 'earliest', allowed: latest"),
        (BATCH_READ, {"queue": "q", "startingTimestamp": "soon"}, "startingTimestamp is 'soon', allowed: a time like"),
        (BATCH_READ, {"queue": "q", "sinkId": "s"}, "sinkId does not apply to a batch read, but to: batch write"),
        (STREAM_READ, {"queue": "q", "mode": "receive"}, "mode=receive needs consumerGroup"),
        (STREAM_READ, {"queue": "q", "consumerGroup": "g"}, "consumerGroup is for mode=receive"),
        (
            STREAM_READ,
            {"queue": "q", "mode": "receive", "consumerGroup": "g", "startingTimestamp": "2026-01-01"},
            "would remove what startingTimestamp leaves out",
        ),
        (
            STREAM_READ,
            {"queue": "q", "mode": "receive", "consumerGroup": "g", "startingOffsets": "latest"},
            "begins where its consumerGroup stands",
        ),
        (STREAM_READ, {"queue": "q", "endingOffsets": "latest"}, "endingOffsets does not apply to a streaming read"),
        (STREAM_WRITE, {"defaultQueue": "q"}, "needs sinkId"),
        (BATCH_WRITE, {"onError": "collect"}, "onError=collect and errorPath go together"),
        (BATCH_WRITE, {"queue": "q"}, "queue does not apply to a batch write"),
    ],
)
def test_wrong_options_are_named(where: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(given, where)


def test_option_names_are_case_insensitive_and_sparks_own_are_ignored() -> None:
    options = parse(
        {"QUEUE": "a, b", "startingoffsets": '{"a": 5, "b": 7}', "startingTimestamp": "2026-01-01", "path": "x"},
        BATCH_READ,
    )
    assert options.queue == ("a", "b") and options.startingOffsets == {"a": 5, "b": 7}
    assert options.startingTimestamp == datetime(2026, 1, 1, tzinfo=UTC)


def test_spaces_belong_to_the_name_of_a_queue_except_after_a_comma() -> None:
    for text, queues in (
        ("sp ", ("sp ",)), (" sp", (" sp",)), ("a , b", ("a ", "b")), ("a,.\\private$\\ b", ("a", ".\\private$\\ b")),
    ):  # fmt: skip
        assert parse({"queue": text}, BATCH_READ).queue == queues
    assert parse({"queue": queue_list(["a ", " b"])}, BATCH_READ).queue == ("a ", ".\\private$\\ b")
    with pytest.raises(OptionError, match="queue is 'a,b', allowed: one name; give several names separately"):
        queue_list(["a,b"])


def test_a_credential_is_read_from_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "password").write_text("from a file\n")
    monkeypatch.setenv("SECRET", "from the environment")
    for credential, password in (
        ("env:SECRET", "from the environment"), (f"file:{tmp_path / 'password'}", "from a file"), ("plain", "plain"),
    ):  # fmt: skip
        assert parse({"queue": "q", "credential": credential}, BATCH_READ).password == password
    with pytest.raises(OptionError, match="'NOWHERE', which is not set"):
        _ = parse({"queue": "q", "credential": "env:NOWHERE"}, BATCH_READ).password
    with pytest.raises(OptionError, match=r"^credential: .*nowhere: No such file or directory$"):
        _ = parse({"queue": "q", "credential": f"file:{tmp_path / 'nowhere'}"}, BATCH_READ).password


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("no certificate")
    certificate, _ = make_certificate(tmp_path)
    assert parse({"queue": "q"}, BATCH_READ).roots is None
    assert parse({"queue": "q", "tlsRoot": str(certificate)}, BATCH_READ).roots == certificate.read_bytes()
    for name in ("empty", "text"):
        with pytest.raises(OptionError, match=f"tlsRoot is '.*{name}', allowed: a PEM file of certificates"):
            _ = parse({"queue": "q", "tlsRoot": str(tmp_path / name)}, BATCH_READ).roots
    with pytest.raises(OptionError, match=r"^tlsRoot: .*nowhere: No such file or directory$"):
        _ = parse({"queue": "q", "tlsRoot": str(tmp_path / "nowhere")}, BATCH_READ).roots


def test_a_schema_of_the_user_is_a_projection() -> None:
    wanted = StructType([StructField("label", StringType()), StructField("sequence", LongType())])
    assert projection(wanted, "none") == ["label", "sequence"]
    assert "text" in spark_schema("text").names and "text" not in spark_schema("none").names
    with pytest.raises(ColumnError, match="no column 'color'; there are queue, source"):
        projection(StructType([StructField("color", StringType())]), "none")
    with pytest.raises(ColumnError, match="'label' is string, not int"):
        projection(StructType([StructField("label", IntegerType())]), "none")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (StructField("label", StringType()), "the column 'body' is missing"),
        (StructField("sequence", LongType()), "'sequence' can't be written; allowed: correlation_id"),
        (StructField("priority", LongType()), "'priority' is bigint, not int"),
        (StructField("priority", StringType()), "'priority' is string, not int"),
        (StructField("label", BinaryType()), "'label' is binary, not string"),
    ],
)
def test_columns_that_cannot_be_written_are_named(column: StructField, said: str) -> None:
    columns = [column] if column == StructField("label", StringType()) else [StructField("body", BinaryType()), column]
    with pytest.raises(ColumnError, match=said):
        check_writable(StructType(columns))


def test_bodies_are_decoded_to_text() -> None:
    typed, kind = encode_body("grüße")
    rows = [(b"plain", 0), (typed, kind), (b"\xff\xfe\xff", 0), (b'{"a": 1}', 0), (None, 0)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([body for body, _ in rows], pa.binary()), pa.array([kind for _, kind in rows], pa.int32())],
        names=["body", "body_type"],
    )
    assert texts(batch, "text") == (["plain", "grüße", None, '{"a": 1}', None], 1)
    assert texts(batch, "json") == ([None, None, None, '{"a": 1}', None], 3)


def texts(batch: pa.RecordBatch, decode: str) -> tuple[list[str | None], int]:
    decoded, odd = with_text(batch, decode)
    return decoded.column("text").to_pylist(), odd


def test_an_undecodable_body_does_not_fail_a_batch_and_is_counted() -> None:
    lone, kind = encode_body("a\ud800b")
    rows = [(lone, kind), (b"[" * 200_000, 0), (b"[]", 0)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([body for body, _ in rows], pa.binary()), pa.array([kind for _, kind in rows], pa.int32())],
        names=["body", "body_type"],
    )
    assert texts(batch, "text") == (["a\ufffdb", "[" * 200_000, "[]"], 1)
    assert texts(batch, "json") == ([None, None, "[]"], 2)


NRBF_STRING = bytes.fromhex("0001000000ffffffff010000000000000006010000000268690b")


def test_bodies_of_dotnet_and_of_utf_16_are_text() -> None:
    rows = [
        (NRBF_STRING, 0), (NRBF_STRING[:-3], 0), (b"\xef\xbb\xbfgr\xc3\xbc", 0), (b"\xff\xfea\0", 0),
        ("<?xml?><a/>".encode("utf-16-le"), 0), ("<a/>".encode("utf-16-be"), 0), (b"", 0), (b"", 1),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(
        [pa.array([body for body, _ in rows], pa.binary()), pa.array([kind for _, kind in rows], pa.int32())],
        names=["body", "body_type"],
    )
    assert texts(batch, "text") == (["hi", None, "grü", "a", "<?xml?><a/>", "<a/>", "", None], 2)


def test_the_document_lists_all_options_and_columns() -> None:
    tool = Path(__file__).parents[2] / "tools" / "spark-options"
    assert subprocess.run([sys.executable, str(tool), "--check"]).returncode == 0, "run tools/spark-options"


def test_a_process_of_a_query_loads_no_rpc_client_before_it_needs_one() -> None:
    """Spark starts several per query, and importing the client takes four times as long as the rest."""
    program = "import sys, pyspark_msmq; sys.exit('openmsmq.client.sync' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_column_names_are_case_insensitive() -> None:
    """Spark's own sources do the same."""
    assert projection(StructType([StructField("LABEL", StringType())]), "none") == ["label"]
    check_writable(StructType([StructField("BODY", StringType())]))
    with pytest.raises(ColumnError, match="'body' occurs more than once"):
        check_writable(StructType([StructField("BODY", StringType()), StructField("body", StringType())]))


_BODIES = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=6).map(str.encode),
    st.text("ab\0ä", max_size=6).map(lambda text: text.encode("utf-16-le")),
    st.sampled_from(
        [b"\xef\xbb\xbfa", b"\xff\xfea\0", b"\xfe\xff\0a", b"<\0a\0>\0", b"\0<\0>", b"\0\1\0\0\0", b"\0\xd8"]
    ),
)


@given(rows=st.lists(st.tuples(st.none() | _BODIES, st.sampled_from([None, 0, 8, 30, 31, 3, 0x2011])), max_size=8))
def test_texts_of_many_bodies_are_those_of_each(rows: list[tuple[bytes | None, int | None]]) -> None:
    bodies = pa.array([body for body, _ in rows], pa.binary())
    batch = pa.record_batch({"body": bodies, "body_type": pa.array([kind for _, kind in rows], pa.int32())})
    given_ = [None if body is None else _as_text(body, kind or 0) for body, kind in rows]
    texts = [None if text is None else as_unicode(text) for text in given_]
    pairs = zip(rows, given_, texts, strict=True)
    odd = sum(body is not None and (text is None or text != given) for (body, _), given, text in pairs)
    decoded, found = with_text(batch, "text")
    assert (decoded.column("text").to_pylist(), found) == (texts, odd)
    for start in range(1, len(rows)):  # a slice, which does not begin at the start of the buffers
        part, _ = with_text(batch.slice(start), "text")
        assert part.column("text").to_pylist() == texts[start:]


@given(texts=st.lists(st.none() | st.text(max_size=5) | st.text("ab", max_size=5), max_size=6))
def test_many_texts_become_the_bodies_of_each(texts: list[str | None]) -> None:
    expected = [(None, 0) if text is None else encode_body(text) for text in texts]
    for start in range(len(texts) + 1):
        batch = pa.record_batch({"body": pa.array(texts, pa.string())}).slice(start)
        rows = _with_bytes(batch)
        assert [(row["body"], row["body_type"]) for row in rows.to_pylist()] == expected[start:]
        assert rows.schema.types == [pa.binary(), pa.int32()]
