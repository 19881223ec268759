"""Rank groups: results, output, errors, timeouts, and what is left behind (nothing)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

import mgpu_utils as mgpu
from mgpu_utils.ranks import RankGroup

ROOT = Path(__file__).parents[1]


def pids(group: RankGroup) -> list[int]:
    return [kernel.process.pid for kernel in group._kernels]


def gone(numbers: list[int], seconds: float = 20.0) -> float:
    """Wait until none of these processes runs any more; returns the seconds that took, fails after the limit."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        alive = [n for n in numbers if psutil.pid_exists(n) and psutil.Process(n).status() != psutil.STATUS_ZOMBIE]
        if not alive:
            return time.monotonic() - start
        time.sleep(0.05)
    raise AssertionError(f"processes {alive} are still there after {seconds} s")


# Results


def test_run_returns_one_result_a_rank_in_rank_order(three_ranks: RankGroup) -> None:
    def describe(offset, *, factor):
        return rank * factor + offset, world_size, device.type  # noqa: F821

    assert three_ranks.run(describe, 5, factor=10) == [(5, 3, "cpu"), (15, 3, "cpu"), (25, 3, "cpu")]


def test_functions_given_as_arguments_see_the_names_of_the_rank_as_well(two_ranks: RankGroup) -> None:
    def number():
        return rank + 1  # noqa: F821

    def call(function, times):
        return function() * times

    assert two_ranks.run(call, number, times=10) == [10, 20]


def test_a_rank_keeps_its_own_number_and_the_notebooks_value_of_another_name_is_told_of_once(
    two_ranks: RankGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    cell: dict[str, object] = {"__name__": "__main__", "rank": 70, "device": "meta", "rate": 0.1, "steps": 3}
    exec("def both(other=None):\n    return rank, str(device), rate, steps", cell)
    two_ranks.execute("rate = 0.2\nsteps = 3")
    assert two_ranks.run(cell["both"]) == [(rank, "cpu", 0.1, 3) for rank in range(2)]
    told = capsys.readouterr().out
    assert "the function uses the notebook's `rate`, not what a `%%ranks` cell put" in told
    assert "steps" not in told
    assert two_ranks.run(lambda function: function()[2], cell["both"]) == [0.1, 0.1]
    assert capsys.readouterr().out == "", "told a second time"
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_collectives_really_connect_the_ranks(two_ranks: RankGroup, three_ranks: RankGroup) -> None:
    def total():
        import torch
        import torch.distributed as dist

        value = torch.tensor([10.0 ** dist.get_rank()])
        dist.all_reduce(value)
        return value.item(), dist.get_backend(), torch.get_num_threads()

    assert two_ranks.run(total) == [(11.0, "gloo", 1)] * 2
    assert three_ranks.run(total) == [(111.0, "gloo", 1)] * 3


def test_each_rank_is_a_process_of_its_own(two_ranks: RankGroup) -> None:
    numbers = two_ranks.run(lambda: __import__("os").getpid())
    assert len({*numbers, os.getpid()}) == 3


def test_a_rank_frees_what_is_left_in_cycles_again_after_its_start(two_ranks: RankGroup) -> None:
    def collections() -> tuple[bool, bool]:
        import gc

        return gc.isenabled(), gc.get_freeze_count() > 100_000

    assert two_ranks.run(collections) == [(True, True)] * 2


def test_arguments_and_results_are_copies(two_ranks: RankGroup) -> None:
    tensor = torch.zeros(3)

    def add_one(value):
        value += 1
        return value

    results = two_ranks.run(add_one, tensor)
    assert torch.equal(tensor, torch.zeros(3))
    assert [r.tolist() for r in results] == [[1.0] * 3] * 2


def test_ranks_start_after_the_notebook_has_used_threads_for_its_own_work() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        model = torch.nn.Linear(1000, 1000)
        model(torch.rand(1000, 1000)).sum().backward()

        def work():
            import torch

            layer = torch.nn.Linear(200, 200)
            layer(torch.rand(200, 200)).sum().backward()
            return layer.weight.grad.shape

        with mgpu.start_ranks(2, device="cpu") as ranks:
            assert ranks.run(work) == [(200, 200)] * 2
    finally:
        torch.set_num_threads(before)


def test_many_starts_in_a_row_succeed_and_leave_no_open_files() -> None:
    process = psutil.Process()
    open_files, memory = [], []
    for _ in range(20):
        with mgpu.start_ranks(2, device="cpu") as ranks:
            assert ranks.run(lambda: world_size) == [2, 2]  # noqa: F821
            numbers = pids(ranks)
        gone(numbers)
        open_files.append(process.num_fds() if hasattr(process, "num_fds") else 0)
        memory.append(process.memory_info().rss)
    assert open_files[-1] <= open_files[2]
    assert memory[-1] - memory[2] < 24 << 20


def test_variables_of_an_outer_job_do_not_reach_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "no.such.host", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)

    def seen():
        import os

        return os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"]

    with mgpu.start_ranks(2, device="cpu") as ranks:
        assert ranks.run(seen) == [("0", "2", "127.0.0.1"), ("1", "2", "127.0.0.1")]


