"""IXnRemote: the interface through which transaction managers create sessions and send boxcars ([MS-CMPO] 3.3.4).

Each partner is client and server of the other. The setting `distributed_transactions` has the required security level.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from msrpc.rpc.call import Call
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import NDR, AuthLevel
from openmsmq.interfaces import ms_cmpo as m
from openmsmq.oletx.partners import Partners
from openmsmq.oletx.session import BuildAnswer, Session, Status, Versions
from openmsmq.oletx.structures import BadStructure, Partner, check_name
from openmsmq.protocols.dispatch import NdrInterface
from openmsmq.protocols.environment import Environment

logger = logging.getLogger(__name__)

SESSION = "transaction manager session"
_GUID_LENGTH = 36  # characters, without the terminator
_NULL = "00000000-0000-0000-0000-000000000000"
_NULL_HANDLE = bytes(20)
#: TearDownContext and BeginTearDown with enumerations of 32 instead of 16 bits (D-212): stub size -> offset.
_WIDE_TEARDOWN = {28: 24}
TT_PROBLEM = 2


class _Held:
    """State of a context handle. A session may be rebuilt while an old handle is run down."""

    def __init__(self, session: Session, call: Call) -> None:
        self.session, self.guid, self.identity = session, session.guid, call.caller.sid

    def run_down(self) -> None:
        if self.session.guid == self.guid:
            self.session.lost("the partner's connection is lost")


class XnRemote(NdrInterface):
    description = m.IXnRemote
    transfer_syntaxes = (NDR,)  # [MS-CMPO] 2.2
    #: The level is checked here, because it depends on the host that a caller claims to be.
    open_opnums: ClassVar[frozenset[int]] = frozenset(range(8))

    def __init__(self, environment: Environment, minimum_level: AuthLevel = AuthLevel.NONE) -> None:
        super().__init__(environment, minimum_level)

    @property
    def _partners(self) -> Partners:
        return self.environment.coordinator.partners

    def Poke(self, call: Call, q: m.Poke_Request) -> m.Poke_Response:
        """3.3.4.1."""
        status = self._poke(call, q.sRank, q.pszCalleeUuid, q.pszHostName, q.pszUuidString, q.rguchBlob)
        return m.Poke_Response(result=status)

    def PokeW(self, call: Call, q: m.PokeW_Request) -> m.PokeW_Response:
        """3.3.4.7."""
        status = self._poke(call, q.sRank, q.pwszCalleeUuid, q.pwszHostName, q.pwszUuidString, q.rguchBlob)
        return m.PokeW_Response(result=status)

    def _poke(self, call: Call, rank: int, callee: str, host: str, cid: str, blob: bytes) -> int:
        try:
            partner, called = self._partner(call, host, cid, blob), _guid(callee)
        except BadStructure as error:
            return _refuse(call, "PokeW", error)
        return self._partners.poke(partner, called, rank, call.peer)

    def BuildContext(self, call: Call, q: m.BuildContext_Request) -> None:
        """3.3.4.2."""
        strings = (q.pszCalleeUuid, q.pszHostName, q.pszUuidString, q.pszGuidIn)
        self._build(call, q, strings, partial(m.BuildContext_Response))

    def BuildContextW(self, call: Call, q: m.BuildContextW_Request) -> None:
        """3.3.4.8."""
        strings = (q.pwszCalleeUuid, q.pwszHostName, q.pwszUuidString, q.pwszGuidIn)
        self._build(call, q, strings, partial(m.BuildContextW_Response))

    def _build(
        self, call: Call, q: m.BuildContext_Request | m.BuildContextW_Request, strings: tuple[str, str, str, str],
        response: Callable[..., Any],
    ) -> None:  # fmt: skip
        def answer(built: BuildAnswer) -> None:
            if call.over:
                if built.session is not None:
                    built.session.lost("the partner's connection is lost")
                return
            handle, guid = _NULL_HANDLE, _NULL
            if built.session is not None:
                handle = call.handles.create(SESSION, _Held(built.session, call), _Held.run_down)
                guid = str(built.guid)
            made = response(guid, m.BOUND_VERSION_SET(*built.versions), handle, built.status)
            self.finish(call, self.description.operations[call.opnum], made, durable=False)

        callee, host, cid, guid = strings
        try:
            partner = self._partner(call, host, cid, q.rguchBlob)
            called, session = _guid(callee), _guid(guid)
        except BadStructure as error:
            answer(BuildAnswer(_refuse(call, "BuildContextW", error)))
            return
        v = q.BindVersionSet
        versions = (
            Versions(v.dwMinLevelOne, v.dwMinLevelTwo, v.dwMinLevelThree),
            Versions(v.dwMaxLevelOne, v.dwMaxLevelTwo, v.dwMaxLevelThree),
        )
        self._partners.build_context(partner, called, q.sRank, session, versions, call.peer, answer)
        if not call.over:
            call.waits()

    def NegotiateResources(self, call: Call, q: m.NegotiateResources_Request) -> m.NegotiateResources_Response:
        """3.3.4.3."""
        session = self._session(call, q.phContext)
        if q.resourceType:
            return m.NegotiateResources_Response(pdwcAccepted=0, result=Status.INVALID_ARGUMENT)
        status, accepted = session.grant(q.dwcRequested)
        return m.NegotiateResources_Response(pdwcAccepted=accepted, result=status)

    def SendReceive(self, call: Call, q: m.SendReceive_Request) -> m.SendReceive_Response:
        """3.3.4.4: answers before the messages are processed (D-217)."""
        status = self._session(call, q.phContext).send_receive(q.dwcMessages, bytes(q.rguchBoxCar))
        return m.SendReceive_Response(result=status)

    def TearDownContext(self, call: Call, q: m.TearDownContext_Request) -> m.TearDownContext_Response:
        """3.3.4.5: the handle is null afterwards, also after an error."""
        session = self._session(call, q.contextHandle)
        call.handles.close(q.contextHandle, SESSION)
        at = _WIDE_TEARDOWN.get(len(call.stub))
        kind = q.tearDownType if at is None else int.from_bytes(call.stub[at : at + 4], "little")
        status = session.torn_down(q.sRank, is_problem=kind == TT_PROBLEM)
        return m.TearDownContext_Response(contextHandle=_NULL_HANDLE, result=status)

    def BeginTearDown(self, call: Call, q: m.BeginTearDown_Request) -> m.BeginTearDown_Response:
        """3.3.4.6."""
        return m.BeginTearDown_Response(result=self._session(call, q.contextHandle).begin_tear_down())

    def _partner(self, call: Call, host: str, cid: str, blob: bytes) -> Partner:
        """Return the partner that a caller claims to be. Raises BadStructure, and Fault if the security level does not
        admit it."""
        name = check_name(host, "the host name")
        if not self.environment.coordinator.security_level.admits(call, name):
            logger.warning(
                "%s called as the transaction manager of %s and was refused: its login (%s at level %s) is not what "
                "distributed_transactions = %s asks for", call.peer, name, call.caller.user or "anonymous",
                call.caller.level.name, self.environment.coordinator.security_level.value,
            )  # fmt: skip
            raise Fault(RPC_S_ACCESS_DENIED)
        protocols = int.from_bytes(bytes(blob)[4:8], "little") or 1  # 0 stands for TCP, 2.2.4
        return Partner(_guid(cid), name, protocols)

    def _session(self, call: Call, handle: bytes) -> Session:
        held: _Held = call.handles.get(handle, SESSION)
        return held.session


def _guid(value: str) -> UUID:
    try:
        if len(value) != _GUID_LENGTH:
            raise ValueError
        return UUID(value)
    except ValueError:
        raise BadStructure(f"{value[:40]!r} is not a GUID of {_GUID_LENGTH} characters") from None


def _refuse(call: Call, operation: str, error: BadStructure) -> int:
    logger.warning("%s from %s is refused: %s", operation, call.peer, error)
    return Status.INVALID_ARGUMENT
