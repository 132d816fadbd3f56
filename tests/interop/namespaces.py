"""A separate network for each daemon: network namespaces joined by a bridge, with cuts by nftables. Root only."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
_numbers = itertools.count()  # removed objects may still exist for a moment


def why_not() -> str:
    """Return the reason why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(program) is None:
            return f"{program} (Debian: {package}) is not installed"
    probe = f"omq{os.getpid()}p"
    commands = (
        f"ip netns add {probe}",
        f"ip netns exec {probe} nft add table inet cut",
        f"ip netns exec {probe} ip link add name br0 type bridge",
    )
    try:
        for command in commands:
            _run(command)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)
    return ""


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True)


class Net:
    """Hosts on a bridge to which this process is also connected. `cut` drops packets from one host to another."""

    def __init__(self, count: int) -> None:
        """Create the network. Raises subprocess.CalledProcessError."""
        self._name = f"omq{os.getpid()}x{next(_numbers)}"
        block = f"198.18.{os.getpid() % 254}"  # for tests of networks (RFC 2544)
        self.hosts = [f"{block}.{index + 1}" for index in range(count)]
        self._switch = f"{self._name}s"
        self._spaces = [f"{self._name}n{index}" for index in range(count)]
        try:
            self._make(f"{block}.254")
        except BaseException:
            self.close()
            raise

    def _make(self, own: str) -> None:
        switch = self._switch
        _run(f"ip netns add {switch}")
        _run(f"ip -n {switch} link add name br0 type bridge")
        _run(f"ip -n {switch} link set br0 up")
        _run(f"ip link add {self._name} type veth peer name own netns {switch}")
        _run(f"ip -n {switch} link set own master br0 up")
        _run(f"ip addr add {own}/24 dev {self._name}")
        _run(f"ip link set {self._name} up")
        for index, (space, host) in enumerate(zip(self._spaces, self.hosts, strict=True)):
            _run(f"ip netns add {space}")
            _run(f"ip -n {space} link set lo up")
            _run(f"ip -n {space} link add eth0 type veth peer name port{index} netns {switch}")
            _run(f"ip -n {switch} link set port{index} master br0 up")
            _run(f"ip -n {space} addr add {host}/24 dev eth0")
            _run(f"ip -n {space} link set eth0 up")
            _run(f"ip netns exec {space} nft add table inet cut")
            _run(f"ip netns exec {space} nft add chain inet cut in {{ type filter hook input priority 0; }}")

    def enter(self, index: int) -> Callable[[], None]:
        """Return a function that moves the calling process into the namespace of a host."""
        path, libc = f"/var/run/netns/{self._spaces[index]}", ctypes.CDLL(None, use_errno=True)

        def move() -> None:
            handle = os.open(path, os.O_RDONLY)
            if libc.setns(handle, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(handle)

        return move

    def cut(self, source: int, target: int) -> None:
        """Drop all packets from one host to the other, but not in the other direction."""
        rule = f"add rule inet cut in ip saddr {self.hosts[source]} drop"
        _run(f"ip netns exec {self._spaces[target]} nft {rule}")

    def separate(self, one: Iterable[int], others: Iterable[int]) -> None:
        """Cut two groups of hosts off from each other."""
        others = list(others)
        for source in one:
            for target in others:
                self.cut(source, target)
                self.cut(target, source)

    def heal(self) -> None:
        """Remove all cuts."""
        for space in self._spaces:
            _run(f"ip netns exec {space} nft flush chain inet cut in")

    @contextmanager
    def refused(self, index: int, port: int) -> Iterator[None]:
        """Refuse connections to a TCP port of a host for the duration of the block."""
        _run(f"ip netns exec {self._spaces[index]} nft add rule inet cut in tcp dport {port} reject with tcp reset")
        try:
            yield
        finally:
            _run(f"ip netns exec {self._spaces[index]} nft flush chain inet cut in")

    def close(self) -> None:
        """Remove the network. Interfaces in namespaces are removed with these, but only later."""
        subprocess.run(["ip", "link", "del", self._name], check=False, capture_output=True)
        for space in (*self._spaces, self._switch):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
