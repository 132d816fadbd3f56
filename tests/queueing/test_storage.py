from __future__ import annotations

import pytest

from openmsmq.model.errors import MessageStorageFailed
from openmsmq.queueing.storage import storing
from openmsmq.store import StoreFailed, StoreFull


@pytest.mark.parametrize("error", [StoreFull("no room"), StoreFailed("a sync failed")])
def test_a_store_that_takes_nothing_is_the_failure_of_the_operation(error):
    with pytest.raises(MessageStorageFailed, match=str(error)), storing():
        raise error
