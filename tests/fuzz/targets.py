"""Fuzz targets for external input of the bulk plane, DCOM and message security, and the list of all targets. Each
target takes bytes; it ends normally for correctly refused input and fails otherwise.

`make nightly` runs them with atheris (`tools/fuzz`); `test_corpus` runs the corpus in every test run.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dcom.world import ComWorld
from fuzz import (
    compiled_targets,
    http_targets,
    kerberos_targets,
    ndr_targets,
    network_targets,
    request_targets,
    storage_targets,
)
from msrpc.dcom import activation, coercion, objref
from msrpc.dcom.variant import VT, from_wire, to_wire
from msrpc.interfaces import ms_oaut
from msrpc.ndr import BadStubData, NdrError
from msrpc.ndr.serialization import deserialize, serialize
from msrpc.rpc.faults import Fault
from openmsmq.flight import record_columns, rows
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes
from openmsmq.packet.errors import BadPacket
from openmsmq.packet.reader import Reader
from openmsmq.packet.user_message import UserMessage
from openmsmq.processes import flight_requests
from openmsmq.protection import certificates, keys
from openmsmq.protection.arrival import Accepted, ArrivalProtection, Demands
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.faults import ProtectionError
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protocols.mqac.classes import CLASSES
from openmsmq.queueing import drafts
from openmsmq.record import compact_record
from openmsmq.record.message_record import (
    decode_message,
    decode_message_in_python,
    encode_message,
    encode_message_in_python,
)
from protection.material import HERE
from protection.world import Directory

CORPUS = Path(__file__).parent / "corpus"
QUEUE, SENDER = "DIRECT=OS:.\\private$\\q", sid_bytes("S-1-5-21-1-2-3-1001")
FORM = drafts.form_of(SENDER, QUEUE)
HEADER = bytes([1, 0x10, 8, 0]) + bytes(12)  # of type serialization
THIS = struct.pack("<HHII16sI", 5, 7, 0, 0, bytes(16), 0)  # ORPCTHIS
worlds: list[ComWorld] = []


def fuzz_requests(data: bytes) -> None:
    """The first byte selects an operation, the rest is its JSON. Accepted requests are plain JSON within the limits."""
    operation = sorted(flight_requests.REQUESTS)[(data[0] if data else 0) % len(flight_requests.REQUESTS)]
    try:
        values = flight_requests.check(operation, flight_requests.parse(data[1:]))
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_INVALID_PARAMETER:
            raise
        error.detail.encode()
        return
    text = json.dumps(values, allow_nan=False, ensure_ascii=False).encode()
    assert flight_requests.check(operation, flight_requests.parse(text)) == values


def fuzz_arrow(data: bytes) -> None:
    """An uploaded Arrow stream. The queue manager accepts each record encoded from it."""
    encoder = rows.RowEncoder(lambda text: (0, QUEUE), "q", SENDER, lambda row, error: None)
    try:
        with ipc.open_stream(io.BytesIO(data)) as stream:
            rows.checked_schema(stream.schema)
            for batch in stream:
                rows.validate(batch)
                made = encoder.encode(batch)
                for start, end in zip(made.bounds[:-1].tolist(), made.bounds[1:].tolist(), strict=True):
                    record = bytearray(made.data[start:end])
                    error = drafts.why_not(record, FORM)
                    assert error is None, error
                    decode_message(bytes(record), 1)
    except (MsmqError, pa.ArrowException, OSError, EOFError):
        return


def fuzz_rows(data: bytes) -> None:
    """A record from the Flight process, and one in a segment file in either form. Accepted records can be decoded;
    undecodable ones are detected."""
    bounds = array("q", [0, len(data)])
    odd = drafts.odd_drafts(data, bounds, FORM)
    assert odd == drafts.odd_drafts_in_python(data, bounds, FORM)
    error = drafts.why_not(data, FORM)
    assert odd or error is None
    if error is None:
        assert decode_message(data, 1).body_type <= 0xFFFF
    whole = np.array([0]), np.array([len(data)])
    assert compact_record.split_rows(data, *whole) == compact_record.split_rows_in_python(data, *whole)
    message = _decoded(decode_message_in_python, data)
    assert _decoded(decode_message, data) == message
    if message is not None:
        assert encode_message(message) == encode_message_in_python(message)
    records = record_columns.Records(np.array([1], np.uint64), np.frombuffer(data, np.uint8), *whole, "q", "queue")
    if records:
        records.batch(record_columns.MESSAGE_SCHEMA.names)


def _decoded(decode: Callable[[bytes, int], Message], record: bytes) -> Message | None:
    """Return the message of a record; None if it is not valid."""
    try:
        return decode(record, 1)
    except (ValueError, struct.error):
        return None


def fuzz_objref(data: bytes) -> None:
    """An object reference, and the activation properties in it."""
    try:
        reference = objref.unpack(data)
        assert objref.unpack(reference.pack()) == reference
        activation.parse_request(data)
    except BadStubData:
        return


def fuzz_variant(data: bytes) -> None:
    """A VARIANT of any type. A decoded value can be encoded and decoded to the same value."""
    try:
        value = from_wire(deserialize(ms_oaut.wireVARIANTStr, HEADER + data), lambda pointer: pointer)
        wire = to_wire(value, lambda pointer, by_dispatch: pointer)
        again = from_wire(deserialize(ms_oaut.wireVARIANTStr, serialize(wire)), lambda pointer: pointer)
        assert repr(again) == repr(value)
        coercion.to_integer(value, VT.I4)
    except (BadStubData, NdrError, MsmqError):
        return


def fuzz_invoke(data: bytes) -> None:
    """The first two bytes select a class and the invoked member, the rest is the stub after them."""
    if not worlds or len(worlds[0].exporter) > 100:
        worlds[:] = [ComWorld()]
    (world,) = worlds
    kind = CLASSES[(data[0] if data else 0) % len(CLASSES)]
    members = kind.coclass.default.all_members
    dispid = members[data[1] % len(members)].dispid if len(data) > 1 and members else 0
    target = kind(world.protocols.environment)
    reference = world.export(target, ms_oaut.IDispatch)
    stub = THIS + struct.pack("<i16sI", dispid, bytes(16), 0x409) + data[2:]

    async def call() -> None:
        with contextlib.suppress(Fault, TimeoutError):  # a receive may wait without limit
            await world.call_stub(reference.ipid, ms_oaut.IDispatch, 6, stub)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(call())


def fuzz_keys(data: bytes) -> None:
    """The first byte selects a structure of keys or certificates. A decoded value can be encoded and decoded to the
    same value."""
    choice, data = (data[0] if data else 0) % 4, data[1:]
    try:
        match choice:
            case 0:
                key = keys.unpack_public_key(data)
                assert keys.unpack_public_key(keys.pack_public_key(key)) == key
            case 1:
                assert keys.pack_sealed_key(*keys.unpack_sealed_key(data)) == data
            case 2:
                entries = keys.unpack_directory_keys(data)
                assert keys.unpack_directory_keys(keys.pack_directory_keys(entries)) == entries
            case 3:
                found = certificates.unpack_certificates(data)
                assert certificates.pack_certificates(found) == data
                for entry in found:
                    certificates.public_key_of(entry.certificate)
    except (BadPacket, ProtectionError):
        return


EVERYTHING = CryptoPolicy(
    allow_md2=True, allow_md4=True, allow_md5=True, allow_sha1=True, allow_signature_1=True, allow_rc2=True,
    allow_rc4=True, reject_enhanced_rc2_using_40_bit_keys=False, external_certificates=True, minimum_rsa_bits=512,
)  # fmt: skip
DIRECTORY = Directory()


def fuzz_arrival(data: bytes) -> None:
    """A packet of another queue manager. It is accepted or rejected; one accepted as authentic is signed with a
    certificate registered for its sender."""
    try:
        packet = UserMessage.unpack(Reader(data))
    except BadPacket:
        return
    arrivals = [ArrivalProtection(policy, DIRECTORY, DIRECTORY, lambda: 0.0) for policy in (CryptoPolicy(), EVERYTHING)]
    for arrival in arrivals:
        for demands in (Demands(), Demands(True, 2), Demands(False, 0)):
            verdict = arrival.judge(packet, demands)
            if isinstance(verdict, Accepted) and demands.authentication:
                assert packet.security is not None
                assert packet.security.certificate in DIRECTORY.certificates_of_user(packet.security.sender)
    with contextlib.suppress(ProtectionError):
        DepartureProtection(EVERYTHING, DIRECTORY, bytes).protect(packet, HERE)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "requests": fuzz_requests, "arrow": fuzz_arrow, "rows": fuzz_rows, "objref": fuzz_objref, "variant": fuzz_variant,
    "invoke": fuzz_invoke, "keys": fuzz_keys, "arrival": fuzz_arrival, **network_targets.TARGETS,
    **ndr_targets.TARGETS, **compiled_targets.TARGETS, **http_targets.TARGETS,
    **kerberos_targets.TARGETS, **request_targets.TARGETS, **storage_targets.TARGETS,
}  # fmt: skip
