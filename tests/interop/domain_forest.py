"""Additional controllers: a second one of the first one's domain, one of another domain of the forest, and a server
that refers to the latter. Root only.

Samba 4.17 cannot create child domains. So the other domain is created separately; both get a trust, and the first
one gets the crossRef object of a forest: its users get tickets there. Samba does not create referrals to other
domains either; those come from OpenLDAP's slapd, with an account of the first domain.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.domain_controller import (
    ADMINISTRATOR,
    CONTROLLER,
    OTHER_SERVICE,
    PASSWORD,
    REALM,
    START,
    DomainController,
    SambaServer,
    kept_directory,
)
from interop.name_server import NameServer
from msrpc.rpc.keytab import computer_salt, keys_of, pack_keytab

SECOND = "dc2"
CHILD_REALM, CHILD, CHILD_CONTROLLER = "CHILD.RIG.TEST", "CHILD", "cdc1"
CHILD_HOST, REFERRER_HOST = f"{CHILD_CONTROLLER}.child.rig.test", "refers.rig.test"
SECOND_INDEX, CHILD_INDEX, REFERRER_INDEX = 1, 1, 2

_OWN_PLACES = """[global]
	pid directory = {place}/pid
	ncalrpc dir = {place}/ncalrpc
	winbindd socket directory = {place}/winbindd
	ntp signd socket directory = {place}/ntp
	server services = rpc, ldap, cldap, kdc, drepl, kcc
"""

_TRUST = """
import ldb, sys, samba.auth, samba.param, samba.samdb
from samba.dcerpc import drsblobs, misc, security
from samba.ndr import ndr_pack, ndr_unpack
from samba import string_to_byte_array

def database(place):
    settings = samba.param.LoadParm()
    settings.load(place + "/etc/smb.conf")
    return samba.samdb.SamDB(place + "/private/sam.ldb", session_info=samba.auth.system_session(), lp=settings)

def secret():
    clear = drsblobs.AuthInfoClear()
    octets = string_to_byte_array("{password}".encode("utf-16-le"))
    clear.size, clear.password = len(octets), octets
    one = drsblobs.AuthenticationInformation()
    one.LastUpdateTime, one.AuthType, one.AuthInfo = 133000000000000000, 2, clear
    all = drsblobs.AuthenticationInformationArray()
    all.count, all.array = 1, [one]
    blob = drsblobs.trustAuthInOutBlob()
    blob.count, blob.current = 1, all
    return ndr_pack(blob)

def trust(here, there, dns_name, netbios_name):
    entry = ldb.Message(ldb.Dn(here, "CN=%s,CN=System,%s" % (dns_name, here.domain_dn())))
    values = dict(objectClass="trustedDomain", trustType="2", trustDirection="3", trustAttributes="32",
                  trustPartner=dns_name, flatName=netbios_name)
    for name, value in values.items():
        entry[name] = value
    entry["msDS-SupportedEncryptionTypes"] = "24"
    entry["securityIdentifier"] = ndr_pack(security.dom_sid(there.get_domain_sid()))
    entry["trustAuthIncoming"] = entry["trustAuthOutgoing"] = secret()
    here.add(entry)

root, child = database("{root}"), database("{child}")
trust(root, child, "child.rig.test", "CHILD")
trust(child, root, "rig.test", "RIG")
(found,) = child.search(child.domain_dn(), scope=ldb.SCOPE_BASE, attrs=["objectGUID"])
name = "<GUID=%s>;<SID=%s>;%s" % (
    ndr_unpack(misc.GUID, found["objectGUID"][0]), child.get_domain_sid(), child.domain_dn())
root.add_ldif('''dn: CN=CHILD,CN=Partitions,CN=Configuration,DC=rig,DC=test
objectClass: crossRef
nCName: %s
dnsRoot: child.rig.test
nETBIOSName: CHILD
systemFlags: 1
''' % name, controls=["relax:0"])
"""

_REFERRER = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
attributetype ( 1.1.2.1.1 NAME 'defaultNamingContext' SUP distinguishedName )
attributetype ( 1.1.2.1.2 NAME 'configurationNamingContext' SUP distinguishedName )
attributetype ( 1.1.2.1.3 NAME 'nCName' SUP distinguishedName )
attributetype ( 1.1.2.1.4 NAME 'dnsRoot' SUP name )
attributetype ( 1.1.2.1.5 NAME 'nETBIOSName' SUP name )
objectclass ( 1.1.2.2.1 NAME 'crossRef' SUP top STRUCTURAL
  MUST cn MAY ( nCName $ dnsRoot $ nETBIOSName ) )
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {place}/slapd.pid
sasl-host {host}
rootDSE {place}/root.ldif
database mdb
suffix "DC=rig,DC=test"
directory {place}/data
access to * by users write
"""

