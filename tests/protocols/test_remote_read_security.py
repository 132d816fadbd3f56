"""Protection levels that RemoteRead requires ([MS-MQRR] 3.1.4.2, note 19): dispatcher and interface together."""

from __future__ import annotations

from typing import Any

import pytest

from msrpc.rpc.association import ContextHandles
from msrpc.rpc.call import UNAUTHENTICATED, Call, RpcCaller
from msrpc.rpc.dispatcher import SecurityPolicy
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import Identity
from msrpc.rpc.server import RpcServer
from openmsmq.interfaces import ms_mqrr as m
from openmsmq.model import security
from openmsmq.model.constants import Access, QueueAccessMask, SecurityInformation
from openmsmq.model.errors import HResult
from openmsmq.model.security import SecurityDescriptor
from openmsmq.protocols.remote_read import NegotiatedRemoteRead, RemoteRead
from openmsmq.protocols.remote_read_security import RemoteReadSecurity
from openmsmq.queueing.authorization import SYSTEM
from protocols.clients import Connection, Server, queue_format

WORKGROUP, DOMAIN = 1, 0
CONNECTED = RpcCaller(Identity("u", "", "S-1-5-21-1-2-3-1000"), AuthLevel.CONNECT)
SEALED = RpcCaller(CONNECTED.identity, AuthLevel.PKT_PRIVACY)


class Reader:
    """A client of a server off loopback whose RemoteRead requires privacy and which refuses anonymous callers."""

    def __init__(self, minimum_level: AuthLevel = AuthLevel.NONE, **values: bool) -> None:
        self.server = Server()
        self.server.world.create()
        environment = self.server.environment
        environment.policy = SecurityPolicy(allow_anonymous=False, minimum_level=minimum_level)
        environment.remote_read_security = RemoteReadSecurity(**values)
        kind = NegotiatedRemoteRead if environment.remote_read_security.is_negotiated else RemoteRead
        self.interface = kind(environment, AuthLevel.PKT_PRIVACY)
        self.rpc = RpcServer(policy=environment.policy)
        self.client = self.server.client()

    def call(self, name: str, caller: RpcCaller = UNAUTHENTICATED, **arguments: Any) -> Any:
        operation = self.interface.description.operation(name)
        connection = Connection(self.client.association)
        assert operation.request is not None
        stub = operation.encode_request(operation.request(**arguments))
        call = Call(connection, self.interface, caller, None, 1, 0, operation.opnum, stub)  # type: ignore[arg-type]
        self.rpc.calls.dispatch(call)
        self.server.sync()
        return operation.decode_response(connection.answer)

    def open(self, workgroup: int = WORKGROUP, caller: RpcCaller = UNAUTHENTICATED, **more: Any) -> bytes:
        name = "R_OpenQueueForMove" if more.get("dwAccess") == Access.MOVE else "R_OpenQueue"
        arguments: dict[str, Any] = {
            "pQueueFormat": queue_format("q"), "dwAccess": Access.RECEIVE, "dwShareMode": 0, "pClientId": bytes(16),
            "fNonRoutingServer": 1, "Major": 6, "Minor": 3, "BuildNumber": 9600, "fWorkgroup": workgroup,
        }  # fmt: skip
        handle: bytes = self.call(name, caller, **arguments | more).pphContext
        return handle

    def refuses(self, name: str, caller: RpcCaller = UNAUTHENTICATED, **arguments: Any) -> bool:
        with pytest.raises(Fault) as fault:
            self.call(name, caller, **arguments)
        return fault.value.status == RPC_S_ACCESS_DENIED

    def refuses_to_open(self, workgroup: int = WORKGROUP, caller: RpcCaller = UNAUTHENTICATED, **more: Any) -> bool:
        with pytest.raises(Fault) as fault:
            self.open(workgroup, caller, **more)
        return fault.value.status == RPC_S_ACCESS_DENIED

    def let_anonymous(self, *rights: QueueAccessMask) -> None:
        """Give these rights to Anonymous Logon, and no rights to others."""
        entries = tuple(security.allow(security.ANONYMOUS, right) for right in rights)
        descriptor = SecurityDescriptor(owner=SYSTEM.sid, group=SYSTEM.sid, dacl=entries)
        manager = self.server.world.manager
        manager.administration.set_security(
            self.server.world.queue(), SecurityInformation.DACL, descriptor.pack(), SYSTEM
        )


def test_by_default_privacy_is_required_and_the_port_is_returned_to_all() -> None:
    reader = Reader()
    assert reader.call("R_GetServerPort").result == 2103
    for workgroup in (WORKGROUP, DOMAIN):
        assert reader.refuses_to_open(workgroup)
        assert reader.refuses_to_open(workgroup, CONNECTED)
        assert reader.open(workgroup, SEALED)


def test_a_client_in_a_workgroup_needs_no_authentication_where_that_is_allowed() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True)
    handle = reader.open(WORKGROUP)
    assert reader.call("R_PurgeQueue", phContext=handle).result == HResult.MQ_OK
    assert reader.call("R_CloseQueue", pphContext=handle).result == HResult.MQ_OK
    assert reader.open(WORKGROUP, CONNECTED)
    assert reader.open(WORKGROUP, dwAccess=Access.MOVE)


