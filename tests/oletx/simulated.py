"""Transaction managers on a simulated network, with disks and crashes. The same seed gives the same run."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from openmsmq.model.errors import HResult, MsmqError, TransactionSequence
from openmsmq.oletx.manager import TransactionManager
from openmsmq.oletx.session import HIGHEST, LOWEST, BuildAnswer, CallAnswer, CallKind, PartnerCall, Session, Status
from openmsmq.oletx.structures import Partner

CALL = 12.0  # maximum seconds of a call


class Event:
    """A scheduled event."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Network:
    """Virtual time, and all scheduled events."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0  # number of calls, replies and syncs so far
        self.crash_at: dict[int, str] = {}  # step -> the site that crashes at it
        self.sites: dict[str, Site] = {}
        self.lost: Callable[[Site, PartnerCall], bool] = lambda site, call: False
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0

    def site(self, name: str, cid: int) -> Site:
        """Add a machine with simulated work."""
        site = self.sites[name] = Site(self, name, UUID(int=cid))
        return site

    def later(self, seconds: float, action: Callable[[], None]) -> Event:
        event = Event(action)
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, event))
        return event

    def latency(self) -> float:
        return self.random.uniform(0.001, 0.05)

    def step(self) -> None:
        """Count a step, at which a machine may crash."""
        self.steps += 1
        if (name := self.crash_at.get(self.steps)) is not None:
            self.sites[name].crash()

    def run(self, until: Callable[[], bool] = lambda: False, seconds: float = 600) -> None:
        """Process events until a condition holds, or this many seconds have passed."""
        end = self.now + seconds
        while self._events and not until():
            when, _, event = self._events[0]
            if when > end:
                break
            heapq.heappop(self._events)
            self.now = max(self.now, when)
            if event.action is not None:
                event.action()
        if not until():
            self.now = max(self.now, end)


class Work:
    """The local part of transactions, with a disk that keeps the synced data in a crash."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.log: list[tuple[Any, ...]] = []  # written entries
        self.durable = 0  # number of entries on the disk
        self.state: dict[bytes, str] = {}  # active, closed, prepared
        self.worked: set[bytes] = set()
        self.is_full = False
        self.is_held = False  # syncs do not complete
        self.dropped_syncs: list[Callable[[], None]] = []

    def restart(self) -> None:
        """Recover after a crash: the log ends at a random position after the last sync."""
        self.durable = self.site.network.random.randint(self.durable, len(self.log))
        del self.log[self.durable :]
        self.state = {entry[1]: "prepared" for entry in self.log if entry[0] == "prepare" and not self._ended(entry[1])}
        self.worked = {entry[1] for entry in self.log if entry[0] == "prepare" and entry[3]}

    def _ended(self, uow: bytes) -> bool:
        return any(entry[0] in ("commit", "abort") and entry[1] == uow for entry in self.log)

    def notes(self) -> list[tuple[bytes, bytes]]:
        return [(entry[1], entry[2]) for entry in self.log if entry[0] == "prepare" and not self._ended(entry[1])]

    def decisions(self) -> list[tuple[bytes, bytes]]:
        forgotten = {entry[1] for entry in self.log if entry[0] == "forget"}
        return [(e[1], e[2]) for e in self.log if e[0] == "commit" and e[2] is not None and e[1] not in forgotten]

    def commits(self) -> list[bytes]:
        """Return the transactions committed here, once per commit."""
        return [entry[1] for entry in self.log if entry[0] == "commit" and entry[3]]

    def _write(self, *entry: Any) -> None:
        if self.is_full:
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, "the disk is full")
        self.log.append(entry)

    # -- transaction.LocalWork -----------------------------------------------------------------------------------

    def is_known(self, uow: bytes) -> bool:
        return uow in self.state

    def is_open(self, uow: bytes) -> bool:
        return self.state.get(uow) == "active"

    def has_work(self, uow: bytes) -> bool:
        return uow in self.worked

    def begin(self, uow: bytes) -> None:
        if self.is_full:
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, "the disk is full")
        self.state[uow] = "active"

    def close(self, uow: bytes) -> None:
        if self.state.get(uow) != "active":
            raise TransactionSequence(detail="not active")
        self.state[uow] = "closed"

    def prepare(self, uow: bytes, note: bytes) -> None:
        assert self.state[uow] == "active"
        self._write("prepare", uow, note, uow in self.worked)
        self.state[uow] = "prepared"

    def commit_here(self, uow: bytes, decision: bytes | None) -> None:
        assert uow in self.state, "a commit of what is not there"
        self._write("commit", uow, decision, uow in self.worked)
        del self.state[uow]

    def abort(self, uow: bytes) -> None:
        if self.state.pop(uow, None) == "prepared":
            self.log.append(("abort", uow))

    def forget(self, uow: bytes) -> None:
        self.log.append(("forget", uow))

    def when_durable(self, action: Callable[[], None]) -> None:
        if self.is_held:
            self.dropped_syncs.append(action)
            return
        end = len(self.log)

        def synced() -> None:
            self.site.network.step()
            self.durable = max(self.durable, end)
            self.site.network.step()
            action()

        self.later(self.site.network.latency(), synced)

    def later(self, seconds: float, action: Callable[[], None]) -> Event:
        return self.site.later(seconds, action)


