"""Mark one submission: run it in a process of its own, again without the answer that ended it, and say what failed."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu_utils.classroom.lessons import Lesson
from mgpu_utils.classroom.limits import Ended, Limits, run_limited
from mgpu_utils.classroom.marking_steps import ADDED
from mgpu_utils.notebook_execution import notebook_environment

# What a mark can be; only the first one gives a point.
STATUSES = ("passed", "wrong", "error", "stopped", "open", "missing", "not run")


class MarkingError(ValueError):
    """Marking itself does not work here, whatever was handed in; the message says why."""


@dataclass
class Mark:
    """The result of one exercise: one of `STATUSES`, and a sentence for the learner."""

    status: str
    message: str = ""


@dataclass
class Marked:
    """The result of one submission.

    Attributes:
        marks: one a exercise of the lesson, in its order.
        seconds: how long it took.
        peak_bytes: the most memory all its processes held.
        limited: whether a limit decided about a mark, so that other limits could change it.
        note: what a teacher should know besides the marks.
    """

    marks: dict[str, Mark]
    seconds: float = 0.0
    peak_bytes: int = 0
    limited: bool = False
    note: str = ""


@dataclass
class _Run:
    """What the lines of one marking process said. Each carries the key that only this process was given.

    An answer may find a way to the pipe: on Linux it is in /proc for all processes of a user.
    """

    key: str = field(default_factory=lambda: secrets.token_hex(16))
    marks: dict[str, Mark] = field(default_factory=dict)
    current: str = ""
    gone: str = ""
    answered: bool = False

    def take(self, line: str) -> None:
        try:
            told: dict[str, Any] = json.loads(line)
            if told["key"] != self.key:
                return
            event = told["event"]
        except (ValueError, KeyError, TypeError):
            return
        if event == "answers":
            self.answered = True
            self.marks |= {name: Mark("open", "not attempted") for name in told["open"]}
            self.marks |= {name: Mark("missing", "its cell is not there") for name in told["missing"]}
        elif event == "step":
            self.current = told["exercise"]
        elif event == "mark":
            self.marks[told["exercise"]] = Mark(told["status"], told["message"])
        elif event == "gone":
            self.gone = told["message"]


def mark_submission(submission: Path, lesson: Lesson, limits: Limits) -> Marked:
    """Marks for every exercise of `lesson` from one notebook file.

    What ends or freezes the notebook's process costs the exercise that did it, not the others: the rest is run
    again without that answer, within the same time. Raises MarkingError when not even the lesson's own cells run.
    """
    started = time.monotonic()
    result = Marked({})
    without: list[str] = []
    blamed: dict[str, str] = {}
    for _ in range(len(lesson.exercises) + 2):
        left = limits.seconds - (time.monotonic() - started)
        if left <= 0:
            break
        run, ended = _run_once(submission, lesson, limits, left, done=list(result.marks), without=without)
        result.marks |= {name: mark for name, mark in run.marks.items() if name not in result.marks}
        result.peak_bytes = max(result.peak_bytes, ended.peak_bytes)
        trouble = _trouble(run, ended, limits)
        if not trouble:
            break
        result.limited = True
        culprit = run.current
        if not culprit:
            raise MarkingError(
                f"{lesson.name}: {trouble} before any answer was run. {ended.log.strip()[-600:]}".strip()
            )
        without.append(culprit)
        blamed[culprit] = trouble
        if culprit != ADDED:
            result.marks.setdefault(culprit, Mark("stopped", trouble))
    else:
        raise MarkingError(f"{lesson.name}: it did not come to an end.")
    for exercise in lesson.exercises:
        result.marks.setdefault(exercise.name, Mark("not run", f"the {limits.seconds:g} s for the notebook were over"))
    result.marks = {exercise.name: result.marks[exercise.name] for exercise in lesson.exercises}
    result.limited |= any(mark.status in ("stopped", "not run") for mark in result.marks.values())
    if ADDED in blamed:
        result.note = f"cells outside the exercises were left out: {blamed[ADDED]}"
    result.seconds = time.monotonic() - started
    return result


def _run_once(
    submission: Path, lesson: Lesson, limits: Limits, seconds: float, *, done: list[str], without: list[str]
) -> tuple[_Run, Ended]:
    run = _Run()
    with tempfile.TemporaryDirectory(prefix="mgpu-mark-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        for name in ("notebooks", "home"):
            (folder / name).mkdir()
        copy = shutil.copyfile(submission, folder / "submission.ipynb")
        job = {
            "key": run.key,
            "lesson": lesson.to_dict(),
            "submission": str(copy),
            "cwd": str(folder / "notebooks"),
            "done": done,
            "without": without,
            "cell_seconds": limits.cell_seconds,
            "output_bytes": limits.output_bytes,
        }
        # Files that an answer writes to its home or to the temporary folder go with the scratch folder.
        own = {"HOME": str(folder / "home"), "MPLCONFIGDIR": str(folder / "home/matplotlib"), "TMPDIR": scratch}
        ended = run_limited(
            [sys.executable, "-m", "mgpu_utils.classroom.marking_process"],
            json.dumps(job),
            cwd=folder,
            env=notebook_environment(folder, own),
            limits=limits,
            seconds=seconds,
            on_line=run.take,
        )
    return run, ended


def _trouble(run: _Run, ended: Ended, limits: Limits) -> str:
    if ended.reason == "memory":
        return f"it used more than {limits.memory_bytes / 2**30:.3g} GiB of memory"
    if ended.reason == "processes":
        return f"it started more than {limits.processes} processes"
    if ended.reason == "time":
        return f"it was still running when the {limits.seconds:g} s for the notebook were over"
    if run.gone:
        return run.gone
    if ended.status:
        return f"the process that marks it ended with status {ended.status}"
    return ""
