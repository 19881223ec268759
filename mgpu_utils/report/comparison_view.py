"""The table and the figure that set the folders of a report beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu_utils.report.comparison import Compared, Side
from mgpu_utils.report.embedding import Picture, from_figure
from mgpu_utils.report.tables import Table, make_table, number, spread_words, with_interval
from mgpu_utils.timing import Interval

DIFFERENT = "different"


def comparison_table(compared: Sequence[Compared], letter_of: Mapping[str, str]) -> Table:
    """Return one row a configuration and folder; whatever differs from the first folder stands in the last column.

    ``letter_of`` gives the environment's letter by folder.
    """
    rows = []
    for one in compared:
        for position, side in enumerate(one.sides):
            reached = _with_ends(side.reached)
            ratio = with_interval(side.ratio.median, side.ratio.low, side.ratio.high, "{:.2f}")
            label = "compared with" if position == 0 else _label(one.sides[0], side, letter_of)
            rows.append(
                [
                    _name(one) if position == 0 else "",
                    side.result.label,
                    letter_of[side.result.label],
                    str(len(side.values)),
                    reached or "failed",
                    "1" if position == 0 else ratio,
                    label,
                ]
            )
    counts = [len(side.values) for one in compared for side in one.sides if side.values]
    caption = (
        f"{spread_words(counts)} Ratios are to the first folder of each configuration. Rounds of two folders "
        "were not measured beside each other, so the intervals of ratios are unpaired: both sides are resampled."
    )
    metric = compared[0].metric
    better = "more is better" if metric.higher_is_better else "less is better"
    header = [
        "configuration",
        "folder",
        "environment",
        "rounds",
        f"{metric.label} ({better})",
        "ratio to first",
        "beside the first",
    ]
    return make_table(header, rows, caption, merged=True)


def environment_differences(compared: Sequence[Compared], letter_of: Mapping[str, str]) -> list[str]:
    """Return one line for each pair of environments that the rows compare: everything in which they differ."""
    lines: dict[str, None] = {}
    for one in compared:
        for side in one.sides[1:]:
            if side.environment:
                pair = f"{letter_of[one.sides[0].result.label]} and {letter_of[side.result.label]}"
                lines[f"{pair}: {'; '.join(side.environment)}"] = None
    return list(lines)


def ratio_picture(compared: Sequence[Compared]) -> Picture | None:
    """Return the figure of all ratios, None where there is none (nothing went well on two sides)."""
    from mgpu_utils.figures.folder_comparison import Ratio, folder_ratios

    ratios = []
    for one in compared:
        for side in one.sides[1:]:
            if side.ratio.median == side.ratio.median:
                low, high = sorted(one.metric.speed(end) for end in side.ratio[1:])
                ratios.append(
                    Ratio(_name(one), side.result.label, one.metric.speed(side.ratio.median), low, high, side.differs)
                )
    if not ratios:
        return None
    than = " or ".join(dict.fromkeys(one.sides[0].result.label for one in compared))
    said = "; ".join(
        f"{item.configuration}, {item.folder}: {item.ratio:.2f}"
        + (f" ({DIFFERENT} environment or set-up)" if item.labelled else "")
        for item in ratios
    )
    figure = folder_ratios(ratios, than).get_figure(root=True)
    assert figure is not None
    caption = f"Speed beside {than}, unpaired intervals; hollow: environment or set-up differ"
    return from_figure(figure, f"Ratios of speed to {than}. {said}.", caption)


def _name(one: Compared) -> str:
    # The heading above names the benchmark.
    return one.name.removeprefix(f"{one.benchmark}: ")


def _label(first: Side, side: Side, letter_of: Mapping[str, str]) -> str:
    said = (
        [f"environment {letter_of[first.result.label]} and {letter_of[side.result.label]}"] if side.environment else []
    )
    said += side.set_up
    return f"{DIFFERENT}: {'; '.join(said)}" if said else "same environment and set-up"


def _with_ends(interval: Interval) -> str:
    if interval.median != interval.median:
        return ""
    spread = "" if interval.low != interval.low else f" [{number(interval.low)}, {number(interval.high)}]"
    return number(interval.median) + spread
