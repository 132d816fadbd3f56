"""What outgoing and connector queues have in common: their messages are in transit, and expire by their own rules."""

from __future__ import annotations

from dataclasses import dataclass

from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.message import Message
from openmsmq.queueing.queue import Queue


@dataclass(slots=True, eq=False)
class TransitQueue(Queue):
    """A queue whose messages have not reached their destination."""

    @property
    def is_active(self) -> bool:
        """Queue.Active, [MS-MQDMPR] 3.1.1.2, of connector queues too (D-52): messages wait for transfer, or somebody
        has opened the queue."""
        return bool(self.entries) or bool(self.descriptors)

    def deadline_of(self, message: Message) -> int:
        """When time to reach the queue, or to be received, has passed in transit ([MS-MQQB] 3.1.7.1.2)."""
        seconds = min(message.time_to_reach_queue, message.time_to_be_received)
        return 0 if seconds == INFINITE else (message.sent_time + seconds) * 1000 + message.sent_milliseconds

    def expiry_reason(self, message: Message) -> MessageClass:
        """Deviation D-59: [MS-MQMQ] 2.2.18.1.6 has no class for NackReceiveTimeoutAtSender; NackReceiveTimeout is the
        nearest."""
        if message.time_to_reach_queue <= message.time_to_be_received:
            return MessageClass.NACK_REACH_QUEUE_TIMEOUT
        return MessageClass.NACK_RECEIVE_TIMEOUT