_ROOT = """dn:
defaultNamingContext: DC=rig,DC=test
configurationNamingContext: CN=Configuration,DC=rig,DC=test
"""

_CONTENTS = """dn: DC=rig,DC=test
objectClass: domain
dc: rig

dn: CN=Configuration,DC=rig,DC=test
objectClass: applicationProcess
cn: Configuration

dn: CN=Partitions,CN=Configuration,DC=rig,DC=test
objectClass: applicationProcess
cn: Partitions

dn: CN=RIG,CN=Partitions,CN=Configuration,DC=rig,DC=test
objectClass: crossRef
cn: RIG
nCName: DC=rig,DC=test
dnsRoot: rig.test
nETBIOSName: RIG

dn: CN=CHILD,CN=Partitions,CN=Configuration,DC=rig,DC=test
objectClass: crossRef
cn: CHILD
nCName: DC=child,DC=rig,DC=test
dnsRoot: child.rig.test
nETBIOSName: CHILD

dn: DC=child,DC=rig,DC=test
objectClass: referral
objectClass: extensibleObject
dc: child
ref: ldap://child.rig.test/DC=child,DC=rig,DC=test

dn: DC=foreign,DC=rig,DC=test
objectClass: referral
objectClass: extensibleObject
dc: foreign
ref: ldap://{foreign}/DC=foreign,DC=rig,DC=test
"""


def _alone(place: Path) -> None:
    """Give the server its own paths, so that several can run on one machine."""
    settings = place / "etc/smb.conf"
    text = settings.read_text().replace("[global]\n", _OWN_PLACES.format(place=place), 1)
    lines = [line for line in text.splitlines() if not ("server services" in line and "dnsupdate" in line)]
    settings.write_text("\n".join(lines) + "\n")
    (place / "pid").mkdir()


def with_names(controller: DomainController) -> list[str]:
    """Return a command prefix that runs a command where the names of both controllers of the domain resolve."""
    hosts = controller.directory / "hosts"
    second = controller.net.hosts[SECOND_INDEX]
    own = f"{controller.address} {CONTROLLER}.rig.test\n{second} {SECOND}.rig.test\n"
    hosts.write_text(f"127.0.0.1 localhost\n{own}")
    script = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"]


