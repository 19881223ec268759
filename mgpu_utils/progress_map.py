"""How far a learner has come: the lessons with what was predicted, tried, solved, and the time between answers."""

from __future__ import annotations

import html
import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_utils import progress
from mgpu_utils.figures.lessons import STEPS

_SYMBOLS = {
    "done": ("\N{CHECK MARK}", "all exercises right"),
    "begun": ("\N{CIRCLE WITH LEFT HALF BLACK}", "begun"),
    "open": ("\N{WHITE CIRCLE}", "not begun"),
}
_GREEN, _BLUE, _GREY = "#1b8a5a", "#3f7fbf", "#7a8794"
_COLORS = {"done": _GREEN, "begun": _BLUE, "open": _GREY}
TITLES = {"00": "Start here", **{f"{number:02d}": " ".join(step.split()) for number, step in enumerate(STEPS, 1)}}
PRIVATE = "Kept in {place}, on this machine only. Nothing is sent anywhere."


@dataclass(frozen=True)
class LessonProgress:
    """One lesson: exercises solved of all there are, attempts, hints, predictions, seconds between answers."""

    lesson: str
    solved: int
    exercises: int
    attempts: int
    hints: int
    predictions: int
    seconds: float

    @property
    def title(self) -> str:
        return TITLES.get(self.lesson, "")

    @property
    def state(self) -> str:
        """`done` when every exercise is right, `begun` when anything was answered, else `open`."""
        if self.exercises and self.solved == self.exercises:
            return "done"
        return "begun" if self.attempts or self.hints or self.predictions or self.solved else "open"

    @property
    def counts(self) -> str:
        """What was done, in words; empty where nothing was."""
        if self.state == "open":
            return f"{_many(self.exercises, 'exercise')}"
        parts = [f"{self.solved} of {_many(self.exercises, 'exercise')} right"]
        if self.attempts:
            parts.append(_many(self.attempts, "attempt"))
        if self.predictions:
            parts.append(_many(self.predictions, "prediction"))
        if self.seconds >= 60:
            parts.append(f"{self.seconds / 60:.0f} min")
        return ", ".join(parts)


@dataclass(frozen=True)
class ProgressMap:
    """The map of the ten steps with a learner's progress; a grid in JupyterLab, one line a lesson as text."""

    lessons: tuple[LessonProgress, ...]
    place: str
    links: dict[str, str]

    @property
    def summary(self) -> str:
        """All lessons in one sentence."""
        solved = sum(lesson.solved for lesson in self.lessons)
        wanted = sum(lesson.exercises for lesson in self.lessons)
        minutes = sum(lesson.seconds for lesson in self.lessons) / 60
        told = sum(lesson.predictions for lesson in self.lessons)
        return (
            f"{solved} of {_many(wanted, 'exercise')} right, {_many(told, 'prediction')}, "
            f"{minutes:.0f} minutes between answers (breaks of more than {progress.PAUSE_SECONDS // 60} left out)."
        )

    def __repr__(self) -> str:
        width = max(len(lesson.title) for lesson in self.lessons)
        lines = [
            f"{_SYMBOLS[lesson.state][0]} {lesson.lesson} {lesson.title:<{width}}  {lesson.counts}"
            for lesson in self.lessons
        ]
        key = "  ".join(f"{symbol} {words}" for symbol, words in _SYMBOLS.values())
        return "\n".join([*lines, "", key, self.summary, PRIVATE.format(place=self.place)])

    def _repr_html_(self) -> str:
        boxes = "".join(self._box(lesson) for lesson in self.lessons)
        key = " &nbsp; ".join(
            f'<span style="font-weight:700" aria-hidden="true">{symbol}</span> {words}'
            for symbol, words in _SYMBOLS.values()
        )
        small = "margin-top:6px;font-size:0.9em;line-height:1.5;color:inherit"
        foot = "<br>".join(html.escape(line) for line in (self.summary, PRIVATE.format(place=self.place)))
        # A list, so that a screen reader counts the lessons; the grid folds to fewer columns on a narrow page.
        return (
            '<div style="max-width:62em;color:inherit;font-family:var(--jp-content-font-family,sans-serif)">'
            '<ol aria-label="Your progress, lesson by lesson" style="list-style:none;margin:0;padding:0;display:grid;'
            f'gap:8px;grid-template-columns:repeat(auto-fill,minmax(10.5em,1fr))">{boxes}</ol>'
            f'<div style="{small}">{key}<br>{foot}</div></div>'
        )

    def _box(self, lesson: LessonProgress) -> str:
        symbol, words = _SYMBOLS[lesson.state]
        color = _COLORS[lesson.state]
        title = html.escape(f"{lesson.lesson} {lesson.title}")
        if lesson.lesson in self.links:
            title = f'<a style="color:inherit" href="{html.escape(self.links[lesson.lesson])}">{title}</a>'
        # The start has a row of its own, so that the ten steps stand in two rows of five, as on the map.
        row = "grid-column:1/-1;" if lesson.lesson == "00" else ""
        edge = f"2px solid {color}" if lesson.state != "open" else f"1px dashed {color}"
        return (
            f'<li style="{row}border:{edge};border-radius:6px;padding:6px 9px;margin:0;line-height:1.4">'
            f'<span role="img" aria-label="{words}" style="font-weight:700">{symbol}</span> '
            f"<strong>{title}</strong>"
            f'<div style="font-size:0.88em">{html.escape(lesson.counts)}</div></li>'
        )


