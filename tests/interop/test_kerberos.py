"""Domain accounts log in with Kerberos: Samba is the domain controller, impacket the independent client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from impacket.krb5.asn1 import AD_IF_RELEVANT, TGS_REP, EncTicketPart, Ticket
from impacket.krb5.ccache import CCache, CountedOctetString
from impacket.krb5.crypto import Key, _enctype_table
from impacket.krb5.keytab import Keytab
from pyasn1.codec.der import decoder, encoder

import openmsmq
import openmsmq.aio
from command_line import add_user, invoke
from daemon import Daemon
from interop import domain_controller as domain
from interop import impacket_msmq as calls
from interop.domain_controller import (
    HOST,
    OTHER_NAME,
    OTHER_SERVICE,
    REALM,
    SERVICE_NAME,
    DomainController,
    command,
    login,
)
from interop.impacket_client import SEND_ACCESS, direct
from interop.impacket_client import connect as impacket_connection
from interop.samba_connection import PYTHON, Samba, need_samba
from msrpc.rpc.kerberos import KerberosCredentials, KerberosInitiator, KerberosKeys
from msrpc.rpc.pdu import AuthLevel
from openmsmq.model.errors import AccessDenied, AuthenticationError, BindError
from openmsmq.model.security import sid_bytes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
LEVELS = [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY]
REFUSED = (AccessDenied, BindError)  # AuthenticationError is a subclass of AccessDenied
ORDERS = r".\private$\orders"
OF_BOB = r".\private$\of-bob"


@pytest.fixture(scope="module")
def daemon(controller: DomainController, keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    options = ("--logins", "kerberos,ntlm", "--kerberos-keytab", str(keytab), "--no-allow-anonymous")
    options += ("--domain-administrators", controller.sid("carol"))
    with Daemon(tmp_path_factory.mktemp("daemon") / "data", *options) as running:
        add_user(running.directory, "local", "Passw0rd!")
        yield running
        assert running.alive
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def orders(controller: DomainController, daemon: Daemon, tickets: dict[str, Path]) -> str:
    """A queue to which only the domain's group and the owner may send."""
    run = command(daemon, tickets["carol"])
    run("queue", "create", ORDERS)
    run("queue", "revoke", ORDERS, "everyone", "--yes")
    run("queue", "grant", ORDERS, controller.sid(domain.GROUP), "Send", "--yes")
    run("queue", "grant", ORDERS, controller.sid("carol"), "FullControl", "--yes")
    return ORDERS


