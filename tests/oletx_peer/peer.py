"""An independent OleTx transaction manager, written from the specifications, for tests.

The class `Peer` is a transaction manager and a partner of IXnRemote.  It implements MS-CMPO
(sessions), MS-CMP (connections in boxcars) and the partner connection types of MS-DTCO
(PROPAGATE, BRANCH, REDELIVERCOMMIT, CHECKABORT), as superior and as subordinate.  Hooks let a
test change, drop, repeat or cut at every message and every call.  NOTES.md lists the places
where the texts are ambiguous and what this file chooses.

The API is synchronous.  Threads do the work behind it.  No thread calls a partner while it
holds the lock of its peer.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oletx_peer.rpc import (
    NCA_CONTEXT_MISMATCH,
    NCA_OP_RANGE,
    RPC_S_PROCNUM_OUT_OF_RANGE,
    PeerEndpointMapper,
    RpcBinding,
    RpcCall,
    RpcCut,
    RpcDown,
    RpcFault,
    RpcNoAnswer,
    RpcServer,
    ept_map,
)
from oletx_peer.wire import (
    BODY_SIZES,
    BRANCH,
    CHECKABORT,
    CONNECTION_TYPES,
    E_CM_OUTOFRESOURCES,
    E_CM_S_PROTOCOL_NOT_SUPPORTED,
    E_CM_S_TIMEDOUT,
    E_CM_SERVER_NOT_READY,
    E_CM_SESSION_DOWN,
    E_CM_TEARING_DOWN,
    E_CM_VERSION_SET_NOTSUPPORTED,
    E_FAIL,
    E_INVALIDARG,
    IXN_REMOTE,
    MTAG_CONNECTION_REQ,
    MTAG_CONNECTION_REQ_DENIED,
    MTAG_DISCONNECT,
    MTAG_DISCONNECTED,
    MTAG_NAMES,
    MTAG_PING,
    MTAG_USER_MESSAGE,
    NULL_GUID,
    NULL_HANDLE,
    OPNAMES,
    OPNUMS,
    PREPARE_VOTES,
    PRIMARY,
    PROPAGATE,
    PROT_IP_TCP,
    REDELIVERCOMMIT,
    RT_CONNECTIONS,
    S_OK,
    SECONDARY,
    TT_FORCE,
    TT_PROBLEM,
    USER_TYPES,
    VOTE_NAMES,
    PeerMessage,
    PeerName,
    PeerToken,
    build_whereabouts,
    decode_answer,
    decode_boxcar,
    decode_call,
    encode_answer,
    encode_boxcar,
    encode_call,
    propagate_body,
)

CUT = "cut"  # drop the TCP connections of the session, before the message
CUT_AFTER = "cut_after"  # the same, after the message is sent or processed
CRASH = "crash"  # crash the whole peer, before the message
CRASH_AFTER = "crash_after"  # the same, after the message
NO_ANSWER = "no_answer"  # send no reply to an RPC

MAX_BOXCAR, MAX_MESSAGES = 81920, 3412
PHASE0_STATES = ("Phase Zero", "Phase Zero Registration During Phase Zero", "Phase Zero with Outstanding Registration")


class PeerError(Exception):
    """A session or an operation of the peer fails."""


class PeerCrashed(PeerError):
    """The peer is crashed or closed while an operation waits."""


@dataclass
class PeerEvent:
    """One entry of the trace."""

    at: float
    direction: str  # "send", "recv" or "note"
    layer: str  # "rpc", "answer", "cmp" or "peer"
    name: str
    partner: str
    detail: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        detail = " ".join(f"{key}={value}" for key, value in self.detail.items())
        return f"{self.at:9.3f} {self.direction} {self.layer:6} {self.partner} {self.name} {detail}"


@dataclass
class PeerCall:
    """An RPC of IXnRemote as the RPC hooks see it; a hook can change `args` and `stub`."""

    op: str
    partner: str
    args: dict[str, Any]
    stub: bytes | None = None  # set it to send this stub instead of `args`
    answer: dict[str, Any] | None = None


@dataclass
class PeerRule:
    """A rule of `Peer.rule`: the action for the messages of one name."""

    direction: str
    name: str
    action: str | Callable[[PeerSession, PeerMessage], Any]
    count: int = 1


class PeerSession:
    """A session object (MS-CMPO 3.2.1.2) with the tables of MS-CMP 3.1.1."""

    def __init__(self, name: PeerName, primary: bool, binding: RpcBinding) -> None:
        self.name, self.primary, self.binding = name, primary, binding
        self.state = "Connecting"
        self.guid = ""  # pszGuidIn of the bind attempt
        self.version = (0, 0, 0)
        self.local_handle = NULL_HANDLE  # the handle that the partner uses
        self.remote_handle = NULL_HANDLE  # the handle that this peer uses
        self.group = 0  # the association group of the local handle
        self.wide = True
        self.building = False
        self.outgoing: dict[int, PeerConnection] = {}
        self.incoming: dict[int, PeerConnection] = {}
        self.out_allocated = self.in_allocated = 0
        self.queue: deque[PeerMessage] = deque()
        self.sending = False
        self.error = 0
        self.idle_since = time.monotonic()
        self.receiving = threading.Lock()

    @property
    def dead(self) -> bool:
        return self.state == "Down"

    @property
    def rank(self) -> int:
        return PRIMARY if self.primary else SECONDARY

    def __repr__(self) -> str:
        return f"<PeerSession {self.name.host} {self.state} primary={self.primary}>"


class PeerConnection:
    """A connection object (MS-CMP 3.1.1.1, MS-DTCO 3.1.1)."""

    def __init__(self, session: PeerSession, ident: int, kind: int, initiator: bool) -> None:
        self.session, self.id, self.kind, self.initiator = session, ident, kind, initiator
        self.state = "Idle"
        self.accepted = initiator
        self.requested = self.disconnecting = self.gone = False
        self.enlistment: PeerEnlistment | None = None
        self.tx: PeerTransaction | None = None
        self.result: str | None = None  # the result of PROPAGATE or BRANCHING
        self.inbox: queue.Queue[str] = queue.Queue()  # replies on a recovery connection
        self.manual = False  # a test plays this end; no state machine runs
        self.messages: queue.Queue[PeerMessage | None] = queue.Queue()  # of a manual connection

    def expect(self, name: str | None = None, timeout: float = 5.0) -> PeerMessage | None:
        """Take the next message of a manual connection; None means that it is disconnected."""
        try:
            message = self.messages.get(timeout=timeout)
        except queue.Empty:
            raise PeerError(f"no message, {name} expected") from None
        found = message.name if message else "disconnected"
        if name is not None and found != name:
            raise PeerError(f"{found} received, {name} expected")
        return message

    def __repr__(self) -> str:
        return (
            f"<PeerConnection {CONNECTION_TYPES.get(self.kind, self.kind)} {self.id} "
            f"{self.session.name.host} {self.state}>"
        )


class PeerEnlistment:
    """An enlistment object (MS-DTCO 3.1.1)."""

    def __init__(self, tx: PeerTransaction, name: PeerName, connection: PeerConnection | None = None) -> None:
        self.tx, self.name, self.connection = tx, name, connection

    @property
    def state(self) -> str:
        return self.connection.state if self.connection else "Ended"


class PeerTransaction:
    """A transaction object (MS-DTCO 3.2.1)."""

    def __init__(self, guid: uuid.UUID, root: bool, level: int = 0x100000, description: str = "") -> None:
        self.guid, self.root, self.level, self.description = guid, root, level, description
        self.state = "Active"
        self.superior: PeerEnlistment | None = None
        self.phase_one: list[PeerEnlistment] = []
        self.phase_two: list[PeerEnlistment] = []
        self.single = False
        self.local: str | None = None  # the vote of the local participant
        self.outcome: str | None = None
        self.checking: PeerConnection | None = None
        self.phase0_done: str | None = None


class Peer:
    """A transaction manager and IXnRemote partner for tests.

    `partners` maps a host name to (address, port) or (address, port, cid).  `mappers` maps a
    host name to the address of its endpoint mapper, which is used only for names without an
    entry in `partners`.  `log` is the path of the durable log; None keeps it in memory.
    """

    def __init__(
        self,
        name: str,
        cid: uuid.UUID | str,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        partners: dict[str, tuple] | None = None,
        log: str | None = None,
        *,
        mappers: dict[str, tuple[str, int]] | None = None,
        mapper: PeerEndpointMapper | None = None,
        level_one: tuple[int, int] = (1, 2),
        level_two: tuple[int, int] = (1, 1),
        level_three: tuple[int, int] = (1, 5),
        setup_timeout: float = 6.0,
        call_timeout: float = 12.0,
        teardown_timeout: float = 10.0,
        retries: int = 12,
        retry_delay: float = 0.1,
        negotiate: int = 10,
        max_incoming: int = 1000,
        recovery_interval: float = 0.2,
        idle_timeout: float | None = None,
        ping_interval: float | None = None,
        teardown_nested: bool = True,
        strict: bool = False,
        fragment: int = 4280,
        enum32: bool = False,
    ) -> None:
        self.name, self.cid, self.log_path = name, uuid.UUID(str(cid)), log
        self.me = PeerName(name, self.cid, PROT_IP_TCP)
        self.partners = dict(partners or {})
        self.mappers, self.mapper = dict(mappers or {}), mapper
        self.versions = (*level_one, *level_two, *level_three)
        self.setup_timeout, self.call_timeout = setup_timeout, call_timeout
        self.teardown_timeout, self.retries, self.retry_delay = teardown_timeout, retries, retry_delay
        self.negotiate, self.max_incoming = negotiate, max_incoming
        self.recovery_interval, self.idle_timeout = recovery_interval, idle_timeout
        self.ping_interval, self.teardown_nested = ping_interval, teardown_nested
        self.strict, self.fragment, self.enum32 = strict, fragment, enum32

        self.vote: str | Callable[[uuid.UUID, bool], str] = "auto"
        self.votes: dict[uuid.UUID, str | Callable[[uuid.UUID, bool], str]] = {}
        self.phase0: Callable[[uuid.UUID], bool] = lambda guid: True
        self.deny: dict[int, int] = {}  # connection type -> Reason of the denial
        self.max_subordinates = 32
        self.manual: set[int] = set()  # incoming connections of these types are manual
        self.accepted: queue.Queue[PeerConnection] = queue.Queue()  # and are added here

        self.on_send: Callable[[PeerSession, PeerMessage], Any] | None = None
        self.on_receive: Callable[[PeerSession, PeerMessage], Any] | None = None
        self.on_boxcar: Callable[[PeerSession, bytes, int], Any] | None = None
        self.on_rpc_send: Callable[[PeerCall], Any] | None = None
        self.on_rpc_receive: Callable[[PeerCall], Any] | None = None
        self.on_rpc_answer: Callable[[PeerCall], Any] | None = None
        self.rules: list[PeerRule] = []
        self.trace: list[PeerEvent] = []
        self.history: dict[uuid.UUID, str] = {}  # outcomes, for assertions; survives a crash

        self._lock = threading.RLock()
        self._cond = threading.Condition(self._lock)
        self._start = time.monotonic()
        self._epoch, self.running = 0, False
        self._memory_log: list[dict[str, Any]] = []
        self._reset()
        self._listen = listen
        self.restart()

    # ---------------------------------------------------------------- life and trace

    def _reset(self) -> None:
        self._sessions: dict[tuple, PeerSession] = {}
        self._handles: dict[bytes, PeerSession] = {}
        self._txs: dict[uuid.UUID, PeerTransaction] = {}

    def restart(self) -> None:
        """Start the server and recover the transactions of the log (MS-DTCO 3.2.3.3)."""
        with self._cond:
            if self.running:
                return
            self._epoch += 1
            self.running = True
            recovered = self._load_log()
            self.server = RpcServer(self._listen, {IXN_REMOTE: self._serve}, self._rundown, self.fragment)
            self._listen = self.address = self.server.address
            if self.mapper:
                self.mapper.register(IXN_REMOTE, self.cid, *self.address)
            for tx in recovered:
                if tx.state == "In Doubt":
                    self._recover_in_doubt(tx)
                elif not tx.phase_two:
                    self._forget(tx)
                for enlistment in list(tx.phase_two) if tx.state != "In Doubt" else []:
                    self._redeliver(enlistment)
        if self.idle_timeout or self.ping_interval:
            self._spawn(self._maintain, self._epoch)

    def crash(self) -> None:
        """Drop all TCP connections and discard all volatile state; the log stays."""
        with self._cond:
            if not self.running:
                return
            self.running = False
            self._epoch += 1
            sessions = list(self._sessions.values())
            for session in sessions:
                session.state = "Down"
            self._reset()
            self._note("crash")
            self.server.close()  # before the lock is free: `restart` uses the same port
            self._cond.notify_all()
        for session in sessions:
            session.binding.close()

    def close(self, polite: bool = False) -> None:
        """Stop the peer; `polite` tears its sessions down first."""
        if polite and self.running:
            for session in list(self._sessions.values()):
                self.teardown(session.name)
        self.crash()
        if self.mapper:
            self.mapper.unregister(self.cid)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def add_partner(self, *peers: Peer) -> None:
        """Register other peers of this process with their endpoints and CIDs."""
        for peer in peers:
            self.partners[peer.name] = (*peer.address, peer.cid)

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            try:
                target(*args)
            except PeerError as error:
                self._note("thread", error=str(error))

        threading.Thread(target=run, daemon=True).start()

    def _record(self, direction: str, layer: str, name: str, partner: str, **detail: Any) -> None:
        self.trace.append(PeerEvent(time.monotonic() - self._start, direction, layer, name, partner, detail))

    def _note(self, name: str, partner: str = "", **detail: Any) -> None:
        self._record("note", "peer", name, partner, **detail)

    def names(self, direction: str, layer: str = "cmp") -> list[str]:
        """The names of the traced messages of one direction, in order."""
        return [e.name for e in list(self.trace) if (e.direction, e.layer) == (direction, layer)]

    def trace_text(self) -> str:
        return "\n".join(str(event) for event in list(self.trace))

    def rule(self, direction: str, name: str, action: Any, count: int = 1) -> PeerRule:
        """Apply `action` to the next `count` messages of this name.

        The action is CUT, CUT_AFTER, CRASH, CRASH_AFTER, "drop", "twice", a number of seconds
        to wait, or a callable with the signature of `on_send`.
        """
        rule = PeerRule(direction, name, action, count)
        self.rules.append(rule)
        return rule

    def _wait(self, test: Callable[[], Any], timeout: float, what: str) -> Any:
        """Wait under the lock until `test` returns a true value."""
        epoch, deadline = self._epoch, time.monotonic() + timeout
        with self._cond:
            while True:
                if epoch != self._epoch or not self.running:
                    raise PeerCrashed(what)
                value = test()
                if value:
                    return value
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PeerError(f"timeout: {what}")
                self._cond.wait(min(left, 0.5))

    # ---------------------------------------------------------------- durable log

    def log_records(self) -> list[dict[str, Any]]:
        """The records of the durable log that are not forgotten."""
        lines = self._memory_log
        if self.log_path and os.path.exists(self.log_path):
            with open(self.log_path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        found: dict[str, dict[str, Any]] = {}
        for line in lines:
            if line["op"] == "forget":
                found.pop(line["tx"], None)
            else:
                found[line["tx"]] = line
        return list(found.values())

    def _log(self, op: str, tx: PeerTransaction) -> None:
        """Write a record durably (MS-DTCO 3.2.1.2)."""

        def flat(name: PeerName) -> list:
            return [name.host, str(name.cid), name.protocols]

        line: dict[str, Any] = {"op": op, "tx": str(tx.guid)}
        if op != "forget":
            line["subordinates"] = [flat(e.name) for e in tx.phase_two]
        if op == "in_doubt" and tx.superior:
            line["superior"] = flat(tx.superior.name)
        if self.log_path:
            with open(self.log_path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        else:
            self._memory_log.append(line)

    def _load_log(self) -> list[PeerTransaction]:
        def name(flat: list) -> PeerName:
            return PeerName(flat[0], uuid.UUID(flat[1]), flat[2])

        found = []
        for line in self.log_records():
            tx = PeerTransaction(uuid.UUID(line["tx"]), line["op"] == "commit")
            tx.phase_two = [PeerEnlistment(tx, name(flat)) for flat in line["subordinates"]]
            if line["op"] == "in_doubt":
                tx.state = "In Doubt"
                tx.superior = PeerEnlistment(tx, name(line["superior"]))
            else:
                tx.state, tx.outcome = "Failed to Notify", "committed"
            self._txs[tx.guid] = tx
            found.append(tx)
        return found

    # ---------------------------------------------------------------- RPC out

    def _name(self, partner: str | PeerName | Peer) -> PeerName:
        if isinstance(partner, Peer):
            return partner.me
        if isinstance(partner, PeerName):
            return partner
        for host, entry in self.partners.items():
            if host.upper() == partner.upper() and len(entry) > 2:
                return PeerName(host, uuid.UUID(str(entry[2])))
        with self._lock:
            for session in self._sessions.values():
                if session.name.host.upper() == partner.upper():
                    return session.name
        raise PeerError(f"the CID of {partner} is not known")

    def endpoint(self, name: PeerName) -> tuple[str, int]:
        """Find the IXnRemote endpoint of a partner (MS-CMPO 1.3.2)."""
        for host, entry in self.partners.items():
            if host.upper() == name.host.upper():
                return entry[0], entry[1]
        for host, mapper in self.mappers.items():
            if host.upper() == name.host.upper():
                try:
                    return ept_map(mapper, IXN_REMOTE, name.cid)[0]
                except (RpcFault, RpcDown) as error:
                    raise PeerError(f"ept_map fails: {error}") from error
        raise PeerError(f"no endpoint of {name.host}")

    def binding(self, partner: str | PeerName | Peer) -> RpcBinding:
        """Make a binding handle of a partner; the object UUID is its CID (1.3.2)."""
        name = self._name(partner)
        return RpcBinding(self.endpoint(name), IXN_REMOTE, name.cid, self.call_timeout, self.fragment)

    def rpc(
        self, binding: RpcBinding, op: str, args: dict[str, Any], partner: str = "", timeout: float | None = None
    ) -> dict[str, Any]:
        """Call any operation with any arguments; see `wire.encode_call` for invalid ones."""
        event = PeerCall(op, partner, dict(args))
        if self.enum32:
            event.args.setdefault("enum32", True)
        self._record("send", "rpc", op, partner, **_short(event.args))
        verdict = self.on_rpc_send(event) if self.on_rpc_send else None
        if verdict == CUT:
            binding.close()
            raise RpcDown("cut by a hook")
        stub = encode_call(op, event.args) if event.stub is None else event.stub
        try:
            answer = decode_answer(op, binding.call(OPNUMS[op], stub, timeout))
        except RpcFault as fault:
            self._record("recv", "answer", op, partner, fault=f"0x{fault.status:08X}")
            raise
        except RpcDown as error:
            self._record("recv", "answer", op, partner, down=str(error))
            raise
        self._record("recv", "answer", op, partner, **_short(answer))
        return answer

    def raw_rpc(self, partner: str | PeerName | Peer, opnum: int, stub: bytes, timeout: float | None = None) -> bytes:
        """Call any opnum with any stub on a new connection; return the response's stub."""
        binding = self.binding(partner)
        self._record("send", "rpc", f"raw opnum {opnum}", self._name(partner).host, size=len(stub))
        try:
            return binding.call(opnum, stub, timeout)
        finally:
            binding.close()

    def bind_args(self, partner: str | PeerName | Peer, rank: int | None = None, **changes: Any) -> dict[str, Any]:
        """The regular arguments of Poke and BuildContext to a partner, with changes."""
        name = self._name(partner)
        args = {
            "sRank": rank or (PRIMARY if self._primary(name) else SECONDARY),
            "BindVersionSet": self.versions,
            "pszCalleeUuid": str(name.cid),
            "pszHostName": self.name,
            "pszUuidString": str(self.cid),
            "pszGuidIn": str(uuid.uuid4()),
            "pszGuidOut": str(NULL_GUID),
            "rguchBlob": struct.pack("<II", 8, PROT_IP_TCP),
        }
        return args | changes

    def _primary(self, name: PeerName) -> bool:
        """The partner with the larger CID is primary; its string decides (MS-CMPO 4)."""
        return str(self.cid) > str(name.cid)

    # ---------------------------------------------------------------- sessions, client side

    def session(self, partner: str | PeerName | Peer, timeout: float = 20.0) -> PeerSession:
        """Find or build the session with a partner (MS-CMPO 3.4.6.1)."""
        name, deadline = self._name(partner), time.monotonic() + timeout
        binding = None
        while True:
            with self._cond:
                if not self.running:
                    raise PeerCrashed("session")
                session = self._sessions.get(name.key)
                if session is None and binding:
                    session = PeerSession(name, self._primary(name), binding)
                    session.building = True
                    self._sessions[name.key] = session
                    break
                if session is not None and session.state == "Active":
                    if binding:
                        binding.close()
                    return session
                if session is not None:
                    if time.monotonic() > deadline:
                        raise PeerError(f"the session with {name.host} is {session.state}")
                    self._cond.wait(0.2)
                    continue
            binding = self.binding(name)
        self._establish(session)
        with self._cond:
            while session.state in ("Connecting", "Confirming Connection"):
                if time.monotonic() > deadline:
                    break
                self._cond.wait(0.2)
            if session.state != "Active":
                self._down(session, "setup failed")
                raise PeerError(f"no session with {name.host}: error 0x{session.error:08X}")
        return session

    def _establish(self, session: PeerSession) -> None:
        """Call BuildContext as primary, or Poke as secondary, with retries."""
        op = "BuildContext" if session.primary else "Poke"
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.retry_delay)
            with self._lock:
                if session.dead or session.state == "Active":
                    break
                if session.primary:
                    session.state, session.guid = "Connecting", str(uuid.uuid4())
                elif session.state != "Connecting":
                    break
            answer = self._call_wide(
                session,
                op,
                self.bind_args(session.name, session.rank, **({"pszGuidIn": session.guid} if session.primary else {})),
                self.setup_timeout * 2,
            )
            with self._cond:
                error = session.error = answer["result"]
                if session.dead:
                    break
                if not error and not session.primary:
                    break  # wait for BuildContext
                good = answer.get("pszGuidOut", "").lower() == session.guid.lower()
                if not error and good and session.state == "Confirming Connection":
                    session.remote_handle = answer["ppHandle"]
                    self._activate(session)
                    break
                if error in (E_CM_VERSION_SET_NOTSUPPORTED, E_CM_S_PROTOCOL_NOT_SUPPORTED, E_CM_S_TIMEDOUT):
                    self._down(session, f"setup error 0x{error:08X}")
                    break
        else:
            with self._cond:
                if session.state != "Active":
                    self._down(session, "setup retries are used up")
        session.building = False

    def _call_wide(self, session: PeerSession, op: str, args: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Call the W form, or the other form if the partner lacks it.

        Return E_FAIL for a lost call, and the status of a fault.
        """
        while True:
            wide = session.wide and self.versions[1] >= 2
            try:
                answer = self.rpc(session.binding, op + ("W" if wide else ""), args, session.name.host, timeout)
                if answer["result"] != RPC_S_PROCNUM_OUT_OF_RANGE or not wide:
                    return answer
            except RpcFault as fault:
                if fault.status not in (NCA_OP_RANGE, RPC_S_PROCNUM_OUT_OF_RANGE) or not wide:
                    return {"result": fault.status}
            except RpcDown as error:
                return {"result": E_CM_S_TIMEDOUT if "timed out" in str(error) else E_FAIL}
            session.wide = False

    def _activate(self, session: PeerSession) -> None:
        """Set a session Active and start its sender; the caller holds the lock."""
        session.state, session.idle_since = "Active", time.monotonic()
        self._note("session active", session.name.host, primary=session.primary, version=session.version)
        self._cond.notify_all()
        self._spawn(self._sender, session)

    def _down(self, session: PeerSession, reason: str) -> None:
        """Remove a session and tell its connections (MS-CMPO 3.2.1.3, MS-CMP 3.1.7.2)."""
        with self._cond:
            if session.dead:
                return
            session.state = "Down"
            self._note("session down", session.name.host, reason=reason)
            if self._sessions.get(session.name.key) is session:
                del self._sessions[session.name.key]
            self._handles.pop(session.local_handle, None)
            connections = [*session.outgoing.values(), *session.incoming.values()]
            session.outgoing, session.incoming = {}, {}
            for connection in connections:
                connection.gone = True
                self._disconnected(connection)
            self._cond.notify_all()
        session.binding.close()

    def cut(self, partner: str | PeerName | Peer) -> None:
        """Drop the TCP connections of the session with a partner, in both directions."""
        session = self._sessions.get(self._name(partner).key)
        if session:
            self._cut(session)

    def _cut(self, session: PeerSession) -> None:
        self.server.cut_group(session.group)
        self._down(session, "cut")

    def teardown(self, partner: str | PeerName | Peer, kind: int = TT_FORCE, wait: bool = True) -> bool:
        """Tear the session down (MS-CMPO 3.4.6.2, 3.4.6.3); return False if there is none."""
        key = self._name(partner).key
        with self._cond:
            session = self._sessions.get(key)
            until = time.monotonic() + 1  # a session that is about to be Active
            while session and session.state == "Confirming Connection" and (time.monotonic() < until):
                self._cond.wait(0.05)
            if session is None or session.state != "Active":
                return False
            forced = kind == TT_FORCE
            session.state = "Requesting Teardown" if forced and not session.primary else "Teardown"
            self._cond.notify_all()
        op = "BeginTearDown" if forced and not session.primary else "TearDownContext"
        self._teardown_call(session, op, kind)
        if not forced:
            self._down(session, "problem teardown")
        if wait:
            try:
                self._wait(lambda: session.dead, self.teardown_timeout, "teardown")
            except PeerCrashed:
                raise
            except PeerError:
                self._down(session, "teardown timer")
        return True

    def _teardown_call(self, session: PeerSession, op: str, kind: int) -> None:
        args = {"contextHandle": session.remote_handle, "sRank": session.rank, "tearDownType": kind}
        try:
            self.rpc(session.binding, op, args, session.name.host, self.teardown_timeout)
        except (RpcFault, RpcDown):
            self._down(session, f"{op} fails")

    # ---------------------------------------------------------------- sessions, server side

    def _serve(self, call: RpcCall) -> bytes:
        """Serve one IXnRemote call: decode, hook, handle, hook, encode."""
        if call.server is not self.server or not self.running:
            raise RpcCut()
        op = OPNAMES.get(call.opnum)
        if op is None or (op.endswith("W") and self.versions[1] < 2):
            self._record("recv", "rpc", f"opnum {call.opnum}", "", size=len(call.stub))
            raise RpcFault(NCA_OP_RANGE)
        try:
            args = decode_call(op, call.stub)
        except (RpcFault, UnicodeDecodeError) as error:
            self._record("recv", "rpc", op, "", bad=str(error))
            raise
        session = self._handles.get(args.get("phContext") or args.get("contextHandle") or b"")
        partner = session.name.host if session else args.get("pszHostName", "?")
        event = PeerCall(op, partner, args, call.stub)
        self._record("recv", "rpc", op, partner, object=str(call.obj), fragments=call.fragments, **_short(args))
        answer = self._verdict(self.on_rpc_receive, event)
        if answer is None:
            handler = getattr(self, "_ixn_" + op.removesuffix("W").lower())
            answer = handler(args, session, call)
        event.answer = answer
        answer = self._verdict(self.on_rpc_answer, event) or event.answer
        self._record("send", "answer", op, partner, **_short(answer))
        return encode_answer(op, answer)

    def _verdict(self, hook: Callable[[PeerCall], Any] | None, event: PeerCall) -> Any:
        verdict = hook(event) if hook else None
        if verdict == CUT:
            raise RpcCut()
        if verdict == CRASH:
            self.crash()
            raise RpcCut()
        if verdict == NO_ANSWER:
            raise RpcNoAnswer()
        return verdict

    def _caller(self, args: dict[str, Any]) -> PeerName | int:
        """Return the caller's name object, or the HRESULT of an invalid argument."""
        try:
            callee, cid = uuid.UUID(args["pszCalleeUuid"]), uuid.UUID(args["pszUuidString"])
        except ValueError:
            return E_INVALIDARG
        size, protocols = struct.unpack("<II", args["rguchBlob"])
        if callee != self.cid or cid == self.cid or size != 8 or not args["pszHostName"]:
            return E_INVALIDARG
        protocols = protocols or PROT_IP_TCP  # MS-CMPO 2.2.4
        if not protocols & PROT_IP_TCP:
            return E_CM_S_PROTOCOL_NOT_SUPPORTED
        return PeerName(args["pszHostName"], cid, protocols)

    def _ixn_poke(self, args: dict[str, Any], _: None, call: RpcCall) -> dict[str, Any]:
        """Poke as callee (MS-CMPO 3.3.4.1): a primary starts BuildContext in another thread."""
        name = self._caller(args)
        if isinstance(name, int):
            return {"result": name}
        if args["sRank"] != SECONDARY or not self._primary(name):
            return {"result": E_INVALIDARG}
        try:
            binding = self.binding(name)
        except PeerError:
            return {"result": E_FAIL}
        with self._cond:
            session = self._sessions.get(name.key)
            if session is None:
                session = PeerSession(name, True, binding)
                self._sessions[name.key] = session
            elif session.state != "Connecting":
                return {"result": E_CM_SERVER_NOT_READY}
            if not session.building:
                session.building = True
                self._spawn(self._establish, session)
        return {"result": S_OK}

    def _bound(self, wanted: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Compute the BOUND_VERSION_SET (MS-CMPO 3.3.4.2.1)."""
        found = [min(wanted[n + 1], self.versions[n + 1]) for n in (0, 2, 4)]
        low = [max(wanted[n], self.versions[n]) for n in (0, 2, 4)]
        return tuple(found) if all(a >= b for a, b in zip(found, low, strict=False)) else None

    def _ixn_buildcontext(self, args: dict[str, Any], _: None, call: RpcCall) -> dict[str, Any]:
        """BuildContext as callee (MS-CMPO 3.3.4.2)."""
        name = self._caller(args)
        if isinstance(name, int):
            return {"result": name}
        if args["sRank"] == PRIMARY and not self._primary(name):
            return self._build_as_secondary(name, args, call)
        if args["sRank"] != SECONDARY or not self._primary(name):
            return {"result": E_INVALIDARG}
        with self._cond:
            session = self._sessions.get(name.key)
            if session is None:
                return {"result": E_CM_SESSION_DOWN}
            if session.state not in ("Connecting", "Confirming Connection"):
                return {"result": E_CM_SERVER_NOT_READY}
            if args["pszGuidIn"].lower() != session.guid.lower():
                return {"result": E_INVALIDARG}
            session.version = self._bound(args["BindVersionSet"]) or (0, 0, 0)
            if not session.version[0]:
                self._down(session, "versions")
                return {"result": E_CM_VERSION_SET_NOTSUPPORTED}
            session.state = "Confirming Connection"
            return self._bind_answer(session, call)

    def _bind_answer(self, session: PeerSession, call: RpcCall) -> dict[str, Any]:
        self._handles.pop(session.local_handle, None)
        session.local_handle, session.group = bytes(4) + uuid.uuid4().bytes_le, call.group
        self._handles[session.local_handle] = session
        return {
            "result": S_OK,
            "pszGuidOut": session.guid,
            "pBoundVersionSet": session.version,
            "ppHandle": session.local_handle,
        }

    def _build_as_secondary(self, name: PeerName, args: dict[str, Any], call: RpcCall) -> dict[str, Any]:
        """The nested callback of a secondary partner (MS-CMPO 3.3.4.2.1)."""
        version = self._bound(args["BindVersionSet"])
        try:
            binding = self.binding(name)
        except PeerError:
            return {"result": E_FAIL}
        with self._cond:
            session = self._sessions.get(name.key)
            if session is not None and session.state != "Connecting":
                return {"result": E_CM_SERVER_NOT_READY}
            if session is None:
                session = PeerSession(name, False, binding)
                self._sessions[name.key] = session
            session.state, session.guid = "Confirming Connection", args["pszGuidIn"]
            if version is None:
                session.error = E_CM_VERSION_SET_NOTSUPPORTED
                self._down(session, "versions")
                return {"result": E_CM_VERSION_SET_NOTSUPPORTED}
            session.version = version
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.retry_delay)
            answer = self._call_wide(
                session, "BuildContext", self.bind_args(name, SECONDARY, pszGuidIn=session.guid), self.setup_timeout / 2
            )
            error = answer["result"]
            if not error and answer.get("pszGuidOut", "").lower() != session.guid.lower():
                error = E_FAIL
            if (
                not error
                or session.dead
                or error
                in (E_CM_VERSION_SET_NOTSUPPORTED, E_CM_S_PROTOCOL_NOT_SUPPORTED, E_CM_S_TIMEDOUT, E_CM_SESSION_DOWN)
            ):
                break
        with self._cond:
            if error or session.dead:
                session.error = error or E_FAIL
                self._down(session, f"callback error 0x{session.error:08X}")
                return {"result": session.error}
            session.remote_handle = answer["ppHandle"]
            out = self._bind_answer(session, call)
            self._activate(session)
            return out

    def _live(self, session: PeerSession | None) -> PeerSession:
        """Check a context handle; wait shortly for a session that is about to be Active."""
        if session is None:
            raise RpcFault(NCA_CONTEXT_MISMATCH)
        with self._cond:
            until = time.monotonic() + 2
            while session.state == "Confirming Connection" and time.monotonic() < until:
                self._cond.wait(0.1)
        return session

    def _ixn_negotiateresources(
        self, args: dict[str, Any], session: PeerSession | None, call: RpcCall
    ) -> dict[str, Any]:
        session, wanted = self._live(session), args["dwcRequested"]
        if session.state != "Active":
            return {"result": E_CM_SERVER_NOT_READY}
        if args["resourceType"] != RT_CONNECTIONS or not 1 <= wanted <= 1000:
            return {"result": E_INVALIDARG}
        with self._lock:
            accepted = min(wanted, self.max_incoming - session.in_allocated)
            if accepted < 1:
                return {"result": E_CM_OUTOFRESOURCES}
            session.in_allocated += accepted
        return {"result": S_OK, "pdwcAccepted": accepted}

    def _ixn_sendreceive(self, args: dict[str, Any], session: PeerSession | None, call: RpcCall) -> dict[str, Any]:
        session = self._live(session)
        if session.state in ("Teardown", "Requesting Teardown"):
            return {"result": E_CM_TEARING_DOWN}
        if session.state != "Active":
            return {"result": E_CM_SERVER_NOT_READY}
        messages, problems = decode_boxcar(args["rguchBoxCar"])
        if args["dwcMessages"] != struct.unpack_from("<I", args["rguchBoxCar"], 12)[0]:
            problems.append("dwcMessages differs from the header")
        if problems:
            self._note("bad boxcar", session.name.host, problems=problems)
        with session.receiving:
            for message in messages:
                self._receive(session, message)
        return {"result": S_OK}

    def _ixn_teardowncontext(self, args: dict[str, Any], session: PeerSession | None, call: RpcCall) -> dict[str, Any]:
        """TearDownContext as callee (MS-CMPO 3.3.4.5)."""
        if session is None:
            raise RpcFault(NCA_CONTEXT_MISMATCH)
        if args["tearDownType"] == TT_PROBLEM or session.primary:
            self._spawn_down(session, "TearDownContext")
            return {"result": S_OK}
        with self._cond:
            session.state = "Teardown"
            self._handles.pop(session.local_handle, None)
            self._cond.notify_all()
        if self.teardown_nested:
            self._finish_teardown(session)
        else:
            self._spawn(self._finish_teardown, session)
        return {"result": S_OK}

    def _spawn_down(self, session: PeerSession, reason: str) -> None:
        """Take the session down after this peer's own outer call on its binding has returned."""
        with self._cond:
            session.binding, old = RpcBinding(session.binding.address, IXN_REMOTE), session.binding
            self._down(session, reason)

        def later() -> None:
            time.sleep(0.3)
            old.close()

        self._spawn(later)

    def _finish_teardown(self, session: PeerSession) -> None:
        self._teardown_call(session, "TearDownContext", TT_FORCE)
        self._down(session, "torn down")

    def _ixn_beginteardown(self, args: dict[str, Any], session: PeerSession | None, call: RpcCall) -> dict[str, Any]:
        """BeginTearDown as callee (MS-CMPO 3.3.4.6)."""
        if session is None:
            raise RpcFault(NCA_CONTEXT_MISMATCH)
        if not session.primary or args["tearDownType"] != TT_FORCE:
            return {"result": E_INVALIDARG}
        with self._cond:
            if session.state == "Teardown":
                return {"result": S_OK}
            session.state = "Teardown"
            self._cond.notify_all()

        def later() -> None:
            self._teardown_call(session, "TearDownContext", TT_FORCE)
            try:
                self._wait(lambda: session.dead, self.teardown_timeout, "teardown")
            except PeerCrashed:
                return
            except PeerError:
                self._down(session, "teardown timer")

        self._spawn(later)
        return {"result": S_OK}

    def _rundown(self, group: int) -> None:
        """Context handle rundown (MS-CMPO 3.3.6.1)."""
        for session in [s for s in list(self._handles.values()) if s.group == group]:
            self._down(session, "rundown")

    def _maintain(self, epoch: int) -> None:
        """Send pings and tear idle sessions down (MS-CMP 3.1.5.4, 3.1.6.1)."""
        pinged = time.monotonic()
        while epoch == self._epoch:
            time.sleep(0.05)
            now = time.monotonic()
            for session in list(self._sessions.values()):
                if session.state != "Active":
                    continue
                if self.ping_interval and now - pinged > self.ping_interval:
                    self.enqueue(session, PeerMessage(MTAG_PING))
                if (
                    self.idle_timeout
                    and not session.outgoing
                    and not session.incoming
                    and now - session.idle_since > self.idle_timeout
                ):
                    self._note("idle", session.name.host)
                    self.teardown(session.name)
            if self.ping_interval and now - pinged > self.ping_interval:
                pinged = now

    # ---------------------------------------------------------------- MS-CMP

    def enqueue(self, session: PeerSession, *messages: PeerMessage) -> None:
        """Put messages into the boxcar queue of a session (MS-CMP 3.1.7.1)."""
        with self._cond:
            session.queue.extend(messages)
            self._cond.notify_all()

    def _filter(
        self, direction: str, session: PeerSession, message: PeerMessage
    ) -> tuple[list[PeerMessage], str | None]:
        """Apply the rules, then the hook; return the messages and an action."""
        for rule in list(self.rules):
            if rule.direction == direction and rule.name == message.name and rule.count > 0:
                rule.count -= 1
                verdict = rule.action(session, message) if callable(rule.action) else rule.action
                break
        else:
            hook = self.on_send if direction == "send" else self.on_receive
            verdict = hook(session, message) if hook else None
        if verdict is None:
            return [message], None
        if isinstance(verdict, (int, float)):
            time.sleep(verdict)
            return [message], None
        if isinstance(verdict, list):
            return verdict, None
        self._note(verdict, session.name.host, at=f"{direction} {message.name}")
        if verdict == "drop":
            return [], None
        if verdict == "twice":
            return [message, message], None
        return [message], verdict

    def _act(self, session: PeerSession, action: str) -> None:
        if action.startswith(CRASH):
            self.crash()
        else:
            self._cut(session)

    def _sender(self, session: PeerSession) -> None:
        """Send the boxcars of a session, one at a time."""
        while True:
            with self._cond:
                session.sending = False
                self._cond.notify_all()
                while not session.dead and (not session.queue or session.state != "Active"):
                    self._cond.wait()
                if session.dead:
                    return
                session.sending = True
                batch, size = [], 16
                while session.queue and len(batch) < MAX_MESSAGES:
                    size += 24 + (len(session.queue[0].body) + 7 & ~7)
                    if batch and size > MAX_BOXCAR:
                        break
                    batch.append(session.queue.popleft())
            out: list[PeerMessage] = []
            for message in batch:
                messages, action = self._filter("send", session, message)
                if action in (CUT_AFTER, CRASH_AFTER):
                    self._transmit(session, out + messages)
                elif action is None:
                    out += messages
                    continue
                else:
                    self._transmit(session, out)
                self._act(session, action)
                return
            self._transmit(session, out)

    def _transmit(self, session: PeerSession, messages: list[PeerMessage]) -> None:
        if not messages or session.dead:
            return
        data, count = encode_boxcar(messages), len(messages)
        for message in messages:
            self._record("send", "cmp", message.name, session.name.host, **_message(message))
        changed = self.on_boxcar(session, data, count) if self.on_boxcar else None
        if changed is not None:
            data, count = changed
        try:
            error = self.send_boxcar(session, data, count)
        except (RpcFault, RpcDown) as failure:
            self._down(session, f"SendReceive fails: {failure}")
            return
        if error:
            self._down(session, f"SendReceive returns 0x{error:08X}")

    def send_boxcar(self, session: PeerSession, data: bytes, count: int = 1, **changes: Any) -> int:
        """Call SendReceive with a raw boxcar; `changes` replace arguments (see encode_call)."""
        args = {"phContext": session.remote_handle, "dwcMessages": count, "rguchBoxCar": data}
        return self.rpc(session.binding, "SendReceive", args | changes, session.name.host)["result"]

    def flush(self, session: PeerSession, timeout: float = 10.0) -> None:
        """Wait until the boxcar queue of a session is sent."""
        self._wait(lambda: session.dead or not (session.queue or session.sending), timeout, "flush")

    def open(self, partner: str | PeerName | Peer, kind: int) -> PeerConnection:
        """Allocate an outgoing connection (MS-CMP 3.1.4.2); `start` requests it."""
        session = self.session(partner)
        for _attempt in range(40):
            with self._cond:
                if session.dead:
                    raise PeerError("the session is down")
                if len(session.outgoing) < session.out_allocated:
                    ident = next(n for n in range(1, 1 << 32) if n not in session.outgoing)
                    connection = PeerConnection(session, ident, kind, True)
                    session.outgoing[ident] = connection
                    return connection
            try:
                answer = self.rpc(
                    session.binding,
                    "NegotiateResources",
                    {
                        "phContext": session.remote_handle,
                        "resourceType": RT_CONNECTIONS,
                        "dwcRequested": self.negotiate,
                    },
                    session.name.host,
                )
            except (RpcFault, RpcDown) as error:
                self._down(session, f"NegotiateResources fails: {error}")
                raise PeerError(str(error)) from error
            if answer["result"] == E_CM_SERVER_NOT_READY:
                time.sleep(0.05)
            elif answer["result"]:
                raise PeerError(f"NegotiateResources returns 0x{answer['result']:08X}")
            with self._cond:
                session.out_allocated += answer["pdwcAccepted"]
        raise PeerError("no connection resources")

    def start(self, connection: PeerConnection, name: str = "", body: bytes = b"") -> None:
        """Request a connection and send its first message in the same boxcar."""
        with self._cond:
            if connection.gone:
                return
            if not connection.requested:
                connection.requested = True
                self.enqueue(connection.session, PeerMessage(MTAG_CONNECTION_REQ, 1, connection.id, connection.kind))
            if name:
                self.send(connection, name, body)

    def dial(self, partner: str | PeerName | Peer, kind: int, name: str = "", body: bytes = b"") -> PeerConnection:
        """Open a manual connection and send its first message; the test plays this end."""
        connection = self.open(partner, kind)
        connection.manual, connection.state = True, "Manual"
        self.start(connection, name, body)
        return connection

    def links(self, guid: uuid.UUID) -> list[PeerConnection]:
        """The connections of a transaction: that to the superior, then those to subordinates."""
        with self._lock:
            tx = self._tx(guid)
            found = [tx.superior] if tx.superior else []
            return [e.connection for e in found + tx.phase_one + tx.phase_two if e.connection]

    def send(self, connection: PeerConnection, name: str | int, body: bytes = b"") -> None:
        """Send a user message on a connection (MS-CMP 3.1.4.1)."""
        kind = name if isinstance(name, int) else USER_TYPES[name]
        with self._cond:
            if connection.gone or connection.session.dead:
                self._note("not sent", connection.session.name.host, message=name)
                return
            self.enqueue(
                connection.session, PeerMessage(MTAG_USER_MESSAGE, int(connection.initiator), connection.id, kind, body)
            )

    def end(self, connection: PeerConnection) -> None:
        """Set a connection Ended; its initiator disconnects it (MS-DTCO 3.1.1)."""
        with self._cond:
            connection.state = "Ended"
            if connection.initiator and not connection.disconnecting and not connection.gone:
                connection.disconnecting = True
                self.enqueue(connection.session, PeerMessage(MTAG_DISCONNECT, 1, connection.id, connection.kind))
            self._cond.notify_all()

    def _receive(self, session: PeerSession, message: PeerMessage) -> None:
        """Process a received message and apply the hooks."""
        self._record("recv", "cmp", message.name, session.name.host, **_message(message))
        messages, action = self._filter("recv", session, message)
        if action in (CUT, CRASH):
            self._act(session, action)
            raise RpcCut()
        for message in messages:
            with self._cond:
                if session.dead:
                    raise RpcCut()
                self._process(session, message)
        if action:
            self._act(session, action)
            raise RpcCut()

    def _process(self, session: PeerSession, message: PeerMessage) -> None:
        """MS-CMP 3.1.5; the caller holds the lock."""
        incoming = session.incoming.get(message.connection)
        outgoing = session.outgoing.get(message.connection)
        if message.tag == MTAG_CONNECTION_REQ:
            if len(session.incoming) >= session.in_allocated or incoming:
                self._note("connection request ignored", session.name.host)
                return
            connection = PeerConnection(session, message.connection, message.type, False)
            session.incoming[connection.id] = connection
            reason = self.deny.get(message.type)
            if message.type not in {*CONNECTION_TYPES, *self.manual} and reason is None:
                reason = E_INVALIDARG  # MS-DTCO 3.1.8.4
            if reason is not None:
                self.enqueue(
                    session, PeerMessage(MTAG_CONNECTION_REQ_DENIED, 0, connection.id, 0, struct.pack("<I", reason))
                )
            connection.accepted = reason is None
            if message.type in self.manual:
                connection.manual, connection.state, connection.accepted = True, "Manual", True
                self.accepted.put(connection)
        elif message.tag == MTAG_USER_MESSAGE:
            connection = incoming if message.master else outgoing  # see NOTES.md
            if connection and connection.accepted:
                self._user_message(connection, message)
            else:
                self._note("message ignored", session.name.host, message=message.name)
        elif message.tag == MTAG_DISCONNECT and incoming:
            del session.incoming[incoming.id]
            session.idle_since = time.monotonic()
            incoming.gone = True
            self._disconnected(incoming)
            self.enqueue(session, PeerMessage(MTAG_DISCONNECTED, 0, incoming.id, 0))
        elif message.tag == MTAG_DISCONNECTED and outgoing and outgoing.disconnecting:
            del session.outgoing[outgoing.id]
            session.idle_since = time.monotonic()
            outgoing.gone = True
            self._disconnected(outgoing)
        elif message.tag == MTAG_CONNECTION_REQ_DENIED and outgoing:
            reason = struct.unpack("<I", message.body)[0] if len(message.body) == 4 else 0
            self._note("denied", session.name.host, reason=f"0x{reason:08X}")
            if outgoing.result is None:
                outgoing.result = f"denied 0x{reason:08X}"
            self._disconnected(outgoing)
            self.end(outgoing)
        self._cond.notify_all()

    # ---------------------------------------------------------------- MS-DTCO, dispatch

    def _user_message(self, c: PeerConnection, m: PeerMessage) -> None:
        name = m.name
        if c.manual:
            c.messages.put(m)
        elif m.type in USER_TYPES.values() and len(m.body) != BODY_SIZES.get(m.type, 0):
            self._invalid(c, m, "size")
        elif c.state == "Ended" and not self.strict:
            self._note("message after the end", c.session.name.host, message=name)
        elif name == "PROTOCOL_ERROR" and c.kind in (PROPAGATE, BRANCH):
            self._disconnected(c)
            self.end(c)
        elif c.kind == CHECKABORT and not c.initiator and c.state == "Idle" and name == "CHECKABORT_CHECK":
            self._checkabort(c, uuid.UUID(bytes_le=m.body))
        elif c.kind == REDELIVERCOMMIT and not c.initiator and c.state == "Idle" and name == "REDELIVER_COMMITREQ":
            self._redelivered(c, uuid.UUID(bytes_le=m.body))
        elif (
            c.kind in (CHECKABORT, REDELIVERCOMMIT)
            and c.initiator
            and c.state == "Awaiting Confirmation"
            and name in ("CHECKABORT_ABORTED", "CHECKABORT_RETRY", "REDELIVER_COMMITREQDONE", "REDELIVER_RETRY")
        ):
            c.state = "Waiting to Rerequest"
            c.inbox.put(name)
        elif c.kind in (PROPAGATE, BRANCH):
            superior = c.initiator == (c.kind == PROPAGATE)
            if not (self._superior if superior else self._subordinate)(c, name, m.body):
                self._invalid(c, m, f"state {c.state}")
        else:
            self._invalid(c, m, f"state {c.state}")

    def _invalid(self, c: PeerConnection, m: PeerMessage, why: str) -> None:
        """An invalid message (MS-DTCO 3.1.6) ends the connection as a disconnect does."""
        self._note("invalid", c.session.name.host, message=m.name, why=why, kind=CONNECTION_TYPES.get(c.kind, c.kind))
        if c.kind in (PROPAGATE, BRANCH):
            self.send(c, "PROTOCOL_ERROR")
        self._disconnected(c)
        self.end(c)

    def _disconnected(self, c: PeerConnection) -> None:
        """Connection Disconnected (MS-DTCO 3.1.8.3 and the rules of each type)."""
        state, c.state = c.state, "Ended"
        if c.manual:
            c.messages.put(None)
        elif c.kind in (CHECKABORT, REDELIVERCOMMIT):
            c.inbox.put("down")
        elif state == "Ended" or c.kind not in (PROPAGATE, BRANCH):
            pass
        elif c.initiator == (c.kind == PROPAGATE):
            self._superior_lost(c, state)
        else:
            self._subordinate_lost(c, state)
        if c.result is None and state in ("Awaiting Propagation Response", "Awaiting Branch Response"):
            c.result = "comm_failed"
        self._cond.notify_all()

    # ---------------------------------------------------------------- MS-DTCO, superior

    def begin(self, description: str = "", level: int = 0x100000, guid: uuid.UUID | None = None) -> uuid.UUID:
        """Begin a root transaction."""
        tx = PeerTransaction(guid or uuid.uuid4(), True, level, description)
        with self._lock:
            self._txs[tx.guid] = tx
        return tx.guid

    def push(self, guid: uuid.UUID, partner: str | PeerName | Peer, timeout: float = 20.0) -> str:
        """Propagate a transaction (MS-DTCO 3.7.7.10).

        Return "propagated", "duplicate", "no_mem", "log_full", "comm_failed", "too_late" or
        "denied 0x...".
        """
        tx = self._tx(guid)
        try:
            c = self.open(partner, PROPAGATE)
        except PeerCrashed:
            raise
        except PeerError as error:
            self._note("push", error=str(error))
            return "comm_failed"
        with self._cond:
            c.tx, c.state = tx, "Awaiting Propagation Response"
            self.start(c, "PROPAGATE_PROPAGATE", propagate_body(guid, tx.level, tx.description))
        return self._wait(lambda: c.result or (c.gone and "comm_failed"), timeout, "push")

    def token(self, guid: uuid.UUID, version: int = 3) -> PeerToken:
        """Return the Propagation_Token of a transaction of this peer."""
        tx = self._tx(guid)
        return PeerToken(guid, self.me, tx.level, 5, tx.description, version)

    def whereabouts(self) -> bytes:
        return build_whereabouts(self.me)

    def commit(
        self,
        guid: uuid.UUID,
        single_phase: bool = False,
        local_vote: Callable[[], str] | None = None,
        timeout: float = 30.0,
    ) -> str:
        """Commit a root transaction; return "committed", "aborted" or "in_doubt".

        `local_vote` is a local participant that votes "ok", "abort" or "read_only".
        `single_phase` allows single-phase commit when there is one enlistment.
        """
        if guid not in self._txs and guid in self.history:
            return self.history[guid]
        tx = self._tx(guid)
        with self._cond:
            if not tx.root:
                raise PeerError("only the root commits")
            if tx.outcome is None:
                self._phase_zero(tx, timeout)
            if tx.outcome is None:
                tx.local = None if local_vote else "read_only"
                self._begin_phase_one(tx, single_phase and not local_vote)
        if local_vote and tx.outcome is None:
            vote = local_vote()
            with self._cond:
                self._local_vote(tx, vote)
        return self._wait(lambda: tx.outcome, timeout, "commit")

    def _phase_zero(self, tx: PeerTransaction, timeout: float) -> None:
        """Run phase zero in waves (MS-DTCO 3.2.7.5, 3.7.7.3)."""
        while True:
            wave = [e for e in tx.phase_one if e.state == "Requesting Phase Zero"]
            if not wave or tx.outcome:
                return
            tx.state = "Phase Zero"
            for e in wave:
                self.send(e.connection, "PHASE0")
                e.connection.state = "Phase Zero"
            self._wait(
                lambda wave=wave: tx.outcome or not [e for e in wave if e.state in PHASE0_STATES], timeout, "phase zero"
            )

    def abort(self, guid: uuid.UUID) -> None:
        """Abort a root transaction, or an active transaction of a superior (unilateral abort)."""
        tx = self._tx(guid)
        with self._cond:
            if tx.superior and tx.superior.connection:
                c = tx.superior.connection
                if c.state in ("Prepared", "Ended", "Preparing"):
                    raise PeerError(f"no unilateral abort in state {c.state}")
                self.send(c, "ABORTNOTIFY")
                self.end(c)
            elif tx.state not in ("Active", "Phase Zero", "Phase One"):
                raise PeerError(f"no abort in state {tx.state}")
            self._notify_aborted(tx)

    def outcome(self, guid: uuid.UUID) -> str | None:
        """The outcome that this peer knows: committed, aborted, read_only, in_doubt or None."""
        return self.history.get(guid)

    def wait_outcome(self, guid: uuid.UUID, timeout: float = 10.0) -> str:
        return self._wait(lambda: self.history.get(guid), timeout, "outcome")

    def wait_forgotten(self, guid: uuid.UUID, timeout: float = 10.0) -> None:
        """Wait until the transaction is forgotten, that is, until all its notices are acknowledged."""
        self._wait(lambda: guid not in self._txs, timeout, "forget")

    def wait_state(self, guid: uuid.UUID, state: str, timeout: float = 10.0) -> None:
        """Wait for the state of a transaction or of its connection to the superior."""

        def test() -> bool:
            tx = self._txs.get(guid)
            return tx is not None and (tx.state == state or (tx.superior is not None and tx.superior.state == state))

        self._wait(test, timeout, f"state {state}")

    def transactions(self) -> dict[uuid.UUID, str]:
        """The transaction table: identifier -> state."""
        with self._lock:
            return {guid: tx.state for guid, tx in self._txs.items()}

    def _tx(self, guid: uuid.UUID) -> PeerTransaction:
        tx = self._txs.get(guid)
        if tx is None:
            raise PeerError(f"no transaction {guid}")
        return tx

    def _set_outcome(self, tx: PeerTransaction, outcome: str) -> None:
        if tx.outcome is None:
            tx.outcome = outcome
        self.history[tx.guid] = tx.outcome
        self._cond.notify_all()

    def _forget(self, tx: PeerTransaction) -> None:
        """Forget Transaction (3.2.7.22)."""
        tx.state = "Ended"
        self._txs.pop(tx.guid, None)
        if any(record["tx"] == str(tx.guid) for record in self.log_records()):
            self._log("forget", tx)
        self._cond.notify_all()

    def _superior(self, c: PeerConnection, name: str, body: bytes) -> bool:
        """A message for the superior facet (MS-DTCO 3.7.5.1); return False if it is invalid."""
        tx, e = c.tx, c.enlistment
        if name == "BRANCHING" and c.kind == BRANCH and c.state == "Idle":
            self._branching(c, uuid.UUID(bytes_le=body))
        elif c.state == "Awaiting Propagation Response" and name in (
            "PROPAGATE_PROPAGATED",
            "DUPLICATE",
            "NO_MEM",
            "LOG_FULL",
        ):
            c.result = name.removeprefix("PROPAGATE_").lower()
            if c.result != "propagated":
                self.end(c)
                return True
            c.state = "Active"
            c.enlistment = PeerEnlistment(tx, c.session.name, c)
            if tx.state in ("Active", "Phase Zero"):
                tx.phase_one.append(c.enlistment)
            else:  # 3.2.7.27 does not end it: NOTES.md
                c.result = "too_late"
                self._begin_rollback(c.enlistment)
        elif e is None:
            return False
        elif name == "PHASE0REGISTER" and c.state in ("Active", "Phase Zero"):
            good = tx.state in ("Active", "Phase Zero")
            self.send(c, "PHASE0REGISTERED" if good else "PHASE0REGISTRATIONREJECTED")
            if good:
                c.state = "Requesting Phase Zero" if c.state == "Active" else "Phase Zero with Outstanding Registration"
        elif name == "PHASE0COMPLETE" and c.state == "Phase Zero":
            c.state = "Active"
        elif name == "PHASE0COMPLETE" and c.state == "Phase Zero with Outstanding Registration":
            c.state = "Requesting Phase Zero"
        elif name == "ABORTNOTIFY" and c.state in ("Active", "Requesting Phase Zero", "Phase Zero"):
            self.end(c)
            self._drop(e)
            self._notify_aborted(tx)
        elif name == "PREPAREREQDONE" and c.state == "Awaiting Prepare Response":
            vote = VOTE_NAMES.get(struct.unpack_from("<I", body)[0])
            if vote is None:
                return False
            c.state = "Prepared"
            if vote != "ok":
                self.end(c)
            self._vote_arrived(e, vote)
        elif c.state == "Awaiting Abort Response" and (
            name == "ABORTREQDONE" or (not self.strict and name == "ABORTNOTIFY")
        ):
            self.end(c)
            self._rollback_complete(e)
        elif c.state == "Awaiting Abort Response" and name in ("PREPAREREQDONE", "PHASE0COMPLETE") and not self.strict:
            pass  # it crosses with ABORTREQ
        elif name == "COMMITREQDONE" and c.state == "Awaiting Commit Response":
            self.end(c)
            self._commit_done(e)
        else:
            return False
        return True

    def _branching(self, c: PeerConnection, guid: uuid.UUID) -> None:
        """Create Subordinate Enlistment (3.2.7.11)."""
        tx = self._txs.get(guid)
        if tx is None:
            self.send(c, "BRANCH_TX_NOT_FOUND")
            self.end(c)
        elif tx.state not in ("Active", "Phase Zero"):
            self.send(c, "BRANCH_TOO_LATE")
            self.end(c)
        elif len(tx.phase_one) >= self.max_subordinates:
            self.send(c, "BRANCH_TOO_MANY")
            self.end(c)
        else:
            c.tx, c.state = tx, "Active"
            c.enlistment = PeerEnlistment(tx, c.session.name, c)
            tx.phase_one.append(c.enlistment)
            self.send(c, "BRANCHED")

    def _superior_lost(self, c: PeerConnection, state: str) -> None:
        """A disconnect at the superior (3.7.5.1.2.1)."""
        e, tx = c.enlistment, c.tx
        if e is None:
            return
        if state == "Awaiting Prepare Response":
            self._vote_arrived(e, "single_indoubt" if tx.state == "Single Phase Commit" else "abort")
        elif state == "Awaiting Commit Response":
            self._redeliver(e)
        elif state == "Awaiting Abort Response":
            self._rollback_complete(e)
        elif state != "Prepared":
            self._drop(e)
            self._notify_aborted(tx)

    def _drop(self, e: PeerEnlistment) -> None:
        for table in (e.tx.phase_one, e.tx.phase_two):
            if e in table:
                table.remove(e)

    # ---------------------------------------------------------------- MS-DTCO, core

    def _begin_phase_one(self, tx: PeerTransaction, single: bool) -> None:
        """Begin Phase One (3.2.7.4, 3.7.7.2); a delegated single phase needs one enlistment."""
        tx.single = single
        delegate = single and len(tx.phase_one) == 1 and tx.local == "read_only"
        tx.state = "Single Phase Commit" if delegate else "Phase One"
        for e in list(tx.phase_one):
            self.send(e.connection, "PREPAREREQ", struct.pack("<II", 0, int(delegate)))
            e.connection.state = "Awaiting Prepare Response"
        self._check_votes(tx)

    def _vote_arrived(self, e: PeerEnlistment, vote: str) -> None:
        """Enlistment Phase One Complete (3.2.7.16)."""
        tx = e.tx
        if tx.state not in ("Phase One", "Single Phase Commit"):
            return
        if e in tx.phase_one:
            tx.phase_one.remove(e)
        if vote == "ok":
            tx.phase_two.append(e)
        elif vote == "abort" or (vote != "read_only" and tx.state == "Phase One"):
            self._phase_one_aborts(tx)
            return
        elif vote in ("single_commit", "single_indoubt"):
            outcome = "committed" if vote == "single_commit" else "in_doubt"
            if tx.superior:
                self._answer_prepare(tx, vote)
            self._set_outcome(tx, outcome)
            self._forget(tx)
            return
        self._check_votes(tx)

    def _local_vote(self, tx: PeerTransaction, vote: str) -> None:
        """Take the vote of the local participant; the caller holds the lock."""
        if tx.guid in self._txs and tx.state in ("Phase One", "Single Phase Commit"):
            tx.local = vote
            self._check_votes(tx)

    def _check_votes(self, tx: PeerTransaction) -> None:
        """Phase One Completed (3.2.7.25), when all votes are there."""
        if tx.local == "abort":
            self._phase_one_aborts(tx)
        elif tx.local is None or tx.phase_one:
            return
        elif not tx.phase_two and tx.local == "read_only":
            if tx.superior:
                self._answer_prepare(tx, "read_only")
            self._set_outcome(tx, "read_only" if tx.superior else "committed")
            self._forget(tx)
        elif tx.superior and tx.local == "single_indoubt":
            self._answer_prepare(tx, "single_indoubt")
            self._set_outcome(tx, "in_doubt")
            self._forget(tx)
        elif tx.superior and not (tx.single and tx.local == "single_commit"):
            tx.state = "In Doubt"
            self._log("in_doubt", tx)
            tx.state = "Phase One Complete"
            self._answer_prepare(tx, "ok")
        else:
            tx.state = "Failed to Notify"
            if tx.phase_two or tx.superior:
                self._log("commit", tx)
            self._set_outcome(tx, "committed")
            if tx.superior:
                self._answer_prepare(tx, "single_commit")
                tx.superior = None
            self._begin_commit(tx)

    def _phase_one_aborts(self, tx: PeerTransaction) -> None:
        if tx.superior:
            self._answer_prepare(tx, "abort")
        self._notify_aborted(tx)

    def _begin_commit(self, tx: PeerTransaction) -> None:
        """Begin Commit (3.2.7.2, 3.7.7.1)."""
        tx.state = "Committing"
        self._set_outcome(tx, "committed")
        for e in list(tx.phase_two):
            if e.state == "Ended":
                self._redeliver(e)
            else:
                self.send(e.connection, "COMMITREQ")
                e.connection.state = "Awaiting Commit Response"
        if not tx.phase_two:
            self._commit_complete(tx)

    def _commit_done(self, e: PeerEnlistment) -> None:
        """Enlistment Commit Complete (3.2.7.15)."""
        self._drop(e)
        if not e.tx.phase_two and e.tx.guid in self._txs:
            self._commit_complete(e.tx)

    def _commit_complete(self, tx: PeerTransaction) -> None:
        """Commit Complete (3.8.7.3), then Forget Transaction."""
        c = tx.superior.connection if tx.superior else None
        self._forget(tx)
        if c and c.state in ("Committing", "Processing Commit Inquiry"):
            self.send(c, "REDELIVER_COMMITREQDONE" if c.kind == REDELIVERCOMMIT else "COMMITREQDONE")
            self.end(c)

    def _notify_aborted(self, tx: PeerTransaction) -> None:
        """Notify Aborted (3.2.7.23)."""
        if tx.state in ("Aborting", "Ended"):
            return
        tx.state = "Aborting"
        self._set_outcome(tx, "aborted")
        tx.phase_two += tx.phase_one
        tx.phase_one = []
        for e in list(tx.phase_two):
            self._begin_rollback(e)
        if not tx.phase_two:
            self._forget(tx)

    def _begin_rollback(self, e: PeerEnlistment) -> None:
        """Begin Rollback at the superior facet (3.7.7.4)."""
        if e.state == "Ended":
            self._rollback_complete(e)
        else:
            self.send(e.connection, "ABORTREQ")
            e.connection.state = "Awaiting Abort Response"

    def _rollback_complete(self, e: PeerEnlistment) -> None:
        """Enlistment Rollback Complete (3.2.7.18)."""
        self._drop(e)
        if not e.tx.phase_two and e.tx.state == "Aborting":
            self._forget(e.tx)

    # ---------------------------------------------------------------- MS-DTCO, subordinate

    def pull(self, guid: uuid.UUID, partner: str | PeerName | Peer | PeerToken, timeout: float = 20.0) -> str:
        """Branch a transaction of a partner (MS-DTCO 3.8.7.1).

        Return "branched", "tx_not_found", "too_late", "log_full", "no_mem", "too_many",
        "comm_failed", "denied 0x..." or "known".
        """
        if isinstance(partner, PeerToken):
            guid, partner = partner.guid, partner.name
        if guid in self._txs:
            return "known"
        try:
            c = self.open(partner, BRANCH)
        except PeerCrashed:
            raise
        except PeerError as error:
            self._note("pull", error=str(error))
            return "comm_failed"
        with self._cond:
            c.tx, c.state = PeerTransaction(guid, False), "Awaiting Branch Response"
            self.start(c, "BRANCHING", guid.bytes_le)
        return self._wait(lambda: c.result or (c.gone and "comm_failed"), timeout, "pull")

    def register_phase0(self, guid: uuid.UUID, timeout: float = 10.0) -> bool:
        """Register for phase zero at the superior (3.8.7.9)."""
        tx = self._tx(guid)
        with self._cond:
            c = tx.superior.connection
            if c.state != "Active":
                return False
            c.state = "Awaiting Registration Response"
            self.send(c, "PHASE0REGISTER")
        self._wait(lambda: c.state != "Awaiting Registration Response", timeout, "phase zero")
        return c.state != "Active"

    def _subordinate(self, c: PeerConnection, name: str, body: bytes) -> bool:
        """A message for the subordinate facet (MS-DTCO 3.8.5.1); return False if invalid."""
        tx = c.tx
        if name == "PROPAGATE_PROPAGATE" and c.kind == PROPAGATE and c.state == "Idle":
            guid = uuid.UUID(bytes_le=body[:16])
            if guid in self._txs:
                self.send(c, "DUPLICATE")
                self.end(c)
                return True
            text = body[20:].split(b"\0", 1)[0].decode("latin-1")
            tx = PeerTransaction(guid, False, struct.unpack_from("<I", body, 16)[0], text)
            self._enlist(c, tx)
            self.send(c, "PROPAGATE_PROPAGATED")
        elif c.state == "Awaiting Branch Response" and name == "BRANCHED":
            self._enlist(c, tx)
            c.result = "branched"
        elif c.state == "Awaiting Branch Response" and name.startswith("BRANCH_"):
            c.result = name.removeprefix("BRANCH_").lower()
            self.end(c)
        elif name in ("PHASE0REGISTERED", "PHASE0REGISTRATIONREJECTED") and c.state == "Awaiting Registration Response":
            c.state = "Awaiting Phase Zero" if name == "PHASE0REGISTERED" else "Active"
        elif name == "PHASE0" and c.state == "Awaiting Phase Zero":
            c.state = "Awaiting Phase Zero Outcome"
            self._spawn(self._do_phase0, tx, c)
        elif name == "ABORTREQ" and (
            c.state in ("Active", "Prepared") or (c.state != "Committing" and c.enlistment and not self.strict)
        ):
            c.state = "Aborting"
            self._begin_tx_rollback(tx)
        elif name == "PREPAREREQ" and c.state == "Active":
            c.state = "Preparing"
            single = struct.unpack("<II", body)[1] != 0
            tx.local = None
            self._begin_phase_one(tx, single)
            if tx.state in ("Phase One", "Single Phase Commit"):
                self._spawn(self._ask_vote, tx, single)
        elif name == "COMMITREQ" and c.state == "Prepared":
            c.state = "Committing"
            self._begin_commit(tx)
        else:
            return False
        return True

    def _enlist(self, c: PeerConnection, tx: PeerTransaction) -> None:
        c.tx, c.state = tx, "Active"
        tx.superior = c.enlistment = PeerEnlistment(tx, c.session.name, c)
        self._txs[tx.guid] = tx

    def _do_phase0(self, tx: PeerTransaction, c: PeerConnection) -> None:
        good = self.phase0(tx.guid)
        with self._cond:
            if c.state == "Awaiting Phase Zero Outcome":
                self.send(c, "PHASE0COMPLETE" if good else "ABORTNOTIFY")
                c.state = "Active"
                if not good:
                    self.end(c)
                    self._notify_aborted(tx)

    def _ask_vote(self, tx: PeerTransaction, single: bool) -> None:
        """Get the vote of the test: auto, ok, abort, read_only, single_commit, single_indoubt."""
        vote = self.votes.get(tx.guid, self.vote)
        if callable(vote):
            vote = vote(tx.guid, single)
        if vote == "auto":
            vote = "single_commit" if single else "ok"
        if vote == "single_commit" and not single:
            vote = "ok"
        with self._cond:
            self._local_vote(tx, vote)

    def _answer_prepare(self, tx: PeerTransaction, vote: str) -> None:
        """Phase One Complete (3.8.7.7); a vote OK leaves the connection Prepared (NOTES.md)."""
        c = tx.superior.connection
        if c is None or c.state != "Preparing":
            if vote == "ok":
                self._recover_in_doubt(tx)
            return
        self.send(c, "PREPAREREQDONE", struct.pack("<I", PREPARE_VOTES[vote]) + bytes(16))
        if vote == "ok":
            c.state = "Prepared"
        else:
            self.end(c)
        self._cond.notify_all()

    def _begin_tx_rollback(self, tx: PeerTransaction) -> None:
        """Begin Rollback (3.2.7.6): Rollback Complete (3.8.7.10), then Notify Aborted."""
        c = tx.superior.connection if tx.superior else None
        if c and c.kind in (PROPAGATE, BRANCH) and c.state == "Aborting":
            self.send(c, "ABORTREQDONE")
            self.end(c)
        self._notify_aborted(tx)

    def _subordinate_lost(self, c: PeerConnection, state: str) -> None:
        """A disconnect at the subordinate (3.8.5.1.2.1)."""
        tx = c.tx
        if tx is None or c.enlistment is None or tx.superior is not c.enlistment:
            return
        if state == "Prepared":
            self._recover_in_doubt(tx)
        elif state == "Preparing" and tx.single:
            pass
        elif state not in ("Committing", "Aborting"):
            self._begin_tx_rollback(tx)
        elif state == "Committing" and not tx.phase_two:
            self._forget(tx)

    # ---------------------------------------------------------------- MS-DTCO, recovery

    def _checkabort(self, c: PeerConnection, guid: uuid.UUID) -> None:
        """CHECKABORT as acceptor (3.7.5.2.1.1)."""
        tx = self._txs.get(guid)
        if tx is None or tx.state in ("Aborting", "Ended"):
            self.send(c, "CHECKABORT_ABORTED")
            self.end(c)
        else:
            self.send(c, "CHECKABORT_RETRY")

    def _redelivered(self, c: PeerConnection, guid: uuid.UUID) -> None:
        """REDELIVERCOMMIT as acceptor (3.8.5.2.2.1)."""
        tx = self._txs.get(guid)
        if tx is None:
            self.send(c, "REDELIVER_COMMITREQDONE")
            self.end(c)
        elif tx.state in ("Phase One Complete", "In Doubt") and tx.superior:
            c.state, c.tx, c.enlistment = "Processing Commit Inquiry", tx, tx.superior
            tx.superior.connection = c  # the text does not say it: NOTES.md
            if tx.checking:
                tx.checking.inbox.put("cancel")
            self._begin_commit(tx)
        else:
            self.send(c, "REDELIVER_RETRY")

    def _recover(
        self,
        epoch: int,
        partner: PeerName,
        kind: int,
        request: str,
        guid: uuid.UUID,
        wanted: Callable[[], bool],
        opened: Callable[[PeerConnection], None],
        done: str,
    ) -> bool:
        """Ask on recovery connections until the answer `done`; return False if cancelled."""
        while epoch == self._epoch and wanted():
            try:
                c = self.open(partner, kind)
            except PeerCrashed:
                return False
            except PeerError:
                time.sleep(self.recovery_interval)
                continue
            with self._cond:
                opened(c)
            answer = self._ask(epoch, c, request, guid, wanted)
            with self._cond:
                self.end(c)
            if answer in (done, "cancel"):
                return answer == done
            time.sleep(self.recovery_interval)
        return False

    def _ask(self, epoch: int, c: PeerConnection, request: str, guid: uuid.UUID, wanted: Callable[[], bool]) -> str:
        """Send the request, and again after each RETRY, until another answer."""
        while epoch == self._epoch and wanted():
            with self._cond:
                c.state = "Awaiting Confirmation"
                self.start(c, request, guid.bytes_le)
            answer = ""
            while epoch == self._epoch and not answer:
                if c.gone and c.inbox.empty():
                    return "down"
                try:
                    answer = c.inbox.get(timeout=0.5)
                except queue.Empty:
                    continue
            if not answer.endswith("RETRY"):
                return answer
            try:
                return c.inbox.get(timeout=self.recovery_interval)  # "down" or "cancel"
            except queue.Empty:
                continue
        return "cancel"

    def _recover_in_doubt(self, tx: PeerTransaction) -> None:
        """Recover In Doubt Transaction (3.8.7.8)."""
        epoch, partner = self._epoch, tx.superior.name

        def opened(c: PeerConnection) -> None:
            tx.checking = c

        def run() -> None:
            if self._recover(
                epoch,
                partner,
                CHECKABORT,
                "CHECKABORT_CHECK",
                tx.guid,
                lambda: tx.state in ("Phase One Complete", "In Doubt") and self._txs.get(tx.guid) is tx,
                opened,
                "CHECKABORT_ABORTED",
            ):
                with self._cond:
                    if tx.state in ("Phase One Complete", "In Doubt"):
                        self._begin_tx_rollback(tx)

        self._spawn(run)

    def _redeliver(self, e: PeerEnlistment) -> None:
        """Begin Commit on an ended connection (3.7.7.1)."""
        epoch = self._epoch

        def opened(c: PeerConnection) -> None:
            c.tx, c.enlistment, e.connection = e.tx, e, c

        def run() -> None:
            if self._recover(
                epoch,
                e.name,
                REDELIVERCOMMIT,
                "REDELIVER_COMMITREQ",
                e.tx.guid,
                lambda: e in e.tx.phase_two and self._txs.get(e.tx.guid) is e.tx,
                opened,
                "REDELIVER_COMMITREQDONE",
            ):
                with self._cond:
                    self._commit_done(e)

        self._spawn(run)


def _short(args: dict[str, Any]) -> dict[str, Any]:
    """Shorten byte strings for the trace."""
    return {
        key: (f"{value[:20].hex()}({len(value)})" if isinstance(value, bytes) else value) for key, value in args.items()
    }


def _message(message: PeerMessage) -> dict[str, Any]:
    return {
        "tag": MTAG_NAMES.get(message.tag, message.tag),
        "master": message.master,
        "connection": message.connection,
        "type": hex(message.type),
        "body": message.body.hex(),
    }
