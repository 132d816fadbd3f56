"""Samba as an Active Directory domain controller, on a separate host (network namespace). Root only.

The directory is created once and kept in the system's temporary directory; each controller starts with a copy. Users
and passwords are those of `ACCOUNTS`; the daemon's own account is `SERVICE`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from command_line import at
from daemon import Daemon
from interop.namespaces import Net, why_not
from msrpc.rpc.kerberos import KerberosCredentials

REALM, DOMAIN, CONTROLLER = "RIG.TEST", "RIG", "dc1"
ADMINISTRATOR, PASSWORD = "Administrator", "Passw0rd!"
ACCOUNTS = ("alice", "bob", "carol")
GROUP, INNER_GROUP = "orders", "order-clerks"  # alice is in the inner group, which is in the outer one
SERVICE, HOST = "MQ1$", "mq1.rig.test"
OTHER_SERVICE, OTHER_HOST = "OTHER$", "other.rig.test"
SERVICE_NAME, OTHER_NAME = f"host/{HOST}@{REALM}", f"host/{OTHER_HOST}@{REALM}"
START = 30.0  # seconds until the controller responds, on a machine that runs other tests
HOSTS = 3  # the first is the controller's; the others are for additional controllers
RECIPE = 2  # version of `_provision`: increase it when that changes, so that no old directory is used


def why_no_controller() -> str:
    """Return the reason why there can be no domain controller here; empty if there can."""
    for program in ("samba", "samba-tool", "kinit", "kvno", "faketime"):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/ensure domain"
    return why_not()


def kept_directory() -> Path:
    """Return the path of the directory. Provisioning writes this path into it, so each checkout has its own."""
    checkout = hashlib.sha256(str(Path(__file__).resolve()).encode()).hexdigest()[:8]
    return Path(tempfile.gettempdir()) / f"openmsmq-domain-{os.getuid()}-{checkout}-{RECIPE}"


class SambaServer:
    """A process that serves the directory in `place`, on one host of a network."""

    def __init__(self, net: Net, index: int, place: Path, log: Path, *prepare: str) -> None:
        """Create the server. `prepare` is a command prefix that runs the command after it."""
        self._enter, self._log, self._prepare = net.enter(index), log, prepare
        self._process: subprocess.Popen[bytes] | None = None
        self.address = net.hosts[index]
        self.settings = place / "etc/smb.conf"

    def start(self) -> None:
        """Start the process. Raises RuntimeError if the controller does not respond in time."""
        command = [*self._prepare, "samba", "-i", "-M", "single", "-s", str(self.settings)]
        with self._log.open("ab") as log:
            out = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._process = subprocess.Popen(command, preexec_fn=self._enter, **out)  # noqa: PLW1509
        over = time.monotonic() + START
        while not (self._answers(88) and self._answers(389)):
            if time.monotonic() > over or self._process.poll() is not None:
                detail = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the domain controller does not answer:\n{detail}")
            time.sleep(0.1)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the process for the duration of the block."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def _answers(self, port: int) -> bool:
        try:
            socket.create_connection((self.address, port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Stop the process for the duration of the block: connections stay open, but get no response."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)  # no such process if it was killed in the meantime

    def kill(self) -> None:
        """Kill the process immediately."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class DomainController(SambaServer):
    """The first controller of the domain. Tickets are in files that `ticket` creates."""

    def __init__(self, net: Net, place: Path, directory: Path) -> None:
        """Create the controller. `directory` is for keytabs, tickets and the Kerberos configuration."""
        super().__init__(net, 0, place, directory / "samba.log")
        self.net, self.place, self.directory = net, place, directory
        self.krb5_conf = directory / "krb5.conf"
        self.configure_kerberos([self.address])

    def configure_kerberos(self, controllers: list[str], realms: str = "", hosts: str = "") -> None:
        """Write the Kerberos configuration; `realms` and `hosts` are lines for other realms."""
        found = "".join(f"  kdc = {address}\n" for address in controllers)
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" rdns = false\n dns_canonicalize_hostname = false\n forwardable = true\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n{found}  kpasswd_server = {controllers[0]}\n }}\n{realms}"
            f"[domain_realm]\n{hosts} .rig.test = {REALM}\n rig.test = {REALM}\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for processes that use Kerberos."""
        return {**os.environ, "KRB5_CONFIG": str(self.krb5_conf)}

    def serve_ldap_by_address(self) -> None:
        """Allow LDAP tickets for the controller's address, since its name does not resolve here."""
        self.tool("spn", "add", f"ldap/{self.address}", f"{CONTROLLER.upper()}$")

    def search(self, user: str, condition: str, *attributes: str) -> str:
        """Return the LDIF lines that ldapsearch finds with a user's ticket."""
        environment = {**self.environment, "KRB5CCNAME": f"FILE:{self.directory / f'{user}.ccache'}"}
        command = [
            "ldapsearch",
            "-Q",
            "-LLL",
            "-N",
            "-o",
            "ldif-wrap=no",
            "-Y",
            "GSSAPI",
            "-H",
            f"ldap://{self.address}",
        ]
        command += ["-b", "DC=rig,DC=test", condition, *attributes]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return "\n".join(line for line in done.stdout.splitlines() if line and not line.startswith("# refldap:"))

    def add_object(self, ldif: str) -> None:
        """Add an object with Samba's Python bindings, directly to the controller's database."""
        script = _ADD_OBJECT.format(database=self.place / "private/sam.ldb")
        subprocess.run(["/usr/bin/python3", "-I", "-c", script], input=ldif.encode(), check=True, capture_output=True)

    def tool(self, *arguments: str) -> str:
        """Run samba-tool on the controller's own database."""
        return _tool(self.place, *arguments)

    def ticket(self, user: str, *services: str, name: str = "", lifetime: str = "1h", shift: str = "") -> Path:
        """Return a cache with the user's ticket-granting ticket and service tickets. `shift` sets the clock, such as
        `+10m`. Raises CalledProcessError."""
        cache = self.directory / f"{name or user}.ccache"
        environment = {**self.environment, "KRB5CCNAME": f"FILE:{cache}"}
        clock = ["faketime", "-f", shift] if shift else []
        run = [*clock, "kinit", "-l", lifetime, f"{user}@{REALM}"]
        subprocess.run(run, input=f"{PASSWORD}\n".encode(), env=environment, check=True, capture_output=True)
        for service in services:
            subprocess.run([*clock, "kvno", service], env=environment, check=True, capture_output=True)
        return cache

    def keytab(self, account: str = SERVICE) -> Path:
        """Return a new file with the keys of an account."""
        path = self.directory / f"{account.rstrip('$')}.keytab"
        path.unlink(missing_ok=True)
        return self.export(account)

    def export(self, account: str) -> Path:
        """Add the current keys of an account to its file."""
        path = self.directory / f"{account.rstrip('$')}.keytab"
        self.tool("domain", "exportkeytab", str(path), f"--principal={account}")
        path.chmod(0o600)
        return path

    def without_pac(self, account: str) -> None:
        """Omit the PAC from service tickets from now on: WORKSTATION_TRUST_ACCOUNT and NO_AUTH_DATA_REQUIRED
        ([MS-ADTS] 2.2.16)."""
        _set_attribute(self.place, account, "userAccountControl", 0x1000 | 0x2000000)

    def sid(self, name: str) -> str:
        """Return the SID of a user, a computer or a group."""
        kind = "group" if name in (GROUP, INNER_GROUP) else "computer" if name.endswith("$") else "user"
        shown = self.tool(kind, "show", name, "--attributes=objectSid")
        return next(line.split(": ")[1] for line in shown.splitlines() if line.startswith("objectSid: "))


