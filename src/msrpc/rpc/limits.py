"""Limits of one connection, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

from msrpc.rpc.pdu import MAX_FRAGMENT


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Bounds for one connection.

    max_fragment: largest PDU accepted, and offered in the bind.
    max_call_size: bytes of all requests that are being assembled. A message body has at most 4 MiB (MSMQ's own
        limit); 64 KiB are for the properties around it.
    max_response_size: bytes of all responses that a client is assembling. The longest is a list of queues: 100,000 of
        the longest names have 30 MB.
    max_contexts: presentation contexts. A client needs one for each interface and transfer syntax; DCOM clients bind
        a few more interfaces on one connection.
    max_pending: calls without an answer. Blocking receives wait here, one for each waiting thread of the client.
    max_security_contexts: [MS-RPCE] 3.3.1.5.4 lets a server choose; DCOM clients make one for each interface they
        bind, and each costs two cipher states.
    """

    max_fragment: int = MAX_FRAGMENT
    max_call_size: int = 4 * 1024 * 1024 + 64 * 1024
    max_response_size: int = 64 * 1024 * 1024
    max_contexts: int = 256
    max_pending: int = 1024
    max_security_contexts: int = 64
