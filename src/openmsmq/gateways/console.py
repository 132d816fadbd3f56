"""Daemon side: requests that the HTTP process may make in addition to RPC.

It can do nothing that its users could not: log in with a password or a token, identify a ticket, read the rows of
queues that the user may see, and look up accounts. In addition, it reads sums for metrics, without a user.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from shlex import quote
from typing import Any, Final, Protocol

from msrpc.rpc.security import Identity
from msrpc.rpc.server import RpcServer
from openmsmq.accounts.login_attempts import LoginAttempts
from openmsmq.accounts.users import MAX_NAME, UsersFile, UsersFileError
from openmsmq.admin.alarms import BY_NAME, Alarms
from openmsmq.admin.tokens import TokensFile, TokenUses
from openmsmq.gateways import connected, figures, rows
from openmsmq.gateways.connected import OpenSessions
from openmsmq.gateways.context import sliced
from openmsmq.gateways.growth import DepthTrend
from openmsmq.gateways.logins import Known, Tickets
from openmsmq.gateways.openid import LoginNotProven, OpenIdLogin, OpenIdSettings, ProviderUnavailable
from openmsmq.gateways.openings import Openings
from openmsmq.gateways.relays import RelayRequests
from openmsmq.gateways.remedies import Forget, Remedies
from openmsmq.gateways.transactions import DistributedTransactions
from openmsmq.model.errors import AccessDenied, AuthenticationError, HResult, MsmqError, QueueNotFound
from openmsmq.model.histogram import Histogram
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import missing_administrator
from openmsmq.model.text import json_line
from openmsmq.processes.answering import Answering
from openmsmq.queueing.auditing import Actor, Auditor
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.manager import QueueManager

logger = logging.getLogger(__name__)

_OF_A_DOMAIN: Final = "S-1-5-21-"
_LONGEST_SID: Final = 200  # characters
#: Operation -> members of a request and their types. All are required, and no others are allowed.
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
_ENTRY_POINT: Final = "http"
_NO_OPENID: Final = "no OpenID provider is configured (setting oidc_issuer)"
_MOST_NAMES: Final = 100  # maximum names in one query of the domain


class AccountLookup(Protocol):
    """Accounts of a domain. Methods except `names_of` raise MsmqError while the domain is unavailable."""

    async def sid_of(self, name: str) -> str | None:
        """Return the SID of `EXAMPLE\\alice` or `alice@example.com`; None if the domain has no such account."""

    async def groups_of(self, sid: str) -> Sequence[str]:
        """Return the SIDs of the groups of a user."""

    async def names_of(self, sids: Sequence[str]) -> dict[str, str]:
        """Return the known names: SID -> name."""


class WebGateway:
    """Answers the requests of the web process, one connection at a time."""

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
        relays: RelayRequests,
        domain: AccountLookup | None = None,
        open_sessions: OpenSessions = list,
        openid: OpenIdSettings | None = None,
    ) -> None:
        """`rpc` is the daemon's server; `logins` counts the logins of all entry points. `syncs` has the durations of
        store syncs; `epoch` counts takeovers of the store. `auditor` records logins, `uses` has the last use of tokens;
        `alarms` are the active ones, `latency` has the durations of calls. `forget_sequence` is that of the link,
        `when_durable` that of the store. `transactions` are the distributed ones, `relays` all relays. `domain` looks
        up accounts that are not in `users`; `open_sessions` are those with other queue managers; `openid` is the
        provider for OpenID Connect."""
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
        self._relay_requests: Final = relays
        self._remedies: Final = Remedies(manager, auditor, forget_sequence)
        self._tickets: Final = Tickets(users, tokens)
        self.logins: Final = logins
        self.delay: Final = figures.LoopDelay()
        self.growth: Final = DepthTrend(lambda: manager.registry.queues)
        self._operations: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
            name: getattr(self, f"_{name}") for name in REQUESTS
        }

    async def serve(self, connection: socket.socket) -> None:
        """Answer requests until the peer closes the connection or this is canceled."""
        await Answering("web", self._perform, _operation_of).serve(connection)

    def identity(self, ticket: str, peer: str) -> Identity:
        """Return the identity of a ticket (for `rpc.tickets`). Raises AuthenticationError."""
        try:
            known = self._tickets.check(ticket)
        except AccessDenied as error:
            raise AuthenticationError(error.detail) from None
        return Identity(known.name, "", known.sid, login="http", origin=f"http {peer}")

    async def _perform(self, values: Any, data: bytearray) -> Any:
        """Check and run a request. Requests are not trusted, because the web process parses untrusted input and may be
        compromised. Raises MsmqError."""
        name = values.pop("op", None) if isinstance(values, dict) else None
        if not isinstance(name, str) or name not in REQUESTS or data:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"unknown operation {str(name)[:40]!r}")
        wanted = REQUESTS[name]
        fits = values.keys() == wanted.keys() and all(
            isinstance(values[key], kind) and (kind is bool or len(values[key]) <= _MOST_TEXT)
            for key, kind in wanted.items()
        )
        if not fits:
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"invalid members; {name} requires {', '.join(wanted) or 'none'}"
            )
        return await self._operations[name](**values)

    # -- users -----------------------------------------------------------------------------------------------------

    async def _login(self, user: str, password: str, peer: str) -> dict[str, Any]:
        """Log in. Returns `ticket`, or `wait`: seconds until another attempt is accepted. Raises AccessDenied."""
        wait = self.logins.wait(_ENTRY_POINT, user, peer)
        if wait:
            return {"wait": wait}
        ticket = self._tickets.login(user, password)
        if ticket is None:
            self.logins.failed(_ENTRY_POINT, user, peer)
            raise AccessDenied(detail="the user is unknown, or the password is wrong")
        return self._logged_in(ticket, peer)

    async def _login_by_token(self, token: str, peer: str) -> dict[str, Any]:
        """Log in with a token."""
        wait = self.logins.wait(_ENTRY_POINT, "", peer)
        if wait:
            return {"wait": wait}
        ticket = self._tickets.login_by_token(token)
        if ticket is None:
            self.logins.failed(_ENTRY_POINT, "", peer)
            raise AccessDenied(detail="this token is unknown, was revoked, or has expired")
        return self._logged_in(ticket, peer)

    async def _login_by_link(self, secret: str, peer: str) -> dict[str, Any]:
        """Log in with a one-time link."""
        wait = self.logins.wait(_ENTRY_POINT, "", peer)
        if wait:
            return {"wait": wait}
        ticket = self._tickets.login_by_link(secret)
        if ticket is None:
            self.logins.failed(_ENTRY_POINT, "", peer)
            raise AccessDenied(detail="this link was already used or is older than 15 minutes; create another one")
        return self._logged_in(ticket, peer)

    async def _begin_openid(self, redirect: str) -> dict[str, str]:
        """Return `url` at the provider and `state`, or `unavailable` with the reason."""
        if self._openid is None:
            raise AccessDenied(detail=_NO_OPENID)
        try:
            url, state = await self._openid.begin(redirect)
        except ProviderUnavailable as error:
            logger.warning("OpenID provider unavailable: %s", error)
            return {"unavailable": str(error)}
        return {"url": url, "state": state}

    async def _login_by_openid(self, state: str, code: str, redirect: str, peer: str) -> dict[str, Any]:
        """Log in with a code from the OpenID provider."""
        if self._openid is None:
            raise AccessDenied(detail=_NO_OPENID)
        wait = self.logins.wait(_ENTRY_POINT, "", peer)
        if wait:
            return {"wait": wait}
        try:
            user = await self._openid.finish(state, code, redirect)
        except ProviderUnavailable as error:
            logger.warning("OpenID provider unavailable: %s", error)
            return {"unavailable": str(error)}
        except LoginNotProven as error:
            self.logins.failed(_ENTRY_POINT, "", peer)
            raise AccessDenied(detail=str(error)) from None
        ticket = self._tickets.login_proven(user)
        if ticket is None:
            self.logins.failed(_ENTRY_POINT, user[:MAX_NAME], peer)
            detail = f"there is no user {user[:MAX_NAME]} ({self._claim} of the provider); this command adds the user: "
            raise AccessDenied(detail=f"{detail}openmsmq user add {quote(user[:MAX_NAME])}")
        return self._logged_in(ticket, peer)

    def _logged_in(self, ticket: str, peer: str) -> dict[str, Any]:
        known = self._tickets.check(ticket)
        if known.token:
            self._uses.note(known.token, time.time())
        self.logins.succeeded(_ENTRY_POINT, known.sid, known.name, peer, known.token)
        return {"ticket": ticket, **self._described(known)}

    async def _check_password(self, ticket: str, peer: str, password: str) -> dict[str, Any]:
        """Check the password of the ticket's user. A wrong one counts as a failed login; `wait` is then the time in
        seconds until another attempt is accepted. Raises AccessDenied for the ticket of a token."""
        known = self._tickets.check(ticket)
        if known.token:
            raise AccessDenied(detail="a token cannot change the password: log in with the password")
        if wait := self.logins.wait(_ENTRY_POINT, known.name, peer):
            return {"good": False, "wait": wait}
        good = self._tickets.login(known.name, password) is not None
        if not good:
            self.logins.failed(_ENTRY_POINT, known.name, peer)
        return {"good": good, "wait": 0}

    async def _whoami(self, ticket: str) -> dict[str, Any]:
        """Describe the user of a ticket. Raises AccessDenied if the ticket is no longer valid."""
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
        """Return the users and groups: SID -> name."""
        self._tickets.check(ticket)
        try:
            return self._users.names()
        except UsersFileError as error:
            raise MsmqError(HResult.MQ_ERROR, str(error)) from None

    async def _names(self, ticket: str, sids: list[Any]) -> dict[str, str]:
        """Return the known names of accounts of the domain: SID -> name."""
        self._tickets.check(ticket)
        if self._domain is None:
            return {}
        wanted = [
            sid for sid in sids if isinstance(sid, str) and sid.startswith(_OF_A_DOMAIN) and len(sid) < _LONGEST_SID
        ]
        return await self._domain.names_of(wanted[:_MOST_NAMES])

    async def _sid(self, ticket: str, name: str) -> dict[str, str]:
        """Return `sid` of an account of the domain; empty for a name that is not looked up in the domain. Raises
        MsmqError if the domain has no such account."""
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

    # -- objects ---------------------------------------------------------------------------------------------------

    async def _queues(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return the rows of all queues that the user may see as JSON, one per line."""
        caller = self._caller(ticket)
        lines = [
            json_line(row)
            async for row in sliced(rows.visible(self._manager, self.growth, caller))
            if row is not None
        ]  # fmt: skip
        return {"result": len(lines)}, b"\n".join(lines)

    async def _queue(self, ticket: str, id: str) -> dict[str, Any]:
        """Return the row of a queue. Raises QueueNotFound, also if the user may not see the queue."""
        caller = self._caller(ticket)
        queue = rows.find(self._manager, id)
        if queue is None or not rows.is_seen(self._manager, queue, caller):
            raise QueueNotFound(detail=f"no queue has the identifier {id[:40]}")
        return rows.row(self._manager, self.growth, queue)

    async def _depths(self) -> tuple[dict[str, Any], bytes]:
        """Return a line for each queue, regardless of rights, for the history in the HTTP process."""
        lines = [line.encode() async for line in sliced(rows.depths(self._manager))]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _deepest(self, count: str) -> list[dict[str, Any]]:
        """Return rows of the queues with the most messages, regardless of rights, for metrics enabled by the
        operator."""
        number = int(count) if count.isascii() and count.isdecimal() and len(count) < 6 else 0
        return rows.deepest(self._manager, self.growth, number)

    async def _sequence(self, ticket: str) -> int:
        """Return the sequence number of the last message; those of later messages are higher."""
        self._tickets.check(ticket)
        return self._manager.changes.sequence

    async def _handles(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return open handles as JSON, one per line. Raises AccessDenied unless the caller is an administrator."""
        self._administrator(ticket)
        lines = [json_line(row) async for row in sliced(self._openings.rows())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _connections(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return connections as JSON, one per line. Raises AccessDenied unless the caller is an administrator."""
        self._administrator(ticket)
        found = connected.rows(self._rpc, self._open_sessions(), list(self._openings.rows()), time.time())
        lines = [json_line(row) for row in found]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _close_handle(self, ticket: str, peer: str, id: str) -> dict[str, Any] | None:
        """Close a handle and return its row; None if it is already closed. Raises AccessDenied unless the caller is an
        administrator."""
        return self._openings.close(id, self._actor(ticket, peer))

    async def _delete_outgoing(self, ticket: str, peer: str, id: str) -> int | None:
        """Delete an outgoing queue and return the number of deleted messages; None if there is no such queue. Raises
        AccessDenied unless the caller is an administrator."""
        count = self._remedies.delete_outgoing(id, self._actor(ticket, peer))
        await self._durable()
        return count

    async def _sequences(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return sequences as JSON, one per line. Raises AccessDenied unless the caller is an administrator."""
        self._administrator(ticket)
        lines = [json_line(row) async for row in sliced(self._remedies.sequences())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _forget_sequence(self, ticket: str, peer: str, id: str, source: str) -> bool:
        """Forget a sequence; return whether it existed. Raises AccessDenied unless the caller is an administrator."""
        done = self._remedies.forget_sequence(id, source, self._actor(ticket, peer))
        await self._durable()
        return done

    async def _transactions(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return distributed transactions as JSON, one per line. Raises AccessDenied unless the user is an
        administrator."""
        self._administrator(ticket)
        lines = [json_line(row) async for row in sliced(self._distributed.rows())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _resolve_transaction(self, ticket: str, peer: str, id: str, resolution: str) -> str | None:
        """Resolve a distributed transaction manually and return its new state; None if there is no such transaction.
        Raises AccessDenied unless the user is an administrator, TransactionSequence if the state does not allow it."""
        if not self._distributed.resolve(id, resolution, self._actor(ticket, peer)):
            return None
        await self._durable()
        return self._distributed.state(id)

    async def _relays(self, ticket: str) -> tuple[dict[str, Any], bytes]:
        """Return relays as JSON, one per line. Raises AccessDenied unless the user is an administrator."""
        self._administrator(ticket)
        lines = [json_line(row) async for row in sliced(self._relay_requests.rows())]
        return {"result": len(lines)}, b"\n".join(lines)

    async def _begin_relay(
        self, ticket: str, peer: str, queue: str, host: str, remote: str, state: str
    ) -> dict[str, Any]:  # fmt: skip
        """Create a relay and return its row. Raises AccessDenied unless the user is an administrator, MsmqError."""
        row = self._relay_requests.begin(queue, host, remote, state, self._actor(ticket, peer))
        await self._durable()
        return row

    async def _step_relay(
        self, ticket: str, peer: str, queue: str, step: str, force: bool, replies: bool
    ) -> dict[str, Any] | None:  # fmt: skip
        """Perform a step of a relay and return its row; None if the queue has no relay. Raises AccessDenied unless the
        user is an administrator, MsmqError if the step is not possible."""
        row = self._relay_requests.step(queue, step, force, replies, self._actor(ticket, peer))
        await self._durable()
        return row

    async def _durable(self) -> None:
        """Wait until all changes are on the disk; replies must not be sent before."""
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
        """Return a mapping: precondition of message traffic -> "ok" or a problem. If a check raises, this is its
        problem, and the other checks still run."""
        changes = self._manager.changes
        checks: dict[str, Callable[[], str]] = {
            "disk": lambda: "nearly full: no messages are accepted" if changes.throttled else "ok",
            "store": lambda: "failed: the daemon has to be restarted" if changes.has_failed else "ok",
            "rpc": lambda: "ok" if self._rpc.is_listening else "not listening",
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
        async for part in sliced(figures.of_queues(self._manager)):
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
            | self._relay_requests.figures()
        )


def _operation_of(values: Any) -> str:
    name = values.get("op") if isinstance(values, dict) else None
    return name if isinstance(name, str) and name in REQUESTS else "a request"
