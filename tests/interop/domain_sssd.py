"""This machine as a member of the domain through adcli and sssd, in a separate mount namespace. Root only."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from interop.domain_controller import ADMINISTRATOR, CONTROLLER, PASSWORD, REALM, START, DomainController
from interop.domain_member import SOCKETS, end_group, entering

_SETTINGS = """[sssd]
services = nss
domains = rig.test
[domain/rig.test]
id_provider = ad
ad_domain = rig.test
ad_server = {controller}
ad_hostname = {host}
krb5_realm = {realm}
krb5_keytab = {keytab}
ldap_krb5_keytab = {keytab}
ldap_sasl_authid = {account}
dyndns_update = false
ad_gpo_access_control = disabled
use_fully_qualified_names = true
"""
_PLACES = {
    "db": "/var/lib/sss/db", "mc": "/var/lib/sss/mc", "pipes": "/var/lib/sss/pipes", "log": "/var/log/sssd",
    "settings": "/etc/sssd", "gpo": "/var/lib/sss/gpo_cache",
    "no-winbind": SOCKETS,  # the controller's file is not this machine's
}  # fmt: skip


def why_no_sssd() -> str:
    """Return the reason why there can be no such member here; empty if there can."""
    for program in ("adcli", "sssd", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/ensure domain"
    return ""


class SssdMember:
    """A joined computer, and its sssd."""

    def __init__(self, controller: DomainController, name: str, place: Path) -> None:
        self.name, self.host = name, f"{name.lower()}.{REALM.lower()}"
        self._controller, self._place = controller, place
        self._process: subprocess.Popen[bytes] | None = None
        for part in _PLACES:
            (place / part).mkdir(parents=True)
        (place / "pipes/private").mkdir()
        self.keytab = place / "krb5.keytab"
        served = f"{CONTROLLER}.{REALM.lower()}"
        settings = place / "settings/sssd.conf"
        settings.write_text(
            _SETTINGS.format(controller=served, host=self.host, realm=REALM, keytab=self.keytab, account=f"{name}$")
        )
        settings.chmod(0o600)
        (place / "hosts").write_text(
            f"127.0.0.1 localhost\n127.0.1.1 {self.host}\n{controller.address} {served} {CONTROLLER}\n"
        )
        (place / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")

    @property
    def _inside(self) -> list[str]:
        mounts = {**_PLACES, "hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf"}
        made = [f"mount --bind {self._place / part} {path}" for part, path in mounts.items()]
        script = " && ".join([*made, 'exec "$@"'])
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"]

    def join(self) -> str:
        """Join the domain and return the output of adcli. Raises CalledProcessError."""
        command = [
            "adcli", "join", REALM.lower(), f"--domain-controller={CONTROLLER}.{REALM.lower()}",
            f"--host-fqdn={self.host}", f"--computer-name={self.name}", f"--host-keytab={self.keytab}",
            f"--login-user={ADMINISTRATOR}", "--stdin-password", "--verbose",
        ]  # fmt: skip
        done = subprocess.run(
            [*self._inside, *command], input=PASSWORD, env=self._controller.environment, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stderr

    def start(self) -> None:
        """Start sssd. Raises RuntimeError if it does not know the domain's users in time."""
        with (self._place / "sssd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._inside, "sssd", "-i", "--logger=stderr"], env=self._controller.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        over = time.monotonic() + START
        while not self.knows("alice"):
            if time.monotonic() > over or self._process.poll() is not None:
                raise RuntimeError(f"sssd does not answer: {(self._place / 'sssd.log').read_text(errors='replace')}")
            time.sleep(0.2)

    def knows(self, user: str) -> bool:
        command = ["getent", "-s", "sss", "passwd", f"{user}@{REALM.lower()}"]
        return not subprocess.run(command, preexec_fn=self.enter(), capture_output=True).returncode

    def enter(self) -> Callable[[], None]:
        """Return a function that moves the calling process to where this sssd is available."""
        assert self._process is not None
        return entering(self._process.pid)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_group(process)


_JOIN = """
set -e  # nothing is done to the /etc of this machine
mount --make-rprivate / && mount -t tmpfs none {place}/own && mkdir {place}/own/upper {place}/own/work
mount -t overlay -o lowerdir=/etc,upperdir={place}/own/upper,workdir={place}/own/work none /etc
{mounts}
cp {krb5_conf} /etc/krb5.conf
printf '[service]\\nautomatic-install = no\\n' >/etc/realmd.conf
rm -f /etc/krb5.keytab /etc/sssd/sssd.conf
mkdir -p /run/dbus && mount -t tmpfs none /run/dbus
hostname {host}
dbus-daemon --system --nopidfile --nofork &
while [ ! -S /run/dbus/system_bus_socket ]; do sleep 0.1; done
/usr/libexec/realmd &
sleep 1
realm join --verbose --computer-name={name} --client-software=sssd --user={user} {domain} && touch {place}/joined
exec sleep 1000
"""


class RealmMember:
    """A computer joined by realmd, with its own bus, process namespace and /etc."""

    def __init__(self, controller: DomainController, name: str, place: Path, resolver: str) -> None:
        """Create the member. `resolver` is the address of a name server that has the SRV records of the domain."""
        self.host = f"{name.lower()}.{REALM.lower()}"
        self._place = place
        for part in (*_PLACES, "own"):
            (place / part).mkdir(parents=True)
        (place / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.host} {name.lower()}\n")
        (place / "resolv.conf").write_text(f"nameserver {resolver}\noptions attempts:1 timeout:1\n")
        mounts = {part: path for part, path in _PLACES.items() if path != "/etc/sssd"}
        mounts |= {"hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf"}
        script = _JOIN.format(
            place=place, mounts="\n".join(f"mount --bind {place / part} {path}" for part, path in mounts.items()),
            krb5_conf=controller.krb5_conf, host=self.host, name=name, user=ADMINISTRATOR, domain=REALM.lower(),
        )  # fmt: skip
        with (place / "realm.log").open("wb") as log:
            command = ["unshare", "-m", "-u", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=controller.environment
            )
        assert self._process.stdin is not None
        self._process.stdin.write(f"{PASSWORD}\n".encode())
        self._process.stdin.close()
        over = time.monotonic() + START
        while not (place / "joined").exists():
            if time.monotonic() > over or self._process.poll() is not None:
                self.stop()
                raise RuntimeError(f"realm does not join: {(place / 'realm.log').read_text(errors='replace')}")
            time.sleep(0.2)

    def enter(self) -> Callable[[], None]:
        """See `SssdMember.enter`."""
        return entering(self._process.pid)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
