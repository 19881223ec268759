"""All checks of this machine; the slow ones at the same time, each with a limit."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata

from mgpu_utils.doctor import (
    collective_checks,
    driver_checks,
    folder_checks,
    jupyter_checks,
    network_checks,
    place_checks,
    python_checks,
    resource_checks,
    torch_checks,
)
from mgpu_utils.doctor.child import children_end_together
from mgpu_utils.doctor.findings import Finding, guarded
from mgpu_utils.doctor.preflight import Limits, Trial, all_reduce

_VERSIONS = ("mgpu-utils", "torch", "jupyterlab", "ipykernel", "jupyter_client", "ipywidgets", "jupyterlab_widgets")


def examine(limits: Limits | None = None) -> list[Finding]:
    """Check everything, in the order of the report; no check's failure keeps another one back."""
    with children_end_together() as end_all, ThreadPoolExecutor(max_workers=3) as pool:
        try:
            return _examine(pool, os.environ, limits or Limits())
        except BaseException:
            # Leaving the pool waits for its threads, which wait for their children.
            end_all()
            raise


def _examine(pool: ThreadPoolExecutor, environ: Mapping[str, str], limits: Limits) -> list[Finding]:
    probe = pool.submit(torch_checks.ask)
    trials = pool.submit(all_reduce, lambda: 0 if probe.exception() else gpus_to_try(probe.result()), limits)
    network = pool.submit(network_checks.look)
    place = place_checks.look(environ=environ)
    container = place.container is not None
    quick = [
        *guarded("Python", lambda: [python_checks.look_at_python()]),
        *guarded("Packages", lambda: [python_checks.judge_packages(python_checks.look_at_packages())]),
        *guarded("Place", lambda: place_checks.judge(place)),
        *guarded("Resources", lambda: resource_checks.judge(resource_checks.look(), environ, container=container)),
    ]
    jupyter = [
        *guarded("Jupyter kernel", lambda: [jupyter_checks.judge_kernel(jupyter_checks.look_for_kernel(environ))]),
        *guarded("JupyterLab", lambda: [jupyter_checks.judge_widgets(jupyter_checks.look_at_widgets())]),
        *guarded("Folders", lambda: folder_checks.judge(folder_checks.look(environ), environ)),
    ]
    return [
        *quick,
        *guarded("PyTorch", lambda: _torch(probe, environ, container)),
        *guarded("gloo", lambda: [collective_checks.judge_gloo(trials.result()[0])]),
        *guarded("NCCL", lambda: [_nccl(probe.result(), trials.result()[1])]),
        *guarded("Network", lambda: network_checks.judge(network.result(), environ)),
        *jupyter,
    ]


def gpus_to_try(facts: torch_checks.TorchFacts) -> int:
    """How many GPUs nccl can be tried on: none where one of them does not compute, or is a MIG instance."""
    whole = facts.gpus_for_ranks == len(facts.found.get("devices", []))
    return facts.gpus_for_ranks if whole and facts.torch.get("nccl") and not facts.mig else 0


def _torch(probe: Future[torch_checks.TorchFacts], environ: Mapping[str, str], container: bool) -> list[Finding]:
    facts, cards = probe.result(), driver_checks.look_for_cards()
    if sys.platform == "win32" and cards.vendor is None and facts.cuda_of_driver is not None:
        cards = driver_checks.Cards("NVIDIA", "")
    return torch_checks.judge(facts, cards, environ, container)


def _nccl(facts: torch_checks.TorchFacts, trial: Trial) -> Finding:
    built = bool(facts.torch.get("nccl"))
    return collective_checks.judge_nccl(trial, gpus=facts.gpus_for_ranks, built=built, mig=facts.mig)


def versions() -> dict[str, str | None]:
    """Versions that a request for help has to name."""
    found: dict[str, str | None] = {"python": platform.python_version(), "system": platform.system()}
    for name in _VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
