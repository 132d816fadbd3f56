"""Wireshark's dissectors read what the daemon and its clients send: an implementation that shares no code with either.

Recording proxies stand between real clients and a real daemon, so no privileges are needed. MSMQ's own interfaces have
no dissectors: of these, Wireshark reads headers, binds, authentication and fragments, decrypts the stubs, and leaves
them as bytes. It has none for the packets of MS-MQQB (TCP 1801) either: `tshark -G protocols` of 4.0 and 4.4 knows no
name with MSMQ or MQQB. tests/packets has a second reading of those. LDAP is missing: its library and servers are only
installed for the tests of the night, and it is encrypted (docs/proof.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import pytest

from command_line import add_user
from daemon import Daemon
from interop.captured_clients import BODY, NDR, NDR64, PAGES, QMCOMM, SCENARIOS, World
from interop.captures import Connection, Recorder, damaged, write_capture
from interop.impacket_client import (
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_OK,
    PASSWORD,
    PRIVACY,
    USER,
)
from interop.samba_connection import need_samba
from interop.wireshark import (
    FAULT,
    LAST,
    REQUEST,
    RESPONSE,
    Call,
    Header,
    Layer,
    calls,
    dissected_header,
    read,
    reads_arguments_twice,
    sent_headers,
)
from openmsmq.interfaces.mc_mqac import IMSMQMessage
from requirements import program

QMCOMM2 = "76d12b80-3467-11d3-91ff-0090272f9ea3"
QMMGMT = "41208ee0-e970-11d1-9b9e-00e02c064c39"
QM2QM = "1088a980-eae5-11d0-8d9b-00a02453c337"
REMOTE_READ = "1a9134dd-7b39-45ba-ad88-44d01ca47f28"
FEATURES = "6cb71c2c-9812-4540-0300-000000000000"  # [MS-RPCE] 2.2.2.14, with both bits
# It has an odd length, so that the bindings in the response of ServerAlive2 ([MS-DCOM] 3.1.2.5.1.6) need no padding:
# Wireshark does not align what follows them to 4 bytes (C706 14.2.2).
COMPUTER = "CAPTURE"
ACCESS_DENIED = 5
RANGE_ERROR = 0x1C010002  # nca_op_rng_error

_ODD_PROPERTIES = (
    "Wireshark 4.0 reads the first property right after the CustomHeader of the activation properties, not at its "
    "headerSize ([MS-DCOM] 2.2.22.1): it does not skip the padding to 8 bytes ([MS-RPCE] 2.2.6.2) that the header "
    "of an odd number of properties has. Our client sends the three that are required (3.1.2.5.2.3.3)."
)
_REPEATED_ARGUMENTS = (
    "Wireshark 4.4 continues at the end of the array of pointers in rgvarg ([MS-OAUT] 2.2.33), not at the end of the "
    "VARIANTs to which they point, which follow it directly (C706 14.3.12.3). So it reads the first VARIANT, or the "
    "padding before it, again as the number of rgdispidNamedArgs, or as cVarRef if there are none."
)
NO_STUB, REPEATED = "a sealed request without a stub", "a request of Invoke whose arguments are read twice"  # places
_MALFORMED = "Malformed Packet (Exception occurred)"
# What Wireshark 4.0 or 4.4 warns of although the specifications allow it: place and text, with the reason.
KNOWN = {
    (NO_STUB, _MALFORMED): (
        "Wireshark fails to decrypt zero bytes. R_GetServerPort ([MS-MQRR] 3.1.4.1) has no parameters; impacket and "
        "our client send the same."
    ),
    (REPEATED, "Long frame"): _REPEATED_ARGUMENTS,
    (REPEATED, _MALFORMED): _REPEATED_ARGUMENTS,
    ("our objects: isystemactivator 4 of the client", "Long frame"): _ODD_PROPERTIES,
    ("our sealed objects: isystemactivator 4 of the client", "Long frame"): _ODD_PROPERTIES,
    ("refused: dcerpc of the server", "Bind not acknowledged"): "This is what was asked for.",
    ("resolver: oxid 4 of the server", "Long frame"): (
        "Wireshark takes two units, not four, for a DUALSTRINGARRAY without bindings, the smallest of [MS-DCOM] "
        "2.2.19.1, which the response about an unknown exporter has."
    ),
    ("flight: http2 of the server", "Trailing stray characters"): (
        "The gRPC library writes trailers named -bin in Base64 without padding, as gRPC over HTTP/2 recommends."
    ),
}


# -- captures ----------------------------------------------------------------------------------------------------------


@dataclass
class Reading:
    """A capture as Wireshark reads it, and the connections as they were recorded."""

    ports: dict[str, int]
    connections: list[Connection]
    layers: list[Layer]

    @property
    def protocols(self) -> dict[int, str]:
        return protocols_of(self.ports)

    def of(self, scenario: str, name: str = "") -> list[Layer]:
        """Return the layers of a scenario, or of one protocol in it."""
        clients = {connection.client_port for connection in self.connections if connection.scenario == scenario}
        return [layer for layer in self.layers if layer.client_port in clients and name in ("", layer.name)]

    def calls(self, scenario: str) -> list[Call]:
        return calls(self.of(scenario))

    @property
    def concerns(self) -> set[tuple[str, str]]:
        """Place and text of each warning and error."""
        return {(self._place(layer), text) for layer in self.layers for text in layer.concerns}

    def _place(self, layer: Layer) -> str:
        """Return the scenario, protocol, operation and sender, or the name of a place in any scenario. The layer of a
        failed dissection has no fields; the one before it has them."""
        others = [other for other in self.layers if other.frame == layer.frame and other.name != "_ws.malformed"]
        pdu = others[-1] if layer.name == "_ws.malformed" else layer
        if pdu.name == "dcerpc":
            header = dissected_header(pdu)
            if header.kind == REQUEST and not header.stub_length and header.security[1:2] == (PRIVACY,):
                return NO_STUB
        if pdu.name == "dispatch" and pdu.is_from_client and reads_arguments_twice(pdu):
            return REPEATED
        (scenario,) = {c.scenario for c in self.connections if c.client_port == layer.client_port}
        operation = "".join(f"{number} " for number in pdu.texts(f"{pdu.name}.opnum"))
        return f"{scenario}: {pdu.name} {operation}of the {'client' if pdu.is_from_client else 'server'}"

    @property
    def disagreements(self) -> list[str]:
        """The scenarios whose headers Wireshark does not read as they were sent."""
        return [
            connection.scenario
            for connection in self.connections
            if self.protocols[connection.server_port] == "dcerpc"
            for side in (True, False)
            if list(sent_headers(connection.stream(is_from_client=side))) != self._headers(connection, side)
        ]

    def _headers(self, connection: Connection, is_from_client: bool) -> list[Header]:
        wanted = ("dcerpc", connection.client_port, is_from_client)
        pdus = [layer for layer in self.layers if (layer.name, layer.client_port, layer.is_from_client) == wanted]
        return [dissected_header(layer) for layer in pdus]

    @property
    def logins(self) -> list[str]:
        """The scenarios in which Wireshark found the proof of NTLMv2 in agreement with the password, one per login."""
        names = {connection.client_port: connection.scenario for connection in self.connections}
        return [names[layer.client_port] for layer in self.layers for _ in layer.texts("ntlmssp.authenticated")]


def protocols_of(ports: dict[str, int]) -> dict[int, str]:
    return {ports["ept"]: "dcerpc", ports["qmcomm"]: "dcerpc", ports["web"]: "http", ports["flight"]: "http2"}


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    program("tshark", "make wireshark")
    directory = tmp_path_factory.mktemp("wireshark")
    options = ("--computer-name", COMPUTER, "--web", "--web-port", "0", "--flight", "--flight-port", "0")
    with Daemon(directory / "data", *options) as daemon:
        add_user(daemon.directory, USER, PASSWORD)
        ports = {name: int(endpoint["port"]) for name, endpoint in daemon.ready["endpoints"].items()}
        with Recorder(protocols_of(ports)) as recorder:
            for name, act in SCENARIOS.items():
                with recorder.scenario(name):
                    act(World(daemon, recorder))
    assert "Traceback" not in daemon.log, daemon.log
    write(directory / "captured.pcap", ports, recorder.connections)
    return dissected(directory / "captured.pcap", ports, recorder.connections)


def write(path: Path, ports: dict[str, int], connections: list[Connection]) -> None:
    """Write a capture. Each PDU of DCE/RPC has segments of its own, because Wireshark loses the keystream of sealed
    fragments if several are in one."""
    protocols = protocols_of(ports)

    def ends(connection: Connection, stream: bytes) -> Iterator[int]:
        is_rpc = protocols[connection.server_port] == "dcerpc"
        return accumulate(header.length for header in sent_headers(stream)) if is_rpc else iter(())

    write_capture(path, connections, ends)


def dissected(path: Path, ports: dict[str, int], connections: list[Connection]) -> Reading:
    return Reading(ports, connections, read(path, protocols_of(ports), PASSWORD, path.parent))


# -- what Wireshark reads ----------------------------------------------------------------------------------------------


def test_wireshark_warns_of_nothing_but_what_is_known(reading: Reading) -> None:
    assert reading.concerns <= set(KNOWN)
    assert {layer.name for layer in reading.layers} <= {
        "dcerpc", "epm", "isystemactivator", "remact", "oxid", "remunk", "dispatch", "http", "json", "data-text-lines",
        "http2", "grpc", "protobuf", "fake-field-wrapper", "_ws.malformed",
    }  # fmt: skip


def test_headers_are_read_as_they_were_sent(reading: Reading) -> None:
    assert reading.disagreements == []
    headers = [dissected_header(layer) for layer in reading.layers if layer.name == "dcerpc"]
    assert len(headers) > 150
    sent = sum(
        len(chunk.data)
        for connection in reading.connections
        if reading.protocols[connection.server_port] == "dcerpc"
        for chunk in connection.chunks
    )
    assert sum(header.length for header in headers) == sent


def test_alloc_hint_is_the_length_of_the_fragments_that_remain(reading: Reading) -> None:
    """[MS-RPCE] 2.2.2.6; of a fault, it counts the whole PDU (2.2.2.8)."""
    several = 0
    left: dict[tuple[int, int], int] = {}
    for layer in reversed([layer for layer in reading.layers if layer.name == "dcerpc" and not layer.is_from_client]):
        header = dissected_header(layer)
        if header.kind == FAULT:
            assert header.call[0] == header.length
        elif header.kind == RESPONSE:
            key = layer.client_port, header.call_id
            rest = 0 if header.flags & LAST else left[key]
            left[key] = rest + header.stub_length
            assert header.call[0] == left[key]
            several += bool(rest)
    assert several >= 4


def test_each_response_is_found_to_answer_its_request(reading: Reading) -> None:
    found = [call for scenario in SCENARIOS for call in reading.calls(scenario)]
    assert len(found) > 60
    for call in found:
        assert {call.frame} == set(call.response.numbers("dcerpc.request_in"))
        assert {call.opnum} == set(call.response.numbers("dcerpc.opnum"))


def test_the_endpoint_mapper_names_the_port_of_each_interface(reading: Reading) -> None:
    """C706 Appendices L and O."""
    answers = [layer for layer in reading.of("mapper", "epm") if not layer.is_from_client]
    assert [answer.number("epm.opnum") for answer in answers] == [3, 3, 3, 3, 2]
    port = str(reading.ports["qmcomm"])
    for answer, interface in zip(answers, (QMCOMM, QMCOMM2, QMMGMT, REMOTE_READ), strict=False):
        assert answer.texts("epm.uuid") == [interface, NDR]
        assert (answer.text("epm.proto.tcp_port"), answer.text("epm.proto.ip")) == (port, "127.0.0.1")
        assert (answer.number("epm.num_towers"), answer.number("epm.rc")) == (1, 0)
    looked_up = answers[-1]
    assert set(looked_up.texts("epm.uuid")) == {QMCOMM, QMCOMM2, QMMGMT, REMOTE_READ, QM2QM, NDR}
    assert looked_up.number("epm.num_ents") == len(looked_up.texts("epm.annotation")) == 5
    assert set(looked_up.texts("epm.proto.tcp_port")) == {port}


def test_a_signed_call_of_samba_in_big_endian_with_a_verification_trailer(reading: Reading) -> None:
    """[MS-RPCE] 2.2.2.13: bind and request headers again, under the signature."""
    if not reading.of("big-endian"):
        need_samba()
    (call,) = reading.calls("big-endian")
    assert not dissected_header(call.request).is_little_endian
    assert call.request.numbers("dcerpc.rpc_sec_vt.command.cmd") == [1, 2]
    question, answer = reading.of("big-endian", "epm")
    assert question.texts("epm.uuid") == answer.texts("epm.uuid") == [QMCOMM, NDR]
    assert answer.text("epm.proto.tcp_port") == str(reading.ports["qmcomm"])


def test_operations_of_msmq_and_their_results(reading: Reading) -> None:
    assert [call.summary for call in reading.calls("anonymous")] == [
        (QMCOMM, 6, MQ_OK),
        (QMCOMM, 6, MQ_ERROR_QUEUE_EXISTS),
        (QMCOMM, 19, MQ_OK),
        (QMCOMM2, 1, MQ_OK),
        (QMCOMM, 19, MQ_OK),
        (QMCOMM2, 2, MQ_OK),
        (QMCOMM2, 2, MQ_ERROR_IO_TIMEOUT),
        (QMCOMM, 99, RANGE_ERROR),
    ]
    sent, received = reading.calls("anonymous")[3], reading.calls("anonymous")[5]
    assert BODY in sent.request.octets("dcerpc.stub_data")
    assert BODY in received.stub
    assert [call.summary for call in reading.calls("signed")] == [(QMMGMT, 0, MQ_OK)]


@pytest.mark.parametrize("scenario", ["sealed", "ours"])
def test_sealed_stubs_are_decrypted_with_the_password(reading: Reading, scenario: str) -> None:
    """[MS-NLMP] 3.4.4.2 and 3.4.5: keys of both directions, and one keystream over all fragments and signatures."""
    port, opened, started, ended, closed = (c for c in reading.calls(scenario) if c.interface == REMOTE_READ)
    assert port.summary == (REMOTE_READ, 0, reading.ports["qmcomm"])
    assert (opened.opnum, len(opened.stub), closed.opnum, closed.stub) == (2, 20, 3, bytes(24))
    assert started.summary == (REMOTE_READ, 7, MQ_OK)
    assert BODY in started.stub
    assert ended.summary == (REMOTE_READ, 9, MQ_OK)
    for call in (opened, started, ended, closed):
        assert {*call.request.numbers("dcerpc.auth_level"), *call.response.numbers("dcerpc.auth_level")} == {PRIVACY}


def test_sealed_operations_of_ms_mqqp_and_ms_mqmr(reading: Reading) -> None:
    """[MS-MQQP] 3.1.4, [MS-MQMP] 3.1.4.2 (R_QMOpenRemoteQueue) and 3.1.4.3 (R_QMCloseRemoteQueueContext)."""
    found = reading.calls("ours with qm2qm")[-8:]
    assert [(call.interface, call.opnum) for call in found] == [
        (QMCOMM, 2), (QM2QM, 2), (QM2QM, 8), (QMCOMM, 3), (QM2QM, 9), (QM2QM, 1), (QM2QM, 3), (QMMGMT, 0),
    ]  # fmt: skip
    assert [call.result for call in found if call.opnum != 8] == [MQ_OK] * 7  # RemoteQMGetVersion returns nothing
    assert BODY in found[4].stub


def test_the_first_sealed_response_under_spnego_is_decrypted(reading: Reading) -> None:
    """The later ones are not: below GSS-API, Wireshark 4.0 does not advance the keystream by the 8 bytes of a signature
    ([MS-NLMP] 3.4.4.2). tests/interop/test_samba.py has Samba's SPNEGO at the same level."""
    port, *others = (c for c in reading.calls("ours with SPNEGO") if c.interface == REMOTE_READ)
    assert port.summary == (REMOTE_READ, 0, reading.ports["qmcomm"])
    assert [call.opnum for call in others] == [2, 7, 9, 3]


