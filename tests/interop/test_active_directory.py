"""Public queues in Active Directory: Samba is the domain controller; ldapsearch and Samba's tools are the
independent clients. No file of the daemon contains an account, queue or right of the domain, except one local user
for DCOM."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from command_line import add_user, invoke
from daemon import Daemon, eventually, open_files
from interop import domain_controller as domain
from interop.domain_controller import DomainController, command, login
from openmsmq.com import Dispatch, close_all
from openmsmq.directory.active import schema
from openmsmq.directory.active.session import LdapCredentials, LdapSession, Scope
from openmsmq.directory.active.views import View
from openmsmq.model.errors import AccessDenied, HResult, MsmqError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
MACHINE = "CN=msmq,CN=MQ1,CN=Computers,DC=rig,DC=test"
LOCAL = {"user": "local", "password": "Passw0rd!"}
NOP, EQ, NEQ, LT, GT, LE, GE = range(7)

Run = Callable[..., str]


def options(controller: DomainController, keytab: Path, controllers: str = "", name: str = "MQ1") -> tuple[str, ...]:
    return (
        "--directory-provider", "active-directory", "--directory-controllers", controllers or controller.address,
        "--kerberos-keytab", str(keytab), "--computer-name", name, "--logins", "kerberos,ntlm",
        "--no-allow-anonymous", "--domain-administrators", controller.sid("carol"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def daemon(directory: DomainController, keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data", *options(directory, keytab)) as running:
        add_user(running.directory, LOCAL["user"], LOCAL["password"])
        yield running
        close_all()
        assert running.alive
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def carol(directory: DomainController, daemon: Daemon, tickets: dict[str, Path]) -> Run:
    """The command line as an administrator, which resolves names in the domain with her ticket."""
    return command(daemon, tickets["carol"], OPENMSMQ_DIRECTORY_CONTROLLERS=directory.address)


def created(carol: Run, name: str, *more: str) -> str:
    """Create a public queue; returns its format name."""
    return str(json.loads(carol("queue", "create", "--public", name, "--json", *more))["format_name"])


def open_to_all(carol: Run, name: str) -> None:
    """Let everyone send, which the default for queues of domain users does not."""
    carol("queue", "grant", name, "everyone", "WriteMessage", "--yes")


def query(daemon: Daemon) -> Any:
    return Dispatch("MSMQ.MSMQQuery", "127.0.0.1", daemon.mapper_port, **LOCAL)


def found(daemon: Daemon, **criteria: Any) -> list[str]:
    """Return the path names that MSMQQuery finds."""
    infos, names = query(daemon).LookupQueue(**criteria), []
    while (info := infos.Next()) is not None:
        names.append(info.PathName)
    return names


def test_the_directory_determines_the_queue_managers_identity(
    directory: DomainController, daemon: Daemon, tickets: dict[str, Path]
) -> None:
    shown = directory.search("alice", "(objectClass=mSMQConfiguration)", "mSMQSites", "objectGUID")
    assert f"dn: {MACHINE}" in shown and "mSMQSites:: " in shown
    with daemon.connect(**login(tickets["carol"])) as manager:
        machine = manager.machine_id
    guid = "".join(f"\\{octet:02x}" for octet in UUID(str(machine)).bytes_le)
    assert MACHINE in directory.search("alice", f"(objectGUID={guid})", "cn")


def test_a_public_queue_is_found_by_the_attributes_used_by_its_name_and_deleted(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    name = created(carol, "news", "--label", "of the day", "--journal", "--quota", "4000000000")
    ldif = directory.search("alice", "(&(objectClass=mSMQQueue)(mSMQLabelEx=of the day))")
    assert f"dn: CN=news,{MACHINE}" in ldif
    assert {"mSMQJournal: TRUE", "mSMQQueueQuota: -294967296"} <= set(ldif.splitlines())
    assert found(daemon, Label="OF THE day") == ["MQ1\\news"]
    with daemon.connect(**login(tickets["alice"])) as manager, pytest.raises(AccessDenied, match="WriteMessage"):
        manager.open(name, "send")
    open_to_all(carol, name)
    for path in (name, r"DIRECT=OS:MQ1\news"):
        with daemon.connect(**login(tickets["alice"])) as manager, manager.open(path, "send") as queue:
            queue.send(b"by " + path.encode())
    carol("queue", "grant", name, directory.sid("carol"), "FullControl", "--yes")
    with daemon.connect(**login(tickets["carol"])) as manager, manager.open(name, protocol="qmcomm") as queue:
        assert [queue.receive(5).body[:3] for _ in range(2)] == [b"by ", b"by "]
    carol("queue", "delete", name, "--yes")
    assert directory.search("alice", "(mSMQLabelEx=of the day)", "cn") == ""
    assert found(daemon, Label="of the day") == []


def test_the_global_catalog_has_all_that_is_read_of_queues_and_queue_managers(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = created(carol, "catalogued", "--label", "in the catalog")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tickets['carol']}")
    own, catalog = (LdapSession(f"{directory.address}:{port}", LdapCredentials()) for port in (389, 3268))
    identifier = UUID(name.removeprefix("PUBLIC="))
    found = [
        view.identified(identifier, schema.QUEUE_ATTRIBUTES)
        for view in (View(own, "DC=rig,DC=test"), View(catalog, ""))
    ]
    assert found[0] == found[1] and found[0].values["msmqlabelex"] == [b"in the catalog"]
    wanted = ["objectGUID", "mSMQEncryptKey", schema.DESCRIPTOR]
    (machine,) = catalog.search(MACHINE, "(objectClass=*)", wanted, Scope.BASE)
    assert set(machine.values) == {"objectguid", "msmqencryptkey", "ntsecuritydescriptor"}
    own.close()
    catalog.close()


def test_a_path_of_ldap_leads_to_a_queue_and_back(daemon: Daemon, carol: Run) -> None:
    name = created(carol, "by path")
    open_to_all(carol, name)
    info, destination = (
        Dispatch(f"MSMQ.MSMQ{kind}", "127.0.0.1", daemon.mapper_port, **LOCAL) for kind in ("QueueInfo", "Destination")
    )
    info.FormatName = name
    assert info.ADsPath == f"LDAP://CN=by path,{MACHINE}"
    destination.ADsPath = info.ADsPath
    assert (destination.FormatName, destination.ADsPath) == (name, info.ADsPath)
    destination.Open()
    for wrong in (f"LDAP://CN=none,{MACHINE}", "LDAP://CN=MQ1,CN=Computers,DC=rig,DC=test", "no path", ""):
        with pytest.raises(MsmqError) as caught:
            destination.ADsPath = wrong
        assert caught.value.hresult == HResult.MQ_ERROR_QUEUE_NOT_FOUND


def test_queues_are_found_by_every_operator(daemon: Daemon, carol: Run, tickets: dict[str, Path]) -> None:
    kind = str(uuid4())
    for name, label, address in (("m1", "b", ""), ("m2", "c", "234.1.1.1:8001"), ("m3", "", "234.1.1.2:8001")):
        more = ["--label", label] if label else []
        made = created(carol, name, *more, *(["--multicast-address", address] if address else []))
        carol("queue", "grant", made, "authenticated", "FullControl", "--yes")
        with daemon.connect(**login(tickets["carol"])) as manager:
            manager.set_properties(made, type=UUID(kind))

    def those(**criteria: Any) -> str:
        return "".join(name[-1] for name in found(daemon, ServiceTypeGuid=kind, **criteria))

    by_label = {EQ: "2", NEQ: "13", LT: "1", GT: "", LE: "12", GE: "2", NOP: "123"}
    assert {relation: those(Label="C", RelLabel=relation) for relation in by_label} == by_label
    by_address = {EQ: "2", NEQ: "13", LT: "", GT: "3", LE: "2", GE: "23", NOP: "123"}
    address = "234.1.1.1:8001"
    assert {r: those(MulticastAddress=address, RelMulticastAddress=r) for r in by_address} == by_address
    assert (those(MulticastAddress=""), those(Label="", RelLabel=NEQ)) == ("1", "12")
    assert those(Label="*") == those(Label="b)(cn=*") == ""
    assert found(daemon, QueueGuid=str(uuid4())) == []


@pytest.mark.parametrize("name", ["a=b#c", "*()", "#1", "q<>", "x" * 63, "é ü*"])
def test_names_with_special_characters_are_kept(
    directory: DomainController, daemon: Daemon, carol: Run, name: str
) -> None:
    made = created(carol, name)
    with pytest.raises(AssertionError, match="QUEUE_EXISTS"):
        created(carol, name.upper())
    info = Dispatch("MSMQ.MSMQQueueInfo", "127.0.0.1", daemon.mapper_port, **LOCAL)
    info.FormatName = made
    info.Refresh()
    assert info.PathName == f"MQ1\\{name}"
    carol("queue", "delete", made, "--yes")
    assert directory.search("alice", f"(objectGUID={guid_in(made)})", "cn") == ""


def guid_in(format_name: str) -> str:
    return "".join(f"\\{octet:02x}" for octet in UUID(format_name.removeprefix("PUBLIC=")).bytes_le)


def test_a_queue_that_an_administrator_of_the_domain_made_is_found_opened_and_followed(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    directory.add_object(
        f"dn: CN=theirs,{MACHINE}\nobjectClass: mSMQQueue\nmSMQLabelEx: made by Samba\n"
        "nTSecurityDescriptor: D:(A;;GA;;;SY)(A;;RPLCLORC;;;AU)"
        f"(OA;;CR;06bd3202-df3e-11d1-9c86-006008764d0e;;{directory.sid(domain.GROUP)})\n"
    )
    (path,) = found(daemon, Label="made by Samba")
    assert path == "MQ1\\theirs"
    infos = query(daemon).LookupQueue(Label="made by Samba")
    name = infos.Next().FormatName
    with daemon.connect(**login(tickets["alice"])) as manager, manager.open(name, "send") as queue:
        queue.send(b"to theirs")
    with daemon.connect(**login(tickets["bob"])) as manager, pytest.raises(AccessDenied):
        manager.open(name, "send")


def test_members_of_a_domain_group_are_admitted_and_others_refused(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    name = created(carol, "orders")
    carol("queue", "revoke", name, "everyone", "--yes")
    carol("queue", "grant", name, r"RIG\orders", "Send", "--yes")
    carol("queue", "grant", name, "carol@rig.test", "FullControl", "--yes")
    with daemon.connect(**login(tickets["alice"])) as manager, manager.open(name, "send") as queue:
        queue.send(b"of the group")
    with daemon.connect(**login(tickets["bob"])) as manager, pytest.raises(AccessDenied):
        manager.open(name, "send")
    shown = carol("queue", "permissions", name)
    assert "owner: RIG\\carol" in shown
    assert "RIG\\orders" in shown and "WriteMessage" in shown
    assert carol("queue", "permissions", name, "--for", r"RIG\alice").split() == ["WriteMessage"]
    assert carol("queue", "permissions", name, "--for", "bob@rig.test").split() == ["nothing"]
    for who, said in (
        (r"RIG\nobody", "the domain has no user or group"),
        (r"ELSE\orders", "the controllers are of the domain RIG"),
        (r"RIG\Administrators", "is a group of the domain controllers alone"),
    ):
        with pytest.raises(AssertionError, match=said):
            carol("queue", "grant", name, who, "Send", "--yes")
    kept = {path for path, file in open_files(daemon.directory) if re.search(b"alice|RIG", file.read())}
    assert {path.name for path in kept} <= {"audit.jsonl"}, kept


def test_without_a_ticket_or_a_controller_names_of_the_domain_are_refused_with_the_reason(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path], tmp_path: Path
) -> None:
    name = created(carol, "nameless")
    unreachable = command(daemon, tickets["carol"], OPENMSMQ_DIRECTORY_CONTROLLERS="127.0.0.1:9")
    with pytest.raises(AssertionError, match=r"the domain does not answer: .* get a ticket with kinit"):
        unreachable("queue", "grant", name, r"RIG\orders", "Send", "--yes")
    assert directory.sid("carol") in unreachable("queue", "permissions", name)  # SIDs, and a log line with the reason


def test_rights_are_in_the_directory_and_grant_nothing_else_there(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    name = created(carol, "guarded")
    carol("queue", "revoke", name, "everyone", "--yes")
    carol("queue", "grant", name, directory.sid(domain.GROUP), "Send", "--yes")
    assert directory.search("bob", f"(objectGUID={guid_in(name)})", "mSMQLabelEx") == ""
    with daemon.connect(**login(tickets["bob"])) as manager, pytest.raises(AccessDenied):
        manager.open(name, "send")
    with daemon.connect(**login(tickets["alice"])) as manager, manager.open(name, "send") as queue:
        queue.send(b"of the group")
    assert carol("queue", "owner", name).strip() == r"RIG\carol"


def test_an_inventory_has_the_public_queues_of_the_directory_and_what_it_says_of_them(
    directory: DomainController, daemon: Daemon, carol: Run, keytab: Path, tmp_path: Path
) -> None:
    created(carol, "inventoried", "--label", "For the move", "--journal")
    config = tmp_path / "here.toml"
    config.write_text(
        f'directory_provider = "active-directory"\ndirectory_controllers = "{directory.address}"\n'
        f'kerberos_keytab = "{keytab}"\ncomputer_name = "MQ1"\ndata_dir = "{tmp_path}"\n'
    )
    words = (
        "adopt", "inventory", "127.0.0.1", "--port", str(daemon.port), "--directory", "--directory-name", "MQ1",
        "--config", str(config), "--json",
    )  # fmt: skip
    document = json.loads(carol(*words))
    (listed,) = [each for each in document["queues"] if each["name"] == "inventoried"]
    assert (listed["kind"], listed["messages"]) == ("public", 0)
    assert listed["definition"]["label"] == "For the move" and listed["definition"]["journal"] is True
    assert not any("not open" in each["item"] for each in document["not_learned"])
    config.write_text(config.read_text().replace(directory.address, "127.0.0.250"))
    ended = invoke(*words, KRB5CCNAME="FILE:/nowhere")
    assert ended.code == 1 and "cannot query the directory" in ended.stderr


def test_while_the_controller_is_down_known_queues_work_and_changes_are_refused(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    name = created(carol, "steady")
    open_to_all(carol, name)
    held = login(tickets["alice"])
    directory.stop()
    try:
        for attempt in ("first", "second"):
            started = time.monotonic()
            with pytest.raises(AssertionError, match="MQ_ERROR_NO_DS"):
                created(carol, f"never-{attempt}")
        assert time.monotonic() - started < 3, "the second one has asked the controller again"
        with pytest.raises(AssertionError, match="MQ_ERROR_NO_DS"):
            carol("queue", "set", name, "label=never")
        with daemon.connect(**held) as manager, manager.open(name, "send") as queue:
            queue.send(b"known")
        with pytest.raises(MsmqError) as caught:
            found(daemon, Label="none")
        assert caught.value.hresult == HResult.MQ_ERROR_NO_DS
        assert "directory unavailable" in daemon.log
    finally:
        directory.start()
    eventually(lambda: "directory available again" in daemon.log, 75)
    assert created(carol, "back-again").startswith("PUBLIC=")


def test_a_silent_controller_delays_no_other_client(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path]
) -> None:
    carol("queue", "create", "private")
    refused: list[str] = []

    def create() -> None:
        with pytest.raises(AssertionError) as caught:
            created(carol, f"late-{threading.get_ident()}")
        refused.append(str(caught.value))

    asking = [threading.Thread(target=create) for _ in range(8)]  # more than there are threads
    with (
        daemon.connect(**login(tickets["carol"])) as manager,
        manager.open("DIRECT=OS:.\\private$\\private", "send") as q,
    ):
        with directory.silent():
            for thread in asking:
                thread.start()
            slowest, until = 0.0, time.monotonic() + 4
            while time.monotonic() < until:
                started = time.monotonic()
                q.send(b"x")
                slowest = max(slowest, time.monotonic() - started)
                time.sleep(0.01)
            for thread in asking:
                thread.join(60)
    assert slowest < 1.5, "seconds of a concurrent send"
    assert len(refused) == 8
    assert all("MQ_ERROR_NO_DS" in said or "NO_RESPONSE_FROM_OBJECT_SERVER" in said for said in refused)
    eventually(lambda: daemon.log.rstrip().endswith("directory available again"), 90)


def test_the_next_controller_is_asked(
    directory: DomainController, daemon: Daemon, keytab: Path, tmp_path: Path, tickets: dict[str, Path]
) -> None:
    nobody = directory.address.rpartition(".")[0] + ".200"
    settings = options(directory, keytab, f"{nobody},{directory.address}")
    with Daemon(tmp_path / "data", *settings) as second:
        assert f"the domain controller {nobody} does not answer" in second.log
        with daemon.connect(**login(tickets["carol"])) as one, second.connect(**login(tickets["carol"])) as other:
            assert one.machine_id == other.machine_id


def test_the_status_lists_present_and_missing_prerequisites(
    directory: DomainController, daemon: Daemon, keytab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:replaced")
    settings = {
        "OPENMSMQ_COMPUTER_NAME": "MQ1", "OPENMSMQ_DATA_DIR": str(tmp_path),
        "OPENMSMQ_DIRECTORY_CONTROLLERS": f"127.0.0.1:9,{directory.address}", "OPENMSMQ_KERBEROS_KEYTAB": str(keytab),
    }  # fmt: skip
    ended = invoke("domain", "status", "--json", **settings)
    found = {(row["thing"], row["said"]): row for row in map(json.loads, ended.stdout.splitlines())}
    missing = [row for row in found.values() if not row["ok"]]
    assert ended.code == 1 and [row["said"] for row in missing] == ["127.0.0.1:9"]
    assert ("object", MACHINE) in found and ("services", f"host/{domain.HOST}, host/MQ1") in found
    alone = invoke("domain", "status", **{**settings, "OPENMSMQ_DIRECTORY_CONTROLLERS": directory.address})
    assert alone.code == 0, alone
    assert "kerberos_keytab" in invoke("domain", "status", OPENMSMQ_DATA_DIR=str(tmp_path)).stdout


def test_missing_prerequisites_fail_the_start_with_a_remedy(
    directory: DomainController, keytab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:replaced")  # the directory changes it; restored for later tests

    def refused(*given: str) -> str:
        ended = invoke("serve", "--data-dir", str(tmp_path / str(uuid4())), *given)
        assert ended.code == 1, ended  # not 2, after which nothing starts the daemon again
        return ended.stderr

    other = directory.keytab(domain.OTHER_SERVICE)
    assert "no Kerberos ticket for MQ1$" in refused(*options(directory, other))
    assert "no Kerberos ticket for NONE$" in refused(*options(directory, keytab, name="NONE"))
    assert "computer_name is ELSE" in refused(*options(directory, keytab, name="ELSE"), "--directory-account", "MQ1$")
    assert "gets its identifier from Active Directory, which did not assign one" in refused(
        *options(directory, keytab, controllers="127.0.0.1:9")
    )


def test_an_object_created_by_an_administrator_needs_a_grant(
    directory: DomainController, tickets: dict[str, Path], tmp_path: Path
) -> None:
    made = "CN=msmq,CN=OTHER,CN=Computers,DC=rig,DC=test"
    directory.add_object(f"dn: {made}\nobjectClass: mSMQConfiguration\n")
    settings = options(directory, directory.keytab(domain.OTHER_SERVICE), name="OTHER")
    with (
        Daemon(tmp_path / "data", *settings) as second,
        second.connect(**login(tickets["carol"], domain.OTHER_NAME)) as manager,
    ):
        with pytest.raises(AccessDenied):
            manager.create_queue(r".\first")
        assert f"Give OTHER$ full control of {made}" in second.log
        sid = directory.sid(domain.OTHER_SERVICE)
        directory.tool("dsacl", "set", f"--objectdn={made}", f"--sddl=(A;CI;GA;;;{sid})")
        manager.create_queue(r".\first")
        assert f"CN=first,{made}" in directory.search("alice", "(cn=first)", "cn")


def test_a_queue_manager_of_the_domain_sends_to_a_public_queue_of_another_one(
    directory: DomainController, daemon: Daemon, carol: Run, tickets: dict[str, Path], tmp_path: Path
) -> None:
    name, port = created(carol, "inbox"), str(daemon.ready["endpoints"]["messages"]["port"])
    carol("queue", "grant", name, "carol@rig.test", "FullControl", "--yes")
    open_to_all(carol, name)  # the other queue manager does not sign the message
    settings = options(directory, directory.keytab(domain.OTHER_SERVICE), name="OTHER")
    way = ("--peers", "MQ1=127.0.0.1", "--peer-message-port", port)  # no name of the domain resolves here
    with (
        Daemon(tmp_path / "data", *settings, *way) as second,
        second.connect(**login(tickets["carol"], domain.OTHER_NAME)) as sender,
        sender.open(name, "send") as queue,
    ):
        queue.send(b"across the domain")
        with daemon.connect(**login(tickets["carol"])) as manager, manager.open(name, protocol="qmcomm") as inbox:
            assert inbox.receive(20).body == b"across the domain"


def test_a_data_directory_of_another_queue_manager_is_named_in_the_log(
    directory: DomainController, keytab: Path, tmp_path: Path
) -> None:
    with Daemon(tmp_path / "data", "--computer-name", "MQ1"):
        pass
    with Daemon(tmp_path / "data", *options(directory, keytab)) as running:
        eventually(lambda: "`openmsmq domain join` moves it" in running.log, 20)
