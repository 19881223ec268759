"""Every figure of the course: one function each, returning the matplotlib Axes it drew on."""

from __future__ import annotations

from mgpu_utils.figures.data import hash_table, loading_timeline, replica_drift, samples_seen, shard_map
from mgpu_utils.figures.devices import (
    bubble,
    bytes_per_rank,
    counted_and_usable,
    stage_timeline,
    visible_devices,
    work_of_ranks,
)
from mgpu_utils.figures.gradients import (
    backward_timelines,
    bytes_against_error,
    gradients_on_ranks,
    loss_curves,
    sample_weights,
    traffic_by_phase,
)
from mgpu_utils.figures.lessons import scattered_samples, step_cost, ten_steps, values_on_ranks
from mgpu_utils.figures.proof import accuracy_and_throughput, broken_and_cured, step_hashes, weight_difference
from mgpu_utils.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    STRATEGY_COLORS,
    STRATEGY_LABELS,
    STYLE,
    VERMILION,
    YELLOW,
    new_figure,
    styled,
)
from mgpu_utils.figures.throughput import throughput
from mgpu_utils.figures.training import steps_of_ranks, training_runs

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "SKY",
    "STRATEGY_COLORS",
    "STRATEGY_LABELS",
    "STYLE",
    "VERMILION",
    "YELLOW",
    "accuracy_and_throughput",
    "backward_timelines",
    "broken_and_cured",
    "bubble",
    "bytes_against_error",
    "bytes_per_rank",
    "counted_and_usable",
    "gradients_on_ranks",
    "hash_table",
    "loading_timeline",
    "loss_curves",
    "new_figure",
    "replica_drift",
    "sample_weights",
    "samples_seen",
    "scattered_samples",
    "shard_map",
    "stage_timeline",
    "step_cost",
    "step_hashes",
    "steps_of_ranks",
    "styled",
    "ten_steps",
    "throughput",
    "traffic_by_phase",
    "training_runs",
    "values_on_ranks",
    "visible_devices",
    "weight_difference",
    "work_of_ranks",
]
