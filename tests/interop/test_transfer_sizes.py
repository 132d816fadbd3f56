"""Messages of all sizes between real queue managers: a window of the largest messages exceeds the buffers."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon import eventually
from interop.test_transfer_kills import QueueManagers, on_loopback

LARGEST = (4 << 20) - (64 << 10)
COUNT = 12  # in total three times the data that may wait for a peer that does not read


@pytest.mark.parametrize("queue", [pytest.param("tx", marks=pytest.mark.slow), "plain"])
def test_many_of_the_largest_messages_that_waited_arrive_in_one_session(tmp_path: Path, queue: str) -> None:
    crowd = QueueManagers(tmp_path, on_loopback(2, 85))
    try:
        crowd.daemons[1].stop()
        with crowd.connect(0) as qm, qm.open(crowd.name(1, queue), "send") as opened:
            for number in range(COUNT):
                body = bytes([number]) * (LARGEST if number % 3 else 10)
                if queue == "tx":
                    with qm.transaction() as transaction:
                        opened.send(body, label=str(number), transaction=transaction)
                else:
                    opened.send(body, label=str(number), recoverable=True)
        crowd.daemons[1].start()
        with crowd.connect(1) as qm, qm.open(f".\\private$\\{queue}", "receive") as opened:
            for number in range(COUNT):
                message = opened.receive(timeout=60)
                assert message.label == str(number)
                assert message.body == bytes([number]) * (LARGEST if number % 3 else 10)
        eventually(crowd.is_quiet)
        assert crowd.daemons[0].log.count("reads nothing") == 0, crowd.daemons[0].log
    finally:
        crowd.stop()
