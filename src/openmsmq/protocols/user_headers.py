"""Cached UserHeaders of packets by the names in them, for `start_receive_stubs.c`, which sets the other fields."""

from __future__ import annotations

import struct
from typing import Final

from openmsmq.conversion.packets import user_message_of
from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message

_KEPT: Final = 4096  # maximum number of cached headers; a full cache is emptied
_LONGEST_KEPT: Final = 2048  # maximum bytes of a cached key
_GUID: Final = 16
_SIZES: Final = struct.Struct("<3I")


class UserHeaders(dict[bytes, bytes | None]):
    """UserHeaders ([MS-MQMQ] 2.2.19.2) without other values. The key is the source machine of a message, the sizes of
    its three names (destination, administration, response) and the names in UTF-8. None if the names need further
    headers."""

    def __missing__(self, key: bytes) -> bytes | None:
        header = _user_header(key)
        if len(key) <= _LONGEST_KEPT:
            if len(self) >= _KEPT:
                self.clear()
            self[key] = header
        return header


def _user_header(key: bytes) -> bytes | None:
    texts, at = [], _GUID + _SIZES.size
    for size in _SIZES.unpack_from(key, _GUID):
        texts.append(key[at : at + size].decode("utf-8", "surrogatepass"))
        at += size
    destination, administration, response = texts
    message = Message(
        source_machine_identifier=key[:_GUID], destination_queue_format_name=destination,
        administration_queue_format_name=administration, response_queue_format_name=response,
    )  # fmt: skip
    try:
        packet = user_message_of(message)
        packet.pack_parts()  # also sets the flags of the header
        return packet.user.pack() if packet.multi_queue is None else None
    except (ValueError, struct.error, MsmqError):
        return None