AUTHENTICATED = ("sealed", "signed", "ours", "ours with SPNEGO", "ours with qm2qm", "our objects", "our sealed objects")


@pytest.mark.parametrize("scenario", AUTHENTICATED)
def test_each_login_has_the_three_messages_of_ntlm(reading: Reading, scenario: str) -> None:
    """[MS-NLMP] 2.2.1; Wireshark computes the proof of NTLMv2 (3.3.2) from the password and finds it right."""
    by_port: dict[int, list[int]] = {}
    users = []
    for layer in reading.of(scenario, "dcerpc"):
        if kinds := layer.numbers("ntlmssp.messagetype"):
            by_port.setdefault(layer.client_port, []).extend(kinds)
            users += layer.texts("ntlmssp.auth.username")
    assert by_port
    assert all(kinds == [1, 2, 3] for kinds in by_port.values())
    assert users == [USER] * len(by_port)
    assert reading.logins.count(scenario) == len(by_port)


def test_spnego_negotiates_ntlm_and_completes(reading: Reading) -> None:
    """[MS-SPNG] 3.1.5, RFC 4178: accept-incomplete, then accept-completed with a mechListMIC."""
    layers = reading.of("ours with SPNEGO", "dcerpc")
    results = [value for layer in layers for value in layer.numbers("spnego.negResult")]
    assert results == [1, 0] * 2
    assert {text for layer in layers for text in layer.texts("spnego.MechType")} == {"1.3.6.1.4.1.311.2.2.10"}
    assert sum(len(layer.texts("spnego.mechListMIC")) for layer in layers) == 4