@contextmanager
def second_controller(controller: DomainController, place: Path) -> Iterator[SambaServer]:
    """Run another controller of the same domain, with a replica of its directory. LDAP is served by address."""
    address = controller.net.hosts[SECOND_INDEX]
    prepare = with_names(controller)
    join = [
        *prepare, "samba-tool", "domain", "join", "rig.test", "DC", f"--server={CONTROLLER}.rig.test",
        f"--realm={REALM}", f"-U{ADMINISTRATOR}@{REALM}%{PASSWORD}", "--use-kerberos=required", "--dns-backend=NONE",
        "--no-dns-updates", f"--targetdir={place}", f"--option=netbios name = {SECOND.upper()}",
    ]  # fmt: skip
    done = subprocess.run(
        join, preexec_fn=controller.net.enter(SECOND_INDEX), env=controller.environment, capture_output=True, text=True
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the second controller can't join: {done.stdout}{done.stderr}")
    _alone(place)
    for database in (controller.place, place):
        command = ["samba-tool", "spn", "add", f"ldap/{address}", f"{SECOND.upper()}$", "-s", database / "etc/smb.conf"]
        subprocess.run(command, check=True, capture_output=True)
    with SambaServer(
        controller.net, SECOND_INDEX, place, controller.directory / "second.log", *prepare
    ).running() as running:
        yield running


@contextmanager
def child_domain(controller: DomainController) -> Iterator[SambaServer]:
    """Run a controller of the domain child.rig.test; `controller` must be restarted to learn of it."""
    kept = kept_directory()
    made, place = kept / "child-made", kept / "child"
    shutil.rmtree(place, ignore_errors=True)
    if not made.exists():
        provision = [
            "samba-tool", "domain", "provision", f"--realm={CHILD_REALM}", f"--domain={CHILD}", "--server-role=dc",
            "--dns-backend=NONE", f"--targetdir={place}", f"--host-name={CHILD_CONTROLLER}", f"--adminpass={PASSWORD}",
        ]  # fmt: skip
        subprocess.run(provision, check=True, capture_output=True)
        _alone(place)
        named = ["samba-tool", "spn", "add", f"ldap/{CHILD_HOST}", f"{CHILD_CONTROLLER.upper()}$"]
        subprocess.run([*named, "-s", place / "etc/smb.conf"], check=True, capture_output=True)
        place.rename(made)
    shutil.copytree(made, place, symlinks=True)
    script = _TRUST.format(root=controller.place, child=place, password=PASSWORD)
    subprocess.run(["/usr/bin/python3", "-I", "-c", script], check=True, capture_output=True)
    address = controller.net.hosts[CHILD_INDEX]
    controller.configure_kerberos(
        [controller.address], f" {CHILD_REALM} = {{\n  kdc = {address}\n }}\n",
        f" .child.rig.test = {CHILD_REALM}\n child.rig.test = {CHILD_REALM}\n",
    )  # fmt: skip
    with SambaServer(controller.net, CHILD_INDEX, place, controller.directory / "child.log").running() as running:
        yield running


@contextmanager
def referrer(controller: DomainController, place: Path, foreign: str) -> Iterator[str]:
    """Run slapd and yield its address. It has only the names of the forest's domains, a referral to the child domain
    and one to `foreign`."""
    (place / "data").mkdir(parents=True)
    (place / "root.ldif").write_text(_ROOT)
    (place / "contents.ldif").write_text(_CONTENTS.format(foreign=foreign))
    settings = place / "slapd.conf"
    settings.write_text(_REFERRER.format(place=place, host=REFERRER_HOST))
    subprocess.run(["slapadd", "-f", settings, "-l", place / "contents.ldif"], check=True, capture_output=True)
    controller.tool("spn", "add", f"ldap/{REFERRER_HOST}", OTHER_SERVICE)
    keys = keys_of(f"{PASSWORD}{OTHER_SERVICE}", computer_salt(REALM, OTHER_SERVICE.rstrip("$")))
    keytab = place / "keytab"
    keytab.write_bytes(pack_keytab([f"ldap/{REFERRER_HOST}"], REALM, 2, keys, int(time.time())))
    address = controller.net.hosts[REFERRER_INDEX]
    serve = ["slapd", "-d", "0", "-h", f"ldap://{address}", "-f", settings]
    options = {
        "env": {**controller.environment, "KRB5_KTNAME": str(keytab)}, "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }  # fmt: skip
    running = subprocess.Popen(serve, preexec_fn=controller.net.enter(REFERRER_INDEX), **options)  # noqa: PLW1509
    try:
        _wait(lambda: not socket.create_connection((address, 389), 1).close())
        yield address
    finally:
        running.terminate()
        running.wait(10)


def _wait(ready: Callable[[], bool]) -> None:
    """Wait until `ready` succeeds. After the timeout, raises the exception of `ready`, or TimeoutError if
    `ready` returned False."""
    over = time.monotonic() + START
    while True:
        is_last = time.monotonic() > over
        try:
            if ready():
                return
        except OSError:
            if is_last:
                raise
        if is_last:
            raise TimeoutError(f"not ready after {START} s")
        time.sleep(0.1)


def name_forest(names: NameServer, controller: DomainController, referrer_address: str) -> None:
    """Serve DNS for both domains; a lookup of a controller of the first domain returns slapd."""
    child = controller.net.hosts[CHILD_INDEX]
    names.records = {
        ("_ldap._tcp.dc._msdcs.rig.test", "SRV"): [f"0 100 389 {REFERRER_HOST}."],
        ("_ldap._tcp.dc._msdcs.child.rig.test", "SRV"): [f"0 100 389 {CHILD_HOST}."],
        (REFERRER_HOST, "A"): [referrer_address], (CHILD_HOST, "A"): [child],
        (f"{CONTROLLER}.rig.test", "A"): [controller.address],
    }  # fmt: skip
