"""Hosts for a fleet: network namespaces on a switch of their own, whose links can be cut. Needs root and iproute2."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

from benchmarks.chaos.fleet import ChaosError

SUBNET = "10.77.0"


class Hosts:
    """Namespaces by name, each with one interface `eth0` to a bridge in a namespace that is the switch."""

    def __init__(self, names: tuple[str, ...]):
        self.addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(names, 1)}
        self._prefix = f"df{os.getpid()}"

    def __enter__(self) -> Self:
        check_permission()
        try:
            self._make_switch()
            for name in self.addresses:
                self._make_host(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in [*self.addresses, "switch"]:
            subprocess.run(["ip", "netns", "delete", self._namespace(name)], capture_output=True, check=False)

    def command(self, host: str) -> list[str]:
        """What comes before a command that runs on the host."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def pids(self, host: str) -> list[int]:
        """All processes on the host."""
        return [int(pid) for pid in _ip("netns", "pids", self._namespace(host)).split()]

    def signal(self, host: str, number: signal.Signals) -> None:
        """Sends a signal to everything on the host, also to what is started meanwhile."""
        done: set[int] = set()
        while new := set(self.pids(host)) - done:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            done |= new

    def cut(self, host: str, is_cut: bool) -> None:
        """Drops every packet from and to the host, and tells nobody: the link stays up."""
        _ip("-n", self._namespace("switch"), "link", "set", host, *(["nomaster"] if is_cut else ["master", "bridge"]))

    def unplug(self, host: str, is_out: bool) -> None:
        """Takes the link of the host down, which its kernel knows of."""
        _ip("-n", self._namespace(host), "link", "set", "eth0", "down" if is_out else "up")

    def _make_switch(self) -> None:
        switch = self._namespace("switch")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")

    def _make_host(self, name: str) -> None:
        host, switch = self._namespace(name), self._namespace("switch")
        _ip("netns", "add", host)
        _ip("-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", host)
        _ip("-n", switch, "link", "set", name, "master", "bridge", "up")
        _ip("-n", host, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", host, "link", "set", link, "up")

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"


def check_permission() -> None:
    """Raises ChaosError, with what to do, where no namespaces can be made."""
    if not shutil.which("ip"):
        raise ChaosError("hosts are network namespaces, which need `ip`: install the package iproute2")
    if os.geteuid() != 0 or not Path("/proc/self/ns/net").exists():
        raise ChaosError(
            "hosts are network namespaces, which need root: run it as root, in a virtual machine or container"
        )
    probe = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise ChaosError(f"network namespaces cannot be used here: {probe.stderr.strip()}")


def _ip(*words: str) -> str:
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if result.returncode:
        raise ChaosError(f"ip {' '.join(words)}: {result.stderr.strip()}; is this container privileged (NET_ADMIN)?")
    return result.stdout
