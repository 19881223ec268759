"""Made-up profiles of training steps are cut into parts, lanes and a trace, on a CPU and on an accelerator."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trace_format import check_trace

from mgpu_utils import perfetto
from mgpu_utils.step_lanes import Slice, lanes_of
from mgpu_utils.step_profile import ENGINE, PARTS, Event, events_of, merge, step_profiles, subtract


def mark(name: str, start: float, end: float) -> Event:
    return Event(f"mgpu:{name}", False, start, end, thread=1)


def op(name: str, start: float, end: float, thread: int = 1) -> Event:
    return Event(name, False, start, end, thread)


def kernel(name: str, start: float, end: float, launched: float | None) -> Event:
    return Event(name, True, start, end, launched=launched)


def ddp_step(at: float = 0.0) -> list[Event]:
    """1000 us: data 100, forward 250, backward 550 (of which 200 wait), optimizer 50, and holes of 50 in all."""
    events = [
        mark("step", 0, 990),
        mark("data", 0, 100),
        mark("forward", 110, 360),
        mark("backward", 370, 920),
        op(ENGINE + "AddmmBackward0", 380, 500),
        op(ENGINE + "torch::autograd::AccumulateGrad", 500, 560),
        op("c10d::allreduce_", 540, 550),
        op("gloo:all_reduce", 570, 700, thread=3),
        op(ENGINE + "ConvolutionBackward0", 560, 690),
        op("c10d::allreduce_", 700, 710),
        # gloo's thread takes it up later, and notes its end after the caller has gone on.
        op("gloo:all_reduce", 750, 950, thread=2),
        op("aten::copy_", 890, 910),
        mark("optimizer", 930, 980),
    ]
    return [e._replace(start=e.start + at, end=e.end + at) for e in events]


def microseconds(parts: Any) -> dict[str, float]:
    return {name: round(seconds * 1e6, 6) for name, seconds in parts.items() if seconds}


def test_on_a_cpu_the_parts_of_every_step_are_those_of_the_calling_thread_and_add_up() -> None:
    first, last = step_profiles([*ddp_step(1000), *ddp_step(), mark("block", 0, 1995)])
    # Waiting: 540 to 560 and 690 to 890 without a gradient or an operation, and 910 to 920.
    wanted = {"data": 100, "forward": 250, "backward": 320, "exposed_communication": 230, "optimizer": 50}
    assert microseconds(first.parts) == wanted | {"other": 50}
    assert microseconds(last.parts) == wanted | {"other": 45}
    assert (first.start, first.end, last.start) == pytest.approx((0.0, 0.001, 0.001))
    for step in (first, last):
        assert tuple(step.parts) == PARTS
        assert sum(step.parts.values()) == pytest.approx(step.seconds)


def test_a_collective_in_forward_is_exposed_and_one_hidden_by_gradients_is_not() -> None:
    events = [
        *(mark("step", 0, 100), mark("forward", 0, 50), mark("backward", 50, 100)),
        *(op("c10d::broadcast_", 1, 2), op("gloo:broadcast", 5, 21, thread=2), op("aten::conv2d", 21, 45)),
        *(op("gloo:all_reduce", 60, 80, thread=2), op(ENGINE + "AddmmBackward0", 55, 90)),
    ]
    (step,) = step_profiles(events)
    assert microseconds(step.parts) == {"forward": 30, "backward": 50, "exposed_communication": 20}


def data_parallel_step() -> list[Event]:
    return [
        *(mark("step", 0, 200), mark("forward", 0, 100), mark("backward", 100, 200)),
        *(mark("scatter", 2, 5), mark("replicate", 5, 25), mark("parallel_apply", 25, 85), mark("gather", 85, 90)),
        *(op("aten::conv2d", 30, 70, thread=7), op("aten::conv2d", 31, 80, thread=8)),
        op(ENGINE + "_JoinGraphsBackward", 110, 170),
        *(op(ENGINE + "ConvolutionBackward0", 112, 160, thread=11), op(ENGINE + "AddmmBackward0", 112, 165, thread=12)),
        # A replica reaches this node, but nothing is summed there.
        op(ENGINE + "_BroadcastBackward", 160, 161, thread=11),
        op(ENGINE + "_BroadcastBackward", 175, 190),
    ]


def test_data_parallel_is_split_into_its_phases() -> None:
    (step,) = step_profiles(data_parallel_step())
    assert microseconds(step.parts) == {
        **{"scatter": 3, "replicate": 20, "parallel_apply": 60, "gather": 5, "forward": 12},
        **{"backward": 85, "reduce_gradients": 15},
    }


def test_on_an_accelerator_a_kernel_counts_where_it_was_launched_not_where_it_ran() -> None:
    events = [
        *(mark("step", 0, 40), mark("data", 0, 10), mark("forward", 10, 20), mark("backward", 20, 30)),
        *(mark("optimizer", 30, 40), mark("step", 40, 90), mark("data", 40, 80), mark("forward", 80, 90)),
        # Step 1 runs from 0 (the device was idle before) to 120, long after the host has gone on.
        kernel("Memcpy HtoD", 8, 14, 5),
        kernel("sgemm", 15, 45, 12),
        kernel("wgrad", 45, 75, 22),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 100, 25),
        kernel("multi_tensor_apply", 100, 115, 33),
        kernel("multi_tensor_apply", 116, 120, 39),
        # Step 2 is what comes after. Two kernels at once count once.
        kernel("sgemm", 130, 150, 85),
        kernel("sgemm", 140, 160, 86),
        kernel("a kernel whose launch was not seen", 155, 170, None),
    ]
    first, second = step_profiles(events)
    assert (first.start, first.end, second.start, second.end) == pytest.approx((0, 120e-6, 120e-6, 160e-6))
    assert microseconds(first.parts) == {
        # The device had nothing to do while the host fetched the batch: that is data, like the copy after it.
        **{"data": 14, "forward": 30, "backward": 30, "exposed_communication": 25, "optimizer": 19, "other": 2}
    }
    assert microseconds(second.parts) == {"forward": 30, "other": 10}


def test_on_an_accelerator_the_copies_of_data_parallel_are_no_exposed_communication() -> None:
    events = [
        *(mark("step", 0, 60), mark("forward", 0, 30), mark("replicate", 5, 10), mark("parallel_apply", 10, 20)),
        *(mark("backward", 30, 60), op(ENGINE + "BroadcastBackward", 50, 55, thread=9)),
        kernel("ncclDevKernel_Broadcast_RING_LL", 10, 20, 6),
        kernel("sgemm", 20, 40, 12),
        kernel("wgrad", 40, 60, 40),
        kernel("ncclDevKernel_Reduce_Sum_f32_RING_LL", 55, 70, 52),
    ]
    (step,) = step_profiles(events)
    assert microseconds(step.parts) == {
        **{"replicate": 10, "parallel_apply": 20, "backward": 20, "reduce_gradients": 10, "other": 10}
    }


def test_a_profile_without_a_marked_step_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no step"):
        step_profiles([op("aten::mm", 0, 1)])
    with pytest.raises(ValueError, match="no step to draw"):
        lanes_of([], [])


def kineto(kind: str, name: str, start: int, end: int, correlation: int, device: str = "CPU") -> Any:
    values = {"activity_type": kind, "name": name, "start_ns": start, "end_ns": end, "correlation_id": correlation}
    values |= {"device_type": f"DeviceType.{device}", "start_thread_id": 4}
    return SimpleNamespace(**{key: (lambda value=value: value) for key, value in values.items()})


def test_a_kernel_is_joined_to_its_launch_and_annotations_on_the_device_are_left_out() -> None:
    origin = 1_700_000_000_000_000_000
    found = [
        kineto("cpu_op", "aten::mm", origin + 500, origin + 900, 7),
        kineto("cuda_runtime", "cudaLaunchKernel", origin + 1000, origin + 2000, 7),
        kineto("kernel", "sgemm", origin + 5000, origin + 9000, 7, "CUDA"),
        kineto("gpu_user_annotation", "mgpu:forward", origin + 5000, origin + 9000, 0, "CUDA"),
    ]
    events = events_of(found, origin)
    assert [event.name for event in events] == ["aten::mm", "cudaLaunchKernel", "sgemm"]
    assert events[2] == Event("sgemm", True, 5.0, 9.0, 4, launched=1.0)
    assert events[0].launched is None
    assert not events[0].on_accelerator


def test_intervals_are_merged_and_subtracted() -> None:
    assert merge([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert merge([(0, 1), (1.5, 2)], gap=0.5) == [(0, 2)]
    assert subtract([(0, 10), (20, 30)], [(2, 3), (8, 22), (40, 50)]) == [(0, 2), (3, 8), (22, 30)]


def test_lanes_hold_the_parts_the_gradients_and_the_collectives() -> None:
    events = ddp_step()
    # The end of a collective of the step before, noted late, is none of this step's.
    lanes = lanes_of([op("gloo:all_reduce", -50, 30, thread=3), *events], step_profiles(events))
    assert list(lanes) == ["main thread", "autograd", "communication"]
    assert [piece.name for piece in lanes["main thread"] if piece.name != "exposed_communication"] == [
        *("data", "forward", "backward", "optimizer")
    ]
    assert [(s.name, round(s.start * 1e6), round(s.end * 1e6)) for s in lanes["communication"]] == [
        ("all_reduce", 570, 700),
        ("all_reduce", 750, 920),
    ]
    assert {piece.name for piece in lanes["autograd"]} == {"computes gradients"}


def test_data_parallel_has_a_lane_for_each_replica_and_its_copies_as_communication() -> None:
    events = data_parallel_step()
    lanes = lanes_of(events, step_profiles(events))
    assert set(lanes) == {"main thread", "autograd", "replica thread 1", "replica thread 2", "communication"}
    copies = [piece.name for piece in lanes["communication"]]
    assert copies == ["scatter", "replicate", "gather", "reduce_gradients"]
    assert [piece.name for piece in lanes["replica thread 2"]] == ["forward", "computes gradients"]


def test_a_device_has_a_lane_of_its_own_although_the_host_has_gone_on() -> None:
    events = [
        *(mark("step", 0, 20), mark("forward", 0, 20), mark("step", 20, 30), mark("backward", 20, 30)),
        *(kernel("sgemm", 10, 60, 5), kernel("wgrad", 60, 90, 25), kernel("ncclKernel", 80, 95, 26)),
    ]
    lanes = lanes_of(events, step_profiles(events)[1:])
    assert [(s.name, round(s.start * 1e6), round(s.end * 1e6)) for s in lanes["device"]] == [("backward", 60, 90)]
    assert [(s.name, round(s.start * 1e6)) for s in lanes["communication"]] == [("ncclKernel", 80)]


def test_a_trace_is_a_valid_one_with_a_process_for_each_rank(tmp_path: Path) -> None:
    events = ddp_step()
    lanes = lanes_of(events, step_profiles(events))
    path = perfetto.write(tmp_path / "trace.json", [lanes, lanes])
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert [held.name for held in tmp_path.iterdir()] == ["trace.json"]
    tracks = check_trace(trace)
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    lane_names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 1]
    assert lane_names == ["main thread", "autograd", "communication"]
    assert [(e["name"], e["ts"], e["dur"]) for e in tracks[1, 2]] == [
        ("all reduce", 570, 130),
        ("all reduce", 750, 170),
    ]


def test_collectives_at_the_same_time_get_a_track_each_for_perfetto_draws_nested_slices_only() -> None:
    lanes = {"communication": [Slice("a", 1.0, 3.0), Slice("b", 2.0, 4.0), Slice("c", 3.0, 5.0), Slice("d", 3.5, 4.0)]}
    tracks = check_trace(perfetto.trace([lanes]))
    assert [[event["name"] for event in events] for events in tracks.values()] == [["a", "c", "d"], ["b"]]
    assert perfetto.trace([]) == {"traceEvents": [], "displayTimeUnit": "ms"}
