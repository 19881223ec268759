"""Other work, stolen time and throttling are told from counters; what a system does not tell is None."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mgpu_utils.benchmark import machine_load
from mgpu_utils.benchmark.machine_load import note, runs_note, watch
from mgpu_utils.benchmark.throttling import gpu_throttle, growth, heat_throttle, quota_throttle

# Until this process has had half a second of a core; then a file says so.
SPIN = "import sys, time\nwhile time.process_time() < 0.5: pass\nopen(sys.argv[1], 'w').close()"
SPUN = 0.3

linux_only = pytest.mark.skipif(not psutil.LINUX, reason="only Linux counts the time of children that have ended")


def quiet(**changes: Any) -> dict[str, Any]:
    return {"seconds": 10.0, "other_cpu_share": 0.02, "steal_share": 0.0, "quota_throttled_seconds": 0.0} | changes


def other_seconds(load: dict[str, Any]) -> float:
    cores = len(os.sched_getaffinity(0))
    return float(load["other_cpu_share"] * load["seconds"] * cores)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_every_key_is_there_and_goes_into_a_record() -> None:
    with watch() as load:
        assert load == {}
    assert {"seconds", "other_cpu_share", "steal_share", "quota_throttled_seconds", "load_average"} <= load.keys()
    assert json.loads(json.dumps(load, allow_nan=False)) == load


def test_a_block_that_fails_is_watched_as_well() -> None:
    with pytest.raises(RuntimeError, match="out of memory"), watch() as load:
        raise RuntimeError("out of memory")
    assert load["seconds"] >= 0


@linux_only
def test_work_of_a_process_that_is_not_ours_counts_as_other_work(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with watch() as load:
        # Its parent ends at once, so that nothing ties it to this process any more.
        start = "import subprocess, sys; subprocess.Popen(sys.argv[1:])"
        subprocess.run([sys.executable, "-c", start, sys.executable, "-c", SPIN, str(done)], check=True)
        wait_for(done)
    assert other_seconds(load) >= SPUN


@linux_only
def test_work_of_our_own_children_counts_as_our_own_also_when_they_have_ended(tmp_path: Path) -> None:
    before = machine_load._own_seconds()
    subprocess.run([sys.executable, "-c", SPIN, str(tmp_path / "ended")], check=True)
    ended = machine_load._own_seconds()
    assert ended - before >= SPUN
    waits = f"{SPIN}\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", waits, str(tmp_path / "alive")]) as child:
        try:
            wait_for(tmp_path / "alive")
            assert machine_load._own_seconds() - ended >= SPUN
        finally:
            child.kill()


def reading(**changes: Any) -> machine_load._Reading:
    numbers: dict[str, Any] = {
        "at": 0.0,
        "all_seconds": 0.0,
        "work_seconds": 0.0,
        "stolen_seconds": 0.0,
        "own_seconds": 0.0,
        "mhz": 2000.0,
        "throttled": {"quota_throttled_seconds": [0.0, 1.0]},
    }
    return machine_load._Reading(**(numbers | changes))


def test_shares_are_of_the_time_of_all_usable_cores() -> None:
    after = reading(
        at=10.0,
        all_seconds=20.0,
        work_seconds=12.0,
        own_seconds=7.0,
        stolen_seconds=1.0,
        throttled={"quota_throttled_seconds": [0.5, 1.2]},
    )
    load = machine_load._between(reading(), after)
    assert (load["seconds"], load["other_cpu_share"], load["steal_share"]) == (10.0, 0.25, 0.05)
    assert load["quota_throttled_seconds"] == 0.5


def test_what_the_system_does_not_tell_is_none() -> None:
    unknown = {"stolen_seconds": None, "own_seconds": None, "mhz": None}
    throttled = {"quota_throttled_seconds": None}
    load = machine_load._between(
        reading(**unknown, throttled=throttled), reading(**unknown, at=1.0, all_seconds=2.0, throttled=throttled)
    )
    names = ("other_cpu_share", "steal_share", "quota_throttled_seconds", "cpu_mhz")
    assert [load[name] for name in names] == [None] * 4
    assert note(load) is None


def test_a_quiet_machine_is_not_worth_a_note() -> None:
    assert note(quiet()) is None
    assert note(None) is None
    assert note({}) is None
    assert runs_note([quiet(), None, {}]) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"other_cpu_share": 0.31}, "other processes used 31% of the cores"),
        ({"steal_share": 0.04}, "other virtual machines took 4% of the cores"),
        ({"quota_throttled_seconds": 0.8}, "a CPU limit held threads back for 0.8 s"),
        ({"heat_throttled_seconds": 2.5}, "heat slowed a core down for 2.5 s"),
        ({"gpu_heat_throttled_seconds": 2.5}, "heat slowed a GPU down for 2.5 s"),
        ({"quota_throttled_seconds": 0.01}, None),
        ({"gpu_power_throttled_seconds": 9.0}, None),
    ],
)
def test_a_note_says_what_disturbed_a_run(changes: dict[str, float], words: str | None) -> None:
    assert note(quiet(**changes)) == words


def test_one_sentence_tells_how_many_runs_were_disturbed_and_by_what_at_most() -> None:
    loads = [quiet(), quiet(other_cpu_share=0.2), quiet(other_cpu_share=0.41, steal_share=0.03), None, quiet()]
    assert runs_note(loads) == (
        "2 of 4 runs were measured on a busy machine (at most: other processes used 41% of the cores; other virtual "
        "machines took 3% of the cores); all are kept"
    )


def group_file(root: Path, membership: str, folder: str, text: str) -> None:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(membership)
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "cpu.stat").write_text(text)


def test_throttling_is_read_from_control_groups_of_version_2(tmp_path: Path) -> None:
    text = "usage_usec 100\nnr_periods 9\nnr_throttled 4\nthrottled_usec 2500000\n"
    group_file(tmp_path, "0::/job\n", "sys/fs/cgroup/job", text)
    assert quota_throttle(tmp_path) == ([2.5], [4.0])


def test_throttling_is_read_from_control_groups_of_version_1(tmp_path: Path) -> None:
    text = "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000\n"
    group_file(tmp_path, "1:cpu,cpuacct:/job\n", "sys/fs/cgroup/cpu,cpuacct/job", text)
    assert quota_throttle(tmp_path) == ([1.5], [3.0])


def test_the_limit_of_a_parent_group_counts_as_well(tmp_path: Path) -> None:
    for folder, throttled in (("sys/fs/cgroup/a", 7), ("sys/fs/cgroup/a/b", 0)):
        group_file(tmp_path, "0::/a/b\n", folder, f"nr_throttled {throttled}\nthrottled_usec {throttled}000000\n")
    assert quota_throttle(tmp_path).seconds == [0.0, 7.0]


def test_a_system_without_these_counters_tells_nothing(tmp_path: Path) -> None:
    assert quota_throttle(tmp_path) == (None, None)
    group_file(tmp_path, "0::/\n", "sys/fs/cgroup", "usage_usec 100\nbroken\n")
    assert quota_throttle(tmp_path) == (None, None)
    assert heat_throttle(tmp_path) is None


def test_heat_is_read_for_each_core(tmp_path: Path) -> None:
    for core, spent in ((0, 0), (1, 1250)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_total_time_ms").write_text(f"{spent}\n")
    assert heat_throttle(tmp_path) == [0.0, 1.25]


def test_growth_is_that_of_the_counter_that_grew_most() -> None:
    assert growth([5.0, 100.0], [9.0, 101.0]) == 4.0
    assert growth([5.0], [4.0]) == 0.0
    assert growth(None, [1.0]) is None
    assert growth([1.0], [1.0, 2.0]) is None


class StandInNvml:
    """The five calls of pynvml, for machines without a GPU; nanoseconds by device and policy (0 power, 1 heat)."""

    def __init__(self, spent: list[dict[int, int]], broken: bool = False) -> None:
        self.spent, self.broken, self.open = spent, broken, 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        if self.broken:
            raise OSError("driver is gone")
        return len(self.spent)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetViolationStatus(self, handle: int, policy: int) -> SimpleNamespace:
        return SimpleNamespace(violationTime=self.spent[handle][policy], referenceTime=0)


def test_a_gpus_heat_and_power_limits_are_told_apart() -> None:
    nvml = StandInNvml([{0: 3_000_000_000, 1: 0}, {0: 0, 1: 500_000_000}])
    assert gpu_throttle(nvml) == ([0.0, 0.5], [3.0, 0.0])
    assert nvml.open == 0


def test_a_driver_that_fails_tells_nothing_and_stops_no_measurement() -> None:
    nvml = StandInNvml([], broken=True)
    assert gpu_throttle(nvml) == (None, None)
    assert nvml.open == 0
