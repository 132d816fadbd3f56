"""Errors of calls that a limit refuses name the setting."""

from __future__ import annotations

import pytest

from openmsmq.client.calls import check
from openmsmq.model.errors import HResult, InsufficientResources


def test_a_queue_too_many_names_the_setting() -> None:
    with pytest.raises(InsufficientResources, match=r"orders .*max_queues"):
        check(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, "R_QMCreateObjectInternal", r".\private$\orders")
