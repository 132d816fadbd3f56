"""The daemon side against a compromised web process, and the queue rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from frame_peer import FramePeer
from msrpc.rpc.server import RpcServer
from msrpc.rpc.throttle import PERIOD, Attempt, FailureLimits
from openmsmq.accounts.login_attempts import LoginAttempts
from openmsmq.accounts.login_links import create_link
from openmsmq.accounts.users import UsersFile
from openmsmq.admin.alarms import Alarms
from openmsmq.admin.tokens import TokensFile, TokenUses
from openmsmq.gateways import rows
from openmsmq.gateways.console import REQUESTS, WebGateway
from openmsmq.gateways.figures import Latency
from openmsmq.gateways.relays import RelayRequests
from openmsmq.gateways.transactions import DistributedTransactions
from openmsmq.model.errors import AuthenticationError, HResult, MsmqError
from openmsmq.model.histogram import Histogram
from openmsmq.model.roles import Role
from openmsmq.model.sddl import from_sddl
from openmsmq.oletx.manager import TransactionManager
from openmsmq.oletx.records import Note, encode_note
from openmsmq.oletx.structures import Partner
from openmsmq.processes.framing import HEADER, MAXIMUM_JSON
from openmsmq.queueing.auditing import AuditRecord
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.relaying.relays import Relays
from openmsmq.server.auditing import Logins
from queueing.world import World

UOW = bytes(range(16))  # an in-doubt transaction


class Peer(FramePeer):
    """The web process: sends requests and receives replies."""

    def __init__(self, world: World, path: Path, domain: Any = None) -> None:
        self.users = UsersFile(path)
        self.users.add("alice", "one")
        self.users.add("root", "one", administrator=True)
        self.tokens = TokensFile(path.parent)
        self.uses = TokenUses(path.parent)
        self.records: list[AuditRecord] = []
        self.rpc = RpcServer()
        here, far = Partner(UUID(int=1), "HERE"), Partner(UUID(int=2), "FAR")
        self.transactions = TransactionManager(here, mock.Mock(), mock.Mock(), lambda: 0.0)
        self.transactions.recover([(UOW, encode_note(Note(far)))], [])
        self.door = WebGateway(
            world.manager,
            self.users,
            self.tokens,
            self.rpc,
            lambda sid: sid is not None and self.users.is_administrator(sid),
            Histogram(),
            0,
            self,
            self.uses,
            Alarms(),
            Latency({}),
            LoginAttempts(self.rpc.failures, Logins(self, self.users)),
            self._forget,
            lambda callback: callback(),
            DistributedTransactions(world.manager, self.transactions, self, is_on=False),
            RelayRequests(Relays(world.manager.arrivals.note, mock.Mock(), lambda: 0), mock.Mock(), mock.Mock(), self),
            domain,
        )

    def _forget(self, queue: Queue, source: bytes) -> bool:
        """Forget a sequence, like the link."""
        return queue.incoming.pop((source, ""), None) is not None

    def record(self, record: AuditRecord) -> None:
        """Record an audit record."""
        self.records.append(record)

    async def __aenter__(self) -> Peer:
        await self.start(self.door.serve)
        return self

    async def login(self, user: str = "alice", password: str = "one") -> dict[str, Any]:
        answer, _ = await self.exchange({"op": "login", "user": user, "password": password, "peer": "10.0.0.7"})
        return answer

    async def ticket(self, user: str = "alice") -> str:
        return str((await self.login(user))["result"]["ticket"])


def with_peer(tmp_path: Path, test: Callable[[Peer, World], Coroutine[Any, Any, None]], domain: Any = None) -> None:
    world = World()

    async def run() -> None:
        async with Peer(world, tmp_path / "users.json", domain) as peer:
            await test(peer, world)

    asyncio.run(run())


@pytest.mark.parametrize(
    "values",
    [
        [], 5, None, {}, {"op": 5}, {"op": "shutdown"}, {"op": "serve"}, {"op": "_login"}, {"op": "login"},
        {"op": "login", "user": 5, "password": "", "peer": ""},
        {"op": "login", "user": "a", "password": "b", "peer": "c", "administrator": True},
        {"op": "login", "user": "a" * 5000, "password": "b", "peer": "c"},
        {"op": "queues"}, {"op": "queues", "ticket": None}, {"op": "queues", "ticket": "x", "id": "p1"},
        {"op": "figures", "ticket": "x"},
    ],
)  # fmt: skip
def test_requests_not_in_the_table_are_refused(tmp_path: Path, values: Any) -> None:
    async def test(peer: Peer, world: World) -> None:
        answer, _ = await peer.exchange(values)
        assert answer["hresult"] == 0xC00E0006
        assert "result" in await peer.login()

    with_peer(tmp_path, test)


def test_bytes_that_are_not_a_frame_end_the_connection(tmp_path: Path) -> None:
    for data in (HEADER.pack(1, 3, 0) + b"nan", HEADER.pack(1, MAXIMUM_JSON + 1, 0), HEADER.pack(1, 1, 0) + b"\xff"):

        async def test(peer: Peer, world: World, data: bytes = data) -> None:
            assert await peer.raw(data) == b""

        (tmp_path / "users.json").unlink(missing_ok=True)
        with_peer(tmp_path, test)


def test_all_about_a_user_needs_a_ticket_that_the_daemon_gave(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        for operation, members in REQUESTS.items():
            if "ticket" in members:
                values = {name: kind("x") for name, kind in members.items()} | {"op": operation}
                answer, _ = await peer.exchange(values)
                assert answer["hresult"] == 0xC00E0025, operation

    with_peer(tmp_path, test)


def test_rows_are_those_that_the_user_may_see(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        seen, hidden = world.create("seen"), world.create("hidden")
        closed = from_sddl("D:(A;;0xF003F;;;BA)").pack()
        hidden.properties = hidden.properties._replace(security=closed)
        found = {}
        for user in ("alice", "root"):
            answer, data = await peer.exchange({"op": "queues", "ticket": await peer.ticket(user)})
            names = [json.loads(line)["id"] for line in data.splitlines()]
            assert answer["result"] == len(names)
            found[user] = set(names)
        assert found["root"] - found["alice"] == {rows.id_of(hidden)} and rows.id_of(seen) in found["alice"]
        ticket = await peer.ticket()
        answer, _ = await peer.exchange({"op": "queue", "ticket": ticket, "id": rows.id_of(hidden)})
        missing, _ = await peer.exchange({"op": "queue", "ticket": ticket, "id": "p99999"})
        assert answer["hresult"] == missing["hresult"] == 0xC00E0003, "what may not be seen is not there"

    with_peer(tmp_path, test)


def test_figures_of_all_queues_name_no_queue_and_the_deepest_are_as_many_as_are_asked_for(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        for number in range(3):
            world.create(f"q{number}")
            for _ in range(number + 1):
                world.send(f"q{number}")
        answer, data = await peer.exchange({"op": "depths"})
        lines = dict(line.split(" ", 1) for line in data.decode().splitlines())
        assert answer["result"] == len(lines) and sorted(lines.values())[-3:] == ["1 1 0", "2 2 0", "3 3 0"]
        assert "q1" not in data.decode()
        for count, messages in (("2", [3, 2]), ("9999", [3, 2, 1]), ("0", []), ("x", []), ("-1", []), ("9" * 9, [])):
            answer, _ = await peer.exchange({"op": "deepest", "count": count})
            assert [row["messages"] for row in answer["result"]] == messages, count

    with_peer(tmp_path, test)


def test_failures_of_a_host_count_for_all_of_its_logins(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        for _ in range(FailureLimits().login):
            peer.rpc.failures.count("10.0.0.7", Attempt.LOGIN)
        assert 0 < (await peer.login())["result"]["wait"] <= PERIOD

    with_peer(tmp_path, test)


def test_every_queue_has_an_identifier_by_which_it_is_found(tmp_path: Path) -> None:
    world = World()
    queue = world.create("q", JOURNAL=1)
    registry = world.manager.registry
    for known in registry.queues.values():
        assert known.kind is QueueKind.AWAITING or rows.find(world.manager, rows.id_of(known)) is known
    assert rows.find(world.manager, f"p{queue.number}j") is queue.journal
    wrong = ["", "p", "p0", "q16", f"o{queue.number}", f"p{queue.number}jj", f"p-{queue.number}", "p" + "9" * 11,
             "journalj", f"s{queue.number}", f"p{queue.number | 0x80000000}", "p²"]  # fmt: skip
    for identifier in wrong:
        assert rows.find(world.manager, identifier) is None, identifier


DORA, DORA_SID, CLERKS = r"DOM\dora", "S-1-5-21-9-9-9-1104", "S-1-5-21-9-9-9-1105"


class FakeDomain:
    """A domain with the user dora that can be unavailable."""

    def __init__(self) -> None:
        self.away = False
        self.asked: list[Any] = []

    async def sid_of(self, name: str) -> str | None:
        self.asked.append(name)
        if self.away:
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "away")
        return DORA_SID if name in (DORA, "dora@dom.test") else None

    async def groups_of(self, sid: str) -> list[str]:
        return [CLERKS]

    async def names_of(self, sids: list[str]) -> dict[str, str]:
        self.asked.append(sids)
        return {} if self.away else {sid: DORA for sid in sids if sid == DORA_SID}


def test_names_of_the_domain_are_resolved_if_there_is_a_domain(tmp_path: Path) -> None:
    domain = FakeDomain()

    async def test(peer: Peer, world: World) -> None:
        ticket = await peer.ticket()

        async def ask(operation: str, **values: Any) -> Any:
            answer, _ = await peer.exchange({"op": operation, "ticket": ticket, **values})
            return answer.get("result", answer.get("hresult"))

        assert await ask("sid", name=DORA) == await ask("sid", name="dora@dom.test") == {"sid": DORA_SID}
        assert await ask("sid", name="alice") == await ask("sid", name=r".\alice") == {"sid": ""}
        assert await ask("sid", name=r"DOM\nobody") == HResult.MQ_ERROR_ILLEGAL_USER
        assert {DORA_SID, CLERKS, "S-1-5-11"} <= set(await ask("sids", name=DORA))
        known = await ask("names", sids=[DORA_SID, "S-1-5-32-544", 5, None, "S-1-5-21-" + "1" * 300])
        assert known == {DORA_SID: DORA} and domain.asked[-1] == [DORA_SID]
        assert await ask("names", sids=[DORA_SID] * 4000) == {DORA_SID: DORA} and len(domain.asked[-1]) == 100
        domain.away = True
        assert await ask("sid", name=DORA) == HResult.MQ_ERROR_NO_DS
        assert await ask("names", sids=[DORA_SID]) == {}
        for values in ({"op": "names", "ticket": "x", "sids": [DORA_SID]}, {"op": "sid", "ticket": "x", "name": DORA}):
            answer, _ = await peer.exchange(values)
            assert "result" not in answer  # a caller without a login learns nothing

    with_peer(tmp_path, test, domain)


def test_without_a_domain_no_name_is_one_of_a_domain(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        ticket = await peer.ticket()
        answer, _ = await peer.exchange({"op": "sid", "ticket": ticket, "name": DORA})
        assert answer["result"] == {"sid": ""}
        answer, _ = await peer.exchange({"op": "names", "ticket": ticket, "sids": [DORA_SID]})
        assert answer["result"] == {}

    with_peer(tmp_path, test)


def test_transactions_are_ended_by_administrators_only_and_only_as_their_state_allows(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        async def resolve(user: str, identifier: str, resolution: str) -> dict[str, Any]:
            ticket = await peer.ticket(user)
            values = {"op": "resolve_transaction", "ticket": ticket, "peer": "10.0.0.7", "id": identifier}
            answer, _ = await peer.exchange({**values, "resolution": resolution})
            return answer

        denied, _ = await peer.exchange({"op": "transactions", "ticket": await peer.ticket()})
        assert denied["hresult"] == HResult.MQ_ERROR_ACCESS_DENIED
        assert (await resolve("alice", UOW.hex(), "abort"))["hresult"] == HResult.MQ_ERROR_ACCESS_DENIED
        assert (await resolve("root", bytes(16).hex(), "abort"))["result"] is None
        assert (await resolve("root", UOW.hex(), "forget"))["hresult"] == HResult.MQ_ERROR_TRANSACTION_SEQUENCE
        assert (await resolve("root", UOW.hex(), "explode"))["hresult"] == HResult.MQ_ERROR_INVALID_PARAMETER
        assert len(peer.transactions.rows()) == 1
        assert "transaction.resolve" not in [record.action for record in peer.records]
        assert (await resolve("root", UOW.hex(), "abort"))["result"] == "ended"
        [record] = [record for record in peer.records if record.action == "transaction.resolve"]
        assert (record.name, record.actor.name, record.after) == (UOW.hex(), "root", {"resolution": "abort"})

    with_peer(tmp_path, test)


async def refusal(peer: Peer, operation: str, /, **values: Any) -> tuple[int, str]:
    """Make a request that is refused; return the error and its text."""
    answer, _ = await peer.exchange({"op": operation, **values})
    assert set(answer) == {"hresult", "detail"}, answer
    return answer["hresult"], answer["detail"]


UNPROVEN = {
    "login": ({"user": "alice", "password": "two"}, "the user is unknown, or the password is wrong"),
    "login_by_token": ({"token": "two"}, "this token is unknown, was revoked, or has expired"),
    "login_by_link": ({"secret": "two"}, "this link was already used or is older than 15 minutes; create another one"),
}


@pytest.mark.parametrize("operation", UNPROVEN)
def test_a_failed_login_is_reported_and_counted_and_its_host_waits_after_many(tmp_path: Path, operation: str) -> None:
    values, said = UNPROVEN[operation]

    async def test(peer: Peer, world: World) -> None:
        for count in (1, 2):
            assert await refusal(peer, operation, **values, peer="10.0.0.7") == (HResult.MQ_ERROR_ACCESS_DENIED, said)
            assert peer.door.logins.counts["http", "refused"] == count
        for _ in range(FailureLimits().login - 2):
            peer.rpc.failures.count("10.0.0.7", Attempt.LOGIN)
        answer, _ = await peer.exchange({"op": operation, **values, "peer": "10.0.0.7"})
        assert answer["result"].pop("wait") > 0 and not answer["result"]
        assert await refusal(peer, operation, **values, peer="10.0.0.8") == (HResult.MQ_ERROR_ACCESS_DENIED, said)
        assert peer.door.logins.counts["http", "refused"] == 3 and not peer.door.logins.counts["http", "ok"]

    with_peer(tmp_path, test)


def test_a_login_by_token_or_link_is_that_of_its_user(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        sid = peer.users.lookup("", "alice")[1]
        secret, token = peer.tokens.create("ci", "alice", sid, Role.MONITOR)
        answer, _ = await peer.exchange({"op": "login_by_token", "token": secret, "peer": "10.0.0.7"})
        by_token = answer["result"].pop("ticket")
        told = {"name": "alice", "sid": sid, "administrator": False, "role": int(Role.MONITOR), "token": token.id}
        assert answer["result"] == told
        assert (await peer.exchange({"op": "whoami", "ticket": by_token}))[0] == {"result": told}
        assert peer.uses.of(token.id) is not None
        link = create_link(tmp_path, "root")
        answer, _ = await peer.exchange({"op": "login_by_link", "secret": link, "peer": "10.0.0.7"})
        assert (answer["result"]["name"], answer["result"]["administrator"]) == ("root", True)
        assert answer["result"]["token"] == ""
        assert peer.door.logins.counts["http", "ok"] == 2
        denied, said = await refusal(peer, "check_password", ticket=by_token, peer="10.0.0.7", password="one")
        assert (denied, said.partition(":")[0]) == (
            HResult.MQ_ERROR_ACCESS_DENIED, "a token cannot change the password",
        )  # fmt: skip
        assert peer.door.identity(by_token, "10.0.0.7").user == "alice"
        peer.tokens.revoke(token.id)
        with pytest.raises(AuthenticationError, match="no longer valid"):
            peer.door.identity(by_token, "10.0.0.7")

    with_peer(tmp_path, test)


def test_a_wrong_password_of_someone_logged_in_counts_as_a_failed_login(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        ticket = await peer.ticket()

        async def check(password: str) -> dict[str, Any]:
            values = {"op": "check_password", "ticket": ticket, "peer": "10.0.0.7", "password": password}
            return (await peer.exchange(values))[0]["result"]

        assert await check("one") == {"good": True, "wait": 0}
        assert peer.door.logins.counts["http", "refused"] == 0
        for count in (1, 2, 3):
            assert await check("two") == {"good": False, "wait": 0}
            assert peer.door.logins.counts["http", "refused"] == count
        late = await check("one")
        assert late["good"] is False and 0 < late["wait"] <= 1

    with_peer(tmp_path, test)


def test_without_a_provider_nobody_logs_in_by_openid(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        said = (HResult.MQ_ERROR_ACCESS_DENIED, "no OpenID provider is configured (setting oidc_issuer)")
        assert await refusal(peer, "begin_openid", redirect="https://h/") == said
        values = {"state": "s", "code": "c", "redirect": "https://h/", "peer": "10.0.0.7"}
        assert await refusal(peer, "login_by_openid", **values) == said

    with_peer(tmp_path, test)


def test_lists_of_the_whole_queue_manager_are_for_administrators(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        alice, root = await peer.ticket(), await peer.ticket("root")
        for operation in ("handles", "connections", "sequences", "transactions", "relays"):
            denied, said = await refusal(peer, operation, ticket=alice)
            assert denied == HResult.MQ_ERROR_ACCESS_DENIED and "alice" in said, operation
            answer, data = await peer.exchange({"op": operation, "ticket": root})
            assert answer == {"result": len(data.splitlines())}, operation

    with_peer(tmp_path, test)


def test_accounts_of_the_users_file_have_the_sids_that_an_access_check_would_use(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        ticket = await peer.ticket()
        sids = {name: peer.users.lookup("", name)[1] for name in ("alice", "root")}
        answer, _ = await peer.exchange({"op": "accounts", "ticket": ticket})
        assert {sid: answer["result"][sid] for sid in sids.values()} == {sid: name for name, sid in sids.items()}
        found = {}
        for name in sids:
            answer, _ = await peer.exchange({"op": "sids", "ticket": ticket, "name": name})
            found[name] = answer["result"]
            assert sids[name] in found[name] and found[name] == sorted(found[name])
        assert set(found["root"]) - set(found["alice"]) == {sids["root"], "S-1-5-32-544"}
        unknown = await refusal(peer, "sids", ticket=ticket, name="nobody")
        assert unknown == (HResult.MQ_ERROR_ILLEGAL_USER, "there is no user nobody")

    with_peer(tmp_path, test)


def test_the_preconditions_of_message_traffic_are_checked_one_by_one(tmp_path: Path) -> None:
    async def test(peer: Peer, world: World) -> None:
        answer, _ = await peer.exchange({"op": "health"})
        assert answer["result"] == {"disk": "ok", "store": "ok", "rpc": "not listening"}
        world.manager.changes.throttled = True
        with mock.patch.object(type(peer.rpc), "is_listening", new_callable=mock.PropertyMock) as listening:
            listening.side_effect = OSError("no descriptor")
            answer, _ = await peer.exchange({"op": "health"})
        assert answer["result"] == {
            "disk": "nearly full: no messages are accepted", "store": "ok", "rpc": "can't be checked: no descriptor",
        }  # fmt: skip

    with_peer(tmp_path, test)
