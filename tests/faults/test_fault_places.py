"""Ranks start, or say in one sentence why not, on machines that lack what others have."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import mgpu_utils as mgpu
from mgpu_utils.devices import plan
from mgpu_utils.ranks import RankGroup

ROOT = Path(__file__).parents[2]
WORK = """
import mgpu_utils as mgpu
with mgpu.start_ranks(2, device="cpu", timeout=60) as ranks:
    ranks.execute("x = torch.ones(1); dist.all_reduce(x); print(int(x))")
"""
DONE = "[rank 0] 2\n[rank 1] 2\n"


def run(code: str, cwd: Path, mount: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in `cwd`, in a mount namespace of its own where the shell lines `mount` ask for one."""
    command = [sys.executable, "-c", code]
    if mount:
        unshare = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-e", "-c"]
        try:
            probe = subprocess.run([*unshare, mount], capture_output=True, text=True, timeout=20, cwd=cwd)
        except FileNotFoundError:
            pytest.skip("this machine has no `unshare`")
        if probe.returncode != 0:
            pytest.skip(f"a mount namespace cannot be made here: {probe.stderr.strip()}")
        command = [*unshare, f'{mount}\nexec "$@"', "sh", *command]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MGPU_LIVE": "0", **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=150)


def test_proxies_and_variables_of_an_outer_job_change_nothing(tmp_path: Path) -> None:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    outer = {"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "no.such.host", "MASTER_PORT": "1", "LOCAL_RANK": "3"}
    done = run(WORK, tmp_path, **proxies, **outer)
    assert (done.returncode, done.stdout, done.stderr) == (0, DONE, "")


def test_nothing_is_written_to_the_working_directory_or_the_home(tmp_path: Path) -> None:
    readonly = 'mount -t tmpfs -o ro tmpfs "$PWD"; cd "$PWD"; ! touch file 2>/dev/null'
    home = tmp_path / "home"
    home.mkdir()
    done = run(WORK, home, readonly, HOME=str(home), IPYTHONDIR="")
    assert (done.returncode, done.stdout) == (0, DONE), done.stderr


def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path) -> None:
    code = """
    import os, tempfile
    import mgpu_utils as mgpu
    from mgpu_utils.ranks import RankGroup
    folder = tempfile.gettempdir()
    def fill():
        with open(folder + "/filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)): pass
            except OSError:
                pass
    fill()
    try:
        mgpu.start_ranks(2, device="cpu")
    except mgpu.RankError as error:
        print(error)
    os.remove(folder + "/filler")
    print(os.listdir(folder))
    """
    mount = f'mkdir -p "{tmp_path}/small"; mount -t tmpfs -o size=64k tmpfs "{tmp_path}/small"'
    done = run(textwrap.dedent(code), tmp_path, mount, TMPDIR=f"{tmp_path}/small")
    said, left = done.stdout.splitlines()
    assert said.startswith("rank 0 could not be started: No space left on device. The folder for temporary files (")
    assert said.endswith("small) is full: free some space there.")
    assert left == "[]"


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.EROFS, "set TMPDIR"), (errno.EMFILE, "ulimit -n"), (errno.EAGAIN, "no more processes")],
    ids=["read-only", "too many open files", "no more processes"],
)
def test_what_the_system_refuses_is_said_in_words_and_nothing_is_left(
    number: int, says: str, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    before = set(temporary.iterdir()), psutil.Process().num_fds() if hasattr(psutil.Process(), "num_fds") else 0

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("jupyter_client.launcher.launch_kernel", refuse)
    with pytest.raises(mgpu.RankError, match=says) as caught:
        RankGroup(plan(2, "cpu"), 60.0, 1)
    assert "\n" not in str(caught.value)
    assert set(temporary.iterdir()) == before[0]
    # The store that the notebook hosts goes with the group that was never made.
    assert before[1] == 0 or psutil.Process().num_fds() <= before[1] + 4


def test_a_dataloader_in_a_small_shared_memory_is_explained_by_its_size(tmp_path: Path) -> None:
    code = """
    import mgpu_utils as mgpu
    cell = '''
    class Large(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, i): return torch.zeros(40 << 20, dtype=torch.uint8)
    for batch in torch.utils.data.DataLoader(Large(), batch_size=4, num_workers=1): pass
    '''
    import textwrap
    with mgpu.start_ranks(2, device="cpu", timeout=60) as ranks:
        try:
            ranks.execute(textwrap.dedent(cell))
        except mgpu.RankError as error:
            print(error)
        if ranks.needs_restart: ranks.restart()
        print(ranks.run(lambda: 1))
    """
    done = run(textwrap.dedent(code), tmp_path, "mount -t tmpfs -o size=64m tmpfs /dev/shm")
    assert "shared memory" in done.stdout
    assert done.stdout.splitlines()[-1] == "[1, 1]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"world_size": 0}, "world_size is 0, but it must be a whole number of ranks, 1 or more"),
        ({"world_size": -1}, "world_size is -1, but it must be a whole number"),
        ({"world_size": "two"}, "world_size is 'two', but it must be a whole number"),
        ({"world_size": 1000}, "ask for at most"),
        ({"world_size": 2, "device": "cuda:7"}, "device is 'cuda:7', but it must be one of"),
        ({"world_size": 1000, "device": "cuda"}, "1000|no such device"),
    ],
)
def test_numbers_and_devices_that_do_not_exist_are_refused_before_anything_starts(
    arguments: dict[str, object], says: str
) -> None:
    children = psutil.Process().children()
    with pytest.raises(ValueError, match=says) as caught:
        mgpu.start_ranks(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert psutil.Process().children() == children


def test_more_ranks_than_cores_work() -> None:
    many = len(os.sched_getaffinity(0)) + 2 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 2
    if many > 8:
        pytest.skip(f"{many} ranks would need more memory than a test may take")
    with mgpu.start_ranks(many, device="cpu") as ranks:
        ranks.execute("x = torch.ones(1)\ndist.all_reduce(x)")
        assert ranks.run(lambda: int(x)) == [many] * many  # type: ignore[name-defined] # noqa: F821


def test_two_groups_in_one_notebook_work_side_by_side() -> None:
    with RankGroup(plan(1, "cpu"), 60.0, 1) as first, RankGroup(plan(2, "cpu"), 60.0, 1) as second:
        assert first.run(lambda: world_size) == [1]  # type: ignore[name-defined] # noqa: F821
        assert second.run(lambda: world_size) == [2, 2]  # type: ignore[name-defined] # noqa: F821
        first.shutdown()
        assert second.run(lambda: rank) == [0, 1]  # type: ignore[name-defined] # noqa: F821


def test_memory_that_ran_out_is_told_from_a_kill_by_hand(tmp_path: Path) -> None:
    from mgpu_utils.hangs import describe_exit
    from mgpu_utils.memory_kills import out_of_memory_kills

    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "user" / "notebook").mkdir(parents=True)
    assert out_of_memory_kills(proc, groups) is None
    (proc / "vmstat").write_text("nr_free_pages 5\noom_kill 4\n")
    assert out_of_memory_kills(proc, groups) == 4
    (proc / "self" / "cgroup").write_text("0::/user/notebook\n")
    (groups / "user" / "notebook" / "memory.events").write_text("oom 3\noom_kill 2\n")
    assert out_of_memory_kills(proc, groups) == 2
    assert "ran out of memory" in describe_exit(-9, "", 1)
    assert "there was no lack of memory" in describe_exit(-9, "", 0)
