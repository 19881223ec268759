"""Do two ranks reach each other: what the pre-flight all-reduce over gloo and nccl means."""

from __future__ import annotations

from mgpu_utils.doctor.findings import Finding, foreign
from mgpu_utils.doctor.preflight import Trial

_ANEW = "install PyTorch anew: make clean, then make lab."


def judge_gloo(trial: Trial) -> Finding:
    """CPU ranks need gloo, so a pair that cannot add up over it is broken."""
    name = "gloo"
    if trial.outcome == "ok":
        return Finding(name, "ok", f"two CPU ranks added up a tensor ({trial.seconds:.2f} s after PyTorch's import).")
    if trial.outcome == "slow start":
        sentence = f"not checked: two ranks were not ready after {trial.seconds:.0f} s (PyTorch's import is slow)."
        return Finding(name, "warning", sentence, "run the doctor again when the machine is idle.")
    if trial.outcome == "silent":
        sentence = f"the all-reduce of two CPU ranks did not end within {trial.seconds:.0f} s ({_who(trial)} waited)."
        cure = (
            "see the line Loopback; let the firewall pass connections to 127.0.0.1; in your own scripts "
            "GLOO_SOCKET_IFNAME=lo (macOS: lo0), which the course's ranks have."
        )
        return Finding(name, "broken", sentence, cure)
    if trial.outcome == "wrong":
        return Finding(name, "broken", f"the all-reduce of two CPU ranks gave a wrong sum on {_who(trial)}.", _ANEW)
    if trial.outcome == "not tried":
        return Finding(name, "warning", "not checked.", "mend what the other lines name, then run the doctor again.")
    sentence = f"{_who(trial)} could not take part: {foreign(trial.detail)}"
    return Finding(name, "broken", sentence, "see the lines PyTorch and Loopback; then run the doctor again.")


def judge_nccl(trial: Trial, *, gpus: int, built: bool, mig: bool) -> Finding:
    """GPU ranks need nccl, which needs two whole GPUs to be tried on; `gpus` is how many can be used."""
    name = "NCCL"
    if trial.outcome == "not tried":
        if mig:
            return Finding(name, "note", "not tried: it does not connect MIG instances.")
        if gpus < 2:
            return Finding(name, "ok", f"not needed: it joins two GPUs or more, and {gpus} can be used here.")
        if not built:
            sentence = f"{gpus} GPUs can be used, but this PyTorch was built without nccl: ranks are CPU processes."
            return Finding(name, "warning", sentence, "nccl is in PyTorch's builds for Linux (Windows: use WSL 2).")
        return Finding(name, "warning", "not checked, because gloo or a GPU failed.", "mend that line first.")
    if trial.outcome == "ok":
        return Finding(name, "ok", f"two GPU ranks added up a tensor ({trial.seconds:.1f} s with NCCL's start).")
    p2p = "if it passes with NCCL_P2P_DISABLE=1, peer access is broken: turn ACS off (or the IOMMU) in the BIOS"
    if trial.outcome == "silent":
        sentence = f"the first all-reduce of two GPU ranks did not end within {trial.seconds:.0f} s."
        cure = f"run mgpu doctor with NCCL_P2P_DISABLE=1; {p2p}. NCCL_DEBUG=INFO shows where it stands."
        return Finding(name, "broken", sentence, cure)
    if trial.outcome == "wrong":
        sentence = f"the all-reduce of two GPU ranks gave a wrong sum on {_who(trial)}."
        return Finding(name, "broken", sentence, f"run mgpu doctor with NCCL_P2P_DISABLE=1; {p2p}.")
    sentence = f"{_who(trial)} could not take part: {foreign(trial.detail)}"
    cure = "NCCL_DEBUG=INFO shows more; a small /dev/shm is a common cause; NCCL_P2P_DISABLE=1 goes around peer access."
    return Finding(name, "broken", sentence, cure)


def _who(trial: Trial) -> str:
    if len(trial.ranks) == 1:
        return f"rank {trial.ranks[0]}"
    return "both ranks" if trial.ranks else "a rank"
