"""This machine as a member of the domain, through Samba's winbind: in a separate mount namespace, since winbind's
socket has a fixed path. Root only."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interop.domain_controller import ADMINISTRATOR, CONTROLLER, DOMAIN, PASSWORD, REALM, START, DomainController

CLONE_NEWNS = 0x20000
SOCKETS = "/run/samba/winbindd"

_SETTINGS = """
[global]
security = ads
realm = {realm}
workgroup = {domain}
netbios name = {name}
password server = {controller}
name resolve order = host
private dir = {place}/private
lock directory = {place}/lock
state directory = {place}/state
cache directory = {place}/cache
pid directory = {place}/pid
log file = {place}/log
log level = 1
winbindd socket directory = {sockets}
winbind offline logon = no
winbind reconnect delay = 1
winbind request timeout = 60
idmap config * : backend = tdb
idmap config * : range = 100000-199999
client min protocol = SMB2
disable netbios = yes
"""


def why_no_member() -> str:
    """Return the reason why there can be no member here; empty if there can."""
    for program in ("winbindd", "net", "wbinfo", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/ensure domain"
    return ""


def entering(process: int) -> Callable[[], None]:
    """Return a function that moves the calling process into the mount namespace of another process."""
    path, libc = f"/proc/{process}/ns/mnt", ctypes.CDLL(None, use_errno=True)

    def move() -> None:
        here = os.getcwd()
        handle = os.open(path, os.O_RDONLY)
        if libc.setns(handle, CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(handle)
        os.chdir(here)

    return move


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its own process group, and all processes that it has started."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(10)
    finally:
        _signal(process, signal.SIGKILL)


class Member:
    """A joined computer with this NetBIOS name, and its winbind."""

    def __init__(self, controller: DomainController, name: str, place: Path) -> None:
        self.name = name
        self._place = place
        self._controller = controller
        self._process: subprocess.Popen[bytes] | None = None
        for part in ("private", "lock", "state", "cache", "pid", "sockets"):
            (place / part).mkdir(parents=True)
        (place / "sockets").chmod(0o755)
        self._host = host = f"{CONTROLLER}.{REALM.lower()}"
        self.settings = place / "smb.conf"
        self.settings.write_text(
            _SETTINGS.format(realm=REALM, domain=DOMAIN, name=name, controller=host, place=place, sockets=SOCKETS)
        )
        own = f"127.0.1.1 {name.lower()}.{REALM.lower()} {name.lower()}\n"
        (place / "hosts").write_text(f"127.0.0.1 localhost\n{own}{controller.address} {host} {CONTROLLER}\n")
        (place / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")

    @property
    def _inside(self) -> list[str]:
        mounts = (f"{self._place}/sockets {SOCKETS}", f"{self._place}/hosts /etc/hosts",
                  f"{self._place}/resolv.conf /etc/resolv.conf")  # fmt: skip
        script = " && ".join([*(f"mount --bind {mount}" for mount in mounts), 'exec "$@"'])
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"]

    def run(self, *command: str) -> str:
        """Run a Samba command. Raises RuntimeError if it fails."""
        done = subprocess.run(
            [*self._inside, *command, "-s", str(self.settings)],
            env=self._controller.environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def join(self) -> None:
        """Join as soon as the controller serves RPC. Raises RuntimeError."""
        command = ("net", "ads", "join", "-U", f"{ADMINISTRATOR}%{PASSWORD}", "--no-dns-updates", "-S", self._host)
        over = time.monotonic() + START
        while True:
            try:
                self.run(*command)
                return
            except RuntimeError:
                if time.monotonic() > over:
                    raise
                time.sleep(0.5)

    def start(self) -> None:
        """Start winbind. Raises RuntimeError if it does not find the domain in time. Previous clients find its
        socket again."""
        (self._place / "sockets/pipe").unlink(missing_ok=True)
        with (self._place / "winbindd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._inside, "winbindd", "-F", "--no-process-group", "-s", str(self.settings)],
                env=self._controller.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        over = time.monotonic() + START
        while not self._answers():
            if time.monotonic() > over or self._process.poll() is not None:
                raise RuntimeError(f"winbind does not answer: {(self._place / 'log').read_text(errors='replace')}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        if not (self._place / "sockets/pipe").exists():  # earlier, it may not be in its namespace yet
            return False
        return not subprocess.run(["wbinfo", "-t"], preexec_fn=self.enter(), capture_output=True).returncode

    def enter(self) -> Callable[[], None]:
        """Return a function that moves the calling process to where this winbind is available."""
        assert self._process is not None
        return entering(self._process.pid)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_group(process)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Stop winbind for the duration of the block: its sockets stay open, but get no response."""
        assert self._process is not None
        _signal(self._process, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(self._process, signal.SIGCONT)