def test_binds_choose_a_transfer_syntax_and_the_features(reading: Reading) -> None:
    """[MS-RPCE] 3.3.1.5.3: a client that offers NDR and NDR64 gets one; the features are acknowledged as a result of
    their own (2.2.2.4)."""
    (call,) = reading.calls("NDR64")
    assert (call.syntax, call.result) == (NDR64, reading.ports["qmcomm"])
    bind, acknowledged = reading.of("ours", "dcerpc")[:2]
    assert bind.texts("dcerpc.cn_bind_trans_id") == [NDR, NDR64, FEATURES]
    assert acknowledged.numbers("dcerpc.cn_ack_result") == [0, 2, 3]
    assert acknowledged.numbers("dcerpc.cn_ack_reason") == [2]
    assert acknowledged.numbers("dcerpc.cn_bind_trans_btfn") == [3]
    assert acknowledged.text("dcerpc.cn_sec_addr") == str(reading.ports["qmcomm"])


def test_refusals_have_their_reasons(reading: Reading) -> None:
    """C706 12.6.3.1 (abstract_syntax_not_supported), [MS-RPCE] 2.2.2.5 (authentication_type_not_recognized)."""
    layers = reading.of("refused", "dcerpc")
    results = [pair for layer in layers for pair in zip(*map(layer.numbers, _ACKNOWLEDGED), strict=False)]
    assert results == [(2, 1)]
    (call,) = reading.calls("refused")
    assert call.summary == (QMCOMM, 31, ACCESS_DENIED)
    assert [kind for layer in layers for kind in layer.numbers("ntlmssp.messagetype")] == [1, 2, 3]
    assert "refused" not in reading.logins
    assert layers[-1].number("dcerpc.cn_reject_reason") == 8


