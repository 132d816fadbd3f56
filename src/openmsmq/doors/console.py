"""Daemon side: requests that the HTTP process may make in addition to RPC.

It asks for nothing that a user could not: a login with a password or a token, who a ticket is, the rows of queues that
its user may see, names of accounts; and, of nobody in particular, sums for metrics.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from shlex import quote
from typing import Any, Final, Protocol, TypeVar

from msrpc.rpc.security import Identity
from msrpc.rpc.server import RpcServer
from openmsmq.accounts.login_attempts import LoginAttempts
from openmsmq.accounts.users import MAX_NAME, UsersFile, UsersFileError
from openmsmq.admin.alarms import BY_NAME, Alarms
from openmsmq.admin.tokens import TokensFile, TokenUses
from openmsmq.doors import connected, figures, rows
from openmsmq.doors.connected import OpenSessions
from openmsmq.doors.growth import DepthTrend
from openmsmq.doors.logins import Known, Tickets
from openmsmq.doors.openid import LoginNotProven, OpenIdLogin, OpenIdSettings, ProviderUnavailable
from openmsmq.doors.openings import Openings
from openmsmq.doors.relays import RelayDesk
from openmsmq.doors.remedies import Forget, Remedies
from openmsmq.doors.transactions import DistributedTransactions
from openmsmq.model.errors import AccessDenied, AuthenticationError, HResult, MsmqError, QueueNotFound
from openmsmq.model.histogram import Histogram
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import missing_administrator
from openmsmq.processes.answering import Answering
from openmsmq.queueing.auditing import Actor, Auditor
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.manager import QueueManager

logger = logging.getLogger(__name__)

T = TypeVar("T")
_OF_A_DOMAIN: Final = "S-1-5-21-"
_LONGEST_SID: Final = 200  # characters
_SLICE: Final = 100  # queues in a turn of the event loop
#: Operation -> the members of a request and their types; all are needed, no other may be there.
REQUESTS: Final[dict[str, dict[str, type]]] = {
    "login": {"user": str, "password": str, "peer": str},
    "login_by_token": {"token": str, "peer": str},
    "login_by_link": {"secret": str, "peer": str},
    "begin_openid": {"redirect": str},
    "login_by_openid": {"state": str, "code": str, "redirect": str, "peer": str},
    "check_password": {"ticket": str, "peer": str, "password": str},
    "whoami": {"ticket": str},
    "queues": {"ticket": str},
    "queue": {"ticket": str, "id": str},
    "sequence": {"ticket": str},
    "accounts": {"ticket": str},
    "sids": {"ticket": str, "name": str},
    "names": {"ticket": str, "sids": list},
    "sid": {"ticket": str, "name": str},
    "handles": {"ticket": str},
    "connections": {"ticket": str},
    "close_handle": {"ticket": str, "peer": str, "id": str},
    "delete_outgoing": {"ticket": str, "peer": str, "id": str},
    "sequences": {"ticket": str},
    "forget_sequence": {"ticket": str, "peer": str, "id": str, "source": str},
    "transactions": {"ticket": str},
    "resolve_transaction": {"ticket": str, "peer": str, "id": str, "resolution": str},
    "relays": {"ticket": str},
    "begin_relay": {"ticket": str, "peer": str, "queue": str, "host": str, "remote": str, "state": str},
    "step_relay": {"ticket": str, "peer": str, "queue": str, "step": str, "force": bool, "replies": bool},
    "depths": {},
    "deepest": {"count": str},
    "figures": {},
    "health": {},
}
_MOST_TEXT: Final = 4096  # characters
_DOOR: Final = "http"
_NO_OPENID: Final = "no OpenID provider is set: oidc_issuer"
_MOST_NAMES: Final = 100  # of the domain that are asked for at a time


class AccountLookup(Protocol):
    """Accounts of a domain. Methods raise MsmqError while it does not answer, but `names_of`."""

    async def sid_of(self, name: str) -> str | None:
        """Return the SID of `EXAMPLE\\alice` or `alice@example.com`; None if the domain has no such account."""

    async def groups_of(self, sid: str) -> Sequence[str]:
        """SIDs."""

    async def names_of(self, sids: Sequence[str]) -> dict[str, str]:
        """By SID, those that are known."""


class WebGateway:
    """Answers one web process at a time."""

    def __init__(
        self,
        manager: QueueManager,
        users: UsersFile,
        tokens: TokensFile,
        rpc: RpcServer,
        is_administrator: Callable[[str | None], bool],
        syncs: Histogram,
        epoch: int,
        auditor: Auditor,
        uses: TokenUses,
        alarms: Alarms,
        latency: figures.Latency,
        logins: LoginAttempts,
        forget_sequence: Forget,
        when_durable: Callable[[Callable[[], None]], None],
        transactions: DistributedTransactions,
        relays: RelayDesk,
        domain: AccountLookup | None = None,
        open_sessions: OpenSessions = list,
        openid: OpenIdSettings | None = None,
    ) -> None:
        """`rpc` is the daemon's server; `logins` are those of all entry points. `syncs` is how
        long syncs of the store took; `epoch` how often it was taken over. `auditor` gets logins, `uses` those by
        token; `alarms` are those that are on, `latency` says how long calls take. `forget_sequence`
        is that of the link, `when_durable` that of the store. `transactions` are the distributed ones, `relays`
        all relays. `domain` knows
        accounts besides those of `users`; `open_sessions` are those with other queue managers; `openid` is the
        provider of logins by OpenID Connect."""
        self._openid: Final = None if openid is None else OpenIdLogin(openid)
        self._claim: Final = "" if openid is None else openid.user_claim
        self._domain: Final = domain
        self._manager: Final = manager
        self._users: Final = users
        self._rpc: Final = rpc
        self._open_sessions: Final = open_sessions
        self._is_administrator: Final = is_administrator
        self._syncs: Final = syncs
        self._epoch: Final = epoch
        self._auditor: Final = auditor
        self._uses: Final = uses
        self._alarms: Final = alarms
        self._latency: Final = latency
        self._openings: Final = Openings(manager, auditor)
        self._when_durable: Final = when_durable
        self._distributed: Final = transactions
        self._relays_desk: Final = relays
        self._remedies: Final = Remedies(manager, auditor, forget_sequence)
        self._tickets: Final = Tickets(users, tokens)
        self.logins: Final = logins
        self.delay: Final = figures.LoopDelay()
        self.growth: Final = DepthTrend(lambda: manager.registry.queues)
        self._operations: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
            name: getattr(self, f"_{name}") for name in REQUESTS
        }

    async def serve(self, connection: socket.socket) -> None:
        """Answer requests until the other side has gone, or this is cancelled."""
        await Answering("web", self._perform, _operation_of).serve(connection)

    def identity(self, ticket: str, peer: str) -> Identity:
        """For `rpc.tickets`: return the identity of a ticket. Raises AuthenticationError."""
        try:
            known = self._tickets.check(ticket)
        except AccessDenied as error:
            raise AuthenticationError(error.detail) from None
        return Identity(known.name, "", known.sid, login="http", origin=f"http {peer}")

    async def _perform(self, values: Any, data: bytearray) -> Any:
        """Raises MsmqError: the web process reads what anybody sends, and may be damaged by it."""
        name = values.pop("op", None) if isinstance(values, dict) else None
        if not isinstance(name, str) or name not in REQUESTS or data:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "no such operation")
        wanted = REQUESTS[name]
        fits = values.keys() == wanted.keys() and all(
            isinstance(values[key], kind) and (kind is bool or len(values[key]) <= _MOST_TEXT)
            for key, kind in wanted.items()
        )
        if not fits:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{name} takes {', '.join(wanted) or 'nothing'}")
        return await self._operations[name](**values)

    # -- who -------------------------------------------------------------------------------------------------------

    async def _login(self, user: str, password: str, peer: str) -> dict[str, Any]:
        """`ticket`, or `wait`: seconds until the next try is looked at. Raises AccessDenied."""
        wait = self.logins.wait(_DOOR, user, peer)
        if wait:
            return {"wait": wait}
        ticket = self._tickets.login(user, password)
        if ticket is None:
            self.logins.failed(_DOOR, user, peer)
            raise AccessDenied(detail="the user is unknown, or the password is wrong")
        return self._logged_in(ticket, peer)

    async def _login_by_token(self, token: str, peer: str) -> dict[str, Any]:
        """Log in with a token."""
        wait = self.logins.wait(_DOOR, "", peer)
        if wait:
            return {"wait": wait}
        ticket = self._tickets.login_by_token(token)
        if ticket is None:
            self.logins.failed(_DOOR, "", peer)
            raise AccessDenied(detail="this token is unknown, was revoked, or has expired")
        return self._logged_in(ticket, peer)

    async def _login_by_link(self, secret: str, peer: str) -> dict[str, Any]:
        """Log in with a link that works once."""
        wait = self.logins.wait(_DOOR, "", peer)
        if wait:
            return {"wait": wait}
        ticket = self._tickets.login_by_link(secret)
        if ticket is None:
            self.logins.failed(_DOOR, "", peer)
            raise AccessDenied(detail="this link was used, or is older than 15 minutes: make another one")
        return self._logged_in(ticket, peer)

    async def _begin_openid(self, redirect: str) -> dict[str, str]:
        """`url` at the provider and `state`, or `unavailable` with the reason."""
        if self._openid is None:
            raise AccessDenied(detail=_NO_OPENID)
        try:
            url, state = await self._openid.begin(redirect)
        except ProviderUnavailable as error:
            logger.warning("OpenID provider unavailable: %s", error)
            return {"unavailable": str(error)}
        return {"url": url, "state": state}

    async def _login_by_openid(self, state: str, code: str, redirect: str, peer: str) -> dict[str, Any]:
        """Log in with a code of the OpenID provider."""
        if self._openid is None:
            raise AccessDenied(detail=_NO_OPENID)
        wait = self.logins.wait(_DOOR, "", peer)
        if wait:
            return {"wait": wait}
        try:
            user = await self._openid.finish(state, code, redirect)
        except ProviderUnavailable as error:
            logger.warning("OpenID provider unavailable: %s", error)
            return {"unavailable": str(error)}
        except LoginNotProven as error:
            self.logins.failed(_DOOR, "", peer)
            raise AccessDenied(detail=str(error)) from None
        ticket = self._tickets.login_proven(user)
        if ticket is None:
            self.logins.failed(_DOOR, user[:MAX_NAME], peer)
            detail = f"there is no user {user[:MAX_NAME]} ({self._claim} of the provider); this command adds the user: "
            raise AccessDenied(detail=f"{detail}openmsmq user add {quote(user[:MAX_NAME])}")
        return self._logged_in(ticket, peer)

    def _logged_in(self, ticket: str, peer: str) -> dict[str, Any]:
        known = self._tickets.check(ticket)
        if known.token:
            self._uses.note(known.token, time.time())
        self.logins.succeeded(_DOOR, known.sid, known.name, peer, known.token)
        return {"ticket": ticket, **self._described(known)}

    async def _check_password(self, ticket: str, peer: str, password: str) -> dict[str, Any]:
        """Whether a password is that of the ticket's user; a wrong one counts as a failed login, and `wait` is the time
        until the next attempt is checked. Raises AccessDenied for the ticket of a token."""
        known = self._tickets.check(ticket)
        if known.token:
            raise AccessDenied(detail="a token changes no password: log in with the password")
        if wait := self.logins.wait(_DOOR, known.name, peer):
            return {"good": False, "wait": wait}
        good = self._tickets.login(known.name, password) is not None
        if not good:
            self.logins.failed(_DOOR, known.name, peer)
        return {"good": good, "wait": 0}

    async def _whoami(self, ticket: str) -> dict[str, Any]:
        """Raises AccessDenied for a ticket that holds no longer."""
        return self._described(self._tickets.check(ticket))

    def _described(self, known: Known) -> dict[str, Any]:
        administrator = self._is_administrator(known.sid)
        return {"name": known.name, "sid": known.sid, "administrator": administrator, "role": int(known.role),
                "token": known.token}  # fmt: skip

    def _caller(self, ticket: str) -> Caller:
        known = self._tickets.check(ticket)
        caller = Caller.user(known.sid, known.name, self._users.groups_of(known.sid))
        return caller.as_administrator() if self._is_administrator(known.sid) else caller

    async def _accounts(self, ticket: str) -> dict[str, str]:
        """SID -> name of users and groups."""
        self._tickets.check(ticket)
        try:
            return self._users.names()
        except UsersFileError as error:
            raise MsmqError(HResult.MQ_ERROR, str(error)) from None

    async def _names(self, ticket: str, sids: list[Any]) -> dict[str, str]:
        """SID -> name of accounts of the domain, as far as is known."""
        self._tickets.check(ticket)
        if self._domain is None:
            return {}
        wanted = [
            sid for sid in sids if isinstance(sid, str) and sid.startswith(_OF_A_DOMAIN) and len(sid) < _LONGEST_SID
        ]
        return await self._domain.names_of(wanted[:_MOST_NAMES])

    async def _sid(self, ticket: str, name: str) -> dict[str, str]:
        """`sid` of an account of the domain; empty for a name that the domain is not to be asked for. Raises MsmqError
        for one that it does not have."""
        self._tickets.check(ticket)
        if not self._is_of_domain(name):
            return {"sid": ""}
        assert self._domain is not None
        found = await self._domain.sid_of(name)
        if found is None:
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_USER, f"the domain has no user or group {name}")
        return {"sid": found}

    def _is_of_domain(self, name: str) -> bool:
        if self._domain is None or not ("\\" in name or "@" in name):
            return False
        said, separator, _ = name.partition("\\")
        return not separator or not self._manager.machine.is_local(said)

    async def _sids(self, ticket: str, name: str) -> list[str]:
        """Return all SIDs of a user that an access check would use."""
        self._tickets.check(ticket)
        if self._is_of_domain(name):
            assert self._domain is not None
            sid = (await self._sid(ticket, name))["sid"]
            return sorted(Caller.user(sid, name, frozenset(await self._domain.groups_of(sid))).sids)
        found = self._users.lookup("", name)
        if found is None:
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_USER, f"there is no user {name}")
        caller = Caller.user(found[1], name, self._users.groups_of(found[1]))
        if self._is_administrator(found[1]):
            caller = caller.as_administrator()
        return sorted(caller.sids)

    # -- what ------------------------------------------------------------------------------------------------------

    async def _queues(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Rows as JSON, one a line, of all queues that the user may see."""
        caller = self._caller(ticket)
        lines = [
            json.dumps(row).encode()
            async for row in _sliced(rows.visible(self._manager, self.growth, caller))
            if row is not None
        ]  # fmt: skip
        return {"result": len(lines)}, b"\n".join(lines)

    async def _queue(self, ticket: str, id: str) -> dict[str, Any]:
        """Raises QueueNotFound, also for what the user may not see."""
        caller = self._caller(ticket)
        queue = rows.find(self._manager, id)
        if queue is None or not rows.is_seen(self._manager, queue, caller):
            raise QueueNotFound(detail=f"there is no queue {id[:40]}")
        return rows.row(self._manager, self.growth, queue)

    async def _depths(self) -> tuple[dict[str, Any], bytes]:
        """Return a line for each queue, regardless of rights: for the history that the HTTP process keeps."""
        lines = [line.encode() async for line in _sliced(rows.depths(self._manager))]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _deepest(self, count: str) -> list[dict[str, Any]]:
        """Return rows of the queues with most messages, regardless of rights: for metrics enabled by the operator."""
        number = int(count) if count.isascii() and count.isdecimal() and len(count) < 6 else 0
        return rows.deepest(self._manager, self.growth, number)

    async def _sequence(self, ticket: str) -> int:
        """The sequence number of the last message that came: those of later ones are higher."""
        self._tickets.check(ticket)
        return self._manager.changes.sequence

    async def _handles(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return open handles as JSON, one per line. Raises AccessDenied unless the caller is an administrator."""
        self._administrator(ticket)
        lines = [json.dumps(row).encode() async for row in _sliced(self._openings.rows())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _connections(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return connections as JSON, one per line. Raises AccessDenied unless the caller is an administrator."""
        self._administrator(ticket)
        found = connected.rows(self._rpc, self._open_sessions(), list(self._openings.rows()), time.time())
        lines = [json.dumps(row).encode() for row in found]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _close_handle(self, ticket: str, peer: str, id: str) -> dict[str, Any] | None:
        """The row of what was closed; None where it is closed already. Raises AccessDenied for who is no
        administrator."""
        return self._openings.close(id, self._actor(ticket, peer))

    async def _delete_outgoing(self, ticket: str, peer: str, id: str) -> int | None:
        """How many messages went with an outgoing queue; None where there is none. Raises AccessDenied for who is no
        administrator."""
        count = self._remedies.delete_outgoing(id, self._actor(ticket, peer))
        await self._durable()
        return count

    async def _sequences(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return sequences as JSON, one per line. Raises AccessDenied unless the caller is an administrator."""
        self._administrator(ticket)
        lines = [json.dumps(row).encode() async for row in _sliced(self._remedies.sequences())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _forget_sequence(self, ticket: str, peer: str, id: str, source: str) -> bool:
        """Forget a sequence; return whether it existed. Raises AccessDenied unless the caller is an administrator."""
        done = self._remedies.forget_sequence(id, source, self._actor(ticket, peer))
        await self._durable()
        return done

    async def _transactions(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Rows as JSON, one a line, of distributed transactions. Raises AccessDenied unless the user is an
        administrator."""
        self._administrator(ticket)
        lines = [json.dumps(row).encode() async for row in _sliced(self._distributed.rows())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _resolve_transaction(self, ticket: str, peer: str, id: str, resolution: str) -> str | None:
        """The state of a distributed transaction after it was ended by hand; None if there is no such transaction.
        Raises AccessDenied unless the user is an administrator, TransactionSequence if the state does not allow it."""
        if not self._distributed.resolve(id, resolution, self._actor(ticket, peer)):
            return None
        await self._durable()
        return self._distributed.state(id)

    async def _relays(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Rows as JSON, one a line. Raises AccessDenied unless the user is an administrator."""
        self._administrator(ticket)
        lines = [json.dumps(row).encode() async for row in _sliced(self._relays_desk.rows())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _begin_relay(
        self, ticket: str, peer: str, queue: str, host: str, remote: str, state: str
    ) -> dict[str, Any]:  # fmt: skip
        """The row of a new relay. Raises AccessDenied unless the user is an administrator, MsmqError."""
        row = self._relays_desk.begin(queue, host, remote, state, self._actor(ticket, peer))
        await self._durable()
        return row

    async def _step_relay(
        self, ticket: str, peer: str, queue: str, step: str, force: bool, replies: bool
    ) -> dict[str, Any] | None:  # fmt: skip
        """The row of a relay after a step; None if the queue has none. Raises AccessDenied unless the user is an
        administrator, MsmqError where the step is not possible."""
        row = self._relays_desk.step(queue, step, force, replies, self._actor(ticket, peer))
        await self._durable()
        return row

    async def _durable(self) -> None:
        """Until the disk has what was changed: nothing is answered before that."""
        durable = asyncio.Event()
        self._when_durable(durable.set)
        await durable.wait()

    def _actor(self, ticket: str, peer: str) -> Actor:
        known = self._administrator(ticket)
        return Actor(known.sid, known.name, f"http {peer}")

    def _administrator(self, ticket: str) -> Known:
        known = self._tickets.check(ticket)
        if not self._is_administrator(known.sid):
            raise AccessDenied(detail=missing_administrator(known.name))
        return known

    async def _health(self) -> dict[str, str]:
        """Return each precondition of message traffic -> "ok", or a problem. If one check fails, it says so, and the
        other checks still run."""
        changes = self._manager.changes
        checks: dict[str, Callable[[], str]] = {
            "disk": lambda: "nearly full: no messages are accepted" if changes.throttled else "ok",
            "store": lambda: "failed: the daemon has to be restarted" if changes.has_failed else "ok",
            "rpc": lambda: "ok" if self._rpc.is_listening else "does not listen",
        }
        found = {}
        for name, check in checks.items():
            try:
                found[name] = check()
            except Exception as error:
                LEFT_OUT.note("readiness", name, error)
                found[name] = f"can't be checked: {error}"
        return found

    async def _figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async for part in _sliced(figures.of_queues(self._manager)):
            found |= part or {}
        logins = {f"{door} {result}": count for (door, result), count in self.logins.counts.items()}
        of_server = figures.of_server(self._manager, self._rpc, self._syncs, self.delay, self._epoch)
        active = {name for name, _ in self._alarms.active}
        alarms = {name: int(name in active) for name in BY_NAME}
        return (
            found
            | of_server
            | {"rpc_duration_seconds": self._latency.figures(), "logins_total": logins, "alarm_active": alarms}
            | {"distributed_transactions": self._distributed.counts()}
            | self._relays_desk.figures()
        )


async def _sliced(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield the items, and give way to the event loop after each slice."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _SLICE == 0:
            await asyncio.sleep(0)


def _operation_of(values: Any) -> str:
    name = values.get("op") if isinstance(values, dict) else None
    return name if isinstance(name, str) and name in REQUESTS else "a request"
