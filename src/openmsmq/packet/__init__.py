"""Message packets: UserMessage and its headers ([MS-MQMQ] 2.2.19, 2.2.20), and what MS-MQRR puts around them.

A codec without state or I/O: `pack` gives bytes, `unpack` reads them with every length checked.
"""

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.packet.user_message import UserMessage

__all__ = ["BadPacket", "MessagePacket", "UserMessage"]
