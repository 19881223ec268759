"""Faults that are no cell: values that cannot travel, and those which have a test of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Value:
    """A call whose function, argument or result cannot travel; `sees` is how the message begins."""

    name: str
    call: Callable[[Any], Any]
    sees: str
    error: str = "TypeError"


def _returns_a_lock() -> Any:
    import threading

    return threading.Lock()


def _with_a_lock() -> Callable[[], bool]:
    lock = threading.Lock()
    return lambda: lock.locked()


VALUES = [
    Value(
        "a function that cannot be sent",
        lambda group: group.run(_with_a_lock()),
        "the function of ranks.run cannot be sent to the ranks: cannot pickle '_thread.lock' object.",
    ),
    Value(
        "an argument that cannot be sent",
        lambda group: group.run(print, 1, threading.Lock()),
        "argument 2 of ranks.run cannot be sent to the ranks: cannot pickle '_thread.lock' object.",
    ),
    Value(
        "a result that cannot be sent",
        lambda group: group.run(_returns_a_lock),
        "{all} raised TypeError: the value returned by _returns_a_lock (a lock) cannot be sent to the notebook: ",
        "RankError",
    ),
]


@dataclass(frozen=True)
class Proven:
    """A fault with a test of its own, by its name; `sees` is told in words."""

    about: str
    name: str
    sees: str
    test: str


_END = "The notebook ends"
_MUCH = "Too much, or not text"
_MACHINE = "Machines that lack something"
_ENDED = "all ranks and their workers are gone"
MUCH = [
    Proven(
        _MUCH,
        "200 MB of printed output in one cell",
        "its beginning and end, and how many characters are not shown",
        "test_a_flood_of_output_keeps_head_and_tail_and_says_how_much_was_cut",
    ),
    Proven(_MUCH, "a result of 500 MB", "the result", "test_a_result_of_500_mb_arrives"),
    Proven(
        _MUCH, "bytes that are no text", "a sign for each such byte", "test_bytes_that_are_no_text_are_shown_as_such"
    ),
    Proven(
        _MUCH,
        "progress bars of all ranks",
        "the last state of each",
        "test_progress_bars_of_all_ranks_leave_their_last_state",
    ),
    Proven(
        _MUCH,
        "the same warning on all ranks",
        "the warning once, marked `[all ranks]`",
        "test_a_warning_of_all_ranks_is_shown_once",
    ),
    Proven(
        _MUCH,
        "thousands of figures in one cell",
        "the first ones, and how many more there were",
        "test_more_figures_than_a_notebook_can_hold_are_counted",
    ),
]
ENDS = [
    Proven(_END, "the kernel is restarted or shut down", _ENDED, "test_no_rank_outlives_the_kernel_even_when_stuck"),
    Proven(
        _END,
        "the kernel is killed while idle, stuck, or holding the GIL",
        _ENDED,
        "test_no_process_outlives_the_notebooks_kernel",
    ),
    Proven(
        _END,
        "the kernel is killed while the ranks work",
        _ENDED,
        "test_ranks_end_with_a_kernel_that_is_killed_while_they_work",
    ),
    Proven(_END, "JupyterLab is closed or killed", _ENDED, "test_ranks_end_with_the_server_of_jupyterlab"),
    Proven(_END, "the terminal is closed", _ENDED, "test_ranks_end_when_the_terminal_is_closed"),
]
MACHINES = [
    Proven(
        _MACHINE,
        "no address for the host name, no IPv6",
        "the ranks work",
        "test_ranks_start_without_a_resolvable_host_name_and_without_ipv6",
    ),
    Proven(
        _MACHINE,
        "a proxy, `MASTER_PORT` and `RANK` in the environment",
        "the ranks work",
        "test_proxies_and_variables_of_an_outer_job_change_nothing",
    ),
    Proven(
        _MACHINE,
        "a working directory and a home that cannot be written to",
        "the ranks work",
        "test_nothing_is_written_to_the_working_directory_or_the_home",
    ),
    Proven(
        _MACHINE,
        "a full folder for temporary files",
        "`rank 0 could not be started: No space left on device. ...`",
        "test_a_full_folder_for_temporary_files_is_named",
    ),
    Proven(
        _MACHINE,
        "64 MB of `/dev/shm` and a larger batch from a DataLoader's worker",
        "PyTorch's own error, which names the shared memory",
        "test_a_dataloader_in_a_small_shared_memory_is_explained_by_its_size",
    ),
    Proven(_MACHINE, "more ranks than cores", "the ranks work", "test_more_ranks_than_cores_work"),
    Proven(
        _MACHINE,
        '0, -1, 1000 or "two" ranks, a GPU that does not exist',
        "`world_size is 0, but it must be a whole number of ranks, 1 or more.`",
        "test_numbers_and_devices_that_do_not_exist_are_refused_before_anything_starts",
    ),
    Proven(
        _MACHINE,
        "two groups in one notebook",
        "both work",
        "test_two_groups_in_one_notebook_work_side_by_side",
    ),
    Proven(
        _MACHINE,
        "two notebooks at once",
        "both work",
        "test_two_notebooks_can_have_ranks_at_the_same_time",
    ),
    Proven(
        _MACHINE,
        "twenty starts and ends in a row",
        "each works; no descriptor and no memory more",
        "test_many_starts_in_a_row_succeed_and_leave_no_open_files",
    ),
]
PROVEN = [*MUCH, *ENDS, *MACHINES]