_ACKNOWLEDGED = ("dcerpc.cn_ack_result", "dcerpc.cn_ack_reason")


def test_activation_returns_references_with_the_address_of_the_resolver(reading: Reading) -> None:
    """[MS-DCOM] 2.2.22.2.8 and 2.2.22.2.9, in an OBJREF_CUSTOM (2.2.18.6)."""
    for scenario, objects in (("objects", 2), ("our objects", 1)):
        answers = [layer for layer in reading.of(scenario, "isystemactivator") if not layer.is_from_client]
        assert len(answers) == objects
        for answer in answers:
            assert answer.numbers("dcom.objref.signature") == [0x574F454D] * 2
            assert answer.numbers("dcom.objref.flags") == [4, 1]  # custom, standard
            assert answer.texts("dcom.clsid") == ["00000339-0000-0000-c000-000000000046"]
            assert answer.texts("dcom.iid")[1] == "00020400-0000-0000-c000-000000000046"
            assert answer.numbers("isystemactivator.properties.retval") == [0]
            assert answer.text("dcom.oxid") == answer.text("isystemactivator.properties.scmresp.oxid")
            resolver, _, exporter, _ = answer.texts("dcom.dualstringarray.network_addr")
            assert resolver == f"127.0.0.1[{reading.ports['ept']}]"
            assert exporter == f"127.0.0.1[{reading.ports['qmcomm']}]"
            assert answer.numbers("dcom.hresult") == [0]