def _tool(place: Path, *arguments: str) -> str:
    command = ["samba-tool", *arguments, "-s", str(place / "etc/smb.conf")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"samba-tool {' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout


def _provision(place: Path) -> None:
    subprocess.run(
        [
            "samba-tool", "domain", "provision", f"--realm={REALM}", f"--domain={DOMAIN}", "--server-role=dc",
            "--dns-backend=NONE", f"--targetdir={place}", f"--host-name={CONTROLLER}", f"--adminpass={PASSWORD}",
            "--option=log level = 1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    # The controller adds it automatically, but later.
    _tool(place, "spn", "add", f"ldap/{CONTROLLER}.rig.test", f"{CONTROLLER.upper()}$")
    for user in ACCOUNTS:
        _tool(place, "user", "create", user, PASSWORD)
    for group in (GROUP, INNER_GROUP):
        _tool(place, "group", "add", group)
    _tool(place, "group", "addmembers", GROUP, INNER_GROUP)
    _tool(place, "group", "addmembers", INNER_GROUP, "alice")
    for account, host in ((SERVICE, HOST), (OTHER_SERVICE, OTHER_HOST)):
        _tool(place, "computer", "create", account.rstrip("$"))
        _tool(place, "user", "setpassword", account, f"--newpassword={PASSWORD}{account}")
        for name in (host, account.rstrip("$")):  # as for a computer that has joined
            _tool(place, "spn", "add", f"host/{name}", account)
        # Without this the controller issues RC4 tickets; 0x18: AES-128 and AES-256 ([MS-KILE] 2.2.7).
        _set_attribute(place, account, "msDS-SupportedEncryptionTypes", 0x18)


def _set_attribute(place: Path, account: str, name: str, value: int) -> None:
    script = _SET_ATTRIBUTE.format(database=place / "private/sam.ldb", account=account, name=name, value=value)
    subprocess.run(["/usr/bin/python3", "-I", "-c", script], check=True, capture_output=True)


_SET_ATTRIBUTE = """
import ldb, samba.auth, samba.param, samba.samdb
database = samba.samdb.SamDB("{database}", session_info=samba.auth.system_session(), lp=samba.param.LoadParm())
(found,) = database.search(expression="(sAMAccountName={account})", attrs=["cn"])
change = ldb.Message(found.dn)
change["{name}"] = ldb.MessageElement("{value}", ldb.FLAG_MOD_REPLACE, "{name}")
database.modify(change)
"""

_ADD_OBJECT = """
import sys, samba.auth, samba.param, samba.samdb
database = samba.samdb.SamDB("{database}", session_info=samba.auth.system_session(), lp=samba.param.LoadParm())
database.add_ldif(sys.stdin.read())
"""


@contextmanager
def domain_controller(directory: Path) -> Iterator[DomainController]:
    """Run a controller with a fresh copy of the directory for the duration of the block; one at a time per checkout."""
    kept = kept_directory()
    kept.mkdir(mode=0o700, exist_ok=True)
    place, made = kept / "dc", kept / "made"
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(place, ignore_errors=True)
            _provision(place)
            shutil.copytree(place, kept / "new", symlinks=True)
            (kept / "new").rename(made)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made, place, symlinks=True)
        net = Net(HOSTS)
        try:
            controller = DomainController(net, place, directory)
            try:
                controller.start()
                yield controller
            finally:
                controller.stop()
        finally:
            net.close()


def login(cache: Path, service: str = SERVICE_NAME) -> dict[str, Any]:
    return {"kerberos": KerberosCredentials(service, f"FILE:{cache}")}


def command(daemon: Daemon, cache: Path, service: str = SERVICE_NAME, **more: str) -> Callable[..., str]:
    """Run the command line with a ticket and additional environment variables."""

    def run(*arguments: str) -> str:
        options = ("--kerberos", "--kerberos-service", service)
        environment = {**os.environ, **at(daemon), "KRB5CCNAME": f"FILE:{cache}", **more}
        done = subprocess.run(
            [sys.executable, "-m", "openmsmq.cli", *arguments, *options],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
