"""Loopback, names, proxies, and what an outer job left in the environment."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mgpu_utils.doctor.findings import Finding

_SECONDS = 2.0
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_JOB = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


@dataclass(frozen=True)
class Network:
    """`loopback`: the trouble with 127.0.0.1, None where it works. `host_name`: "ok", "unknown" or "slow"."""

    loopback: str | None
    host_name: str
    ipv6: bool


def look() -> Network:
    """Connect over 127.0.0.1, look for ::1, and resolve this machine's own name, which is never reported."""
    return Network(loopback_trouble(), host_name(), has_ipv6())


def loopback_trouble() -> str | None:
    """Why a connection over 127.0.0.1 did not come about, None when it did."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(_SECONDS)
            with socket.create_connection(server.getsockname(), timeout=_SECONDS) as client:
                peer, _ = server.accept()
                with peer:
                    client.sendall(b"x")
                    peer.settimeout(_SECONDS)
                    return None if peer.recv(1) == b"x" else "the connection carried nothing"
    except OSError as error:
        return error.strerror or "no answer in time"


def host_name(resolve: Callable[[str, None], object] = socket.getaddrinfo, seconds: float = _SECONDS) -> str:
    """Whether this machine's name has an address. The name service may hang, so it is asked in a thread."""
    answer: list[str] = []

    def ask() -> None:
        try:
            resolve(socket.gethostname(), None)
            answer.append("ok")
        except (OSError, UnicodeError):
            answer.append("unknown")

    thread = threading.Thread(target=ask, daemon=True)
    started = time.monotonic()
    thread.start()
    thread.join(max(0.0, seconds - (time.monotonic() - started)))
    return answer[0] if answer else "slow"


def has_ipv6() -> bool:
    """Whether ::1 can be listened on."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


def judge(found: Network, environ: Mapping[str, str]) -> list[Finding]:
    """One line for each; names of variables only, never the value of a proxy."""
    return [
        judge_loopback(found.loopback),
        judge_host_name(found.host_name),
        judge_ipv6(found.ipv6),
        judge_proxies(environ),
        *judge_outer_job(environ),
        *judge_debugging(environ),
    ]


def judge_loopback(trouble: str | None) -> Finding:
    """Ranks and kernels meet on 127.0.0.1 and nowhere else."""
    if trouble is None:
        return Finding("Loopback", "ok", "127.0.0.1 works; ranks and kernels meet there and nowhere else.")
    cure = "sudo ip link set lo up." if sys.platform == "linux" else "turn the interface lo0 on."
    return Finding("Loopback", "broken", f"no connection over 127.0.0.1 ({trouble}): ranks cannot meet.", cure)


def judge_host_name(state: str) -> Finding:
    """Only scripts outside the course ask for the address of the machine's name."""
    name = "Host name"
    if state == "ok":
        return Finding(name, "ok", "this machine's name has an address.")
    what = "has no address" if state == "unknown" else f"was not looked up within {_SECONDS:g} s"
    cure = "for your own scripts: GLOO_SOCKET_IFNAME=lo, or the name in /etc/hosts."
    return Finding(name, "note", f"this machine's name {what}; harmless: the course uses 127.0.0.1.", cure)


def judge_ipv6(works: bool) -> Finding:
    """The course never needs IPv6."""
    if works:
        return Finding("IPv6", "ok", "::1 works; the course does not need it.")
    return Finding("IPv6", "note", "it is off; harmless: the course uses 127.0.0.1.")


def judge_proxies(environ: Mapping[str, str]) -> Finding:
    """A proxy that is asked for 127.0.0.1 too."""
    name = "Proxies"
    names = sorted(name for name in environ if name.lower() in _PROXIES and environ[name])
    if not names:
        return Finding(name, "ok", "none is set.")
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = {host.strip().lower() for host in exempt.split(",")}
    missing = [] if "*" in hosts else [host for host in ("localhost", "127.0.0.1") if host not in hosts]
    listed = ", ".join(names)
    if not missing:
        return Finding(name, "ok", f"{listed} set, and not used for localhost.")
    sentence = (
        f"{listed} set, also for {' and '.join(missing)}; ranks and kernels use no proxy, but a browser or script may "
        "ask it for JupyterLab's page."
    )
    return Finding(name, "note", sentence, "if the page does not open: export NO_PROXY=localhost,127.0.0.1.")


def judge_outer_job(environ: Mapping[str, str]) -> list[Finding]:
    """Variables of torchrun or a job scheduler, which ranks of the course do not listen to."""
    names = [name for name in _JOB if name in environ]
    names += ["TORCHELASTIC_..."] if any(name.startswith("TORCHELASTIC_") for name in environ) else []
    if not names:
        return []
    sentence = f"{', '.join(names)} set; harmless: the course's ranks are given their own. Your scripts would use them."
    return [Finding("Outer job", "note", sentence, f"for your own scripts: unset {' '.join(names)}.")]


def judge_debugging(environ: Mapping[str, str]) -> list[Finding]:
    """Settings of torch.distributed and NCCL which reach the ranks and change what they do."""
    findings = []
    if environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        sentence = "DETAIL reaches the ranks: each collective is slower, and CPU ranks can end by SIGSEGV in DDP."
        cure = "unset TORCH_DISTRIBUTED_DEBUG, except to look for mismatched collectives."
        findings.append(Finding("TORCH_DISTRIBUTED_DEBUG", "warning", sentence, cure))
    names = sorted(name for name in environ if name.startswith(("NCCL_", "TORCH_NCCL_")))
    if names:
        sentence = f"{', '.join(names)} set; they reach the ranks and can change speed and results of benchmarks."
        findings.append(Finding("NCCL settings", "note", sentence, f"unset {' '.join(names)}, if you did not mean it."))
    return findings