def test_a_client_in_a_domain_still_needs_privacy_then() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True)
    assert reader.refuses_to_open(DOMAIN)
    assert reader.refuses_to_open(DOMAIN, CONNECTED)
    assert reader.refuses_to_open(DOMAIN, dwAccess=Access.MOVE)
    assert reader.open(DOMAIN, SEALED)


def test_clients_in_workgroups_can_be_denied_what_others_are_allowed() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True, deny_workgroup_client=True)
    assert reader.refuses_to_open(WORKGROUP)
    assert reader.open(WORKGROUP, SEALED)


def test_the_level_agreed_at_the_open_applies_to_that_handle_only() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True)
    settled, sealed = reader.open(WORKGROUP), reader.open(DOMAIN, SEALED)
    assert reader.call("R_CreateCursor", phContext=settled).result == HResult.MQ_OK
    operations = (("R_PurgeQueue", "phContext"), ("R_CreateCursor", "phContext"), ("R_CloseQueue", "pphContext"))
    for name, handle in operations:
        assert reader.refuses(name, **{handle: sealed})
        assert reader.refuses(name, CONNECTED, **{handle: sealed})
    assert reader.call("R_CloseQueue", SEALED, pphContext=sealed).result == HResult.MQ_OK


def test_a_message_is_not_moved_to_a_target_that_needs_protection() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True)
    source = reader.open(WORKGROUP, SEALED)
    arguments: dict[str, Any] = {
        "pQueueFormat": queue_format("q;s"), "dwAccess": Access.MOVE, "dwShareMode": 0, "pClientId": bytes(16),
        "fNonRoutingServer": 1, "Major": 6, "Minor": 3, "BuildNumber": 9600, "fWorkgroup": DOMAIN,
    }  # fmt: skip
    target = reader.call("R_OpenQueueForMove", SEALED, **arguments).pMoveContext
    move = {"phContextFrom": source, "ullContextTo": target, "LookupId": 1, "pTransactionId": m.XACTUOW(bytes(16))}
    assert reader.refuses("R_MoveMessage", **move)
    assert reader.call("R_MoveMessage", SEALED, **move).result == HResult.MQ_ERROR_MESSAGE_NOT_FOUND


def test_a_transaction_is_enlisted_by_a_client_that_has_a_queue_open_without_protection() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True)
    enlist = {
        "pTransactionId": m.XACTUOW(bytes(range(16))), "cbPropagationToken": 1, "pbPropagationToken": b"x",
        "pQueueFormat": queue_format("q"),
    }  # fmt: skip
    assert reader.refuses("R_QMEnlistRemoteTransaction", **enlist)
    handle = reader.open(WORKGROUP)
    assert not reader.interface._unprotected.keys() - {reader.client.association}
    assert reader.call("R_QMEnlistRemoteTransaction", **enlist).result != HResult.MQ_OK  # the token is invalid
    reader.call("R_CloseQueue", pphContext=handle)
    assert reader.refuses("R_QMEnlistRemoteTransaction", **enlist)


def test_a_client_that_holds_too_many_handles_keeps_nothing_of_what_it_could_not_open() -> None:
    reader = Reader(allow_nonauthenticated_rpc=True)
    reader.client.association.handles = ContextHandles(lambda count: bytes(range(count)), maximum=0)
    with pytest.raises(Fault):
        reader.open(WORKGROUP)
    assert not reader.interface._unprotected
    assert not reader.server.world.queue().openers


def test_a_minimum_level_for_all_callers_is_not_waived() -> None:
    reader = Reader(AuthLevel.CONNECT, allow_nonauthenticated_rpc=True)
    assert reader.refuses_to_open(WORKGROUP)
    handle = reader.open(WORKGROUP, CONNECTED)
    assert reader.refuses("R_PurgeQueue", phContext=handle)


@pytest.mark.parametrize("access", [Access.PEEK, Access.RECEIVE])
def test_a_queue_that_anonymous_logon_may_read_can_be_open_to_all(access: Access) -> None:
    reader = Reader(allow_none_security_client=True)
    reader.let_anonymous(QueueAccessMask[f"{access.name}_MESSAGE"])
    assert reader.open(DOMAIN, dwAccess=access)
    assert reader.open(WORKGROUP, dwAccess=access)


def test_a_queue_that_anonymous_logon_may_not_read_still_needs_privacy() -> None:
    reader = Reader(allow_none_security_client=True)
    reader.let_anonymous(QueueAccessMask.WRITE_MESSAGE)
    assert reader.refuses_to_open(WORKGROUP)
    assert reader.refuses_to_open(WORKGROUP, CONNECTED)
    assert reader.refuses_to_open(pQueueFormat=queue_format("missing"))
    with pytest.raises(Fault) as fault:  # the protection is sufficient, but the queue denies access
        reader.open(WORKGROUP, SEALED)
    assert fault.value.status == HResult.MQ_ERROR_ACCESS_DENIED
