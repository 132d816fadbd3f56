"""The maintainer scripts of the Debian package, as dpkg calls them, with a systemd that records its calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from requirements import program

PROJECT = Path(__file__).parents[2]
UNIT = "usr/lib/systemd/system/openmsmq.service"
LINK = "etc/systemd/system/multi-user.target.wants/openmsmq.service"
RECORDED = ("deb-systemd-invoke", "useradd", "groupadd", "usermod", "install")


class Machine:
    """A root directory with the unit of the package."""

    def __init__(self, root: Path, *, boots: bool = True, known: str = "passwd group") -> None:
        program("deb-systemd-helper", "apt install init-system-helpers")
        self.root, self.known, self.calls = root, known, root / "calls"
        for place in (UNIT, LINK):
            (root / place).parent.mkdir(parents=True)
        shutil.copy(PROJECT / "packaging" / "openmsmq.service", root / UNIT)
        if boots:
            (root / "run/systemd/system").mkdir(parents=True)
        (root / "bin").mkdir()
        for name in RECORDED:
            self._program(name, f'echo "{name} $*" >>{self.calls}')
        real = program("systemctl", "apt install systemd")  # deb-systemd-helper uses it for a root directory
        self._program("systemctl", f'case $1 in --root=*) exec {real} "$@" ;; esac')
        self._program("getent", f'case " {known} " in *" $1 "*) [ "$2" = openmsmq ] ;; *) exit 2 ;; esac')

    def _program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, script: str, *arguments: str) -> list[str]:
        """Run a script of the package; return the calls."""
        text = (PROJECT / "debian" / script).read_text()
        for place in ("/run/systemd", "/var/lib/openmsmq", "/etc/openmsmq"):
            text = text.replace(place, f"{self.root}{place}")
        self.calls.write_text("")
        environment = {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}", "DPKG_ROOT": str(self.root),
            "DPKG_MAINTSCRIPT_PACKAGE": "openmsmq", "DPKG_MAINTSCRIPT_NAME": script,
        }  # fmt: skip
        subprocess.run(["sh", "-c", text, script, *arguments], env=environment, check=True)
        return self.calls.read_text().splitlines()

    @property
    def enabled(self) -> bool:
        return (self.root / LINK).is_symlink()


@pytest.mark.parametrize("boots", [True, False])
def test_the_service_is_enabled_also_where_systemd_does_not_run_yet(tmp_path: Path, boots: bool) -> None:
    machine = Machine(tmp_path, boots=boots)
    calls = machine.run("postinst", "configure", "")
    assert machine.enabled
    assert ("deb-systemd-invoke start openmsmq.service" in calls) == boots


def test_a_service_that_was_disabled_stays_disabled(tmp_path: Path) -> None:
    """Pacemaker starts the daemon then (docs/failover.md); deb-systemd-invoke does not start a disabled unit."""
    machine = Machine(tmp_path)
    machine.run("postinst", "configure", "")
    (tmp_path / LINK).unlink()
    machine.run("postinst", "configure", "0.1.0")
    assert not machine.enabled


def test_a_removed_package_that_is_installed_again_runs_again(tmp_path: Path) -> None:
    """After a removal without purge, dpkg passes the former version, as in an upgrade (Debian Policy 6.5)."""
    machine = Machine(tmp_path)
    machine.run("postinst", "configure", "")
    assert "deb-systemd-invoke stop openmsmq.service" in machine.run("prerm", "remove")
    machine.run("postrm", "remove")
    assert "deb-systemd-invoke restart openmsmq.service" in machine.run("postinst", "configure", "0.1.0")


def test_a_purge_leaves_nothing_but_messages(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    data = tmp_path / "var/lib/openmsmq"
    data.mkdir(parents=True)
    (data / "store").touch()
    before = {path for path in tmp_path.rglob("*") if not path.is_dir()}
    machine.run("postinst", "configure", "")
    machine.run("prerm", "remove")
    machine.run("postrm", "remove")
    machine.run("postrm", "purge")
    assert {path for path in tmp_path.rglob("*") if not path.is_dir()} - {machine.calls} == before


@pytest.mark.parametrize(("known", "created"), [("", ["groupadd", "useradd"]), ("group", ["useradd"])])
def test_the_user_gets_a_group_that_may_exist(tmp_path: Path, known: str, created: list[str]) -> None:
    calls = Machine(tmp_path, known=known).run("postinst", "configure", "")
    assert [call.split()[0] for call in calls if call.split()[0] in ("groupadd", "useradd")] == created
    assert any(call.startswith("useradd ") and "--gid openmsmq" in call for call in calls)


def test_references_to_documents_of_the_package_are_right() -> None:
    """tools/make-deb copies documents to the same paths as in the project."""
    found = []
    for directory in ("packaging", "debian"):
        for path in (PROJECT / directory).rglob("*"):
            if path.is_file() and not path.is_symlink():
                found += re.findall(r"/usr/share/doc/openmsmq/([\w./-]*\w)", path.read_text("utf-8"))
    assert found and not [name for name in found if not (PROJECT / name).is_file()]
