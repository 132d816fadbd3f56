"""Messages written in bulk give the same frames and the same store as single ones."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import kept_by
from openmsmq.store import Insert, MessageRows, RecordTooLarge, Store
from openmsmq.store.frames import INSERT, PENDING, PUT, Codec
from openmsmq.store.row_frames import (
    frames_in_python,
    frames_of,
    payloads_in_python,
    payloads_of,
    run_in_python,
    run_of,
)

CODEC = Codec(bytes(range(16)), 8192)
FLAGS = st.integers(0, 7)


def rows(payloads: Sequence[bytes], first: int = 1, queue: int = 7) -> MessageRows:
    sizes = array("I", map(len, payloads))
    keys = array("Q", range(first, first + len(payloads)))
    bounds = array("q", accumulate(sizes, initial=4))
    records, queues = bytearray(b"head" + b"".join(payloads)), array("I", [queue]) * len(keys)
    return MessageRows(queues, records, sizes, bounds, keys, array("Q", keys))


@given(
    st.lists(st.binary(max_size=300), max_size=12), st.integers(0, 12), st.integers(0, 4000),
    st.integers(0, 1 << 31), st.integers(0, 1 << 59), st.integers(0, (1 << 31) - 1), st.tuples(FLAGS, FLAGS),
)  # fmt: skip
def test_frames(
    payloads: list[bytes], first: int, room: int, back: int, place: int, transaction: int, flags: tuple[int, int]
) -> None:
    position, given_rows, first = 8 * place, rows(payloads), min(first, len(payloads))
    arguments = (CODEC, given_rows, first, PENDING, transaction, position, max(0, position - back), room, *flags)
    assert frames_of(*arguments) == frames_in_python(*arguments)


NUMBERS = st.integers(0, (1 << 64) - 1)
WORDS = st.integers(0, (1 << 32) - 1)


@given(
    st.integers(1, 20), st.integers(0, 7), NUMBERS, WORDS, st.binary(max_size=300),
    st.tuples(NUMBERS, NUMBERS, WORDS, WORDS),
)  # fmt: skip
def test_header(
    kind: int, flags: int, position: int, group: int, payload: bytes, rest: tuple[int, int, int, int]
) -> None:
    in_python = CODEC.header_in_python(kind, flags, position, group, payload, *rest)
    assert CODEC.header(kind, flags, position, group, payload, *rest) == in_python


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.integers(0, 1 << 40), st.integers(0, 3000),
    st.integers(0, 255), st.sampled_from((INSERT, PENDING, PUT, 200)), st.integers(0, 8), st.integers(-9, 9),
)  # fmt: skip
def test_payloads(
    payloads: list[bytes], place: int, spoiled: int, value: int, kind: int, first: int, shift: int
) -> None:
    base = 8 * place + 16
    data, locations = frames_in_python(CODEC, rows(payloads), 0, kind, 5, base, base, 1 << 20)
    assert payloads_of(CODEC, data, base, locations, 0) == (payloads if kind in (INSERT, PENDING) else [])
    damaged = bytearray(data)
    damaged[spoiled % len(damaged)] = value
    first = min(first, len(payloads))
    for some in (data, bytes(damaged), data[:spoiled]):
        for origin in (base, base + shift):
            arguments = (CODEC, some, origin, list(locations), first)
            assert payloads_of(*arguments) == payloads_in_python(*arguments)


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.sampled_from((INSERT, INSERT, INSERT, PENDING)), st.integers(0, 2)),
             max_size=12),
    st.integers(0, 1 << 40), st.integers(0, 3000), st.integers(0, 255), st.integers(0, 400),
)  # fmt: skip
def test_runs(frames: list[tuple[bytes, int, int]], place: int, spoiled: int, value: int, offset: int) -> None:
    base, data = 8 * place, b""
    for key, (payload, kind, queue) in enumerate(frames):
        at = base + len(data)
        data += frames_in_python(CODEC, rows([payload], key * 7 % 5, queue), 0, kind, 0, at, at, 1 << 20)[0]
    damaged = bytearray(data or b"-")
    damaged[spoiled % len(damaged)] = value
    for some in (data, bytes(damaged), damaged, data[:spoiled]):
        for start in (0, offset):
            assert run_of(CODEC, some, start, base) == run_in_python(CODEC, some, start, base)
    kinds = [kind for _, kind, _ in frames]
    assert run_of(CODEC, data, 0, base).messages == (kinds.index(PENDING) if PENDING in kinds else len(kinds))


def test_nothing_is_kept() -> None:
    given_rows = rows([b"abc", b"de"] * 20)
    data, locations = frames_of(CODEC, given_rows, 0, PENDING, 1, 4096, 4096, 4000)
    inserts, _ = frames_of(CODEC, given_rows, 0, INSERT, 0, 4096, 4096, 4000)

    def work() -> None:
        frames_of(CODEC, given_rows, 3, PENDING, 1, 4096, 0, 4000)
        payloads_of(CODEC, data, 4096, [*locations, 4097], 0)
        run_of(CODEC, inserts, 0, 4096)

    assert kept_by(work) < 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path, segment_size=8192)


PAYLOADS = [bytes([index]) * (index * 37 % 500) for index in range(100)]  # more than fit in one segment


def test_rows_count_when_their_transaction_commits(store: Store) -> None:
    places = store.append_rows(5, rows(PAYLOADS))
    assert [store.read(place) for place in places] == PAYLOADS  # before they are written
    assert store.heads(list(places), 0) == [b""] * len(PAYLOADS)
    store.sync()
    assert [store.read(place) for place in places] == PAYLOADS
    store.append_rows(6, rows(PAYLOADS[:3], first=1000))
    store.commit(5)
    store.sync()
    again = reopened(store)
    columns = again.recovered.queues[7]
    assert list(columns.keys) == list(range(1, 101)) == list(columns.deadlines)
    assert [again.read(place) for place in columns.locations] == PAYLOADS
    assert list(again.recovered.queues) == [7] and again.high_key >= 1002


def reopened(store: Store) -> Store:
    store.close()
    return Store.open(store.directory, segment_size=8192)


def test_prepared_rows_survive_a_checkpoint_and_many_are_put_in_order(store: Store) -> None:
    store.append_pending(5, [Insert(7, 50, 0, b"fifty"), Insert(8, 51, 0, b"other")])
    store.append_rows(5, rows([b"one", b"two"]))
    store.append_rows(5, rows([b"hundred"], first=100))
    store.prepare(5, b"note")
    store.checkpoint({})
    again = reopened(store)
    columns = again.recovered.prepared[5].queues[7]
    assert list(columns.keys) == [1, 2, 50, 100]
    assert [again.read(place) for place in columns.locations] == [b"one", b"two", b"fifty", b"hundred"]


def test_a_too_large_row_rejects_all_rows(store: Store) -> None:
    position = store.end
    with pytest.raises(RecordTooLarge):
        store.append_rows(5, rows([b"a", bytes(8192)]))
    assert store.end == position