GET_IDS, INVOKE = 5, 6


def test_members_are_found_and_invoked(reading: Reading) -> None:
    """[MS-OAUT] 3.1.4.3 and 3.1.4.4: names, VARIANTs, an object as a result, and an error as EXCEPINFO."""
    layers = reading.of("objects", "dispatch")
    names = ["PathName", "Create", "Open", "Label", "Send", "Create"]
    assert [layer.number("dispatch.opnum") for layer in layers] == [GET_IDS, GET_IDS, INVOKE, INVOKE] * len(names)
    assert [layer.texts("dispatch.name")[-1] for layer in layers if layer.texts("dispatch.names")] == names
    invoked = [layer for layer in layers if layer.number("dispatch.opnum") == INVOKE]
    requests, responses = invoked[::2], invoked[1::2]
    assert requests[0].texts("dcom.vt.bstr")[-1] == ".\\private$\\objects"
    assert [response.numbers("dcom.hresult") for response in responses] == [[0]] * 5 + [[0x80020009]]
    assert responses[-1].number("dispatch.scode") == MQ_ERROR_QUEUE_EXISTS
    opened, argument = responses[2], requests[4]
    assert opened.numbers("dcom.objref.signature") == [0x574F454D]
    assert opened.text("dcom.oid") == argument.text("dcom.oid")  # the queue to which Send sends