@pytest.mark.parametrize("spnego", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_a_ticket_logs_in_at_every_level(
    daemon: Daemon, tickets: dict[str, Path], level: AuthLevel, spnego: bool
) -> None:
    name = rf".\private$\level{level}{int(spnego)}"
    body = os.urandom(30_000)  # several fragments
    with daemon.connect(**login(tickets["carol"]), level=level, spnego=spnego) as manager:
        manager.create_queue(name)
        with manager.open(name, "send") as queue:
            queue.send(body)
        with manager.open(name, protocol="qmcomm") as queue:
            assert queue.receive(5).body == body


def test_group_members_may_send_and_others_are_refused(
    daemon: Daemon, controller: DomainController, orders: str, tickets: dict[str, Path]
) -> None:
    with daemon.connect(**login(tickets["alice"])) as manager, manager.open(orders, "send") as queue:
        queue.send(b"of alice")  # a user in a group of the group
    with daemon.connect(**login(tickets["bob"])) as manager, pytest.raises(AccessDenied):
        manager.open(orders, "send")
    with daemon.connect(**login(tickets["carol"])) as manager, manager.open(orders, protocol="qmcomm") as queue:
        received = queue.receive(5)
    assert (received.body, received.sender_identifier) == (b"of alice", sid_bytes(controller.sid("alice")))
    assert rf"RIG\alice ({controller.sid('alice')}) logged in from 127.0.0.1 by kerberos" in daemon.log


def test_administrators_are_the_accounts_in_the_setting(daemon: Daemon, tickets: dict[str, Path]) -> None:
    command(daemon, tickets["carol"])("machine", "tidy")
    with pytest.raises(AssertionError, match="ACCESS_DENIED"):
        command(daemon, tickets["bob"])("machine", "tidy")


def test_local_users_still_log_in_and_the_log_names_the_login_mechanism(daemon: Daemon) -> None:
    with daemon.connect(user="local", password="Passw0rd!", spnego=True) as manager:
        assert manager.machine_id
    assert "logged in from 127.0.0.1 by ntlm" in daemon.log
    with pytest.raises(REFUSED):
        daemon.connect()


def test_an_asynchronous_client_logs_in_with_a_ticket(daemon: Daemon, tickets: dict[str, Path]) -> None:
    async def run() -> str:
        manager = await openmsmq.aio.connect("127.0.0.1", daemon.port, **login(tickets["bob"]))
        async with manager:
            return await manager.machine_id()

    assert asyncio.run(run())


@pytest.mark.parametrize("level", [2, 5, 6])
def test_impacket_logs_in_with_a_ticket(
    daemon: Daemon, tickets: dict[str, Path], orders: str, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    def machine_of(user: str, service: str = HOST) -> Any:
        monkeypatch.setenv("KRB5CCNAME", str(tickets[user]))
        dce = impacket_connection(daemon.port, host="127.0.0.1")
        transport = dce.get_rpc_transport()
        transport.setRemoteName(service)
        transport.set_credentials(user, "", REALM)
        dce.set_credentials(*transport.get_credentials())
        dce.set_auth_type(9)
        dce.set_auth_level(level)
        dce.bind(calls.QMCOMM)
        return dce

    dce = machine_of("alice")
    handle = open_for_sending(dce)
    assert handle["result"] == 0
    dce.disconnect()
    dce = machine_of("bob")
    assert open_for_sending(dce)["result"] == 0xC00E0025
    dce.disconnect()


@pytest.mark.parametrize("options", ["spnego,connect", "spnego,packet", "spnego,sign", "spnego,seal"])
def test_samba_logs_in_with_a_ticket_and_signs_headers(daemon: Daemon, tickets: dict[str, Path], options: str) -> None:
    need_samba()
    body, name = os.urandom(20_000), rf".\private$\samba{options.replace(',', '')}"
    binding = f"target_principal={SERVICE_NAME},{options}"
    with Samba(daemon.port, binding, (f"FILE:{tickets['carol']}", "-")) as samba:
        theirs = samba.manager()
        theirs.create_queue(name)
        with theirs.open(name, "send") as queue:
            queue.send(body)
        with theirs.open(name, protocol="qmcomm") as queue:
            assert queue.receive(5).body == body


# Only one interface: with a second one, Samba 4.17 sends a random token, from memory that it has freed.
SAMBA_CALL = """
import sys
from samba import credentials, param
from samba.dcerpc import mgmt
settings, user = param.LoadParm(), credentials.Credentials()
settings.set("realm", "RIG.TEST")
user.set_kerberos_state(credentials.MUST_USE_KERBEROS)
user.set_named_ccache(sys.argv[2], credentials.SPECIFIED, settings)
print(mgmt.mgmt(sys.argv[1], settings, user).is_server_listening())
"""


@pytest.mark.parametrize("level", ["connect", "packet", "sign", "seal"])
def test_samba_logs_in_with_a_ticket_without_spnego(daemon: Daemon, tickets: dict[str, Path], level: str) -> None:
    need_samba()
    binding = f"ncacn_ip_tcp:127.0.0.1[{daemon.port},target_principal={SERVICE_NAME},krb5,{level}]"
    run = [PYTHON, "-I", "-c", SAMBA_CALL, binding, f"FILE:{tickets['alice']}"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def open_for_sending(dce: Any) -> Any:
    request = calls.request(
        "rpc_QMOpenQueueInternal", pQueueFormat=direct("orders"), dwDesiredAccess=SEND_ACCESS, dwShareMode=0,
        pLicGuid=bytes(range(16)), lpClientName="client\0",
    )  # fmt: skip
    return dce.request(request, checkError=False)


# -- invalid tickets --------------------------------------------------------------------------------------------------


def test_a_ticket_for_another_service_is_refused_with_the_reason_in_the_log(
    daemon: Daemon, tickets: dict[str, Path]
) -> None:
    with pytest.raises(REFUSED):
        daemon.connect(**login(tickets["alice"], OTHER_NAME))
    assert "Kerberos: " in daemon.log


def test_an_unknown_service_and_an_empty_ticket_cache_fail_in_the_client(
    daemon: Daemon, tickets: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(AuthenticationError, match="not found in Kerberos database"):
        daemon.connect(**login(tickets["alice"], f"host/nobody.rig.test@{REALM}"))
    with pytest.raises(AuthenticationError, match="cache"):
        daemon.connect(**login(tmp_path / "none"))


ACCEPT = """
import sys; from pathlib import Path
from msrpc.rpc.kerberos import KerberosKeys
try:
    KerberosKeys(Path(sys.argv[1]), "", Path(sys.argv[2])).acceptor(2).step(bytes.fromhex(sys.argv[3]))
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("shift", "reason"),
    [("+0", ""), ("+4m", ""), ("+10m", "skew too great"), ("+3h", "expired"), ("-10m", "not yet valid")],
)
def test_clocks_that_differ_by_more_than_five_minutes_and_old_tickets_are_refused(
    keytab: Path, tickets: dict[str, Path], tmp_path: Path, shift: str, reason: str
) -> None:
    token = first_leg(tickets["alice"])
    run = ["faketime", "-f", shift, sys.executable, "-c", ACCEPT, str(keytab), str(tmp_path / "replay"), token.hex()]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert reason in done.stdout
    assert bool(done.stdout) == bool(reason), done.stdout


def first_leg(cache: Path, service: str = SERVICE_NAME, level: int = 2) -> bytes:
    return KerberosInitiator(KerberosCredentials(service, f"FILE:{cache}"), level).step(b"")


def exchange(keys: KerberosKeys, cache: Path, service: str = SERVICE_NAME, level: int = 2) -> tuple[Any, Any]:
    client = KerberosInitiator(KerberosCredentials(service, f"FILE:{cache}"), level)
    server = keys.acceptor(level)
    server.step(client.step(server.step(client.step(b""))))
    return client, server


def test_an_authenticator_is_accepted_once(keytab: Path, tickets: dict[str, Path], tmp_path: Path) -> None:
    keys, token = KerberosKeys(keytab, "", tmp_path / "replay"), first_leg(tickets["alice"])
    assert keys.acceptor(2).step(token)
    with pytest.raises(AuthenticationError, match="replay"):
        keys.acceptor(2).step(token)


@pytest.mark.parametrize("level", [5, 6])
def test_changed_and_repeated_messages_are_refused(
    keytab: Path, tickets: dict[str, Path], tmp_path: Path, level: int
) -> None:
    keys = KerberosKeys(keytab, "", tmp_path / "replay")
    body = bytes(32)
    for header in (b"", b"header"):
        for change in ("header", "body", "signature", "again", "left out", ""):
            client, server = exchange(keys, tickets["alice"], level=level)
            if change == "left out":
                client.sign(b"what never comes")
            sealed, signature = client.wrap(header, body, b"") if level == 6 else (body, client.sign(header + body))
            assert len(signature) == client.signature_size(level)
            spoilt = {
                "header": (b"Header" if header else b"x", sealed, signature),
                "body": (header, bytes((sealed[0] ^ 1,)) + sealed[1:], signature),
                "signature": (header, sealed, signature[:-1] + bytes((signature[-1] ^ 1,))),
            }.get(change, (header, sealed, signature))

            def opened(part: tuple[bytes, bytes, bytes], by: Any = server) -> None:
                if level == 6:
                    assert by.unwrap(part[0], part[1], b"", part[2]) == body
                else:
                    by.verify(part[0] + part[1], part[2])

            if change == "again":
                opened(spoilt)
            if change:
                with pytest.raises(AuthenticationError):
                    opened(spoilt)
            else:
                opened(spoilt)


def test_tokens_that_are_cut_off_or_changed_are_refused(keytab: Path, tickets: dict[str, Path], tmp_path: Path) -> None:
    keys, token = KerberosKeys(keytab, "", tmp_path / "replay"), first_leg(tickets["alice"])
    spoilt = token[:-20] + bytes((token[-20] ^ 1,)) + token[-19:]
    half = token[: len(token) // 2]
    for wrong in (b"", b"\x60", b"\x60\x00", os.urandom(2000), half, token[:-1], spoilt):
        with pytest.raises(AuthenticationError):
            keys.acceptor(2).step(wrong)


def altered(cache: Path, keytab: Path, rid: int, to: int, place: Path) -> Path:
    """Return a cache whose ticket has another number in its PAC, encrypted with the service's key as before."""
    credentials = CCache.loadFile(str(cache))
    credential = credentials.getCredential(f"host/{HOST}@{REALM}")
    ticket = decoder.decode(credential.toTGS()["KDC_REP"], asn1Spec=TGS_REP())[0]["ticket"]
    kind = int(ticket["enc-part"]["etype"])
    keys = Keytab.loadFile(str(keytab))
    block = next(e.main_part["keyblock"] for e in keys.entries if e.main_part["keyblock"]["keytype"] == kind)
    cipher, key = _enctype_table[kind], Key(kind, bytes(block["keyvalue"]["data"]))
    plain = cipher.decrypt(key, 2, bytes(ticket["enc-part"]["cipher"]))
    part = decoder.decode(plain, asn1Spec=EncTicketPart())[0]
    outer = part["authorization-data"][0]
    inner = decoder.decode(bytes(outer["ad-data"]), asn1Spec=AD_IF_RELEVANT())[0]
    pac = bytes(inner[0]["ad-data"])
    old, new = rid.to_bytes(4, "little"), to.to_bytes(4, "little")
    assert old in pac
    inner[0]["ad-data"] = pac.replace(old, new)
    outer["ad-data"] = encoder.encode(inner)
    ticket["enc-part"]["cipher"] = cipher.encrypt(key, 2, encoder.encode(part), None)
    credential.ticket = CountedOctetString()
    credential.ticket["data"] = encoder.encode(ticket.clone(tagSet=Ticket.tagSet, cloneValueFlag=True))
    credential.ticket["length"] = len(credential.ticket["data"])
    credentials.credentials = [credential]
    credentials.saveFile(str(place))
    return place


def test_a_pac_that_was_altered_is_refused_though_the_ticket_can_be_read(
    controller: DomainController, daemon: Daemon, keytab: Path, tickets: dict[str, Path], tmp_path: Path
) -> None:
    alice, bob = (int(controller.sid(user).rpartition("-")[2]) for user in ("alice", "bob"))
    same = altered(tickets["bob"], keytab, bob, bob, tmp_path / "same")
    assert daemon.connect(**login(same)).machine_id
    forged = altered(tickets["bob"], keytab, bob, alice, tmp_path / "forged")
    with pytest.raises(REFUSED):
        daemon.connect(**login(forged))
    assert "its PAC is missing or its signature is wrong" in daemon.log


def test_a_ticket_without_a_pac_is_refused(
    controller: DomainController, tickets: dict[str, Path], tmp_path: Path
) -> None:
    keys = KerberosKeys(controller.keytab(OTHER_SERVICE), "", tmp_path / "replay")
    _, server = exchange(keys, tickets["alice"], OTHER_NAME)
    assert server.identity.user == "alice"
    controller.without_pac(OTHER_SERVICE)
    with pytest.raises(AuthenticationError, match="its PAC is missing"):
        exchange(keys, controller.ticket("alice", OTHER_NAME, name="without"), OTHER_NAME)


def test_delegated_credentials_and_weak_requests_are_refused(
    keytab: Path, tickets: dict[str, Path], tmp_path: Path
) -> None:
    from gssapi import RequirementFlag

    keys = KerberosKeys(keytab, "", tmp_path / "replay")
    for more, less, reason in (
        (RequirementFlag.delegate_to_peer, 0, "delegates"),
        (0, RequirementFlag.replay_detection, "replay_detection"),
    ):
        client = KerberosInitiator(KerberosCredentials(SERVICE_NAME, f"FILE:{tickets['alice']}"), 6)
        wanted = client._wanted()
        client._wanted = lambda flags=(wanted | int(more)) & ~int(less): flags  # type: ignore[method-assign]
        server = keys.acceptor(6)
        with pytest.raises(AuthenticationError, match=reason):
            server.step(client.step(server.step(client.step(b""))))
        assert not server.complete and server.identity is None


def test_a_disabled_account_gets_no_new_ticket_and_keeps_the_one_it_holds(
    controller: DomainController, daemon: Daemon
) -> None:
    held = controller.ticket("bob", SERVICE_NAME, name="held")
    controller.tool("user", "disable", "bob")
    try:
        with pytest.raises(subprocess.CalledProcessError):
            controller.ticket("bob", name="new")
        assert daemon.connect(**login(held)).machine_id
    finally:
        controller.tool("user", "enable", "bob")


def test_existing_tickets_work_while_no_controller_answers(
    controller: DomainController, daemon: Daemon, tickets: dict[str, Path]
) -> None:
    controller.stop()
    try:
        assert daemon.connect(**login(tickets["alice"])).machine_id
        with pytest.raises(AuthenticationError, match="KDC"):
            daemon.connect(**login(tickets["alice"], f"host/unasked.rig.test@{REALM}"))
    finally:
        controller.start()


def test_a_daemon_without_keys_names_the_remedy(controller: DomainController, keytab: Path, tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        ended = invoke("serve", "--data-dir", str(tmp_path / "data"), "--logins", "kerberos", *options)
        assert ended.code == 2
        return ended.stderr

    assert "kerberos_keytab" in refused()
    assert "can't be read" in refused("--kerberos-keytab", str(tmp_path / "none"))
    (tmp_path / "empty").touch(0o600)
    assert "has no key" in refused("--kerberos-keytab", str(tmp_path / "empty"))
    assert "has no key of host/else" in refused(
        "--kerberos-keytab", str(keytab), "--kerberos-principal", f"host/else.rig.test@{REALM}"
    )
    keytab.chmod(0o644)
    try:
        assert "can be read by other users" in refused("--kerberos-keytab", str(keytab))
    finally:
        keytab.chmod(0o600)


def test_many_users_log_in_concurrently(daemon: Daemon, tickets: dict[str, Path]) -> None:
    failures: list[Exception] = []

    def repeat(cache: Path) -> None:
        try:
            for _ in range(30):
                daemon.connect(**login(cache)).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(cache,)) for cache in [*tickets.values()] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_new_key_works_once_it_is_in_the_keytab_and_old_tickets_stay_valid(
    controller: DomainController, daemon: Daemon, tickets: dict[str, Path]
) -> None:
    controller.tool("user", "setpassword", domain.SERVICE, "--newpassword=Another#1")
    fresh = controller.ticket("alice", SERVICE_NAME, name="fresh")
    with pytest.raises(REFUSED):
        daemon.connect(**login(fresh))
    controller.export(domain.SERVICE)
    assert daemon.connect(**login(fresh)).machine_id
    assert daemon.connect(**login(tickets["bob"])).machine_id


def test_a_renamed_account_is_the_same_one_with_the_ticket_it_holds_and_with_new_ones(
    controller: DomainController, daemon: Daemon, tickets: dict[str, Path]
) -> None:
    held, sid = controller.ticket("bob", SERVICE_NAME, name="before"), controller.sid("bob")
    run = command(daemon, tickets["carol"])
    run("queue", "create", OF_BOB)
    run("queue", "revoke", OF_BOB, "everyone", "--yes")
    run("queue", "grant", OF_BOB, sid, "Send", "--yes")
    controller.tool("user", "rename", "bob", "--samaccountname=robert", "--upn=robert@rig.test")
    try:
        assert controller.sid("robert") == sid
        with pytest.raises(subprocess.CalledProcessError):
            controller.ticket("bob", name="gone")
        for cache in (held, controller.ticket("robert", SERVICE_NAME)):
            with daemon.connect(**login(cache)) as manager, manager.open(OF_BOB, "send") as queue:
                queue.send(b"of the same account")
    finally:
        controller.tool("user", "rename", "robert", "--samaccountname=bob", "--upn=bob@rig.test")
