"""Two queue managers of a domain: messages that one encrypts and signs for a public queue of the other are readable
and authentic there, and the domain's groups determine access. Their files contain only their private keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from impacket.dcerpc.v5 import mgmt as impacket_mgmt

from command_line import add_user, checked, invoke
from daemon import Daemon, eventually, open_files
from interop import domain_controller as domain
from interop.domain_controller import DOMAIN, PASSWORD, DomainController, command, login
from interop.domain_member import Member
from interop.impacket_client import INTEGRITY, MQ_OK, Client, body
from interop.impacket_client import connect as impacket_connection
from interop.test_remote_half import call_open, handed_on, open_there
from msrpc.rpc.mgmt import RPC_S_UNKNOWN_AUTHN_SERVICE
from openmsmq.com import Dispatch, close_all
from openmsmq.model.errors import MsmqError
from openmsmq.protection.keys import unpack_directory_keys
from openmsmq.protocols.certificates import certificates_in

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
NEAR = "MQ3"
SERVICE = f"host/{NEAR.lower()}.rig.test@{domain.REALM}"
ATTRIBUTES = "mSMQSignCertificates", "mSMQDigests"

Run = Callable[..., str]


def settings(directory: DomainController, keytab: Path, name: str, *more: str) -> tuple[str, ...]:
    return (
        "--directory-provider", "active-directory", "--directory-controllers", directory.address,
        "--kerberos-keytab", str(keytab), "--computer-name", name, "--no-allow-anonymous",
        "--domain-administrators", directory.sid("carol"), *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def far(directory: DomainController, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    keytab = directory.keytab(domain.OTHER_SERVICE)
    place = tmp_path_factory.mktemp("far") / "data"
    with Daemon(place, *settings(directory, keytab, "OTHER", "--logins", "kerberos,ntlm")) as running:
        yield running
        assert running.alive
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def near(
    directory: DomainController, member: Member, far: Daemon, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("near") / "data"
    port = str(far.ready["endpoints"]["messages"]["port"])
    way = ("--peers", f"OTHER=127.0.0.1:{far.port}", "--peer-message-port", port, "--logins", "kerberos,winbind")
    way = (*way, "--peer-login", "kerberos")
    keytab = directory.keytab(f"{NEAR}$")
    with Daemon(place, *settings(directory, keytab, NEAR, *way), prepare=member.enter()) as running:
        yield running
        close_all()
        assert running.alive
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def carol(directory: DomainController, far: Daemon, tickets: dict[str, Path]) -> Run:
    return command(far, tickets["carol"], domain.OTHER_NAME, OPENMSMQ_DIRECTORY_CONTROLLERS=directory.address)


def created(carol: Run, far: Daemon, tickets: dict[str, Path], name: str, **properties: Any) -> str:
    with far.connect(**login(tickets["carol"], domain.OTHER_NAME)) as manager:
        manager.create_queue(rf".\{name}", **properties)
        found = manager.format_name(rf".\{name}")
    carol("queue", "grant", found, "carol@rig.test", "FullControl", "--yes")
    return found


def received(far: Daemon, tickets: dict[str, Path], name: str, seconds: float = 20) -> Any:
    with (
        far.connect(**login(tickets["carol"], domain.OTHER_NAME)) as manager,
        manager.open(name, protocol="qmcomm") as queue,
    ):
        return queue.receive(seconds)


def test_the_keys_of_a_queue_manager_are_in_the_directory(
    directory: DomainController, near: Daemon, far: Daemon, tickets: dict[str, Path]
) -> None:
    for name in (NEAR, "OTHER"):

        def keys(name: str = name) -> bytes:
            found = directory.search("alice", "(objectClass=mSMQConfiguration)", "mSMQEncryptKey").split("dn: ")
            own = next((entry for entry in found if entry.startswith(f"CN=msmq,CN={name},")), "")
            return bytes_in(own, "mSMQEncryptKey")

        (key, *_) = unpack_directory_keys(eventually(keys, 20))
        assert key.key.bits == 2048


def bytes_in(ldif: str, attribute: str) -> bytes:
    import base64

    found = [line.partition(":: ")[2] for line in ldif.splitlines() if line.startswith(f"{attribute}:: ")]
    return base64.b64decode(found[0]) if found else b""


def test_a_body_is_encrypted_for_a_public_queue_of_another_machine_by_the_key_in_the_directory(
    near: Daemon, far: Daemon, carol: Run, tickets: dict[str, Path], directory: DomainController
) -> None:
    name = created(carol, far, tickets, "sealed", priv_level=2)
    carol("queue", "grant", name, "everyone", "WriteMessage", "--yes")  # the sender does not sign
    alice = directory.ticket("alice", SERVICE, name="near")
    with near.connect(**login(alice, SERVICE)) as manager, manager.open(name, "send") as queue:
        queue.send(b"for their eyes", privacy_level=5)
        got = received(far, tickets, name)
        assert (got.body, got.privacy_level) == (b"for their eyes", 5)
    with far.connect(**login(tickets["carol"], domain.OTHER_NAME)) as manager:
        manager.create_queue(r".\private$\sealed", priv_level=2)
        private = manager.format_name(r".\private$\sealed")
    carol("queue", "grant", private, "everyone", "WriteMessage", "--yes")
    with near.connect(**login(alice, SERVICE)) as manager, manager.open(private, "send") as queue:
        queue.send(b"for a private queue", privacy_level=5)
        assert received(far, tickets, private).body == b"for a private queue"
    for place in (near.directory, far.directory):
        assert not (place / "peer-keys.json").exists()
    unknown = f"PRIVATE={UUID(int=7)}\\00000011"
    with near.connect(**login(alice, SERVICE)) as manager, manager.open(unknown, "send") as queue:
        with pytest.raises(MsmqError, match="PUBLIC_KEY_NOT_FOUND"):
            queue.send(b"for nobody", privacy_level=5)


def test_users_register_their_own_certificates_and_a_queue_manager_does_if_permitted(
    directory: DomainController, near: Daemon, tickets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "alice.pem"
    certificate.write_text(self_signed())
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tickets['alice']}")
    there = {"OPENMSMQ_DIRECTORY_CONTROLLERS": directory.address}

    def certificates(*arguments: str) -> Any:
        return invoke("certificates", *arguments, "--domain", OPENMSMQ_DATA_DIR=str(tmp_path), **there)

    registered = certificates("register", "alice@rig.test", str(certificate))
    assert registered.code == 0, registered
    ldif = directory.search("alice", "(sAMAccountName=alice)", *ATTRIBUTES)
    (found,) = certificates_in(bytes_in(ldif, ATTRIBUTES[0]))
    assert found.digest.hex() == registered.stdout.strip() and bytes_in(ldif, ATTRIBUTES[1]) == found.digest
    refused = certificates("register", "bob@rig.test", str(certificate))
    assert refused.code == 1 and "is written by its user" in refused.stderr, refused
    removed = certificates("remove", r"RIG\alice", registered.stdout.strip())
    assert removed.code == 0, removed
    assert bytes_in(directory.search("alice", "(sAMAccountName=alice)", *ATTRIBUTES), ATTRIBUTES[0]) == b""

    application = Dispatch("MSMQ.MSMQApplication", "127.0.0.1", near.mapper_port, **user("alice"))
    with pytest.raises(MsmqError):  # the machine has no right
        application.RegisterCertificate()
    assert "the right to write mSMQSignCertificates and mSMQDigests of CN=alice" in near.log


def user(name: str) -> dict[str, str]:
    return {"user": name, "password": PASSWORD, "domain": DOMAIN}


def self_signed() -> str:
    from datetime import UTC, datetime

    from openmsmq.protection.certificates import pem_of
    from openmsmq.protection.internal_certificates import make_certificate

    return pem_of(make_certificate("S-1-5-21-1-2-3-4", 2048, datetime.now(UTC)).encoded)


def test_a_signature_is_proved_by_the_directory_and_the_groups_of_its_sender_decide(
    directory: DomainController, near: Daemon, far: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    sid = directory.sid(f"{NEAR}$")
    for name in ("alice", "bob"):  # the queue manager may write their certificates
        directory.tool("dsacl", "set", f"--objectdn=CN={name},CN=Users,DC=rig,DC=test", f"--sddl=(A;;WPRP;;;{sid})")
    guarded = created(carol, far, tickets, "guarded", authenticate=True)
    carol("queue", "revoke", guarded, "everyone", "--yes")
    for right in ("GetQueueProperties", "GetQueuePermissions"):  # the sender's queue manager finds it by these
        carol("queue", "grant", guarded, "authenticated", right, "--yes")
    carol("queue", "grant", guarded, r"RIG\orders", "Send", "--yes")

    def send(name: str) -> None:
        def new(kind: str) -> Any:
            return Dispatch(f"MSMQ.{kind}", "127.0.0.1", near.mapper_port, **user(name))

        new("MSMQApplication").RegisterCertificate()
        info, message = new("MSMQQueueInfo"), new("MSMQMessage")
        info.FormatName = guarded
        queue = info.Open(2, 0)
        message.AuthLevel, message.Delivery, message.Label, message.Journal = 8, 1, f"of {name}", 1
        message.Send(queue)

    send("bob")  # a user outside the group
    send("alice")  # a user in a group of the group
    got = received(far, tickets, guarded)
    assert (got.label, got.authentication_level) == ("of alice", 3)
    with pytest.raises(MsmqError):
        received(far, tickets, guarded, 1)
    eventually(lambda: "NACK_ACCESS_DENIED" in far.log, 10)
    kept = {path for path, file in open_files(far.directory) if b"alice" in file.read()}
    assert {path.name for path in kept} <= {"audit.jsonl"}, kept


def test_a_queue_manager_reads_at_another_one_with_the_ticket_of_its_machine(
    directory: DomainController, near: Daemon, far: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    """Section 4.2 of [MS-MQMP]: the application, impacket, uses an account of the file there, and one of the domain
    here."""
    there, queue = r".\private$\remote", r"OS:OTHER\private$\remote"
    with far.connect(**login(tickets["carol"], domain.OTHER_NAME)) as manager:
        manager.create_queue(there)
        with manager.open(there, "send") as sending:
            sending.send(b"from afar", recoverable=True)
    carol("queue", "revoke", there, "everyone", "--yes")
    carol("queue", "grant", there, add_user(far.directory, "application", PASSWORD), "Receive", "--yes")
    peer = Client(far.port, INTEGRITY, PASSWORD, user="application")
    handed = open_there(peer, queue=queue)
    application = Client(near.port, INTEGRITY, PASSWORD, user="alice", of=DOMAIN)
    assert call_open(application, queue=queue)["lplpRemoteQueueName"] == "OTHER\\private$\\remote\0"
    second = handed_on(application, handed, queue=queue)
    assert second["result"] == MQ_OK, f"{second['result']:#x}"
    received = application.read(second["pdwQMContext"])
    assert (received["result"], body(received)) == (MQ_OK, b"from afar")
    application.close()
    peer.close()
    by = ("--by", directory.sid(f"{NEAR}$"), "--action", "login", "--json")  # the log leaves out repeated lines
    (line,) = eventually(lambda: checked("audit", "--data-dir", str(far.directory), *by).splitlines())
    assert json.loads(line)["actor"]["name"] == f"{NEAR}$"


def test_a_server_reports_the_service_for_which_clients_need_a_ticket(near: Daemon) -> None:
    dce = impacket_connection(near.port)
    dce.bind(impacket_mgmt.MSRPC_UUID_MGMT)
    for mechanism in (9, 16):
        name = b"".join(impacket_mgmt.hinq_princ_name(dce, mechanism, 256)["princ_name"])
        assert name.startswith(b"host/") and name.endswith(b"\0")
    assert impacket_mgmt.hinq_princ_name(dce, 10, 256)["status"] == RPC_S_UNKNOWN_AUTHN_SERVICE
    dce.disconnect()