def test_our_client_invokes_pings_and_releases(reading: Reading) -> None:
    """[MS-DCOM] 3.1.1.5.6.1.3 (RemRelease), 3.1.2.5.1.3 (ComplexPing)."""
    responses = [layer for layer in reading.of("our objects", "dispatch") if not layer.is_from_client]
    invoked = [layer for layer in responses if layer.number("dispatch.opnum") == INVOKE]
    assert invoked[-2].texts("dcom.vt.bstr")[-1] == "fourth"
    assert invoked[-1].number("dispatch.scode") == 0xC00E0088  # MQ_ERROR_MESSAGE_NOT_FOUND
    for name, opnum in (("remunk", 5), ("oxid", 2)):
        layers = reading.of("our objects", name)
        assert {layer.number(f"{name}.opnum") for layer in layers} == {opnum}
        assert {value for layer in layers for value in layer.numbers("dcom.hresult")} == {0}


def test_sealed_calls_of_objects_are_decrypted_and_dissected(reading: Reading) -> None:
    layers = reading.of("our sealed objects", "dispatch")
    values = [layer.texts("dcom.vt.bstr")[-1] for layer in layers if layer.texts("dcom.vt.bstr")]
    assert values == ["sealed", "sealed"]
    pdus = reading.of("our sealed objects", "dcerpc")
    assert {level for layer in pdus for level in layer.numbers("dcerpc.auth_level")} == {PRIVACY}


def test_the_resolver_finds_the_exporter_and_pings(reading: Reading) -> None:
    """[MS-DCOM] 3.1.2.5.1 (IObjectExporter), 3.1.2.5.2.3.1 (RemoteActivation), 3.1.1.5.6.1.1 (RemQueryInterface)."""
    answers = [layer for layer in reading.of("resolver", "oxid") if not layer.is_from_client]
    assert [answer.number("oxid.opnum") for answer in answers] == [5, 4, 4, 2, 1]
    alive, resolved, _, added, pinged = answers
    assert resolved.concerns == []
    assert [answer.number("dcom.hresult") for answer in (resolved, added, pinged)] == [0] * 3
    assert alive.concerns == []
    assert alive.texts("dcom.dualstringarray.network_addr") == ["127.0.0.1", COMPUTER]
    assert resolved.texts("dcom.dualstringarray.network_addr")[0] == f"127.0.0.1[{reading.ports['qmcomm']}]"
    activated = reading.of("resolver", "remact")[-1]
    assert (activated.number("remact.opnum"), activated.number("dcom.objref.signature")) == (0, 0x574F454D)
    assert activated.numbers("dcom.hresult") == [0] * 3
    assert resolved.text("oxid.ipid") == activated.texts("dcom.ipid")[0]  # IRemUnknown of the exporter
    assert reading.of("resolver", "oxid")[-2].text("oxid.setid") == added.text("oxid.setid")
    queried, _, released, _ = reading.of("resolver", "remunk")
    assert queried.text("dcom.iid") == str(IMSMQMessage.uuid)
    assert (queried.number("remunk.opnum"), released.number("remunk.opnum")) == (3, 5)


