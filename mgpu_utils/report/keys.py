"""What makes two measured runs runs of the same configuration, and what such a configuration is called."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from mgpu_utils.benchmark import kinds
from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.kinds import Kind, Record
from mgpu_utils.benchmark.plan import DEFAULTS, STAND_IN, Configuration
from mgpu_utils.benchmark.records import key_of

COMPARISON = "compare"
# What the machine decides, and how long is measured: across folders these may differ, and the label says so.
_MAY_DIFFER = {
    "implementation": "implementation",
    "device_type": "device",
    "backend": "backend",
    "steps": "steps measured",
    "warmup": "warm-up steps",
}
_FIELDS = tuple(Configuration.__dataclass_fields__)
# Threads in all tell enough of the threads of a process.
_TOLD_ALREADY = ("strategy", "model", "scaling", "world_size", "threads_per_process", *_MAY_DIFFER)
_NAMES = {
    "per_device_batch": "batch {} a device",
    "global_batch": "global batch {}",
    "total_threads": "threads {}",
    "precision": "{}",
    "accumulation": "{} micro-batches",
    "bucket_cap_mb": "buckets of {} MiB",
    "num_workers": "{} loader workers",
    "load_ms": "{} ms to load a sample",
}


def benchmark_of(record: Record) -> str:
    """Return the benchmark that a record belongs to; the first records named none, there was only one."""
    return str(record.get("benchmark", COMPARISON))


def find_kind(benchmark: str) -> Kind | None:
    """Return what a benchmark is, None where this version does not know it."""
    try:
        return kinds.get(benchmark)
    except (ValueError, ImportError, AttributeError):
        return None


def fill_in(record: Record) -> Record:
    """Return a comparison's record with what older versions did not write yet, because there was no choice."""
    return DEFAULTS | record if benchmark_of(record) == COMPARISON else record


def loose_key(record: Record) -> str:
    """Return the key without what may differ between folders, so that two machines' results meet.

    Only keys that begin with the fields of a training run have such parts; any other key is returned whole.
    """
    key = key_of(record)
    fields = {name: str(record.get(name, DEFAULTS.get(name))) for name in _FIELDS}
    whole = "/".join(fields.values())
    if not key.startswith(whole):
        return key
    return "/".join(value for name, value in fields.items() if name not in _MAY_DIFFER) + key.removeprefix(whole)


def set_up_differently(one: Record, other: Record) -> list[str]:
    """Return in words how two records of one loose key differ."""
    if key_of(one) == key_of(other):
        return []
    return [
        f"{word} {one.get(name) or 'none'} and {other.get(name) or 'none'}"
        for name, word in _MAY_DIFFER.items()
        if one.get(name) != other.get(name)
    ]


def descriptions(records: Iterable[Record]) -> dict[str, str]:
    """Return what each configuration is called, by its loose key: short, but different from all others."""
    firsts: dict[str, Record] = {}
    for record in records:
        firsts.setdefault(loose_key(record), record)
    alike: dict[str, list[Record]] = {}
    for record in firsts.values():
        alike.setdefault(_plain(record), []).append(record)
    names = {}
    for key, record in firsts.items():
        same = alike[_plain(record)]
        more = [
            _NAMES.get(name, name.replace("_", " ") + " {}").format(record.get(name))
            for name in _FIELDS
            if name not in _TOLD_ALREADY and len({str(other.get(name)) for other in same}) > 1
        ]
        names[key] = ", ".join([_plain(record), *more])
    taken = list(names.values())
    return {key: name if taken.count(name) == 1 else f"{name} ({key})" for key, name in names.items()}


def _plain(record: Record) -> str:
    benchmark = benchmark_of(record)
    before = "" if benchmark == COMPARISON else f"{benchmark}: "
    part = f", {record['part']}" if "part" in record else ""
    if not {"strategy", "model", "world_size"} <= record.keys():
        return before + _label(benchmark, record).removeprefix(before) + part
    strategy = str(record["strategy"])
    label = CONTENDERS[strategy].label if strategy in CONTENDERS else strategy
    stand_in = " (stand-in)" if record.get("implementation") == STAND_IN else ""
    size = f" on {record['world_size']}" if record["world_size"] != 1 else ""
    knob = f"{record['knob']} {record.get('value')}" if record.get("knob") else ""
    parts = [str(record["model"]), str(record.get("scaling") or ""), f"{label}{stand_in}{size}", knob]
    return before + ", ".join(part for part in parts if part)


def _label(benchmark: str, record: Record) -> str:
    kind = find_kind(benchmark)
    # A record of another version may lack what its label is made of.
    with suppress(KeyError, TypeError):
        if kind is not None:
            return kind.label(record)
    return str(record.get("key")).replace("/", ", ")
