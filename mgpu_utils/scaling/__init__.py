"""Predict the time of a training step on N devices from measured compute, gradient sizes and a model of the links.

What is predicted is always called so. The parts: a collective (`collective_model`), DDP's buckets (`buckets`), their
overlap with backward (`overlap`), a whole DDP step (`step_time`) and one of DataParallel (`data_parallel`), fitting
(`fit`), checks against this machine (`measured`) and against published numbers (`published`), named hardware
(`hardware`), curves to thousands of devices (`curves`) and `sliders`.
"""

from __future__ import annotations

from mgpu_utils.scaling.collective_model import Cluster, Link, all_reduce_seconds, fit_link
from mgpu_utils.scaling.curves import Curve, preset_curves
from mgpu_utils.scaling.data_parallel import DataParallelCost, DataParallelJob, predict_data_parallel
from mgpu_utils.scaling.hardware import PRESETS, Hardware, preset
from mgpu_utils.scaling.measured import MachineFit, Run, fit_machine
from mgpu_utils.scaling.overlap import Overlap, simulate
from mgpu_utils.scaling.published import v100_findings, validate_v100
from mgpu_utils.scaling.sliders import Choice, draw, explore
from mgpu_utils.scaling.step_time import DDPCost, StepTime, Workload, predict_ddp

__all__ = [
    "PRESETS",
    "Choice",
    "Cluster",
    "Curve",
    "DDPCost",
    "DataParallelCost",
    "DataParallelJob",
    "Hardware",
    "Link",
    "MachineFit",
    "Overlap",
    "Run",
    "StepTime",
    "Workload",
    "all_reduce_seconds",
    "draw",
    "explore",
    "fit_link",
    "fit_machine",
    "predict_data_parallel",
    "predict_ddp",
    "preset",
    "preset_curves",
    "simulate",
    "v100_findings",
    "validate_v100",
]
