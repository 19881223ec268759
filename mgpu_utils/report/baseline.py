"""Say which configurations changed between two results beyond their intervals, for a CI job to act on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mgpu_utils.benchmark.statistics import Verdict, judge
from mgpu_utils.report.comparison import Compared, Side, compare, only_in
from mgpu_utils.report.environments import describe, machine_differences, software_differences
from mgpu_utils.report.expansion import expand
from mgpu_utils.report.folders import ReportError, Result
from mgpu_utils.report.metrics import metric_of
from mgpu_utils.timing import ENOUGH_FOR_AN_INTERVAL, Interval

# Two sessions on one machine differ by more than the rounds inside one of them do; smaller changes are not acted on.
TOLERANCE = 0.05
UNCHANGED, INCOMPARABLE, REGRESSION = 0, 2, 3
SLOWER, FAILS = "slower beyond the intervals", "fails now"


@dataclass(frozen=True)
class Change:
    """One configuration in both results. ``ratio`` is new over old of the metric, ``verdict`` what it allows to say."""

    name: str
    metric: str
    old: Interval
    new: Interval
    ratio: Interval
    rounds: tuple[int, int]
    verdict: str
    reason: str = ""

    @property
    def is_regression(self) -> bool:
        """Slower beyond the intervals and the tolerance, or failing where it went well before."""
        return self.verdict in (SLOWER, FAILS)

    @property
    def is_judged(self) -> bool:
        """Whether there were rounds enough to say anything."""
        return self.is_regression or self.verdict not in (Verdict.TOO_FEW.value, Verdict.NOT_MEASURED.value)


@dataclass(frozen=True)
class Judgement:
    """Everything `mgpu report --baseline` found; ``status`` is its exit status."""

    changes: list[Change]
    lines: list[str] = field(default_factory=list)
    status: int = UNCHANGED


def judge_results(
    old: list[Result], new: list[Result], *, tolerance: float = TOLERANCE, across_machines: bool = False
) -> Judgement:
    """Compare two results, benchmark by benchmark.

    Raises: ReportError when a side holds one benchmark twice, keeps no single runs, or nothing is in both.
    """
    if not 0 <= tolerance < 1:
        raise ReportError(f"--tolerance is {tolerance:g}, but must be at least 0 and below 1 (0.05 is five per cent).")
    before, after = _by_benchmark(old, "OLD"), _by_benchmark(new, "NEW")
    shared = [name for name in before if name in after]
    if not shared:
        raise ReportError(
            f"Nothing to compare: OLD holds {', '.join(before) or 'no single runs'}, NEW holds "
            f"{', '.join(after) or 'no single runs'}."
        )
    exactly = not across_machines
    changes, lines, other_machine = [], [], False
    for name in shared:
        pair = [before[name], after[name]]
        compared = compare(pair, exactly=exactly)
        if metric_of(name, expand([*pair[0].records, *pair[1].records])) is None:
            lines.append(f"{name}: its records hold no single number to compare")
        changes += [_change(one, tolerance) for one in compared]
        machine = machine_differences(pair[0].environment, pair[1].environment)
        other_machine = other_machine or bool(machine)
        lines += _head(name, pair, machine)
        lines += [f"only in OLD: {what}" for what in only_in(pair[0], pair[1], exactly=exactly)]
        lines += [f"only in NEW: {what}" for what in only_in(pair[1], pair[0], exactly=exactly)]
    lines += [f"{name}: only in OLD" for name in before if name not in after]
    lines += [f"{name}: only in NEW" for name in after if name not in before]
    if not changes:
        hint = "" if across_machines else " (--across-machines pairs what differs only by machine or number of steps)"
        raise ReportError(" ".join([*(f"{line}." for line in lines), f"No configuration is in both{hint}."]))
    lines += ["", *_table(changes), ""]
    sentence, status = _conclusion(changes, tolerance, refused=other_machine and not across_machines)
    return Judgement(changes, [*lines, sentence], status)


def _by_benchmark(results: list[Result], side: str) -> dict[str, Result]:
    found: dict[str, Result] = {}
    for result in results:
        if not result.records:
            continue
        if result.benchmark in found:
            raise ReportError(
                f"{side} holds two results of {result.benchmark} ({found[result.benchmark].label} and {result.label}); "
                "name one folder."
            )
        found[result.benchmark] = result
    return found


def _change(compared: Compared, tolerance: float) -> Change:
    old, new = compared.sides
    ratio, counts = new.ratio, (len(old.values), len(new.values))
    reason = ""
    if old.values and not new.values:
        verdict, reason = FAILS, "; ".join(new.failures)
    else:
        verdict = _verdict(compared, new, min(counts), tolerance)
    return Change(compared.name, compared.metric.label, old.reached, new.reached, ratio, counts, verdict, reason)


def _verdict(compared: Compared, new: Side, rounds: int, tolerance: float) -> str:
    ends = (
        sorted(compared.metric.speed(end) for end in new.ratio[1:]) if not math.isnan(new.ratio.low) else [math.nan] * 2
    )
    speed = Interval(compared.metric.speed(new.ratio.median), *ends)
    said = judge(speed, rounds)
    if said not in (Verdict.FASTER, Verdict.SLOWER):
        return said.value
    if abs(speed.median - 1) <= tolerance:
        return f"{said.value}, within the tolerance"
    return SLOWER if said is Verdict.SLOWER else "faster beyond the intervals"


def _head(benchmark: str, pair: list[Result], machine: list[str]) -> list[str]:
    old, new = pair
    software = software_differences(old.environment, new.environment)
    lines = [
        f"{benchmark}",
        f"  OLD {old.label}: {describe(old.environment)}, measured: {old.measured}",
        f"  NEW {new.label}: {describe(new.environment)}, measured: {new.measured}",
    ]
    lines += [f"  another machine: {'; '.join(machine)}"] if machine else []
    lines += [f"  other versions: {'; '.join(software)}"] if software else []
    return lines + [f"  {result.label}: {problem}" for result in pair for problem in result.problems]


def _table(changes: list[Change]) -> list[str]:
    rows = [("configuration", "metric", "old", "new", "new / old, interval", "verdict")]
    for one in changes:
        spread = "" if math.isnan(one.ratio.low) else f" [{one.ratio.low:.3f}, {one.ratio.high:.3f}]"
        ratio = "" if math.isnan(one.ratio.median) else f"{one.ratio.median:.3f}{spread}"
        verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
        if one.verdict == Verdict.TOO_FEW.value:
            verdict += f" ({one.rounds[0]} and {one.rounds[1]}, {ENOUGH_FOR_AN_INTERVAL} needed)"
        rows.append((one.name, one.metric, _number(one.old.median), _number(one.new.median), ratio, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(
            row[column].rjust(widths[column]) if column in (2, 3) else row[column].ljust(widths[column])
            for column in range(5)
        )
        + f"  {row[5]}"
        for row in rows
    ]


def _conclusion(changes: list[Change], tolerance: float, *, refused: bool) -> tuple[str, int]:
    worse = [change for change in changes if change.is_regression]
    judged = [change for change in changes if change.is_judged]
    if refused:
        return (
            "Not judged: the two were measured on different machines. --across-machines judges all the same.",
            INCOMPARABLE,
        )
    if not judged:
        return (
            f"Not judged: no configuration has {ENOUGH_FOR_AN_INTERVAL} rounds that went well on both sides.",
            INCOMPARABLE,
        )
    counted = f"{len(worse)} of {len(judged)} judged configurations"
    how = f"95 % interval of new / old without 1, unpaired, and a change of more than {tolerance:.0%}"
    if worse:
        names = "; ".join(change.name for change in worse)
        return f"Regression: {counted} got worse ({how}, or failing): {names}.", REGRESSION
    return f"No regression: {counted} got worse ({how}).", UNCHANGED


def _number(value: float) -> str:
    if math.isnan(value):
        return "failed"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
