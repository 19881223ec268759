"""Helper package of the multi-GPU course: ranks in notebooks, strategies, honest measurement.

`import mgpu_utils as mgpu` gives the public names below. Each is imported on first use, so that a
command-line call or a rank process pays only for what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME_OF = {
    "survey": "devices",
    "plan": "devices",
    "usable_cores": "devices",
    "DeviceSurvey": "devices",
    "start_ranks": "ranks",
    "RankGroup": "ranks",
    "CellResult": "ranks",
    "RankError": "rank_errors",
    "RankTimeout": "rank_errors",
    "SingleDevice": "strategies",
    "DataParallel": "strategies",
    "DistributedDataParallel": "strategies",
    "ThreadedDataParallel": "threaded_data_parallel",
    "train": "training",
    "evaluate": "training",
    "History": "training",
    "digits": "data",
    "ShardedBatchSampler": "data",
    "split_sizes": "data",
    "SplitPreview": "split_preview",
    "PeakMemory": "peak_memory",
    "synthetic_images": "data",
    "digits_cnn": "models",
    "small_resnet": "models",
    "build": "models",
    "MODELS": "models",
    "compare_gradients": "gradient_agreement",
    "Traffic": "traffic",
    "reduce_metrics": "metrics",
    "require_equal_steps": "agreement",
    "load_state": "state_dicts",
    "ShardMap": "shard_map",
    "convert_sync_batch_norm": "sync_batch_norm",
    "predict": "exercises",
    "reveal": "exercises",
    "check": "exercises",
    "hint": "exercises",
    "my_progress": "progress_map",
}
_MODULES = ("plots",)

__all__ = [*_HOME_OF, *_MODULES]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from .agreement import require_equal_steps
    from .data import ShardedBatchSampler, digits, split_sizes, synthetic_images
    from .devices import DeviceSurvey, plan, survey, usable_cores
    from .exercises import check, hint, predict, reveal
    from .gradient_agreement import compare_gradients
    from .metrics import reduce_metrics
    from .models import MODELS, build, digits_cnn, small_resnet
    from .peak_memory import PeakMemory
    from .progress_map import my_progress
    from .rank_errors import RankError, RankTimeout
    from .ranks import CellResult, RankGroup, start_ranks
    from .shard_map import ShardMap
    from .split_preview import SplitPreview
    from .state_dicts import load_state
    from .strategies import DataParallel, DistributedDataParallel, SingleDevice
    from .sync_batch_norm import convert_sync_batch_norm
    from .threaded_data_parallel import ThreadedDataParallel
    from .traffic import Traffic
    from .training import History, evaluate, train


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"mgpu_utils has no attribute {name!r}; its public names are: {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(shell: Any) -> None:
    """Register the `%%ranks` and `%%rank` cell magics (called by `%load_ext mgpu_utils`)."""
    from .magics import register

    register(shell)
