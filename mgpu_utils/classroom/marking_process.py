"""The process that marks one submission: it reads a job from stdin and writes one JSON object a line to stdout.

Lines: `{"event": "answers", "open": [...], "missing": [...]}` first, `{"event": "step", "exercise": ...}` before each
of the learner's cells and each check, `{"event": "mark", ...}` for each result, and `{"event": "gone", ...}` when the
kernel ended or hangs. Each carries the `key` of the job: the kernel is a child of this process that does not inherit
its stdout, but on Linux could open it by way of /proc.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mgpu_utils.classroom.kernel_session import KernelGone, KernelSession
from mgpu_utils.classroom.lessons import Lesson
from mgpu_utils.classroom.marking_steps import NONCE, Step, plan_steps
from mgpu_utils.classroom.submitted_notebook import find_answers, read_cells

_FILE_BYTES = 2 * 2**30
_MESSAGE = 400


def main() -> int:
    """Mark what the job on stdin describes."""
    job = json.load(sys.stdin)
    _guard()
    tell = partial(_tell, job["key"])
    lesson = Lesson.from_dict(job["lesson"])
    answers = find_answers(read_cells(Path(job["submission"])), lesson)
    attempted = [name for name, block in answers.blocks.items() if block]
    tell("answers", open=[name for name in answers.blocks if name not in attempted], missing=answers.missing)
    wanted = [name for name in attempted if name not in job["done"] and name not in job["without"]]
    steps = plan_steps(lesson, answers, wanted=wanted, without=job["without"])
    if not wanted:
        return 0
    with KernelSession(Path(job["cwd"]), job["cell_seconds"], job["output_bytes"]) as kernel:
        return _run(kernel, steps, tell)


def _run(kernel: KernelSession, steps: list[Step], tell: Callable[..., None]) -> int:
    troubles: dict[str, str] = {}
    limited: set[str] = set()
    latest = ""
    for step in steps:
        if step.exercise and step.exercise != latest:
            latest = step.exercise
            tell("step", exercise=latest)
        nonce = secrets.token_hex(16)
        try:
            run = kernel.run(step.source.replace(NONCE, nonce) if step.kind == "check" else step.source)
        except KernelGone as error:
            tell("gone", exercise=latest, message=str(error))
            return 0
        if step.kind == "answer" and run.trouble:
            troubles.setdefault(step.exercise, run.trouble)
        if run.limit:
            limited.add(step.exercise)
        if step.kind == "check":
            found = [mark for mark in run.marks if mark.get("nonce") == nonce and mark.get("name") == step.exercise]
            before = troubles.get(step.exercise, "")
            tell("mark", exercise=step.exercise, **_verdict(found, run.trouble, step.exercise in limited, before))
    return 0


def _verdict(found: list[dict[str, Any]], trouble: str, limited: bool, before: str) -> dict[str, str]:
    """The mark of one exercise: by its check, and where that gave no result, by what ended it."""
    if len(found) == 1 and found[0]["status"] == "passed":
        return {"status": "passed", "message": ""}
    if limited:
        return {"status": "stopped", "message": _short(before or trouble)}
    if len(found) != 1:
        return {"status": "error", "message": _short(before or trouble or "its check gave no result")}
    status, message = str(found[0]["status"]), str(found[0]["message"])
    # An error above the check explains more than the missing name that the check then stumbles over.
    return {"status": status, "message": _short(before if before and status != "wrong" else message)}


def _short(text: str) -> str:
    text = " ".join(text.replace("`", "").split())
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 3] + "..."


def _guard() -> None:
    """Where the system can: no core files, no file above 2 GiB, orphans stay below, this is the first to be killed."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            import ctypes

            pr_set_child_subreaper = 36
            ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)
            Path(f"/proc/{os.getpid()}/oom_score_adj").write_text("1000")


def _tell(key: str, event: str, **values: Any) -> None:
    print(json.dumps({"key": key, "event": event, **values}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
