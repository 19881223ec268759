"""Put a learner's answers into the course's own lesson: the cells to run, in order, for one marking."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mgpu_utils.classroom.lessons import Lesson, LessonExercise
from mgpu_utils.classroom.submitted_notebook import START, Answers

# Stands for the learner's cells outside the exercises where an exercise's name is expected.
ADDED = "added cells"


@dataclass(frozen=True)
class Step:
    """One cell to run.

    Attributes:
        kind: `course` (the course's own), `answer` (the learner's) or `check`.
        exercise: whose answer or check it is; `ADDED` for the learner's other cells, "" for the course's.
        source: what to run; of a check the call that is made once its nonce is known, with `NONCE` in its place.
    """

    kind: str
    exercise: str
    source: str


NONCE = "MGPU-NONCE"


def plan_steps(lesson: Lesson, answers: Answers, *, wanted: Collection[str], without: Collection[str]) -> list[Step]:
    """The lesson up to the last exercise of `wanted`, with the learner's answers in it and a check after each.

    Exercises of `without` keep the placeholder they came with; `ADDED` in it leaves out the learner's other cells.
    """
    exercises = {exercise.cell: exercise for exercise in lesson.exercises}
    left = [exercise.name for exercise in lesson.exercises if exercise.name in wanted]
    steps = _added(answers, START, without)
    for cell in lesson.cells:
        if not left:
            break
        if cell.kind == "code":
            exercise = exercises.get(cell.id)
            if exercise is None:
                steps.append(Step("course", "", cell.source))
            else:
                steps += _answered(exercise, answers, without)
                if exercise.name in left:
                    left.remove(exercise.name)
                    steps.append(Step("check", exercise.name, check_source(exercise)))
        steps += _added(answers, cell.id, without)
    return steps


def check_source(exercise: LessonExercise) -> str:
    """The cell that checks an exercise as the course does, whatever the learner's own check looked like."""
    start = f"lambda: {exercise.ranks_call}" if exercise.ranks_call else "None"
    module = "mgpu_utils.classroom.check_cell"
    return (
        f"__import__('sys').modules.pop({module!r}, None)\n"
        f"__import__({module!r}, fromlist=['mark']).mark({NONCE!r}, {exercise.name!r}, "
        f"lambda: (lambda *given, **named: (given, named))({exercise.arguments}), {start}, {exercise.world_size})"
    )


def _answered(exercise: LessonExercise, answers: Answers, without: Collection[str]) -> list[Step]:
    block = answers.blocks.get(exercise.name, [])
    if exercise.name in without or not block:
        return [Step("course", "", exercise.placeholder)]
    return [Step("answer", exercise.name, source) for source in block]


def _added(answers: Answers, after: str, without: Collection[str]) -> list[Step]:
    if ADDED in without:
        return []
    return [Step("answer", ADDED, source) for source in answers.added.get(after, []) if source.strip()]
