"""What a record keeps of a message's security."""

from __future__ import annotations

import pytest

from openmsmq.model.message import Message
from openmsmq.queueing.message_record import OFFSET, decode_message, encode_message

SIGNED = Message(
    body=b"b", label="l", authentication_provider_name="p", default_provider=True, last_in_transaction=True,
    multiple_destination_signature=b"signature", authentication_level=5,
)  # fmt: skip


def test_a_signature_for_several_destinations_and_its_provider_are_kept() -> None:
    assert decode_message(encode_message(SIGNED), 0) == SIGNED


def test_a_record_from_before_there_were_such_signatures_is_read() -> None:
    """Its bytes are those of a record without one: what was reserved is 0."""
    record = encode_message(Message(body=b"b", signature=b"s"))
    at = OFFSET["multiple_destination_signature_size"]
    assert record[at : at + 4] == bytes(4)
    message = decode_message(record, 0)
    assert (message.default_provider, message.multiple_destination_signature) == (False, b"")


def test_a_record_that_is_shorter_than_its_signature_is_refused() -> None:
    with pytest.raises(ValueError, match="parts take"):
        decode_message(encode_message(SIGNED) + b"more", 0)
