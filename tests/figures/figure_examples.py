"""One call with made-up data for every function of the project that draws, and pieces of the words it must give."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from made_up_records import record

from mgpu_utils import plots
from mgpu_utils.backward_timeline import BackwardTimeline
from mgpu_utils.benchmark import report
from mgpu_utils.benchmark import scale_out as scale_out_benchmark
from mgpu_utils.benchmark.summary import summarise, summarise_each
from mgpu_utils.figures import breakdown, collectives, fault_timeline, folder_comparison, scale_out, scaling, tune
from mgpu_utils.figures.folder_comparison import Ratio
from mgpu_utils.parameter_hashes import HashTable
from mgpu_utils.rank_history import CollectiveSpan, RankHistory
from mgpu_utils.scaling import sliders
from mgpu_utils.scaling.curves import preset_curves
from mgpu_utils.scaling.overlap import simulate
from mgpu_utils.scaling.published import validate_v100
from mgpu_utils.shard_map import ShardMap
from mgpu_utils.step_hashes import StepHashes
from mgpu_utils.step_lanes import Slice
from mgpu_utils.step_profile import PARTS
from mgpu_utils.timeline import Span
from mgpu_utils.watched_data import Recording


class Example(NamedTuple):
    """A call that draws, and what its words must hold: names and values of its data."""

    draw: Callable[[], Any]
    wanted: tuple[str, ...]


HISTORY = (
    RankHistory(0, "waits", 3.0, (CollectiveSpan("all_reduce", 0.1, 0.9), CollectiveSpan("barrier", 1.0, None))),
    RankHistory(1, "at work", 3.0, (CollectiveSpan("all_reduce", 0.2, 0.9),)),
    RankHistory(2, "died", 1.5, ()),
    RankHistory(3, "finished", 2.5, (CollectiveSpan("a step of DDP", 0.5, None),)),
)


def _compared(**changes: Any) -> list[dict[str, Any]]:
    rates = {"single": 100.0, "data_parallel": 120.0, "ddp": 180.0, "ddp_static_graph": 170.0, "independent": 190.0}
    made = [
        record(name, number, rate * (1 + 0.05 * number) * 10, **changes)
        for name, rate in rates.items()
        for number in range(2)
    ]
    made += [record("single", n, 1500.0 + n, threads_per_process=2, total_threads=2, **changes) for n in range(2)]
    made += [record("ddp_bf16_hook", 0, 1.0, status="failed", reason="out of memory", **changes)]
    return made


def _scaled() -> list[dict[str, Any]]:
    made = [record("single", number, 100.0 + number) for number in range(2)]
    for size in (2, 4):
        for name, rate in (("ddp", 90.0), ("ddp_static_graph", 80.0), ("data_parallel", 60.0), ("independent", 95.0)):
            sizes = {"world_size": size, "total_threads": size, "global_batch": 32 * size}
            made += [record(name, number, rate * size + number, **sizes) for number in range(2)]
    return made


def _step(strategy: str, size: int, **parts: float) -> dict[str, Any]:
    fields = {"model": "digits_cnn", "strategy": strategy, "implementation": "torch", "world_size": size}
    fields |= {"per_device_batch": 8, "oversubscribed": False, "step_seconds": 0.0125}
    return fields | {f"{name}_seconds": parts.get(name, 0.0) for name in PARTS}


_STEPS = pd.DataFrame(
    [
        _step("single", 1, data=0.001, forward=0.003, backward=0.006, optimizer=0.001, other=0.0005),
        _step("ddp", 2, data=0.001, forward=0.002, backward=0.003, exposed_communication=0.004, optimizer=0.001),
        _step("data_parallel", 2, forward=0.001, parallel_apply=0.005, replicate=0.002, gather=0.001),
    ]
)
_LANES = {
    "main thread": [Slice("data", 1.0, 1.001), Slice("forward", 1.001, 1.004), Slice("backward", 1.004, 1.008),
                    Slice("exposed_communication", 1.006, 1.008), Slice("optimizer", 1.008, 1.01)],
    "communication": [Slice("all_reduce", 1.005, 1.008)],
}  # fmt: skip
_TIMELINE = [
    {"steps": [[1.0, 1.01]], "lanes": {lane: [list(piece) for piece in held] for lane, held in _LANES.items()}}
]
_TIMED = [_step("ddp", 2) | {"timeline": _TIMELINE * 2, "status": "ok"}]


def _collectives() -> pd.DataFrame:
    parts = []
    for place, name in enumerate(("all_reduce", "broadcast", "all_gather", "reduce_scatter"), 1):
        table = pd.DataFrame({"bytes": [1024, 8192, 65536, 2**20]})
        table["line_seconds"] = place * 1e-4 + table["bytes"] / 1e9
        table["line_miss"] = [0.0, 0.1, 0.5 / place, 0.0]
        table["seconds"] = table["line_seconds"] * (1 + table["line_miss"])
        table["seconds_low"], table["seconds_high"] = table["seconds"] * 0.9, table["seconds"] * 1.2
        table["busbw_gb_s"] = table["bytes"] / table["seconds"] / 1e9
        fields = {"collective": name, "world_size": 2, "backend": "gloo", "rounds": 5}
        parts.append(table.assign(**fields, latency_us=place * 100.0, bandwidth_gb_s=1.0))
    return pd.concat(parts, ignore_index=True)


def _tuned(knob: str, values: list[Any]) -> pd.DataFrame:
    speeds = [400.0 + 100 * place for place in range(len(values))]
    table = pd.DataFrame({"knob": knob, "value": values, "samples_per_second": speeds})
    table["samples_per_second_low"] = table["samples_per_second"] * 0.9
    table["samples_per_second_high"] = table["samples_per_second"] * 1.1
    table["knee"] = [place == 1 for place in range(len(values))]
    about = {"device_type": "cpu", "model": "digits_cnn", "strategy": "ddp", "world_size": 2, "threads_per_process": 1}
    return table.assign(**about)


PREDICTED = pd.DataFrame(
    {
        "strategy": ["ddp", "ddp", "data_parallel"],
        "implementation": ["torch", "torch", "threaded stand-in"],
        "model": ["digits_cnn", "small_resnet", "digits_cnn"],
        "world_size": 2,
        "role": ["fitted", "predicted", "predicted"],
        "measured_seconds": [0.002, 0.1, 0.01],
        "predicted_seconds": [0.002, 0.11, 0.008],
    }
)
_RUN = [1.0 / step for step in range(1, 13)]
_SPANS = [
    [Span("forward", 0, 1.0, 1.2), Span("backward", 0, 1.6, 2.0), Span("optimizer", 0, 2.0, 2.1)],
    [Span("forward", 0, 1.2, 1.4), Span("backward", 0, 1.4, 1.6), Span("evaluates", 0, 2.1, 2.5)],
]
_STAGES = [
    [Span("forward", 0, 1.0, 1.2), Span("forward", 1, 1.2, 1.4), Span("backward", 0, 1.6, 2.0)],
    [Span("forward", 0, 1.2, 1.4), Span("backward", 0, 1.4, 1.6), Span("backward", 1, 1.6, 1.8)],
]
_BACKWARD = BackwardTimeline(((0.0, 0.002), (0.002, 0.005)), ((0.001, 0.004), (0.004, 0.006)), 0.006)
_RECORDINGS = {
    "0 workers": Recording(7, 100.0, [(7, 100.0, 100.03), (7, 100.05, 100.08)], [(100.03, 100.05), (100.08, 100.1)]),
    "2 workers": Recording(7, 200.0, [(8, 200.0, 200.03), (9, 200.0, 200.03)], [(200.03, 200.05), (200.05, 200.07)]),
}
_BYTES = {"DDP": [{"parameters": 4000, "gradients": 3000, "optimizer": 8000}] * 2, "split": [{"parameters": 1500}]}

EXAMPLES = {
    "breakdown.step_parts": Example(lambda: breakdown.step_parts(_STEPS), ("exposed communication", "DDP on 2", "4")),
    "breakdown.step_timeline": Example(
        lambda: breakdown.step_timeline([_LANES, _LANES], (1.0, 1.01), "A step"),
        ("rank 1: communication: all_reduce from 5 to 8", "milliseconds"),
    ),
    "breakdown.figures": Example(
        lambda: breakdown.figures(_TIMED, _STEPS), ("DDP on 2", "exposed communication", "milliseconds")
    ),
    "collectives.draw": Example(
        lambda: collectives.draw(_collectives(), {"a model": 9000}),
        ("reduce_scatter", "1,149 at 1 MiB", "a model: 8.79 KiB"),
    ),
    "collectives.times": Example(lambda: collectives.times(_collectives()), ("all_reduce", "1,149 at 1 MiB")),
    "collectives.misses": Example(lambda: collectives.misses(_collectives()), ("broadcast", "1.25 at 64 KiB")),
    "collectives.bus_bandwidth": Example(lambda: collectives.bus_bandwidth(_collectives()), ("all_gather", "GB/s")),
    "data.shard_map": Example(
        lambda: plots.shard_map(ShardMap([[[0, 2], [4]], [[1, 3], [0]]], samples=6)),
        ("5 loaded, 1 repeat", "rank 1, step 1: 0 again", "rank 0, step 0: 0, 2"),
    ),
    "data.loading_timeline": Example(
        lambda: plots.loading_timeline(_RECORDINGS),
        ("0 workers: 100 ms", "the notebook loads 2 batches in 60 ms", "worker 2 loads 1 batch in 30 ms"),
    ),
    "data.samples_seen": Example(
        lambda: plots.samples_seen({"with": [0.5, 0.75], "without": [0.5, 0.4]}, rank=1), ("with: 75 %", "epochs")
    ),
    "data.hash_table": Example(
        lambda: plots.hash_table(HashTable([{"a": "00000000", "b": "11111111"}, {"a": "00000000", "b": "2222222a"}])),
        ("1 of 2 equal", "b: 11111111, 2222222a"),
    ),
    "data.replica_drift": Example(
        lambda: plots.replica_drift({"one": [0.0, 0.0], "two": [1.0, 2.5]}, {"one": [2, 1], "two": [2, 1.5]}),
        ("2.5 at 1", "training loss"),
    ),
    "devices.visible_devices": Example(
        lambda: plots.visible_devices([3, 1], 4, "Two of four"),
        ("cuda:0 is GPU 3", "cuda:1 is GPU 1", "hidden: GPU 0 and 2"),
    ),
    "devices.counted_and_usable": Example(
        lambda: plots.counted_and_usable({"one": (4, 2, 1, "why"), "two": (2, 0, 0, "because")}, "GPUs"),
        ("one: 4 in the machine, 2 counted, 1 usable together (why)",),
    ),
    "devices.work_of_ranks": Example(
        lambda: plots.work_of_ranks({"two cores": {1: 1.0, 2: 1.9, 3: 2.0}, "one core": {1: 1, 2: 1, 3: 0.9}}, "Work"),
        ("two cores", "2 at 3"),
    ),
    "devices.bytes_per_rank": Example(
        lambda: plots.bytes_per_rank(_BYTES, 4000, "Bytes"),
        ("DDP, rank 1: parameters 4.0", "gradients 3.0", "kilobytes"),
    ),
    "devices.stage_timeline": Example(
        lambda: plots.stage_timeline(_STAGES, "Stages"),
        ("rank 1", "forward", "idle: 30%", "backward from 600 to 1,000 ms"),
    ),
    "devices.bubble": Example(
        lambda: plots.bubble({1: [0.5, 0.52, 0.51], 4: [0.2, 0.25, 0.22]}, 2, "Bubble"), ("predicted", "51", "22")
    ),
    "fault_timeline.fault_timeline": Example(
        lambda: fault_timeline.fault_timeline(HISTORY),
        (
            "rank 0: all_reduce from 0.1 to 0.9 s, barrier from 1 s without end; waits at 3 s",
            "rank 2: no collective; died at 1.5 s",
        ),
    ),
    "folder_comparison.folder_ratios": Example(
        lambda: folder_comparison.folder_ratios(
            [Ratio("DDP", "new", 1.1, 1.0, 1.2, False), Ratio("DDP", "gpu", 1.3, 1.2, 1.4, True)], than="old"
        ),
        ("DDP, new: 1.1", "DDP, gpu: 1.3 (different environment or set-up)"),
    ),
    "gradients.traffic_by_phase": Example(
        lambda: plots.traffic_by_phase({"forward": 0, "backward": 40104}, "Traffic"), ("backward: 40,104",)
    ),
    "gradients.sample_weights": Example(
        lambda: plots.sample_weights([[0.1] * 3, [0.7]], "Weights"), ("3 samples on rank 0: 0.1", "0.7")
    ),
    "gradients.loss_curves": Example(
        lambda: plots.loss_curves({name: _RUN for name in "abcde"}, "Loss"), ("line a: 12 points", "lowest 0.0833")
    ),
    "gradients.gradients_on_ranks": Example(
        lambda: plots.gradients_on_ranks([[1, 2], [3, 6]], [2, 4], "Gradients"), ("rank 1, its own shard", "6 at 1")
    ),
    "gradients.backward_timelines": Example(
        lambda: plots.backward_timelines({"by hand": [_BACKWARD] * 2, "DDP": [_BACKWARD] * 2}, "Backward"),
        ("by hand, rank 0: computes for 5 ms, all_reduce runs for 5 ms, final at 6 ms",),
    ),
    "gradients.bytes_against_error": Example(
        lambda: plots.bytes_against_error({"float32": (4000, 0.0), "float16": (2000, 5e-4)}, "Compression"),
        ("float16: 2,000 bytes, error 0.0005",),
    ),
    "lessons.ten_steps": Example(
        plots.ten_steps, ("Split a model", "10 Update the parameters", "Thick frame: 02 Split a model across devices,")
    ),
    "lessons.values_on_ranks": Example(lambda: plots.values_on_ranks([1, 2], [3, 3]), ("rank 1: 2", "rank 0: 3")),
    "lessons.scattered_samples": Example(
        lambda: plots.scattered_samples(torch.rand(8, 1, 8, 8), [2, 2, 2, 1, 1]),
        ("2, 2, 2, 1 and 1 to the replicas", "replica 1: 2 and 3; "),
    ),
    "lessons.step_cost": Example(
        lambda: plots.step_cost(
            {"one": {"forward": 0.25, "loss": 0.05, "backward": 0.4}, "two": {"scatter": 0.1, "replicate": 0.2}}, "Cost"
        ),
        ("bars forward: one: 250", "two: 100"),
    ),
    "proof.step_hashes": Example(
        lambda: plots.step_hashes(StepHashes({"one": ["aaaaaaaa", "bbbbbbbb"], "two": ["aaaaaaaa", "cccccccc"]})),
        ("different from step", "two: aaaaaaaa, cccccccc"),
    ),
    "proof.weight_difference": Example(
        lambda: plots.weight_difference({name: [0.0, 1e-6, 1e-5] for name in "abcde"}, "Weights", tolerance=1e-4),
        ("1e-05 at 3", "0.0001"),
    ),
    "proof.broken_and_cured": Example(
        lambda: plots.broken_and_cured({"seeds": ([0.1, 0.2], [0.0, 1e-7])}, tolerance=1e-4), ("broken", "0.2 at 2")
    ),
    "proof.accuracy_and_throughput": Example(
        lambda: plots.accuracy_and_throughput(
            {"single": 0.95, "data_parallel": 0.95, "ddp": 0.96},
            {"single": (100.0, 90.0, 110.0), "data_parallel": (120.0, 110.0, 130.0), "ddp": (190.0, 171.0, 209.0)},
        ),
        ("DDP: 96", "DDP: 190"),
    ),
    "scale_out.scale_out": Example(
        lambda: scale_out.scale_out(scale_out_benchmark.KIND.summarise(_scaled())), ("DDP", "limit", "ideal")
    ),
    "scale_out.speedup": Example(
        lambda: scale_out.speedup(scale_out_benchmark.KIND.summarise(_scaled())), ("DDP, static_graph", "3.19 at 4")
    ),
    "scale_out.efficiency": Example(
        lambda: scale_out.efficiency(scale_out_benchmark.KIND.summarise(_scaled())), ("DataParallel", "0.6")
    ),
    "scaling.predicted_beside_measured": Example(
        lambda: scaling.predicted_beside_measured(PREDICTED), ("DDP, small_resnet: 110 at 100", "(stand-in)")
    ),
    "scaling.published_beside_predicted": Example(
        lambda: scaling.published_beside_predicted(validate_v100()),
        ("ResNet-50 on 1: 97.0% published, 97.0% predicted", "V100"),
    ),
    "scaling.bucket_timeline": Example(
        lambda: scaling.bucket_timeline(simulate(0.010, [0.4, 1.0], [0.003, 0.002])),
        ("exposed: 2 ms", "bucket 1 from 4 to 7"),
    ),
    "scaling.predicted_scaling": Example(
        lambda: scaling.predicted_scaling(preset_curves((1, 8, 64, 4096), fast=True)), ("devices", "97 at 4,096")
    ),
    "throughput.throughput": Example(
        lambda: plots.throughput(summarise(_compared())), ("single, 1 thread: 1,025", "DDP, 2 ranks: 1,845", "failed")
    ),
    "training.training_runs": Example(
        lambda: plots.training_runs({"left": {name: (list(range(12)), _RUN) for name in "abcdef"}}, reference="a"),
        ("line a: 12 points", "images seen"),
    ),
    "training.steps_of_ranks": Example(
        lambda: plots.steps_of_ranks({"all": _SPANS}), ("rank 1", "evaluates", "milliseconds")
    ),
    "tune.tune": Example(
        lambda: tune.tune(
            pd.concat([_tuned("per_device_batch", [8, 16, 32]), _tuned("precision", ["fp32", "bfloat16"])])
        ),
        ("batch of a device", "500 at bfloat16", "600 at 32"),
    ),
    "tune.knob_curve": Example(lambda: tune.knob_curve(_tuned("num_workers", [0, 1, 2])), ("workers", "600 at 2")),
    "report.draw": Example(lambda: report.draw(summarise_each(_compared())), ("Training throughput", "DDP, 2 ranks")),
    "sliders.draw": Example(lambda: sliders.draw(sliders.Choice()), ("16 devices", "45.2 at 4,096")),
}
