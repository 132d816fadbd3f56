"""Message packets: UserMessage and its headers ([MS-MQMQ] 2.2.19, 2.2.20), and the additional headers of MS-MQRR.

A codec without state or I/O: `pack` returns bytes, `unpack` parses them and checks every length.
"""

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.packet.user_message import UserMessage

__all__ = ["BadPacket", "MessagePacket", "UserMessage"]