def test_http_responses_are_complete(reading: Reading) -> None:
    layers = reading.of("web", "http")
    requests = [layer for layer in layers if layer.is_from_client]
    assert [layer.text("http.request.uri") for layer in requests] == list(PAGES)
    responses = [layer for layer in layers if not layer.is_from_client]
    # The URI that a response is for has a field of its own in Wireshark 4.0. In 4.4, it has that of the request.
    fields = ("http.response_for.uri", "http.request.full_uri")
    answered = [text for layer in responses for field in fields for text in layer.texts(field)]
    assert answered == [layer.text("http.request.full_uri") for layer in requests]
    assert [layer.number("http.response.code") for layer in responses] == [200, 200, 404, 200]
    kinds = ["application/json", "text/plain", "application/problem+json", "text/html"]
    assert [layer.text("http.content_type").partition(";")[0] for layer in responses] == kinds
    for layer in responses:
        assert layer.number("http.content_length") == len(layer.octets("http.file_data"))
    assert len(reading.of("web", "json")) == 2


def test_flight_is_grpc_over_http2(reading: Reading) -> None:
    layers = reading.of("flight", "http2")
    paths = [text for layer in layers for text in layer.texts("http2.headers.path")]
    assert paths == ["/arrow.flight.protocol.FlightService/DoGet"] * 2
    headers = [
        pair
        for layer in layers
        if not layer.is_from_client
        for pair in zip(layer.texts("http2.header.name"), layer.texts("http2.header.value"), strict=True)
    ]
    assert [value for name, value in headers if name == ":status"] == ["200", "200"]
    assert [value for name, value in headers if name == "grpc-status"] == ["0", "2"]
    (text,) = (value for name, value in headers if name == "grpc-message")
    assert text.startswith("MQ_ERROR_QUEUE_NOT_FOUND: ")
    messages = [layer for layer in reading.of("flight", "grpc") if not layer.is_from_client]
    assert len(messages) == 2  # the schema, and a batch with the row
    assert b"row" in messages[1].octets("grpc.message_data")


# -- what the checks notice --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """Other bytes, at a distance from the last place of a marker in what one side sent."""

    name: str
    scenario: str
    marker: bytes
    distance: int
    new: bytes
    is_from_client: bool = False

    def place(self, reading: Reading) -> tuple[Connection, int, int]:
        """Return the connection, the number of the chunk, and the position in it."""
        found = [
            (connection, number, chunk.data.rindex(self.marker) + self.distance)
            for connection in reading.connections
            for number, chunk in enumerate(connection.chunks)
            if (connection.scenario, chunk.is_from_client) == (self.scenario, self.is_from_client)
            if self.marker in chunk.data
        ]
        return found[-1]


DAMAGES = (
    Damage("nothing", "signed", b"NTLMSSP", 0, b""),
    Damage("floors of a tower", "mapper", b"\5\0\x13\0\x0d", 0, b"\xff"),
    Damage("length of a string", "our objects", "fourth".encode("utf-16-le"), -4, b"\xff"),
    Damage("length of an argument", "objects", ".\\private$".encode("utf-16-le"), -4, b"\xff", is_from_client=True),
    Damage("challenge of the server", "signed", b"NTLMSSP", 24, bytes(8)),
    Damage("call identifier", "anonymous", b"\5\0\3", 12, b"\x55"),
    Damage("alloc_hint", "anonymous", b"\5\0\3", 16, b"\x55"),
    Damage("authentication level", "signed", b"NTLMSSP", -7, b"\x06"),
)


def test_damage_is_noticed(reading: Reading, tmp_path: Path) -> None:
    """One field is changed in each connection of a second capture, and the checksum of the last segment."""
    originals, changed = [], []
    for number, damage in enumerate(DAMAGES):
        found, chunk, position = damage.place(reading)
        originals.append(replace(found, scenario=damage.name, client_port=1000 + number))
        changed.append(damaged(originals[-1], chunk, position, damage.new))
    capture = tmp_path / "damaged.pcap"
    write(capture, reading.ports, changed)
    capture.write_bytes(capture.read_bytes()[:-4] + bytes(4))
    seen = dissected(capture, reading.ports, originals)
    assert {place for place, _ in seen.concerns - set(KNOWN)} == {
        "floors of a tower: epm 2 of the server", "length of a string: dispatch 6 of the server",
        "length of an argument: dispatch 6 of the client", "authentication level: tcp of the client",
    }  # fmt: skip
    assert seen.disagreements == ["call identifier", "alloc_hint", "authentication level"]
    assert seen.logins.count("nothing") == 1
    assert "challenge of the server" not in seen.logins
