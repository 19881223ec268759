"""Where ranks on one machine meet: a store on loopback, and the environment that leads them to it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

_OUTER_JOB = ("MASTER_", "TORCHELASTIC_", "GROUP_", "ROLE_", "PET_", "RANK", "LOCAL_", "WORLD_SIZE")


def loopback_interface() -> str | None:
    """Name of the network interface of 127.0.0.1, as GLOO_SOCKET_IFNAME wants it; None where it is not needed."""
    return {"linux": "lo", "darwin": "lo0"}.get(sys.platform)


def loopback_store(timeout: float) -> Any:
    """A `torch.distributed.TCPStore` that listens on 127.0.0.1 alone, on a port the system picks.

    Args:
        timeout: seconds a rank may wait for a key.
    """
    return store_on("127.0.0.1", timeout)


def store_on(address: str, timeout: float) -> Any:
    """A `torch.distributed.TCPStore` that listens on one address of this machine, on a port the system picks.

    The store has no password, so it must not be reachable from where nobody needs it; TCPStore by itself
    would listen on every interface.

    Args:
        address: where to listen.
        timeout: seconds a rank may wait for a key.
    """
    import torch.distributed as dist

    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    with _without_host_name_warnings():
        return dist.TCPStore(
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
            master_listen_fd=listener.detach(),
        )


@contextlib.contextmanager
def _without_host_name_warnings() -> Iterator[None]:
    """Keep torch's warning that 127.0.0.1 has no name out of the learner's cell; all else that C++ writes stays."""
    try:
        saved = os.dup(2)
    except OSError:
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            written.seek(0)
            for line in written:
                if b"hostname of the client socket cannot be retrieved" not in line:
                    os.write(2, line)


def rank_environment(rank: int, world_size: int, port: int, threads: int) -> dict[str, str]:
    """Environment variables for the process of one rank, free of what an outer job may have set."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER_JOB)}
    env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    env |= {"LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env["MGPU_INSIDE_RANK"] = str(rank)
    env |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if interface := loopback_interface():
        # Without it gloo asks for the address of the host name, which need not have one.
        env["GLOO_SOCKET_IFNAME"] = interface
    # A rank's figures go to the notebook, whatever window the notebook's own use.
    env["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    # Without it the kernel's debugger prints a warning about Python's frozen modules into the first cell.
    env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    return env
