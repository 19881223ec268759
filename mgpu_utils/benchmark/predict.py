"""The benchmark that predicts: what it measures to know, and what it predicts to be checked."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from mgpu_utils.benchmark.kinds import Fields, Kind, Record
from mgpu_utils.benchmark.launching import launch
from mgpu_utils.benchmark.schema import ConfigError, Strict
from mgpu_utils.planning import Hardware
from mgpu_utils.whole_file import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mgpu_utils.scaling.measured import MachineFit, Run
    from mgpu_utils.torchrun import Launcher

WORKER = "mgpu_utils.benchmark.predict_worker"
STRATEGIES = {"ddp": "DDP", "data_parallel": "DataParallel"}


class PredictModel(Strict):
    """One model, the batches of one device at which it is measured, and how many steps of each."""

    name: str
    batches: list[Annotated[int, Field(ge=1)]] = Field(
        min_length=1, description="samples a device; the model is fitted to the middle one"
    )
    steps: int = Field(default=10, ge=1, description="steps a block")
    warmup: int = Field(default=3, ge=1)


class PredictSection(Strict):
    """The section `predict`. The first model is the one that the prediction is fitted to."""

    models: list[PredictModel] = Field(
        default=[
            PredictModel(name="digits_cnn", batches=[16, 64, 256], steps=10),
            PredictModel(name="small_resnet", batches=[8, 16, 32], steps=2, warmup=1),
        ],
        min_length=1,
    )
    world_sizes: list[int] | Literal["auto"] = "auto"
    blocks: int = Field(default=4, ge=1, description="everything is measured once a block, in turns")
    rounds: int = Field(default=1, ge=1)
    collective_sizes: list[Annotated[int, Field(ge=4)]] = Field(default=[4096, 65536, 1048576, 8388608], min_length=1)
    collective_repeats: int = Field(default=8, ge=1)


@dataclass(frozen=True)
class Prediction(Fields):
    """One launch: one model on one world."""

    model: str
    world_size: int
    device_type: str
    backend: str
    batches: tuple[int, ...]
    steps: int
    warmup: int
    blocks: int
    threads_per_process: int
    sizes: tuple[int, ...]
    repeats: int
    oversubscribed: bool = False

    @property
    def key(self) -> str:
        """A text which tells this item from every other one: all but what follows from the machine."""
        return "/".join(str(value) for name, value in asdict(self).items() if name != "oversubscribed")

    def to_dict(self) -> dict[str, Any]:
        """The fields as a record holds them."""
        return asdict(self) | {"batches": list(self.batches), "sizes": list(self.sizes)}


class Predict(Kind):
    """Steps on N devices, predicted from the parts of one device's step and the links, beside measured ones."""

    name = "predict"
    notebook = "06_predict.ipynb"
    section = PredictSection

    def configurations(
        self, section: PredictSection, config: Any, hardware: Hardware, environ: Mapping[str, str]
    ) -> Sequence[Prediction]:
        """One item a model and world; a prediction needs a world of at least 2."""
        from mgpu_utils.benchmark.plan import check_model, planned, world_sizes

        wanted = config.model_copy(update={"world_sizes": section.world_sizes})
        sizes = [size for size in world_sizes(wanted, hardware, environ) if size > 1]
        if not sizes:
            raise ConfigError(
                "predict needs at least 2 devices (CPU cores or GPUs) to measure a collective on; this machine offers "
                "1, or world_sizes asks for 1 only"
            )
        found = []
        for model in section.models:
            check_model(model.name)
            for size in sizes:
                plan = planned(config, hardware, size, environ)
                found.append(
                    Prediction(
                        model=model.name,
                        world_size=size,
                        device_type=plan.rank_devices[0].type,
                        backend=plan.backend,
                        batches=tuple(model.batches),
                        steps=model.steps,
                        warmup=model.warmup,
                        blocks=section.blocks,
                        threads_per_process=config.threads_per_process,
                        sizes=tuple(section.collective_sizes),
                        repeats=section.collective_repeats,
                        oversubscribed=plan.backend == "gloo" and size * config.threads_per_process > hardware.cores,
                    )
                )
        return found

    def measure_one(self, item: Prediction, number: int, *, launcher: Launcher, seed: int, timeout: float) -> Record:
        """See `Kind.measure_one`."""
        record, ranks = launch(
            launcher,
            WORKER,
            item,
            item.to_dict() | {"seed": seed},
            processes=item.world_size,
            threads=item.threads_per_process,
            timeout=timeout,
        )
        return record | combine(ranks) if ranks else record

    def quick(self, section: PredictSection) -> PredictSection:
        """One block of one step."""
        models = [model.model_copy(update={"steps": 1, "warmup": 1}) for model in section.models]
        return section.model_copy(update={"rounds": 1, "blocks": 1, "collective_repeats": 3, "models": models})

    def description(self, section: PredictSection, items: Sequence[Prediction]) -> list[str]:
        """Models with their batches, worlds and blocks."""
        models = ", ".join(f"{model.name} (batches {', '.join(map(str, model.batches))})" for model in section.models)
        first = section.models[0]
        middle = sorted(first.batches)[len(first.batches) // 2]
        return [
            f"models       {models}",
            f"world sizes  {', '.join(map(str, sorted({item.world_size for item in items})))}",
            f"blocks       {section.blocks}, everything in turns",
            f"fitted to    {first.name}, batch {middle}, on {min(item.world_size for item in items)}",
        ]

    def label(self, record: Record) -> str:
        """Model and world size."""
        return f"predict: {record.get('model')} on {record.get('world_size')}"

    def summarise(self, records: list[Record]) -> pd.DataFrame:
        """One row a model, batch, world and strategy: measured and predicted seconds a step, and the error."""
        import pandas as pd

        columns = [
            *("strategy", "implementation", "model", "batch", "world_size", "role", "measured_seconds"),
            *("predicted_seconds", "error", "as_fitted_seconds", "as_fitted_error", "alone_seconds"),
            "oversubscribed",
        ]
        runs = runs_of(records)
        if not any(run.world_size > 1 for run in runs):
            return pd.DataFrame(columns=columns)
        table = pd.DataFrame(_rows(fit(records), runs), columns=columns)
        table["oversubscribed"] = table["world_size"].isin(
            [r["world_size"] for r in records if r.get("oversubscribed")]
        )
        return table

    def findings(self, table: pd.DataFrame) -> list[str]:
        """How far the predictions are off, beside the guess that everything slows down as the fitted step did."""
        said = []
        for strategy, rows in table[table["role"] == "predicted"].groupby("strategy", sort=False):
            errors, simple = rows["error"].abs(), rows["as_fitted_error"].abs()
            said.append(
                f"{STRATEGIES[str(strategy)]}: {len(rows)} predicted steps are off by {errors.mean():.0%} on average, "
                f"by {errors.max():.0%} at most. A simple guess, that every step is slowed down as the fitted one was, "
                f"is off by {simple.mean():.0%} on average, by {simple.max():.0%} at most."
            )
        if "oversubscribed" in table and table["oversubscribed"].any():
            said.append("Worlds with more threads than cores are oversubscribed: the model does not know of that.")
        return said

    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """Predicted beside measured."""
        from mgpu_utils.figures.scaling import predicted_beside_measured

        return {"predicted": predicted_beside_measured(table).get_figure(root=True)}  # type: ignore[dict-item]

    def write_more(self, records: list[Record], folder: Path) -> None:
        """Write the check against the published V100 table as ``published.csv``."""
        from mgpu_utils.scaling.published import validate_v100

        write_whole(folder / "published.csv", validate_v100().to_csv(index=False, float_format="%.6g"))


def short_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the summary to read in a notebook, in milliseconds and per cent."""
    import pandas as pd

    names = {"measured_seconds": "measured_ms", "predicted_seconds": "predicted_ms", "alone_seconds": "one_device_ms"}
    shown = table[["strategy", "model", "batch", "world_size"]].copy()
    for column in ("alone_seconds", "measured_seconds", "predicted_seconds"):
        shown[names[column]] = [f"{1e3 * value:.2f}" for value in table[column]]
    shown["error"] = [
        f"{error:+.0%} (fitted to it)" if role == "fitted" else f"{error:+.0%}"
        for role, error in zip(table["role"], table["error"], strict=True)
    ]
    shown["simple guess"] = [f"{error:+.0%}" for error in table["as_fitted_error"]]
    return pd.DataFrame(shown)


def combine(ranks: list[dict[str, Any]]) -> Record:
    """Put together what the ranks of one launch measured, in seconds a step.

    A step that all ranks take is as long as its slowest rank's; then the median over steps.
    """
    points = []
    for of_ranks in zip(*(rank["points"] for rank in ranks), strict=True):
        steps = [point["steps"] for point in of_ranks]
        together = {
            name: statistics.median(map(max, zip(*(of_rank[name] for of_rank in steps), strict=True)))
            for name in ("independent", "ddp")
        }
        first = {name: statistics.median(values) for name, values in steps[0].items()}
        points.append({"batch": of_ranks[0]["batch"]} | first | together)
    collectives = [
        {"size": size, "seconds": max(of_rank["seconds"] for of_rank in of_ranks)}
        for of_ranks in zip(*(rank["collectives"] for rank in ranks), strict=True)
        for size in [of_ranks[0]["size"]]
    ]
    return ranks[0] | {"points": points, "collectives": collectives}


def runs_of(records: list[Record]) -> list[Run]:
    """Return each model and world that was measured, with the median of its rounds, in the order of the records."""
    from mgpu_utils.scaling.measured import run_of

    rounds: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.get("status") == "ok":
            rounds.setdefault((record["model"], record["world_size"]), []).append(record)
    return [run_of(_median(several)) for several in rounds.values()]


def fit(records: list[Record]) -> MachineFit:
    """Fit the model of a step to one of the measured ones. Raises: ValueError when nothing was measured."""
    from mgpu_utils.scaling.measured import fit_machine

    return fit_machine(runs_of(records))


def _median(records: list[Record]) -> Record:
    """One record for several rounds of the same launch: the median of every time."""

    def middle(place: int, name: str, key: str) -> float:
        return statistics.median(record[key][place][name] for record in records)

    first = records[0]
    points = [
        {name: point[name] if name == "batch" else middle(place, name, "points") for name in point}
        for place, point in enumerate(first["points"])
    ]
    collectives = [
        {"size": one["size"], "seconds": middle(place, "seconds", "collectives")}
        for place, one in enumerate(first["collectives"])
    ]
    return first | {"points": points, "collectives": collectives}


def _rows(fitted: MachineFit, runs: list[Run]) -> list[dict[str, Any]]:
    slowdown = {name: getattr(fitted.point, name) / fitted.point.single for name in STRATEGIES}
    rows = []
    for strategy in STRATEGIES:
        for run in runs:
            if run.world_size < 2:
                continue
            for point in run.points:
                predicted = (
                    fitted.ddp_step(run, point).seconds if strategy == "ddp" else fitted.data_parallel_step(run, point)
                )
                measured, simple = getattr(point, strategy), point.single * slowdown[strategy]
                stand_in = strategy == "data_parallel" and run.device_type == "cpu"
                rows.append(
                    {
                        "strategy": strategy,
                        "implementation": "threaded stand-in" if stand_in else "torch",
                        "model": point.model,
                        "batch": point.batch,
                        "world_size": point.world_size,
                        "role": "fitted" if point == fitted.point else "predicted",
                        "measured_seconds": measured,
                        "predicted_seconds": predicted,
                        "error": predicted / measured - 1,
                        "as_fitted_seconds": simple,
                        "as_fitted_error": simple / measured - 1,
                        "alone_seconds": point.single,
                    }
                )
    return rows


KIND = Predict()
