"""The control groups of Linux that this process is in: where their limits and counters lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MOUNTS = Path("sys/fs/cgroup")


def folders(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield (version of control groups, folder) for the groups that `controller` ("cpu", "memory") of this process
    may be governed by, from the group itself up to the mount.

    A limit on a parent group binds its children, so each folder on the way up counts. Inside a container the group's
    own path is often absent below the mount; the mount itself is then it. `root` is the directory that holds `proc`
    and `sys`. Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, group in (parts for line in lines if len(parts := line.split(":", 2)) == 3):
        if controllers == "":
            version, mounts = 2, ["", "unified"]
        elif controller in controllers.split(","):
            # Some systems mount the CPU controller together with its accounting.
            version, mounts = 1, [controller, *(["cpu,cpuacct"] if controller == "cpu" else [])]
        else:
            continue
        parts = [part for part in group.split("/") if part and part != ".."]
        for mount in mounts:
            for depth in range(len(parts), -1, -1):
                yield version, (root / _MOUNTS / mount).joinpath(*parts[:depth])
