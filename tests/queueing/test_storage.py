from __future__ import annotations

import pytest

from openmsmq.model.errors import MessageStorageFailed
from openmsmq.queueing.storage import storing
from openmsmq.store import StoreFailed, StoreFull


@pytest.mark.parametrize("error", [StoreFull("no room"), StoreFailed("a sync failed")])
def test_a_failing_store_fails_the_operation(error):
    with pytest.raises(MessageStorageFailed, match=str(error)), storing():
        raise error