def test_starting_again_replaces_the_group() -> None:
    first = mgpu.start_ranks(2, device="cpu")
    numbers = pids(first)
    second = mgpu.start_ranks(1, device="cpu")
    try:
        gone(numbers)
        with pytest.raises(mgpu.RankError, match="was shut down"):
            first.execute("1")
        assert second.run(lambda: rank) == [0]  # noqa: F821
    finally:
        second.shutdown()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout": 0}, "timeout must be a number of seconds above 0, not 0"),
        ({"timeout": "long"}, "not 'long'"),
        ({"threads_per_rank": 0}, "threads_per_rank must be a whole number from 1, not 0"),
        ({"world_size": 0}, "0"),
        ({"world_size": -1}, "-1"),
        ({"world_size": "two"}, "two"),
    ],
)
def test_senseless_arguments_are_refused_in_one_sentence(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        mgpu.start_ranks(**arguments)
    assert "\n" not in str(caught.value)


def test_a_senseless_timeout_is_refused_when_it_is_set(two_ranks: RankGroup) -> None:
    for seconds in (-1, 0, "a", float("inf"), True):
        with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
            two_ranks.timeout = seconds  # type: ignore[assignment]
    assert two_ranks.timeout == 60.0


def test_a_notebook_shows_a_senseless_argument_without_library_frames() -> None:
    with pytest.raises(ValueError, match="world_size") as caught:
        mgpu.start_ranks(0)
    assert caught.value._render_traceback_() == [f"ValueError: {caught.value}"]  # type: ignore[attr-defined]


def test_ranks_cannot_start_ranks(two_ranks: RankGroup) -> None:
    with pytest.raises(mgpu.RankError, match="start_ranks was called on a rank; ranks are started from the notebook"):
        two_ranks.execute("mgpu.start_ranks(2)")


def test_a_destroyed_process_group_is_explained(two_ranks: RankGroup) -> None:
    two_ranks.execute("dist.destroy_process_group()")
    with pytest.raises(mgpu.RankError, match=r"process group of these ranks was destroyed; `ranks\.restart\(\)`"):
        two_ranks.execute("dist.barrier()")
    two_ranks.restart()


# Output


def test_output_is_marked_by_rank_and_stands_in_rank_order(
    two_ranks: RankGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import time\ntime.sleep(0.2 * (1 - rank))\nprint('first')\nprint('second', rank)\nrank + 40"
    results = two_ranks.execute(code)
    assert capsys.readouterr().out.splitlines() == [
        "[rank 0] first",
        "[rank 0] second 0",
        "[rank 0] 40",
        "[rank 1] first",
        "[rank 1] second 1",
        "[rank 1] 41",
    ]
    assert [r.text for r in results] == ["first\nsecond 0\n40", "first\nsecond 1\n41"]


def test_one_rank_alone_can_be_addressed(two_ranks: RankGroup, capsys: pytest.CaptureFixture[str]) -> None:
    two_ranks.execute("print('only me')", rank=1)
    assert capsys.readouterr().out == "[rank 1] only me\n"
    with pytest.raises(ValueError, match="there is no rank 2: this group has ranks 0 to 1"):
        two_ranks.execute("1", rank=2)


def test_output_of_c_code_and_of_child_processes_is_shown(
    two_ranks: RankGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    two_ranks.execute("import os\n_ = os.write(2, b'from below\\n')\n_ = os.system('echo from a child')", rank=0)
    out = capsys.readouterr().out
    assert "[rank 0] from below" in out
    assert "[rank 0] from a child" in out


def test_the_same_warning_on_all_ranks_is_shown_once(two_ranks: RankGroup, capsys: pytest.CaptureFixture[str]) -> None:
    two_ranks.execute("import warnings\nwarnings.warn('old name')")
    out = capsys.readouterr().out
    assert out.count("old name") <= 2  # the message, and the source line that Python prints below it
    assert "[all ranks]" in out
    assert "[rank 1]" not in out


# Errors


def test_the_error_shown_is_that_of_the_rank_that_failed(two_ranks: RankGroup) -> None:
    def step():
        if rank == 1:  # noqa: F821
            raise ValueError("bad sample")
        dist.all_reduce(torch.ones(1))

    import torch
    import torch.distributed as dist

    two_ranks.timeout = 60.0
    with pytest.raises(mgpu.RankError) as caught:
        two_ranks.run(step)
    error = caught.value
    assert error.rank == 1
    assert error.failures[0].name == "ValueError"
    text = str(error)
    assert text.startswith("rank 1 raised ValueError: bad sample")
    assert "test_ranks.py, line" in text
    assert 'raise ValueError("bad sample")' in text
    assert "rank 0 waits inside all_reduce" in text
    assert "site-packages" not in text
    assert "rank_process" not in text
    with pytest.raises(mgpu.RankError, match=r"not complete .*ranks\.restart\(\)"):
        two_ranks.run(lambda: 1)
    two_ranks.restart()
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_a_mistake_on_all_ranks_is_told_once_and_leaves_the_group_usable(two_ranks: RankGroup) -> None:
    with pytest.raises(mgpu.RankError) as caught:
        two_ranks.execute("x = 1\ny = no_such_name")
    assert str(caught.value) == (
        "ranks 0 and 1 raised NameError: name 'no_such_name' is not defined\n  at cell, line 2: y = no_such_name"
    )
    with pytest.raises(mgpu.RankError, match=r"ranks 0 and 1 raised SyntaxError: .*\n  at cell, line 1: x = \("):
        two_ranks.execute("x = (")
    with pytest.raises(mgpu.RankError, match="raised SystemExit: 3"):
        two_ranks.execute("import sys; sys.exit(3)")
    assert two_ranks.run(lambda: 1) == [1, 1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_rank_that_dies_is_reported_by_number_and_signal_long_before_the_timeout(
    two_ranks: RankGroup, note: Callable[[str], None]
) -> None:
    def step():
        import os
        import signal

        import torch
        import torch.distributed as dist

        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))

    start = time.monotonic()
    with pytest.raises(mgpu.RankError) as caught:
        two_ranks.run(step)
    assert caught.value.rank == 1
    assert str(caught.value).startswith("rank 1 was ended by signal 9 (SIGKILL)")
    assert "ranks.restart()" in str(caught.value)
    note(f"dead rank reported after {time.monotonic() - start:.2f} s")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_crash_names_the_line_that_crashed(two_ranks: RankGroup) -> None:
    with pytest.raises(mgpu.RankError, match=r"rank 0 was ended by signal 11 \(SIGSEGV\)") as caught:
        two_ranks.execute("import ctypes\nctypes.string_at(0)", rank=0)
    assert "at cell, line 2: ctypes.string_at(0)" in str(caught.value)


def test_an_idle_rank_that_dies_is_noticed_at_the_next_call(two_ranks: RankGroup) -> None:
    two_ranks._kernels[1].process.kill()
    two_ranks._kernels[1].process.wait()
    assert two_ranks.needs_restart
    with pytest.raises(mgpu.RankError, match=r"rank 1: its process ended while it was idle.*ranks\.restart\(\)"):
        two_ranks.execute("1")


def test_what_cannot_be_sent_is_named_before_anything_runs(two_ranks: RankGroup) -> None:
    with pytest.raises(TypeError, match=r"argument 2 of ranks\.run cannot be sent to the ranks: cannot pickle"):
        two_ranks.run(print, 1, threading.Lock())
    with pytest.raises(TypeError, match=r"argument `lock` of ranks\.run cannot be sent"):
        two_ranks.run(print, lock=threading.Lock())
    with pytest.raises(TypeError, match=r"ranks\.run needs a function to call, not int 3"):
        two_ranks.run(3)

    def make():
        import threading

        return threading.Lock()

    with pytest.raises(mgpu.RankError, match=r"value returned by make \(a lock\) cannot be sent to the notebook"):
        two_ranks.run(make)


# Timeouts and interrupts


def test_a_collective_that_one_rank_never_joins_is_explained(two_ranks: RankGroup) -> None:
    two_ranks.timeout = 2.0
    with pytest.raises(mgpu.RankTimeout) as caught:
        two_ranks.execute("x = torch.ones(1)\nif rank == 0:\n    dist.all_reduce(x)")
    text = str(caught.value)
    assert "rank 0 waits inside all_reduce   cell, line 3: dist.all_reduce(x)" in text
    assert "rank 1 has finished the cell" in text
    assert "Rank 0 waits inside all_reduce for rank 1, which has already finished and will never join" in text
    assert "if rank == 0:" in text
    assert [s.state for s in caught.value.states] == ["running", "finished"]
    two_ranks.restart()
    two_ranks.timeout = 60.0
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_different_collectives_are_named(two_ranks: RankGroup) -> None:
    two_ranks.timeout = 2.0
    code = (
        "x = torch.ones(1)\nif rank == 0:\n    dist.barrier()\n    dist.all_reduce(x)\nelse:\n    dist.broadcast(x, 0)"
    )
    with pytest.raises((mgpu.RankTimeout, mgpu.RankError)) as caught:
        two_ranks.execute(code)
    text = str(caught.value)
    assert "line 3: dist.barrier()" in text or "line 6: dist.broadcast(x, 0)" in text


def test_an_endless_loop_is_interrupted_and_the_ranks_stay_usable(two_ranks: RankGroup) -> None:
    before = pids(two_ranks)
    two_ranks.timeout = 1.0
    with pytest.raises(mgpu.RankTimeout, match=r"Ranks 0 and 1 had more work than the time allows, or an endless loop"):
        two_ranks.execute("while True:\n    pass")
    two_ranks.timeout = 60.0
    assert two_ranks.run(lambda: 1) == [1, 1]
    assert pids(two_ranks) == before


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill cannot send SIGINT to this process alone")
@pytest.mark.parametrize(
    ("code", "stuck"),
    [
        ("import time\ntime.sleep(600)", False),
        ("if rank == 0: dist.barrier()\nelse:\n    import time\n    time.sleep(600)", True),
        (
            "import time\nwhile True:\n    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass",
            True,
        ),
    ],
    ids=["asleep", "in a collective", "swallows the interrupt"],
)
def test_the_stop_button_ends_the_cell_and_leaves_no_rank_at_work(two_ranks: RankGroup, code: str, stuck: bool) -> None:
    before = pids(two_ranks)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        two_ranks.execute(code)
    if stuck:
        with pytest.raises(mgpu.RankError, match="was ended"):
            two_ranks.execute("1")
        two_ranks.restart()
    assert two_ranks.run(lambda: 1) == [1, 1]
    assert stuck == (pids(two_ranks) != before)


# What is left behind

OWNER = """
import os, sys, threading
import mgpu_utils as mgpu

ranks = mgpu.start_ranks(2, device="cpu", timeout=600)

def workers():
    import multiprocessing, os, time, torch
    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 1000
        def __getitem__(self, i): time.sleep(0.01); return i
    global loader
    loader = iter(torch.utils.data.DataLoader(Slow(), num_workers=1))
    next(loader)
    return [os.getpid()] + [p.pid for p in multiprocessing.active_children()]

print(*sum(ranks.run(workers), []), flush=True)
MODE = sys.argv[1]
if MODE == "stuck":
    ranks.execute("if rank == 0: dist.barrier()\\nelse:\\n    while True: pass")
elif MODE == "gil":
    ranks.execute("import ctypes\\nctypes.PyDLL(None).sleep(600)")
elif MODE == "exit":
    sys.exit()
elif MODE == "idle":
    threading.Event().wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the process tree is ended with POSIX signals")
@pytest.mark.parametrize("mode", ["idle", "stuck", "exit", "gil"])
def test_no_process_outlives_the_notebooks_kernel(mode: str, note: Callable[[str], None]) -> None:
    if mode == "gil" and sys.platform != "linux":
        pytest.skip("only Linux can end a process that holds the GIL when its parent dies")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, mode], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    with owner:
        numbers = [int(number) for number in owner.stdout.readline().split()]
        assert len(numbers) == 4
        if mode != "exit":
            time.sleep(1.0)
            owner.kill()
        owner.wait()
    note(f"owner killed while {mode}: all {len(numbers)} processes gone {gone(numbers):.2f} s after their owner")


def test_shutting_down_a_stuck_group_leaves_no_process() -> None:
    ranks = mgpu.start_ranks(2, device="cpu", timeout=600)
    numbers = pids(ranks)
    ranks._kernels[0].send("dist.barrier()")
    time.sleep(0.3)
    ranks.shutdown()
    gone(numbers)


def test_ranks_listen_on_loopback_only_and_keep_no_key_file(two_ranks: RankGroup) -> None:
    listening = [
        connection.laddr.ip
        for number in [*pids(two_ranks), os.getpid()]
        for connection in psutil.Process(number).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 10
    assert set(listening) == {"127.0.0.1"}
    assert not any(kernel._connection_file.exists() for kernel in two_ranks._kernels)


# Networks as they are

NAMELESS = textwrap.dedent("""
    hostname no-such-host.invalid
    ip link set lo up
    echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
    exec "$@"
""")


def test_ranks_start_without_a_resolvable_host_name_and_without_ipv6() -> None:
    unshare = ["unshare", "--uts", "--net", "sh", "-e", "-c", NAMELESS, "sh"]
    try:
        probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("this machine has no `unshare`")
    if probe.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {probe.stderr.strip()}")
    code = (
        "import mgpu_utils as mgpu\n"
        "with mgpu.start_ranks(2, device='cpu') as ranks:\n"
        "    ranks.execute('x = torch.ones(1); dist.all_reduce(x); print(int(x))')\n"
    )
    done = subprocess.run([*unshare, sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[rank 0] 2\n[rank 1] 2\n"
    assert done.stderr == ""


def test_two_notebooks_can_have_ranks_at_the_same_time(two_ranks: RankGroup) -> None:
    code = (
        "import mgpu_utils as mgpu\n"
        "with mgpu.start_ranks(2, device='cpu') as ranks:\n"
        "    print(sum(ranks.run(lambda: rank + 1)))\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with other:
        while other.poll() is None:
            assert two_ranks.run(lambda: rank) == [0, 1]  # noqa: F821
            time.sleep(0.05)
        assert other.stdout is not None
        assert other.stdout.read() == "3\n"
