"""Security properties of a message in its record."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from openmsmq.model.message import Message
from openmsmq.record.fields import OFFSET
from openmsmq.record.message_record import decode_message, encode_message

SIGNED = Message(
    body=b"b", label="l", authentication_provider_name="p", default_provider=True, last_in_transaction=True,
    multiple_destination_signature=b"signature", authentication_level=5,
)  # fmt: skip


def test_a_signature_for_several_destinations_and_its_provider_are_kept() -> None:
    assert decode_message(encode_message(SIGNED), 0) == SIGNED


def test_a_record_of_an_earlier_version_without_such_signatures_is_read() -> None:
    """Earlier records have the same bytes as a record without these properties: their reserved bytes are 0."""
    record = encode_message(Message(body=b"b", signature=b"s"))
    at = OFFSET["tail_size"]
    assert record[at : at + 4] == bytes(4)
    message = decode_message(record, 0)
    assert (message.default_provider, message.multiple_destination_signature) == (False, b"")


@pytest.mark.parametrize("signature", [b"", b"signature"])
def test_the_names_of_several_destinations_are_kept(signature: bytes) -> None:
    several = "DIRECT=OS:a\\private$\\q,DIRECT=OS:b\\private$\\\u00fc"
    message = Message(
        body=b"b", first_in_transaction=True, destination_multi_queue_format_name=several,
        multiple_destination_signature=signature,
    )  # fmt: skip
    record = encode_message(message)
    assert decode_message(record, 0) == message
    cut = record[: -len(several.encode()) - len(signature)]
    size = OFFSET["tail_size"]
    with pytest.raises(ValueError, match="its signature ends at 13") if signature else nullcontext():
        without = decode_message(cut[:size] + (4).to_bytes(4, "little") + cut[size + 4 :], 0)
        assert not without.destination_multi_queue_format_name


def test_a_record_that_is_shorter_than_its_signature_is_refused() -> None:
    with pytest.raises(ValueError, match="parts take"):
        decode_message(encode_message(SIGNED) + b"more", 0)
