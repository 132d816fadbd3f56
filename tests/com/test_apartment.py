"""The server of an apartment, for objects of the program."""

from __future__ import annotations

from openmsmq.com.apartment import Apartment
from openmsmq.model.exhaustion import shortage


def test_calls_that_find_no_room_are_answered_as_the_queue_manager_answers_them() -> None:
    apartment = Apartment("127.0.0.1")
    try:
        apartment.run(apartment._listen("127.0.0.1"))
        assert apartment._listener is not None and apartment._listener.calls.shortage is shortage
    finally:
        apartment.close()
