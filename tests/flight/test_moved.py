"""Messages that moved in the log, or were removed, after their location was requested."""

from __future__ import annotations

from array import array
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from openmsmq.flight.reading import RangeReading
from openmsmq.model.lookup_id import LAST_SEQUENCE


class Link:
    """A daemon with one message, which moves between two requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, operation: str, data: bytes = b"", **values: Any) -> Future[Any]:
        self.asked.append(operation)
        answer: Future[Any] = Future()
        if operation == "locate":
            assert np.frombuffer(data, np.uint64).tolist() == [5] and set(values) == {"caller", "queue", "source"}
            answer.set_result(({}, memoryview(bytes(8))))
        elif values["start"] == 0:
            found = array("Q", [5, 4096]).tobytes() + array("I", [100]).tobytes()
            answer.set_result(({"count": 1, "end": 9, "path": "q", "source": "queue", "aborts": {}}, memoryview(found)))
        else:
            answer.set_result(({"count": 0}, memoryview(b"")))
        return answer


def test_the_daemon_is_asked_again_for_a_message_that_is_not_where_it_was(tmp_path: Path) -> None:
    assert LAST_SEQUENCE & 5 == 5
    link: Any = Link()
    layout = {"directory": str(tmp_path), "segment_size": 1 << 20, "identity": bytes(16).hex()}
    portions = list(RangeReading(link, layout, None, {"queue": "q"}).portions())
    assert [(one.rows.num_rows, one.messages, one.damaged) for one in portions] == [(0, 0, [])]
    assert link.asked == ["slice", "slice", "locate"]
