"""The pre-flight all-reduce: real ranks over gloo, ranks that sleep, die or lie, and a parent that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from mgpu_utils.doctor.child import Child, ChildEnded, children_end_together
from mgpu_utils.doctor.collective_checks import judge_gloo, judge_nccl
from mgpu_utils.doctor.preflight import NOT_TRIED, RANKS, Limits, Trial, all_reduce

_SAY = "import json, sys, time; say = lambda event, **more: print(json.dumps({'event': event, **more}), flush=True); "
_READY = _SAY + "say('imported'); say('store', port=1); "
_AGREES = _READY + "say('gloo', right=True); "


def _fake(code: str) -> tuple[str, str]:
    return ("-c", code)


def _no_gpus() -> int:
    return 0


@pytest.fixture
def left_running() -> Callable[[], set[int]]:
    """Gives the processes that the test has started and that still run."""
    before = _children()
    return lambda: _children() - before


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_rank_that_never_joins_is_told_within_the_limit_and_nothing_is_left(
    left_running: Callable[[], set[int]],
) -> None:
    sleeper = _fake(_SAY + "say('imported'); time.sleep(600)")
    gloo, nccl = all_reduce(_no_gpus, Limits(start=60, gloo=1), (RANKS[0], sleeper))
    assert gloo.outcome == "silent"
    assert gloo.ranks == (0, 1)
    assert nccl == NOT_TRIED
    finding = judge_gloo(gloo)
    assert finding.state == "broken"
    assert "did not end within 1 s" in finding.sentence
    assert "GLOO_SOCKET_IFNAME" in (finding.cure or "")
    assert not left_running()


def test_first_nccl_all_reduce_that_never_ends_suggests_the_peer_to_peer_switch(
    left_running: Callable[[], set[int]],
) -> None:
    ranks = (_fake(_AGREES + "time.sleep(600)"), _fake(_AGREES + "say('nccl', right=True); time.sleep(600)"))
    gloo, nccl = all_reduce(lambda: 2, Limits(start=60, gloo=60, nccl=0.3), ranks)
    assert gloo.outcome == "ok"
    assert nccl.outcome == "silent"
    assert nccl.ranks == (0,)
    cure = judge_nccl(nccl, gpus=2, built=True, mig=False).cure or ""
    for word in ("NCCL_P2P_DISABLE=1", "NCCL_DEBUG=INFO", "IOMMU", "ACS"):
        assert word in cure
    assert not left_running()


def test_ranks_are_told_to_use_nccl_only_when_there_are_two_gpus() -> None:
    obeys = _AGREES + "line = sys.stdin.readline().strip(); line = line if line == 'nccl' else sys.stdin.readline(); "
    ranks = (_fake(obeys + "say('nccl', right=True)"), _fake(obeys + "say('nccl', right=False)"))
    assert all_reduce(lambda: 1, Limits(start=60, gloo=60), ranks)[1] == NOT_TRIED
    gloo, nccl = all_reduce(lambda: 2, Limits(start=60, gloo=60, nccl=60), ranks)
    assert gloo.outcome == "ok"
    assert (nccl.outcome, nccl.ranks) == ("wrong", (1,))


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (_SAY + "time.sleep(600)", "slow start", "not ready"),
        (_SAY + "say('failed', error='ImportError: libgomp.so.1')", "ended", "libgomp.so.1"),
        ("import os; os.abort()", "ended", "SIGABRT"),
        (_READY + "say('gloo', right=False); time.sleep(600)", "wrong", "wrong sum"),
    ],
)
def test_what_goes_wrong_in_a_rank_is_told(
    code: str, outcome: str, words: str, left_running: Callable[[], set[int]]
) -> None:
    start = 0.5 if outcome == "slow start" else 60
    gloo, _ = all_reduce(_no_gpus, Limits(start=start, gloo=60), (_fake(_AGREES + "time.sleep(600)"), _fake(code)))
    assert gloo.outcome == outcome
    assert words in judge_gloo(gloo).sentence
    assert judge_gloo(gloo).cure
    assert not left_running()


def test_rank_leaves_when_the_doctor_is_killed() -> None:
    code = (
        "from mgpu_utils.doctor.child import Child\n"
        "from mgpu_utils.doctor.preflight import RANKS\n"
        "import time\n"
        "child = Child(RANKS[0])\n"
        "child.wait_for('store', 60)\n"
        "print(child._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    doctor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert doctor.stdout is not None
    rank = psutil.Process(int(doctor.stdout.readline()))
    os.kill(doctor.pid, signal.SIGKILL)
    doctor.communicate()
    rank.wait(timeout=30)


def test_child_ends_with_everything_it_started(left_running: Callable[[], set[int]]) -> None:
    code = (
        _SAY + "import subprocess; other = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        "say('started', pid=other.pid); time.sleep(600)"
    )
    with Child(_fake(code)) as child:
        grandchild = psutil.Process(child.wait_for("started", 60)["pid"])
    deadline = time.monotonic() + 30
    while grandchild.is_running() and grandchild.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    assert not left_running()


def test_a_child_that_is_being_born_is_ended_with_the_others_and_none_follows(
    monkeypatch: pytest.MonkeyPatch, left_running: Callable[[], set[int]]
) -> None:
    born, known = threading.Event(), subprocess.Popen

    def slow(*arguments: Any, **options: Any) -> Any:
        process = known(*arguments, **options)
        born.set()
        time.sleep(0.3)
        return process

    monkeypatch.setattr("mgpu_utils.doctor.child.subprocess.Popen", slow)
    with ThreadPoolExecutor() as pool, children_end_together() as end_all:
        waiting = pool.submit(_wait_for_a_sleeper)
        assert born.wait(60)
        end_all()
        with pytest.raises(ChildEnded, match="ended by SIGKILL"):
            waiting.result(timeout=30)
        with pytest.raises(ChildEnded, match="the examination was stopped"):
            _wait_for_a_sleeper()
    assert not left_running()
    with Child(_fake(_SAY + "say('first')")) as child:
        assert child.wait_for("first", 60)


def _wait_for_a_sleeper() -> None:
    with Child(_fake("import time; time.sleep(600)")) as child:
        child.wait_for("anything", 60)


def test_what_a_child_prints_besides_reports_is_passed_over() -> None:
    with Child(_fake(_SAY + "print('hello'); print('[1]'); say('first'); say('second')")) as child:
        assert child.wait_for("second", 60) == {"event": "second"}
        for _ in range(2):
            with pytest.raises(ChildEnded, match="exit status 0"):
                child.wait_for("third", 60)


@pytest.mark.parametrize(
    ("trial", "gpus", "built", "mig", "state", "words"),
    [
        (NOT_TRIED, 0, False, False, "ok", "not needed"),
        (NOT_TRIED, 1, True, False, "ok", "1 can be used"),
        (NOT_TRIED, 2, True, True, "note", "does not connect MIG instances"),
        (NOT_TRIED, 2, False, False, "warning", "built without nccl"),
        (NOT_TRIED, 2, True, False, "warning", "not checked"),
        (Trial("ok", 2.5), 2, True, False, "ok", "two GPU ranks added up"),
        (Trial("wrong", 1, (0, 1)), 2, True, False, "broken", "wrong sum on both ranks"),
        (Trial("ended", 1, (1,), "ncclSystemError"), 2, True, False, "broken", "rank 1 could not take part: ncclSys"),
    ],
)
def test_nccl_is_judged(trial: Trial, gpus: int, built: bool, mig: bool, state: str, words: str) -> None:
    finding = judge_nccl(trial, gpus=gpus, built=built, mig=mig)
    assert finding.state == state
    assert words in finding.sentence
