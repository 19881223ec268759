"""PyTorch itself, what hides GPUs from it, and each GPU that it can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgpu_utils.doctor.child import Child, ChildEnded
from mgpu_utils.doctor.driver_checks import GPU_BUILD, Cards, build_name, judge_driver
from mgpu_utils.doctor.findings import Finding, foreign
from mgpu_utils.doctor.gpu_arithmetic import describe_gpu, runs_on
from mgpu_utils.visible_devices import parse_visible_devices

_START_SECONDS = 30.0
_OPEN_SECONDS = 15.0


@dataclass(frozen=True)
class TorchFacts:
    """What the probe reported; an empty part was never reached, and `trouble` says why."""

    cuda_of_driver: int | None = None
    torch: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""
    silent: bool = False

    @property
    def usable(self) -> list[Mapping[str, Any]]:
        """The devices on which the small computation came out right."""
        return [device for device in self.found.get("devices", []) if not device["trouble"]]

    @property
    def gpus_for_ranks(self) -> int:
        """How many GPUs ranks could have: those of CUDA or ROCm that compute."""
        return len(self.usable) if self.found.get("kind") == "cuda" else 0

    @property
    def mig(self) -> bool:
        """Whether the devices are MIG instances, slices of one GPU."""
        return bool(self.found.get("mig"))


def ask(arguments: Sequence[str] = ("-m", "mgpu_utils.doctor.torch_probe")) -> TorchFacts:
    """Run the probe in a child process, which is ended when it does not answer in time."""
    known: dict[str, Any] = {}
    parts = (("driver", _START_SECONDS), ("torch", _START_SECONDS), ("devices", _OPEN_SECONDS), ("plan", _OPEN_SECONDS))
    trouble, silent = "", False
    with Child(arguments) as child:
        try:
            for part, seconds in parts:
                known[part] = child.wait_for(part, seconds)
        except TimeoutError:
            trouble, silent = f"no answer within {seconds:g} s", True
        except ChildEnded as error:
            trouble = foreign(str(error))
    driver = known.get("driver", {}).get("cuda")
    torch, found, plan = (known.get(part, {}) for part in ("torch", "devices", "plan"))
    return TorchFacts(driver, torch, found, plan, trouble, silent)


def judge(facts: TorchFacts, cards: Cards, environ: Mapping[str, str], container: bool) -> list[Finding]:
    """PyTorch's own line, then the driver, what hides GPUs, and one line for each GPU."""
    if not facts.torch:
        return [_no_torch(facts)]
    value = environ.get("CUDA_VISIBLE_DEVICES")
    driver = judge_driver(facts.torch, facts.cuda_of_driver, cards, container=container)
    made_for_it = facts.torch["cuda" if cards.vendor == "NVIDIA" else "hip"] and cards.driver is not None
    hidden = parse_visible_devices(value).notice is not None
    findings = [
        Finding("PyTorch", "ok", f"{facts.torch['version']}, {build_name(facts.torch)} build."),
        driver,
        *judge_visible(value, cards),
        # Where the lines above say why there is no GPU, another line about it would only repeat them.
        *judge_gpus(facts, expected=bool(made_for_it) and driver.state in ("ok", "note") and not hidden),
    ]
    if facts.mig:
        findings.append(
            Finding(
                "MIG",
                "note",
                "the GPU is divided into MIG instances: a process can use one instance, and nccl does not connect "
                "instances. So ranks are CPU processes here, and one instance does single-device work.",
                "for ranks on GPUs: whole GPUs, with MIG turned off by the administrator.",
            )
        )
    return [*findings, *_judge_plan(facts)]


def _judge_plan(facts: TorchFacts) -> list[Finding]:
    name = "Where ranks run"
    if not facts.found:
        return []
    if not facts.plan:
        cure = "the lines above say what may be the reason; mgpu.survey() in a notebook tells more."
        return [Finding(name, "warning", f"it could not be asked: {facts.trouble}.", cure)]
    if not facts.plan["sound"]:
        variable = "MGPU_" in facts.plan["reason"]
        cure = "unset or mend the variable that it names." if variable else "install a standard build of PyTorch."
        return [Finding(name, "broken", facts.plan["reason"], cure)]
    return [Finding(name, "ok", facts.plan["reason"])]


