"""Sliders over the model: number of devices, batch, link and bucket size, on one of the named kinds of hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mgpu_utils.scaling.curves import MIDDLE, POWERS, Curve, curve
from mgpu_utils.scaling.hardware import preset
from mgpu_utils.scaling.step_time import DDPCost, StepTime, Workload, predict_ddp, with_batch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Choice:
    """What the sliders say. ``bandwidth`` and ``latency`` are those of the slowest link: between machines, if several.

    Attributes:
        hardware: the name of a preset.
        devices: how many.
        batch: samples a device.
        bandwidth: bytes per second; None: the preset's.
        latency: seconds a step of the ring; None: the preset's. A tree's hop takes the same.
        bucket_cap_mb: `bucket_cap_mb`; None: PyTorch's default.
    """

    hardware: str = "pcie-workstation"
    devices: int = 16
    batch: int | None = None
    bandwidth: float | None = None
    latency: float | None = None
    bucket_cap_mb: float | None = None

    def workload(self) -> Workload:
        """ResNet-50 with the chosen batch and buckets."""
        made = preset(self.hardware).workload(self.bucket_cap_mb)
        return made if self.batch is None else with_batch(made, self.batch)

    def predict(self) -> tuple[StepTime, Curve]:
        """The step on the chosen number of devices, and the curve over all of them."""
        known = preset(self.hardware).cluster
        slowest = known.between or known.inside
        hop = slowest.hop if self.latency is None else self.latency
        changed = replace(
            slowest,
            bandwidth=slowest.bandwidth if self.bandwidth is None else self.bandwidth,
            latency=slowest.latency if self.latency is None else self.latency,
            tree_latency=hop,
        )
        cluster = replace(known, between=changed)
        workload = self.workload()
        step = predict_ddp(workload, self.devices, cluster, DDPCost(interference=MIDDLE))
        return step, curve(preset(self.hardware).title, workload, cluster, POWERS)


def draw(choice: Choice) -> Figure:
    """Draw the chosen prediction: the curve with the chosen number of devices on it, and its backward in buckets.

    Raises: ValueError for a preset that does not exist or numbers that make no sense.
    """
    import matplotlib.pyplot as plt

    from mgpu_utils.figures.scaling import bucket_timeline, predicted_scaling
    from mgpu_utils.figures.style import BLACK, new_figure

    step, predicted = choice.predict()
    figure, axes = new_figure(2, panel=(7.0, 2.6), heights=[1.7, 1])
    above, below = axes[:, 0]
    predicted_scaling([predicted], above, title="ResNet-50 under DDP")
    alone = step.batch / choice.workload().compute
    share = step.samples_per_second / step.devices / alone
    above.plot(step.devices, 100 * share, marker="o", markersize=9, mfc="white", mec=BLACK, linestyle="none")
    words = f"{step.devices:,} devices, {step.batch} samples each: {step.seconds * 1e3:.0f} ms a step (predicted)"
    bucket_timeline(step.overlap, below, title=words)
    plt.close(figure)
    return figure


def explore(start: Choice | None = None) -> Any:
    """Show the prediction with sliders, if widgets are there; in any case as a figure.

    The figure is an output of its own, which the sliders redraw: where the notebook is only read, it is still there.
    Outside of a notebook, or without ipywidgets, the figure is what is returned.
    """
    start = start or Choice()
    figure = draw(start)
    try:
        import ipywidgets  # type: ignore[import-untyped]
        from IPython import get_ipython
        from IPython.display import display

        from mgpu_utils.figures.showing import show_changing
    except ImportError:
        return figure
    if get_ipython() is None:
        return figure
    sliders = _sliders(start, ipywidgets)
    for slider in sliders.values():
        # Without one, the pointer over a label shows the word null.
        slider.tooltip = slider.description
    box = ipywidgets.VBox(list(sliders.values()))
    display(box)
    show = show_changing(figure)
    _connect(sliders, lambda choice: show(draw(choice)))
    return None


def _sliders(start: Choice, widgets: Any) -> dict[str, Any]:
    from mgpu_utils.scaling.hardware import PRESETS

    wide = {
        "style": {"description_width": "130px"},
        "layout": widgets.Layout(width="480px"),
        "continuous_update": False,
    }
    shape = {key: wide[key] for key in ("style", "layout")}
    known = preset(start.hardware)
    between = known.cluster.between or known.cluster.inside
    return {
        "hardware": widgets.Dropdown(
            options=[(one.title, name) for name, one in PRESETS.items()],
            value=start.hardware,
            description="hardware",
            **shape,
        ),
        "devices": widgets.SelectionSlider(options=POWERS, value=start.devices, description="devices", **wide),
        "batch": widgets.IntSlider(
            value=start.batch or int(known.batch.value), min=8, max=512, step=8, description="samples a device", **wide
        ),
        "bandwidth": widgets.FloatLogSlider(
            value=(start.bandwidth or between.bandwidth) / 1e9, min=-1, max=3, description="between, GB/s", **wide
        ),
        "latency": widgets.FloatLogSlider(
            value=(start.latency or between.latency) * 1e6, min=0, max=3, description="latency, us", **wide
        ),
        "bucket_cap_mb": widgets.FloatLogSlider(
            value=start.bucket_cap_mb or 25, min=-1, max=2.3, description="bucket, MiB", **wide
        ),
    }


def _connect(sliders: dict[str, Any], show: Callable[[Choice], None]) -> None:
    """Redraw on every change; another kind of hardware brings its own batch and link."""
    quiet = [False]

    def redraw(_: Any) -> None:
        if not quiet[0]:
            show(choice_of({name: slider.value for name, slider in sliders.items()}))

    def other_hardware(change: Any) -> None:
        known = preset(change["new"])
        link = known.cluster.between or known.cluster.inside
        quiet[0] = True
        sliders["batch"].value = int(known.batch.value)
        sliders["bandwidth"].value = link.bandwidth / 1e9
        sliders["latency"].value = link.latency * 1e6
        quiet[0] = False

    sliders["hardware"].observe(other_hardware, "value")
    for slider in sliders.values():
        slider.observe(redraw, "value")


def choice_of(values: dict[str, Any]) -> Choice:
    """Read the sliders' values: GB/s, microseconds and MiB; a bucket of 25 MiB is PyTorch's default."""
    cap = values["bucket_cap_mb"]
    return Choice(
        hardware=values["hardware"],
        devices=int(values["devices"]),
        batch=int(values["batch"]),
        bandwidth=values["bandwidth"] * 1e9,
        latency=values["latency"] * 1e-6,
        bucket_cap_mb=None if abs(cap - 25) < 0.5 else cap,
    )
