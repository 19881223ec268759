"""Stacks are read, and turned into the right explanation."""

from __future__ import annotations

import faulthandler
import tempfile

import pytest

from mgpu_utils.hangs import RankState, StackFrame, describe_exit, explain, locate, main_stack, split_report
from mgpu_utils.rank_errors import Place, RankTimeout, number_ranks, shown_places

PLACE = Place("Cell In[3]", 2, "<module>", "dist.all_reduce(x)")


def state(rank: int, kind: str, waits_in: str | None = None) -> RankState:
    return RankState(rank, kind, waits_in, PLACE if kind == "running" else None)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([state(0, "running", "all_reduce"), state(1, "finished")], "for rank 1, which has already finished"),
        ([state(0, "running", "barrier"), state(1, "failed")], "for rank 1, which stopped with an error"),
        (
            [state(0, "running", "barrier"), state(1, "finished"), state(2, "finished")],
            "Rank 0 waits inside barrier for ranks 1 and 2, which have already finished",
        ),
        (
            [state(0, "running", "all_reduce"), state(1, "running", "broadcast")],
            "different collectives (all_reduce, broadcast)",
        ),
        ([state(0, "running", "all_reduce"), state(1, "running")], "for rank 1, still busy elsewhere"),
        ([state(0, "running", "all_reduce"), state(1, "running", "all_reduce")], "differ in shape or dtype"),
        ([state(0, "running"), state(1, "finished")], "Rank 0 had more work than the time allows"),
    ],
)
def test_each_way_to_hang_has_its_own_explanation(states: list[RankState], expected: str) -> None:
    assert expected in explain(states)


def test_a_state_says_where_the_rank_stands() -> None:
    assert str(state(0, "running", "all_reduce")) == (
        "rank 0 waits inside all_reduce   Cell In[3], line 2: dist.all_reduce(x)"
    )
    assert str(RankState(1, "running")) == "rank 1 is still at work (it could not be asked for its line)"
    assert str(state(2, "finished")) == "rank 2 has finished the cell"


def test_a_real_dump_is_separated_from_other_text() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"a message of C++ code\n")
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
        file.write(b"and one more\n")
        file.seek(0)
        text = file.read().decode()
    stacks, rest = split_report(text)
    assert rest.splitlines() == ["a message of C++ code", "and one more"]
    frames = main_stack(stacks)
    assert frames[0].name == "test_a_real_dump_is_separated_from_other_text"
    assert frames[0].file == __file__


def test_the_outermost_public_call_names_the_collective() -> None:
    def place_of(frame: StackFrame) -> Place:
        return Place(frame.file, frame.line)

    c10d = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    logger = "/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py"
    mine = StackFrame(__file__, 7, "step")
    frames = [
        StackFrame(c10d, 10, "all_reduce"),
        StackFrame(c10d, 20, "all_gather_object"),
        StackFrame(logger, 1, "wrapper"),
    ]
    assert locate([*frames, mine], place_of) == ("all_gather_object", Place(__file__, 7))
    engine = StackFrame("/env/site-packages/torch/autograd/graph.py", 5, "_engine_run_backward")
    assert locate([engine, mine], place_of) == ("backward", Place(__file__, 7))
    assert locate([mine], place_of) == (None, Place(__file__, 7))


def test_ranks_that_came_to_their_end_while_they_were_asked_are_no_riddle() -> None:
    assert "came to their end" in explain([state(0, "finished"), state(1, "finished")])


def test_a_rank_that_was_stopped_from_outside_is_not_blamed_on_the_code() -> None:
    stopped = RankState(1, "running", stopped=True)
    assert str(stopped) == "rank 1 is stopped (SIGSTOP), so nothing runs there"
    assert "without rank 1, which somebody stopped" in explain([state(0, "running", "barrier"), stopped])
    assert explain([state(0, "finished"), stopped]).startswith("Somebody stopped rank 1 (SIGSTOP).")


def test_an_exit_is_described_by_its_signal_or_code() -> None:
    assert describe_exit(3, "") == "ended itself with exit code 3 (`os._exit`, or a library that calls it)"
    assert describe_exit(-9, "").startswith(
        "was ended by signal 9 (SIGKILL): somebody killed it, or the machine ran out"
    )
    said = "what(): Received data size doesn't match expected size. Is there a distributed collective mismatch"
    assert "tensors of different size or dtype" in describe_exit(-6, said)


def test_ranks_are_listed_in_words() -> None:
    assert [number_ranks(r) for r in ([1], [0, 2], [0, 1, 3])] == ["rank 1", "ranks 0 and 2", "ranks 0, 1 and 3"]


def test_a_notebook_gets_long_sentences_in_lines_it_can_show() -> None:
    text = "short first line\n  rank 0 waits   Cell In[1], line 3: x" + "\nWhy: " + "many words " * 40
    (shown,) = RankTimeout(text)._render_traceback_()
    lines = shown.splitlines()
    assert lines[:2] == ["RankTimeout: short first line", "  rank 0 waits   Cell In[1], line 3: x"]
    assert max(map(len, lines)) <= 96
    assert shown.split() == f"RankTimeout: {text}".split()


def test_a_dump_that_was_cut_short_is_no_output_and_a_childs_traceback_is() -> None:
    dump = 'Thread 0x00007f01 (most recent call first):\n  File "/lib/a.py", line 3 in f\n  File "/lib/b'
    said = '  File "child.py", line 3, in <module>'
    assert split_report(said + "\n" + dump) == (dump, said)
    for end in ("", '"', '", line 12', '", line 12 i'):
        stacks, rest = split_report("Thread 0x01 (most recent call first):\n" + '  File "/lib/b.py' + end)
        assert (len(stacks.splitlines()), rest) == (2, "")


def test_a_recursions_many_frames_are_told_as_a_number() -> None:
    first, again = Place("a.py", 1, "f", "f()"), Place("a.py", 2, "r", "r(n)")
    assert shown_places((first, *[again] * 970)) == [
        "  at a.py, line 1, in f: f()",
        "  at a.py, line 2, in r: r(n)",
        "  at a.py, line 2, in r: r(n)",
        "  ... and 968 times more in the same line",
    ]