class Site:
    """A machine with a transaction manager."""

    manager: TransactionManager

    def __init__(self, network: Network, name: str, cid: UUID) -> None:
        self.network, self.name = network, name
        self.partner = Partner(cid, name)
        self.epoch = 0
        self.is_up = True
        self.handles: dict[Session, tuple[Site, int, Session]] = {}  # the partner's handle for each of our sessions
        self.calls: list[PartnerCall] = []
        self._first_start()

    def _first_start(self) -> None:
        self.work = Work(self)
        self._start()

    def _start(self) -> None:
        self.manager = TransactionManager(self.partner, self, self.work, lambda: self.network.now)
        self.manager.recover(self.work.notes(), self.work.decisions())
        self.manager.resume()

    def crash(self, down: float | None = None) -> None:
        """Lose the data that is not on the disk, and restart after a pause."""
        if not self.is_up:
            return
        self.is_up = False
        self.epoch += 1
        held = [(other, session) for other in self.network.sites.values() for session, handle in other.handles.items()
                if handle[0] is self and other is not self]  # fmt: skip
        pause = self.network.random.choice((0.2, 3.0, 40.0)) if down is None else down
        for other, session in held:  # the other end may notice the loss late
            other.later(self.network.random.choice((0.0, 0.1, 35.0)), lambda s=session: s.lost("the host is gone"))  # type: ignore[misc]
        self.network.later(pause, self.restart)

    def restart(self) -> None:
        self.is_up, self.handles = True, {}
        self._load()
        self._start()

    def _load(self) -> None:
        """Recover the data that is on the disk."""
        self.work.restart()

    # -- session.CallSender --------------------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> Event:
        epoch = self.epoch

        def run() -> None:
            if self.is_up and self.epoch == epoch:
                action()

        return self.network.later(seconds, run)

    def new_guid(self) -> UUID:
        return UUID(int=self.network.random.getrandbits(128))

    def hang_up(self, session: Session) -> None:
        handle = self.handles.pop(session, None)
        if handle is not None:
            site, epoch, theirs = handle
            self.network.later(
                self.network.latency(), lambda: theirs.lost("rundown") if site.is_up and site.epoch == epoch else None
            )

    def call(self, session: Session, call: PartnerCall) -> None:
        self.calls.append(call)
        target, ours = self.network.sites.get(session.partner.host), self.epoch
        answered = False

        def answer(result: CallAnswer) -> None:
            nonlocal answered
            if not answered and self.is_up and self.epoch == ours:
                answered = True
                session.answered(call, result)

        def answer_later(result: CallAnswer) -> None:
            self.network.step()
            self.network.later(self.network.latency(), lambda: answer(result))

        def deliver() -> None:
            self.network.step()
            if target is not None and target.is_up and not self.network.lost(self, call):
                target.serve(self, session, call, answer_later)

        self.network.later(self.network.latency(), deliver)
        self.network.later(CALL, lambda: answer(CallAnswer(None, detail="no answer in time")))

    def serve(self, caller: Site, session: Session, call: PartnerCall, answer: Callable[[CallAnswer], None]) -> None:
        """Serve a call that has arrived."""
        partners, epoch = self.manager.partners, self.epoch

        def built(result: BuildAnswer) -> None:
            if result.session is not None:
                caller.handles[session] = (self, epoch, result.session)
            answer(CallAnswer(result.status, result.guid))

        if call.kind is CallKind.POKE:
            answer(CallAnswer(partners.poke(caller.partner, session.partner.cid, call.rank, caller.name)))
            return
        if call.kind is CallKind.BUILD:
            cid = session.partner.cid
            partners.build_context(caller.partner, cid, call.rank, call.guid, (LOWEST, HIGHEST), caller.name, built)
            return
        site, held_epoch, theirs = caller.handles.get(session, (self, -1, None))
        if theirs is None or site is not self or held_epoch != epoch:
            answer(CallAnswer(None, detail="context mismatch"))
            return
        match call.kind:
            case CallKind.NEGOTIATE:
                answer(CallAnswer(*_swapped(theirs.grant(call.number))))
            case CallKind.SEND:
                answer(CallAnswer(theirs.send_receive(call.number, call.boxcar)))
            case CallKind.TEAR_DOWN:
                answer(CallAnswer(theirs.torn_down(call.rank, is_problem=call.is_problem)))
            case CallKind.BEGIN_TEAR_DOWN:
                answer(CallAnswer(theirs.begin_tear_down()))
            case _:
                answer(CallAnswer(Status.FAIL))


def _swapped(granted: tuple[int, int]) -> tuple[int, UUID, int]:
    return granted[0], UUID(int=0), granted[1]
