"""Connections to the transaction managers of other machines: finds them, calls them, and detects lost connections."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from msrpc.errors import HResultError
from msrpc.ndr import Operation
from msrpc.rpc import aio as rpc
from msrpc.rpc.epm_client import port_of
from msrpc.rpc.faults import NCA_S_OP_RNG_ERROR, RpcFault
from msrpc.rpc.pdu import SyntaxId
from msrpc.waiting import answered_within
from openmsmq.interfaces import ms_cmpo as m
from openmsmq.model.errors import MsmqError
from openmsmq.oletx.session import HIGHEST, LOWEST, CallAnswer, CallKind, PartnerCall, Session
from openmsmq.oletx.structures import Partner
from openmsmq.protocols.transaction_security import TransactionSecurity
from openmsmq.protocols.xnremote import TT_PROBLEM
from openmsmq.server.remote import SecurityAt

logger = logging.getLogger(__name__)

CALL: Final = 12.0  # time limit of a call in seconds, [MS-CMPO] note 35
FINDING: Final = 5.0  # time limit for name resolution and connect in seconds
MOST_CALLS: Final = 2_000  # connections in progress
INTERFACE: Final = SyntaxId(m.IXnRemote.uuid, m.IXnRemote.version)
_NULL = "00000000-0000-0000-0000-000000000000"
_PROCNUM_OUT_OF_RANGE: Final = (NCA_S_OP_RNG_ERROR, 0x6D1)


class _Unreachable(Exception):
    """A partner cannot be resolved or called; the text has the reason."""


class _Binding:
    """The connection of a session to its partner, and the context handle that the partner has given."""

    def __init__(self) -> None:
        self.connection: rpc.AsyncConnection | None = None
        self.handle = bytes(20)
        self.lock = asyncio.Lock()  # serializes calls
        self.is_narrow = False  # the partner has no PokeW and BuildContextW
        self.tasks: set[asyncio.Task[None]] = set()


class OleTxLink:
    """Carries out the calls of sessions; see `session.CallSender`."""

    def __init__(
        self, level: TransactionSecurity | None, hosts: Mapping[str, tuple[str, int]], security: SecurityAt
    ) -> None:
        """`level` is None if distributed transactions are off. `hosts` maps lower-case names to addresses, `security`
        returns the login for a machine."""
        self._level, self._hosts, self._security = level, hosts, security
        self._bindings: dict[Session, _Binding] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- session.CallSender --------------------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Run an action after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, action)

    def new_guid(self) -> UUID:
        """Return a random GUID."""
        return uuid4()

    def call(self, session: Session, call: PartnerCall) -> None:
        """Make a call; the session gets its outcome."""
        binding = self._bindings.setdefault(session, _Binding())
        task = asyncio.get_running_loop().create_task(self._answer(session, binding, call))
        for tasks in (self._tasks, binding.tasks):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def hang_up(self, session: Session) -> None:
        """Close the connection to the partner; running calls are canceled, except a goodbye."""
        binding = self._bindings.pop(session, None)
        if binding is not None:
            self._spawn(self._close(binding))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, binding: _Binding) -> None:
        if binding.tasks:
            await asyncio.wait(binding.tasks, timeout=1.0)
        for task in binding.tasks:
            task.cancel()
        if binding.connection is not None:
            binding.connection.close()

    def close(self) -> None:
        """Stop making calls, because the daemon stops."""
        for task in self._tasks:
            task.cancel()
        for binding in self._bindings.values():
            if binding.connection is not None:
                binding.connection.close()
        self._bindings.clear()

    # -- calls -----------------------------------------------------------------------------------------------------

    async def _answer(self, session: Session, binding: _Binding, call: PartnerCall) -> None:
        try:
            async with answered_within(CALL), binding.lock:
                answer = await self._made(session, binding, call)
        except (HResultError, RpcFault, _Unreachable, OSError) as error:
            answer = CallAnswer(None, detail=str(error))
        except Exception as error:
            logger.exception("a call to the transaction manager %s failed", session.partner)
            answer = CallAnswer(None, detail=str(error))
        if answer.status is None:
            logger.debug("%s of %s failed: %s", call.kind.name, session.partner, answer.detail)
            if binding.connection is not None:
                binding.connection.close()
                binding.connection = None
        session.answered(call, answer)

    async def _made(self, session: Session, binding: _Binding, call: PartnerCall) -> CallAnswer:
        if self._level is None:
            raise _Unreachable("distributed transactions are off (setting distributed_transactions)")
        if binding.connection is None or not binding.connection.is_open:
            if call.kind not in (CallKind.POKE, CallKind.BUILD):
                raise _Unreachable("the connection to the partner is lost")
            binding.connection = await self._connect(session)
        match call.kind:
            case CallKind.POKE:
                return await self._poke(session, binding, call)
            case CallKind.BUILD:
                return await self._build(session, binding, call)
            case CallKind.NEGOTIATE:
                response = await self._exchange(
                    session, binding, "NegotiateResources", phContext=binding.handle, resourceType=0,
                    dwcRequested=call.number, pdwcAccepted=0,
                )  # fmt: skip
                return CallAnswer(response.result, accepted=response.pdwcAccepted)
            case CallKind.SEND:
                response = await self._exchange(
                    session, binding, "SendReceive", phContext=binding.handle, dwcMessages=call.number,
                    dwcbSizeOfBoxCar=len(call.boxcar), rguchBoxCar=call.boxcar,
                )  # fmt: skip
            case CallKind.TEAR_DOWN:
                response = await self._exchange(
                    session, binding, "TearDownContext", contextHandle=binding.handle, sRank=call.rank,
                    tearDownType=TT_PROBLEM if call.is_problem else 0,
                )  # fmt: skip
            case CallKind.BEGIN_TEAR_DOWN:
                response = await self._exchange(
                    session, binding, "BeginTearDown", contextHandle=binding.handle, tearDownType=0
                )
        return CallAnswer(response.result)

    async def _poke(self, session: Session, binding: _Binding, call: PartnerCall) -> CallAnswer:
        response = await self._by_either(session, binding, "Poke", _named(session) | {"sRank": call.rank})
        return CallAnswer(response.result)

    async def _build(self, session: Session, binding: _Binding, call: PartnerCall) -> CallAnswer:
        lowest, highest = LOWEST, HIGHEST
        versions = m.BIND_VERSION_SET(lowest.one, highest.one, lowest.two, highest.two, lowest.three, highest.three)
        values = _named(session) | {
            "sRank": call.rank, "BindVersionSet": versions, "pszGuidIn": str(call.guid), "pszGuidOut": _NULL,
            "pBoundVersionSet": m.BOUND_VERSION_SET(0, 0, 0),
        }  # fmt: skip
        response = await self._by_either(session, binding, "BuildContext", values)
        text = getattr(response, "pwszGuidOut", None) or getattr(response, "pszGuidOut", None) or _NULL
        try:
            guid = UUID(text)
        except ValueError:
            guid = UUID(int=0)
        binding.handle = bytes(response.ppHandle)
        return CallAnswer(response.result, guid)

    async def _by_either(self, session: Session, binding: _Binding, name: str, values: dict[str, Any]) -> Any:
        """Use the method with wide strings, or the narrow one for a partner without it."""
        if not binding.is_narrow:
            wide = {key.replace("psz", "pwsz"): value for key, value in values.items()}
            try:
                return await self._exchange(session, binding, f"{name}W", **wide)
            except RpcFault as fault:
                if fault.status not in _PROCNUM_OUT_OF_RANGE:
                    raise
                binding.is_narrow = True
        return await self._exchange(session, binding, name, **values)

    async def _exchange(self, session: Session, binding: _Binding, name: str, **values: Any) -> Any:
        operation: Operation = m.IXnRemote.operation(name)
        assert operation.request is not None and binding.connection is not None
        stub = operation.encode_request(operation.request(**values))
        answer = await binding.connection.exchange(operation.opnum, stub, session.partner.cid, interface=INTERFACE)
        return operation.decode_response(answer.stub, answer.byte_order)

    # -- finding ---------------------------------------------------------------------------------------------------

    async def _connect(self, session: Session) -> rpc.AsyncConnection:
        """Connect with the login of this queue manager; if that fails below the level mutual, without a login."""
        if len(self._tasks) > MOST_CALLS:
            raise _Unreachable(f"{MOST_CALLS} calls to transaction managers are in progress, which is the limit")
        partner = session.partner
        try:
            security = self._security(partner.host)
        except (OSError, MsmqError) as error:
            raise _Unreachable(f"this queue manager can't log in: {error}") from error
        async with answered_within(FINDING):
            host, port = await self._find(partner, session.source)
            try:
                return await self._bound(host, port, security)
            except (HResultError, RpcFault):
                if self._level is TransactionSecurity.MUTUAL or not security:
                    raise
            return await self._bound(host, port, {})

    @staticmethod
    async def _bound(host: str, port: int, security: dict[str, Any]) -> rpc.AsyncConnection:
        """Bind. Logins use SPNEGO, which a Microsoft DTC requires ([MS-CMPO] 7, RpcAuthnSvc)."""
        connection = await rpc.connect(host, port, timeout=FINDING, spnego=bool(security), **security)
        try:
            await connection.bind(m.IXnRemote.uuid, m.IXnRemote.version)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _find(self, partner: Partner, source: str) -> tuple[str, int]:
        """Find a partner by `peers` or by its name. Without mutual authentication, the address from which it called is
        also used (D-223)."""
        if (known := self._hosts.get(partner.host.lower())) is not None:
            return known
        host = await _resolved(partner.host)
        if host is None and self._level is TransactionSecurity.NONE and source:
            host = source
        if host is None:
            raise _Unreachable(f"no address is known for {partner.host}: add it to DNS, or to the setting peers")
        return host, await port_of(host, INTERFACE, partner.cid, timeout=FINDING)


async def _resolved(name: str) -> str | None:
    """Return the address of a name, but never a loopback address of this machine."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the second for a name that no host can have
        return None
    addresses = [str(entry[4][0]) for entry in found]
    return next((one for one in addresses if not ipaddress.ip_address(one.partition("%")[0]).is_loopback), None)


def _named(session: Session) -> dict[str, Any]:
    """Return the fields about both partners, which every call of a session has."""
    blob = (8).to_bytes(4, "little") + session.local.protocols.to_bytes(4, "little")
    return {
        "pszCalleeUuid": str(session.partner.cid), "pszHostName": session.local.host,
        "pszUuidString": str(session.local.cid), "dwcbSizeOfBlob": len(blob), "rguchBlob": blob,
    }  # fmt: skip
