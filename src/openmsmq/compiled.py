"""Compiled modules of the queue manager, and whether this process runs them.

`tools/native.py` builds extension modules: `MODULES` with mypyc, `WRITTEN_IN_C` from C sources. For a wheel, the build
hook runs it; `make compiled` builds them next to the sources. `import` prefers an extension module to the source next
to it. Modules of `msrpc` are included: mypyc compiles calls between modules of one group to calls in C.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from typing import Final

# Modules on the path of a call from the socket to the disk and back, and others that gain from compilation;
# docs/performance.md has measurements.
_OF_OPENMSMQ: Final = (
    "peering.arrival", "peering.memory", "peering.names_in_packets", "peering.plain_arrival",
    "peering.plain_departure", "peering.sender", "peering.sequences",
    "model.admission", "model.histogram", "model.lookup_id",
    "packet.stream", "packet.headers", "packet.queue_names", "packet.reader", "packet.user_message",
    "protocols.cleanups", "protocols.dispatch", "protocols.environment", "protocols.first_messages",
    "protocols.management", "protocols.fast_path", "protocols.fast_qm2qm",
    "protocols.fast_remote_reads", "protocols.qm2qm",
    "protocols.qmcomm", "protocols.qmcomm2", "protocols.qmmgmt", "protocols.remote_read",
    "protocols.two_phase_batches", "protocols.xnremote",
    "queueing.administration", "queueing.arrivals", "queueing.change_set", "queueing.changes",
    "queueing.consumer_groups", "queueing.descriptors", "queueing.handles",
    "queueing.message_locks", "queueing.machine", "queueing.manager", "queueing.outbox", "queueing.outgoing",
    "queueing.outgoing_queues", "queueing.queue", "queueing.reading", "queueing.records",
    "queueing.registry", "queueing.removals", "queueing.sending", "queueing.sinks",
    "queueing.sorted_keys", "queueing.source_names",
    "queueing.staged_writes", "queueing.storage", "queueing.subqueues",
    "queueing.transactions", "queueing.unit_of_work", "queueing.waiting_line",
    "store.batch", "store.bookkeeping", "store.columns", "store.committer",
    "store.frames", "store.log", "store.operations", "store.ownership",
    "store.row_frames", "store.segments", "store.specs", "store.uring_sync", "store.vfs", "store.writer",
    "conversion.packets", "conversion.queue_format", "conversion.receive_buffer", "conversion.send_buffer",
    "transport.history", "transport.sequence", "transport.session", "transport.window",
)  # fmt: skip
_OF_MSRPC: Final = (
    "dcom.coercion", "dcom.exporter", "dcom.objref", "dcom.orpc", "dcom.resolver", "dcom.server", "dcom.slots",
    "dcom.variant",
    "rpc.assembly", "rpc.association", "rpc.call", "rpc.channel", "rpc.dispatcher", "rpc.ntlm_session", "rpc.pdu",
    "rpc.server", "rpc.server_channels", "rpc.server_connection", "rpc.splitter", "rpc.verification",
)  # fmt: skip
MODULES: Final = (
    *(f"msrpc.{module}" for module in _OF_MSRPC),
    *(f"openmsmq.{module}" for module in _OF_OPENMSMQ),
)
# Modules without Python source. Importers must work without them.
WRITTEN_IN_C: Final = (
    "msrpc.ndr.engine",
    "msrpc.rpc.requests",
    "msrpc.rpc.whole_pdu_headers",
    "openmsmq.flight.checksums",
    "openmsmq.model.message_slots",
    "openmsmq.packet.outgoing_packets",
    "openmsmq.packet.plain_packets",
    "openmsmq.protocols.receive_stubs",
    "openmsmq.protocols.send_stubs",
    "openmsmq.protocols.start_receive_stubs",
    "openmsmq.queueing.deadline_heap",
    "openmsmq.queueing.packing",
    "openmsmq.queueing.positions",
    "openmsmq.record.compacting",
    "openmsmq.record.message_codec",
    "openmsmq.store.framing",
    "openmsmq.store.ring",
)


def is_native() -> bool:
    """Whether this process runs compiled `MODULES`. Either all of them are built or none."""
    specifications = map(find_spec, MODULES)
    return all(found is not None and isinstance(found.loader, ExtensionFileLoader) for found in specifications)


def how_it_runs() -> str:
    """Return "native" or "interpreted", for messages."""
    return "native" if is_native() else "interpreted"
