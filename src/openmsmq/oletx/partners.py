"""The sessions of a transaction manager by partner, and their incoming calls ([MS-CMPO] 3.2, 3.3.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from openmsmq.oletx.connections import Acceptor, ConnectionBudget, Listen, PartnerConnection
from openmsmq.oletx.messages import ConnectionType, MessageType
from openmsmq.oletx.session import NIL, BuildAnswer, CallSender, Rank, Session, Status, Versions
from openmsmq.oletx.states import PartnerSessionState
from openmsmq.oletx.structures import Partner

logger = logging.getLogger(__name__)

MOST_SESSIONS: Final = 10_000  # two sockets each
MOST_UNFINISHED: Final = 64  # per source, sessions that are not ACTIVE


class Partners:
    """All sessions. `source` is the address of a caller, whose unfinished sessions are limited."""

    def __init__(self, local: Partner, sender: CallSender, acceptor: Acceptor) -> None:
        self.local = local
        self._sender, self._acceptor = sender, acceptor
        self._sessions: dict[tuple[UUID, str], Session] = {}
        self._begun: dict[str, set[Session]] = {}  # sessions that are not ACTIVE, by source
        self._budget = ConnectionBudget()
        self.is_stopped = False

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    # -- outgoing connections ----------------------------------------------------------------------------------

    def open(
        self,
        partner: Partner,
        kind: ConnectionType,
        listen: Listen,
        message: MessageType,
        data: bytes,
    ) -> PartnerConnection:
        """Open a connection to a partner, and a session if there is none. If no session can be created, the connection
        is lost."""
        session = self._sessions.get(partner.key)
        if session is None or session.state in (PartnerSessionState.TEARDOWN, PartnerSessionState.REQUESTING_TEARDOWN):
            session = self._new(partner)
        connection = session.connections.open(kind, listen, message, data)
        if not self.is_stopped:
            session.want()
        return connection

    # -- calls of partners -------------------------------------------------------------------------------------

    def poke(self, partner: Partner, callee: UUID, rank: int, source: str) -> int:
        """Handle Poke and PokeW ([MS-CMPO] 3.3.4.1, 3.3.4.7)."""
        if not self._is_right(partner, callee, rank) or rank != Rank.SECONDARY:
            return Status.INVALID_ARGUMENT
        session = self._sessions.get(partner.key)
        if session is None:
            if not self._has_room(source):
                return Status.SERVER_TOO_BUSY
            session = self._new(partner, source)
        return session.poked()

    def build_context(
        self, partner: Partner, callee: UUID, rank: int, guid: UUID, versions: tuple[Versions, Versions], source: str,
        answer: Callable[[BuildAnswer], None],
    ) -> None:  # fmt: skip
        """Handle BuildContext and BuildContextW (3.3.4.2, 3.3.4.8)."""
        if not self._is_right(partner, callee, rank) or guid == NIL:
            answer(BuildAnswer(Status.INVALID_ARGUMENT))
            return
        session = self._sessions.get(partner.key)
        if session is None:
            if rank == Rank.SECONDARY:
                answer(BuildAnswer(Status.SESSION_DOWN))
                return
            if not self._has_room(source):
                answer(BuildAnswer(Status.SERVER_TOO_BUSY))
                return
            session = self._new(partner, source)
        session.build_context(guid, *versions, answer)

    def _is_right(self, partner: Partner, callee: UUID, rank: int) -> bool:
        """Whether a call is for this transaction manager, and its caller has the correct rank."""
        if callee != self.local.cid or partner.cid == self.local.cid or self.is_stopped:
            return False
        return rank == (Rank.PRIMARY if partner.cid.int > self.local.cid.int else Rank.SECONDARY)

    def _has_room(self, source: str) -> bool:
        begun = self._begun.get(source, set())
        begun = {
            session for session in begun if not session.is_down and session.state is not PartnerSessionState.ACTIVE
        }
        if begun:
            self._begun[source] = begun
        else:
            self._begun.pop(source, None)
        if len(begun) < MOST_UNFINISHED and len(self._sessions) < MOST_SESSIONS:
            return True
        logger.warning(
            "a session of a transaction manager at %s is refused: it has %d unfinished ones (limit %d), there are %d "
            "in all (limit %d)", source, len(begun), MOST_UNFINISHED, len(self._sessions), MOST_SESSIONS,
        )  # fmt: skip
        return False

    # -- the table ---------------------------------------------------------------------------------------------

    def _new(self, partner: Partner, source: str = "") -> Session:
        session = Session(self.local, partner, self._sender, self._acceptor, self._budget, self._forget)
        if source:
            session.source = source
            self._begun.setdefault(source, set()).add(session)
        self._sessions[partner.key] = session
        return session

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.partner.key) is session:
            del self._sessions[session.partner.key]
        begun = self._begun.get(session.source, set())
        begun.discard(session)
        if not begun:
            self._begun.pop(session.source, None)

    def stop(self) -> None:
        """Tear down all sessions, and begin no more."""
        self.is_stopped = True
        for session in self.sessions():
            session.stop()