def _no_torch(facts: TorchFacts) -> Finding:
    if facts.silent:
        cure = "run the doctor again when the machine is idle; a network disk can make the first import slow."
        return Finding("PyTorch", "warning", f"its import gave {facts.trouble}, so it was not checked.", cure)
    if "No module named 'torch'" in facts.trouble:
        cure = "make lab (conda: python -m pip install -e . in the course's folder)."
        return Finding("PyTorch", "broken", "it is not installed for this Python.", cure)
    return Finding(
        "PyTorch",
        "broken",
        f"it cannot be imported: {facts.trouble}",
        "install it anew: make clean, then make lab (conda: create the environment anew).",
    )


def judge_visible(value: str | None, cards: Cards) -> list[Finding]:
    """What CUDA_VISIBLE_DEVICES hides and renumbers; nothing where it is not set."""
    visible = parse_visible_devices(value)
    if not visible.restricts:
        return []
    name, cure = "CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES before Python starts, to see every GPU."
    later = "It is read once, at the first use of a GPU: a later cell cannot change it."
    if visible.notice:
        hidden = cards.vendor is not None
        sentence = visible.notice.replace(f"{name} ", "it ", 1)
        return [Finding(name, "warning" if hidden else "note", sentence, cure if hidden else None)]
    if cards.vendor is None:
        return [Finding(name, "note", "it is set, but no NVIDIA or AMD GPU is visible here, so it changes nothing.")]
    kinds = {"G": "by UUID", "M": "MIG instances by UUID"}
    if how := kinds.get(visible.entries[0][0]):
        count = len(visible.entries)
        sentence = f"it names {count} device{'s' if count != 1 else ''} ({how}), numbered from 0 in this order. {later}"
    else:
        meaning = ", ".join(f"cuda:{index} is GPU {entry}" for index, entry in enumerate(visible.entries))
        sentence = f"{meaning} of this machine. {later}"
    return [Finding(name, "note", sentence)]


def judge_gpus(facts: TorchFacts, *, expected: bool) -> list[Finding]:
    """One line for each GPU, and one for the paths between them; `expected` where there should be one."""
    if not facts.found:
        state = f"{facts.trouble}, so the GPUs were not checked." if facts.silent else facts.trouble
        cure = "nvidia-smi must answer; if it hangs too, restart the machine. Until then: CUDA_VISIBLE_DEVICES=-1."
        return [Finding("GPUs", "broken", f"opening the GPUs failed: {state}", cure)]
    if facts.found["trouble"] and (expected or facts.found["count"]):
        cure = "nvidia-smi shows whether another process holds them or the driver failed."
        return [Finding("GPUs", "broken", f"they cannot be opened: {foreign(facts.found['trouble'])}", cure)]
    findings = [_judge_gpu(facts, index, device) for index, device in enumerate(facts.found["devices"])]
    if len(findings) > 1 and facts.found["peers"]:
        findings.append(_judge_peers(facts.found["peers"]))
    return findings


def _judge_gpu(facts: TorchFacts, index: int, device: Mapping[str, Any]) -> Finding:
    name = f"{facts.found['kind']}:{index}"
    sentence, capability, architectures = describe_gpu(device), device["capability"], facts.torch["architectures"]
    if capability and architectures and not runs_on(capability, architectures):
        return Finding(
            name,
            "broken",
            f"{sentence}: this PyTorch holds no code for it (only {' '.join(architectures)}).",
            f"{GPU_BUILD} that lists sm_{capability[0]}{capability[1]}; until then: MGPU_DEVICE=cpu.",
        )
    if device["trouble"]:
        cure = "nvidia-smi shows whether another process holds it; until then hide it with CUDA_VISIBLE_DEVICES."
        return Finding(name, "broken", f"{sentence}: a small computation failed: {foreign(device['trouble'])}", cure)
    if device["free"] is not None and device["free"] < 2**30:
        cure = "nvidia-smi shows which process holds the memory: end it (often a forgotten notebook kernel)."
        return Finding(name, "warning", f"{sentence}: little memory is free.", cure)
    return Finding(name, "ok", f"{sentence}: computes.")


def _judge_peers(peers: Sequence[Sequence[bool]]) -> Finding:
    pairs = [(a, b) for a in range(len(peers)) for b in range(a + 1, len(peers))]
    missing = [f"{a}-{b}" for a, b in pairs if not peers[a][b]]
    if not missing:
        return Finding("Peer access", "ok", "every pair of GPUs can read each other's memory.")
    which = "no pair of GPUs" if len(missing) == len(pairs) else f"every pair but {', '.join(missing)}"
    sentence = f"{which} can read each other's memory directly; the rest goes through main memory: right, but slower."
    return Finding("Peer access", "note", sentence)
