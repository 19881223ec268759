"""Two "machines" on one: two network namespaces of Linux, each with its own address, joined by a virtual cable.

Each namespace lives as long as a process that holds it, and that one ends when its standard input closes:
nothing is left, even when the tests are killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import pytest

ADDRESSES = ("10.77.0.1", "10.77.0.2")
_CABLE_ENDS = ("mgpu-left", "mgpu-right")


class Namespaces:
    """The two namespaces, numbered 0 and 1."""

    def __init__(self, enter: tuple[list[str], list[str]]) -> None:
        self._enter = enter
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self,
        machine: int,
        command: Sequence[str],
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | IO[str] | None = subprocess.PIPE,
        stderr: int | IO[str] | None = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command on one machine; the returned process is the command itself."""
        process = subprocess.Popen(
            [*self._enter[machine], *command], stdin=stdin, stdout=stdout, stderr=stderr, env=env, text=True
        )
        self._started.append(process)
        return process

    def cut(self) -> None:
        """Pull the cable out at machine 1: nothing arrives any more, and no connection is closed."""
        self._cable("down")

    def mend(self) -> None:
        """Put the cable back."""
        self._cable("up")

    def end(self) -> None:
        """End what was started and still runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _cable(self, state: str) -> None:
        _do([*self._enter[1], "ip", "link", "set", _CABLE_ENDS[1], state])


@contextlib.contextmanager
def two_machines() -> Iterator[Namespaces]:
    """Make two joined namespaces; skips the test, with the reason, where that cannot be done."""
    if sys.platform != "linux":
        pytest.skip("network namespaces are a part of Linux")
    lacking = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if lacking:
        pytest.skip(f"two network namespaces need {', '.join(lacking)} (iproute2 and util-linux)")
    with contextlib.ExitStack() as stack:
        # Without root a namespace of users comes first, in which this user may do as root does.
        root = os.geteuid() == 0
        first = _hold(stack, ["unshare", *([] if root else ["--map-root-user"]), "--net"])
        user = [] if root else ["--user", "--preserve-credentials"]
        enter_first = ["nsenter", "--target", str(first), *user, "--net"]
        second = _hold(stack, [*(enter_first if not root else []), "unshare", "--net"])
        enter = (enter_first, ["nsenter", "--target", str(second), *user, "--net"])
        ends = _CABLE_ENDS
        _do([*enter[0], "ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", str(second)])
        for machine, name in enumerate(ends):
            _do([*enter[machine], "ip", "address", "add", f"{ADDRESSES[machine]}/24", "dev", name])
            _do([*enter[machine], "ip", "link", "set", name, "up"])
            _do([*enter[machine], "ip", "link", "set", "lo", "up"])
        namespaces = Namespaces(enter)
        stack.callback(namespaces.end)
        yield namespaces


def _hold(stack: contextlib.ExitStack, command: list[str]) -> int:
    """Start the process that holds a namespace, and return its number once it is inside."""
    holder = subprocess.Popen(
        [*command, "sh", "-c", "echo inside; exec cat >/dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def release() -> None:
        # Leaves the `with` block of Popen: closes the streams and waits.
        holder.__exit__(None, None, None)

    stack.callback(release)
    assert holder.stdout is not None
    if holder.stdout.readline().strip() != "inside":
        _, said = holder.communicate()
        pytest.skip(f"network namespaces cannot be made here: {said.strip()}")
    return holder.pid


def _do(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"network namespaces cannot be joined here: {done.stderr.strip()}")