def my_progress(folder: Path | None = None) -> ProgressMap:
    """The learner's progress as a map of the ten steps: all of `progress.read(folder)`, lesson by lesson.

    Reads a small file next to the notebook and writes nothing; nothing is sent anywhere.
    """
    kept = progress.read(folder)
    numbers = sorted({*TITLES, *_numbers(kept)})
    lessons = tuple(_lesson(number, kept, _exercises(number)) for number in numbers)
    here = sorted(path.name for path in Path.cwd().glob("[0-9][0-9]_*.ipynb"))
    place = (folder or progress.home()) / "progress.json"
    return ProgressMap(lessons, place.as_posix(), {name[:2]: name for name in here if name[:2] in TITLES})


def _numbers(kept: dict[str, dict[str, Any]]) -> set[str]:
    names = {name.partition("/")[0] for section in ("predictions", "checks") for name in kept[section]}
    return {name for name in names if len(name) == 2 and name.isdigit()}


def _exercises(number: str) -> frozenset[str]:
    """The names of a lesson's exercises, as its checks are registered."""
    from mgpu_utils import exercises, lesson_checks

    module = f"lesson_{number}"
    if any(found.name == module for found in pkgutil.iter_modules(lesson_checks.__path__)):
        importlib.import_module(f"{lesson_checks.__name__}.{module}")
    return frozenset(name for name in exercises.registered() if name.startswith(f"{number}/"))


def _lesson(number: str, kept: dict[str, dict[str, Any]], known: frozenset[str]) -> LessonProgress:
    checks = {name: entry for name, entry in kept["checks"].items() if name.startswith(f"{number}/")}
    solved = sum(entry.get("done") is True for name, entry in checks.items() if name in known or not known)
    return LessonProgress(
        lesson=number,
        solved=solved,
        exercises=len(known) or len(checks),
        attempts=sum(_number(entry.get("attempts")) for entry in checks.values()),
        hints=sum(_number(entry.get("hints")) for entry in checks.values()),
        predictions=sum("answer" in entry for name, entry in kept["predictions"].items() if name[:3] == f"{number}/"),
        seconds=float(_number(kept["lessons"].get(number, {}).get("seconds"))),
    )


def _number(value: object) -> Any:
    return value if isinstance(value, int | float) and value == value else 0


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
