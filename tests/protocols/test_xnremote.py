"""IXnRemote ([MS-CMPO] 3.3.4) without a network: a partner's calls, and the calls that result from them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from msrpc.rpc.call import RpcCaller
from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import Identity
from msrpc.rpc.timing import Timings
from openmsmq.interfaces import ms_cmpo as m
from openmsmq.oletx.boxcar import Packet, PacketTag, encode_boxcar
from openmsmq.oletx.messages import ConnectionType, MessageType
from openmsmq.oletx.session import CallAnswer, CallKind, Session, Status
from openmsmq.protocols.transaction_security import TransactionSecurity
from protocols.clients import Client, Server

NULL = "00000000-0000-0000-0000-000000000000"
GUID = "11111111-2222-3333-4444-555555555555"
GREATER, SMALLER = UUID(int=(1 << 128) - 1), UUID(int=1)
BLOB = bytes.fromhex("0800000001000000")
UOW = b"unit of work 16b"


@pytest.fixture
def server() -> Server:
    return Server(TransactionSecurity.NONE)


class FakePartner:
    """Another transaction manager, as the caller."""

    def __init__(self, server: Server, cid: UUID, name: str = "THERE") -> None:
        self.server, self.cid, self.name = server, cid, name
        self.client: Client = server.client()
        self.handle = bytes(20)

    @property
    def callee(self) -> str:
        return str(self.server.environment.coordinator.partners.local.cid)

    def strings(self, wide: bool) -> dict[str, Any]:
        names = {"CalleeUuid": self.callee, "HostName": self.name, "UuidString": str(self.cid)}
        return {f"{'pwsz' if wide else 'psz'}{name}": value for name, value in names.items()} | {
            "dwcbSizeOfBlob": 8, "rguchBlob": BLOB,
        }  # fmt: skip

    def poke(self, rank: int = 2, *, wide: bool = True, **other: Any) -> int:
        status: int = self.client.call(f"Poke{'W' * wide}", sRank=rank, **self.strings(wide) | other).result
        return status

    def build(self, rank: int, *, wide: bool = True, guid: str = GUID, **other: Any) -> Any:
        prefix = "pwsz" if wide else "psz"
        values = self.strings(wide) | {
            "sRank": rank, "BindVersionSet": m.BIND_VERSION_SET(1, 2, 1, 1, 1, 5), f"{prefix}GuidIn": guid,
            f"{prefix}GuidOut": NULL, "pBoundVersionSet": m.BOUND_VERSION_SET(0, 0, 0),
        }  # fmt: skip
        return self.client.start(f"BuildContext{'W' * wide}", **values | other)

    def established(self) -> Session:
        """Establish a session in which the partner is the primary one."""
        pending = self.build(1)
        session, call = self.server.partner_calls.made.pop()
        session.answered(call, CallAnswer(Status.OK, call.guid))
        self.handle = pending.response.ppHandle
        return session

    def send(self, *packets: Packet, count: int | None = None, boxcar: bytes | None = None) -> int:
        data = encode_boxcar(packets) if boxcar is None else boxcar
        count = len(packets) if count is None else count
        answer = self.client.call(
            "SendReceive", phContext=self.handle, dwcMessages=count, dwcbSizeOfBoxCar=len(data), rguchBoxCar=data
        )
        return int(answer.result)

    def grant(self, wanted: int) -> Any:
        return self.client.call(
            "NegotiateResources", phContext=self.handle, resourceType=0, dwcRequested=wanted, pdwcAccepted=0
        )

    def tear_down(self, rank: int, kind: int = 0) -> Any:
        return self.client.call("TearDownContext", contextHandle=self.handle, sRank=rank, tearDownType=kind)


@pytest.mark.parametrize("wide", [True, False])
def test_a_primary_partner_builds_a_session(server: Server, wide: bool) -> None:
    partner = FakePartner(server, GREATER)
    pending = partner.build(1, wide=wide)
    assert not pending.over, "the secondary answers after its own call"
    session, call = server.partner_calls.made.pop()
    assert (call.kind, call.rank, str(call.guid)) == (CallKind.BUILD, 2, GUID)
    session.answered(call, CallAnswer(Status.OK, call.guid))
    answer = pending.response
    guid = answer.pwszGuidOut if wide else answer.pszGuidOut
    assert (answer.result, guid) == (Status.OK, GUID)
    assert (answer.pBoundVersionSet.dwLevelOneAccepted, answer.pBoundVersionSet.dwLevelThreeAccepted) == (2, 5)
    assert answer.ppHandle != bytes(20)


@pytest.mark.parametrize("guid", [GUID[:-1], GUID.replace("-", ""), f"{{{GUID}}}", GUID.replace("1", "x"), ""])
def test_a_guid_of_another_form_is_refused(server: Server, guid: str) -> None:
    """`UUID` would also accept others."""
    assert FakePartner(server, GREATER).build(1, guid=guid).response.result == Status.INVALID_ARGUMENT
    assert not server.partner_calls.made


def test_a_session_that_waits_for_the_partner_is_no_slow_call(server: Server) -> None:
    timed: list[int] = []
    partner = FakePartner(server, GREATER)
    partner.client.timings = Timings(lambda interface, opnum, seconds: timed.append(opnum), lambda: server.seconds)
    partner.established()
    assert timed == [], "this server waited for its own call of the partner"
    assert partner.build(3).response.result != Status.OK
    assert timed == [m.IXnRemote.operation("BuildContextW").opnum], "answered at once"


@pytest.mark.parametrize("wide", [True, False])
def test_the_secondary_pokes_and_is_called(server: Server, wide: bool) -> None:
    partner = FakePartner(server, SMALLER)
    assert partner.poke(wide=wide) == Status.OK
    session, call = server.partner_calls.made.pop()
    assert (call.kind, call.rank) == (CallKind.BUILD, 1)
    nested = partner.build(2, guid=str(call.guid))
    assert nested.response.result == Status.OK
    session.answered(call, CallAnswer(Status.OK, call.guid))
    assert session.state.value == "active"
    assert partner.poke(wide=wide) == Status.SERVER_NOT_READY


def test_ranks_follow_the_contact_identifiers_as_big_endian_numbers(server: Server) -> None:
    """T16: ordering by bytes_le would give another result."""
    local = server.environment.coordinator.partners.local.cid
    above = UUID(int=local.int + 1)  # differs only in the last byte
    assert FakePartner(server, above).poke() == Status.INVALID_ARGUMENT
    assert FakePartner(server, UUID(int=local.int - 1)).poke() == Status.OK
    assert FakePartner(server, above).build(2).response.result == Status.INVALID_ARGUMENT
    assert FakePartner(server, local).build(1).response.result == Status.INVALID_ARGUMENT, "itself"


def test_calls_for_another_one_are_refused(server: Server) -> None:
    for cid, rank in ((GREATER, 1), (SMALLER, 2)):
        partner = FakePartner(server, cid)
        wrong = partner.build(rank, pwszCalleeUuid=GUID).response
        assert (wrong.result, wrong.pwszGuidOut, wrong.ppHandle) == (Status.INVALID_ARGUMENT, NULL, bytes(20))
    assert FakePartner(server, SMALLER).poke(pwszCalleeUuid=GUID) == Status.INVALID_ARGUMENT
    assert FakePartner(server, SMALLER).build(2).response.result == Status.SESSION_DOWN, "nobody has asked for it"


@pytest.mark.parametrize(
    "wrong",
    [{"pwszHostName": ""}, {"pwszHostName": "A" * 16}, {"pwszHostName": "A B"}, {"pwszUuidString": "x" * 36},
     {"pwszUuidString": "1"}, {"pwszCalleeUuid": "{" + "0" * 34 + "}"}],
)  # fmt: skip
def test_malformed_strings_are_refused(server: Server, wrong: dict[str, str]) -> None:
    assert FakePartner(server, SMALLER).poke(**wrong) == Status.INVALID_ARGUMENT
    assert FakePartner(server, GREATER).build(1, **wrong).response.result == Status.INVALID_ARGUMENT
    assert not len(server.environment.coordinator.partners)


def test_versions_that_have_nothing_in_common_end_the_session(server: Server) -> None:
    partner = FakePartner(server, GREATER)
    answer = partner.build(1, BindVersionSet=m.BIND_VERSION_SET(1, 2, 1, 1, 7, 9)).response
    assert answer.result == Status.VERSION_SET_NOT_SUPPORTED and answer.pBoundVersionSet.dwLevelOneAccepted == 0
    assert not len(server.environment.coordinator.partners)


def test_boxcars_are_taken_and_answered_in_another_call(server: Server) -> None:
    partner = FakePartner(server, GREATER)
    partner.established()
    partner.grant(1)
    request = Packet(PacketTag.CONNECTION_REQ, True, 1, ConnectionType.CHECKABORT)
    message = Packet(PacketTag.USER_MESSAGE, True, 1, MessageType.CHECK, UOW)
    assert partner.send(request, message) == Status.OK
    _, call = server.partner_calls.made.pop()
    assert call.kind is CallKind.SEND
    assert call.boxcar == encode_boxcar([Packet(PacketTag.USER_MESSAGE, False, 1, MessageType.ABORTED)])


def test_a_malformed_boxcar_ends_the_session(server: Server) -> None:
    partner = FakePartner(server, GREATER)
    partner.established()
    assert partner.send(count=1, boxcar=bytes(40)) == Status.INVALID_ARGUMENT
    server.pass_time(0.1)
    assert [call.is_problem for _, call in server.partner_calls.made] == [True]
    assert partner.send(Packet(PacketTag.PING, True, 0)) == Status.SESSION_DOWN


def test_connections_are_granted_up_to_a_limit(server: Server) -> None:
    partner = FakePartner(server, GREATER)
    partner.established()
    answers = [partner.grant(999) for _ in range(3)]
    assert [answer.pdwcAccepted for answer in answers] == [999, 999, 2]
    assert partner.grant(1).result == Status.OUT_OF_RESOURCES
    assert partner.grant(0).result == partner.grant(1000).result == Status.INVALID_ARGUMENT


def test_a_session_is_torn_down(server: Server) -> None:
    partner = FakePartner(server, GREATER)
    partner.established()
    with pytest.raises(Fault) as refused:
        FakePartner(server, GREATER).tear_down(1)
    assert refused.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
    answer = partner.tear_down(1)
    assert (answer.result, answer.contextHandle) == (Status.OK, bytes(20))
    server.pass_time(0.1)
    session, call = server.partner_calls.made.pop()
    assert (call.kind, call.rank, call.is_problem) == (CallKind.TEAR_DOWN, 2, False), "after the answer (D-221)"
    session.answered(call, CallAnswer(Status.OK))
    assert session.is_down and server.partner_calls.hung_up == [session]


def test_the_reason_of_a_teardown_has_16_or_32_bits(server: Server) -> None:
    """Deviation D-212: the stub has 24 bytes or 28."""
    partner = FakePartner(server, GREATER)
    session = partner.established()
    stub = partner.handle + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")
    partner.client.start_stub("TearDownContext", stub)
    assert session.is_down, "a problem ends it at once"


def test_the_secondary_asks_the_primary_to_tear_down(server: Server) -> None:
    partner = FakePartner(server, SMALLER)
    partner.poke()
    session, call = server.partner_calls.made.pop()
    partner.handle = partner.build(2, guid=str(call.guid)).response.ppHandle
    session.answered(call, CallAnswer(Status.OK, call.guid))
    arguments = {"contextHandle": partner.handle, "tearDownType": 0}
    assert partner.client.call("BeginTearDown", **arguments).result == Status.OK
    assert server.partner_calls.made.pop()[1].kind is CallKind.TEAR_DOWN
    assert partner.tear_down(2).result == Status.OK
    assert session.is_down


def test_a_disconnected_partner_ends_its_session(server: Server) -> None:
    partner = FakePartner(server, GREATER)
    session = partner.established()
    partner.client.association.handles.run_down()
    assert session.is_down


@pytest.mark.parametrize(
    ("security", "user", "level", "admitted"),
    [
        (TransactionSecurity.NONE, "", AuthLevel.NONE, True),
        (TransactionSecurity.INCOMING, "", AuthLevel.NONE, False),
        (TransactionSecurity.INCOMING, "bob", AuthLevel.PKT_INTEGRITY, False),
        (TransactionSecurity.INCOMING, "bob", AuthLevel.PKT_PRIVACY, True),
        (TransactionSecurity.MUTUAL, "bob", AuthLevel.PKT_PRIVACY, False),
        (TransactionSecurity.MUTUAL, "OTHER$", AuthLevel.PKT_PRIVACY, False),
        (TransactionSecurity.MUTUAL, "THERE$", AuthLevel.PKT_INTEGRITY, False),
        (TransactionSecurity.MUTUAL, "there$", AuthLevel.PKT_PRIVACY, True),
    ],
)
def test_the_security_level_decides_who_may_be_a_partner(
    security: TransactionSecurity, user: str, level: AuthLevel, admitted: bool
) -> None:
    """T22."""
    partner = FakePartner(Server(security), SMALLER)
    if user:
        partner.client.caller = RpcCaller(Identity(user, "", "S-1-5-21-1-2-3-1001"), level)
    if admitted:
        assert partner.poke() == Status.OK
    else:
        with pytest.raises(Fault) as refused:
            partner.poke()
        assert refused.value.status == RPC_S_ACCESS_DENIED


def test_half_built_sessions_of_one_address_are_bounded(server: Server) -> None:
    """T21: one more from that address is refused, but one from another address is not."""
    for number in range(64):
        assert FakePartner(server, UUID(int=number + 1), f"H{number}").poke() == Status.OK
    assert FakePartner(server, UUID(int=1000), "MORE").poke() == Status.SERVER_TOO_BUSY
    server.pass_time(10)
    assert not len(server.environment.coordinator.partners), "nobody answered"
    assert FakePartner(server, UUID(int=1000), "MORE").poke() == Status.OK
